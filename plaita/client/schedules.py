"""Schedules as people keep them: put, looked at, paused, triggered by hand (ledger E5; REFERENCE 5.10)."""

from __future__ import annotations

import time
from typing import Any, cast

from plaita import ids, jsontext
from plaita.client.operations import Operation, ask, check_flow_id, check_text, check_version, refused
from plaita.clock import iso_utc, wall_ms
from plaita.errors import InputError, RefusedError
from plaita.flow.nearest import Nearest
from plaita.policy import repos
from plaita.policy.schedule import MAX_COUNT, MISFIRES, Misfire, calendar, manual_key
from plaita.policy.schedule_record import BadSchedule, Schedule, read_schedule, scheduled_start
from plaita.store import schedules
from plaita.store.keys import DEFAULT_TENANT, Keys, check_tenant
from plaita.store.schedules import HISTORY, Fire, Run, Stored

MAX_INPUT_BYTES = 64 * 1024  # it is read at each due time
MAX_NAME = 200
_TRIES = 20


def put(
    keys: Keys,
    schedule_id: str,
    flow_id: str,
    cron: str,
    *,
    tz: str = "UTC",
    params: Any = None,
    version: str | None = None,
    misfire: str = "once",
    enabled: bool = True,
    name: str = "",
    created_by: str = "",
) -> Operation[dict[str, Any]]:
    """Make a schedule, or make it another: its document, with ``created``. With the same ``cron`` and ``tz`` the due
    time stays that it had, so what was missed is still seen to. ``params``: the input, None means ``{}``.

    Raises InputError; Refused: ``no_flow``, ``no_version``.
    """
    wanted = _checked(schedule_id)
    tenant = keys.tenant or DEFAULT_TENANT
    flow = check_flow_id(flow_id)
    if misfire not in MISFIRES:
        raise InputError(f"misfire: {misfire!r}{Nearest(MISFIRES).hint(str(misfire))}")
    given = {} if params is None else params
    _check_input(given)
    for _ in range(_TRIES):
        page = yield from ask(schedules.get(keys, wanted))
        before = page.schedules[0] if page.schedules else None
        plan = calendar(cron, tz, page.now)
        old = _readable(before, page.now)
        schedule = Schedule(
            schedule_id=wanted,
            name=check_text(name, "name", MAX_NAME),
            flow_id=flow,
            version=None if version is None else check_version(version),
            cron=plan.expression,
            tz=plan.zone,
            misfire=cast(Misfire, misfire),
            params=given,
            enabled=enabled,
            created_at=old.created_at if old else page.now,
            updated_at=page.now,
            created_by=check_text(created_by, "created_by", MAX_NAME) or (old.created_by if old else ""),
            tenant_id=tenant,
            queue=keys.queue,
        )
        due = None
        if enabled:
            due = plan.next_after(page.now)
            kept = _moment(before.due) if before is not None and old is not None and old.plan == plan else None
            if due is not None and kept is not None:
                due = min(due, kept)
        record = schedule.encoded()
        call = schedules.put(keys, wanted, record, due, before, flow_id=flow, version=schedule.version or "latest")
        try:
            created = yield from ask(call)
        except RefusedError as error:
            if error.reason == "changed":
                continue
            refused(
                error,
                {
                    "no_flow": f"there is no flow {flow!r} for tenant {tenant!r}; put it there with `plaita flow put`",
                    "no_version": f"flow {flow!r} has no version {version!r}; the latest is {str(error)!r}",
                },
            )
        stored = Stored(wanted, record, "" if due is None else str(due), before.last if before else b"")
        return shown(stored, keys, page.now) | {"created": created}
    raise _contended(wanted)


