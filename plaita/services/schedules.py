"""Fires schedules when they are due (ledger E5; KNOWN-TROUBLE 40, 41, 43).

Every host looks, by the server's clock; who is first fires, and the others are refused by the very call. A sleep is
never longer than a second: a schedule may come nearer at any time.
"""

from __future__ import annotations

import asyncio
import random

from plaita import ids, jsontext
from plaita.clock import iso_utc
from plaita.errors import InputError
from plaita.policy import repos
from plaita.policy.backoff import backoff_s
from plaita.policy.schedule import Firing, cron_key, firing
from plaita.policy.schedule_record import BadSchedule, Schedule, read_schedule, scheduled_start
from plaita.services.host import NotServed, ServiceHost, served
from plaita.services.schedules_again import LostSchedules
from plaita.store import schedules
from plaita.store.call import Refused, Value
from plaita.store.keys import DEFAULT_TENANT, Keys, check_tenant
from plaita.store.schedules import Due, Fire, Outcome, Run, Skipped, Stored

MAX_SLEEP_S = 1.0
JUMP_MS = 300_000  # the server's clock went back by so much since the last look: what is stored is looked at
AHEAD_MS = 86_400_000  # nobody saw it go back: so much later than its calendar says was stored by a wrong clock


class ScheduleService:
    """The service ``schedules``."""

    def __init__(self, host: ServiceHost) -> None:
        self._host = host
        self._lost = LostSchedules(host)
        self._failures = 0
        self._seen: int | None = None  # the server's time at the last look

    async def run(self) -> None:
        while True:
            try:
                wait_s = await self.scan_once()
                self._failures = 0
            except NotServed as why:
                wait_s = backoff_s(self._failures, base=0.1, cap=2.0, jitter=random.random())
                self._host.tell("warning" if self._failures == 0 else "debug", "schedule.left", why=why)
                self._failures += 1
            await asyncio.sleep(wait_s)

    async def scan_once(self) -> float:
        """Fire what is due; how many seconds to wait then. Raises NotServed where some could not be fired, after all
        others were tried."""
        page = await served(self._host, schedules.due(self._host.keys))
        left: NotServed | None = None
        for one in random.sample(page.due, len(page.due)):  # another order on each host: they share a page
            try:
                await self._one(one, page.now)
            except NotServed as why:
                left = why
        if self._seen is None:
            await self._bring_back(AHEAD_MS)
        elif page.now < self._seen - JUMP_MS:
            await self._bring_back(JUMP_MS)
        self._seen = page.now
        await self._lost.look()
        if left is not None:
            raise left
        if page.due:
            return 0.0  # firing took its time: look again at once
        until_next = MAX_SLEEP_S if page.next_in_ms is None else page.next_in_ms / 1000
        return min(MAX_SLEEP_S, max(0.005, until_next))

    async def _one(self, one: Due, now: int) -> None:
        try:
            tenant, schedule_id = schedules.owner_of(one.member)
            keys = self._host.keys.for_tenant(check_tenant(tenant))
            ids.check_id(schedule_id, "schedule id")
        except (ValueError, InputError) as error:
            await served(self._host, schedules.aside(self._host.keys, one))
            self._host.count("schedules_bad")
            self._host.tell("error", "schedule.unreadable", member=one.member, error=error)
            return
        if not one.record:
            await served(self._host, schedules.aside(keys, one, schedule_id))  # a residue of a schedule that is no more
            return
        try:
            schedule = read_schedule(one.record, schedule_id, now)
        except BadSchedule as error:
            await self._put_aside(keys, one, schedule_id, str(error))
            return
        if not schedule.enabled or schedule.queue not in ("", keys.queue):
            await self._take_out(keys, one, schedule)
            return
        await self._fire(keys, one, schedule, now)

    async def _take_out(self, keys: Keys, one: Due, schedule: Schedule) -> None:
        """A due time that its schedule has not: somebody wrote it back, or put the schedule on another queue."""
        before = Stored(schedule.schedule_id, one.record, one.score, b"")
        call = schedules.put(keys, schedule.schedule_id, one.record, None, before, flow_id=schedule.flow_id)
        answer = await self._host.run(call)
        if isinstance(answer, Value):
            why = "it is paused" if not schedule.enabled else f"it is of the queue {schedule.queue!r}"
            self._host.tell(
                "warning", "schedule.taken_out", schedule_id=schedule.schedule_id, tenant_id=keys.tenant, why=why
            )
        elif not isinstance(answer, Refused):  # changed: it is looked at again
            raise NotServed(f"schedule {schedule.schedule_id!r}: {answer}")

    async def _bring_back(self, away_ms: int) -> None:
        """A clock that was ahead has left due times that are ahead: those later by more than ``away_ms`` become those
        of the calendar. What has run is known by its dedup key."""
        cursor = "0"
        while True:
            page = await served(self._host, schedules.ahead(self._host.keys, away_ms, cursor))
            for one in page.ahead:
                await self._judge_ahead(one, page.now, away_ms)
            cursor = page.cursor
            if cursor == "0":
                return

    async def _judge_ahead(self, one: Due, now: int, away_ms: int) -> None:
        try:
            tenant, schedule_id = schedules.owner_of(one.member)
            keys = self._host.keys.for_tenant(check_tenant(tenant))
            schedule = read_schedule(one.record, ids.check_id(schedule_id, "schedule id"), now)
        except (ValueError, InputError):
            return  # when its time comes, it is told of
        right = schedule.plan.next_after(now)
        if right is None or float(one.score) - right <= away_ms:
            return
        before = Stored(schedule_id, one.record, one.score, b"")
        call = schedules.put(keys, schedule_id, one.record, right, before, flow_id=schedule.flow_id)
        if isinstance(await self._host.run(call), Value):
            self._host.tell(
                "warning", "schedule.brought_back", schedule_id=schedule_id, tenant_id=tenant, due=iso_utc(right)
            )

    async def _put_aside(self, keys: Keys, one: Due, schedule_id: str, why: str) -> None:
        if await served(self._host, schedules.aside(keys, one, schedule_id, why)):
            self._host.count("schedules_bad")
            self._host.tell("error", "schedule.put_aside", schedule_id=schedule_id, tenant_id=keys.tenant, why=why)

    async def _fire(self, keys: Keys, one: Due, schedule: Schedule, now: int) -> None:
        due_ms = one.due_ms
        if due_ms is None:
            self._host.tell("warning", "schedule.no_due_time", schedule_id=schedule.schedule_id, score=one.score)
            todo = Firing((), 0, None, None, True, schedule.plan.next_after(now))
        else:
            todo = firing(schedule.plan, due_ms, now, schedule.misfire)
        request = _request(keys, one, schedule, todo, now)
        answer = await self._host.run(schedules.fire(keys, request))
        if isinstance(answer, Refused):
            if answer.reason not in ("changed", "gone"):  # changed: another host was first
                await self._put_aside(keys, one, schedule.schedule_id, f"{answer.reason}: {answer.detail}")
            return
        if not isinstance(answer, Value):
            raise NotServed(f"schedule {schedule.schedule_id!r}: {answer}")  # the next look finds it as it is then
        self._report(keys, schedule, request, answer.value)

    def _report(self, keys: Keys, schedule: Schedule, request: Fire, outcomes: list[Outcome]) -> None:
        named = {"schedule_id": schedule.schedule_id, "tenant_id": keys.tenant or DEFAULT_TENANT}
        for run, outcome in zip(request.runs, outcomes, strict=True):
            due = iso_utc(run.due_ms)
            if outcome.outcome == "failed":
                self._host.count("schedules_failed")
                self._host.tell("warning", "schedule.not_started", **named, due=due, why=outcome.reason)
            else:
                if outcome.outcome == "ok":
                    self._host.count("schedules_fired")
                self._host.tell(
                    "info", "schedule.fired", **named, due=due, execution_id=outcome.execution_id, how=outcome.outcome
                )
        skipped = request.skipped
        if skipped is not None:
            self._host.count("schedules_skipped", skipped.count)
            first, last = iso_utc(skipped.first_ms), iso_utc(skipped.last_ms)
            many = skipped.count if skipped.counted else f"at least {skipped.count}"
            self._host.tell(
                "warning", "schedule.missed", **named, count=many, first=first, last=last, misfire=schedule.misfire
            )
        if request.next_due is None:
            self._host.tell("warning", "schedule.ended", **named, why="its time never comes again")


