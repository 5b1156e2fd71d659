"""SIGTERM in an executor: what it means depends on what is going on.

* idle: the process ends, exit code 0;
* node code runs: ``cancel_event`` is set and StepStopped is raised in it, once;
* anything else (a frame is being read, an answer written): noted, and acted on when that is done.

The handler takes no lock (trouble 20): the main thread may be inside ``cancel_event.wait`` when the signal comes, so
the event is set by a thread of its own, started below the level that uses locks.
"""

from __future__ import annotations

import _thread
import os
import signal
import threading
from types import FrameType

from plaita.flow.outcome import StepStopped


class StopSignal:
    """``asked``: SIGTERM has come. ``raised``: it has been raised in node code of the step under way."""

    def __init__(self) -> None:
        self.asked = False
        self.raised = False
        self._idle = False
        self._armed = False
        self._cancel_event: threading.Event | None = None

    def install(self) -> None:
        """Become the handler of SIGTERM."""
        signal.signal(signal.SIGTERM, self.handle)

    def handle(self, number: int, frame: FrameType | None) -> None:
        """The signal handler."""
        self.asked = True
        if self._idle:
            os._exit(0)  # the streams were flushed after the last step
        event = self._cancel_event
        if event is not None:
            try:
                _thread.start_new_thread(event.set, ())
            except RuntimeError:  # no thread to be had: StepStopped must do
                pass
        if self._armed:
            self._armed = False
            self.raised = True
            raise StepStopped

    def begin_idle(self) -> None:
        """From here on SIGTERM ends the process; one that has come already ends it now."""
        self._idle = True
        if self.asked:
            os._exit(0)

    def end_idle(self) -> None:
        """A frame is here: SIGTERM waits again."""
        self._idle = False

    def begin(self, cancel_event: threading.Event) -> None:
        """A step begins; its node sees ``cancel_event``."""
        self._cancel_event = cancel_event

    def end(self) -> None:
        """The step's node code has ended."""
        self._armed = False
        self._cancel_event = None

    def arm(self) -> None:
        """From here on the signal is raised. Raises StepStopped when it has come already."""
        if self.asked:
            self.raised = True
            raise StepStopped
        self._armed = True

    def disarm(self) -> None:
        """From here on the signal waits."""
        self._armed = False
