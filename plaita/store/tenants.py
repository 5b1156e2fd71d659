"""What the platform says of tenants, and the carriers that wait for a place under a quota (ledger T2, T3).

Status, epoch and quota stand at the root of the prefix, under no tenant's name. Who asks them before anything runs are
``begin`` and ``start``; here they are written and read. Parked carriers stand in lists, in no stream and in no
consumer's hands: nothing polls them, and a release is one call (docs/decisions/0009).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import unquote

from plaita.store.call import Argument, Call, script, text
from plaita.store.keys import DEFAULT_TENANT, Keys

PAGE = 200
RELEASED_AT_ONCE = 100  # of a tenant, in one call
TENANTS_AT_ONCE = 200  # looked at in one call; which ones is chance, so that all have their turn
_INDEX = ":execution:index"

Status = Literal["active", "disabled"]


# -- what is said of them -------------------------------------------------------------------------


def set_status(keys: Keys, status: Status, epoch: str | None = None) -> Call[str]:
    """Enable or disable the tenant of ``keys``; the status before, '' for none. ``epoch``: of the deployment that says
    so, written with it (ledger T2)."""
    return Call(
        "tenants.set_status",
        script("tenant_status"),
        (keys.tenant_status, keys.tenant_epoch),
        (keys.tenant or DEFAULT_TENANT, status, epoch or ""),
        "writer",
        True,
        lambda reply: text(reply[0]),
    )


def set_quota(keys: Keys, quota: int) -> Call[str]:
    """How many executions of the tenant of ``keys`` may run at a time, 0 for no limit; what stood there before."""
    return Call(
        "tenants.set_quota",
        script("tenant_quota"),
        (keys.tenant_quota,),
        (keys.tenant or DEFAULT_TENANT, max(0, quota)),
        "writer",
        True,
        lambda reply: text(reply[0]),
    )


@dataclass(frozen=True, slots=True)
class States:
    """Epoch and statuses as of one moment; '' where there is none, or none that can be read."""

    epoch: str
    statuses: dict[str, str]


def states(keys: Keys, tenants: Sequence[str] = ()) -> Call[States]:
    """What is asked again and again while executions of these tenants are held."""
    return Call(
        "tenants.states",
        script("tenant_states"),
        (keys.tenant_status, keys.tenant_epoch),
        tenants,
        "keeper",
        True,
        lambda reply: States(text(reply[0]), dict(zip(tenants, map(text, reply[1:]), strict=True))),
    )


@dataclass(frozen=True, slots=True)
class Facts:
    """Of one tenant. ``status`` and ``quota`` as they are written, '' for none; the rest are counts of executions, and
    of carriers ``parked`` of this queue."""

    tenant: str
    status: str
    quota: str
    pending: int
    running: int
    suspended: int
    parked: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """``epoch``: of the statuses, '' for none."""

    epoch: str
    tenants: list[Facts]


def snapshot(keys: Keys, tenants: Sequence[str] = ()) -> Call[Snapshot]:
    """These tenants, or without any all that have a status, a quota or something parked, by name."""

    def parse(reply: Sequence[Any]) -> Snapshot:
        facts = [
            Facts(text(one[0]), text(one[1]), text(one[2]), int(one[3]), int(one[4]), int(one[5]), int(one[6]))
            for one in reply[1]
        ]
        return Snapshot(text(reply[0]), facts)

    return Call(
        "tenants.snapshot",
        script("tenant_facts"),
        (keys.tenant_status, keys.tenant_epoch, keys.tenant_quota, keys.parked_tenants),
        (keys.prefix, *tenants),
        "bulk",
        True,
        parse,
    )


def scan(keys: Keys, cursor: str = "0", count: int = 1000) -> Call[tuple[str, list[str]]]:
    """A page of the tenants that have executions: (next cursor, "0" at the end; names, one may come twice). It goes
    through all keys of the server."""
    head = keys.prefix + ":"
    glob = "".join("\\" + letter if letter in "*?[]\\^-" else letter for letter in keys.prefix)

    def parse(reply: Sequence[Any]) -> tuple[str, list[str]]:
        names = [text(key).removesuffix(_INDEX).removeprefix(head) for key in reply[1]]
        found = {DEFAULT_TENANT if name == keys.prefix else unquote(name) for name in names if ":" not in name}
        return text(reply[0]), sorted(found)

    command = ("SCAN", cursor, "MATCH", f"{glob}*{_INDEX}", "COUNT", count, "TYPE", "zset")
    return Call("tenants.scan", None, (), command, "bulk", True, parse)


# -- parked carriers ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Park:
    """The carrier of an execution that ``begin`` refused with ``quota``. ``fields`` are added where the entry has none
    of that name: what a new entry would no longer say (its id, its age)."""

    execution_id: str
    consumer: str
    stream: str
    entry_id: str
    fields: Mapping[str, str] = field(default_factory=dict)


def park(keys: Keys, request: Park) -> Call[bool]:
    """Put a carrier aside until its tenant, whose ``keys`` these are, has a place. False when it was gone.

    Refused, nothing done: ``changed``: there is a place by now, another consumer has the carrier, or it runs.
    """
    words: list[Argument] = []
    for name, value in request.fields.items():
        words += (name, value)
    execution_id = request.execution_id
    return Call(
        "tenants.park",
        script("park"),
        (
            keys.stream(request.stream),
            keys.row(execution_id),
            keys.lease(execution_id),
            keys.index("running"),
            keys.tenant_quota,
            keys.parked_tenants,
        ),
        (
            keys.group,
            request.consumer,
            request.entry_id,
            request.stream,
            keys.tenant or DEFAULT_TENANT,
            execution_id,
            *words,
        ),
        "writer",
        True,
        lambda reply: reply[0] == 1,
    )


@dataclass(frozen=True, slots=True)
class Released:
    """``left``: tenants, of those looked at, that still have something parked. ``more``: ask again at once. ``bad``
    records went to the dead letters, which lost ``trimmed`` old ones for it (-1: cutting them failed)."""

    moved: int
    left: list[str]
    more: bool
    bad: int
    trimmed: int


def release_parked(
    keys: Keys, tenants: Sequence[str] = (), *, expected_epoch: str = "", dlq_maxlen: int = 1000
) -> Call[Released]:
    """Bring back what has a place now, of these tenants or of any. Nothing of a tenant that is disabled, or whose epoch
    this host does not know: it waits here as well as anywhere.

    Safe to send again: what was brought back is counted until it has begun.
    """

    def parse(reply: Sequence[Any]) -> Released:
        left = [text(tenant) for tenant in reply[1]]
        return Released(int(reply[0]), left, reply[2] == 1, int(reply[3]), int(reply[4]))

    return Call(
        "tenants.release_parked",
        script("release_parked"),
        (
            keys.parked_tenants,
            keys.queue,
            keys.wake,
            keys.tenant_quota,
            keys.tenant_status,
            keys.tenant_epoch,
            keys.dead_letters,
        ),
        (keys.prefix, expected_epoch, RELEASED_AT_ONCE, TENANTS_AT_ONCE, dlq_maxlen, *tenants),
        "writer",
        True,
        parse,
    )


def parked_named(keys: Keys, stream: str, first: int = 0, count: int = PAGE) -> Call[tuple[int, list[str]]]:
    """A page of the tenant's parked carriers: (where the next page begins, -1 at the end; their execution ids)."""
    return Call(
        "tenants.parked_named",
        script("parked_named"),
        (keys.parked(stream),),
        (first, count),
        "bulk",
        True,
        lambda reply: (int(reply[0]), [text(one) for one in reply[1]]),
    )


def parked_keys(keys: Keys) -> list[str]:
    """All that stands of the tenant's parked carriers, but for its name in ``parked_tenants``: for who purges it."""
    return [keys.parked(word) for word in ("w", "q", "out")]
