"""Hosts that run the service of events in this process, and count, fail and die where a test says so."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from plaita.services.events import EventFeed
from plaita.store.call import Answer, Call
from plaita.store.keys import Keys
from plaita.store.runner_async import AsyncRunner
from plaita.supervisor.stats import Stats
from plaita.testing.server import Server

T = TypeVar("T")


@dataclass
class Host:
    """A ``ServiceHost`` that counts. ``dies_at``: the number of the work call at which it is dead; with ``sent`` the
    call was carried out all the same, and nobody saw the answer. ``freezes_at``: likewise, but it goes on
    once it is ``thawed``. ``spoils``: answers to give instead, by call name."""

    keys: Keys
    runner: AsyncRunner
    consumer: str = "host1"
    min_idle_ms: int = 1
    redis_targets: tuple[str, ...] = ()
    dies_at: int = 0
    sent: bool = False
    spoils: dict[str, Callable[[Call[Any]], Any]] = field(default_factory=dict)
    calls: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)
    told: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    work: list[str] = field(default_factory=list)
    dead: asyncio.Event = field(default_factory=asyncio.Event)
    stats: Stats = field(default_factory=Stats)
    thawed: asyncio.Event = field(default_factory=asyncio.Event)
    freezes_at: int = 0

    async def run(self, call: Call[T]) -> Answer[T]:
        name = call.name.rpartition(".")[2]
        if self.dead.is_set():
            await self.thawed.wait()
        self.calls[name] += 1
        if name not in ("read_log", "read_own", "reclaim", "trim", "make_group"):
            self.work.append(name)
            if len(self.work) == self.freezes_at:
                self.dead.set()
                await self.thawed.wait()
            if len(self.work) == self.dies_at:
                if self.sent:
                    await self.runner.run(call)
                self.dead.set()
                await asyncio.Event().wait()
        spoil = self.spoils.get(name)
        if spoil is not None:
            answer = spoil(call)
            if answer is not None:
                return answer  # type: ignore[no-any-return]
        return await self.runner.run(call)

    def tell(self, level: str, event: str, **fields: Any) -> None:
        self.told.append((event, fields))

    def count(self, name: str, amount: int = 1) -> None:
        self.stats.add(name, amount)  # knows all counters there are
        self.counts[name] += amount


async def until(condition: Callable[[], Any], what: str, seconds: float = 20.0) -> None:
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while not condition():
        assert loop.time() < end, f"no {what} within {seconds} s"
        await asyncio.sleep(0.005)


@dataclass
class Feeds:
    """``run`` gives an async test a maker of hosts with feeds; all end with it."""

    server: Server

    def run(self, test: Callable[[Callable[..., Host]], Awaitable[None]]) -> None:
        async def main() -> None:
            tasks: list[asyncio.Task[None]] = []
            runners: list[AsyncRunner] = []

            def host(**named: Any) -> Host:
                runner = AsyncRunner(self.server.url)
                runners.append(runner)
                made = Host(Keys(), runner, **named)
                tasks.append(asyncio.create_task(EventFeed(made).run()))
                return made

            try:
                await test(host)
                failed = [task.exception() for task in tasks if task.done()]
                assert not failed, failed
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
                for runner in runners:
                    await runner.close()

        asyncio.run(main())
