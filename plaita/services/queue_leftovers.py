"""What waits for queues that are over have left to do on their queue's server (DECISIONS 41): a list's messages that a
host had moved for them are used, put aside or given back.

Any host does it, several at once do no harm. While that server cannot be reached the record stays, for
``policy.bridges.KEEP_LEFTOVERS_MS`` at most: then it is told where the messages lie, and given up. No message is
deleted by that.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass

from plaita import jsontext
from plaita.clock import iso_utc
from plaita.policy import bridges as policy
from plaita.policy.backoff import backoff_s
from plaita.policy.bridges import Queue, Target
from plaita.services.host import NotServed, ServiceHost, served
from plaita.services.queue_links import TELL_EVERY_S, Link, TargetAway
from plaita.store import bridges, queues
from plaita.store.bridges import Leftover

EVERY_S = 3.0
BUSY_SHARE = 10
AT_ONCE = 8  # servers
A_ROUND = 100  # of one server


@dataclass(frozen=True, slots=True)
class Away:
    """``since``: when the oldest wait was over, epoch ms; ``left``: how many are."""

    since: int
    left: int
    why: str


@dataclass(slots=True)
class _Server:
    """What is left for one server. ``since``: of the oldest, epoch ms; ``why``: it could not be done the last time,
    '' before that. ``again_at``: the loop's time; ``told_at`` likewise, None for never."""

    since: int
    left: int = 0
    why: str = ""
    failures: int = 0
    again_at: float = 0.0
    told_at: float | None = None


class Leftovers:
    """``link_of``: this host's connection to a server, None for none; ``over`` is told each wait that is."""

    def __init__(
        self, host: ServiceHost, holder: str, link_of: Callable[[Target], Link | None], over: Callable[[str], None]
    ) -> None:
        self._host = host
        self._holder = holder
        self._link_of = link_of
        self._over = over
        self._servers: dict[Target, _Server] = {}
        self._scanned_s = 0.0  # how long it took to look through the records the last time

    async def run(self) -> None:
        while True:
            try:
                await self.clear_up()
            except NotServed:
                pass  # plaita's own server: the host sees to that
            await asyncio.sleep(max(EVERY_S, BUSY_SHARE * self._scanned_s))

    def servers(self) -> dict[str, Away]:
        """Those that cannot be reached and for which something is left to do, by how they are shown."""
        found: dict[str, Away] = {}
        for target, server in self._servers.items():
            other = found.get(target.shown, Away(server.since, 0, ""))  # with another password
            since = min(server.since, other.since)
            found[target.shown] = Away(since, server.left + other.left, server.why)
        return found

    async def clear_up(self) -> None:
        """Once through all records. Raises NotServed."""
        found: dict[Target, list[tuple[Leftover, Queue]]] = {}
        counts: dict[Target, int] = {}
        loop = asyncio.get_running_loop()
        began, cursor = loop.time(), "0"
        while True:
            page = await served(self._host, bridges.left(self._host.keys, cursor))
            for digest in page.unreadable:
                await self._drop_unreadable(digest)
            for each in page.waits:
                self._over(each.wait.digest)
                try:
                    queue = policy.queue_of(jsontext.loads(each.wait.config))
                except (ValueError, jsontext.JSONTextError):
                    await self._drop_unreadable(each.wait.digest)
                    continue
                if queue.kind != "list":  # nothing of it stands there
                    await self._done(each)
                    continue
                waits = found.setdefault(queue.target, [])
                counts[queue.target] = counts.get(queue.target, 0) + 1
                if len(waits) < A_ROUND:
                    waits.append((each, queue))
            now, cursor = page.now, page.cursor
            if cursor == "0":
                break
        self._scanned_s = loop.time() - began
        for target in [target for target in self._servers if target not in found]:
            self._well(target)
        limit = asyncio.Semaphore(AT_ONCE)

        async def one(target: Target) -> None:
            async with limit:
                await self._of_server(target, found[target], counts[target], now)

        in_turn = sorted(found, key=lambda target: target in self._servers)  # those that were away come last
        failures = [each for each in await asyncio.gather(*map(one, in_turn), return_exceptions=True) if each]
        for failure in sorted(failures, key=lambda each: isinstance(each, NotServed)):
            raise failure

    async def _of_server(self, target: Target, waits: list[tuple[Leftover, Queue]], count: int, now: int) -> None:
        known = self._servers.get(target)
        if known is not None:
            known.left, known.since = count, min(each.since for each, _ in waits)
            if asyncio.get_running_loop().time() < known.again_at:
                return
        try:
            refusal = policy.target_refusal(target, self._host.redis_targets)
            if refusal is not None:
                raise TargetAway(refusal)
            await self._settle(target, waits)
        except TargetAway as why:
            self._away(target, waits, count, str(why))
            for each, queue in waits:
                if now - each.since > policy.KEEP_LEFTOVERS_MS:
                    await self._give_up(target, each, queue, str(why))
        else:
            self._well(target)

    async def _settle(self, target: Target, waits: list[tuple[Leftover, Queue]]) -> None:
        standing = self._link_of(target)
        link = standing or Link(self._host, target, self._holder)
        try:
            for each, queue in waits:
                await link.settle(each.wait, queue, each.becomes)
        finally:
            if standing is None:
                await link.close()

    def _away(self, target: Target, waits: list[tuple[Leftover, Queue]], count: int, why: str) -> None:
        now = asyncio.get_running_loop().time()
        since = min(each.since for each, _ in waits)
        server = self._servers.setdefault(target, _Server(since))
        server.left, server.since, server.why = count, since, why
        server.again_at = now + backoff_s(server.failures, base=EVERY_S, cap=60.0, jitter=random.random())
        server.failures += 1
        self._host.count("queue_target_failures")
        if server.told_at is None or now - server.told_at >= TELL_EVERY_S:
            server.told_at = now
            self._host.tell(
                "warning", "queue.target_away", target=target.place, left=count, since=iso_utc(since), why=why
            )

    def _well(self, target: Target) -> None:
        if self._servers.pop(target, None) is not None:
            self._host.tell("info", "queue.target_back", target=target.place)

    async def _give_up(self, target: Target, each: Leftover, queue: Queue, why: str) -> None:
        wait = each.wait
        self._host.count("queue_leftovers_given_up")
        self._host.tell(
            "error",
            "queue.given_up",
            target=target.place,
            db=target.db,
            queue=queue.name,
            messages=queues.processing(queue.name, wait.digest),
            they_are="to be put back" if each.becomes == "back" else f"{each.becomes}, the others to be put back",
            tenant=wait.tenant,
            execution_id=wait.execution_id,
            why=why,
        )
        await self._done(each)

    async def _drop_unreadable(self, digest: str) -> None:
        """Nobody can tell which server it was: that is all that can be told."""
        self._over(digest)
        self._host.count("queue_leftovers_given_up")
        self._host.tell("error", "queue.record_unreadable", messages=queues.processing("*", digest))
        await served(self._host, bridges.done(self._host.keys, digest, self._holder))

    async def _done(self, each: Leftover) -> None:
        await served(self._host, bridges.done(self._host.keys, each.wait.digest, self._holder))
