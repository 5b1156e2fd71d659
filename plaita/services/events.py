"""Reads the event log and wakes who waits for its events, each wait once (DECISIONS 26, 28; ledger E1, E2).

Every host reads with one consumer group. An event is done with when everybody who waited is woken; a host that dies
before leaves it to another, and a wait that was woken is not woken again. Several events are under way at once, so that
one that wakes a hundred thousand holds up no others; those of one type and correlation go one after the other, and
tenants take turns (``policy.event_turns``). Of each never more than a page of waits is in hand.
"""

from __future__ import annotations

import asyncio
import functools
import random
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from plaita import jsontext
from plaita.errors import InputError
from plaita.policy import event_index, event_turns
from plaita.policy.backoff import backoff_s
from plaita.policy.copies import wake_carrier_of
from plaita.policy.event_turns import Row, Turns, lane_of
from plaita.services.host import NotServed, ServiceHost, served
from plaita.store import events
from plaita.store.call import Answer, Refused, Value
from plaita.store.events import Logged, Lookup, Reclaimed, Waiter, Waking
from plaita.store.keys import Keys, check_tenant

T = TypeVar("T")

BLOCK_MS = 1000
RECLAIM_EVERY_S = 5.0
RECLAIM_IDLE_MS = 15_000  # at most: a host that fans out for longer shares the rest with another, which does no harm
TRIM_EVERY_S = 60.0
LOG_KEPT_MS = 3_600_000  # of what everybody has done with: for who looks back
LOG_LONG = 100_000  # entries; a log that is longer keeps only
LONG_LOG_KEPT_MS = 60_000
PAGE = 32  # entries of the log
AHEAD = 128  # where most of them are passed over
RECLAIM_PAGES = COME_BACK_PAGES = 64  # in one go
BEHIND_LOOK_S = 0.25
LEFT_AGAIN_S = 1.0  # after an outage
TELL_EVERY_S = 60.0
GIVE_UP_AFTER = 5  # times that we fail on an event by a fault of our own
FAILED_KNOWN = 1000


class BadEvent(ValueError):
    """An entry of the log that no plaita wrote."""


@dataclass(frozen=True, slots=True)
class ReadEvent:
    """An entry of the log, judged. ``data``: the JSON value; ``told``: the JSON text that a node gets; ``when_ms``: by
    Redis."""

    log_id: str
    tenant: str
    event_id: str
    event_type: str
    correlation: str | None
    data: Any
    told: bytes
    when_ms: int


def read_event(log_id: str, fields: Mapping[bytes, bytes]) -> ReadEvent:
    """Raises BadEvent naming the field."""
    try:
        texts = {name.decode(): value.decode() for name, value in fields.items() if name != b"data"}
        raw = fields.get(b"data", b"null")
        data = jsontext.loads(raw, within=event_index.DATA_STANDS_IN)
        event_id, event_type = texts.get("event_id", ""), texts.get("event_type", "")
        tenant = check_tenant(texts.get("tenant_id", ""))
    except (UnicodeDecodeError, jsontext.JSONTextError, InputError) as error:
        raise BadEvent(str(error)) from None
    if not event_id or not event_type:
        raise BadEvent("event_id and event_type: an event has both")
    said = texts.get("timestamp", "")
    when_ms = int(said) if said.isdecimal() else int(log_id.partition("-")[0])
    told = events.told(event_id, event_type, raw)
    return ReadEvent(log_id, tenant, event_id, event_type, texts.get("correlation_id"), data, told, when_ms)


