"""Leases: what their value says, renewing all of them in one call, and the cancel flags read and answered beside them.

The lease of an execution is a string key with a TTL, decided by Redis alone (never by a host's clock). Its value names
the holder, the fence token and the carrier, so that a refusal can be judged without another look (DECISIONS 1, 3).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from plaita.store.call import Argument, Call, script, text
from plaita.store.keys import Keys

LEASE_FORMAT = "v2"


@dataclass(frozen=True, slots=True)
class Lease:
    """A lease value taken apart. ``holder`` is ``<instance>/<incarnation>``, ``stream`` is ``q`` or ``w``."""

    holder: str
    token: str
    stream: str
    entry_id: str

    @property
    def instance_id(self) -> str:
        return self.holder.rpartition("/")[0]

    @property
    def incarnation(self) -> str:
        return self.holder.rpartition("/")[2]

    def value(self) -> str:
        return f"{LEASE_FORMAT} {self.holder} {self.token} {self.stream} {self.entry_id}"


def parse_lease(value: str) -> Lease | None:
    """None for a value of another format: its holder is unreadable, which DECISIONS 3 leaves pending."""
    words = value.split(" ")
    if len(words) != 5 or words[0] != LEASE_FORMAT or "/" not in words[1] or words[3] not in ("q", "w"):
        return None
    return Lease(*words[1:])


@dataclass(frozen=True, slots=True)
class Beat:
    """That a step runs (ledger L4): ``step`` is the row's ``step`` + 1, ``timing`` the open ``t:`` record of its node
    (JSON). Written only while no later step, and no end, is."""

    step: int
    node_id: str
    timing: bytes


@dataclass(frozen=True, slots=True)
class Renewal:
    """One lease to renew, with the carrier whose idle time goes back to zero, and what to say of the running step."""

    tenant: str
    execution_id: str
    lease_value: str
    stream: str
    entry_id: str
    beat: Beat | None = None

    @property
    def token(self) -> str:
        """The fence token that the lease value names."""
        return self.lease_value.split(" ")[2]


def renew(keys: Keys, consumer: str, renewals: Sequence[Renewal], ttl_ms: int) -> Call[list[str]]:
    """``ok``, ``lost`` or ``fenced`` for each, in order (ledger L3, L4). Costs the carriers no delivery. Idempotent.

    ``lost``: the lease is another's, or gone. ``fenced``: the lease is ours but the fence token is not, so that no
    write of ours would be taken: nothing is renewed.
    """
    names = [keys.queue, keys.wake]
    args: list[Argument] = [keys.group, consumer, ttl_ms]
    for renewal in renewals:
        of, execution_id = keys.for_tenant(renewal.tenant), renewal.execution_id
        names += (of.lease(execution_id), of.row(execution_id), of.fence(execution_id), of.fencegen(execution_id))
        args += (renewal.lease_value, renewal.stream, renewal.entry_id, renewal.token)
        beat = renewal.beat
        args += ("", "", "") if beat is None else (beat.step, "t:" + beat.node_id, beat.timing)
    return Call("leases.renew", script("renew"), names, args, "keeper", True, lambda reply: [text(x) for x in reply])


@dataclass(frozen=True, slots=True)
class Ownership:
    """What Redis says of one execution: its fence token, its generation and its lease value; empty where missing."""

    fence: str
    generation: str
    lease: str


def held_tokens(keys: Keys, held: Sequence[tuple[str, str]]) -> Call[list[Ownership]]:
    """What Redis says of the (tenant, execution id) pairs, in order and as of one moment (DECISIONS 11)."""
    names: list[str] = []
    for tenant, execution_id in held:
        of = keys.for_tenant(tenant)
        names += (of.fence(execution_id), of.fencegen(execution_id), of.lease(execution_id))
    return Call(
        "leases.held_tokens",
        script("held_tokens"),
        names,
        [execution_id for _, execution_id in held],
        "writer",  # where writes go, that is who decides
        True,
        lambda reply: [Ownership(*(text(word) for word in facts)) for facts in reply],
    )


def drop(keys: Keys, execution_id: str, value: str) -> Call[bool]:
    """Take away a lease whose holder is dead for certain: only while its value is this. False where it is not."""
    return Call(
        "leases.drop",
        script("drop_lease"),
        (keys.lease(execution_id),),
        (value,),
        "writer",
        True,
        lambda reply: reply[0] == 1,
    )


def cancel_flags(keys: Keys, executions: Sequence[tuple[str, str]]) -> Call[list[str | None]]:
    """The cancel reasons of (tenant, execution id) pairs in order; None where no cancel is asked (DECISIONS 13)."""
    names = [keys.for_tenant(tenant).cancel(execution_id) for tenant, execution_id in executions]
    if not names:
        raise ValueError("cancel_flags of no executions")
    return Call(
        "leases.cancel_flags",
        None,
        names,
        ("MGET", *names),
        "keeper",
        True,
        lambda reply: [None if flag is None else text(flag) for flag in reply],
    )


def note_signalled(keys: Keys, executions: Sequence[tuple[str, str, str]]) -> Call[int]:
    """Write into the rows of (tenant, execution id, token) triples that their running steps were told to stop
    (DECISIONS 13); how many. Nothing is written where the token is not the row's any more, or the row does not run."""
    names: list[str] = []
    for tenant, execution_id, _ in executions:
        of = keys.for_tenant(tenant)
        names += (of.row(execution_id), of.fence(execution_id), of.fencegen(execution_id))
    return Call(
        "leases.note_signalled",
        script("note_signalled"),
        names,
        [token for _, _, token in executions],
        "keeper",
        True,
        lambda reply: int(reply[0]),
    )
