"""What a program sees of events: the log, one event by its id, subscriptions of its own, how far it has looked.

Reading here takes nothing from anybody: who wakes executions reads by a group (``store.events``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from plaita.store.call import Call, pairs, text
from plaita.store.events import Logged
from plaita.store.keys import Keys

KEPT_MS = 7 * 86_400_000


def last(keys: Keys) -> Call[str]:
    """The id of the newest entry of the log, "0-0" before the first."""
    name = keys.event_last
    return Call("bus.last", None, (name,), ("GET", name), "reader", True, lambda reply: text(reply) or "0-0")


def page(keys: Keys, after: str, count: int = 100) -> Call[list[Logged]]:
    """What stands in the log after an entry, of all tenants, the oldest first."""
    name = keys.event_log
    return Call("bus.page", None, (name,), ("XRANGE", name, f"({after}", "+", "COUNT", count), "bulk", True, _entries)


def entry(keys: Keys, log_id: str) -> Call[list[Logged]]:
    """The entry, while the log has it."""
    name = keys.event_log
    return Call("bus.entry", None, (name,), ("XRANGE", name, log_id, log_id), "bulk", True, _entries)


def _entries(reply: Sequence[Any]) -> list[Logged]:
    return [Logged(text(one[0]), dict(pairs(one[1]))) for one in reply]


def place_of(keys: Keys, event_id: str) -> Call[str]:
    """Where an event stands in the log, '' where its id is not known (any more)."""
    name = keys.event_seen(event_id)
    return Call("bus.place_of", None, (name,), ("GET", name), "reader", True, text)


def save_subscription(keys: Keys, subscription_id: str, record: bytes) -> Call[bool]:
    """Keep a subscription of a program; ``record`` is a JSON text."""
    name = keys.event_subscriptions
    command = ("HSET", name, subscription_id, record)
    return Call("bus.save_subscription", None, (name,), command, "writer", True, lambda reply: True)


def drop_subscription(keys: Keys, subscription_id: str) -> Call[bool]:
    """Whether it was there."""
    name = keys.event_subscriptions
    command = ("HDEL", name, subscription_id)
    return Call("bus.drop_subscription", None, (name,), command, "writer", True, lambda reply: reply == 1)


def subscriptions(keys: Keys) -> Call[list[bytes]]:
    """The records of all subscriptions of programs."""
    name = keys.event_subscriptions
    command = ("HGETALL", name)
    return Call("bus.subscriptions", None, (name,), command, "bulk", True, lambda reply: list(reply[1::2]))


def cursor(keys: Keys) -> Call[str]:
    """How far the reconciler has looked, '' where nobody knows."""
    name = keys.event_cursor
    return Call("bus.cursor", None, (name,), ("GET", name), "reader", True, text)


def save_cursor(keys: Keys, log_id: str) -> Call[bool]:
    """It has looked so far."""
    name = keys.event_cursor
    command = ("SET", name, log_id, "PX", KEPT_MS)
    return Call("bus.save_cursor", None, (name,), command, "writer", True, lambda reply: True)
