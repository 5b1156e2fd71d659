"""Events that end what programs subscribed executions to (ledger E1, E2). What nodes wait for, hosts end."""

from __future__ import annotations

import logging
from typing import Any

from plaita.client import resuming
from plaita.errors import RefusedError
from plaita.event.model import Event, EventSubscription
from plaita.event.redis import RedisEventBus
from plaita.store.keys import Keys

PROCESSED_KEPT = 100

_log = logging.getLogger("plaita.event")


class EventFilter:
    """Turns an event into a resume of each execution with a subscription that it matches.

        filter = EventFilter(bus)
        bus.register_handler(None, filter.handle)

    The same event resumes an execution once (DECISIONS 27), however often it comes here.
    """

    def __init__(self, bus: RedisEventBus) -> None:
        self._bus = bus

    def handle(self, event: Event) -> int:
        """How many executions it resumed. Subscriptions of executions that are over, or gone, are removed and resume
        nothing (E2). Raises UnreachableError: whoever called may call again."""
        if event.correlation_id is None:
            return 0
        resumed = 0
        for subscription in self._bus.subscriptions():
            if event.event_id not in subscription.processed_events and subscription.matches_event(event):
                resumed += self._one(event, subscription)
        return resumed

    def _one(self, event: Event, subscription: EventSubscription) -> int:
        keys = self._bus.client.keys.for_tenant(subscription.tenant_id)
        said = self._resume(keys, event, subscription)
        if said is None or said.get("already_terminal"):
            return self._remove(subscription, "gone" if said is None else said["status"])
        if not said["resumed"]:
            return 0  # it does not wait now: the event is kept for it where it will (DECISIONS 27)
        subscription.processed_events = [*subscription.processed_events, event.event_id][-PROCESSED_KEPT:]
        self._bus.register_subscription(subscription)
        return 1

    def _resume(self, keys: Keys, event: Event, subscription: EventSubscription) -> dict[str, Any] | None:
        data = {
            "event_id": event.event_id,
            "event_type": event.event_type,
            "event_data": event.data,
            "subscription_id": subscription.subscription_id,
        }
        try:
            return self._bus.perform(
                resuming.resume(keys, subscription.execution_id, "event", data, self._bus.client.family)
            )
        except RefusedError as error:
            if error.reason in ("no_row", "deleted"):
                return None
            raise

    def _remove(self, subscription: EventSubscription, why: str) -> int:
        self._bus.unregister_subscription(subscription.subscription_id)
        _log.info("subscription %s removed: its execution is %s", subscription.subscription_id, why)
        return 0
