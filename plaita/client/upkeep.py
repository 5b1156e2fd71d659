"""``reindex`` and ``reap``: what an operator does by hand when a server lost something (ledger D4, D6)."""

from __future__ import annotations

from typing import Any

from plaita import jsontext
from plaita.client.operations import Operation, ask
from plaita.client.schedules_again import put_schedules_back
from plaita.clock import iso_utc, wall_ms
from plaita.errors import InputError
from plaita.policy.carrier import TASK_SCHEMA_VERSION, Carrier, named_execution, read_carrier, resume_payload
from plaita.policy.copies import wake_carrier_of
from plaita.store import tenants, upkeep, waits_again
from plaita.store.keys import DEFAULT_TENANT, Keys, check_tenant
from plaita.store.upkeep import Idle, NamedCarrier, Stale

_LISTED = 1000  # executions named in an answer; the counts are of all


# -- reindex --------------------------------------------------------------------------------------


def reindex(
    keys: Keys, retention_ms: int, *, requeue: bool = False, family: str | None = None
) -> Operation[dict[str, Any]]:
    """Rebuild the tenant's indexes from its rows, all of them (ledger D4).

    ``{"tenant_id", "rows", "indexed", "moved", "dropped", "ending", "deleted", "waits", "schedules", "idle",
    "requeued", "executions"}``: rows there are; that stood in no index; that stood under a wrong status; members
    without a row, taken out; rows whose end was put right; rows of deleted executions, which a backup brought back and
    which count as none (ledger D2); waits that events did not find any more, or whose task or timer was lost, put back;
    schedules whose due time was lost, given one; executions that should move, that nobody runs and that no carrier of
    this queue is for (None: not looked for).
    With ``requeue`` those get a carrier each, and ``executions`` names them.
    """
    check_tenant(keys.tenant)
    counts = dict.fromkeys(("rows", "indexed", "moved", "dropped", "ending", "deleted", "waits"), 0)
    idle: dict[str, Idle] = {}
    cursor, seen = "0", set[str]()
    while True:
        page = yield from ask(upkeep.scan_rows(keys, cursor))
        found = [execution_id for execution_id in page.execution_ids if execution_id not in seen]
        seen.update(found)
        if found:
            done = yield from ask(upkeep.index_rows(keys, found, retention_ms))
            counts["rows"] += done.rows
            counts["indexed"] += done.indexed
            counts["moved"] += done.moved
            counts["ending"] += done.ending
            counts["deleted"] += done.deleted
            counts["waits"] += yield from _put_waits_back(keys, found)
            if requeue:
                idle.update((one.execution_id, one) for one in done.idle)
        cursor = page.cursor
        if cursor == "0":
            break
    for index in upkeep.indexes(keys):
        counts["dropped"] += yield from _drop_members(keys, index)
    counts["dropped"] += yield from _drop_subscriptions(keys)
    counts["schedules"] = yield from put_schedules_back(keys)
    answer: dict[str, Any] = {"tenant_id": keys.tenant or DEFAULT_TENANT, **counts}
    if not requeue:
        return answer | {"idle": None, "requeued": None, "executions": []}
    lost = yield from _without_carrier(keys, idle)
    requeued = []
    for one in lost:
        if (yield from ask(upkeep.requeue(keys, one, *_continue(keys, one, family)))):
            requeued.append(one.execution_id)
    return answer | {"idle": len(lost), "requeued": len(requeued), "executions": requeued[:_LISTED]}


def _drop_members(keys: Keys, index: str) -> Operation[int]:
    dropped, cursor = 0, "0"
    while True:
        cursor, count = yield from ask(upkeep.drop_members(keys, index, cursor))
        dropped += count
        if cursor == "0":
            return dropped


def _put_waits_back(keys: Keys, execution_ids: list[str]) -> Operation[int]:
    done = yield from ask(waits_again.put_back(keys, execution_ids))
    for one in done.untimed:
        stamps = jsontext.loads(one.stamps) if one.stamps else {"schema_version": str(TASK_SCHEMA_VERSION)}
        carrier = wake_carrier_of(
            stamps,
            "timeout",
            execution_id=one.execution_id,
            flow_id=one.flow_id,
            tenant_id=keys.tenant or DEFAULT_TENANT,
            wait=one.wait,
        )
        yield from ask(waits_again.put_timer(keys, one, carrier))
    return done.mended


def _drop_subscriptions(keys: Keys) -> Operation[int]:
    """Subscriptions of waits that are over, which an event would take out when it met them (ledger E2)."""
    dropped, cursor, hashes = 0, "0", set[str]()
    while True:
        page = yield from ask(waits_again.index_page(keys, cursor))
        for name in page.sets:
            place = "0"
            while True:
                place, count = yield from ask(waits_again.drop_members(keys, name, place))
                dropped += count
                if place == "0":
                    break
        hashes.update(page.hashes)
        cursor = page.cursor
        if cursor == "0":
            break
    for name in hashes:
        yield from ask(waits_again.drop_key_sets(name))
    return dropped


def _without_carrier(keys: Keys, idle: dict[str, Idle]) -> Operation[list[Idle]]:
    """Those of ``idle`` that no carrier is for. Carriers go from the delayed and the parked ones to the streams, now
    and then back: so those are looked at before and after. One that is missed all the same gets a second carrier, which
    does no harm. For what is ``running`` a parked one counts for nothing: it would wait for itself (ledger T3)."""
    left = dict(idle)
    tenant = keys.tenant or DEFAULT_TENANT
    for place in ("delayed", "parked", "q", "w", "delayed", "parked"):
        if not left:
            break
        if place == "parked":
            for execution_id in (yield from _parked(keys)):
                if execution_id in left and left[execution_id].status != "running":
                    del left[execution_id]
            continue
        carried = yield from (_delayed(keys) if place == "delayed" else _in_stream(keys, place))
        for execution_id, owner in carried:
            if owner == tenant:
                left.pop(execution_id, None)
    return list(left.values())


