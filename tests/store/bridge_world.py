"""Executions that wait for queues, the server of these, and hosts that bridge (DECISIONS 41)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest

from plaita import jsontext
from plaita.policy import bridges as policy
from plaita.policy.bridges import Asked
from plaita.services.bridges import QueueBridges
from plaita.services.queue_links import end_wait
from plaita.store import bridges, events, executions, queues
from plaita.store.call import Answer, Call, Unavailable, Unknown, Value
from plaita.store.executions import Wake
from plaita.store.keys import Keys
from plaita.store.runner_async import AsyncRunner
from plaita.testing.server import Server

CEILING_S = 30.0


@dataclass
class Host:
    """A ServiceHost that remembers what it was told."""

    runner: AsyncRunner
    keys: Keys
    redis_targets: tuple[str, ...]
    consumer: str = "host1"
    said: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    busy_s: float = 0.0  # how late it sees what it has taken
    lost: dict[str, int] = field(default_factory=dict)  # calls that are done and whose answer is lost, the next ones
    away: dict[str, int] = field(default_factory=dict)  # calls that are not done, the next ones

    async def run(self, call: Call[Any]) -> Answer[Any]:
        if self.away.get(call.name, 0) > 0:
            self.away[call.name] -= 1
            return Unavailable("for a test")
        answer = await self.runner.run(call)
        if self.lost.get(call.name, 0) > 0:
            self.lost[call.name] -= 1
            return Unknown("for a test")
        if call.name == "bridges.take":
            await asyncio.sleep(self.busy_s)
        return answer

    def tell(self, level: str, event: str, **fields: Any) -> None:
        self.said.append((event, fields))

    def count(self, name: str, amount: int = 1) -> None:
        self.counts[name] = self.counts.get(name, 0) + amount


@pytest.fixture(scope="module")
def target_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("target"))
    server.listen()
    yield server
    server.close()


@pytest.fixture
def target(target_process: Server) -> Server:
    target_process.flush()
    return target_process


async def blocked_by_the_log(runner: AsyncRunner, keys: Keys) -> asyncio.Task[Any]:
    """What each host with services has: a read of the log of events that waits, for longer than any test."""
    await runner.run(events.make_group(keys))
    task = asyncio.create_task(runner.run(events.read_log(keys, "reader", 600_000)))
    await asyncio.sleep(0)
    return task


class Queues:
    """Executions of ``world`` that wait for queues of ``target``, and hosts that bridge."""

    def __init__(self, world: Any, target: Server) -> None:
        self.world, self.target = world, target
        self.port = target.listen()
        self.place = f"127.0.0.1:{self.port}"
        self.keys = world.keys
        self.bridges: list[QueueBridges] = []  # those that run, or ran last

    def config(self, name: str = "q", kind: str = "list", **changes: Any) -> bytes:
        host = {"host": "127.0.0.1", "port": self.port, "db": 0, "password": self.target.password}
        return jsontext.dumps(
            {
                "redis_config": {**host, **changes.pop("redis", {})},
                "queue_config": {"name": name, "type": kind, "message_format": changes.pop("form", "json")},
                "listen_config": {"timeout_seconds": 0, "batch_size": changes.pop("batch", 1)},
            }
        )

    def waits(self, execution: str = "e", config: bytes | None = None, **changes: Any) -> None:
        entry, begun = self.world.running(execution)
        said = {"task_type": "redis_queue", "task_id": f"redis_queue_w_{execution}", "config": config or self.config()}
        answer = self.world.suspend(
            begun, entry, execution_id=execution, event_type="redis_message", **(said | changes)
        )
        assert isinstance(answer, Value), answer

    def ends(self, execution: str = "e", kind: Literal["event", "timeout"] = "timeout") -> None:
        """The wait, by something else than a message."""
        answer = self.world.run(executions.wake(self.keys, Wake(execution, kind, b"{}", "", b"{}")))
        assert isinstance(answer, Value)
        assert answer.value.woken

    def now(self) -> int:
        seconds, micros = self.world.raw("TIME")
        return int(seconds) * 1000 + int(micros) // 1000

    def message(self, execution: str = "e") -> Any:
        """What ended the wait: the event's data; None while it waits."""
        row = self.world.row(execution)
        if not row.get("woken"):
            return None
        assert row["woken"] == b"event", row["woken"]
        return jsontext.loads(row["wake_data"])["event_data"]

    def push(self, *messages: Any, name: str = "q") -> None:
        for message in messages:
            self.target.do("RPUSH", name, message if isinstance(message, bytes) else jsontext.dumps(message))

    def kept(self, name: str = "q") -> list[Any]:
        return [jsontext.loads(each) for each in self.target.do("LRANGE", name, 0, -1)]

    def left_behind(self) -> list[bytes]:
        """Everything on the queue's server but the queues and the marks that run out."""
        return [key for key in self.target.do("KEYS", "*") if b":processing:" in key and not key.endswith(b":closed")]

    def records(self) -> int:
        found: int = self.world.raw("HLEN", self.keys.bridges)
        return found

    def serve(
        self,
        until: Callable[[], bool],
        hosts: int = 1,
        allowed: tuple[str, ...] | None = None,
        prepare: Callable[[Host], None] = lambda host: None,
    ) -> list[Host]:
        """Run bridges until something holds. ``prepare`` is given each host before it begins."""

        async def run() -> list[Host]:
            named = (self.place,) if allowed is None else allowed
            made = [Host(AsyncRunner(self.world.server.url), self.keys, named, f"host{n}") for n in range(hosts)]
            for host in made:
                prepare(host)
            self.bridges = [QueueBridges(host) for host in made]
            reading = [await blocked_by_the_log(host.runner, self.keys) for host in made]
            tasks = [asyncio.create_task(each.run()) for each in self.bridges]
            try:
                async with asyncio.timeout(CEILING_S):
                    while not until():
                        assert not any(task.done() for task in tasks), tasks
                        await asyncio.sleep(0.02)
            finally:
                for task in [*tasks, *reading]:
                    task.cancel()
                await asyncio.gather(*tasks, *reading, return_exceptions=True)
                for host in made:
                    await host.runner.close()
            return made

        return asyncio.run(run())

    def taken_by_a_host_that_died(self, *, woken: bool = False) -> bridges.Wait:
        """As far as a host came that had taken a message: ``woken``, or just before that."""

        async def run() -> bridges.Wait:
            host = Host(AsyncRunner(self.world.server.url), self.keys, ())
            page = self.world.do(bridges.take(self.keys, "redis_queue", "dead", 10, lock_ms=1))
            wait = self.world.do(bridges.begin(self.keys, page.taken[0][0], ""))
            queue = policy.queue_of(jsontext.loads(wait.config))
            runner = AsyncRunner(queue.target.url)
            taken = await runner.run(queues.take("q", wait.digest, queue.batch, 1000))
            assert isinstance(taken, Value)
            assert taken.value.messages
            if woken:
                asked = Asked("default", wait.execution_id, "f", "w")
                assert await end_wait(host, wait, policy.told(asked, queue, taken.value.messages, 1))
            await runner.close()
            await host.runner.close()
            return wait

        return asyncio.run(run())


@pytest.fixture
def there(world: Any, target: Server) -> Queues:
    return Queues(world, target)


def settled(there: Queues) -> bool:
    return there.records() == 0
