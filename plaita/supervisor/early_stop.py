"""SIGTERM and SIGINT from the first moment on, before there is a loop that could hear them.

What the start has opened by then (socket, embedded server) is closed again on the way out: the signal becomes an
exception where there is one thread and one stack. Once the loop is being set up, it is only noted, for the supervisor
to find when its own handlers stand.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType, TracebackType
from typing import Self


class StoppedEarly(BaseException):
    """Told to stop before anything ran. No Exception: nothing on the way may take it for a failure of its own."""


class EarlyStop:
    """A context around the start. ``heard``: a stop came."""

    def __init__(self) -> None:
        self.heard = False
        self._raises = True

    def __enter__(self) -> Self:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until there is something to reload it must not end us
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._raises = False  # what is being closed is closed in peace

    @contextlib.contextmanager
    def in_one_piece(self) -> Iterator[None]:
        """What is opened in here, and who will close it, stand together: a stop is heard when both do."""
        self._raises = False
        try:
            yield
        finally:
            self._raises = True
        if self.heard:
            raise StoppedEarly

    def note_only(self) -> None:
        """From now on no exception. Raises one last time for a stop that has just come."""
        self._raises = False
        if self.heard:
            raise StoppedEarly

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        first, self.heard = not self.heard, True
        if self._raises and first:
            raise StoppedEarly


def hear_no_more() -> None:
    """The parts are down, and the exit code is known. A stop that comes now has nothing left to stop: it must not end
    the process another way, when the loop has taken its handlers along."""
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM, signal.SIGINT, signal.SIGHUP))
