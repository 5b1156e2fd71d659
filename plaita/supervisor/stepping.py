"""One step of a held carrier on an executor: what the process lacks is sent, and its answer, or its end, awaited.

Owns the executor of a carrier between and in steps, the messages to it and the step's time limit. What an answer means
is ``dispatch``'s.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from plaita.callback_url import CallbackKey, execution_key
from plaita.ipc.messages import Action, Answer, Need, Run, Step
from plaita.policy.slot import Slot
from plaita.store import executions
from plaita.store.call import Value
from plaita.supervisor.crash_points import Point, reach
from plaita.supervisor.executor import Died, Executor
from plaita.supervisor.flow_cache import StoredFlow
from plaita.supervisor.held import Held
from plaita.supervisor.lease_keeper import LeaseKeeper
from plaita.supervisor.sender import Sender
from plaita.supervisor.stats import Stats

EXECUTOR_WAIT_S = 1.0  # DECISIONS 8
SPENT_MS = 1000  # for callbacks to be told of a step that the flow's time leaves nothing of (ledger F7)
RESULTS_PER_CALL = 4 * 1024 * 1024  # DECISIONS 16


@dataclass(frozen=True, slots=True)
class StepSettings:
    """``isolate`` is tenant, carrier or step; ``namespace`` goes into idempotency keys. ``cancel_limit_ms``: the time a
    node gets to undo a wait that is cancelled. ``callback_secret`` and ``callback_base_url`` make the URLs of
    ``http_callback`` nodes."""

    namespace: str
    isolate: str
    default_node_timeout_ms: int | None
    cancel_limit_ms: int = 5_000
    callback_secret: str | None = field(default=None, repr=False)
    callback_base_url: str = ""


class StepPool(Protocol):
    """What steps ask of the executors, be they processes (``pool.Pool``, which says what each means) or threads."""

    def try_acquire(self, tenant: str) -> Executor | None: ...

    async def acquire(self, tenant: str) -> Executor: ...

    def release(self, executor: Executor) -> None: ...

    def retire(self, executor: Executor, reason: str) -> None: ...

    def next_run_seq(self) -> int: ...

    def run(self, executor: Executor, message: Run | Step) -> asyncio.Future[Answer | Need | Died]: ...

    def stop(self, executor: Executor, reason: str) -> None: ...

    def kill(self, executor: Executor, detail: str) -> None: ...


class NotBegun:
    """The executor was gone before it was given the step, or a drain has begun: nothing has happened."""


class Stepper:
    """Runs steps, each once. ``leaving`` is true once no further step may start here (ledger R4)."""

    def __init__(
        self,
        settings: StepSettings,
        sender: Sender,
        pool: StepPool,
        keeper: LeaseKeeper,
        stats: Stats,
        leaving: Callable[[], bool],
    ) -> None:
        self._settings = settings
        self._sender = sender
        self._pool = pool
        self._keeper = keeper
        self._stats = stats
        self._leaving = leaving

    async def have_executor(self, held: Held) -> bool:
        """See to an idle executor of the carrier's own; False when none came in time (DECISIONS 8)."""
        if held.executor is not None:
            if held.executor.idle and self._settings.isolate != "step":
                return True
            if held.executor.idle and held.executor.steps_done == 0:
                return True
            executor, held.executor = held.executor, None
            if executor.state is Slot.IDLE:
                self._pool.retire(executor, "isolate")
            self._pool.release(executor)
        held.executor = self._pool.try_acquire(held.tenant_id)
        if held.executor is None:
            try:
                held.executor = await asyncio.wait_for(self._pool.acquire(held.tenant_id), EXECUTOR_WAIT_S)
            except TimeoutError:
                return False
        return True

    async def run(self, held: Held, flow: StoredFlow, action: Action) -> Answer | Died | NotBegun | None:
        """Run the node once; None when its context could not be loaded, NotBegun when the executor ended before."""
        executor = held.executor
        assert executor is not None
        for _ in range(3):
            fresh = executor.holds != (held.execution_id, held.token)
            results: dict[str, bytes] = {}
            state: dict[str, bytes] = {}
            if fresh and (held.result_sizes or held.state_sizes):
                loaded = await self._context(held)
                if loaded is None:
                    return None
                results, state = loaded
            if fresh and held.forestalled is not None:
                results, state = results | held.forestalled[0], state | held.forestalled[1]
            if not executor.idle:  # it ended since it was given to us
                return NotBegun()
            if self._leaving() and action != "cancelled":  # asked since the context began to be loaded
                return NotBegun()
            if fresh or action != "execute" or not executor.has_flow(held.flow_hash):
                message: Run | Step = self._run_message(held, flow, executor, action, fresh, results, state)
            else:
                message = self._step_message(held, executor)
            executor.holds = (held.execution_id, held.token)
            outcome = await self._await_answer(held, executor, message, action)
            if not isinstance(outcome, Need):
                reach(Point.STEP_ANSWERED)
                return outcome
            executor.holds = None
            executor.flows.pop(held.flow_hash, None)
        raise RuntimeError(f"executor {executor.pid} keeps asking for what it was sent")

    def _run_message(
        self,
        held: Held,
        flow: StoredFlow,
        executor: Executor,
        action: Action,
        fresh: bool,
        results: dict[str, bytes],
        state: dict[str, bytes],
    ) -> Run:
        executor.execution_id = held.execution_id
        executor.flow_id, executor.version = held.flow_id, held.version
        executor.node_id = held.node_id
        callback = self._callback_key(held)
        return Run(
            seq=self._pool.next_run_seq(),
            execution_id=held.execution_id,
            tenant_id=held.tenant_id,
            flow_id=held.flow_id,
            version=held.version,
            flow_hash=held.flow_hash,
            node_id=held.node_id,
            visit=held.visit,
            attempt=held.attempt,
            step=held.step + 1,
            action=action,
            time_left_ms=self._flow_time_left(held),
            last_node=held.last_node,
            branch=held.branch,
            namespace=self._settings.namespace,
            fresh=fresh,
            definition=None if executor.has_flow(held.flow_hash) else flow.definition,
            input=held.input if fresh else None,
            results=results,
            state=state,
            event=held.wake_data if action in ("event", "timeout") else None,
            callback=callback,
            visits={} if callback is None else {one: held.visit_of(one) for one in held.outline.callback_nodes},
        )

    def _callback_key(self, held: Held) -> CallbackKey | None:
        secret = self._settings.callback_secret
        if secret is None or not held.outline.callback_nodes:
            return None
        key = execution_key(secret, self._settings.namespace, held.tenant_id, held.execution_id)
        return CallbackKey(key, self._settings.callback_base_url)

    def _step_message(self, held: Held, executor: Executor) -> Step:
        executor.node_id = held.node_id
        return Step(
            self._pool.next_run_seq(),
            held.execution_id,
            held.node_id,
            held.visit,
            held.attempt,
            held.step + 1,
            self._flow_time_left(held),
            held.last_node,
            held.branch,
        )

    async def _await_answer(
        self, held: Held, executor: Executor, message: Run | Step, action: Action
    ) -> Answer | Need | Died:
        limit_ms = self._limit_ms(held, action)
        executor.limit_ms = limit_ms
        self._keeper.step_begins(held)
        future = self._pool.run(executor, message)
        timer = None
        if limit_ms is not None:
            loop = asyncio.get_running_loop()
            timer = loop.call_later(limit_ms / 1000, self._pool.stop, executor, "timeout")
        sent = time.perf_counter_ns()
        reach(Point.STEP_SENT)
        try:
            return await future
        finally:
            self._stats.timings["pipe_us"] += (time.perf_counter_ns() - sent) // 1000
            self._keeper.step_ends(held)
            if timer is not None:
                timer.cancel()

    def _flow_time_left(self, held: Held) -> int | None:
        limit = held.outline.timeout_ms
        return None if limit is None else max(0, limit - held.active_ms)

    def _limit_ms(self, held: Held, action: Action) -> int | None:
        if action == "timed_out":
            return None
        if action == "cancelled":
            return self._settings.cancel_limit_ms
        node = held.outline.nodes.get(held.node_id)
        # The timeout of a node that waits bounds its wait (DECISIONS 19), not the code that runs after it.
        own = node.timeout_ms if node is not None and action == "execute" else None
        if own is None:
            own = self._settings.default_node_timeout_ms
        left = self._flow_time_left(held)
        if left == 0:  # the executor says so at once, and runs no code of the node
            left = SPENT_MS
        limits = [limit for limit in (own, left) if limit is not None]
        return min(limits) if limits else None

    async def _context(self, held: Held) -> tuple[dict[str, bytes], dict[str, bytes]] | None:
        """Results and state of the execution from Redis, in calls of bounded size; None when it did not answer."""
        results: dict[str, bytes] = {}
        state: dict[str, bytes] = {}
        for nodes, names in _batches(held.result_sizes, held.state_sizes):
            call = executions.results(held.keys, held.execution_id, nodes, names)
            answer = await self._sender.send(call, until=held.lease.ask_at, give_up=held.abandoned)
            if not isinstance(answer, Value):
                return None
            results.update(answer.value[0])
            state.update(answer.value[1])
        return results, state

    def let_go(self, held: Held) -> None:
        """Give the carrier's executor back, if it has one."""
        executor, held.executor = held.executor, None
        if executor is None:
            return
        if executor.state is Slot.IDLE and self._settings.isolate != "tenant":
            self._pool.retire(executor, "isolate")
        elif executor.state in (Slot.BUSY, Slot.SPAWNING):
            self._pool.kill(executor, "its carrier was let go")
        self._pool.release(executor)


def _batches(results: dict[str, int], state: dict[str, int]) -> list[tuple[list[str], list[str]]]:
    """Names in groups whose values are at most RESULTS_PER_CALL together (a single larger one stands alone)."""
    batches: list[tuple[list[str], list[str]]] = []
    size = RESULTS_PER_CALL
    for kind, sizes in ((0, results), (1, state)):
        for name, one in sizes.items():
            if not batches or size + one > RESULTS_PER_CALL:
                batches.append(([], []))
                size = 0
            batches[-1][kind].append(name)
            size += one
    return batches
