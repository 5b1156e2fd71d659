"""Reads the event log and wakes who waits for its events, each wait once (DECISIONS 26, 28; ledger E1, E2).

Every host reads with one consumer group. An event is done with when everybody who waited is woken; a host that dies
before leaves it to another, and a wait that was woken is not woken again. Several events are under way at once, so that
one that wakes a hundred thousand holds up no others; those of one type and correlation go one after the other. Of each
never more than a page of waits is in hand.
"""

from __future__ import annotations

import asyncio
import random
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from plaita import jsontext
from plaita.errors import InputError
from plaita.policy import event_index
from plaita.policy.backoff import backoff_s
from plaita.policy.copies import wake_carrier_of
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
AT_ONCE = 16
GIVE_UP_AFTER = 5  # deliveries of an event that we fail on by a fault of our own


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


_Row = tuple[str, str, str | None]  # tenant, type, correlation


class EventFeed:
    """The service ``events``."""

    def __init__(self, host: ServiceHost) -> None:
        self._host = host
        self._keys = host.keys
        self._idle_ms = min(RECLAIM_IDLE_MS, host.min_idle_ms)
        self._failures = 0
        self._under_way: dict[str, asyncio.Task[None]] = {}  # by log id
        self._last_of: dict[_Row, asyncio.Task[None]] = {}  # whom the next of its type and correlation waits for

    async def run(self) -> None:
        try:
            await self._read()
        finally:
            tasks = list(self._under_way.values())
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
            room = await self._room()
            call = events.read_log(self._keys, self._host.consumer, BLOCK_MS, room)
            entries = await self._answered(await self._host.run(call))
            for entry in entries or ():
                self._begin(entry)

    async def _resume(self) -> None:
        """What we were at in our last life is nobody's: it need not be waited for."""
        after = "0"
        while True:
            call = events.read_own(self._keys, self._host.consumer, after, await self._room())
            entries = await self._answered(await self._host.run(call))
            if not entries:
                return
            for entry in entries:
                self._begin(entry)
            after = entries[-1].log_id

    async def _reclaim(self) -> None:
        cursor = "0-0"
        while True:
            call = events.reclaim(self._keys, self._host.consumer, self._idle_ms, cursor, await self._room())
            page: Reclaimed | None = await self._answered(await self._host.run(call))
            if page is None:
                return
            for entry in page.entries:
                self._begin(entry)
            cursor = page.cursor
            if cursor == "0-0":
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

    # -- several at once --------------------------------------------------------------------------

    async def _room(self) -> int:
        """For how many more there is room; waits for some."""
        while len(self._under_way) >= AT_ONCE:
            await asyncio.wait(self._under_way.values(), return_when=asyncio.FIRST_COMPLETED)
        return AT_ONCE - len(self._under_way)

    def _begin(self, entry: Logged) -> None:
        if entry.log_id in self._under_way:
            return  # reclaimed from ourselves: it takes long, and now nobody else takes it
        self._host.count("events_read")
        event: ReadEvent | None = None
        row: _Row = ("", "", None)
        try:
            event = read_event(entry.log_id, entry.fields)
            row = (event.tenant, event.event_type, event.correlation)
        except BadEvent as error:
            self._host.count("events_bad")
            self._host.tell("error", "event.unreadable", log_id=entry.log_id, error=error)
        task = asyncio.create_task(self._one(entry.log_id, event, self._last_of.get(row)), name="event")
        self._under_way[entry.log_id] = self._last_of[row] = task

        def ended(_: object) -> None:
            self._under_way.pop(entry.log_id, None)
            if self._last_of.get(row) is task:
                del self._last_of[row]

        task.add_done_callback(ended)

    async def _one(self, log_id: str, event: ReadEvent | None, before: asyncio.Task[None] | None) -> None:
        if before is not None:
            await asyncio.wait((before,))
        try:
            if event is not None:
                woken = await self._fan_out(event)
                said = {"event_id": event.event_id, "event_type": event.event_type, "woken": woken}
                self._host.tell("debug", "event.done", **said)
            await served(self._host, events.done(self._keys, log_id))
        except NotServed as why:
            self._host.tell("warning", "event.left", log_id=log_id, why=why)  # it stays pending: any host goes on
            if why.refused:
                await self._give_up(log_id)
        except Exception:  # noqa: BLE001 - one event that we stumble over must not hold up the others
            self._host.tell("error", "event.failed", log_id=log_id, traceback=traceback.format_exc())
            await self._give_up(log_id)

    async def _give_up(self, log_id: str) -> None:
        """It is tried again after a while, but not for ever: what is pending keeps the whole log from being trimmed."""
        self._host.count("events_failed")
        answer = await self._host.run(events.deliveries(self._keys, log_id))
        if isinstance(answer, Value) and answer.value >= GIVE_UP_AFTER:
            self._host.tell("error", "event.given_up", log_id=log_id, deliveries=answer.value)
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
