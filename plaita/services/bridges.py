"""Bridges from queues on other servers to the executions that wait for them (ledger E1, DECISIONS 41).

Every host looks through the waits of all tenants and takes what nobody reads for, up to a limit; a lock with a short
life keeps others away meanwhile. Which servers it may connect to at all is ``PLAITA_REDIS_NODE_TARGETS``. What a host
holds and cannot read for, it lets go for a while, so that another one may try.
"""

from __future__ import annotations

import asyncio
import contextlib
import traceback
from collections.abc import Iterable
from typing import Any

from plaita import ids, jsontext
from plaita.clock import iso_utc, wall_ms
from plaita.policy import bridges as policy
from plaita.policy.bridges import Asked, Queue, Target
from plaita.services.host import NotServed, ServiceHost, served
from plaita.services.queue_leftovers import Leftovers
from plaita.services.queue_links import TELL_EVERY_S, Link, Reading, end_wait
from plaita.store import bridges
from plaita.store.bridges import FIRST, PAGE, Wait

TYPE = "redis_queue"
LOOK_EVERY_S = 1.0
BUSY_SHARE = 10  # however many wait, looking through them takes a tenth of the time
MAX_WAITS = 1000  # that this host reads for at a time
MAX_LINKS = 64  # servers, databases and passwords
LET_GO_S = 10.0
RELEASE_S = 1.0
AWAY_S = 20.0  # longer than a link rests between two tries


