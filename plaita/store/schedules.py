"""Schedules: records of tenants, the due times of all of them in one sorted set, and the call that fires (ledger E5).

What is due and what is fired of it decides ``policy.schedule``; who looks is ``services.schedules``. A record is opaque
here: whoever changes or fires one says what was read, and is refused when it is another by now.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from plaita import ids, jsontext
from plaita.store.call import Argument, Call, lane_for, script, text
from plaita.store.executions import DEDUP_TTL_MS
from plaita.store.keys import DEFAULT_TENANT, Keys

PAGE = 100
HISTORY = 50


@dataclass(frozen=True, slots=True)
class Stored:
    """One schedule as it stands. ``due``: its next due time as the server writes it (epoch ms), '' for none. ``last``:
    the latest entry of its history (JSON text), empty for none."""

    schedule_id: str
    record: bytes
    due: str
    last: bytes


@dataclass(frozen=True, slots=True)
class Page:
    """``now``: the server's time, epoch ms. ``cursor`` "0": that was the last page."""

    now: int
    cursor: str
    schedules: list[Stored]


def page(keys: Keys, cursor: str = "0", count: int = PAGE) -> Call[Page]:
    """A page of the tenant's schedules, in no order; one may come twice."""
    return _page("schedules.page", keys, cursor, count)


def without_due_time(keys: Keys, cursor: str = "0", count: int = PAGE) -> Call[Page]:
    """A page of the tenant's schedules, of which those are told that have no due time on this queue."""
    return _page("schedules.without_due_time", keys, cursor, count, only_lost=True)


def get(keys: Keys, schedule_id: str) -> Call[Page]:
    """One schedule; an empty page where there is none."""
    return _page("schedules.get", keys, "", schedule_id)


def _page(name: str, keys: Keys, cursor: str, wanted: Argument, *, only_lost: bool = False) -> Call[Page]:
    def parse(reply: Sequence[Any]) -> Page:
        flat = reply[2]
        found = [
            Stored(text(flat[i]), flat[i + 1], text(flat[i + 2]), flat[i + 3] or b"") for i in range(0, len(flat), 4)
        ]
        return Page(int(reply[0]), text(reply[1]), found)

    return Call(
        name,
        script("schedule_page"),
        (keys.schedules, keys.schedules_due),
        (keys.tenant or DEFAULT_TENANT, keys.schedule_fires(""), cursor, wanted, int(only_lost)),
        "bulk" if cursor else "writer",
        True,
        parse,
    )


def put(
    keys: Keys,
    schedule_id: str,
    record: bytes,
    due_ms: int | None,
    before: Stored | None = None,
    *,
    flow_id: str,
    version: str | None = None,
) -> Call[bool]:
    """Write a schedule; True when it is new. ``before``: what was read, and is replaced. ``version``: of the flow, that
    has to be there; None: nobody looks.

    Refused: ``changed`` (it is another by now: read again), ``no_flow``, ``no_version`` (detail: the latest).
    """
    return Call(
        "schedules.put",
        script("schedule_put"),
        (
            keys.schedules,
            keys.schedules_due,
            keys.flow_versions(flow_id),
            keys.flow_meta(flow_id),
            keys.schedules_tenants,
        ),
        (
            schedule_id,
            keys.schedule_member(schedule_id),
            record,
            before.record if before else b"",
            before.due if before else "",
            "" if due_ms is None else due_ms,
            version or "",
            keys.tenant or DEFAULT_TENANT,
        ),
        lane_for(record, before.record if before else None),
        True,
        lambda reply: reply[0] == 1,
    )


def remove(keys: Keys, schedule_ids: Sequence[str]) -> Call[int]:
    """Take schedules away with their due times and histories; how many there were."""
    words: list[Argument] = [keys.tenant or DEFAULT_TENANT]
    for schedule_id in schedule_ids:
        words += (schedule_id, keys.schedule_member(schedule_id))
    return Call(
        "schedules.remove",
        script("schedule_remove"),
        (
            keys.schedules,
            keys.schedules_due,
            keys.schedules_tenants,
            *(keys.schedule_fires(one) for one in schedule_ids),
        ),
        words,
        "writer",
        True,
        lambda reply: int(reply[0]),
    )


