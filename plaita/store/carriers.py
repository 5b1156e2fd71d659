"""Carriers: the two streams of the queue and their consumer group. Dead letters are in ``dead_letters``.

``q`` is the queue of starts, ``w`` the wake stream, read first (DECISIONS 6). XACK stands in this module's scripts and
in those of ``executions`` only. Nothing here parses a payload: what a script must know stands in entry fields.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from plaita.store.call import BULK_BYTES, Argument, Call, Lane, pairs, script, text
from plaita.store.keys import DEFAULT_TENANT, Keys

HANDED_ON_IDLE_MS = 86_400_000
START = "-"  # a cursor at the beginning of the pending list
LOOKED_AT = 500


@dataclass(frozen=True, slots=True)
class Entry:
    """One carrier. ``raw``: its field pairs as they stand, for the dead letter of a malformed one; ``fields``: the
    same by name (the last one wins). ``delivered``: how often the server delivered it, which decides nothing."""

    stream: str
    entry_id: str
    raw: tuple[tuple[bytes, bytes], ...]
    delivered: int = 1
    reclaimed: bool = False
    fields: dict[bytes, bytes] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "fields", dict(self.raw))


@dataclass(frozen=True, slots=True)
class Take:
    """How much to take. ``cursors`` of (wake, queue) are those of the last answer. ``family``, ``budget``: config
    family and budget generation; entries that name others are left alone, unclaimed (DECISIONS 4, ledger C3).

    ``adopt``: look at what is pending for this very consumer, however short it has been idle, and treat the lease of an
    earlier incarnation of this instance as dead. For the first rounds of a new process, until ``more_pending`` is
    False. ``in_hand`` names entries (``"q 1-0"``) that this process works on already, so that adopting skips them.
    ``starts_first``: so many new starts are read before new wake-ups (``policy.turns``). ``denied_repos``: last names;
    entries whose field ``repo`` ends in one are left alone, unclaimed (ledger G6).
    """

    consumer: str
    count: int
    min_idle_ms: int
    holder: str
    adopt: bool = False
    page: int = 64
    cursors: tuple[str, str] = (START, START)
    family: str = ""
    budget: str = ""
    in_hand: Sequence[str] = ()
    starts_first: int = 0
    denied_repos: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Taken:
    """``entries``: reclaimed before new, wake before queue but for ``starts_first``. ``ghosts``: pending ids whose body
    was deleted, acked now. ``leased``, ``other_family``, ``other_budget``: how many were skipped for it.
    ``more_pending``: ask again soon."""

    entries: list[Entry]
    cursors: tuple[str, str]
    ghosts: int
    more_pending: bool
    leased: int = 0
    other_family: int = 0
    other_budget: int = 0


def take(keys: Keys, request: Take) -> Call[Taken]:
    """Reclaim a page and read what is new, ``count`` entries in all, without waiting (ledger Q2, DECISIONS 4).

    Makes a missing group from id 0. Not idempotent: what an Unknown answer delivered stays pending for this consumer
    until min-idle, or until ``adopt``.
    """
    return Call(
        "carriers.take",
        script("take"),
        (keys.wake, keys.queue),
        (
            keys.group,
            request.consumer,
            request.count,
            request.min_idle_ms,
            request.holder,
            int(request.adopt),
            request.page,
            request.cursors[0],
            request.cursors[1],
            keys.prefix,
            request.family,
            request.budget,
            request.starts_first,
            "\n".join(request.denied_repos),
            *request.in_hand,
        ),
        "writer",
        False,
        _parse_taken,
    )


def _parse_taken(reply: Sequence[Any]) -> Taken:
    entries = [
        Entry(text(stream), text(entry_id), tuple(pairs(flat)), int(delivered), reclaimed == 1)
        for stream, entry_id, delivered, reclaimed, flat in reply[0]
    ]
    ghosts, more, leased, family, budget = (int(number) for number in reply[3:8])
    return Taken(entries, (text(reply[1]), text(reply[2])), ghosts, more == 1, leased, family, budget)


def read_blocking(keys: Keys, consumer: str, block_ms: int) -> Call[list[Entry]]:
    """At most one entry of each stream, waiting up to ``block_ms`` (at least 1) for one. Refused: ``no_group``."""
    block = max(1, block_ms)  # BLOCK 0 would wait for ever
    names = (keys.wake, keys.queue)

    def parse(reply: Sequence[Any] | None) -> list[Entry]:
        entries = []
        for name, found in reply or ():
            letter = "w" if text(name) == keys.wake else "q"
            entries += [Entry(letter, text(entry_id), tuple(pairs(flat or ()))) for entry_id, flat in found]
        return entries

    return Call(
        "carriers.read_blocking",
        None,
        names,
        ("XREADGROUP", "GROUP", keys.group, consumer, "COUNT", 1, "BLOCK", block, "STREAMS", *names, ">", ">"),
        "reader",
        False,
        parse,
        block_ms=block,
        refusals={"NOGROUP": "no_group"},
    )


def release(keys: Keys, consumer: str, stream: str, entry_id: str) -> Call[bool]:
    """Make an entry of ours claimable at once; costs no delivery. False when it is not pending for ``consumer``."""
    return Call(
        "carriers.release",
        script("release"),
        (keys.stream(stream),),
        (keys.group, consumer, entry_id, HANDED_ON_IDLE_MS),
        "writer",
        True,
        lambda reply: reply[0] == 1,
    )


def release_if_let_go(
    keys: Keys, tenant: str, execution_id: str, lease: str, consumer: str, stream: str, entry_id: str
) -> Call[bool]:
    """As ``release``, for an entry that met the lease of this value, and only where another or none is there now."""
    return Call(
        "carriers.release_if_let_go",
        script("release_if_let_go"),
        (keys.for_tenant(tenant).lease(execution_id), keys.stream(stream)),
        (lease, keys.group, consumer, entry_id, HANDED_ON_IDLE_MS),
        "writer",
        True,
        lambda reply: reply[0] == 1,
    )


def ack(keys: Keys, stream: str, entry_id: str) -> Call[bool]:
    """Ack and delete in one call (ledger Q8). False when it was not pending any more."""
    return Call(
        "carriers.ack",
        script("ack"),
        (keys.stream(stream),),
        (keys.group, entry_id),
        "writer",
        True,
        lambda reply: reply[0] == 1,
    )


def ack_duplicate(keys: Keys, tenant: str, execution_id: str, stream: str, entry_id: str) -> Call[bool]:
    """Ack and delete a carrier whose execution is held with another one (ledger L5), judged in the call itself: a
    judgement made before it may be old when it arrives, and then this may be the only carrier left.

    Refused, nothing done: ``not_leased``; ``holders_own``: the lease was taken with this entry; ``unreadable`` (lease);
    ``carrier_gone`` (lease): the holder's own is not pending any more, so this one is the way back.
    """
    return Call(
        "carriers.ack_duplicate",
        script("ack_duplicate"),
        (keys.for_tenant(tenant).lease(execution_id), keys.stream(stream), keys.queue, keys.wake),
        (keys.group, stream, entry_id),
        "writer",
        True,
        lambda reply: reply[0] == 1,
    )


def ack_refused(keys: Keys, tenant: str, execution_id: str, stream: str, entry_id: str, status: str) -> Call[bool]:
    """Ack and delete a carrier that ``begin`` refused for the row's ``status`` ('' for no row): ``terminal``,
    ``suspended``, ``stale_wait``, ``no_checkpoint`` or a limit of S13. Judged again in the call: a retry or a wake may
    have come since, another host may have begun with this very entry, and then it may be the only carrier left.

    Refused, nothing done: ``changed`` (the status now); a carrier can do something by now.
    """
    of_tenant = keys.for_tenant(tenant)
    return Call(
        "carriers.ack_refused",
        script("ack_refused"),
        (of_tenant.row(execution_id), of_tenant.cancel(execution_id), keys.stream(stream)),
        (keys.group, entry_id, status),
        "writer",
        True,
        lambda reply: reply[0] == 1,
    )


def drop_disabled(keys: Keys, execution_id: str, stream: str, entry_id: str) -> Call[bool]:
    """Ack and delete a carrier of a disabled tenant (ledger T2), whose ``keys`` these are. Judged in the call itself:
    nothing is dropped after the tenant was enabled. False when it was not pending any more.

    Refused, nothing done: ``changed``: the tenant is enabled by now, or somebody holds the execution.
    """
    return Call(
        "carriers.drop_disabled",
        script("drop_disabled"),
        (keys.stream(stream), keys.lease(execution_id), keys.tenant_status),
        (keys.group, entry_id, keys.tenant or DEFAULT_TENANT),
        "writer",
        True,
        lambda reply: reply[0] == 1,
    )


def enqueue(keys: Keys, stream: str, fields: Sequence[tuple[str, bytes | str]]) -> Call[str]:
    """Add an entry; its id. Not idempotent: sent twice, it stands there twice."""
    args: list[Argument] = ["XADD", keys.stream(stream), "*"]
    size = 0
    for name, value in fields:
        args += (name, value)
        size += len(value)
    lane: Lane = "bulk" if size > BULK_BYTES else "writer"
    return Call("carriers.enqueue", None, (keys.stream(stream),), args, lane, False, text)


def replace(
    keys: Keys,
    stream: str,
    entry_id: str,
    to: str,
    fields: Sequence[tuple[str, bytes | str]],
    delay_ms: int = 0,
    member: str = "",
) -> Call[bool]:
    """Settle an entry and put another in its place, in stream ``to`` at once, or as record ``member`` of the delayed
    set after ``delay_ms``: the copy of ledger S6, S10, T3 and G4, with no instant at which there are none or two.

    False when the entry was gone, also when this very call, sent before, replaced it. Raises ValueError for a delay
    without a member.
    """
    if delay_ms > 0 and not member:
        raise ValueError("a delayed copy needs a member name")
    args: list[Argument] = [keys.group, entry_id, delay_ms, member, to]
    size = 0
    for name, value in fields:
        args += (name, value)
        size += len(value)
    return Call(
        "carriers.replace",
        script("replace"),
        (keys.stream(stream), keys.stream(to), keys.delayed, keys.delayed_body),
        args,
        "bulk" if size > BULK_BYTES else "writer",
        True,
        lambda reply: reply[0] == 1,
    )


@dataclass(frozen=True, slots=True)
class StreamStats:
    """``lag``: entries not delivered yet; None where the server cannot tell (before 7.0, or after odd deletes)."""

    name: str
    length: int
    pending: int
    lag: int | None


@dataclass(frozen=True, slots=True)
class QueueStats:
    """``oldest_pending_ms``: age of the oldest pending entry by Redis time, None when nothing is pending. ``parked``:
    carriers of all tenants that wait for a place under a quota (ledger T3), which stand in no stream. ``claimable``:
    pending entries that nobody works on, of those at most CLAIMABLE_COUNTED a stream; 0 where none were counted."""

    streams: list[StreamStats]
    delayed: int
    dlq_length: int
    oldest_pending_ms: int | None
    parked: int = 0
    claimable: int = 0


CLAIMABLE_COUNTED = 1000


def stats(keys: Keys, min_idle_ms: int | None = None) -> Call[QueueStats]:
    """Lengths as of one moment; the queue first, then the wake stream. A missing stream counts 0. ``min_idle_ms``:
    from when on a pending entry is nobody's; None: those are not counted."""

    def parse(reply: Sequence[Any]) -> QueueStats:
        streams = [
            StreamStats(text(name), int(length), int(pending), None if lag == -1 else int(lag))
            for name, length, pending, lag in reply[0]
        ]
        oldest = None if reply[3] == -1 else int(reply[3])
        return QueueStats(streams, int(reply[1]), int(reply[2]), oldest, int(reply[4]), int(reply[5]))

    return Call(
        "carriers.stats",
        script("queue_stats"),
        (keys.queue, keys.wake, keys.delayed, keys.dead_letters, keys.parked_tenants),
        (keys.group, "" if min_idle_ms is None else min_idle_ms, CLAIMABLE_COUNTED),
        "writer",
        True,
        parse,
    )


