"""What comes to an execution from outside and makes it go on: the wake of a wait, and a person's continue or retry.

Both send a carrier and leave the going on to ``begin``. Each wait is woken at most once, by whoever comes first
(DECISIONS 26); suspending is in ``steps``, the timers of waits in ``delayed``. Exported by ``executions``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from plaita import ids
from plaita.store.call import Argument, Call, lane_for, script, text
from plaita.store.keys import DEFAULT_TENANT, Keys


@dataclass(frozen=True, slots=True)
class Wake:
    """``data`` is the JSON text that the node's ``on_event`` gets; ``event_id`` names the event (an event without an id
    cannot be told from the same sent again, unless ``wait`` is given). ``payload`` and ``fields`` are the carrier's.

    ``wait``: only this one wait is meant (the ``wait`` of the row); None: whatever the execution waits for now.
    ``nonce`` makes a resend recognisable, however far the execution has gone meanwhile. ``named``: others know the
    event by its id, so it wakes no execution twice (DECISIONS 27).
    """

    execution_id: str
    kind: Literal["event", "timeout"]
    data: bytes
    event_id: str
    payload: bytes
    fields: Mapping[str, str] = field(default_factory=dict)
    wait: str | None = None
    nonce: str = field(default_factory=ids.new_nonce)
    named: bool = False


@dataclass(frozen=True, slots=True)
class Woken:
    """``woken``: this call, or the same event before, woke it. Else ``reason``: ``terminal``, ``not_waiting``,
    ``already_woken`` (by another), ``stale_wait``, ``used_event`` (it ended an earlier wait of this execution) or
    ``cancelled`` (a cancel is asked for, and ends it); nothing was changed. ``status`` is the row's."""

    status: str
    woken: bool
    reason: str


def wake(keys: Keys, request: Wake) -> Call[Woken]:
    """End a wait once: row marked, timer dropped and carrier sent in one call (DECISIONS 26).

    The carrier's entry field ``wait`` names the wait. Refused: ``no_row``, ``tombstoned``, ``wrong_type``.
    """
    execution_id = request.execution_id
    return Call(
        "executions.wake",
        script("wake"),
        (keys.row(execution_id), keys.tombstone(execution_id), keys.wake, keys.delayed, keys.delayed_body),
        (
            keys.tenant or DEFAULT_TENANT,
            execution_id,
            keys.ns,
            request.kind,
            request.data,
            request.event_id,
            request.wait or "",
            request.nonce,
            int(request.named),
            *_carrier(keys, execution_id, request.payload, request.fields),
        ),
        lane_for(request.data, request.payload),
        True,
        lambda reply: Woken(text(reply[0]), reply[1] == 1, text(reply[2])),
    )


@dataclass(frozen=True, slots=True)
class ResumeRequest:
    """A ``continue`` or ``retry`` that somebody asks for. ``nonce`` makes a resend recognisable. ``unblock``: a person
    has looked into why it fails, so that the limits of S13 count anew."""

    execution_id: str
    kind: Literal["continue", "retry"]
    payload: bytes
    fields: Mapping[str, str] = field(default_factory=dict)
    nonce: str = field(default_factory=ids.new_nonce)
    unblock: bool = False


@dataclass(frozen=True, slots=True)
class Resumed:
    """``enqueued``: a carrier is on its way. Else ``reason`` with ``detail``: ``already_terminal``,
    ``already_suspended``, ``held`` (the lease), ``g1_wakeups_exhausted`` and ``deterministic_failure_exhausted`` (the
    counter's key), ``definition_gone`` (the hash whose body is missing)."""

    status: str
    enqueued: bool
    reason: str
    detail: str = ""


def request_resume(keys: Keys, request: ResumeRequest) -> Call[Resumed]:
    """Send a carrier where one would do something (ledger S3, S4, S5, S13); changes no state, that is ``begin``'s.

    A suspended row gets one only when a cancel is asked for or when it was woken already. The same request sent again
    answers the same and adds no second carrier, which could cost a second wake-up. Refused: ``no_row``, ``tombstoned``,
    ``wrong_type``.
    """
    execution_id = request.execution_id
    return Call(
        "executions.request_resume",
        script("resume"),
        (
            keys.row(execution_id),
            keys.lease(execution_id),
            keys.cancel(execution_id),
            keys.tombstone(execution_id),
            keys.wake,
            keys.of_execution("g1wakeups", execution_id),
            keys.of_execution("nofail", execution_id),
        ),
        (
            keys.tenant or DEFAULT_TENANT,
            request.kind,
            keys.flows_ns,
            request.nonce,
            int(request.unblock),
            *_carrier(keys, execution_id, request.payload, request.fields),
        ),
        lane_for(request.payload),
        True,
        lambda reply: Resumed(text(reply[0]), reply[1] == 1, text(reply[2]), text(reply[3])),
    )


def _carrier(keys: Keys, execution_id: str, payload: bytes, fields: Mapping[str, str]) -> list[Argument]:
    carrier: list[Argument] = ["payload", payload, "schema_version", "1", "execution_id", execution_id]
    carrier += ("tenant_id", keys.tenant or DEFAULT_TENANT)
    for name, value in fields.items():
        carrier += (name, value)
    return carrier