class QueueBridges:
    """The service ``redis_queue``."""

    def __init__(self, host: ServiceHost) -> None:
        self._host = host
        self._holder = f"{host.consumer}/{ids.new_nonce()}"
        self._links: dict[Target, tuple[Link, asyncio.Task[None]]] = {}
        self._held: dict[str, Link] = {}  # by digest
        self._let_go: dict[str, float] = {}  # by digest: until when this host leaves it to others
        self._told: dict[str, float] = {}
        self._leftovers = Leftovers(host, self._holder, self._standing, self._forget)

    async def run(self) -> None:
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._looking(), name="queues looked for")
                tasks.create_task(self._leftovers.run(), name="queues cleared up")
        finally:
            await self._stop()

    def state(self) -> dict[str, Any]:
        """For ``status``: ``{"targets": [{"target", "waits", "away_since", "error", "left", "left_since"}]}``."""
        found = self._leftovers.servers()
        rows: dict[str, tuple[int, int | None, str | None, int, int | None]]
        rows = {shown: (0, row.since, row.why, row.left, row.since) for shown, row in found.items()}
        for target, (link, _) in self._links.items():
            waits, since, why, left, left_since = rows.get(target.shown, (0, None, None, 0, None))
            if link.away is not None:
                since, why = link.away.since, link.away.why
            rows[target.shown] = waits + len(link.readings), since, why, left, left_since
        return {
            "targets": [
                {
                    "target": shown,
                    "waits": waits,
                    "away_since": iso_utc(since),
                    "error": why,
                    "left": left,
                    "left_since": iso_utc(left_since),
                }
                for shown, (waits, since, why, left, left_since) in sorted(rows.items())
            ]
        }

    # -- waits -------------------------------------------------------------------------------------

    async def _looking(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            try:
                await self.look()
                await self._close_idle()
            except NotServed:
                pass  # plaita's own server: what is held meanwhile may become another's
            await asyncio.sleep(rest_s(loop.time() - began))

    async def look(self) -> None:
        """Once through all waits: keep what is held, take what nobody holds, leave what is over. Raises NotServed."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        self._let_go = {digest: until for digest, until in self._let_go.items() if until > now}
        await self._release(self._without_server(now))
        seen: set[str] = set()
        unknown: list[str] = []
        after = FIRST
        while True:
            room = max(0, MAX_WAITS - len(self._held))
            asked_at = loop.time()  # before: a wait counts as older than it is, never as younger
            call = bridges.take(
                self._host.keys, TYPE, self._holder, room, after=after, left_alone=[*self._let_go][-MAX_WAITS:]
            )
            page = await served(self._host, call)
            seen.update(page.held)
            # An answer that was lost, a page that was not got through, a wait that goes on after a cancel was undone:
            # others, or the next look, take them anew.
            unknown += [digest for digest in page.held if not self._reads_for(digest)]
            refused = []
            for wait, begun in page.taken:
                seen.add(wait.digest)
                if not await self._take(wait, begun, page.now, asked_at):
                    refused.append(wait.digest)
            await self._release(refused)
            if page.count < PAGE:
                break
            after = page.last
        for digest in [*(digest for digest in self._held if digest not in seen), *unknown]:
            self._forget(digest)
        await self._release(unknown)

    async def _take(self, wait: Wait, begun: bool, now: int, asked_at: float) -> bool:
        """False: not for this host, now. Raises NotServed."""
        asked = Asked(wait.tenant, wait.execution_id, wait.flow_id or None, wait.node_id)
        try:
            queue = policy.queue_of(jsontext.loads(wait.config))
        except (ValueError, jsontext.JSONTextError) as error:
            queue = Queue(Target("", 0, 0), "", "list", "json", 1)
            refusal: str | None = str(error)
        else:
            refusal = policy.target_refusal(queue.target, self._host.redis_targets)
        if refusal is None:
            link = self._link(queue.target)
            if link is not None:
                link.add(Reading(wait, queue, max(0, now - int(wait.since)), asked_at))
                self._held[wait.digest] = link
                return True
        elif begun:  # by a host that was told otherwise: its messages may be on their way
            self._tell_once(queue.target.place, "queue.target_refused", target=queue.target.place, why=refusal)
        else:
            await end_wait(self._host, wait, policy.told_error(asked, queue, refusal, wall_ms()))
            await served(self._host, bridges.done(self._host.keys, wait.digest, self._holder))
            return True
        self._let_go[wait.digest] = asyncio.get_running_loop().time() + LET_GO_S
        return False

    def _without_server(self, now: float) -> list[str]:
        """Waits whose server this host has tried to reach for a while: it may be this host that is cut off."""
        lost = []
        for link, _ in self._links.values():
            if link.away is not None:
                since = link.away.at
                lost += [digest for digest, each in link.readings.items() if now - max(since, each.asked_at) > AWAY_S]
        for digest in lost:
            self._forget(digest)
            self._let_go[digest] = now + LET_GO_S
        return lost

    def _reads_for(self, digest: str) -> bool:
        link = self._held.get(digest)
        return link is not None and digest in link.readings

    def _forget(self, digest: str) -> None:
        link = self._held.pop(digest, None)
        if link is not None:
            link.remove(digest)

    async def _release(self, digests: list[str]) -> None:
        for page in _pages(digests):
            await served(self._host, bridges.release(self._host.keys, page, self._holder))

    # -- links -------------------------------------------------------------------------------------

    def _standing(self, target: Target) -> Link | None:
        """The connection to a server, where this host has one."""
        return self._links[target][0] if target in self._links else None

    def _link(self, target: Target) -> Link | None:
        """The connection to a server; None where this host has as many as it may."""
        standing = self._standing(target)
        if standing is not None:
            return standing
        if len(self._links) >= MAX_LINKS:
            self._tell_once("links", "queue.too_many_targets", target=target.place, limit=MAX_LINKS)
            return None
        link = Link(self._host, target, self._holder)
        self._links[target] = link, asyncio.create_task(self._keep(link), name=f"queues of {target.place}")
        return link

    async def _keep(self, link: Link) -> None:
        while True:
            try:
                await link.run()
            except Exception:  # noqa: BLE001 - a bug in one link must not end the others, nor itself for good
                self._host.count("service_failures")
                self._host.tell("error", "service.failed", service=TYPE, traceback=traceback.format_exc())
                await asyncio.sleep(LOOK_EVERY_S)

    async def _close_idle(self) -> None:
        for target in [target for target, (link, _) in self._links.items() if link.idle]:
            await self._close(target)

    async def _close(self, target: Target) -> None:
        link, task = self._links.pop(target)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await link.close()

    async def _stop(self) -> None:
        for target in [*self._links]:
            await self._close(target)
        held = [*self._held]
        self._held.clear()
        with contextlib.suppress(TimeoutError):  # plaita's own server is away: the locks run out by themselves
            async with asyncio.timeout(RELEASE_S):
                for page in _pages(held):
                    await self._host.run(bridges.release(self._host.keys, page, self._holder))

    def _tell_once(self, about: str, event: str, **fields: object) -> None:
        now = asyncio.get_running_loop().time()
        if now - self._told.get(about, -TELL_EVERY_S) >= TELL_EVERY_S:
            if len(self._told) > MAX_LINKS:
                self._told.clear()
            self._told[about] = now
            self._host.tell("warning", event, **fields)


def rest_s(took_s: float) -> float:
    """The pause after a look; never so long that what this host holds runs out meanwhile."""
    return max(LOOK_EVERY_S, min(BUSY_SHARE * took_s, bridges.LOCK_MS / 3000))


def _pages(digests: list[str]) -> Iterable[list[str]]:
    return (digests[at : at + PAGE] for at in range(0, len(digests), PAGE))