def list_schedules(keys: Keys) -> Operation[dict[str, Any]]:
    """``{"schedules": [...], "total"}``, by id, each as ``show`` has it."""
    check_tenant(keys.tenant)
    found: dict[str, dict[str, Any]] = {}
    cursor = "0"
    while True:
        page = yield from ask(schedules.page(keys, cursor))
        found.update((one.schedule_id, shown(one, keys, page.now)) for one in page.schedules)
        cursor = page.cursor
        if cursor == "0":
            break
    return {"schedules": [found[name] for name in sorted(found)], "total": len(found)}


def get(keys: Keys, schedule_id: str) -> Operation[dict[str, Any]]:
    """One schedule: ``{"schedule_id", "name", "flow_id", "version", "cron", "tz", "misfire", "params", "enabled",
    "status", "next_run_at", "last_fired_at", "last_enqueue_ok", "last_execution_id", "created_at", "updated_at",
    "created_by", "tenant_id"}``. ``status``: ``running``, ``paused``, or ``aside`` where it cannot be fired, with
    ``why``. Refused: ``no_schedule``."""
    stored, now = yield from _stored(keys, schedule_id)
    return shown(stored, keys, now)


def remove(keys: Keys, schedule_id: str) -> Operation[dict[str, Any]]:
    """Take it away; its executions stay. ``{"schedule_id", "removed"}``. Refused: ``no_schedule``."""
    wanted = _checked(schedule_id)
    if not (yield from ask(schedules.remove(keys, [wanted]))):
        raise _missing(keys, wanted)
    return {"schedule_id": wanted, "removed": True}


def set_enabled(keys: Keys, schedule_id: str, enabled: bool) -> Operation[dict[str, Any]]:
    """Pause it, or let it go on with the first due time from now: its document. What was due while it was paused is
    not run. Refused: ``no_schedule``, ``bad_schedule``, ``other_queue``."""
    for _ in range(_TRIES):
        stored, now = yield from _stored(keys, schedule_id)
        old = _judged(stored, now)
        _check_queue(old, keys)
        if old.enabled == enabled and bool(stored.due) == enabled:
            return shown(stored, keys, now)
        record = old.model_copy(update={"enabled": enabled, "updated_at": now}).encoded()
        due = old.plan.next_after(now) if enabled else None
        try:
            yield from ask(schedules.put(keys, stored.schedule_id, record, due, stored, flow_id=old.flow_id))
        except RefusedError as error:
            if error.reason == "changed":
                continue
            raise
        changed = Stored(stored.schedule_id, record, "" if due is None else str(due), stored.last)
        return shown(changed, keys, now)
    raise _contended(schedule_id)


def trigger(keys: Keys, schedule_id: str) -> Operation[dict[str, Any]]:
    """Run it once now, whatever its due times are; they stay. ``{"schedule_id", "execution_id", "flow_id", "version",
    "tenant_id", "message_id", "dedup_key"}``. Refused: ``no_schedule``, ``bad_schedule``, ``other_queue``, and why the
    start was."""
    tenant = keys.tenant or DEFAULT_TENANT
    number: int | None = None
    for _ in range(_TRIES):
        stored, now = yield from _stored(keys, schedule_id)
        old = _judged(stored, now)
        _check_queue(old, keys)
        if number is None:
            number = yield from ask(schedules.next_number(keys))
        run = _manual_run(keys, old, manual_key(stored.schedule_id, time.time_ns(), number))
        repo = repos.repo_of_input(old.params)
        request = Fire(
            schedule_id=stored.schedule_id,
            record=stored.record,
            score=None,
            next_due=None,
            flow_id=old.flow_id,
            version=old.version or "latest",
            input=jsontext.dumps(old.params),
            runs=[run],
            fields={} if repo is None else {repos.FIELD: repo},
        )
        try:
            [outcome] = yield from ask(schedules.fire(keys, request))
        except RefusedError as error:
            if error.reason in ("changed", "gone"):
                continue
            raise
        if outcome.outcome == "failed":
            raise RefusedError(outcome.reason, _why_not_started(old, tenant, outcome.reason))
        return {
            "schedule_id": stored.schedule_id,
            "execution_id": outcome.execution_id,
            "flow_id": old.flow_id,
            "version": outcome.version,
            "tenant_id": tenant,
            "message_id": outcome.message_id,
            "dedup_key": run.dedup_key,
        }
    raise _contended(schedule_id)


