"""The event bus: publish, look up, wait, and handlers that follow the log (REFERENCE 5.8).

One implementation, over the store's events: what is published here wakes the executions that wait, and what anybody
publishes is heard here. Nothing is lost between: a handler keeps its own place in the log, however slow it is.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any, Self

from plaita import ids
from plaita.event.handlers import Condition, Handler, HandlerThread
from plaita.event.model import Event, EventSubscription, EventTimeoutError, RetryPolicy, event_of

Position = str  # a place in the log


class EventBus(ABC):
    """Blocking, for any thread. ``close`` ends its handlers."""

    def __init__(self) -> None:
        self._handlers: dict[str, HandlerThread] = {}
        self._lock = threading.Lock()

    # -- what an implementation has ---------------------------------------------------------------

    @abstractmethod
    def publish(
        self,
        event: Event | str | Mapping[str, Any],
        prevent_duplicate_consumption: bool = True,
        correlation_id: str | None = None,
    ) -> str:
        """Publish; the event's id. The same id again is the same event for 7 days, unless
        ``prevent_duplicate_consumption`` is False: then it goes out as another event under an id of its own."""

    @abstractmethod
    def get_event(self, event_id: str) -> Event | None:
        """One event, while the log has it: an hour at least, where somebody reads the log."""

    @abstractmethod
    def register_subscription(self, subscription: EventSubscription) -> str:
        """Keep a subscription for 7 days, or put another in place of the one with its id; the id."""

    @abstractmethod
    def unregister_subscription(self, subscription_id: str) -> bool:
        """Whether it was there."""

    @abstractmethod
    def subscriptions(self) -> list[EventSubscription]:
        """All that are kept, the oldest first."""

    @abstractmethod
    def position(self) -> Position:
        """Behind the newest event."""

    @abstractmethod
    def events_after(self, position: Position, limit: int = 100) -> tuple[Position, list[Event]]:
        """Events behind a place, the oldest first, and the place behind them; the same place where there are none."""

    @abstractmethod
    def wait_a_moment(self, stopped: threading.Event, seconds: float) -> None:
        """Until there may be news, at most so long."""

    # -- what all of them do ------------------------------------------------------------------------

    def publish_sync(self, event: Event | str | Mapping[str, Any], **named: Any) -> str:
        """``publish``, under the name that programs for other buses use."""
        return self.publish(event, **named)

    def batch_publish(self, events: Iterable[Event | str | Mapping[str, Any]], **named: Any) -> list[str]:
        """Each of them, in this order; their ids. All are looked at before the first goes out. Raises InputError."""
        judged = [event_of(event) for event in events]
        return [self.publish(event, **named) for event in judged]

    def wait_for_event(
        self, event_type: str, timeout: float, condition: Condition | None = None, *, since: Position | None = None
    ) -> Event:
        """The next event of the type that the condition takes, from now on or from ``since`` on. Raises
        EventTimeoutError after ``timeout`` seconds."""
        deadline = time.monotonic() + timeout
        position = self.position() if since is None else since
        while True:
            position, found = self.events_after(position)
            for event in found:
                if event.event_type == event_type and (condition is None or condition(event)):
                    return event
            left = deadline - time.monotonic()
            if left <= 0:
                raise EventTimeoutError(f"no event {event_type!r} within {timeout} s")
            if not found:
                self.wait_a_moment(threading.Event(), left)

    def register_handler(
        self,
        event_type: str | None,
        handler: Handler,
        filter: Condition | None = None,
        retry_policy: RetryPolicy | None = None,
    ) -> str:
        """Call ``handler`` in a thread of its own for each event from now on whose type is like ``event_type`` (with
        ``*`` and ``?``; None is all) and that ``filter`` takes. One that raises is called again by ``retry_policy``,
        then the event is given up with an error in the log. The id of the registration."""
        handler_id = ids.new_nonce()
        made = HandlerThread(self, event_type, handler, filter, retry_policy or RetryPolicy(), self.position())
        with self._lock:
            self._handlers[handler_id] = made
        made.start()
        return handler_id

    def unregister_handler(self, handler_id: str) -> bool:
        """Whether it was there. What it is at is ended first, unless it is itself the caller."""
        with self._lock:
            found = self._handlers.pop(handler_id, None)
        if found is None:
            return False
        found.stop()
        return True

    def close(self) -> None:
        with self._lock:
            handlers, self._handlers = list(self._handlers.values()), {}
        for handler in handlers:
            handler.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
