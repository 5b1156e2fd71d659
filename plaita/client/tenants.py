"""What an operator does with tenants: look, enable, disable, give a quota, take everything away (ledger T2 to T4).

Each names its tenant; whose session it is does not matter. A status is always written with the epoch of the deployment
that says so.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from plaita.client import upkeep
from plaita.client.operations import Operation, ask
from plaita.errors import InputError, RefusedError
from plaita.policy import tenants as policy
from plaita.store import executions, purges, schedules, tenants
from plaita.store import upkeep as rows
from plaita.store.keys import DEFAULT_TENANT, Keys, check_tenant
from plaita.store.tenants import Facts

MAX_QUOTA = 1_000_000_000
PURGED = "tenant purged"
_BATCH = 200


def list_tenants(
    keys: Keys, expected_epoch: str | None = None, *, everybody: bool = False
) -> Operation[dict[str, Any]]:
    """``{"epoch", "tenants": [...]}``: those that have a status, a quota or something parked, and the default one.
    ``everybody``: also those that only have executions, found by going through all keys of the server."""
    found = yield from ask(tenants.snapshot(keys))
    known = {one.tenant for one in found.tenants}
    others = {DEFAULT_TENANT}
    cursor = "0"
    while everybody:
        cursor, names = yield from ask(tenants.scan(keys, cursor))
        others.update(names)
        if cursor == "0":
            break
    facts = list(found.tenants)
    missing = sorted(others - known)
    for first in range(0, len(missing), _BATCH):
        facts += (yield from ask(tenants.snapshot(keys, missing[first : first + _BATCH]))).tenants
    facts.sort(key=lambda one: one.tenant)
    shown = [_shown(one, found.epoch, expected_epoch) for one in facts]
    return {"epoch": found.epoch or None, "tenants": shown}


def tenant_status(keys: Keys, tenant: str, expected_epoch: str | None = None) -> Operation[dict[str, Any]]:
    """``{"tenant_id", "status", "why", "quota", "pending", "running", "suspended", "parked", "epoch",
    "deployment_epoch"}``. ``status`` is ``active`` or ``disabled``; ``why``: how the epoch differs from this
    deployment's, so that its hosts begin nothing of the tenant; None where it fits. A tenant nobody knows is active."""
    name = _named(tenant)
    found = yield from ask(tenants.snapshot(keys, [name]))
    [facts] = found.tenants
    shown = _shown(facts, found.epoch, expected_epoch)
    return shown | {"epoch": found.epoch or None, "deployment_epoch": expected_epoch}


def enable(
    keys: Keys, tenant: str, epoch: str | None, retention_ms: int, family: str | None = None
) -> Operation[dict[str, Any]]:
    """Active again; what should move and lost its carrier while it was disabled gets one. ``{"tenant_id", "status",
    "was", "epoch", "requeued"}``."""
    answer = yield from _set(keys, tenant, "active", epoch)
    done = yield from upkeep.reindex(keys.for_tenant(_named(tenant)), retention_ms, requeue=True, family=family)
    return answer | {"requeued": done["requeued"]}


def disable(keys: Keys, tenant: str, epoch: str | None) -> Operation[dict[str, Any]]:
    """Nothing of it is begun any more, starts are refused, its carriers are dropped; what runs is let go after its
    step. ``{"tenant_id", "status", "was", "epoch"}``."""
    return (yield from _set(keys, tenant, "disabled", epoch))


def set_quota(keys: Keys, tenant: str, quota: int) -> Operation[dict[str, Any]]:
    """How many of its executions may run at a time, 0 for no limit (ledger T3): ``{"tenant_id", "quota", "was"}``."""
    name = _named(tenant)
    if not 0 <= quota <= MAX_QUOTA:
        raise InputError(f"quota: {quota}; a whole number from 0, which is no limit, to {MAX_QUOTA}")
    was = yield from ask(tenants.set_quota(keys.for_tenant(name), quota))
    return {"tenant_id": name, "quota": quota or None, "was": _quota(was)}


