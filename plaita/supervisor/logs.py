"""Structured logs: one line an event, ``time level event=name key=value ...``, on stderr.

A log line must never stop the loop: lines go through a bounded queue to one writer thread (this process never forks,
so it may have threads). When stderr blocks, the queue fills and further lines are dropped and counted.
"""

from __future__ import annotations

import codecs
import contextlib
import logging
import logging.handlers
import queue
import sys
from collections.abc import Callable
from typing import Any

from plaita.clock import iso_utc, wall_ms

_QUEUE_LINES = 10_000
codecs.lookup("unicode_escape")  # else it is read from disk for the first odd value, which may tell that that cannot be
_logger = logging.getLogger("plaita")
_lines: queue.Queue[Any] | None = None


def _quoted(value: object) -> str:
    text = str(value)
    if text and all(c.isprintable() and c not in ' "=' for c in text):
        return text
    escaped = "".join(c if c.isprintable() and c not in '"\\' else c.encode("unicode_escape").decode() for c in text)
    return '"' + escaped.replace('"', '\\"') + '"'


def render(level: str, event: str, fields: dict[str, Any], at_ms: int) -> str:
    """One line without a newline inside, whatever the fields hold."""
    parts = [iso_utc(at_ms) or "", level, f"event={event}"]
    parts += [f"{name}={_quoted(value)}" for name, value in fields.items() if value is not None]
    return " ".join(parts)


def log(level: int, event: str, **fields: Any) -> None:
    """Log one event with its facts. ``event`` is a fixed dotted name, spelled as in the ledger where it names one."""
    if _logger.isEnabledFor(level):
        _logger.log(level, render(logging.getLevelName(level), event, fields, wall_ms()))


def debug(event: str, **fields: Any) -> None:
    log(logging.DEBUG, event, **fields)


def info(event: str, **fields: Any) -> None:
    log(logging.INFO, event, **fields)


def warning(event: str, **fields: Any) -> None:
    log(logging.WARNING, event, **fields)


def error(event: str, **fields: Any) -> None:
    log(logging.ERROR, event, **fields)


def waiting() -> int:
    """How many lines the writer thread has still to write: some, or all that the queue holds when stderr blocks."""
    return _lines.unfinished_tasks if _lines is not None else 0


class _DroppingQueueHandler(logging.handlers.QueueHandler):
    def __init__(self, lines: queue.Queue[Any], on_drop: Callable[[], None]) -> None:
        super().__init__(lines)
        self._on_drop = on_drop

    def enqueue(self, record: logging.LogRecord) -> None:
        try:
            self.queue.put_nowait(record)
        except queue.Full:
            self._on_drop()


class _LastResortStream(logging.StreamHandler[Any]):
    """Writes to stderr; a closed or broken stderr, or a full disk behind it, stops nothing. What it did not take is
    counted, and told of once it takes lines again. Used by the writer thread alone."""

    def __init__(self, stream: Any, on_drop: Callable[[], None]) -> None:
        super().__init__(stream)
        self._on_drop = on_drop
        self._lost = 0
        self._why = ""

    def emit(self, record: logging.LogRecord) -> None:
        if self._lost and not self._tell():
            self._lose()
            return
        super().emit(record)

    def handleError(self, record: logging.LogRecord) -> None:
        error = sys.exc_info()[1]
        self._why = (error.strerror if isinstance(error, OSError) else None) or repr(error)
        self._lose()

    def _lose(self) -> None:
        self._lost += 1
        self._on_drop()

    def _tell(self) -> bool:
        """Say how many it did not take; whether it takes lines again."""
        line = render("WARNING", "log.lines_lost", {"lines": self._lost, "error": self._why}, wall_ms())
        try:
            self.stream.write(f"{line}\n")
            self.flush()
        except (OSError, ValueError):
            return False
        self._lost = 0
        return True


def set_up(level: str, on_drop: Callable[[], None]) -> Callable[[], None]:
    """Install the handlers; returns a function that flushes and stops the writer thread."""
    global _lines
    lines: queue.Queue[Any] = queue.Queue(_QUEUE_LINES)
    _lines = lines
    stream = _LastResortStream(sys.stderr, on_drop)
    stream.setFormatter(logging.Formatter("%(message)s"))
    listener = logging.handlers.QueueListener(lines, stream)
    _logger.handlers[:] = [_DroppingQueueHandler(lines, on_drop)]
    _logger.setLevel(level)
    _logger.propagate = False
    listener.start()

    def stop() -> None:
        # A writer that is stuck in a blocked stderr must not keep the process: it is a daemon thread.
        thread = listener._thread
        with contextlib.suppress(queue.Full):
            lines.put_nowait(listener._sentinel)  # type: ignore[attr-defined]
        if thread is not None:
            thread.join(timeout=1.0)

    return stop
