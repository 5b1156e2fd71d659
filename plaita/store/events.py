"""Events: into the log once, and from there to every execution that waits for them (DECISIONS 27, 28).

Which waits an event ends is ``policy.event_index``; who reads the log is ``services.events``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from plaita import ids, jsontext
from plaita.policy.event_index import kept_digest
from plaita.store.call import Argument, Call, Lane, lane_for, pairs, script, text
from plaita.store.keys import DEFAULT_TENANT, Keys
from plaita.store.suspends import EVENTS_KEPT_MS

SEEN_MS = 7 * 86_400_000  # of an event whose id its publisher gave
RESEND_MS = 3_600_000  # of one whose id was made for this very call
WORK: Lane = "bulk"  # of all that services do: on the lane of the events a blocking read would stand before it
KEPT_AT_MOST = 100  # events of one type and correlation
PAGE = 100


@dataclass(frozen=True, slots=True)
class Event:
    """One event. ``data`` is a JSON text. ``named``: its publisher gave the id, so the same id is the same event for 7
    days; else it only makes a resend recognisable."""

    event_id: str
    event_type: str
    data: bytes
    correlation: str | None = None
    source: str = ""
    named: bool = False


@dataclass(frozen=True, slots=True)
class Published:
    """``log_id``: where it stands in the log. ``before``: this id was published already; nothing was done."""

    log_id: str
    before: bool


def publish(keys: Keys, event: Event) -> Call[Published]:
    """Put an event in the log; a correlated one is also kept for who does not wait yet. Safe to send again."""
    words: list[Argument] = ["event_id", event.event_id, "event_type", event.event_type]
    words += ("tenant_id", keys.tenant or DEFAULT_TENANT, "data", event.data, "source", event.source)
    if event.correlation is not None:
        words += ("correlation_id", event.correlation)
    kept = "" if event.correlation is None else keys.events_kept(kept_digest(event.event_type, event.correlation))
    return Call(
        "events.publish",
        script("publish"),
        (keys.event_log, keys.event_last, keys.event_seen(event.event_id), kept),
        (
            event.event_id,
            SEEN_MS if event.named else RESEND_MS,
            EVENTS_KEPT_MS,
            KEPT_AT_MOST,
            told(event.event_id, event.event_type, event.data),
            *words,
        ),
        lane_for(event.data),
        True,
        lambda reply: Published(text(reply[0]), reply[1] == 1),
    )


def told(event_id: str, event_type: str, data: bytes) -> bytes:
    """What a node's ``on_event`` gets of an event, as JSON text (FLOW-FORMAT 2.3); ``data`` stands in it byte for
    byte."""
    head = jsontext.dumps({"event_id": event_id, "event_type": event_type})
    return head[:-1] + b',"event_data":' + data + b"}"


# -- reading the log ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Logged:
    """An entry of the log as it stands."""

    log_id: str
    fields: Mapping[bytes, bytes]


def read_log(keys: Keys, consumer: str, block_ms: int, count: int = 16) -> Call[list[Logged]]:
    """What is new in the log, waiting up to ``block_ms`` for it. Refused: ``no_group``."""
    block = max(1, block_ms)

    def parse(reply: Sequence[Any] | None) -> list[Logged]:
        return [_logged(entry) for _, found in reply or () for entry in found]

    words = (
        "XREADGROUP",
        "GROUP",
        keys.group,
        consumer,
        "COUNT",
        count,
        "BLOCK",
        block,
        "STREAMS",
        keys.event_log,
        ">",
    )
    refusals = {"NOGROUP": "no_group"}
    return Call("events.read_log", None, (keys.event_log,), words, "events", False, parse, block, refusals)


def read_own(keys: Keys, consumer: str, after: str, count: int = 16) -> Call[list[Logged]]:
    """What this consumer has read and not done with, newer than an entry ("0": from the first on): what its host was
    at in its last life. Refused: ``no_group``."""

    def parse(reply: Sequence[Any] | None) -> list[Logged]:
        return [Logged(text(log_id), dict(pairs(flat or ()))) for _, found in reply or () for log_id, flat in found]

    words = ("XREADGROUP", "GROUP", keys.group, consumer, "COUNT", count, "STREAMS", keys.event_log, after)
    refusals = {"NOGROUP": "no_group"}
    return Call("events.read_own", None, (keys.event_log,), words, "events", True, parse, refusals=refusals)


@dataclass(frozen=True, slots=True)
class Reclaimed:
    """``cursor`` "0-0": nothing is left to look at."""

    cursor: str
    entries: list[Logged]


def reclaim(keys: Keys, consumer: str, min_idle_ms: int, cursor: str = "0-0", count: int = 16) -> Call[Reclaimed]:
    """A page of what others, or this consumer before, have read and not done with for so long. Refused:
    ``no_group``."""

    def parse(reply: Sequence[Any]) -> Reclaimed:
        entries = [_logged(entry) for entry in reply[1] if entry is not None and entry[1] is not None]
        return Reclaimed(text(reply[0]), entries)

    words = ("XAUTOCLAIM", keys.event_log, keys.group, consumer, min_idle_ms, cursor, "COUNT", count)
    return Call(
        "events.reclaim", None, (keys.event_log,), words, "events", True, parse, refusals={"NOGROUP": "no_group"}
    )


def make_group(keys: Keys) -> Call[bool]:
    """The group of the log, from its first entry on. Refused: ``exists``."""
    words = ("XGROUP", "CREATE", keys.event_log, keys.group, "0", "MKSTREAM")
    return Call(
        "events.make_group",
        None,
        (keys.event_log,),
        words,
        "events",
        True,
        lambda reply: True,
        refusals={"BUSYGROUP": "exists"},
    )


def done(keys: Keys, log_id: str) -> Call[bool]:
    """Everybody who waited for this event is woken."""
    words = ("XACK", keys.event_log, keys.group, log_id)
    return Call("events.event_done", None, (keys.event_log,), words, WORK, True, lambda reply: reply == 1)


def trim(keys: Keys, older_than_ms: int) -> Call[tuple[int, int]]:
    """Drop entries older than that which every group has done with: (how many, how many are left)."""
    return Call(
        "events.trim",
        script("event_trim"),
        (keys.event_log,),
        (older_than_ms,),
        "events",
        True,
        lambda reply: (int(reply[0]), int(reply[1])),
    )


def _logged(entry: Sequence[Any]) -> Logged:
    return Logged(text(entry[0]), dict(pairs(entry[1])))


# -- who waits ------------------------------------------------------------------------------------


def key_sets(keys: Keys, event_type: str) -> Call[list[str]]:
    """What the filters of the waits of this type look at: key sets of ``policy.event_index``."""
    name = keys.event_key_sets(event_type)
    return Call("events.key_sets", None, (name,), ("HKEYS", name), WORK, True, lambda reply: [text(k) for k in reply])


@dataclass(frozen=True, slots=True)
class Waiter:
    """An execution that waits in this very wait. ``stamps``: a JSON text, what its wake-ups carry on, '' for nothing
    (``policy.copies.stamps_of_wait``)."""

    execution_id: str
    wait: str
    flow_id: str
    stamps: str = ""


@dataclass(frozen=True, slots=True)
class Waiters:
    """A page. ``cursor`` "0": the last. ``residual``: subscriptions of waits that are over, taken out now."""

    cursor: str
    waiters: list[Waiter]
    residual: int


@dataclass(frozen=True, slots=True)
class Lookup:
    """Where to look for the waits that an event ends. ``log_id``: the event's place in the log; ``when_ms``: its time
    in ms, '' for one without a correlation."""

    event_type: str
    key_set: str
    digest: str
    log_id: str
    when_ms: str = ""


def waiters(keys: Keys, lookup: Lookup, cursor: str = "0", count: int = PAGE) -> Call[Waiters]:
    """About ``count`` of those that stand under a digest. A wait that began after the event does not get it, unless the
    event is correlated and the execution was there already (DECISIONS 27)."""

    def parse(reply: Sequence[Any]) -> Waiters:
        flat = [text(word) for word in reply[1]]
        found = [Waiter(*flat[i : i + 4]) for i in range(0, len(flat), 4)]
        return Waiters(text(reply[0]), found, int(reply[2]))

    return Call(
        "events.waiters",
        script("event_waiters"),
        (
            keys.event_index(lookup.digest),
            keys.event_key_sets(lookup.event_type),
            keys.event_users(lookup.event_type, lookup.key_set),
        ),
        (keys.ns, cursor, count, lookup.key_set, lookup.log_id, lookup.when_ms),
        WORK,
        True,
        parse,
    )


@dataclass(frozen=True, slots=True)
class Waking:
    """One execution of ``wake_many`` with the entry fields of its carrier."""

    waiter: Waiter
    fields: Sequence[tuple[str, bytes | str]]


def wake_many(keys: Keys, event_id: str, data: bytes, wakings: Sequence[Waking], nonce: str | None = None) -> Call[int]:
    """End the waits of many executions by one event, each at most once; how many were woken by this call."""
    words: list[Argument] = []
    for waking in wakings:
        flat = [word for pair in waking.fields for word in pair]
        words += (waking.waiter.execution_id, waking.waiter.wait, len(flat), *flat)
    return Call(
        "events.wake_many",
        script("wake_many"),
        (keys.wake, keys.delayed, keys.delayed_body),
        (
            keys.tenant or DEFAULT_TENANT,
            keys.ns,
            keys.tombstone(""),
            data,
            event_id,
            nonce or ids.new_nonce(),
            *words,
        ),
        WORK,
        True,
        lambda reply: int(reply[0]),
    )