class EventFeed:
    """The service ``events``.

    It reads ahead: where events come faster than they are done with, what is beyond the share of its lane is passed
    over, and stays pending in our name. ``_behind`` says from where on, and we come back to it.
    """

    def __init__(self, host: ServiceHost) -> None:
        self._host = host
        self._keys = host.keys
        self._idle_ms = min(RECLAIM_IDLE_MS, host.min_idle_ms)
        self._failures = 0
        self._turns: Turns[tuple[str, str, ReadEvent | None]] = Turns()  # lane, log id
        self._in_hand: set[str] = set()  # log ids: held, or begun
        self._behind: dict[str, str] = {}  # lane -> nothing of it after this log id is in hand but what comes back
        self._tasks: set[asyncio.Task[None]] = set()
        self._failed: dict[str, int] = {}  # log id -> how often by a fault of our own
        self._moved = asyncio.Event()  # something is done with: there may be room
        self._told_of: dict[str, float] = {}  # lane -> until when it needs not be told again that it is behind
        self._reclaimed_to = "0-0"

    async def run(self) -> None:
        try:
            await self._read()
        finally:
            tasks, self._tasks = self._tasks, set()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _read(self) -> None:
        loop = asyncio.get_running_loop()
        reclaim_at = trim_at = loop.time()
        await self._resume()
        while True:
            now = loop.time()
            if now >= reclaim_at:
                every_s = min(RECLAIM_EVERY_S, max(0.25, self._idle_ms / 1000))
                reclaim_at = now + every_s * (0.8 + random.random() * 0.4)
                await self._reclaim()
            if now >= trim_at:
                trim_at = now + TRIM_EVERY_S * (0.8 + random.random() * 0.4)
                await self._trim()
            await self._come_back()
            block_ms, count = (1, AHEAD) if self._behind else (BLOCK_MS, PAGE)
            call = events.read_log(self._keys, self._host.consumer, block_ms, count)
            entries = await self._answered(await self._host.run(call))
            for entry in entries or ():
                self._take(entry)
            if self._behind and not entries:
                await self._some_time()

    async def _some_time(self) -> None:
        """Until there is room to come back; not for long, as others may publish."""
        try:
            async with asyncio.timeout(BEHIND_LOOK_S):
                while not any(map(self._turns.is_low, self._behind)):
                    self._moved.clear()
                    await self._moved.wait()
        except TimeoutError:
            pass

    async def _resume(self) -> None:
        """What we were at in our last life is nobody's: it need not be waited for."""
        after = "0"
        while True:
            call = events.read_own(self._keys, self._host.consumer, after, PAGE)
            entries = await self._answered(await self._host.run(call))
            if not entries:
                return
            for entry in entries:
                self._take(entry)
            after = entries[-1].log_id

    async def _reclaim(self) -> None:
        """What others, or we, have had for too long; in parts, where it is a lot."""
        for _ in range(RECLAIM_PAGES):
            call = events.reclaim(self._keys, self._host.consumer, self._idle_ms, self._reclaimed_to, PAGE)
            page: Reclaimed | None = await self._answered(await self._host.run(call))
            if page is None:
                return
            for entry in page.entries:
                self._take(entry)
            self._reclaimed_to = page.cursor
            if page.cursor == "0-0":
                return

    async def _trim(self) -> None:
        for kept_ms in (LOG_KEPT_MS, LONG_LOG_KEPT_MS):
            answer = await self._host.run(events.trim(self._keys, kept_ms))
            if not isinstance(answer, Value) or answer.value[1] <= LOG_LONG:
                return

    async def _answered(self, answer: Answer[T]) -> T | None:
        if isinstance(answer, Value):
            self._failures = 0
            return answer.value
        if isinstance(answer, Refused) and answer.reason == "no_group":
            await self._host.run(events.make_group(self._keys))
        else:
            await asyncio.sleep(backoff_s(self._failures, base=0.1, cap=2.0, jitter=random.random()))
            self._failures += 1
        return None

    # -- turns ------------------------------------------------------------------------------------

    def _take(self, entry: Logged) -> None:
        """An entry that is pending in our name: hold it, or pass it over for now."""
        if entry.log_id in self._in_hand:
            return  # reclaimed from ourselves: it takes long, and now nobody else takes it
        tenant, event_type = _whose(entry)
        lane = lane_of(tenant, event_type)
        if lane not in self._behind and self._turns.takes(lane):
            self._hold(lane, entry)
            return
        self._put_off(lane, entry.log_id)
        self._host.count("events_put_off")
        now = asyncio.get_running_loop().time()
        if now >= self._told_of.get(lane, 0.0):
            self._told_of = {one: until for one, until in self._told_of.items() if until > now}
            self._told_of[lane] = now + TELL_EVERY_S
            said = {"tenant_id": tenant, "event_type": event_type, "log_id": entry.log_id}
            self._host.tell("warning", "event.put_off", **said)

    def _put_off(self, lane: str, log_id: str) -> None:
        before = event_turns.before(log_id)
        known = self._behind.get(lane)
        self._behind[lane] = before if known is None else min(known, before, key=event_turns.order_of)

    async def _come_back(self) -> None:
        """To what was passed over, of the lanes that have room again."""
        for lane in [one for one in self._behind if self._turns.is_low(one)]:
            for _ in range(COME_BACK_PAGES):
                if not await self._come_back_to(lane):
                    break

    async def _come_back_to(self, lane: str) -> bool:
        """A page of what is pending in our name; whether to look at the next: there may be more, and there is room."""
        after = self._behind[lane]
        page = await self._answered(await self._host.run(events.read_own(self._keys, self._host.consumer, after, PAGE)))
        if page is None:
            return False
        if self._behind[lane] != after:
            return True  # something before it was put off meanwhile
        for entry in page:
            if lane_of(*_whose(entry)) == lane and entry.log_id not in self._in_hand:
                if not self._turns.takes(lane):
                    return False
                self._hold(lane, entry)
            self._behind[lane] = entry.log_id
        if not page:
            del self._behind[lane]
        return bool(page)

    def _hold(self, lane: str, entry: Logged) -> None:
        self._host.count("events_read")
        event: ReadEvent | None = None
        tenant, _ = _whose(entry)
        row: Row = (tenant, "", None)
        try:
            event = read_event(entry.log_id, entry.fields)
            row = (tenant, event.event_type, event.correlation)
        except BadEvent as error:
            self._host.count("events_bad")
            self._host.tell("error", "event.unreadable", log_id=entry.log_id, error=error)
        self._in_hand.add(entry.log_id)
        self._turns.hold(lane, row, (lane, entry.log_id, event))
        self._begin()

    def _begin(self) -> None:
        while (turn := self._turns.begin()) is not None:
            row, (lane, log_id, event) = turn
            task = asyncio.create_task(self._one(lane, log_id, event), name="event")
            self._tasks.add(task)
            task.add_done_callback(functools.partial(self._ended, row, log_id))

    def _ended(self, row: Row, log_id: str, task: asyncio.Task[None]) -> None:
        if task in self._tasks:  # not when all of them are ended
            self._tasks.remove(task)
            self._turns.end(row)
            self._in_hand.discard(log_id)
            self._moved.set()
            self._begin()

    async def _one(self, lane: str, log_id: str, event: ReadEvent | None) -> None:
        try:
            if event is not None:
                woken = await self._fan_out(event)
                said = {"event_id": event.event_id, "event_type": event.event_type, "woken": woken}
                self._host.tell("debug", "event.done", **said)
            await served(self._host, events.done(self._keys, log_id))
            self._failed.pop(log_id, None)
        except NotServed as why:
            self._host.tell("warning", "event.left", log_id=log_id, why=why)  # it stays pending: any host goes on
            if why.refused:
                await self._give_up(log_id)
            else:
                asyncio.get_running_loop().call_later(LEFT_AGAIN_S, self._put_off, lane, log_id)
        except Exception:  # noqa: BLE001 - one event that we stumble over must not hold up the others
            self._host.tell("error", "event.failed", log_id=log_id, traceback=traceback.format_exc())
            await self._give_up(log_id)

    async def _give_up(self, log_id: str) -> None:
        """It is tried again after a while, but not for ever: what is pending keeps the whole log from being trimmed."""
        self._host.count("events_failed")
        failures = self._failed.pop(log_id, 0) + 1
        if failures < GIVE_UP_AFTER:
            self._failed[log_id] = failures
            if len(self._failed) > FAILED_KNOWN:
                del self._failed[next(iter(self._failed))]
            return
        self._host.tell("error", "event.given_up", log_id=log_id, failures=failures)
        await self._host.run(events.done(self._keys, log_id))

    # -- one event --------------------------------------------------------------------------------

    async def _fan_out(self, event: ReadEvent) -> int:
        """How many waits it ended."""
        keys = self._keys.for_tenant(event.tenant)
        woken = 0
        for key_set in await served(self._host, events.key_sets(keys, event.event_type)):
            try:
                paths = event_index.paths_of(key_set)
            except ValueError as error:
                self._host.tell("error", "event.key_set_unreadable", event_type=event.event_type, error=error)
                continue
            digest = event_index.event_digest(event.event_type, event.correlation, paths, event.data)
            if digest is not None:
                when = "" if event.correlation is None else str(event.when_ms)
                woken += await self._wake_all(
                    keys, event, Lookup(event.event_type, key_set, digest, event.log_id, when)
                )
        return woken

    async def _wake_all(self, keys: Keys, event: ReadEvent, lookup: Lookup) -> int:
        woken, cursor = 0, "0"
        while True:
            page = await served(self._host, events.waiters(keys, lookup, cursor))
            if page.residual:
                self._host.count("subscriptions_residual", page.residual)
            for at in range(0, len(page.waiters), events.PAGE):
                part = page.waiters[at : at + events.PAGE]
                wakings = [Waking(waiter, _carrier(waiter, event.tenant)) for waiter in part]
                some = await served(self._host, events.wake_many(keys, event.event_id, event.told, wakings))
                self._host.count("waits_woken", some)
                woken += some
            cursor = page.cursor
            if cursor == "0":
                return woken


def _whose(entry: Logged) -> tuple[str, str]:
    """Tenant and type as the entry says them, right or not: whose turn it takes."""
    tenant, event_type = (entry.fields.get(name, b"") for name in (b"tenant_id", b"event_type"))
    return tenant.decode("utf-8", "replace"), event_type.decode("utf-8", "replace")


def _carrier(waiter: Waiter, tenant: str) -> Sequence[tuple[str, bytes | str]]:
    stamps: dict[str, str] = jsontext.loads(waiter.stamps) if waiter.stamps else {"schema_version": "1"}
    return wake_carrier_of(
        stamps,
        "event",
        execution_id=waiter.execution_id,
        flow_id=waiter.flow_id,
        tenant_id=tenant,
        wait=waiter.wait,
    )