def history(keys: Keys, schedule_id: str, limit: int = HISTORY) -> Operation[dict[str, Any]]:
    """What became of its due times, the latest first, at most 50: ``{"schedule_id", "fires": [{"fired_at",
    "trigger_kind", "due_at", "enqueue", "reason", "execution_id", "version", "dedup_key", "msg_id", ...}]}``.
    ``enqueue``: ``ok``, ``duplicate``, ``failed``, ``skipped`` (``count`` of them), ``aside``. Refused:
    ``no_schedule``."""
    if not isinstance(limit, int) or isinstance(limit, bool) or not 1 <= limit <= HISTORY:
        raise InputError(f"limit: {limit!r}; a number from 1 to {HISTORY}")
    stored, _ = yield from _stored(keys, schedule_id)
    entries = yield from ask(schedules.history(keys, stored.schedule_id, limit))
    told = [one for one in (_entry(raw) for raw in entries) if one]
    return {"schedule_id": stored.schedule_id, "fires": told}


def preview(keys: Keys, schedule_id: str, count: int = 5) -> Operation[dict[str, Any]]:
    """The next due times of a schedule, as ``preview_of`` has them; of a paused one those that it would have."""
    stored, now = yield from _stored(keys, schedule_id)
    old = _judged(stored, now)
    first = _moment(stored.due) if stored.due and old.enabled else None
    return _previewed(old.cron, old.tz, count, now, first)


def preview_of(cron: str, tz: str = "UTC", count: int = 5, now_ms: int | None = None) -> dict[str, Any]:
    """The next due times of an expression in a zone: ``{"cron", "tz", "due": [ISO], "local": [ISO with its offset]}``.
    Asks no server: from this host's time on, unless ``now_ms`` is said. Raises InputError."""
    return _previewed(cron, tz, count, wall_ms() if now_ms is None else now_ms, None)


def shown(stored: Stored, keys: Keys, now_ms: int) -> dict[str, Any]:
    """The document of a schedule; of an unreadable one what is known."""
    tenant = keys.tenant or DEFAULT_TENANT
    last = _entry(stored.last)
    ran = last if last.get("enqueue") in ("ok", "duplicate", "failed") else {}
    due = iso_utc(_moment(stored.due)) if stored.due else None
    tail = {
        "next_run_at": due,
        "last_fired_at": ran.get("fired_at"),
        "last_enqueue_ok": None if not ran else ran["enqueue"] != "failed",
        "last_execution_id": ran.get("execution_id") or None,
    }
    try:
        schedule = read_schedule(stored.record, stored.schedule_id, now_ms)
    except BadSchedule as error:
        return {"schedule_id": stored.schedule_id, "status": "aside", "why": str(error), "tenant_id": tenant} | tail
    document = schedule.model_dump() | tail | {"tenant_id": tenant}
    document["created_at"], document["updated_at"] = iso_utc(schedule.created_at), iso_utc(schedule.updated_at)
    document["status"] = "paused" if not schedule.enabled else "running" if stored.due else "aside"
    if document["status"] == "aside":
        other = schedule.queue not in ("", keys.queue)
        lost = "it has no due time; `plaita reindex` gives it one"
        document["why"] = _of_another_queue(schedule) if other else last.get("reason") or lost
    return document


# -- parts --------------------------------------------------------------------------------------------


def _previewed(cron: str, tz: str, count: int, now_ms: int, first: int | None) -> dict[str, Any]:
    if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= MAX_COUNT:
        raise InputError(f"count: {count!r}; a number from 1 to {MAX_COUNT}")
    plan = calendar(cron, tz, now_ms)
    found = [] if first is None else [first]
    for due in plan.after(now_ms if first is None else max(first, now_ms)):
        if len(found) >= count:
            break
        found.append(due)
    local = [plan.local(due).isoformat(timespec="seconds") for due in found]
    return {"cron": plan.expression, "tz": plan.zone, "due": [iso_utc(due) for due in found], "local": local}