def purge(keys: Keys, tenant: str, tombstone_ttl_ms: int, *, force: bool = False) -> Operation[dict[str, Any]]:
    """Take away all that the tenant has: ``{"tenant_id", "status", "executions", "carriers", "parked", "keys"}``.

    Every execution is deleted, tombstones stay, and stand for what waits in this queue without a row too: a tenant made
    again under that name runs no old start (ledger T4). Then flows, start keys, credentials and whatever else stands
    under its name; its quota. Its status stays. All in bounded calls; broken off, it is run again, and goes on.

    Refused: ``default_tenant``; ``not_disabled`` unless ``force``.
    """
    name = _named(tenant)
    if name == DEFAULT_TENANT:
        raise RefusedError("default_tenant", "the default tenant cannot be purged; delete its executions and flows")
    [facts] = (yield from ask(tenants.snapshot(keys, [name]))).tenants
    if facts.status != policy.DISABLED and not force:
        raise RefusedError(
            "not_disabled", f"tenant {name!r} is not disabled; disable it first (plaita tenant disable), or use --force"
        )
    theirs = keys.for_tenant(name)
    yield from _remove_schedules(theirs)
    carriers = yield from _entomb_carriers(theirs, tombstone_ttl_ms)
    deleted = yield from _delete_rows(theirs, tombstone_ttl_ms)
    parked = yield from ask(purges.unlink(theirs, tenants.parked_keys(theirs)))
    yield from ask(purges.forget_parked(theirs))
    unlinked = yield from _unlink(theirs)
    yield from ask(tenants.set_quota(theirs, 0))
    return {
        "tenant_id": name,
        "status": facts.status or "active",
        "executions": deleted,
        "carriers": carriers,
        "parked": facts.parked,
        "keys": unlinked + parked,
    }


def _entomb_carriers(keys: Keys, tombstone_ttl_ms: int) -> Operation[int]:
    """Tombstones for all executions that a carrier of this queue is for; how many new ones. Carriers go from the parked
    and the delayed to the streams: those are looked at last, and the others once more."""
    new = 0
    for place in ("parked", "delayed", "q", "w", "delayed", "parked"):
        found = yield from upkeep.carried(keys, place)
        for batch in _batches(sorted(found)):
            new += yield from ask(purges.entomb(keys, batch, PURGED, tombstone_ttl_ms))
    return new


def _remove_schedules(keys: Keys) -> Operation[None]:
    """First of all, so that nothing new is started meanwhile. Their due times stand beside those of all tenants."""
    cursor = "0"
    while True:
        page = yield from ask(schedules.page(keys, cursor))
        yield from ask(schedules.remove(keys, [one.schedule_id for one in page.schedules]))
        cursor = page.cursor
        if cursor == "0":
            return


def _delete_rows(keys: Keys, tombstone_ttl_ms: int) -> Operation[int]:
    deleted, cursor = 0, "0"
    while True:
        page = yield from ask(rows.scan_rows(keys, cursor))
        for execution_id in page.execution_ids:
            call = executions.delete(keys, execution_id, PURGED, force=True, tombstone_ttl_ms=tombstone_ttl_ms)
            try:
                deleted += (yield from ask(call)).existed
            except RefusedError as error:
                if error.reason != "no_row":  # it went meanwhile
                    raise
        cursor = page.cursor
        if cursor == "0":
            return deleted


def _unlink(keys: Keys) -> Operation[int]:
    unlinked, cursor = 0, "0"
    while True:
        page = yield from ask(purges.page(keys, cursor))
        if page.names:
            unlinked += yield from ask(purges.unlink(keys, page.names))
        cursor = page.cursor
        if cursor == "0":
            return unlinked


def _batches(ids: list[str]) -> Iterable[list[str]]:
    return (ids[first : first + _BATCH] for first in range(0, len(ids), _BATCH))


def _set(keys: Keys, tenant: str, status: tenants.Status, epoch: str | None) -> Operation[dict[str, Any]]:
    name = _named(tenant)
    was = yield from ask(tenants.set_status(keys.for_tenant(name), status, epoch))
    return {"tenant_id": name, "status": status, "was": was or None, "epoch": epoch}


def _named(tenant: str) -> str:
    if not tenant:
        raise InputError("tenant: it is empty; name one")
    return check_tenant(tenant)


def _shown(facts: Facts, epoch: str, expected_epoch: str | None) -> dict[str, Any]:
    ruling = policy.judge(facts.tenant, facts.status or None, epoch or None, expected_epoch, strict=True)
    return {
        "tenant_id": facts.tenant,
        "status": "disabled" if facts.status == policy.DISABLED else "active",
        "why": f"epoch {ruling.why}" if ruling.why else None,
        "quota": _quota(facts.quota),
        "pending": facts.pending,
        "running": facts.running,
        "suspended": facts.suspended,
        "parked": facts.parked,
    }


def _quota(said: str) -> int | None:
    return int(said) or None if said.isascii() and said.isdigit() else None
