"""Putting right by hand what a server lost or somebody took away: indexes, ends, carriers, rows nobody runs (D4, D6).

All of it goes in pages of bounded calls beside running work, and each change is made only while what it rests on still
holds. Nothing here runs by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import unquote

from plaita.store.call import Argument, Call, pairs, script, text
from plaita.store.dead_letters import PAGE_BYTES
from plaita.store.keys import DEFAULT_TENANT, STATUSES, Keys
from plaita.store.steps import RETENTION_NET_MS

PAGE = 200
_GLOB = str.maketrans({character: f"\\{character}" for character in "*?[]\\^-"})


def glob(head: str) -> str:
    """The beginning of key names as MATCH takes it for itself."""
    return head.translate(_GLOB)


# -- indexes --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RowPage:
    """Execution ids of rows. ``cursor`` "0": that was the last page."""

    cursor: str
    execution_ids: list[str]


def scan_rows(keys: Keys, cursor: str = "0", count: int = PAGE) -> Call[RowPage]:
    """A page of all rows of the tenant, found by their keys; one may come twice. No index is asked."""
    head = f"{keys.ns}:execution:"

    def parse(reply: Sequence[Any]) -> RowPage:
        parts = [text(key).removeprefix(head) for key in reply[1]]
        return RowPage(text(reply[0]), [unquote(part) for part in parts if part and ":" not in part])

    command = ("SCAN", cursor, "MATCH", f"{head.translate(_GLOB)}*", "COUNT", count, "TYPE", "hash")
    return Call("upkeep.scan_rows", None, (), command, "bulk", True, parse)


@dataclass(frozen=True, slots=True)
class Idle:
    """An execution that should move and that nobody runs. ``mark`` stands for the row as it was seen."""

    execution_id: str
    status: str
    mark: bytes
    flow_id: str


@dataclass(frozen=True, slots=True)
class Indexed:
    """Of one page: how many rows there were, stood in no index, in a wrong status's index, had no end or one they must
    not have; and who should move. ``deleted``: rows of deleted executions, which count as none (ledger D2)."""

    rows: int
    indexed: int
    moved: int
    ending: int
    idle: list[Idle]
    deleted: int = 0


def index_rows(keys: Keys, execution_ids: Sequence[str], retention_ms: int) -> Call[Indexed]:
    """Index rows as their fields say; what has ended gets an end (DECISIONS 17), what has not loses it."""
    return Call(
        "upkeep.index_rows",
        script("reindex"),
        (keys.index(), keys.expiry),
        (keys.ns, retention_ms, RETENTION_NET_MS, keys.tombstone(""), keys.tenant or DEFAULT_TENANT, *execution_ids),
        "bulk",
        True,
        _parse_indexed,
    )


def _parse_indexed(reply: Sequence[Any]) -> Indexed:
    rows, indexed, moved, ending = (int(count) for count in reply[:4])
    idle = [Idle(text(one[0]), text(one[1]), one[2], text(one[3])) for one in reply[4]]
    return Indexed(rows, indexed, moved, ending, idle, int(reply[5]))


def drop_members(keys: Keys, index: str, cursor: str = "0", count: int = PAGE) -> Call[tuple[str, int]]:
    """A page of one index: members without a row go from all of them. (next cursor, how many)."""
    return Call(
        "upkeep.drop_members",
        script("unindex"),
        (index, keys.index(), keys.expiry),
        (keys.ns, cursor, count),
        "bulk",
        True,
        lambda reply: (text(reply[0]), int(reply[1])),
    )


def indexes(keys: Keys) -> list[str]:
    """All that hold execution ids of the tenant."""
    return [keys.index(), *(keys.index(status) for status in STATUSES), keys.expiry]


# -- carriers -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NamedCarrier:
    """``fields`` are ``execution_id`` and ``tenant_id`` where the entry has them, else all of the entry's."""

    entry_id: str
    fields: dict[bytes, bytes]


