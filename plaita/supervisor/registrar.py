"""The registry entry of this supervisor: claimed at the start, renewed by a heartbeat, taken away at the end (G1-G3).

A second process with the id of a live one refuses to start; a dead namesake's entry is taken over at once where its
death can be proved on this machine, else after it has run out. Where Redis does not take the entry at all, that is said
and tried again in the background; work does not wait for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
from collections.abc import Awaitable, Callable
from typing import Any

from plaita import jsontext
from plaita.clock import boot_ms, iso_utc, wall_ms
from plaita.policy.backoff import backoff_s
from plaita.policy.carrier import TASK_SCHEMA_VERSION
from plaita.store import registry
from plaita.store.call import Answer, Call, Refused, Unavailable, Unknown, Value
from plaita.store.keys import Keys
from plaita.store.runner_async import AsyncRunner
from plaita.supervisor import logs
from plaita.supervisor.identity import Identity, Namesake, judge_namesake, pid_of
from plaita.supervisor.stats import Stats
from plaita.unix.processes import start_ticks

HEARTBEAT_S = 10.0
TTL_MS = 30_000
RETRY_FIRST_S, RETRY_LONGEST_S = 1.0, 30.0
_LAST = ("stopping", "stopped")  # with these the gate of G2 closes


class IdentityTaken(Exception):
    """Another living supervisor has this instance id."""


class Registrar:
    """``facts()`` gives the moving part of the record: status, paused, capacity, node types; ``refresh`` is awaited
    before each heartbeat, to bring what it shows up to date."""

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
        refresh: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._runner = runner
        self._keys = keys
        self._instance_id = instance_id
        self._incarnation = incarnation
        self._identity = identity
        self._fixed = fixed
        self._stats = stats
        self._facts = facts
        self._refresh = refresh
        self._closed = False  # the write gate of G2
        self._perhaps_there = False  # a record of ours: also where an answer was lost
        self._claiming = 0  # calls under way that may write it: a stop may come before their answer
        self._task: asyncio.Task[None] | None = None
        self._again = asyncio.Event()
        self._ours_until: int | None = None  # boot ms; None: it is not ours, as far as we know

    @property
    def registered(self) -> bool:
        """Redis has our record: it took it, and that has not run out since. Without a heartbeat for its time to live it
        has, whatever else Redis still does for us, and another may have the name by now."""
        return self._ours_until is not None and boot_ms() < self._ours_until

    def _record(self, status: str | None = None) -> bytes:
        own = self._identity
        record = {
            "instance_id": self._instance_id,
            "service_type": "flow_worker",
            "schema_version": TASK_SCHEMA_VERSION,
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

    async def claim(self) -> bool:
        """Try once to take the id, waiting for a namesake that may be alive. False, and told, when Redis did not take
        the record. Raises IdentityTaken."""
        expected: str | None = None
        waited_for_ms = 0.0
        while True:
            call = registry.register(self._keys, self._instance_id, self._incarnation, self._record(), TTL_MS, expected)
            until = boot_ms() + TTL_MS
            answer = await self._send(call)
            if isinstance(answer, Value):
                self._ours_until = until
                return True
            if not (isinstance(answer, Refused) and answer.reason == "taken"):
                self.failed(why(answer))
                return False
            expected, wait = await self._namesake(waited_for_ms)
            waited_for_ms += wait * 1000
            await asyncio.sleep(wait)

    def failed(self, error: str) -> None:
        """Say that there is no entry yet (ledger G3)."""
        logs.error("registry.register_failed", error=error, instance_id=self._instance_id, retried="in the background")

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
        if verdict is Namesake.DEAD and there.incarnation:
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

    def start(
        self,
        *,
        registered: Callable[[], None] = lambda: None,
        taken: Callable[[IdentityTaken], None] = lambda error: None,
    ) -> None:
        """Begin the heartbeat; before that, where ``claim`` said False, try again until Redis takes the record (G3):
        ``registered`` is told then, or ``taken`` of who was faster. ``registered`` is told too when the record had run
        out and is there again."""
        self._task = asyncio.create_task(self._live(registered, taken), name="registry heartbeat")

    def try_again(self) -> None:
        """Redis serves again: a retry need not wait for its time, nor a heartbeat whose record has run out."""
        if not self.registered:
            self._again.set()

    async def _live(self, registered: Callable[[], None], taken: Callable[[IdentityTaken], None]) -> None:
        if not self.registered:
            try:
                await self._retry()
            except IdentityTaken as error:
                taken(error)
                return
            registered()
        while True:
            await self._pause(HEARTBEAT_S * (0.8 + random.random() * 0.2))
            if self._refresh is not None:
                await self._refresh()
            was_ours = self.registered
            await self.announce(tries=1)
            if self.registered and not was_ours:
                registered()

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._again.wait(), seconds)
        self._again.clear()

    async def _retry(self) -> None:
        attempt = 0
        while not self.registered:
            await self._pause(backoff_s(attempt, base=RETRY_FIRST_S, cap=RETRY_LONGEST_S, jitter=random.random()))
            attempt += 1
            await self.claim()

    async def announce(self, *, tries: int = 3) -> None:
        """Write the record as it is now; a failure is counted and logged, never raised. With the status ``stopping``
        the gate closes: it is the last that is written but for the mark of ``unregister`` (ledger G2)."""
        last = str(self._facts().get("status")) in _LAST
        if self._closed:
            return
        if last:
            self._close()
        if self._perhaps_there or self._claiming:
            await self._write(tries, last)

    async def _send(self, call: Call[bool]) -> Answer[bool]:
        """A call that writes the record; what is known of it afterwards."""
        self._claiming += 1
        try:
            answer = await self._runner.run(call)
        except asyncio.CancelledError:
            self._perhaps_there = True  # it may be carried out all the same
            raise
        finally:
            self._claiming -= 1
        self._perhaps_there = self._perhaps_there or isinstance(answer, Value | Unknown)
        return answer

    async def _write(self, tries: int, last: bool) -> None:
        answer: Answer[bool] = Unavailable("")
        for attempt in range(tries):
            if self._closed and not last:
                return  # closed while we waited for our next try
            until = boot_ms() + TTL_MS
            call = registry.heartbeat(self._keys, self._instance_id, self._incarnation, self._record(), TTL_MS)
            answer = await self._send(call)
            if isinstance(answer, Value):
                self._ours_until = until
                return
            if isinstance(answer, Refused) and answer.reason == "taken":
                self._ours_until = None
                logs.error("registry.taken_from_us", instance_id=self._instance_id, detail=answer.detail[:300])
                return
            if attempt + 1 < tries:
                await asyncio.sleep(0.2)
        if tries > 1:
            self._stats.add("registry_status_flush_failed_total")
            logs.error("registry.status_not_written", status=self._facts().get("status"), error=why(answer))

    def _close(self) -> None:
        self._closed = True
        if self._task is not None and self._task is not asyncio.current_task():
            self._task.cancel()

    async def unregister(self) -> None:
        """Close the write gate, leave a ``stopped`` mark for a moment, then nothing. Also where reading failed before,
        or where it is not known whether a record of ours is there. Whatever keeps it from that is told (ledger G2)."""
        self._close()
        if not self._perhaps_there and not self._claiming:
            return
        call = registry.unregister(self._keys, self._instance_id, self._incarnation, self._record("stopped"))
        try:
            answer = await self._runner.run(call)
        except asyncio.CancelledError:
            logs.error("registry_unregister_failed", error="Redis did not answer in time")
            raise
        was_registered, self._ours_until = self.registered, None
        if not isinstance(answer, Value):
            logs.error("registry_unregister_failed", error=why(answer))
        elif not answer.value and was_registered:
            logs.error("registry_unregister_failed", error="there is no record of this process")


def why(answer: Answer[Any]) -> str:
    """What is said of an answer that is no value."""
    if isinstance(answer, Refused):
        return f"{answer.reason}: {answer.detail[:300]}"
    return answer.error if isinstance(answer, Unavailable | Unknown) else ""