@dataclass(frozen=True, slots=True)
class LeftToOthers:
    """Pending entries that another kind of host has to run. ``complete``: no more than LOOKED_AT were pending."""

    other_family: int
    other_budget: int
    denied_repo: int
    complete: bool


def left_to_others(
    keys: Keys,
    family: str,
    budget: str,
    denied_repos: Sequence[str] = (),
    by_body: Sequence[tuple[str, str]] = (),
) -> Call[LeftToOthers]:
    """What this host leaves pending for its generations' sake (ledger C3), or for a repository that it denies (G6),
    among the oldest LOOKED_AT of each stream: for ``status`` and ``explain``. ``by_body``: entries (``"q 1-0"``) that
    say so in their payload only, each behind ``f``, ``b`` or ``r`` for family, budget or repository; they count while
    they are pending."""
    return Call(
        "carriers.left_to_others",
        script("left_to_others"),
        (keys.queue, keys.wake),
        (
            keys.group,
            family,
            budget,
            LOOKED_AT,
            "\n".join(denied_repos),
            *(f"{what} {entry}" for what, entry in by_body),
        ),
        "writer",
        True,
        lambda reply: LeftToOthers(int(reply[0]), int(reply[1]), int(reply[2]), reply[3] == 1),
    )


@dataclass(frozen=True, slots=True)
class Swept:
    removed: int
    cursors: tuple[str, str]
    done: bool