def _request(keys: Keys, one: Due, schedule: Schedule, todo: Firing, now: int) -> Fire:
    due_times: tuple[int | None, ...] = todo.fire if one.due_ms is not None else (None,)
    repo = repos.repo_of_input(schedule.params)
    skipped = None
    if todo.skipped_from is not None and todo.skipped_to is not None:
        skipped = Skipped(todo.skipped, todo.skipped_from, todo.skipped_to, todo.counted)
    return Fire(
        schedule_id=schedule.schedule_id,
        record=one.record,
        score=one.score,
        next_due=todo.next_due,
        flow_id=schedule.flow_id,
        version=schedule.version or "latest",
        input=jsontext.dumps(schedule.params),
        runs=[_run(keys, schedule, due_ms, now) for due_ms in due_times],
        skipped=skipped,
        fields={} if repo is None else {repos.FIELD: repo},
    )


def _run(keys: Keys, schedule: Schedule, due_ms: int | None, now: int) -> Run:
    execution_id = ids.new_execution_id()
    tenant = keys.tenant or DEFAULT_TENANT
    payload = scheduled_start(schedule, "cron", execution_id, tenant, iso_utc(now) or "")
    return Run(execution_id, cron_key(schedule.schedule_id, due_ms, now), payload, due_ms)
