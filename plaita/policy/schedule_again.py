"""Schedules whose stored due time was lost: whether they need one, and which (ledger E5; KNOWN-TROUBLE 41).

A due time says also what was not yet seen to, so one that is gone is made anew from what the schedule has run: what
passed since is missed as after an outage, and its misfire policy decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from plaita import jsontext
from plaita.policy.schedule_record import BadSchedule, Schedule, read_schedule

REMEMBERED_MS = 6 * 86_400_000  # so far back a due time that has run is known by its dedup key, whatever else was lost
_SEEN_TO = frozenset({"ok", "duplicate", "failed", "skipped"})


def lacks_due_time(raw: bytes, schedule_id: str, queue: str, now_ms: int, *, asked: bool) -> Schedule | None:
    """A schedule that has no due time and should have one; None for one that is paused, another queue's, or cannot be
    read. ``asked`` by a person: then also one that does not say whose it is."""
    try:
        schedule = read_schedule(raw, schedule_id, now_ms)
    except BadSchedule:
        return None
    ours = schedule.queue == queue or (asked and not schedule.queue)
    return schedule if schedule.enabled and ours else None


def without_due_time(
    raw: bytes, schedule_id: str, last: bytes, queue: str, now_ms: int
) -> Literal["lost", "aside", "elsewhere", "fine"]:
    """What it means that a schedule has no due time on this queue; ``last``: the latest entry of its history."""
    try:
        schedule = read_schedule(raw, schedule_id, now_ms)
    except BadSchedule:
        return "aside"
    if not schedule.enabled:
        return "fine"
    if schedule.queue not in ("", queue):
        return "elsewhere"
    if _read(last).get("enqueue") == "aside":
        return "aside"
    return "lost"


def due_again(schedule: Schedule, history: Iterable[bytes], now_ms: int, *, asked: bool) -> int | None:
    """The due time that a schedule gets anew: the first after the last one that its history has seen to, and after its
    last change. None where there is none, or where its last one was put aside and nobody ``asked``."""
    entries = [entry for entry in map(_read, history) if entry.get("trigger_kind") == "cron"]
    if entries and entries[0].get("enqueue") == "aside" and not asked:
        return None
    seen_to = [_moment(entry.get("due_at")) for entry in entries if entry.get("enqueue") in _SEEN_TO]
    begin = max(schedule.updated_at, now_ms - REMEMBERED_MS, *seen_to, 0)
    return schedule.plan.next_after(min(begin, now_ms))


def _read(raw: bytes) -> Mapping[str, Any]:
    try:
        found = jsontext.loads(raw)
    except jsontext.JSONTextError:
        return {}
    return found if isinstance(found, dict) else {}


def _moment(said: object) -> int:
    return said if isinstance(said, int) and not isinstance(said, bool) else 0
