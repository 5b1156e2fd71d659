"""What the supervisor shows of itself: the answers to ``status`` and ``explain``, its registry facts, its metrics.

Reads the parts, changes none. The shapes are CONTRACT's; ``report`` has the rows.
"""

from __future__ import annotations

import asyncio
import os
from typing import Any, TypeVar

import plaita
from plaita.clock import boot_ms, iso_utc, wall_ms
from plaita.policy import explain
from plaita.policy.explain import Explanation
from plaita.policy.lifecycle import State
from plaita.runtime_config import Generations, SupervisorConfig
from plaita.services.manager import ServiceManager
from plaita.store import carriers
from plaita.store.call import Call, Value
from plaita.store.carriers import LeftToOthers, QueueStats
from plaita.store.keys import Keys
from plaita.store.runner_async import AsyncRunner
from plaita.supervisor import capacity, logs, metrics, report
from plaita.supervisor.admission import Admission
from plaita.supervisor.breaker import Breaker
from plaita.supervisor.disk_guard import DiskGuard
from plaita.supervisor.gate import Gate
from plaita.supervisor.life import Life
from plaita.supervisor.pool import Pool
from plaita.supervisor.registrar import Registrar
from plaita.supervisor.reload import Reload
from plaita.supervisor.stats import Stats
from plaita.supervisor.templates import Templates
from plaita.supervisor.tenant_gate import TenantGate
from plaita.supervisor.usual import stuck_rows

T = TypeVar("T")

BEAT_S = 1.0
METRICS_EVERY = 2  # beats
QUEUE_STATS_S = 1.0


def generation_ids(ids: Generations) -> dict[str, str]:
    """The three ids of ledger C2 by name."""
    return {
        "config_family": ids.config_family,
        "config_generation": ids.config_generation,
        "budget_generation": ids.budget_generation,
    }


