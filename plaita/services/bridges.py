"""Bridges from queues on other servers to the executions that wait for them (ledger E1, DECISIONS 41).

Every host looks through the waits of all tenants and takes what nobody reads for, up to a limit; a lock with a short
life keeps others away meanwhile. Which servers it may connect to at all is ``PLAITA_REDIS_NODE_TARGETS``.
"""

from __future__ import annotations

import asyncio
import traceback

from plaita import ids, jsontext
from plaita.clock import wall_ms
from plaita.policy import bridges as policy
from plaita.policy.bridges import Asked, Queue, Target
from plaita.services.host import NotServed, ServiceHost, served
from plaita.services.queue_links import Link, Reading, TargetAway, end_wait
from plaita.store import bridges
from plaita.store.bridges import PAGE, Wait

TYPE = "redis_queue"
LOOK_EVERY_S = 1.0
BUSY_SHARE = 10  # however many wait, looking through them takes a tenth of the time
LEFT_EVERY_S = 3.0
MAX_WAITS = 1000  # that this host reads for at a time
MAX_LINKS = 64  # servers, databases and passwords
TELL_EVERY_S = 300.0


class QueueBridges:
    """The service ``redis_queue``."""

    def __init__(self, host: ServiceHost) -> None:
        self._host = host
        self._holder = f"{host.consumer}/{ids.new_nonce()}"
        self._links: dict[Target, tuple[Link, asyncio.Task[None]]] = {}
        self._held: dict[str, Link | None] = {}
        self._told: dict[str, float] = {}

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        left_at = loop.time()
        try:
            while True:
                began = loop.time()
                try:
                    await self.look()
                    if began >= left_at:
                        await self.clear_up()
                        left_at = began + LEFT_EVERY_S
                    await self._close_idle()
                except NotServed:
                    pass  # plaita's own server: what is held meanwhile may become another's
                await asyncio.sleep(max(LOOK_EVERY_S, BUSY_SHARE * (loop.time() - began)))
        finally:
            await self._stop()

    # -- waits -------------------------------------------------------------------------------------

    async def look(self) -> None:
        """Once through all waits: keep what is held, take what nobody holds, leave what is over. Raises NotServed."""
        seen: set[str] = set()
        first = 0
        while True:
            room = max(0, MAX_WAITS - len(self._held))
            asked_at = asyncio.get_running_loop().time()  # before: a wait counts as older than it is, never as younger
            page = await served(self._host, bridges.take(self._host.keys, TYPE, self._holder, first, room))
            seen.update(page.held)
            for wait, begun in page.taken:
                seen.add(wait.digest)
                await self._take(wait, begun, page.now, asked_at)
            first += page.count
            if page.count < PAGE:
                break
        for digest in [digest for digest in self._held if digest not in seen]:
            self._forget(digest)

    async def _take(self, wait: Wait, begun: bool, now: int, asked_at: float) -> None:
        self._held[wait.digest] = None
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
                age_ms = max(0, now - int(wait.since))
                link.add(Reading(wait, queue, age_ms, asked_at))
                self._held[wait.digest] = link
        elif begun:  # by a host that was told otherwise: its messages may be on their way
            self._tell_once(f"{queue.target.place}", "queue.target_refused", target=queue.target.place, why=refusal)
        else:
            await end_wait(self._host, wait, policy.told_error(asked, queue, refusal, wall_ms()))
            await served(self._host, bridges.done(self._host.keys, wait.digest, self._holder))
            self._forget(wait.digest)

    async def clear_up(self) -> None:
        """Do what waits that are over have left to do on their queue's server. Raises NotServed."""
        cursor = "0"
        while True:
            page = await served(self._host, bridges.left(self._host.keys, self._holder, cursor))
            for wait, ended in page.waits:
                await self._clear_up_one(wait, ended or "back")
            cursor = page.cursor
            if cursor == "0":
                return

    async def _clear_up_one(self, wait: Wait, becomes: str) -> None:
        self._forget(wait.digest)
        queue = policy.queue_of(jsontext.loads(wait.config))
        refusal = policy.target_refusal(queue.target, self._host.redis_targets)
        if refusal is not None:
            self._tell_once(queue.target.place, "queue.target_refused", target=queue.target.place, why=refusal)
            return
        link = self._link(queue.target)
        if link is None:
            return
        try:
            await link.settle(wait, queue, becomes)
        except TargetAway as why:
            self._tell_once(queue.target.place, "queue.target_away", target=queue.target.place, why=str(why))

    def _forget(self, digest: str) -> None:
        link = self._held.pop(digest, None)
        if link is not None:
            link.remove(digest)

    # -- links -------------------------------------------------------------------------------------

    def _link(self, target: Target) -> Link | None:
        """The connection to a server; None where this host has as many as it may."""
        if target in self._links:
            return self._links[target][0]
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
        for at in range(0, len(held), PAGE):
            await self._host.run(bridges.release(self._host.keys, held[at : at + PAGE], self._holder))

    def _tell_once(self, about: str, event: str, **fields: object) -> None:
        now = asyncio.get_running_loop().time()
        if now - self._told.get(about, -TELL_EVERY_S) >= TELL_EVERY_S:
            if len(self._told) > MAX_LINKS:
                self._told.clear()
            self._told[about] = now
            self._host.tell("warning", event, **fields)