def stream_named(
    keys: Keys, stream: str, newer_than: str | None, count: int = PAGE
) -> Call[tuple[str, list[NamedCarrier]]]:
    """A page of a stream: (last id, or "" at its end; whose carriers there are)."""
    return Call(
        "upkeep.stream_named",
        script("stream_named"),
        (keys.stream(stream),),
        ("-" if newer_than is None else f"({newer_than}", count, PAGE_BYTES),
        "bulk",
        True,
        lambda reply: (text(reply[0]), [NamedCarrier(text(one[0]), dict(pairs(one[1]))) for one in reply[1]]),
    )


def delayed_named(keys: Keys, cursor: str = "0", count: int = PAGE) -> Call[tuple[str, list[tuple[str, str]]]]:
    """A page of the delayed carriers: (next cursor, (execution id, tenant id) of each)."""
    return Call(
        "upkeep.delayed_named",
        script("delayed_named"),
        (keys.delayed_body,),
        (cursor, count),
        "bulk",
        True,
        lambda reply: (text(reply[0]), [(text(one[0]), text(one[1]) or DEFAULT_TENANT) for one in reply[1]]),
    )


def requeue(keys: Keys, idle: Idle, payload: bytes, fields: Sequence[tuple[str, str]] = ()) -> Call[bool]:
    """One carrier for an execution that has none, if it is still as it was seen. Sent again it may add a second one,
    which does no harm."""
    carrier: list[Argument] = ["payload", payload, "schema_version", "1", "execution_id", idle.execution_id]
    carrier += ("tenant_id", keys.tenant or DEFAULT_TENANT)
    for name, value in fields:
        carrier += (name, value)
    execution_id = idle.execution_id
    return Call(
        "upkeep.requeue",
        script("requeue"),
        (keys.row(execution_id), keys.lease(execution_id), keys.tombstone(execution_id), keys.wake),
        (keys.tenant or DEFAULT_TENANT, idle.mark, *carrier),
        "writer",
        True,
        lambda reply: text(reply[0]) != "",
    )


# -- rows nobody runs -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Stale:
    """A running row that was not written for ``idle_ms``. ``timing``: the record of the node it was to run next, JSON,
    empty without one. ``leased``: somebody holds it all the same. ``mark`` stands for the row as it was seen."""

    execution_id: str
    mark: bytes
    idle_ms: int
    last_update_ms: int
    next_node: str
    timing: bytes
    flow_id: str
    leased: bool


def stale(keys: Keys, idle_ms: int, cursor: str = "0", count: int = PAGE) -> Call[tuple[str, list[Stale]]]:
    """A page of the running rows without a sign of life for ``idle_ms``, by Redis time: (next cursor, rows)."""

    def parse(reply: Sequence[Any]) -> tuple[str, list[Stale]]:
        found = [
            Stale(text(one[0]), one[1], int(one[2]), int(one[3]), text(one[4]), one[5], text(one[6]), one[7] == 1)
            for one in reply[1]
        ]
        return text(reply[0]), found

    return Call(
        "upkeep.stale",
        script("stale"),
        (keys.index("running"),),
        (keys.ns, cursor, count, idle_ms),
        "bulk",
        True,
        parse,
    )


Reaped = Literal["reaped", "leased", "changed"]


def reap(keys: Keys, row: Stale, error: bytes, timing: bytes | None, retention_ms: int) -> Call[Reaped]:
    """End it in ``error``: only while nobody holds it and it is as it was seen (ledger D6). ``timing``: what the record
    of the open node becomes. ``error`` should name its moment: by it the same call sent again is known."""
    execution_id = row.execution_id
    fields: list[Argument] = ["error", error]
    if timing is not None:
        fields += (f"t:{row.next_node}", timing)
    words: dict[str, Reaped] = {"reaped": "reaped", "leased": "leased"}
    return Call(
        "upkeep.reap",
        script("reap"),
        (
            keys.row(execution_id),
            keys.lease(execution_id),
            keys.cancel(execution_id),
            keys.noderetry(execution_id, None),
            keys.fence(execution_id),
            keys.fencegen(execution_id),
            keys.of_execution("nofail", execution_id),
            keys.of_execution("g1wakeups", execution_id),
            keys.index("running"),
            keys.index("error"),
            keys.expiry,
        ),
        (execution_id, row.mark, retention_ms, retention_ms + RETENTION_NET_MS if retention_ms else 0, *fields),
        "writer",
        True,
        lambda reply: words.get(text(reply[0]), "changed"),
    )
