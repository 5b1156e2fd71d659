"""Events for programs: publish, wait, handle; subscriptions on behalf of executions (CONTRACT, ledger E1-E4).

Thin over the store's events. Executions that wait at a node need nothing of this: every host wakes them
(``plaita.services.events``). Read ``model``, then ``bus``.
"""

from __future__ import annotations

from plaita.event.bus import EventBus
from plaita.event.filter import EventFilter
from plaita.event.memory import MemoryEventBus
from plaita.event.model import Event, EventSubscription, EventTimeoutError, RetryPolicy, TimeoutCallbackError
from plaita.event.reconciler import EventReconciler
from plaita.event.redis import RedisEventBus
from plaita.event.timeouts import SubscriptionTimeouts

__all__ = [
    "Event",
    "EventBus",
    "EventFilter",
    "EventReconciler",
    "EventSubscription",
    "EventTimeoutError",
    "MemoryEventBus",
    "RedisEventBus",
    "RetryPolicy",
    "SubscriptionTimeouts",
    "TimeoutCallbackError",
]
