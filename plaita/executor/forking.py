"""The double fork: how a template makes an executor that is not its child (DESIGN "Processes").

template -> middle -> executor. The middle is the executor's parent, so it can open its pidfd without a race; it passes
pid and pidfd to the template and waits for the word to end. Only then is the executor handed to the next subreaper
above, the supervisor, which has been told its pid before. Signals are blocked over both forks: one that is sent to the
newborn waits until it can handle it (trouble 49).
"""

from __future__ import annotations

import array
import os
import signal
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

from plaita.unix.processes import close_fds_except, pidfd_open, send_signal

_FAILED = b"!"
_DONE = b"."


@dataclass(slots=True)
class Birth:
    """A fork under way, seen from the template. ``report``: the socket to the middle."""

    slot: int
    seq: int
    middle: int
    middle_pidfd: int
    report: socket.socket
    reported: bool = False

    def read_report(self) -> tuple[int, int] | str | None:
        """(pid, pidfd) of the executor, or why there is none; None when the middle ended without a word."""
        try:
            data, ancillary, _, _ = self.report.recvmsg(
                4096, socket.CMSG_SPACE(array.array("i").itemsize), socket.MSG_CMSG_CLOEXEC
            )
        except OSError as error:
            return f"the middle process cannot be heard: {error}"
        if not data:
            return None
        if data[:1] == _FAILED:
            return data[1:].decode("utf-8", "replace")
        numbers = array.array("i")
        for _level, _kind, content in ancillary:
            numbers.frombytes(content)
        if len(numbers) != 1:
            return "no descriptor left in the template for the executor's pidfd"
        return int(data), numbers[0]

    def release(self) -> None:
        """The supervisor knows: let the middle end. It may be dead already, which is as good."""
        try:
            self.report.send(_DONE, socket.MSG_NOSIGNAL)
        except OSError:
            send_signal(self.middle, signal.SIGKILL)

    def close(self) -> None:
        """Give the descriptors back. The middle must have been reaped."""
        self.report.close()
        os.close(self.middle_pidfd)


def fork_executor(slot: int, seq: int, become: Callable[[], NoReturn]) -> Birth:
    """Begin a double fork; ``become`` runs in the executor, with all signals blocked, and never returns.

    Raises OSError when a limit is hit; nothing has been made then.
    """
    report, middle_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    before = signal.pthread_sigmask(signal.SIG_SETMASK, signal.valid_signals())
    try:
        middle = os.fork()
        if middle == 0:
            _be_middle(middle_end, become)
    except OSError:
        report.close()
        raise
    finally:
        middle_end.close()
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    report.setblocking(False)
    try:
        middle_pidfd = pidfd_open(middle)
    except OSError:
        report.close()
        send_signal(middle, signal.SIGKILL)
        os.waitpid(middle, 0)  # it has nothing to do that could keep it from dying
        raise
    return Birth(slot, seq, middle, middle_pidfd, report)


def _be_middle(report: socket.socket, become: Callable[[], NoReturn]) -> NoReturn:
    """Fork the executor, report it, wait for the word, end. Whatever happens, this process ends here."""
    try:
        executor = os.fork()
        if executor == 0:
            become()
        close_fds_except({report.fileno()})  # above all the reports of other births, which end by end-of-file
        pidfd = pidfd_open(executor)
        report.sendmsg([str(executor).encode()], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [pidfd]))])
        report.recv(1)
    except OSError as error:
        report.send(_FAILED + str(error).encode())
    finally:
        os._exit(0)
