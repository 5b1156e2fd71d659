"""What any supervisor does for all: moves what is due, sweeps residue, removes rows whose time is over.

Promotion runs in every state but STOPPED, so that a paused or draining host does not hold up the others (DECISIONS 29).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable

from plaita import jsontext
from plaita.policy.backoff import backoff_s
from plaita.services.manager import ServiceManager
from plaita.store import carriers, delayed, executions, registry
from plaita.store.call import Value
from plaita.store.carriers import START
from plaita.store.keys import Keys
from plaita.store.runner_async import AsyncRunner
from plaita.supervisor import logs
from plaita.supervisor.dead_letters import count_trimmed
from plaita.supervisor.stats import Stats
from plaita.supervisor.tenant_gate import TenantGate

MAX_SLEEP_S = 1.0
SWEEP_EVERY_S = 300.0
EXPIRE_EVERY_S = 60.0
CONSUMER_GONE_MS = 86_400_000  # a supervisor that lives reads far more often, and one that stops takes its name along


class Housekeeping:
    """Four loops, each with its own rhythm; all survive any answer of Redis. ``services``: those that run along with
    them, None with ``--no-services``."""

    def __init__(
        self,
        runner: AsyncRunner,
        keys: Keys,
        stats: Stats,
        dlq_maxlen: int,
        tenants: TenantGate,
        services: ServiceManager | None,
    ) -> None:
        self._runner = runner
        self._keys = keys
        self._stats = stats
        self._dlq_maxlen = dlq_maxlen
        self._tenants = tenants
        self._services = services
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        self._tasks = [
            asyncio.create_task(self._promote(), name="promote delayed"),
            asyncio.create_task(self._tenants.beat(), name="release parked"),
            asyncio.create_task(self._sweep(), name="sweep residue"),
            asyncio.create_task(self._expire(), name="expire rows"),
        ]
        if self._services is not None:
            self._services.start_all_services()

    async def stop(self) -> None:
        if self._services is not None:
            await self._services.stop_all_services()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _promote(self) -> None:
        failures = 0
        while True:
            answer = await self._runner.run(delayed.promote(self._keys, dlq_maxlen=self._dlq_maxlen))
            if not isinstance(answer, Value):
                await asyncio.sleep(backoff_s(failures, base=0.1, cap=2.0, jitter=random.random()))
                failures += 1
                continue
            failures = 0
            promoted = answer.value
            self._stats.add("delayed_promoted", promoted.moved)
            if promoted.bad:
                self._stats.add("delayed_bad", promoted.bad)
                logs.error("delayed.bad_records", count=promoted.bad)
                count_trimmed(self._stats, promoted.trimmed, self._dlq_maxlen)
            # The wait is capped and read anew from Redis: an earlier record may be added by anybody at any time.
            due_s = MAX_SLEEP_S if promoted.next_due_in_ms is None else promoted.next_due_in_ms / 1000
            await asyncio.sleep(min(MAX_SLEEP_S, max(0.005, due_s)) * (0.9 + random.random() * 0.1))

    async def _sweep(self) -> None:
        cursors = (START, START)
        while True:
            answer = await self._runner.run(carriers.sweep_residue(self._keys, 256, cursors))
            done = True
            if isinstance(answer, Value):
                self._stats.add("residue_swept", answer.value.removed)
                cursors, done = answer.value.cursors, answer.value.done
            if done:
                await self._sweep_consumers()
            await asyncio.sleep(SWEEP_EVERY_S * (0.8 + random.random() * 0.4) if done else 1.0)

    async def _sweep_consumers(self) -> None:
        """Names of supervisors that were killed and never came back, as those of containers (KNOWN-TROUBLE 29)."""
        listed = await self._runner.run(registry.list_instances(self._keys))
        if not isinstance(listed, Value):
            return
        names = consumers_of(instance.record for instance in listed.value)
        answer = await self._runner.run(carriers.sweep_consumers(self._keys, CONSUMER_GONE_MS, names))
        if isinstance(answer, Value) and answer.value:
            logs.info("consumers.removed", count=answer.value)

    async def _expire(self) -> None:
        while True:
            await asyncio.sleep(EXPIRE_EVERY_S * (0.8 + random.random() * 0.4))
            answer = await self._runner.run(executions.expire_terminal(self._keys))
            if isinstance(answer, Value) and answer.value:
                logs.info("rows.expired", count=answer.value)


def consumers_of(records: Iterable[bytes]) -> list[str]:
    """The consumer names that registry records tell of; an unreadable record tells of none."""
    names = set()
    for record in records:
        try:
            value = jsontext.loads(record)
        except jsontext.JSONTextError:
            continue
        if isinstance(value, dict) and value.get("consumer"):
            names.add(str(value["consumer"]))
    return sorted(names)
