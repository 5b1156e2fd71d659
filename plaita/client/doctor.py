"""``plaita doctor``, the part that asks Redis: facts in bounded, reading calls, judged by ``policy/doctor``.

At most a few hundred calls, none of which writes or goes through all keys. What the user may not read becomes a note;
a server that stops answering ends the looking, and what was seen until then is judged.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass, field
from typing import Any, TypeVar

from plaita import jsontext
from plaita.client import asking as carriers
from plaita.client import doctor_bridges
from plaita.client.asking import Asking, LostError
from plaita.clock import wall_ms
from plaita.policy import dead_letter
from plaita.policy.doctor import (
    Finding,
    executions,
    queue,
    reachable,
    registry,
    schedules,
    server,
    server_facts,
)
from plaita.policy.schedule_again import without_due_time
from plaita.policy.tenants import DISABLED
from plaita.store import dead_letters, looking, permissions, tenants
from plaita.store import schedules as stored_schedules
from plaita.store.call import Call
from plaita.store.keys import DEFAULT_TENANT, Keys
from plaita.store.leases import parse_lease
from plaita.store.looking import LookingRunner
from plaita.store.server import ping

T = TypeVar("T")

PINGS = 20
ROWS_LOOKED_AT = 10_000  # of each status
LETTERS_LOOKED_AT = 1000
SCHEDULE_PAGES = 20
SCHEDULES_A_PAGE = 500
DAY_MS = 86_400_000
_UNDER_WAY = ("running", "pending", "suspended")
_SETTINGS = (
    "appendfsync", "dir", "disable-thp", "maxclients", "maxmemory-policy", "min-replicas-to-write",
    "stop-writes-on-bgsave-error", "tcp-keepalive", "timeout",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Settings:
    """What is told and not asked. ``user``: of the URL. ``local``: the server is on this host, whose ``overcommit``
    and ``huge_pages`` these are."""

    shown: str
    user: str = ""
    lease_ttl_s: float = 120.0
    claim_min_idle_s: float = 60.0
    dlq_max_len: int = 1000
    expected_epoch: str = ""
    own_version: str = ""
    own_family: str = ""
    local: bool = False
    overcommit: str | None = None
    huge_pages: str | None = None


@dataclass(slots=True)
class Seen:
    """``reachable`` False: nothing, or not all, could be asked; the findings are of what could. ``server``: who
    answered. ``folder``: where it keeps its files, where that is on this host."""

    reachable: bool = True
    findings: list[Finding] = field(default_factory=list)
    server: dict[str, Any] = field(default_factory=dict)
    folder: str = ""
    calls: int = 0


def look(runner: LookingRunner, keys: Keys, settings: Settings) -> Seen:
    """Everything of Redis, of the tenant of ``keys``. Raises nothing for a server that is away."""
    seen = Seen(server={"url": settings.shown, "product": None, "version": None, "role": None})
    asking = Asking(runner)
    try:
        facts = _server(asking, keys, settings)
        if facts.info is not None:
            found = server_facts.product(facts.info)
            seen.server |= {"product": found.name, "version": found.version, "role": facts.text("role") or None}
        seen.findings += server.judge(facts)
        seen.folder = (facts.setting("dir") or "") if settings.local else ""
        aside = asking.ask(looking.aside(keys, int(queue.OVERDUE_S * 1000)))
        known = _registry(asking, keys, settings, aside)
        seen.findings += queue.judge(_queue(asking, keys, settings, known, aside))
        seen.findings += schedules.judge(_schedules(asking, keys, known, aside))
        seen.findings += doctor_bridges.look(asking, keys)
        seen.findings += executions.judge(_executions(asking, keys, settings, known))
        seen.findings += registry.judge(known)
    except LostError as error:
        seen.reachable = False
        seen.findings.append(reachable.unreachable(str(error), settings.shown, auth=error.auth))
    else:
        seen.findings.insert(0, reachable.reached(settings.shown))
        if facts.denied is None:  # nobody could say what lacks: some of it was met
            seen.findings += server.refused(facts.user, asking.refused)
    seen.calls = asking.calls
    return seen


# -- the server -----------------------------------------------------------------------------------


def _server(asking: Asking, keys: Keys, settings: Settings) -> server_facts.ServerFacts:
    info = asking.ask(looking.info(keys))
    if info is not None and info.get("loading") == "1":
        raise LostError(f"{settings.shown}: LOADING, {info.get('loading_loaded_perc', '?')} % read", False)
    config: dict[str, str] | None = None
    for name in _SETTINGS:
        value = asking.ask(looking.setting(keys, name))
        if value is not None:
            config = (config or {}) | {name: value}
    ahead, uncertain, ping_ms = _clock(asking, keys)
    user = asking.ask(looking.user(keys)) or settings.user
    denied = _denied(asking, keys)
    return server_facts.ServerFacts(
        info=info,
        config=config,
        ahead_ms=ahead,
        uncertain_ms=uncertain,
        ping_ms=ping_ms,
        user=user,
        denied=None if denied is None else denied.commands,
        denied_keys=() if denied is None else denied.patterns,
        local=settings.local,
        overcommit=settings.overcommit,
        huge_pages=settings.huge_pages,
        lease_ttl_s=settings.lease_ttl_s,
        shown=settings.shown,
    )


def _clock(asking: Asking, keys: Keys) -> tuple[float | None, float, float | None]:
    """(the server's clock less ours ms, half the round trip ms, median of a PING ms): the quickest of three decides."""
    best: tuple[float, float] | None = None
    for _ in range(3):
        before = time.time_ns()
        theirs = asking.ask(looking.time_ms(keys))
        after = time.time_ns()
        if theirs is None:
            break
        half = (after - before) / 2e6
        if best is None or half < best[1]:
            best = theirs - (before + after) / 2e6, half
    taken = []
    for _ in range(PINGS):
        before = time.perf_counter_ns()
        if asking.ask(ping(keys)) is None:
            break
        taken.append((time.perf_counter_ns() - before) / 1e6)
    ahead, half = best or (None, 0.0)
    return ahead, half, statistics.median(taken) if taken else None


def _denied(asking: Asking, keys: Keys) -> permissions.Denied | None:
    answer = asking.ask(_wrapped(permissions.denied(keys)))
    return permissions.Denied(["eval", "evalsha"], []) if answer is None else answer[0]


def _wrapped(call: Call[T]) -> Call[tuple[T]]:
    """So that an answer of None is told from no answer."""
    parse = call.parse
    return Call(call.name, call.script, call.keys, call.args, call.lane, call.idempotent, lambda reply: (parse(reply),))


# -- the registry ---------------------------------------------------------------------------------


def _registry(asking: Asking, keys: Keys, settings: Settings, aside: looking.Aside | None) -> registry.RegistryFacts:
    names = asking.ask(looking.instance_names(keys))
    records = asking.ask(looking.records(keys, names)) if names else []
    now = asking.ask(looking.time_ms(keys))
    if names is None or records is None:
        return registry.RegistryFacts(readable=False)
    instances, ghosts, unreadable = [], [], []
    for name, (record, incarnation) in zip(names, records, strict=True):
        if record is None:
            ghosts.append(name)
            continue
        value = _json(record)
        if not isinstance(value, dict):
            unreadable.append(name)
            continue
        instances.append(registry.read_record(name, incarnation, value, registry.silence_s(value, now)))
    return registry.RegistryFacts(
        instances=instances,
        ghosts=ghosts,
        unreadable=unreadable,
        complete=len(names) <= looking.INSTANCES,
        epoch="" if aside is None else aside.epoch,
        tenant_statuses=0 if aside is None else aside.statuses,
        expected_epoch=settings.expected_epoch,
        own_version=settings.own_version,
        own_family=settings.own_family,
        queue=keys.queue,
    )


def _json(data: bytes) -> Any:
    try:
        return jsontext.loads(data)
    except jsontext.JSONTextError:
        return None


# -- the queue ------------------------------------------------------------------------------------


def _queue(
    asking: Asking, keys: Keys, settings: Settings, known: registry.RegistryFacts, aside: looking.Aside | None
) -> queue.QueueFacts:
    streams: list[queue.Stream] = []
    consumers: dict[str, queue.Consumer] = {}
    stamps: list[queue.Stamp] = []
    for letter in ("w", "q"):
        found = asking.ask(looking.stream(keys, letter))
        if found is None:
            return queue.QueueFacts(None, known)
        streams.append(_stream(keys.stream(letter), found))
        for name, pending, idle_ms in found.consumers:
            before = consumers.get(name, queue.Consumer(name, 0, float("inf")))
            consumers[name] = queue.Consumer(name, before.pending + pending, min(before.idle_s, idle_ms / 1000))
        if found.pending:
            stamps += [queue.Stamp(*one) for one in asking.ask(looking.stamps(keys, letter)) or ()]
    events = asking.ask(looking.event_log(keys))
    causes, letters, more = _letters(asking, keys)
    return queue.QueueFacts(
        streams=streams,
        events=None if events is None else _stream(keys.event_log, events),
        registry=known,
        consumers=list(consumers.values()),
        delayed=0 if aside is None else aside.delayed,
        overdue=0 if aside is None else aside.overdue,
        overdue_s=0.0 if aside is None else aside.overdue_ms / 1000,
        letters=letters,
        letters_max=settings.dlq_max_len,
        causes=causes,
        more_letters=more,
        parked={} if aside is None else aside.parked,
        stamps=stamps,
        claim_min_idle_s=settings.claim_min_idle_s,
    )


def _stream(name: str, found: looking.Stream) -> queue.Stream:
    def age_s(entry_id: str) -> float:
        return max(0, found.now_ms - int(entry_id.partition("-")[0])) / 1000

    oldest = found.oldest
    return queue.Stream(
        name=name,
        kind=found.kind,
        length=found.length,
        group=found.group,
        pending=found.pending,
        lag=found.lag,
        oldest_s=None if oldest is None else age_s(oldest[0]),
        oldest_idle_s=None if oldest is None else oldest[2] / 1000,
        oldest_consumer="" if oldest is None else oldest[1],
        waiting_s=age_s(found.unread) if found.unread else None,
    )


def _letters(asking: Asking, keys: Keys) -> tuple[dict[str, int], int, bool]:
    """(dead letters of the last 24 h by cause, all there are, whether there are more of the last 24 h)."""
    causes: dict[str, int] = {}
    looked, older_than, total = 0, None, 0
    since = wall_ms() - DAY_MS
    while looked < LETTERS_LOOKED_AT:
        page = asking.ask(dead_letters.page(keys, min(200, LETTERS_LOOKED_AT - looked), older_than))
        if page is None:
            return causes, total, False
        total = page.total
        for letter in page.letters:
            if int(letter.dlq_id.partition("-")[0]) < since:
                return causes, total, False
            cause = str(dead_letter.read(letter.fields).get("cause") or "unknown")[:60]
            causes[cause] = causes.get(cause, 0) + 1
        looked += len(page.letters)
        if not page.more or not page.letters:
            return causes, total, False
        older_than = page.letters[-1].dlq_id
    return causes, total, True


# -- schedules ------------------------------------------------------------------------------------


def _schedules(
    asking: Asking, keys: Keys, known: registry.RegistryFacts, aside: looking.Aside | None
) -> schedules.ScheduleFacts:
    found: dict[str, str] = {}
    cursor = "0"
    if aside is None:
        return schedules.ScheduleFacts(known, readable=False)
    for _ in range(SCHEDULE_PAGES):
        page = asking.ask(stored_schedules.without_due_time(keys, cursor, SCHEDULES_A_PAGE))
        if page is None:
            return schedules.ScheduleFacts(known, readable=False)
        for one in page.schedules:
            found[one.schedule_id] = without_due_time(one.record, one.schedule_id, one.last, keys.queue, page.now)
        cursor = page.cursor
        if cursor == "0":
            break
    return schedules.ScheduleFacts(
        known,
        due=aside.scheduled,
        overdue=aside.late,
        overdue_s=aside.late_ms / 1000,
        tenant=keys.tenant or DEFAULT_TENANT,
        lost=[name for name in sorted(found) if found[name] == "lost"],
        aside=[name for name in sorted(found) if found[name] == "aside"],
        elsewhere=[name for name in sorted(found) if found[name] == "elsewhere"],
        complete=cursor == "0",
    )


# -- executions -----------------------------------------------------------------------------------


def _executions(
    asking: Asking, keys: Keys, settings: Settings, known: registry.RegistryFacts
) -> executions.ExecutionFacts:
    tenant = keys.tenant or DEFAULT_TENANT
    states = asking.ask(tenants.states(keys, [tenant]))
    rows: dict[str, executions.Row] = {}
    there = 0
    for status in _UNDER_WAY:
        cursor, looked = "0", 0
        while True:
            page = asking.ask(looking.rows(keys, status, cursor))
            if page is None:
                return executions.ExecutionFacts(None, known, tenant)
            rows.update((row.execution_id, _row(row)) for row in page.rows)
            looked += len(page.rows)
            cursor = page.cursor
            if cursor == "0" or looked >= ROWS_LOOKED_AT:
                there += max(page.there, looked) if cursor != "0" else looked
                break
    facts = executions.ExecutionFacts(
        rows=list(rows.values()),
        registry=known,
        tenant=tenant,
        looked=len(rows),
        there=max(there, len(rows)),
        carried=frozenset(),
        carriers_looked=carriers.CARRIERS_LOOKED_AT,
        heartbeat_s=settings.lease_ttl_s / 3,
        lease_ttl_s=settings.lease_ttl_s,
        disabled=states is not None and states.statuses[tenant] == DISABLED,
    )
    idle = executions.without_holder(facts)
    if not idle or facts.disabled:
        return facts
    carried = carriers.carried(asking, keys, {row.execution_id: row.status for row in idle})
    suspects = [row.execution_id for row in idle if carried is not None and row.execution_id not in carried]
    for first in range(0, len(suspects), looking.ROWS_A_PAGE):
        # what moved meanwhile was between the places, not lost
        again = asking.ask(looking.these_rows(keys, suspects[first : first + looking.ROWS_A_PAGE]))
        now = {} if again is None else {row.execution_id: _row(row) for row in again.rows}
        for name in suspects[first : first + looking.ROWS_A_PAGE]:
            rows[name] = now.get(name) or executions.Row(name, "completed", 0.0)
    return executions.with_carriers(facts, list(rows.values()), carried)


def _row(row: looking.Row) -> executions.Row:
    timing = _json(row.timing) if row.timing else None
    started = timing.get("started_at") if isinstance(timing, dict) and not timing.get("ended_at") else None
    lease = parse_lease(row.lease) if row.lease else None
    return executions.Row(
        execution_id=row.execution_id,
        status=row.status,
        quiet_s=row.quiet_ms / 1000,
        node=row.node,
        open_s=max(0, wall_ms() - started) / 1000 if isinstance(started, int) else None,
        holder=(lease.holder if lease is not None else row.lease) if row.lease else "",
        woken=row.woken,
        due_s=None if row.due_in_ms is None else row.due_in_ms / 1000,
        timer=row.timer,
    )
