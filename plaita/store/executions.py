"""The life of one execution, a verb each: start, begin and retake here, commit, finish, postpone and hand_on in
``steps``, reading and deleting in ``rows``; all are exported from this module.

Each verb is one script, so there is no instant between saving, releasing and acking at which a crash could tear them
apart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from plaita import ids
from plaita.store.call import Argument, Call, lane_for, script, text
from plaita.store.keys import DEFAULT_TENANT, Keys
from plaita.store.rows import (
    Deleted,
    Page,
    Row,
    delete,
    expire_terminal,
    list_executions,
    load,
    request_cancel,
    results,
    status_of,
)
from plaita.store.steps import (
    Commit,
    Committed,
    DeadLetter,
    Finish,
    HandOn,
    Postpone,
    Postponed,
    commit,
    finish,
    hand_on,
    postpone,
)

__all__ = [
    "Begin", "Begun", "Commit", "Committed", "DeadLetter", "Deleted", "Finish", "ForeignStart", "HandOn", "Page",
    "Postpone", "Postponed", "Retake", "Row", "Start", "Started", "begin", "commit", "delete", "expire_terminal",
    "finish", "hand_on", "list_executions", "load", "postpone", "request_cancel", "results", "retake", "start",
    "status_of",
]  # fmt: skip

DEDUP_TTL_MS = 7 * 86_400_000


# -- start --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Start:
    """``fields``: more entry fields for the carrier (config_family ...). ``nonce`` makes a resend recognisable."""

    execution_id: str
    flow_id: str
    input: bytes
    payload: bytes
    version: str = "latest"
    fields: Mapping[str, str] = field(default_factory=dict)
    dedup_key: str | None = None
    nonce: str = field(default_factory=ids.new_nonce)


@dataclass(frozen=True, slots=True)
class Started:
    """With ``deduplicated``, everything is the other execution's, and ``message_id`` is empty."""

    execution_id: str
    version: str
    flow_hash: str
    message_id: str
    deduplicated: bool
    status: str


def start(keys: Keys, request: Start) -> Call[Started]:
    """Row ``pending``, index and carrier in one call (DECISIONS 15). The same request sent again answers the same.

    Refused: ``no_flow``, ``no_version``, ``tombstoned``, ``id_taken`` (detail: the flow of the owner).
    """
    carrier: list[Argument] = ["payload", request.payload, "schema_version", "1"]
    carrier += ["execution_id", request.execution_id, "tenant_id", keys.tenant or DEFAULT_TENANT]
    carrier += ["flow_id", request.flow_id]
    for name, value in request.fields.items():
        carrier += [name, value]
    dedup = request.dedup_key or ""
    return Call(
        "executions.start",
        script("start"),
        (
            keys.row(request.execution_id),
            keys.flow_versions(request.flow_id),
            keys.flow_meta(request.flow_id),
            keys.index(),
            keys.index("pending"),
            keys.tombstone(request.execution_id),
            keys.queue,
            keys.start_dedup(dedup),
        ),
        (
            request.execution_id,
            keys.tenant or DEFAULT_TENANT,
            request.flow_id,
            request.version,
            request.input,
            dedup,
            DEDUP_TTL_MS,
            request.nonce,
            keys.ns,
            *carrier,
        ),
        lane_for(request.input, request.payload),
        True,
        _parse_started,
    )


def _parse_started(reply: Sequence[Any]) -> Started:
    execution_id, version, flow_hash, message_id, deduplicated, status = reply
    return Started(
        text(execution_id), text(version), text(flow_hash), text(message_id), deduplicated == 1, text(status)
    )


# -- begin and retake ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ForeignStart:
    """What a start carrier of another producer says; it has no row yet (DECISIONS 15)."""

    flow_id: str
    version: str
    input: bytes


@dataclass(frozen=True, slots=True)
class Begin:
    """Take the lease for a carrier. ``holder`` is ``<instance>/<incarnation>``; ``nonce`` names this attempt."""

    execution_id: str
    holder: str
    nonce: str
    lease_ttl_ms: int
    stream: str
    entry_id: str
    max_lost: int
    foreign: ForeignStart | None = None


