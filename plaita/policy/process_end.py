"""How a supervisor's process ended, in the words of systemd.exec(5), and whether that is worth a death record (S14).

A supervisor that was killed cannot say so itself and its next life cannot know; its parent does.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass

from plaita.errors import InputError

# 0: clean. 75: it drained, and handed on what it had to kill. 78: it refused to start, so it never held anything.
NORMAL_EXITS = frozenset({0, 75, 78})


@dataclass(frozen=True, slots=True)
class ProcessEnd:
    """``cause`` as it is shown: ``SIGKILL``, ``SIGSEGV (core dumped)``, ``exit 70``. ``signal`` and ``exit_code`` are
    numbers; the one that it did not end with is None, and so is the number of a signal nobody knows here."""

    cause: str
    signal: int | None
    exit_code: int | None

    @property
    def abnormal(self) -> bool:
        """Whether work may have been lost with it."""
        return self.exit_code not in NORMAL_EXITS


def read_end(exit_code: str, exit_status: str) -> ProcessEnd:
    """``exit_code``: ``exited``, ``killed`` or ``dumped``; ``exit_status``: the status, or the signal by name
    (``KILL``, ``SIGKILL``) or number. Raises InputError for anything else."""
    status = exit_status.strip()
    if exit_code == "exited":
        if not (status.isascii() and status.isdecimal()):
            raise InputError(f"exit status: {exit_status!r} is no number, as it is after {exit_code!r}")
        return ProcessEnd(f"exit {int(status)}", None, int(status))
    if exit_code not in ("killed", "dumped"):
        raise InputError(f"exit code: {exit_code!r} is none of exited, killed, dumped")
    name, number = _signal(status)
    return ProcessEnd(f"{name} (core dumped)" if exit_code == "dumped" else name, number, None)


def _signal(text: str) -> tuple[str, int | None]:
    if not (text.isascii() and text.replace("+", "").replace("-", "").isalnum()):
        raise InputError(f"exit status: {text!r} is no signal, as it is after killed and dumped")
    if text.isdecimal():
        try:
            return signal.Signals(int(text)).name, int(text)
        except ValueError:
            return f"signal {int(text)}", int(text)
    name = text.upper() if text.upper().startswith("SIG") else f"SIG{text.upper()}"
    known = signal.Signals.__members__.get(name)
    return name, None if known is None else int(known)