def sweep_residue(keys: Keys, limit: int = 256, cursors: tuple[str, str] = (START, START)) -> Call[Swept]:
    """Delete entries that another kind of worker acked and did not delete (ledger Q8). Looks at ``limit`` entries a
    stream from the cursor, only up to the last delivered id; go on with the answer's cursors until ``done``."""
    return Call(
        "carriers.sweep_residue",
        script("sweep_residue"),
        (keys.wake, keys.queue),
        (keys.group, limit, *cursors),
        "writer",
        True,
        lambda reply: Swept(int(reply[0]), (text(reply[1]), text(reply[2])), reply[3] == 1),
    )


def leave(keys: Keys, consumer: str) -> Call[int]:
    """Take a consumer's name out of the group at a clean end, where nothing is pending for it; how many of the two
    streams still hold something for it (their name stays: deleting it would lose what is pending)."""
    return Call(
        "carriers.leave",
        script("leave_group"),
        (keys.wake, keys.queue, keys.event_log),
        (keys.group, consumer),
        "writer",
        True,
        lambda reply: int(reply[0]),
    )


def sweep_consumers(keys: Keys, min_idle_ms: int, keep: Sequence[str]) -> Call[int]:
    """Take out of the group the consumers that have not been heard of for ``min_idle_ms``, hold nothing and are not in
    ``keep``; how many names went, counted by stream. A living one that is met all the same has its name again with its
    next read."""
    return Call(
        "carriers.sweep_consumers",
        script("sweep_consumers"),
        (keys.wake, keys.queue, keys.event_log),
        (keys.group, min_idle_ms, *keep),
        "writer",
        True,
        lambda reply: int(reply[0]),
    )