def history(keys: Keys, schedule_id: str, limit: int = HISTORY) -> Call[list[bytes]]:
    """What became of its last due times, the latest first: JSON texts."""
    words = ("LRANGE", keys.schedule_fires(schedule_id), 0, max(1, limit) - 1)
    return Call("schedules.history", None, (words[1],), words, "writer", True, list)


def next_number(keys: Keys) -> Call[int]:
    """A number that no other call gets: for the key of a run by hand."""
    words = ("INCR", keys.schedule_sequence)
    return Call("schedules.next_number", None, (keys.schedule_sequence,), words, "writer", True, int)


# -- who has some ------------------------------------------------------------------------------------


def turn(keys: Keys, every_ms: int) -> Call[bool]:
    """Whether it is this caller's turn to look through the schedules of all tenants: one host's in so long."""
    return Call(
        "schedules.turn",
        script("schedule_turn"),
        (keys.schedules_turn,),
        (every_ms,),
        "writer",
        False,
        lambda reply: reply[0] == 1,
    )


def tenants(keys: Keys, cursor: str = "0", count: int = PAGE) -> Call[tuple[str, list[str]]]:
    """A page of the tenants that have schedules of this queue: (next cursor, "0" at the end; names unjudged)."""
    words = ("SSCAN", keys.schedules_tenants, cursor, "COUNT", count)

    def parse(reply: Sequence[Any]) -> tuple[str, list[str]]:
        return text(reply[0]), [text(name) for name in reply[1]]

    return Call("schedules.tenants", None, (keys.schedules_tenants,), words, "bulk", True, parse)


# -- what is due --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Due:
    """``member`` names tenant and schedule; ``score``: its due time as the server writes it; ``record`` empty: there is
    no such schedule."""

    member: bytes
    score: str
    record: bytes

    @property
    def due_ms(self) -> int | None:
        """None where somebody wrote what is no time."""
        try:
            found = int(float(self.score))
        except (ValueError, OverflowError):
            return None
        return found if 0 <= found < 2**53 else None


@dataclass(frozen=True, slots=True)
class DuePage:
    """``now``: the server's time; ``next_in_ms``: until the next one after these, None where there is none."""

    now: int
    next_in_ms: int | None
    due: list[Due]


def due(keys: Keys, count: int = PAGE) -> Call[DuePage]:
    """What is due of all tenants, the oldest first."""

    def parse(reply: Sequence[Any]) -> DuePage:
        now, later = int(reply[0]), text(reply[1])
        return DuePage(now, max(0, int(min(float(later), 2.0**53)) - now) if later else None, _due_of(reply[2]))

    return Call(
        "schedules.due", script("schedule_due"), (keys.schedules_due,), (count, keys.prefix), "writer", True, parse
    )


@dataclass(frozen=True, slots=True)
class AheadPage:
    """``cursor`` "0": that was the last page."""

    now: int
    cursor: str
    ahead: list[Due]


def ahead(keys: Keys, away_ms: int, cursor: str = "0", count: int = PAGE) -> Call[AheadPage]:
    """A page of what is due only after ``away_ms``, of all tenants, in no order."""

    def parse(reply: Sequence[Any]) -> AheadPage:
        return AheadPage(int(reply[0]), text(reply[1]), _due_of(reply[2]))

    words = (cursor, count, keys.prefix, away_ms)
    return Call("schedules.ahead", script("schedule_ahead"), (keys.schedules_due,), words, "bulk", True, parse)


def _due_of(flat: Sequence[bytes]) -> list[Due]:
    return [Due(flat[i], text(flat[i + 1]), flat[i + 2]) for i in range(0, len(flat), 3)]


def owner_of(member: bytes) -> tuple[str, str]:
    """(tenant, schedule id) of a member, unjudged. Raises ValueError."""
    tenant, split, schedule_id = member.decode().partition("\0")
    if not split:
        raise ValueError("it is not '<tenant>\\0<schedule id>'")
    return tenant, schedule_id


def aside(keys: Keys, one: Due, schedule_id: str = "", reason: str = "") -> Call[bool]:
    """Take out what nobody can fire, unless it changed meanwhile. With ``schedule_id`` its history says why."""
    entry = jsontext.dumps({"trigger_kind": "cron", "due_at": one.due_ms, "enqueue": "aside", "reason": reason})
    named = bool(schedule_id)
    return Call(
        "schedules.aside",
        script("schedule_aside"),
        (keys.schedules_due, keys.schedules if named else "", keys.schedule_fires(schedule_id) if named else ""),
        (one.member, one.score, schedule_id, one.record, entry[1:-1], HISTORY),
        "writer",
        True,
        lambda reply: reply[0] == 1,
    )


