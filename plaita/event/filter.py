"""Events that end what programs subscribed executions to (ledger E1, E2). What nodes wait for, hosts end."""

from __future__ import annotations

import logging
from typing import Any

from plaita.client import resuming
from plaita.client.operations import load
from plaita.errors import RefusedError
from plaita.event.model import Event, EventSubscription
from plaita.event.redis import RedisEventBus
from plaita.store.keys import TERMINAL, Keys

PROCESSED_KEPT = 100
GONE = ("no_row", "deleted", "tombstoned")  # the last: its row came back with a backup

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
        if not self._waits_there(keys, event, subscription):
            return 0
        said = self._resume(keys, event, subscription)
        if said is None or said.get("already_terminal"):
            return self._remove(subscription, "gone" if said is None else said["status"])
        if not said["resumed"]:
            return 0  # it does not wait now: the event is kept for it where it will (DECISIONS 27)
        subscription.processed_events = [*subscription.processed_events, event.event_id][-PROCESSED_KEPT:]
        self._bus.register_subscription(subscription)
        return 1

    def _waits_there(self, keys: Keys, event: Event, subscription: EventSubscription) -> bool:
        """False where the execution is of another flow, or at another node, than the subscription says."""
        if subscription.flow_id is None and subscription.node_id is None:
            return True
        try:
            row = self._bus.perform(load(keys, subscription.execution_id))
        except RefusedError as error:
            if error.reason in GONE:
                return True
            raise
        if row is None or row.status in TERMINAL:
            return True  # it is to be removed
        context = {"$FLOW_ID": row.control.get("flow_id"), "$LAST_NODE": row.control.get("last_node")}
        return subscription.matches_event(event, context)

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
            if error.reason in GONE:
                return None
            raise

    def _remove(self, subscription: EventSubscription, why: str) -> int:
        self._bus.unregister_subscription(subscription.subscription_id)
        _log.info("subscription %s removed: its execution is %s", subscription.subscription_id, why)
        return 0
