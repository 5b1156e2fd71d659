"""What the tests of schedules share: a host that looks, and a world of due times that can be moved."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest

from plaita.client import schedules as asked
from plaita.client.operations import Operation, Pause
from plaita.services.schedules import ScheduleService
from plaita.store.call import Answer, Call
from plaita.store.keys import Keys
from plaita.store.runner_sync import SyncRunner

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000


@dataclass
class Host:
    """A ``ServiceHost`` on a blocking runner. ``before``: called with each call before it is sent; what it answers is
    the answer. ``after``: the same, once the server has done it."""

    keys: Keys
    runner: SyncRunner
    consumer: str = "host"
    told: list[tuple[str, str, dict[str, Any]]] = field(default_factory=list)
    counted: dict[str, int] = field(default_factory=dict)
    before: Any = None
    after: Any = None

    async def run(self, call: Call[Any]) -> Answer[Any]:
        said = self.before(call) if self.before else None
        if said is not None:
            return said  # type: ignore[no-any-return]
        answer = self.runner.run(call)
        return (self.after(call) if self.after else None) or answer

    def tell(self, level: str, event: str, **fields: Any) -> None:
        self.told.append((level, event, fields))

    def count(self, name: str, amount: int = 1) -> None:
        self.counted[name] = self.counted.get(name, 0) + amount

    def events(self) -> list[str]:
        return [event for _, event, _ in self.told]

    def look(self) -> float:
        return asyncio.run(ScheduleService(self).scan_once())


@dataclass
class Clocks:
    """The world, and what a test of schedules does in it."""

    world: Any
    host: Host

    @property
    def keys(self) -> Keys:
        return self.host.keys

    def of(self, tenant: str) -> Clocks:
        return Clocks(self.world, Host(self.keys.for_tenant(tenant), self.host.runner))

    def perform(self, operation: Operation[Any]) -> Any:
        answer: Any = None
        try:
            while True:
                step = operation.send(answer)
                answer = None if isinstance(step, Pause) else self.world.run(step)
        except StopIteration as done:
            return done.value

    def put(self, schedule_id: str = "s", cron: str = "* * * * *", flow: str = "f", **named: Any) -> dict[str, Any]:
        found: dict[str, Any] = self.perform(asked.put(self.keys, schedule_id, flow, cron, **named))
        return found

    def show(self, schedule_id: str = "s") -> dict[str, Any]:
        found: dict[str, Any] = self.perform(asked.get(self.keys, schedule_id))
        return found

    def history(self, schedule_id: str = "s") -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.perform(asked.history(self.keys, schedule_id))["fires"]
        return found

    def now(self) -> int:
        seconds, micro = self.world.raw("TIME")
        return int(seconds) * 1000 + int(micro) // 1000

    def since(self, ago_ms: int, schedule_id: str = "s", step_ms: int = MINUTE) -> int:
        """As if nobody had looked for so long: the due time, a whole step, is then."""
        due = (self.now() - ago_ms) // step_ms * step_ms
        self.world.raw("ZADD", self.keys.schedules_due, "XX", due, self.keys.schedule_member(schedule_id))
        return due

    def due(self, schedule_id: str = "s") -> int | None:
        score = self.world.raw("ZSCORE", self.keys.schedules_due, self.keys.schedule_member(schedule_id))
        return None if score is None else int(float(score))

    def started(self) -> list[dict[bytes, bytes]]:
        """Rows of the tenant, the oldest first, each with its ``id``."""
        found = []
        for name in self.world.raw("ZRANGE", self.keys.index(), 0, -1):
            flat = self.world.raw("HGETALL", self.keys.row(name.decode()))
            found.append(dict(zip(flat[::2], flat[1::2], strict=True)) | {b"id": name})
        return found

    def dedup_keys(self) -> list[str]:
        return sorted(row[b"dedup_key"].decode() for row in self.started())


@pytest.fixture
def clocks(world: Any) -> Clocks:
    return Clocks(world, Host(world.keys, world.runner))
