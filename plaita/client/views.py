"""Stored rows as the JSON forms of CONTRACT. Pure; a field that another producer wrote badly is shown, never fatal."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from plaita import jsontext
from plaita.clock import iso_utc
from plaita.policy import dead_letter as envelopes
from plaita.policy.age import timestamp_ms
from plaita.policy.liveness import Liveness, judge
from plaita.store.executions import Row

ERROR_FIELDS = ("code", "message", "error_type", "node", "failed_node", "node_retries")
DEFAULT_HEARTBEAT_MS = 40_000  # a third of the default lease
_UNREADABLE_LAST = 1 << 62


def _json(raw: bytes | None) -> Any:
    if raw is None:
        return None
    try:
        return jsontext.loads(raw)
    except jsontext.JSONTextError:
        return raw.decode("utf-8", "replace")


def _integer(value: Any) -> int | None:
    try:
        return int(value)
    except (TypeError, ValueError, OverflowError):
        return None


def _time(value: Any) -> str | None:
    """ISO 8601 UTC for epoch milliseconds, as number or text; None for what is no time."""
    number = _integer(value)
    if number is None:
        return None
    try:
        return iso_utc(number)
    except (ValueError, OverflowError, OSError):
        return None


def execution(row: Row, tenant: str) -> dict[str, Any]:
    """The answer of ``show --json``."""
    control = row.control
    return {
        "execution_id": row.execution_id,
        "flow_id": control.get("flow_id"),
        "version": control.get("version"),
        "flow_hash": control.get("flow_hash"),
        "tenant_id": control.get("tenant_id") or tenant,
        "status": row.status,
        "input": _json(row.input),
        "output": _json(row.output),
        "error": _error(row),
        "last_node_id": control.get("last_node") or None,
        "nodes": nodes(row.timings),
        "waiting": _waiting(control),
        "woken": control.get("woken") or None,
        "holder": row.holder.rpartition("/")[0] if row.holder else None,
        "created_at": _time(control.get("created_at")),
        "last_update_time": _time(control.get("last_update_time")),
        "started_at": _time(control.get("started_at")),
        "ended_at": _time(control.get("ended_at")),
        "attempts": _integer(control.get("attempts")) or 0,
        "cancel": _cancel(row),
        "cancel_requested": row.cancel_reason is not None,
        "cancel_reason": row.cancel_reason if row.cancel_reason is not None else control.get("cancel_reason"),
        "death": _json(row.death),
    }


def _waiting(control: Mapping[str, str]) -> dict[str, Any] | None:
    """What it waits for; None where it does not, or where the wait is over and nobody has gone on yet (``woken``)."""
    if control.get("status") != "suspended" or not control.get("wait") or control.get("woken"):
        return None
    task = control.get("wait_task", "").split("\n")  # the places of a service's task, and at the end its id
    asked = {"approval_id": task[-1]} if any(place.endswith(":service:approval:tasks") for place in task) else {}
    url = _callback_url(control.get("wait_config", ""))
    if url is not None:
        asked["callback_url"] = url
    return asked | {
        "event_type": control.get("wait_type") or None,
        "node_id": control.get("next_node") or None,
        "deadline": _time(control.get("wait_deadline") or None),
        "correlation_id": control.get("wait_correlation") or None,
        "since": _time(control.get("wait_since") or None),
    }


def _cancel(row: Row) -> dict[str, Any] | None:
    """How far a cancel is: ``requested``, ``signalled`` (its holder has asked the running step to stop) or ``stopped``
    (DECISIONS 13); None where nobody asked, or where it ended otherwise before."""
    control = row.control
    if row.status == "cancelled":
        return {"state": "stopped", "reason": control.get("cancel_reason"), "at": _time(control.get("ended_at"))}
    if row.cancel_reason is None:
        return None
    signalled = control.get("cancel_signalled_at") or None
    state = "requested" if signalled is None else "signalled"
    return {"state": state, "reason": row.cancel_reason, "at": _time(signalled)}


def _error(row: Row) -> dict[str, Any] | None:
    stored = _json(row.error)
    if stored is None:
        return None
    if not isinstance(stored, dict):
        stored = {"message": str(stored)}
    return {**dict.fromkeys(ERROR_FIELDS), **stored, "node_retries": _integer(stored.get("node_retries")) or 0}


def nodes(timings: Mapping[str, bytes]) -> list[dict[str, Any]]:
    """The nodes in the order of their first start."""
    listed: list[tuple[int, str, dict[str, Any]]] = []
    for node_id, raw in timings.items():
        timing = _json(raw)
        if not isinstance(timing, dict):
            timing = {}
        order = _integer(timing.get("order"))
        shown = {
            "id": node_id,
            "type": timing.get("type"),
            "status": timing.get("status"),
            "started_at": _time(timing.get("started_at")),
            "ended_at": _time(timing.get("ended_at")),
            "attempts": _integer(timing.get("attempts")) or 0,
        }
        listed.append((_UNREADABLE_LAST if order is None else order, node_id, shown))
    return [shown for _, _, shown in sorted(listed, key=lambda item: item[:2])]


def liveness_of(document: Mapping[str, Any], now_ms: int, heartbeat_ms: int = DEFAULT_HEARTBEAT_MS) -> Liveness:
    """Whether the open node of an ``execution`` document still runs, by its last sign of life and its lease (L4)."""
    shown = document.get("last_update_time")
    try:
        updated = None if shown is None else int(datetime.fromisoformat(str(shown)).timestamp() * 1000)
    except ValueError:
        updated = None
    return judge(
        status=str(document.get("status")),
        open_node=any(map(_is_open, document.get("nodes") or [])),
        last_update_ms=updated,
        now_ms=now_ms,
        heartbeat_ms=heartbeat_ms,
        leased=document.get("holder") is not None,
        holder_registered=False,
    )


def _is_open(node: Mapping[str, Any]) -> bool:
    """Whether somebody should be running it: between a failed attempt and the next one (S10) nobody is."""
    return bool(node.get("started_at")) and not node.get("ended_at") and node.get("status") != "retrying"


def listed(control: Mapping[str, str], tenant: str) -> dict[str, Any]:
    """One entry of ``list --json``."""
    return {
        "execution_id": control.get("execution_id"),
        "flow_id": control.get("flow_id"),
        "version": control.get("version"),
        "tenant_id": control.get("tenant_id") or tenant,
        "status": control.get("status"),
        "last_node_id": control.get("last_node") or None,
        "waiting": _listed_wait(control),
        "woken": control.get("woken") or None,
        "created_at": _time(control.get("created_at")),
        "last_update_time": _time(control.get("last_update_time")),
        "ended_at": _time(control.get("ended_at")),
    }


def _callback_url(config: str) -> str | None:
    """Where a call ends the wait (DECISIONS 30), of a wait for one. What a caller must know besides is not told."""
    found = _json(config.encode()) if config else None
    for name in ("callback_config", "full_url"):
        found = found.get(name) if isinstance(found, dict) else None
    return found if isinstance(found, str) else None


def _listed_wait(control: Mapping[str, str]) -> dict[str, Any] | None:
    """Of a list's fewer fields: at which node it waits for what, since and until when."""
    found = _waiting({**control, "wait": control.get("wait_type", "")})
    return found and {name: found[name] for name in ("event_type", "node_id", "deadline", "since")}