def carried(keys: Keys, place: str) -> Operation[set[str]]:
    """The executions of the tenant that a carrier in this place is for: ``delayed``, ``parked``, ``q`` or ``w``."""
    if place == "parked":
        return (yield from _parked(keys))
    found = yield from (_delayed(keys) if place == "delayed" else _in_stream(keys, place))
    tenant = keys.tenant or DEFAULT_TENANT
    return {execution_id for execution_id, owner in found if owner == tenant}


def _delayed(keys: Keys) -> Operation[set[tuple[str, str]]]:
    found: set[tuple[str, str]] = set()
    cursor = "0"
    while True:
        cursor, page = yield from ask(upkeep.delayed_named(keys, cursor))
        found.update(page)
        if cursor == "0":
            return found


def _parked(keys: Keys) -> Operation[set[str]]:
    found: set[str] = set()
    for stream in ("w", "q"):
        first = 0
        while first >= 0:
            first, page = yield from ask(tenants.parked_named(keys, stream, first))
            found.update(page)
    return found


def _in_stream(keys: Keys, stream: str) -> Operation[set[tuple[str, str]]]:
    found: set[tuple[str, str]] = set()
    newer_than: str | None = None
    while True:
        newer_than, page = yield from ask(upkeep.stream_named(keys, stream, newer_than))
        for entry in page:
            named = _named(keys, entry)
            if named is not None:
                found.add(named)
        if not newer_than:
            return found


def _named(keys: Keys, entry: NamedCarrier) -> tuple[str, str] | None:
    """(execution id, tenant id) of a carrier, as whoever takes it will read it."""
    named = named_execution(entry.fields)
    if named is not None:
        return named
    carrier = read_carrier(entry.fields, queue=keys.queue, entry_id=entry.entry_id)
    return (carrier.execution_id, carrier.tenant_id) if isinstance(carrier, Carrier) else None


def _continue(keys: Keys, one: Idle, family: str | None) -> tuple[bytes, list[tuple[str, str]]]:
    payload = resume_payload(
        execution_id=one.execution_id,
        flow_id=one.flow_id or None,
        resume_type="continue",
        tenant_id=keys.tenant or DEFAULT_TENANT,
        timestamp=iso_utc(wall_ms()) or "",
    )
    return payload, [] if family is None else [("config_family", family)]


# -- reap -----------------------------------------------------------------------------------------


def reap(keys: Keys, idle_minutes: float, retention_ms: int, *, dry_run: bool = False) -> Operation[dict[str, Any]]:
    """End as ``error`` (code ``orphaned``) what has been ``running`` without a sign of life for ``idle_minutes`` and
    without a lease (ledger D6): ``{"dry_run", "idle_minutes", "outcomes": {word: count}, "executions"}``.

    Words: ``reaped`` (of a dry run: what would be), ``leased`` (somebody holds it: left alone), ``changed`` (it moved
    since it was read: left alone). A retry wakes what was reaped.
    """
    check_tenant(keys.tenant)
    if not 0 < idle_minutes < float("inf"):
        raise InputError(f"idle minutes: {idle_minutes!r}; a number above 0")
    outcomes: dict[str, int] = {}
    executions: list[dict[str, Any]] = []
    cursor, seen = "0", set[str]()
    while True:
        cursor, page = yield from ask(upkeep.stale(keys, int(idle_minutes * 60_000), cursor))
        for row in page:
            if row.execution_id in seen:
                continue
            seen.add(row.execution_id)
            if row.leased or dry_run:
                outcome: str = "leased" if row.leased else "reaped"
            else:
                outcome = yield from ask(upkeep.reap(keys, row, _error(row), _closed(row), retention_ms))
            outcomes[outcome] = outcomes.get(outcome, 0) + 1
            if len(executions) < _LISTED:
                executions.append(
                    {
                        "execution_id": row.execution_id,
                        "flow_id": row.flow_id or None,
                        "node_id": row.next_node or None,
                        "last_update_time": iso_utc(row.last_update_ms),
                        "idle_minutes": row.idle_ms // 60_000,
                        "outcome": outcome,
                    }
                )
        if cursor == "0":
            return {"dry_run": dry_run, "idle_minutes": idle_minutes, "outcomes": outcomes, "executions": executions}


def _error(row: Stale) -> bytes:
    since = iso_utc(row.last_update_ms)
    return jsontext.dumps(
        {
            "code": "orphaned",
            "message": f"orphaned: no sign of life since {since} and nobody holds it; reaped at {iso_utc(wall_ms())}",
            "error_type": "flow_error",
            "node": row.next_node or None,
            "failed_node": row.next_node or None,
            "node_retries": 0,
        }
    )


def _closed(row: Stale) -> bytes | None:
    """The record of the node that was open, ended with its last sign of life; None where none is open."""
    try:
        timing = jsontext.loads(row.timing)
    except jsontext.JSONTextError:
        return None
    if not isinstance(timing, dict) or not timing.get("started_at") or timing.get("ended_at"):
        return None
    return jsontext.dumps(timing | {"status": "error", "ended_at": row.last_update_ms})
