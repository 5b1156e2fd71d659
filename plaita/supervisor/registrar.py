"""The registry entry of this supervisor: claimed at the start, renewed by a heartbeat, taken away at the end (G1-G3).

A second process with the id of a live one refuses to start; a dead namesake's entry is taken over at once where its
death can be proved on this machine, else after it has run out.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Callable
from typing import Any

from plaita import jsontext
from plaita.clock import iso_utc, wall_ms
from plaita.policy.backoff import backoff_s
from plaita.store import registry
from plaita.store.call import Refused, Unavailable, Value
from plaita.store.keys import Keys
from plaita.store.runner_async import AsyncRunner
from plaita.supervisor import logs
from plaita.supervisor.identity import Identity, Namesake, judge_namesake, pid_of
from plaita.supervisor.stats import Stats
from plaita.unix.processes import start_ticks

HEARTBEAT_S = 10.0
TTL_MS = 30_000


class IdentityTaken(Exception):
    """Another living supervisor has this instance id."""


class Registrar:
    """``facts()`` gives the moving part of the record: status, paused, capacity, node types."""

    def __init__(
        self,
        runner: AsyncRunner,
        keys: Keys,
        instance_id: str,
        incarnation: str,
        identity: Identity,
        fixed: dict[str, Any],
        stats: Stats,
        facts: Callable[[], dict[str, Any]],
    ) -> None:
        self._runner = runner
        self._keys = keys
        self._instance_id = instance_id
        self._incarnation = incarnation
        self._identity = identity
        self._fixed = fixed
        self._stats = stats
        self._facts = facts
        self._closed = False  # the write gate of G2
        self._task: asyncio.Task[None] | None = None
        self.registered = False
        self._may_be_known = (
            False  # a stop may come before the answer to the first call: it was carried out all the same
        )

    def _record(self, status: str | None = None) -> bytes:
        own = self._identity
        record = {
            "instance_id": self._instance_id,
            "service_type": "flow_worker",
            "incarnation": self._incarnation,
            "host": own.host,
            "machine": own.machine,
            "boot": own.boot,
            "pid": own.pid,
            "started": own.started,
            "invocation": os.environ.get("INVOCATION_ID"),  # systemd's name for this run of the unit
            **self._fixed,
            **self._facts(),
            "last_heartbeat": iso_utc(wall_ms()),
        }
        if status is not None:
            record["status"] = status
        return jsontext.dumps(record)

    async def register(self) -> None:
        """Claim the id, waiting for Redis as long as it takes. Raises IdentityTaken."""
        expected: str | None = None
        attempt = 0
        waited_for_ms = 0.0
        while True:
            call = registry.register(self._keys, self._instance_id, self._incarnation, self._record(), TTL_MS, expected)
            known, self._may_be_known = self._may_be_known, True
            answer = await self._runner.run(call)
            if isinstance(answer, Unavailable | Refused):
                self._may_be_known = known  # it was not carried out
            if isinstance(answer, Value):
                self.registered = True
                return
            wait = backoff_s(attempt, base=0.1, cap=5.0, jitter=random.random())
            attempt += 1
            if isinstance(answer, Refused):
                expected, wait = await self._namesake(waited_for_ms)
                waited_for_ms += wait * 1000
            await asyncio.sleep(wait)

    async def _namesake(self, waited_ms: float) -> tuple[str | None, float]:
        """The incarnation that may be replaced, and how long to wait before. Raises IdentityTaken."""
        answer = await self._runner.run(registry.get(self._keys, self._instance_id))
        if not isinstance(answer, Value):
            return None, 0.5
        if answer.value is None:
            return None, 0.0
        there = answer.value
        pid = pid_of(there.record)
        verdict = judge_namesake(there.record, self._identity, start_ticks(pid) if pid is not None else None)
        if verdict is Namesake.DEAD:
            logs.info("registry.namesake_dead", incarnation=there.incarnation, pid=pid)
            return there.incarnation, 0.0
        if verdict is Namesake.ALIVE:
            raise IdentityTaken(
                f"--instance-id {self._instance_id!r}: a supervisor with this id runs on this host as pid {pid}; "
                "stop it, or give this one another id"
            )
        if waited_ms > TTL_MS + 2 * HEARTBEAT_S * 1000:
            raise IdentityTaken(
                f"--instance-id {self._instance_id!r}: a supervisor on another machine is alive under this id "
                f"(record: {there.record[:300].decode('utf-8', 'replace')}); give this one another id"
            )
        if waited_ms == 0:
            logs.warning("registry.namesake_elsewhere", incarnation=there.incarnation, waits_ms=TTL_MS)
        return None, 1.0

    def start(self) -> None:
        """Begin the heartbeat."""
        self._task = asyncio.create_task(self._beat(), name="registry heartbeat")

    async def _beat(self) -> None:
        while not self._closed:
            await asyncio.sleep(HEARTBEAT_S * (0.8 + random.random() * 0.2))
            await self.announce(tries=1)

    async def announce(self, *, tries: int = 3) -> None:
        """Write the record as it is now; a failure is counted and logged, never raised (ledger G2)."""
        if self._closed or not self.registered:
            return
        for attempt in range(tries):
            call = registry.heartbeat(self._keys, self._instance_id, self._incarnation, self._record(), TTL_MS)
            answer = await self._runner.run(call)
            if isinstance(answer, Value):
                return
            if isinstance(answer, Refused):
                logs.error("registry.taken_from_us", instance_id=self._instance_id, detail=answer.detail[:300])
                return
            if attempt + 1 < tries:
                await asyncio.sleep(0.2)
        if tries > 1:
            self._stats.add("registry_status_flush_failed_total")
            logs.error("registry.status_not_written", status=self._facts().get("status"))

    async def unregister(self) -> None:
        """Close the write gate, leave a ``stopped`` mark for a moment, then nothing."""
        self._closed = True
        if self._task is not None:
            self._task.cancel()
        if not self._may_be_known:
            return
        call = registry.unregister(self._keys, self._instance_id, self._incarnation, self._record("stopped"))
        answer = await self._runner.run(call)
        self.registered = False
        if not isinstance(answer, Value):
            logs.error("registry_unregister_failed", answer=answer)
