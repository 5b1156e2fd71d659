"""Reads the event log and wakes who waits for its events, each wait once (DECISIONS 26, 28; ledger E1, E2).

Every host reads with one consumer group. An event is done with when everybody who waited is woken; a host that dies
before leaves it to another, and a wait that was woken is not woken again. Never more than a page of waits in hand.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from plaita import jsontext
from plaita.clock import iso_utc, wall_ms
from plaita.errors import InputError
from plaita.policy import event_index
from plaita.policy.backoff import backoff_s
from plaita.policy.carrier import resume_payload
from plaita.services.host import NotServed, ServiceHost, served
from plaita.store import events
from plaita.store.call import Answer, Refused, Value
from plaita.store.events import Logged, Waiter, Waking
from plaita.store.keys import Keys, check_tenant

BLOCK_MS = 1000
RECLAIM_EVERY_S = 5.0
RECLAIM_IDLE_MS = 15_000  # a host that fans out for longer shares the rest with another, which does no harm
TRIM_EVERY_S = 600.0
LOG_KEPT_MS = 7 * 86_400_000


class BadEvent(ValueError):
    """An entry of the log that no plaita wrote."""


@dataclass(frozen=True, slots=True)
class ReadEvent:
    """An entry of the log, judged. ``data`` is the JSON value, ``told`` the JSON text that a node gets."""

    tenant: str
    event_id: str
    event_type: str
    correlation: str | None
    data: Any
    told: bytes
    config_family: str | None


def read_event(fields: dict[bytes, bytes]) -> ReadEvent:
    """Raises BadEvent naming the field."""
    try:
        texts = {name.decode(): value.decode() for name, value in fields.items() if name != b"data"}
        raw = fields.get(b"data", b"null")
        data = jsontext.loads(raw)
        event_id, event_type = texts.get("event_id", ""), texts.get("event_type", "")
        tenant = check_tenant(texts.get("tenant_id", ""))
    except (UnicodeDecodeError, jsontext.JSONTextError, InputError) as error:
        raise BadEvent(str(error)) from None
    if not event_id or not event_type:
        raise BadEvent("event_id and event_type: an event has both")
    told = events.told(event_id, event_type, raw)
    return ReadEvent(
        tenant, event_id, event_type, texts.get("correlation_id"), data, told, texts.get("config_family") or None
    )


class EventFeed:
    """The service ``events``."""

    def __init__(self, host: ServiceHost) -> None:
        self._host = host
        self._keys = host.keys
        self._failures = 0

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        reclaim_at = trim_at = loop.time()
        while True:
            now = loop.time()
            if now >= reclaim_at:
                reclaim_at = now + RECLAIM_EVERY_S * (0.8 + random.random() * 0.4)
                call = events.reclaim(self._keys, self._host.consumer, RECLAIM_IDLE_MS)
                await self._take(await self._host.run(call))
            if now >= trim_at:
                trim_at = now + TRIM_EVERY_S * (0.8 + random.random() * 0.4)
                await self._host.run(events.trim(self._keys, LOG_KEPT_MS))
            await self._take(await self._host.run(events.read_log(self._keys, self._host.consumer, BLOCK_MS)))

    async def _take(self, answer: Answer[list[Logged]]) -> None:
        if isinstance(answer, Refused) and answer.reason == "no_group":
            await self._host.run(events.make_group(self._keys))
            return
        if not isinstance(answer, Value):
            await asyncio.sleep(backoff_s(self._failures, base=0.1, cap=2.0, jitter=random.random()))
            self._failures += 1
            return
        self._failures = 0
        for entry in answer.value:
            try:
                await self._one(entry)
            except NotServed as why:
                self._host.tell("warning", "event.left", log_id=entry.log_id, why=why)
                return  # it stays pending: any host goes on with it

    async def _one(self, entry: Logged) -> None:
        self._host.count("events_read")
        try:
            event = read_event(dict(entry.fields))
        except BadEvent as error:
            self._host.count("events_bad")
            self._host.tell("error", "event.unreadable", log_id=entry.log_id, error=error)
        else:
            woken = await self._fan_out(event)
            self._host.tell("debug", "event.done", event_id=event.event_id, event_type=event.event_type, woken=woken)
        await served(self._host, events.done(self._keys, entry.log_id))

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
                woken += await self._wake_all(keys, event, digest)
        return woken

    async def _wake_all(self, keys: Keys, event: ReadEvent, digest: str) -> int:
        woken, cursor = 0, "0"
        while True:
            page = await served(self._host, events.waiters(keys, digest, cursor))
            if page.residual:
                self._host.count("subscriptions_residual", page.residual)
            for at in range(0, len(page.waiters), events.PAGE):
                part = page.waiters[at : at + events.PAGE]
                wakings = self._wakings(event, part)
                woken += await served(self._host, events.wake_many(keys, event.event_id, event.told, wakings))
            cursor = page.cursor
            if cursor == "0":
                self._host.count("waits_woken", woken)
                return woken

    def _wakings(self, event: ReadEvent, waiters: Sequence[Waiter]) -> list[Waking]:
        stamps = [] if event.config_family is None else [("config_family", event.config_family)]
        now = iso_utc(wall_ms()) or ""
        return [
            Waking(
                waiter,
                [
                    (
                        "payload",
                        resume_payload(
                            execution_id=waiter.execution_id,
                            flow_id=waiter.flow_id or None,
                            resume_type="event",
                            tenant_id=event.tenant,
                            timestamp=now,
                            wait=waiter.wait,
                        ),
                    ),
                    ("schema_version", "1"),
                    ("execution_id", waiter.execution_id),
                    ("tenant_id", event.tenant),
                    *stamps,
                ],
            )
            for waiter in waiters
        ]
