"""The way out, after the last step: parts end in the order in which others need them, and nobody is waited for long.

Nothing that was delivered at the last moment is left lying, the registry entry and the consumer's name go, and no
process of the tree is left. What Redis does not answer in time is left to others, who find it by lease and idle time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from plaita.store import carriers
from plaita.store.keys import Keys
from plaita.store.runner_async import AsyncRunner
from plaita.supervisor import logs
from plaita.supervisor.consumer import Consumer
from plaita.supervisor.gate import Gate
from plaita.supervisor.housekeeping import Housekeeping
from plaita.supervisor.lease_keeper import LeaseKeeper
from plaita.supervisor.pool import Pool
from plaita.supervisor.reaping import Reaping
from plaita.supervisor.registrar import Registrar
from plaita.supervisor.templates import Templates
from plaita.supervisor.temporary import TemporaryFolders

REDIS_S = 1.0  # for each thing that is still said to Redis; after one that was not answered, nothing is
SILENT_REDIS_S = 0.3  # the same where it was silent before
CHILDREN_S = 2.0


class Leaving:
    """All that must end, once."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        runner: AsyncRunner,
        keys: Keys,
        consumer_name: str,
        gate: Gate,
        consumer: Consumer,
        registrar: Registrar,
        keeper: LeaseKeeper,
        housekeeping: Housekeeping,
        pool: Pool,
        templates: Templates,
        temporary: TemporaryFolders,
        reaping: Reaping,
    ) -> None:
        self._loop = loop
        self._runner = runner
        self._keys = keys
        self._consumer_name = consumer_name
        self._gate = gate
        self._consumer = consumer
        self._registrar = registrar
        self._keeper = keeper
        self._housekeeping = housekeeping
        self._pool = pool
        self._templates = templates
        self._temporary = temporary
        self._reaping = reaping
        self._awaited: set[asyncio.Task[None]] = set()
        self._patience_s = REDIS_S

    def first(self, giving: asyncio.Task[None]) -> None:
        """A task that gives a carrier back: it is waited for before anything ends."""
        self._awaited.add(giving)
        giving.add_done_callback(self._awaited.discard)

    async def leave(
        self,
        consuming: asyncio.Task[None] | None,
        children: Callable[[], set[int]],
        stay: Callable[[], set[int]],
        *,
        silent: bool,
    ) -> None:
        """``consuming`` is the consumer's task, if it ever began. ``children()`` are the living processes of ours;
        ``stay()`` those that go on without us. ``silent``: Redis did not answer when the drain gave up."""
        self._patience_s = SILENT_REDIS_S if silent else REDIS_S
        self._pool.close()
        self._pool.kill_all()  # nothing is in hand any more; they end while Redis is told
        self._templates.stop()
        if consuming is not None:
            consuming.cancel()
            if self._redis:
                await self._ask(self._give_back())
        self._consumer.drop()
        await self._ask(self._registrar.unregister())
        await self._keeper.stop()
        await self._housekeeping.stop()
        if self._redis:
            # Names of consumers must not pile up where each start has a new one (KNOWN-TROUBLE 29). After all that
            # reads or claims under it: each of those would make the name anew.
            self._runner.drop("reader")
            self._runner.drop("events")
            await self._ask(self._runner.run(carriers.leave(self._keys, self._consumer_name)))
        await self._last_child(children, stay)
        self._temporary.close()

    @property
    def _redis(self) -> bool:
        return self._gate.conditions["redis"].open

    async def _ask(self, work: Coroutine[Any, Any, object]) -> None:
        if not self._patience_s:
            work.close()
            return
        try:
            await asyncio.wait_for(work, self._patience_s)
        except TimeoutError:
            logs.warning(
                "redis.silent", seconds=self._patience_s, advice="what it was not told is found by lease and idle time"
            )
            self._patience_s = 0.0

    async def _give_back(self) -> None:
        await self._runner.unblock()
        await self._consumer.finish()
        await asyncio.gather(*self._awaited)

    async def _last_child(self, children: Callable[[], set[int]], stay: Callable[[], set[int]]) -> None:
        deadline = self._loop.time() + CHILDREN_S
        while children() - stay() and self._loop.time() < deadline:
            self._reaping.reap()
            await asyncio.sleep(0.005)
        self._templates.kill()