@dataclass(frozen=True, slots=True)
class Retake:
    """After an executor's death: the same holder takes a new token. ``death`` is the death record (JSON)."""

    execution_id: str
    old_token: str
    holder: str
    nonce: str
    lease_ttl_ms: int
    stream: str
    entry_id: str
    death: bytes
    max_lost: int
    active_ms_delta: int = 0


@dataclass(frozen=True, slots=True)
class Begun:
    """The lease is ours. ``control`` has every field of the row but input, results, timings and state.

    ``timings`` are the ``t:`` fields by node (JSON), ``result_sizes`` and ``state_sizes`` bytes by name.
    ``lost_exhausted``: this is the (max_lost + 1)th time the same step is handed out; it must not run again.
    """

    token: str
    generation: int
    lease_value: str
    control: dict[str, str]
    input: bytes
    timings: dict[str, bytes]
    result_sizes: dict[str, int]
    state_sizes: dict[str, int]
    cancel: bool
    cancel_reason: str
    server_now_ms: int
    lost_exhausted: bool


def begin(keys: Keys, request: Begin) -> Call[Begun]:
    """Lease, new fence token, row ``running``, ``lost`` + 1, all in one call (ledger L1, L2, S14).

    Refused: ``no_row``, ``terminal`` (status), ``suspended``, ``leased`` (lease value), ``tombstoned``, ``wrong_type``,
    ``flow_conflict`` (the owner's flow), and for a foreign start ``no_flow``, ``no_version``.
    """
    foreign = request.foreign
    flow_id = foreign.flow_id if foreign else ""
    return Call(
        "executions.begin",
        script("begin"),
        (
            *_lease_keys(keys, request.execution_id),
            keys.tombstone(request.execution_id),
            keys.flow_versions(flow_id),
            keys.flow_meta(flow_id),
        ),
        (
            request.execution_id,
            request.holder,
            request.nonce,
            request.lease_ttl_ms,
            request.stream,
            request.entry_id,
            request.max_lost,
            keys.tenant or DEFAULT_TENANT,
            int(foreign is not None),
            flow_id,
            foreign.version if foreign else "",
            foreign.input if foreign else b"",
        ),
        lane_for(foreign.input) if foreign else "writer",
        True,
        _parse_begun,
    )


def retake(keys: Keys, request: Retake) -> Call[Begun]:
    """A new token for a step whose executor died; ``lost`` + 1 (DECISIONS 7, 8).

    Refused: ``lease_lost`` (not ours under ``old_token``), ``no_row``, ``terminal`` (status), ``not_running`` (status).
    """
    return Call(
        "executions.retake",
        script("retake"),
        _lease_keys(keys, request.execution_id),
        (
            request.execution_id,
            request.holder,
            request.nonce,
            request.lease_ttl_ms,
            request.stream,
            request.entry_id,
            request.max_lost,
            request.old_token,
            request.death,
            request.active_ms_delta,
        ),
        "writer",
        True,
        _parse_begun,
    )


def _lease_keys(keys: Keys, execution_id: str) -> tuple[str, ...]:
    return (
        keys.row(execution_id),
        keys.lease(execution_id),
        keys.fence(execution_id),
        keys.fencegen(execution_id),
        keys.cancel(execution_id),
        keys.index(),
        keys.index("pending"),
        keys.index("running"),
    )


def _parse_begun(reply: Sequence[Any]) -> Begun:
    token, lease_value, now, exhausted, cancel, fields, results_, states = reply
    control: dict[str, str] = {}
    timings: dict[str, bytes] = {}
    given = b""
    for name, value in zip(fields[::2], fields[1::2], strict=True):
        if name == b"input":
            given = value
        elif name.startswith(b"t:"):
            timings[text(name[2:])] = value
        else:
            control[text(name)] = text(value)
    return Begun(
        token=text(token),
        generation=int(token.partition(b":")[0]),
        lease_value=text(lease_value),
        control=control,
        input=given,
        timings=timings,
        result_sizes={text(name): int(size) for name, size in zip(results_[::2], results_[1::2], strict=True)},
        state_sizes={text(name): int(size) for name, size in zip(states[::2], states[1::2], strict=True)},
        cancel=cancel is not None,
        cancel_reason=text(cancel),
        server_now_ms=int(now),
        lost_exhausted=exhausted == 1,
    )
