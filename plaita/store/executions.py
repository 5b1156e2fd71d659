"""The life of one execution, a verb each: start, begin and retake here, commit, suspend, finish, postpone and hand_on
in ``steps``, what ends a wait from outside in ``waits``, reading and deleting in ``rows``; all are exported from here.

Each verb is one script, so there is no instant between saving, releasing and acking at which a crash could tear them
apart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from plaita import ids
from plaita.store.call import Argument, Call, lane_for, script, text
from plaita.store.failures import COUNTER_TTL_MS
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
from plaita.store.suspends import EarlyEvent, Suspend, Suspended, suspend
from plaita.store.waits import Resumed, ResumeRequest, Wake, Woken, request_resume, wake

__all__ = [
    "Begin", "Begun", "Commit", "Committed", "DeadLetter", "Deleted", "EarlyEvent", "Finish", "ForeignStart",
    "HandOn", "Page", "Postpone", "Postponed", "ResumeRequest", "Resumed", "Retake", "Row", "Start", "Started",
    "Suspend", "Suspended", "Wake", "Woken", "begin", "commit", "delete", "expire_terminal", "finish",
    "hand_on", "list_executions", "load", "postpone", "request_cancel", "request_resume", "results", "retake",
    "start", "status_of", "suspend", "wake",
]  # fmt: skip

DEDUP_TTL_MS = 7 * 86_400_000

Kind = Literal["start", "continue", "retry", "event", "timeout", "cancel"]


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

    A hit of the dedup key adds no ``continue`` for the other one (ledger S2): its row and its carrier came in one call,
    so there is no row here that nothing moves.

    Over the tenant's quota the carrier is parked at once and has no ``message_id`` yet (ledger T3).
    Refused: ``no_flow``, ``no_version``, ``tombstoned``, ``id_taken`` (detail: the flow of the owner),
    ``tenant_disabled``.
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
            keys.tenant_status,
            keys.tenant_quota,
            keys.parked_tenants,
            keys.wake,
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
    """What a start carrier of another producer says; it has no row yet (DECISIONS 15).

    ``dedup_key``: claimed for the id before the row, for 7 days (ledger S2). ``too_old_after_ms``: by server time, when
    it is too old to make a row (D3); None for never.
    """

    flow_id: str
    version: str
    input: bytes
    dedup_key: str | None = None
    too_old_after_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Begin:
    """Take the lease for a carrier. ``holder`` is ``<instance>/<incarnation>``; ``nonce`` names this attempt.

    ``kind`` is the carrier's. ``data`` (JSON text), ``event_id`` and ``wait`` are what an event or timeout says that
    comes to a row still suspended; where the row was woken before, the row's own count. ``expected_epoch``: of the
    tenant statuses, '' where none is looked at (ledger T2).
    """

    execution_id: str
    holder: str
    nonce: str
    lease_ttl_ms: int
    stream: str
    entry_id: str
    max_lost: int
    foreign: ForeignStart | None = None
    kind: Kind = "start"
    data: bytes | None = None
    event_id: str = ""
    wait: str | None = None
    expected_epoch: str = ""


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

    ``woken`` (``event``, ``timeout``): the node is resumed with ``wake_data`` (JSON text), whatever the carrier is.
    ``wait`` (its id) without ``woken``: the wait is to be ended as cancelled. ``normalised``: an event or timeout that
    nothing waits for, which goes on as a continue (ledger S6). ``retried``: woken from ``error`` (S3).
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
    wait: str = ""
    woken: str = ""
    wake_data: bytes | None = None
    normalised: bool = False
    retried: bool = False


def begin(keys: Keys, request: Begin) -> Call[Begun]:
    """Lease, new fence token, row ``running``, ``lost`` + 1, all in one call (ledger L1, L2, S3 to S7, S13, S14).

    A suspended row begins when it was woken, when a cancel is asked for, or by an event or timeout; a row in ``error``
    by a retry, which takes it back to its checkpoint. Both only while the carrier itself is still in its stream.

    Refused: ``no_row``, ``terminal`` (status), ``leased`` (lease value), ``tombstoned``, ``wrong_type``,
    ``flow_conflict`` (the owner's flow); for its tenant (T2, T3) ``tenant_disabled``, ``tenant_epoch`` (missing, older
    or newer) and ``quota`` (running/quota), unless it only ends; ``suspended``: this kind ends no wait; ``stale_wait``
    (the wait there); ``no_checkpoint``: an event or timeout for a row that has not begun; ``g1_wakeups_exhausted`` and
    ``deterministic_failure_exhausted`` (the counter's key) for a retry; for a foreign start ``no_flow``,
    ``no_version``, ``too_old`` and ``dedup_hit`` (status and id of the execution that holds the dedup key).
    """
    foreign = request.foreign
    return Call(
        "executions.begin",
        script("begin"),
        (
            *_lease_keys(keys, request.execution_id),
            keys.index(),
            keys.tombstone(request.execution_id),
            keys.delayed,
            keys.delayed_body,
            keys.stream(request.stream),
            keys.tenant_status,
            keys.tenant_epoch,
            keys.tenant_quota,
            *(_foreign_keys(keys, foreign) if foreign else ()),
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
            foreign.flow_id if foreign else "",
            foreign.version if foreign else "",
            foreign.input if foreign else b"",
            request.kind,
            request.data or b"",
            request.event_id,
            request.wait or "",
            (foreign.dedup_key or "") if foreign else "",
            DEDUP_TTL_MS,
            COUNTER_TTL_MS,
            keys.ns,
            "" if foreign is None or foreign.too_old_after_ms is None else foreign.too_old_after_ms,
            request.expected_epoch,
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
    )


def _foreign_keys(keys: Keys, foreign: ForeignStart) -> tuple[str, ...]:
    names = (keys.flow_versions(foreign.flow_id), keys.flow_meta(foreign.flow_id))
    return (*names, keys.start_dedup(foreign.dedup_key)) if foreign.dedup_key else names


def _parse_begun(reply: Sequence[Any]) -> Begun:
    token, lease_value, now, exhausted, cancel, fields, results_, states, how = reply
    control: dict[str, str] = {}
    timings: dict[str, bytes] = {}
    given = wake_data = b""
    for name, value in zip(fields[::2], fields[1::2], strict=True):
        if name == b"input":
            given = value
        elif name == b"wake_data":
            wake_data = value
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
        wait=control.get("wait", ""),
        woken=control.get("woken", ""),
        wake_data=wake_data or None,
        normalised=how == b"normalised",
        retried=how == b"retried",
    )
