"""Waits put right by hand after a loss: where events find them, whose task they are, their timers (ledger D4, E2).

All of a wait stands in its row (DECISIONS 26): index, key sets, tasks and timer can be made anew from there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from plaita.store.call import Argument, Call, script, text
from plaita.store.keys import DEFAULT_TENANT, Keys
from plaita.store.upkeep import PAGE, glob


@dataclass(frozen=True, slots=True)
class Untimed:
    """A wait with a deadline and no timer. ``stamps``: JSON text, what its wake-ups carry on; '' where not known."""

    execution_id: str
    wait: str
    flow_id: str
    stamps: str


@dataclass(frozen=True, slots=True)
class Rewaited:
    """Of one page: ``mended`` waits were not whole; of those ``untimed`` lack their timer still."""

    mended: int
    untimed: list[Untimed]


def put_back(keys: Keys, execution_ids: Sequence[str]) -> Call[Rewaited]:
    """Those of the executions that wait stand again wherever their rows say. Timers: ``put_timer``."""

    def parse(reply: Sequence[Any]) -> Rewaited:
        return Rewaited(int(reply[0]), [Untimed(*(text(word) for word in one)) for one in reply[1]])

    return Call(
        "waits.put_back",
        script("rewait"),
        (keys.delayed, keys.delayed_body),
        (keys.ns, keys.tombstone(""), keys.tenant or DEFAULT_TENANT, *execution_ids),
        "bulk",
        True,
        parse,
    )


def put_timer(keys: Keys, untimed: Untimed, fields: Sequence[tuple[str, bytes | str]]) -> Call[bool]:
    """The timer of a wait by the deadline in its row; False where it waits no more. ``fields``: of its carrier."""
    flat: list[Argument] = [word for pair in fields for word in pair]
    return Call(
        "waits.put_timer",
        script("retime"),
        (keys.row(untimed.execution_id), keys.delayed, keys.delayed_body),
        (keys.ns, untimed.execution_id, untimed.wait, *flat),
        "writer",
        True,
        lambda reply: reply[0] == 1,
    )


@dataclass(frozen=True, slots=True)
class IndexPage:
    """Keys of the index: ``sets`` of execution ids, ``hashes`` of key sets. ``cursor`` "0": that was the last page."""

    cursor: str
    sets: list[str]
    hashes: list[str]


def index_page(keys: Keys, cursor: str = "0", count: int = PAGE) -> Call[IndexPage]:
    """A page of the keys that ``drop_members`` and ``drop_key_sets`` look through; one may come twice."""
    head = f"{keys.ns}:event:"

    def parse(reply: Sequence[Any]) -> IndexPage:
        names = [text(name) for name in reply[1]]
        sets = [name for name in names if name.startswith((f"{head}index:", f"{head}users:"))]
        return IndexPage(text(reply[0]), sets, [name for name in names if name.startswith(f"{head}keysets:")])

    command = ("SCAN", cursor, "MATCH", f"{glob(head)}*", "COUNT", count)
    return Call("waits.index_page", None, (), command, "bulk", True, parse)


def drop_members(keys: Keys, index: str, cursor: str = "0", count: int = PAGE) -> Call[tuple[str, int]]:
    """A page of one set: members that do not wait there go. (next cursor, how many)."""
    return Call(
        "waits.drop_members",
        script("unwait"),
        (index,),
        (keys.ns, cursor, count),
        "bulk",
        True,
        lambda reply: (text(reply[0]), int(reply[1])),
    )


def drop_key_sets(index: str) -> Call[int]:
    """Key sets of one event type that no wait uses; how many."""
    return Call(
        "waits.drop_key_sets", script("unused_key_sets"), (index,), (), "bulk", True, lambda reply: int(reply[0])
    )
