"""The event bus of a deployment: events in its log, its executions woken by its hosts."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from plaita import ids, jsontext
from plaita.client import Client
from plaita.client import events as publishing
from plaita.client.operations import Operation
from plaita.errors import InputError
from plaita.event.bus import EventBus, Position
from plaita.event.model import Event, EventSubscription, event_of
from plaita.store import bus
from plaita.store.bus import KEPT_MS
from plaita.store.call import Call
from plaita.store.events import Logged
from plaita.store.keys import DEFAULT_TENANT

T = TypeVar("T")

LOOK_EVERY_S = 0.05

_log = logging.getLogger("plaita.event")


def _readable(record: bytes) -> EventSubscription | None:
    """None, with a warning, for what is no subscription: it must not hide the others."""
    try:
        return EventSubscription.from_json(record)
    except ValueError as error:
        _log.warning("a subscription that cannot be read is passed over: %s", error)
        return None


class RedisEventBus(EventBus):
    """``named``: what ``Client`` takes (tenant, queue_name, key_prefix ...). Connects at the first call; raises
    UnreachableError then."""

    def __init__(self, redis_url: str | None = None, **named: Any) -> None:
        super().__init__()
        self._make: Callable[[], Client] = lambda: Client(redis_url, **named)
        self._made: Client | None = None
        self._making = threading.Lock()

    @property
    def client(self) -> Client:
        with self._making:
            if self._made is None:
                self._made = self._make()
            return self._made

    def perform(self, operation: Operation[T]) -> T:
        """Drive an operation of ``plaita.client``; threads take turns call by call."""
        return self.client.perform(operation)

    def _ask(self, call: Call[T]) -> T:
        from plaita.client.operations import ask

        return self.perform(ask(call))

    def publish(
        self,
        event: Event | str | Mapping[str, Any],
        prevent_duplicate_consumption: bool = True,
        correlation_id: str | None = None,
    ) -> str:
        judged = event_of(event)
        if not prevent_duplicate_consumption:
            judged = replace(judged, event_id=ids.new_execution_id())
        published = self.perform(
            publishing.publish(
                self.client.keys,
                judged.event_type,
                judged.data,
                correlation_id=judged.correlation_id if correlation_id is None else correlation_id,
                event_id=judged.event_id,
                source=judged.source,
            )
        )
        return published.event_id

    def get_event(self, event_id: str) -> Event | None:
        keys = self.client.keys
        place = self._ask(bus.place_of(keys, ids.check_id(event_id, "event id")))
        found = [self._event(one) for one in self._ask(bus.entry(keys, place))] if place else []
        return found[0] if found else None

    def register_subscription(self, subscription: EventSubscription) -> str:
        if not isinstance(subscription.event_type, str) or not subscription.event_type:
            raise InputError(f"event_type: {subscription.event_type!r} is no name of an event")
        try:
            record = subscription.to_json()
        except jsontext.JSONValueError as error:
            raise InputError(f"subscription: {error}") from None
        self._ask(bus.save_subscription(self.client.keys, subscription.subscription_id, record))
        return subscription.subscription_id

    def unregister_subscription(self, subscription_id: str) -> bool:
        return self._ask(bus.drop_subscription(self.client.keys, subscription_id))

    def subscriptions(self) -> list[EventSubscription]:
        records = self._ask(bus.subscriptions(self.client.keys))
        found = [one for one in map(_readable, records) if one is not None]
        oldest = time.time() - KEPT_MS / 1000
        for one in found:
            if one.created_at < oldest:
                self.unregister_subscription(one.subscription_id)
        return sorted((one for one in found if one.created_at >= oldest), key=lambda one: one.created_at)

    def position(self) -> Position:
        return self._ask(bus.last(self.client.keys))

    def events_after(self, position: Position, limit: int = 100) -> tuple[Position, list[Event]]:
        while True:
            entries = self._ask(bus.page(self.client.keys, position, limit))
            if not entries:
                return position, []
            position = entries[-1].log_id
            events = [event for event in map(self._event, entries) if event is not None]
            if events:
                return position, events

    def wait_a_moment(self, stopped: threading.Event, seconds: float) -> None:
        stopped.wait(min(LOOK_EVERY_S, seconds))

    def load_cursor(self) -> Position | None:
        """How far the reconciler has looked; None where nobody knows."""
        return self._ask(bus.cursor(self.client.keys)) or None

    def save_cursor(self, position: Position) -> None:
        self._ask(bus.save_cursor(self.client.keys, position))

    def close(self) -> None:
        super().close()
        with self._making:
            if self._made is not None:
                self._made.close()

    def _event(self, entry: Logged) -> Event | None:
        """None for another tenant's, and for what is no event."""
        fields = entry.fields
        tenant = fields.get(b"tenant_id", b"").decode("utf-8", "replace") or DEFAULT_TENANT
        if tenant != (self.client.keys.tenant or DEFAULT_TENANT) or b"event_type" not in fields:
            return None
        try:
            data = jsontext.loads(fields.get(b"data", b"null"))
            texts = {name.decode(): value.decode() for name, value in fields.items() if name != b"data"}
        except (jsontext.JSONTextError, UnicodeDecodeError):
            return None
        milliseconds = texts.get("timestamp", "") or entry.log_id.partition("-")[0]
        return Event(
            event_type=texts["event_type"],
            data=data,
            event_id=texts.get("event_id", ""),
            timestamp=int(milliseconds) / 1000 if milliseconds.isdecimal() else 0.0,
            source=texts.get("source", ""),
            correlation_id=texts.get("correlation_id"),
        )