class View:
    """``registrar``, ``admission``, ``tenants``, ``breaker``, ``reload`` and ``services`` (None: this host runs none)
    are set once they exist: the registrar's record shows what the view says."""

    registrar: Registrar
    admission: Admission
    tenants: TenantGate
    reload: Reload
    breaker: Breaker
    services: ServiceManager | None

    def __init__(
        self,
        config: SupervisorConfig,
        incarnation: str,
        ids: Generations,
        life: Life,
        stats: Stats,
        keys: Keys,
        runner: AsyncRunner,
        gate: Gate,
        disk: DiskGuard,
        pool: Pool,
        templates: Templates,
    ) -> None:
        self._config = config
        self._incarnation = incarnation
        self._ids = generation_ids(ids)
        self._life = life
        self._stats = stats
        self._keys = keys
        self._runner = runner
        self._gate = gate
        self._disk = disk
        self._pool = pool
        self._templates = templates
        self._last_queue: QueueStats | None = None  # renewed every other beat where there is a metrics port
        self._seen_queue: QueueStats | None = None  # by the last heartbeat of the registry
        self._explained: Explanation | None = None
        self._turned = wall_ms()

    def facts(self) -> dict[str, Any]:
        """The moving part of the registry record."""
        return {
            "status": self._life.state.value,
            "paused": not self._gate.conditions["pause"].open,
            "shut": self._gate.shut(),
            "uptime_s": round((boot_ms() - self._life.started) / 1000, 3),
            "capacity": capacity.snapshot(
                executors=self._config.executors,
                free=self._pool.free,
                busy=self._pool.busy,
                generations=self._ids,
                queue=report.queue_block(self._keys, self._seen_queue) if self._seen_queue is not None else None,
                disk=self._disk.block(),
            ),
            "node_types": self._templates.node_types,
        }

    async def refresh_queue(self) -> None:
        """Look at the queue before a heartbeat, whose record tells of it."""
        self._seen_queue = await self._asked(carriers.stats(self._keys, self._config.claim_min_idle_ms))

    async def _asked_redis(self) -> tuple[QueueStats | None, LeftToOthers | None]:
        family, budget = self._ids["config_family"], self._ids["budget_generation"]
        counts = self._asked(carriers.stats(self._keys, self._config.claim_min_idle_ms))
        others = self._asked(
            carriers.left_to_others(self._keys, family, budget, self._config.deny_repos, self.admission.by_body)
        )
        stats, left = await asyncio.gather(counts, others)
        self._last_queue = stats
        return stats, left

    async def _asked(self, call: Call[T]) -> T | None:
        """The answer; None where Redis gives none in time."""
        if not self._gate.conditions["redis"].open:
            return None
        try:
            answer = await asyncio.wait_for(self._runner.run(call), QUEUE_STATS_S)
        except TimeoutError:
            return None
        return answer.value if isinstance(answer, Value) else None

    # -- the one answer -------------------------------------------------------------------------------

    def _explain(self, stats: QueueStats | None, left: LeftToOthers | None) -> Explanation:
        """What is so now. Kept: the next one dates by it."""
        pool, life, ids = self._pool, self._life, self._ids
        facts = explain.Facts(
            now=wall_ms(),
            state=life.state.value,
            host=report.host_gates(self._gate),
            executors=self._config.executors,
            ready=pool.ready,
            free=pool.free,
            in_hand=life.carriers,
            template=self._templates.current.words,
            unclaimed=report.unclaimed(stats, left),
            other_family=None if left is None else left.other_family,
            other_budget=None if left is None else left.other_budget,
            generations=f"{ids['config_family']} {ids['budget_generation']}",
            parts=[
                *report.tenant_gates(self.tenants, None if stats is None else stats.parked),
                *self.breaker.gates(),
                *report.service_gates(self._services()),
            ],
            registered=self.registrar.registered if self._config.registry else None,
            stuck=len(self.stuck()),
            slowed=pool.births.trouble,
        )
        self._explained = explain.explain(facts, self._explained)
        return self._explained

    async def explain(self) -> dict[str, Any]:
        """The answer to ``explain``: every gate, and what waits because of it."""
        found = self._explain(*await self._asked_redis())
        gates = [report.gate_row(gate) for gate in found.gates]
        return {**report.verdict_block(found), "gates": gates, "stuck": self.stuck()}

    def verdict(self) -> dict[str, Any]:
        """Whether work is taken, and why or why not; asks Redis nothing."""
        return report.verdict_block(self._look())

    def answer(self) -> str:
        """One line for the service manager; asks Redis nothing."""
        return self._look().answer

    def _look(self) -> Explanation:
        return self._explain(self._last_queue if self._config.metrics_port else self._seen_queue, None)

    async def watch(self) -> None:
        """Once a second: look, so that everything is dated. What a scrape must not ask Redis for itself is asked for it
        here; its heartbeat is a loop that turns."""
        turns = 0
        while True:
            self._turned = wall_ms()
            if self._config.metrics_port and turns % METRICS_EVERY == 0:
                self._explain(*await self._asked_redis())
            else:
                self._look()
            turns += 1
            await asyncio.sleep(BEAT_S)

    # -- status ---------------------------------------------------------------------------------------

    async def status(self) -> dict[str, Any]:
        """The answer to ``status`` (CONTRACT)."""
        stats, left = await self._asked_redis()
        found = self._explain(stats, left)
        redis, writes = (self._gate.conditions[name] for name in ("redis", "writes"))
        template = self._templates.current
        queue = report.queue_block(self._keys, stats, left)
        return {
            "instance_id": self._config.instance_id,
            "incarnation": self._incarnation,
            "pid": os.getpid(),
            "version": plaita.__version__,
            "status": self._life.state.value,
            **report.verdict_block(found),
            "paused": not self._gate.conditions["pause"].open,
            "shut": found.shut,
            "uptime_s": round((boot_ms() - self._life.started) / 1000, 3),
            "registry_registered": self.registrar.registered,
            "redis": {
                "connected": redis.open,
                "server": self._life.server or None,
                "since": iso_utc(redis.since),
                "error": next((shut.value for shut in (redis, writes) if not shut.open), None),
            },
            "queue": queue,
            "tenants": report.tenants_block(self.tenants, queue["parked"]),
            "template": {"pid": template.pid, "generation": template.generation, "ready": template.can_spawn},
            "executors": self.executors(),
            "stuck": self.stuck(),
            "deaths": [death.row() for death in self._pool.deaths],
            "breakers": self.breaker.blocks(),
            "services": self._services(),
            "disk": self._disk.block(),
            "drain": self.drain(),
            "reload": self.reload.block(),
            "log_lines_waiting": logs.waiting(),
            "counters": self._stats.snapshot(),
            "timings": dict(self._stats.timings),
            "generations": self._ids,
        }

    def _services(self) -> list[dict[str, Any]]:
        return [] if self.services is None else self.services.states()

    def executors(self) -> list[dict[str, Any]]:
        """The rows of ``executors``, one a slot."""
        stuck = {row["slot"] for row in self.stuck()}
        return report.executor_rows(self._pool.executors, self._pool.births.restarts, self._pool.usual, stuck)

    def stuck(self) -> list[dict[str, Any]]:
        """The steps that take far longer than they do (DECISIONS 24)."""
        return stuck_rows(self._pool.executors, self._pool.usual, int(self._config.kill_grace * 1000))

    def drain(self) -> dict[str, Any]:
        """How far a drain is, and its receipt."""
        life = self._life
        draining = life.state in (State.DRAINING, State.STOPPING)
        phase = "none"
        if draining:
            phase = "draining" if life.carriers else "drained"
        return {
            "phase": phase,
            "since": iso_utc(life.drain.since) if draining else None,
            "timeout_s": life.drain.timeout_s,
            "left": life.carriers,
            "receipt": life.drain.receipt(self._stats.snapshot()) if draining else None,
        }

    def metrics(self) -> metrics.Snapshot:
        """For a scrape, on another thread: reads what the loop last wrote, changes nothing."""
        queue = report.queue_block(self._keys, self._last_queue)
        return metrics.Snapshot(
            instance=self._config.instance_id,
            stream=self._keys.queue,
            group=self._keys.group,
            up=self._life.state is State.RUNNING,
            active=self._pool.busy,
            draining=self._life.state is State.DRAINING,
            registered=self.registrar.registered,
            heartbeat_s=self._turned / 1000,
            gates=self._explained.gauges if self._explained is not None else {},
            serving=self._explained is not None and self._explained.serving,
            counters=self._stats.snapshot(),
            queue={
                "stream_length": queue["stream_length"],
                "pending": queue["pending"],
                "dlq_length": queue["dlq_length"],
                "delayed": queue["delayed"],
                "parked": queue["parked"],
                "max_deliveries": self._config.max_deliveries,
                "claim_min_idle_ms": self._config.claim_min_idle_ms,
            },
        )
