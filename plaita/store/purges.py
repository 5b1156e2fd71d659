"""Taking a tenant's keys away, page by page (ledger T4). The tombstones stand at the root and stay."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from plaita.store.call import Call, script, text
from plaita.store.keys import DEFAULT_TENANT, Keys

PAGE = 200
_GLOB = str.maketrans({character: f"\\{character}" for character in "*?[]\\^-"})


@dataclass(frozen=True, slots=True)
class KeyPage:
    """``cursor`` "0": that was the last page. ``names``: keys that may be unlinked; one may come twice."""

    cursor: str
    names: list[str]


def entomb(keys: Keys, execution_ids: Sequence[str], reason: str, tombstone_ttl_ms: int) -> Call[int]:
    """Tombstones for executions of the tenant, whether they have a row or not; how many are new. ``delete`` takes the
    rows away. A tombstone that is there keeps its time and reason (ledger D2)."""
    if not execution_ids:
        raise ValueError("tombstones of no executions")
    return Call(
        "purges.entomb",
        script("entomb"),
        [keys.tombstone(execution_id) for execution_id in execution_ids],
        (keys.tenant or DEFAULT_TENANT, reason, tombstone_ttl_ms),
        "bulk",
        True,
        lambda reply: int(reply[0]),
    )


def page(keys: Keys, cursor: str = "0", count: int = PAGE) -> Call[KeyPage]:
    """A page of the keys under the tenant's name, less what is not its own or must outlive it: a queue that was given
    such a name, and the generations of fences, which keep late writers out until their own time is over (ledger D1).

    Raises ValueError for the default tenant, under whose name everybody's keys stand.
    """
    if keys.tenant in ("", DEFAULT_TENANT):
        raise ValueError("the default tenant has no name of its own to take away")
    head = f"{keys.ns}:"
    kept = (f"{head}execution:fencegen:", keys.queue, keys.dead_letters)

    def parse(reply: Sequence[Any]) -> KeyPage:
        names = [text(name) for name in reply[1]]
        return KeyPage(text(reply[0]), [name for name in names if not name.startswith(kept)])

    return Call(
        "purges.page",
        None,
        (),
        ("SCAN", cursor, "MATCH", f"{head.translate(_GLOB)}*", "COUNT", count),
        "bulk",
        True,
        parse,
    )


def unlink(keys: Keys, names: Sequence[str]) -> Call[int]:
    """Take these away; how many there were."""
    head = f"{keys.ns}:"
    strangers = [name for name in names if not name.startswith((head, f"{keys.queue}:parked:"))]
    if strangers or not names:
        raise ValueError(f"keys that are not the tenant's: {strangers[:3]}")
    return Call("purges.unlink", None, tuple(names), ("UNLINK", *names), "bulk", True, lambda reply: int(reply))


def forget_parked(keys: Keys) -> Call[bool]:
    """The tenant has nothing parked any more."""
    return Call(
        "purges.forget_parked",
        None,
        (keys.parked_tenants,),
        ("SREM", keys.parked_tenants, keys.tenant),
        "writer",
        True,
        lambda reply: reply == 1,
    )