# -- firing -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Run:
    """One start. ``due_ms``: which due time it is for, None by hand or where there is none."""

    execution_id: str
    dedup_key: str
    payload: bytes
    due_ms: int | None = None
    nonce: str = field(default_factory=ids.new_nonce)


@dataclass(frozen=True, slots=True)
class Skipped:
    """Due times that are not run: how many, at least so many where not ``counted``, from the first to the last."""

    count: int
    first_ms: int
    last_ms: int
    counted: bool = True


@dataclass(frozen=True, slots=True)
class Fire:
    """``record``, ``score``: as they were read; ``score`` None by hand: due times stay as they are. ``next_due``: None
    for no more. ``fields``: of the carriers, beside what every start has."""

    schedule_id: str
    record: bytes
    score: str | None
    next_due: int | None
    flow_id: str
    version: str
    input: bytes
    runs: Sequence[Run]
    skipped: Skipped | None = None
    fields: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Outcome:
    """``outcome``: ``ok``, ``duplicate`` (that due time has its execution: this one) or ``failed`` (``reason``)."""

    outcome: str
    reason: str
    execution_id: str
    version: str
    message_id: str


def fire(keys: Keys, request: Fire) -> Call[list[Outcome]]:
    """Start the runs, tell the history, set the next due time, all in one call: one outcome a run.

    Refused: ``changed`` (somebody else fired or changed it), ``gone``.
    """
    tenant = keys.tenant or DEFAULT_TENANT
    words: list[Argument] = ["schema_version", "1", "tenant_id", tenant, "flow_id", request.flow_id]
    for name, value in request.fields.items():
        words += (name, value)
    named: list[str] = []
    starts: list[Argument] = []
    for run in request.runs:
        named += (keys.row(run.execution_id), keys.tombstone(run.execution_id), keys.start_dedup(run.dedup_key))
        starts += (run.execution_id, run.nonce, run.dedup_key, run.payload, _head(request, run))
    return Call(
        "schedules.fire",
        script("schedule_fire"),
        (
            keys.schedules,
            keys.schedules_due,
            keys.schedule_fires(request.schedule_id),
            keys.flow_versions(request.flow_id),
            keys.flow_meta(request.flow_id),
            keys.index(),
            keys.index("pending"),
            keys.queue,
            keys.tenant_status,
            keys.tenant_quota,
            keys.parked_tenants,
            keys.wake,
            keys.schedules_tenants,
            *named,
        ),
        (
            request.schedule_id,
            keys.schedule_member(request.schedule_id),
            request.record,
            "" if request.score is None else request.score,
            "" if request.next_due is None else request.next_due,
            tenant,
            request.flow_id,
            request.version,
            request.input,
            DEDUP_TTL_MS,
            keys.ns,
            HISTORY,
            _told_skipped(request),
            len(words),
            *words,
            *starts,
        ),
        lane_for(request.record, request.input, *(run.payload for run in request.runs)),
        True,
        _parse_outcomes,
    )


def _head(request: Fire, run: Run) -> bytes:
    kind = "manual" if request.score is None else "cron"
    head = {"trigger_kind": kind, "due_at": run.due_ms, "flow_id": request.flow_id, "dedup_key": run.dedup_key}
    return jsontext.dumps(head)[1:-1]


def _told_skipped(request: Fire) -> bytes:
    skipped = request.skipped
    if skipped is None:
        return b""
    entry = {
        "trigger_kind": "cron",
        "due_at": skipped.last_ms,
        "enqueue": "skipped",
        "reason": "missed",
        "count": skipped.count,
        "counted": skipped.counted,
        "first_due_at": skipped.first_ms,
    }
    return jsontext.dumps(entry)[1:-1]


def _parse_outcomes(reply: Sequence[Any]) -> list[Outcome]:
    flat = reply[1]
    return [Outcome(*(text(word) for word in flat[i : i + 5])) for i in range(0, len(flat), 5)]
