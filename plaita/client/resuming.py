"""Moving an execution on from outside: events, timeouts, continues, retries and the wish that it ends (ledger S3-S8).

Each answer says what happened, and where nothing did, why: ``reason`` is a stable word, ``EXPLANATIONS`` has the
sentence. Nothing here changes a row: an event's wake is one script, the rest is a carrier.
"""

from __future__ import annotations

from typing import Any, Literal

from plaita import ids
from plaita.client.operations import Operation, ask, check_execution_id, check_reason, encode_event_data, load
from plaita.clock import iso_utc, wall_ms
from plaita.errors import InputError, RefusedError
from plaita.policy.carrier import resume_payload
from plaita.store import executions
from plaita.store.executions import ResumeRequest, Wake
from plaita.store.keys import DEFAULT_TENANT, TERMINAL, Keys

KINDS = ("event", "timeout", "continue", "retry")

EXPLANATIONS = {
    "already_terminal": "it has ended; nothing was changed",
    "already_suspended": "it waits for an event, which this is not; nothing was changed",
    "held": "it is being run at this moment, so this resume had no effect",
    "not_waiting": "it waits for nothing at this moment; nothing was changed",
    "stale_wait": "it waits for something else by now; nothing was changed",
    "used_event": "this event ended an earlier wait of this execution; nothing was changed",
    "cancelled": "a cancel is asked for, and ends it; nothing was changed",
    "already_woken": "another event or a timeout woke it before; nothing was changed",
    "definition_gone": "the definition that it began with is gone; put that content there again, then retry",
    "g1_wakeups_exhausted": "it was woken from error as often as it may; nothing was changed",
    "deterministic_failure_exhausted": "it failed in a row as often as it may; nothing was changed",
}
HARMLESS = frozenset({"already_terminal", "already_suspended", "held"})  # short-circuits: all is as it should be
_LIMITS = frozenset({"g1_wakeups_exhausted", "deterministic_failure_exhausted"})


def resume(
    keys: Keys,
    execution_id: str,
    resume_type: str,
    data: Any = None,
    family: str | None = None,
    *,
    unblock: bool = False,
) -> Operation[dict[str, Any]]:
    """Ask for a resume: ``{"execution_id", "resume_type", "status", "resumed", "reason", ...}``.

    ``resumed``: its carrier is on its way. Else ``reason`` is a key of EXPLANATIONS, with ``already_terminal`` or
    ``already_suspended`` True where that is why (ledger S3, S4), ``counter_key`` at a limit (S13), ``flow_hash`` of a
    definition that is gone. ``data`` is an event's, at most 64 KiB of JSON. ``unblock``, with ``retry``: both limits
    count anew.

    Raises InputError; RefusedError ``no_row``, ``deleted``, ``wrong_type``.
    """
    execution = check_execution_id(execution_id)
    if resume_type not in KINDS:
        hint = "; that is `plaita cancel`" if resume_type == "cancel" else ""
        raise InputError(f"type: {resume_type!r} is none; there are {', '.join(KINDS)}{hint}")
    if unblock and resume_type != "retry":
        raise InputError(f"unblock: it lifts the limits of a retry; a {resume_type} has none")
    encoded = _encode_data(resume_type, data)
    row = yield from load(keys, execution)
    tenant = keys.tenant or DEFAULT_TENANT
    payload = resume_payload(
        execution_id=execution,
        flow_id=row.control.get("flow_id") if row else None,
        resume_type=resume_type,
        tenant_id=tenant,
        timestamp=iso_utc(wall_ms()) or "",
    )
    fields = {} if family is None else {"config_family": family}
    answer: dict[str, Any] = {"execution_id": execution, "resume_type": resume_type}
    try:
        if resume_type in ("event", "timeout"):
            ends_by: Literal["event", "timeout"] = "event" if resume_type == "event" else "timeout"
            event_id, named = _event_id(data)
            wake = Wake(execution, ends_by, encoded, event_id, payload, fields, named=named)
            woken = yield from ask(executions.wake(keys, wake))
            reason = "already_terminal" if woken.reason == "terminal" else woken.reason
            return answer | _said(woken.status, woken.woken, reason)
        kind: Literal["continue", "retry"] = "continue" if resume_type == "continue" else "retry"
        request = ResumeRequest(execution, kind, payload, fields, unblock=unblock)
        asked = yield from ask(executions.request_resume(keys, request))
        return answer | _said(asked.status, asked.enqueued, asked.reason, asked.detail)
    except RefusedError as error:
        raise _worded(error, execution, tenant) from None


def cancel(keys: Keys, execution_id: str, reason: str, family: str | None = None) -> Operation[dict[str, Any]]:
    """Ask for the end: ``{"execution_id", "status", "cancel_requested", "cancel"}``. A terminal one is left as it is
    (ledger S8). ``cancel`` is ``requested``, the first of three words; ``get`` tells the others (DECISIONS 13)."""
    execution, said = check_execution_id(execution_id), check_reason(reason)
    row = yield from load(keys, execution)
    tenant = keys.tenant or DEFAULT_TENANT
    payload = resume_payload(
        execution_id=execution,
        flow_id=row.control.get("flow_id") if row else None,
        resume_type="cancel",
        tenant_id=tenant,
        timestamp=iso_utc(wall_ms()) or "",
        data={"reason": said},
    )
    fields = {} if family is None else {"config_family": family}
    try:
        status = yield from ask(executions.request_cancel(keys, execution, said, payload, fields))
    except RefusedError as error:
        raise _worded(error, execution, tenant) from None
    requested = status not in TERMINAL
    return {
        "execution_id": execution,
        "status": status,
        "cancel_requested": requested,
        "cancel": "requested" if requested else None,
    }


def _encode_data(resume_type: str, data: Any) -> bytes:
    if data is not None and resume_type != "event":
        raise InputError(f"data: a {resume_type} takes none; only an event brings data")
    return encode_event_data(data)


def _event_id(data: Any) -> tuple[str, bool]:
    """The event's own id, by which the same event sent again is known; else a new one, for this call's resends."""
    named = data.get("event_id") if isinstance(data, dict) else None
    if isinstance(named, str) and 0 < len(named) <= ids.MAX_ID_LENGTH:
        return named, True
    return ids.new_execution_id(), False


def _said(status: str, resumed: bool, reason: str, detail: str = "") -> dict[str, Any]:
    said: dict[str, Any] = {"status": status, "resumed": resumed, "reason": reason or None}
    if reason == "already_terminal" or reason in _LIMITS:
        said["already_terminal"] = True
    if reason == "already_suspended":
        said["already_suspended"] = True
    if reason in _LIMITS:
        said["counter_key"] = detail
    elif reason == "definition_gone":
        said["flow_hash"] = detail
    return said


def _worded(error: RefusedError, execution: str, tenant: str) -> RefusedError:
    if error.reason == "no_row":
        return RefusedError("no_row", f"there is no execution {execution!r} for tenant {tenant!r}")
    if error.reason == "tombstoned":
        return RefusedError("deleted", f"execution {execution!r} was deleted, which is for good")
    if error.reason == "wrong_type":
        return RefusedError("wrong_type", f"the key of execution {execution!r} holds a {error}; it is left as it is")
    return RefusedError(error.reason, f"the store refused: {error.reason} {error}".rstrip())