def dead_letter(dlq_id: str, fields: Mapping[bytes, bytes], *, whole: bool = False) -> dict[str, Any]:
    """One entry of ``dlq list --json``; ``whole`` adds the rest of its envelope, the carrier's payload too. An envelope
    of another kind of worker names less: what it lacks is None, the execution is looked for in its payload."""
    letter = envelopes.read(fields)
    payload = letter.get("payload")
    carrier = payload if isinstance(payload, dict) else {}

    def known(name: str) -> Any:
        value = letter.get(name)
        return carrier.get(name) if value is None else value

    shown = {
        "dlq_id": dlq_id,
        "reason": letter.get("reason"),
        "cause": letter.get("cause"),
        "execution_id": known("execution_id"),
        "flow_id": known("flow_id"),
        "node_id": letter.get("node_id"),
        "tenant_id": known("tenant_id"),
        "dead_lettered_at": _time(timestamp_ms(letter.get("dead_lettered_at"))),
        "attempts": _integer(letter.get("delivery_count")),
    }
    if not whole:
        return shown
    rest = {name: value for name, value in letter.items() if name not in shown and name != "delivery_count"}
    if "first_enqueued_at" in rest:
        rest["first_enqueued_at"] = _time(rest["first_enqueued_at"])
    return {**shown, **rest}
