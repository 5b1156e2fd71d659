"""The parts of a supervisor around threads instead of processes, on one loop: put together, started, drained, ended.

Owns the order of these things and how a direct call gets its execution run here. Everything that happens to a carrier
is ``supervisor.dispatch``'s. All methods are called on the loop.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any, TypeVar

import plaita
from plaita.client import operations
from plaita.client.aio import drive
from plaita.client.operations import Operation
from plaita.clock import boot_ms, iso_utc, wall_ms
from plaita.errors import InputError, RefusedError, UnreachableError
from plaita.flow.model import NodeTypes
from plaita.ids import new_incarnation
from plaita.nodes.callbacks import Callbacks
from plaita.policy.lifecycle import State
from plaita.policy.tenants import DISABLED, Verdict
from plaita.runtime_config import SupervisorConfig, effective, generations
from plaita.server.in_process import ThreadPool
from plaita.store import carriers, registry, tenants
from plaita.store.call import Answer, Value
from plaita.store.carrier_of import carrier_of
from plaita.store.carriers import Entry
from plaita.store.executions import Row
from plaita.store.keys import DEFAULT_TENANT, TERMINAL, Keys
from plaita.store.runner_async import AsyncRunner, RunnerState
from plaita.supervisor import capacity, logs, meeting
from plaita.supervisor.carries import Carries
from plaita.supervisor.consumer import Consumer
from plaita.supervisor.failover import Failover
from plaita.supervisor.gate import Gate
from plaita.supervisor.held import Held
from plaita.supervisor.housekeeping import Housekeeping
from plaita.supervisor.identity import own_identity, registry_status
from plaita.supervisor.lease_keeper import LeaseKeeper
from plaita.supervisor.registrar import IdentityTaken, Registrar
from plaita.supervisor.sender import Sender
from plaita.supervisor.stats import Stats
from plaita.supervisor.view import generation_ids
from plaita.supervisor.wiring import build_way, consumer_settings, services_of
from plaita.supervisor.write_guard import WriteGuard

T = TypeVar("T")

LEAVE_S = 2.0
CONNECT_S = 10.0
_FIRST_LOOK_S = 0.02
_LONGEST_LOOK_S = 0.3


class Host:
    """One life of one worker. ``state``: STARTING while it does direct calls only, RUNNING once it takes from the
    queue, then DRAINING, STOPPING, STOPPED."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        config: SupervisorConfig,
        redis_url: str,
        keys: Keys,
        types: NodeTypes,
        node_types: list[str],
        callbacks: Callbacks | None,
    ) -> None:
        self._loop = loop
        self._config = config
        self._keys = keys
        self._node_types = node_types
        self.state = State.STARTING
        self.stats = Stats()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._calls = 0
        self._draining = asyncio.Event()
        self._emptied = asyncio.Event()
        self._consuming: asyncio.Task[None] | None = None
        incarnation = new_incarnation()
        holder, ids = f"{config.instance_id}/{incarnation}", generations(config)
        self._generations, self._started = generation_ids(ids), boot_ms()
        self._gate = Gate(self._wake_consumer)
        self._runner = AsyncRunner(
            redis_url, on_state=self._redis_state, on_refusal=lambda error: self._write_guard.refused(error)
        )
        self._write_guard = WriteGuard(
            self._runner, keys, self._gate, again=self._look_again, background=self._background
        )
        self._pool = ThreadPool(
            loop,
            types,
            self.stats,
            callbacks=callbacks,
            keep=config.executors,
            grace_s=config.kill_grace,
            on_capacity=self._wake_consumer,
        )
        self._keeper = LeaseKeeper(
            self._runner,
            keys,
            config.consumer_name,
            config.lease_ttl_seconds * 1000,
            self.stats,
            ask=self._ask_step,
            kill=self._kill_step,
            tick=lambda kill_at: None,  # a thread outlives nobody: there is no second process to watch over it
            fenced=lambda held: self._failover.token_differs(held),
            tenant_shut=lambda tenant, states: way.tenants.judge(tenant, states) is not Verdict.ACTIVE,
            watchdog=not config.disable_lease_watchdog,
        )
        self._failover = Failover(
            self._runner, keys, self._gate, self.stats, held=lambda: self._keeper.held, drop=self._keeper.drop
        )
        self._registrar = Registrar(
            self._runner,
            keys,
            config.instance_id,
            incarnation,
            own_identity(),
            {
                "plaita_version": plaita.__version__,
                "library": True,
                "queue": config.queue_name,
                "consumer": config.consumer_name,
                "started_at": iso_utc(wall_ms()),
                "generations": self._generations,
                "config": effective(config),
            },
            self.stats,
            self._facts,
        )
        way = build_way(
            config,
            ids,
            holder,
            keys,
            Sender(self._runner, self.stats),
            self._pool,
            self._keeper,
            self.stats,
            leaving=lambda: self.leaving,
            holder_record=self._holder_record,
        )
        self._admission, self._entries, self._dispatch = way.admission, way.entries, way.dispatch
        self._carries = Carries(loop, self._carried)
        self._consumer = Consumer(
            consumer_settings(config, ids, holder),
            keys,
            self._runner,
            self.stats,
            capacity=self._capacity,
            start=lambda entry: self._carries.start(entry, self._dispatch.carry(entry)),
            give_back=self._give_back,
            in_hand=lambda: [*self._carries.in_hand(), *self._admission.others, *way.tenants.left],
            skipped=self._admission.tell_skipped,
            may_adopt=lambda: self._registrar.registered,
        )
        services = services_of(config, keys, self._runner, self.stats)
        self._housekeeping = Housekeeping(self._runner, keys, self.stats, config.dlq_max_len, way.tenants, services)

    @property
    def leaving(self) -> bool:
        """No further step may start here."""
        return self.state in (State.DRAINING, State.STOPPING, State.STOPPED)

    # -- life ---------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Meet the server, be registered, keep leases. An entry that Redis does not take is tried again while it works
        (ledger G3). Raises UnreachableError, InputError."""
        try:
            await asyncio.wait_for(meeting.meet(self._runner, self._keys, self._unmet, 0.1), CONNECT_S)
            if self._config.registry:
                await asyncio.wait_for(self._registrar.claim(), CONNECT_S)
        except TimeoutError:
            raise UnreachableError(f"redis: {self._gate.conditions['redis'].value} after {CONNECT_S:g} s") from None
        except IdentityTaken as error:
            raise InputError(str(error)) from None
        if self._config.registry:
            self._registrar.start(registered=self._look_again, taken=self._taken)
        self._keeper.start()
        self._background(self._failover.run())
        self._housekeeping.start()

    def _unmet(self, answer: Answer[Any]) -> None:
        self._gate.set("redis", False, value=getattr(answer, "error", "") or "no answer")

    def _taken(self, error: IdentityTaken) -> None:
        logs.error("worker.fatal", reason=error)
        self.drain()

    def consume(self) -> None:
        """Take from the queue from now on. Only from now on it is ``running`` to others, who might send it work: a
        carrier that a direct call runs here is then never taken for a duplicate (ledger G1, L5)."""
        if self.state is State.STARTING:
            self.state = State.RUNNING
            self._gate.set("status", True, value=self.state.value)
            self._background(self._registrar.announce())
            self._consuming = self._background(self._consumer.run())

    def drain(self) -> None:
        """Take nothing more; what runs is handed on after its step. Written to the registry at once (ledger G2)."""
        if self.state in (State.STARTING, State.RUNNING):
            self._enter(State.DRAINING)
            if self._consuming is not None:
                self._background(self._runner.unblock())
        self._draining.set()
        self._look_if_empty()

    async def drains(self) -> None:
        """Until somebody asks for a drain."""
        await self._draining.wait()

    def _look_if_empty(self) -> None:
        if self.leaving and not self._carries and not self._calls:
            self._emptied.set()

    def _enter(self, state: State) -> None:
        self.state = state
        self._gate.set("status", False, value=state.value, limit="running")
        self._background(self._registrar.announce())

    async def wait_empty(self, seconds: float) -> bool:
        """Until nothing is in hand and no call is under way, at most so long; whether it is so. After ``drain``."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._emptied.wait(), seconds)
        return self._emptied.is_set()

    async def give_up(self, grace_s: float) -> None:
        """Tell what still runs to stop and give it up after the grace; its carriers are handed on."""
        for held in self._keeper.held:
            if held.running and held.executor is not None:
                self._pool.stop(held.executor, "drain", grace_s)
        if not await self.wait_empty(grace_s + LEAVE_S):
            for held in self._keeper.held:
                held.abandoned.set()
            if not await self.wait_empty(LEAVE_S):
                self._carries.cancel_all()

    async def end(self) -> None:
        """Parts in the order in which others need them: first what reads, then the registry entry, then the leases
        (ledger R7)."""
        if self.state is State.STOPPED:
            return
        self._enter(State.STOPPING)
        if self._consuming is not None:
            self._consuming.cancel()
            if self._gate.conditions["redis"].open:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._stop_reading(), LEAVE_S)
            self._consumer.drop()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._registrar.unregister(), LEAVE_S)
        await self._keeper.stop()
        await self._housekeeping.stop()
        if self._consuming is not None and self._gate.conditions["redis"].open:
            self._runner.drop("reader")
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(
                    self._runner.run(carriers.leave(self._keys, self._config.consumer_name)), LEAVE_S
                )
        self._pool.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._runner.close()
        self.state = State.STOPPED

    async def _stop_reading(self) -> None:
        await self._runner.unblock()
        await self._consumer.finish()

    # -- direct calls ---------------------------------------------------------------------------------------

    async def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Do what a caller waits for: the parts do not end before it has its answer."""
        self._calls += 1
        try:
            return await work
        finally:
            self._calls -= 1
            self._look_if_empty()

    async def perform(self, operation: Operation[T]) -> T:
        """Drive one of the client's operations to its end."""
        return await drive(self._runner, operation)

    async def row(self, keys: Keys, execution_id: str) -> Row | None:
        """The row as it stands."""
        return await self.perform(operations.load(keys, execution_id))

    async def see_through(self, keys: Keys, execution_id: str) -> Row | None:
        """Run the execution here, with the carrier that was just sent for it, until it has ended or waits; its row,
        None when it was deleted meanwhile. Where another has it, until that is done with it, and over its tenant's
        quota until it has a place (ledger T3). While this worker drains, the row as it is when it is let go.

        Raises RefusedError ``tenant_disabled`` when it has no carrier left for that (ledger T2).
        """
        await self._carry_newest(keys, execution_id)  # also of one that has ended: a retry
        pause = _FIRST_LOOK_S
        while True:
            row = await self.row(keys, execution_id)
            if row is None or at_rest(row) or self.leaving:
                return row
            if row.lease is None and not await self._carry_newest(keys, execution_id):
                await self._refuse_if_disabled(keys)
            await asyncio.sleep(pause)
            pause = min(_LONGEST_LOOK_S, pause * 1.5)

    async def _refuse_if_disabled(self, keys: Keys) -> None:
        """What waits for a place, or for a retry, has no carrier in the streams either."""
        tenant = keys.tenant or DEFAULT_TENANT
        found = await self.perform(operations.ask(tenants.states(keys, [tenant])))
        if found.statuses[tenant] == DISABLED:
            raise RefusedError("tenant_disabled", f"tenant {tenant!r} was disabled; enabled again, it goes on")

    async def _carry_newest(self, keys: Keys, execution_id: str) -> bool:
        """Go on with the newest carrier there is of the execution, if it is not in hand; whether there is one."""
        entry = await self.perform(operations.ask(carrier_of(keys, execution_id)))
        if entry is not None and f"{entry.stream} {entry.entry_id}" not in self._carries.in_hand():
            await self._carry(entry)
        return entry is not None

    async def _carry(self, entry: Entry) -> None:
        done = asyncio.Event()

        async def work() -> None:
            try:
                await self._dispatch.carry(entry)
            finally:
                done.set()

        self._carries.start(entry, work())
        await done.wait()

    # -- parts that ask ---------------------------------------------------------------------------------------

    def _capacity(self) -> int:
        if not self._gate.is_open:
            return 0
        return max(0, self._config.executors - len(self._carries))

    def _give_back(self, entry: Entry) -> None:
        self._background(self._entries.release(entry, leaving=self.leaving))

    def _facts(self) -> dict[str, Any]:
        consuming = self._consuming is not None
        busy = len(self._carries)
        free = max(0, self._config.executors - busy) if consuming else 0
        return {
            "status": self.state.value,
            "paused": not consuming,
            "shut": self._gate.shut(),
            "uptime_s": round((boot_ms() - self._started) / 1000, 3),
            "capacity": capacity.snapshot(
                executors=self._config.executors, free=free, busy=busy, generations=self._generations
            ),
            "node_types": self._node_types,
        }

    async def _holder_record(self, instance: str) -> tuple[str, str] | None:
        answer = await self._runner.run(registry.get(self._keys, instance))
        if not isinstance(answer, Value) or answer.value is None:
            return None
        return answer.value.incarnation, registry_status(answer.value.record)

    def _carried(self) -> None:
        self._wake_consumer()
        self._look_if_empty()

    def _wake_consumer(self) -> None:
        consumer = getattr(self, "_consumer", None)  # the gate is there before it
        if consumer is not None:
            consumer.wake()

    def _look_again(self) -> None:
        consumer = getattr(self, "_consumer", None)
        if consumer is not None:
            consumer.look_again()
            self._registrar.try_again()

    def _redis_state(self, state: RunnerState) -> None:
        self._gate.set("redis", state.connected, value="connected" if state.connected else state.last_error)
        if state.connected:
            self._failover.connected()
            self._look_again()

    def _ask_step(self, held: Held, reason: str, grace_s: float | None) -> None:
        if held.executor is not None and held.running:
            self._pool.stop(held.executor, reason, grace_s)

    def _kill_step(self, held: Held, detail: str) -> None:
        if held.executor is not None and held.running:
            held.executor.stop_reason = held.executor.stop_reason or "lease"
            self._pool.kill(held.executor, detail)

    def _background(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._background_done)
        return task

    def _background_done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            logs.error("worker.bug", task=task.get_coro(), error=repr(task.exception()))


def at_rest(row: Row) -> bool:
    """It has ended, or it waits and nothing is on its way to end the wait."""
    if row.status in TERMINAL:
        return True
    return row.status == "suspended" and not row.control.get("woken") and row.cancel_reason is None