def _manual_run(keys: Keys, schedule: Schedule, key: str) -> Run:
    execution_id = ids.new_execution_id()
    tenant = keys.tenant or DEFAULT_TENANT
    payload = scheduled_start(schedule, "manual", execution_id, tenant, iso_utc(wall_ms()) or "")
    return Run(execution_id, key, payload)


def _stored(keys: Keys, schedule_id: str) -> Operation[tuple[Stored, int]]:
    wanted = _checked(schedule_id)
    check_tenant(keys.tenant)
    page = yield from ask(schedules.get(keys, wanted))
    if not page.schedules:
        raise _missing(keys, wanted)
    return page.schedules[0], page.now


def _judged(stored: Stored, now_ms: int) -> Schedule:
    try:
        return read_schedule(stored.record, stored.schedule_id, now_ms)
    except BadSchedule as error:
        raise RefusedError(
            "bad_schedule", f"schedule {stored.schedule_id!r} cannot be read ({error}); put it anew"
        ) from None


def _readable(stored: Stored | None, now_ms: int) -> Schedule | None:
    try:
        return None if stored is None else read_schedule(stored.record, stored.schedule_id, now_ms)
    except BadSchedule:
        return None


def _missing(keys: Keys, schedule_id: str) -> RefusedError:
    tenant = keys.tenant or DEFAULT_TENANT
    return RefusedError("no_schedule", f"there is no schedule {schedule_id!r} for tenant {tenant!r}")


def _contended(schedule_id: str) -> RefusedError:
    return RefusedError("changed", f"schedule {schedule_id!r}: others change it at the same time; try again")


def _check_queue(schedule: Schedule, keys: Keys) -> None:
    if schedule.queue not in ("", keys.queue):
        raise RefusedError("other_queue", f"schedule {schedule.schedule_id!r}: {_of_another_queue(schedule)}")


def _of_another_queue(schedule: Schedule) -> str:
    return f"it is of the queue {schedule.queue!r}, and here another one is set; take that, or put it anew"


def _why_not_started(schedule: Schedule, tenant: str, reason: str) -> str:
    messages = {
        "no_flow": f"there is no flow {schedule.flow_id!r} for tenant {tenant!r} any more",
        "no_version": f"flow {schedule.flow_id!r} has no version {schedule.version!r} any more",
        "tenant_disabled": f"tenant {tenant!r} is disabled; see `plaita tenant enable`",
    }
    return f"schedule {schedule.schedule_id!r}: {messages.get(reason, reason)}"


def _entry(raw: bytes) -> dict[str, Any]:
    """A history entry with its times in ISO; empty where it cannot be read."""
    try:
        found = jsontext.loads(raw) if raw else {}
    except jsontext.JSONTextError:
        return {}
    if not isinstance(found, dict):
        return {}
    for name in ("fired_at", "due_at", "first_due_at"):
        if name in found:
            found[name] = iso_utc(_moment(found[name]))
    return found


def _moment(said: object) -> int | None:
    """Epoch ms as it is written somewhere; None for what is no time that people could read."""
    try:
        found = int(float(str(said)))
    except (ValueError, OverflowError):
        return None
    return found if 0 <= found < 253_402_300_800_000 else None


def _checked(schedule_id: object) -> str:
    return ids.check_id(schedule_id, "schedule id")


def _check_input(given: Any) -> None:
    try:
        size = len(jsontext.dumps(given))
    except jsontext.JSONValueError as error:
        raise InputError(f"input: {error}") from None
    if size > MAX_INPUT_BYTES:
        raise InputError(
            f"input: {size} bytes; a schedule brings at most {MAX_INPUT_BYTES}: put it elsewhere, say where it is"
        )
