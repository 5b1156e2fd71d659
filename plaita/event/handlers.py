"""A handler of events with a thread and a place in the log of its own: slow, it holds up nobody and misses nothing."""

from __future__ import annotations

import fnmatch
import logging
import threading
from collections.abc import Callable
from typing import Any, Protocol

from plaita.errors import PlaitaError
from plaita.event.model import Event, RetryPolicy

Handler = Callable[[Event], Any]
Condition = Callable[[Event], bool]

LOOK_EVERY_S = 0.25
STOPS_WITHIN_S = 5.0

_log = logging.getLogger("plaita.event")


class Followed(Protocol):
    """What a handler needs of its bus."""

    def events_after(self, position: str, limit: int = 100) -> tuple[str, list[Event]]: ...

    def wait_a_moment(self, stopped: threading.Event, seconds: float) -> None: ...


class HandlerThread:
    """Follows the log from a place on until it is stopped."""

    def __init__(
        self,
        bus: Followed,
        event_type: str | None,
        handler: Handler,
        condition: Condition | None,
        retry: RetryPolicy,
        position: str,
    ) -> None:
        self._bus = bus
        self._pattern = event_type if event_type is not None else "*"
        self._handler = handler
        self._condition = condition
        self._retry = retry
        self._position = position
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"events {self._pattern}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        if threading.current_thread() is not self._thread:
            self._thread.join(STOPS_WITHIN_S)

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                after, events = self._bus.events_after(self._position)
            except PlaitaError as error:  # no server now: the place in the log is kept
                _log.warning("event bus: %s", error)
                self._stopped.wait(1.0)
                continue
            for event in events:
                self._one(event)
                if self._stopped.is_set():
                    return
            self._position = after
            if not events:
                self._bus.wait_a_moment(self._stopped, LOOK_EVERY_S)

    def _one(self, event: Event) -> None:
        failures = 0
        while True:
            try:
                if self._takes(event):
                    self._handler(event)
                return
            except Exception:  # noqa: BLE001 - code of others; it is tried again and told of
                failures += 1
                last = failures > self._retry.max_retries
                _log.log(
                    logging.ERROR if last else logging.WARNING,
                    "handler of %r failed on event %s for the %d. time%s",
                    self._pattern, event.event_id, failures, ": given up" if last else "",
                    exc_info=True,
                )  # fmt: skip
                if last or self._stopped.wait(self._retry.delay(failures)):
                    return

    def _takes(self, event: Event) -> bool:
        if not fnmatch.fnmatchcase(event.event_type, self._pattern):
            return False
        return self._condition is None or bool(self._condition(event))
