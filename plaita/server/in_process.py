"""Steps in threads of this process, behind the interface of the supervisor's pool of processes.

Each executor is a thread that runs the very ``StepRunner`` of an executor process, fed by a queue instead of a socket.
What a thread cannot have is an end by force: code that does not return when it is told is given up. Its answer is
ignored, its thread is left to itself, and its slot gets a new one.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from plaita.clock import boot_ms
from plaita.executor.contexts import Contexts
from plaita.executor.hygiene import Hygiene
from plaita.executor.step import StepRunner
from plaita.executor.stopping import StopSignal
from plaita.flow.model import NodeTypes
from plaita.ipc.blocking import FrameConnection
from plaita.ipc.frames import Frame, encode
from plaita.ipc.messages import Answer, Need, Progress, Run, Step, decode_from_executor
from plaita.nodes.callbacks import Callbacks
from plaita.policy.slot import Slot
from plaita.supervisor import logs
from plaita.supervisor.executor import Died, Executor
from plaita.supervisor.stats import Stats
from plaita.unix.reaper import unknown_exit

Said = Answer | Need | Progress


class ThreadStop(StopSignal):
    """Asked by the loop where a process gets SIGTERM: the cancel event is set, and no further attempt begins. Node code
    that is running is not interrupted; what it returns afterwards counts as stopped."""

    def ask(self) -> None:
        """From the loop's thread."""
        self.asked = True
        event = self._cancel_event
        if event is not None:
            event.set()
        if self._armed:
            self.raised = True


class _NothingToPutRight(Hygiene):
    """The process is the program's: nothing in it is put back after a step."""

    def __init__(self) -> None:
        """Looks at nothing."""

    def after_step(self) -> str | None:
        return None


class _ToLoop(FrameConnection):
    """Takes frames as a socket would, with the same limits, and hands the messages over."""

    def __init__(self, deliver: Callable[[Said], None]) -> None:
        self._deliver = deliver

    def send(self, frame: Frame) -> None:
        encode(frame)
        said = decode_from_executor(frame)
        if isinstance(said, Answer | Need | Progress):
            self._deliver(said)


@dataclass(slots=True, eq=False)
class ThreadExecutor(Executor):
    """``inbox``: what its thread is to run; None ends it."""

    inbox: queue.SimpleQueue[Run | Step | None] = field(default_factory=queue.SimpleQueue)
    stopper: ThreadStop = field(default_factory=ThreadStop)


class ThreadPool:
    """A ``stepping.StepPool``. There is always an executor to be had: how much is taken from the queue is the
    consumer's business, and a direct call does not wait for another. Idle ones above ``keep`` end."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        registry: NodeTypes,
        stats: Stats,
        *,
        callbacks: Callbacks | None,
        keep: int,
        grace_s: float,
        on_capacity: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._registry = registry
        self._callbacks = callbacks
        self._stats = stats
        self._keep = keep
        self._grace_s = grace_s
        self._on_capacity = on_capacity
        self._executors: list[ThreadExecutor] = []
        self._seq = 0
        self._run_seq = 0

    # -- what the stepper asks ------------------------------------------------------------------------

    def try_acquire(self, tenant: str) -> Executor | None:
        """An idle executor, or a new one."""
        found = next((executor for executor in self._executors if executor.available), None) or self._new()
        found.reserved = True
        found.tenant = tenant
        return found

    async def acquire(self, tenant: str) -> Executor:
        """As ``try_acquire``, which always has one."""
        executor = self.try_acquire(tenant)
        assert executor is not None
        return executor

    def release(self, executor: Executor) -> None:
        """The carrier is done with it."""
        executor.reserved = False
        executor.execution_id = executor.flow_id = executor.node_id = None
        idle = sum(1 for other in self._executors if other.available)
        if executor.available and idle > self._keep:
            self._end(executor)
        self._on_capacity()

    def retire(self, executor: Executor, reason: str) -> None:
        """An idle one leaves."""
        logs.debug("executor.retired", slot=executor.slot, reason=reason)
        if executor.state is Slot.IDLE:
            self._end(executor)

    def next_run_seq(self) -> int:
        self._run_seq += 1
        return self._run_seq

    def run(self, executor: Executor, message: Run | Step) -> asyncio.Future[Answer | Need | Died]:
        """Give a step to an idle executor; what comes of it."""
        assert isinstance(executor, ThreadExecutor)
        assert executor.state is Slot.IDLE
        executor.state = Slot.BUSY
        executor.run_seq = message.seq
        executor.stop_reason = None
        executor.kill_detail = ""
        executor.step_started = boot_ms()
        executor.waiting = self._loop.create_future()
        executor.inbox.put(message)
        return executor.waiting

    # -- telling and giving up ----------------------------------------------------------------------------

    def stop(self, executor: Executor, reason: str, grace_s: float | None = None) -> None:
        """Tell node code to stop; after the grace it is given up. Asked again, a shorter grace counts."""
        assert isinstance(executor, ThreadExecutor)
        if executor.state not in (Slot.BUSY, Slot.ASKED):
            return
        executor.stop_reason = executor.stop_reason or reason
        executor.state = Slot.ASKED
        executor.stopper.ask()
        due = self._loop.time() + (self._grace_s if grace_s is None else grace_s)
        if executor.deadline is not None and executor.deadline.when() <= due:
            return
        if executor.deadline is not None:
            executor.deadline.cancel()
        executor.deadline = self._loop.call_at(due, self.kill, executor, "it did not return when it was told to stop")

    def kill(self, executor: Executor, detail: str) -> None:
        """Give the step up now: whatever its thread does from here on, nobody listens."""
        if executor.state not in (Slot.BUSY, Slot.ASKED):
            return
        assert isinstance(executor, ThreadExecutor)
        executor.stopper.ask()
        self._stats.add("executor_deaths")
        logs.warning(
            "step.given_up",
            execution_id=executor.execution_id,
            node_id=executor.node_id,
            reason=executor.stop_reason or detail,
            advice="its thread runs on until its code returns; let nodes look at cancel_event",
        )
        died = Died(unknown_exit(0), executor.stop_reason, executor.kill_detail or detail)
        self._end(executor)
        executor.deliver(died)

    def close(self) -> None:
        """End the idle ones and give the others up."""
        for executor in list(self._executors):
            if executor.state is Slot.IDLE:
                self._end(executor)
            else:
                self.kill(executor, "the worker stops")

    # -- threads ----------------------------------------------------------------------------------------------

    def _new(self) -> ThreadExecutor:
        self._seq += 1
        executor = ThreadExecutor(slot=self._seq, seq=self._seq, state=Slot.IDLE)
        self._executors.append(executor)
        self._stats.add("executor_spawns")
        threading.Thread(target=self._work, args=(executor,), name=f"plaita-executor-{self._seq}", daemon=True).start()
        return executor

    def _end(self, executor: Executor) -> None:
        assert isinstance(executor, ThreadExecutor)
        if executor.deadline is not None:
            executor.deadline.cancel()
        executor.state = Slot.GONE
        executor.inbox.put(None)
        if executor in self._executors:
            self._executors.remove(executor)

    def _work(self, executor: ThreadExecutor) -> None:
        """A thread's life."""

        def deliver(said: Said) -> None:
            try:
                self._loop.call_soon_threadsafe(self._said, executor, said)
            except RuntimeError:  # the loop is closed: the worker has stopped, and gave this step up
                executor.inbox.put(None)

        runner = StepRunner(
            _ToLoop(deliver),
            Contexts(self._registry),
            executor.stopper,
            _NothingToPutRight(),
            title=None,
            callbacks=self._callbacks,
        )
        while (message := executor.inbox.get()) is not None:
            try:
                if not runner.run(message):
                    return
            except BaseException as error:  # noqa: BLE001 - a bug of ours: what the end of a process would be
                logs.error("executor.bug", slot=executor.slot, error=repr(error))
                self._loop.call_soon_threadsafe(self.kill, executor, f"bug: {error!r}")
                return

    def _said(self, executor: ThreadExecutor, said: Said) -> None:
        if executor.state is Slot.GONE:
            return  # given up
        if isinstance(said, Progress):
            logs.info("step.progress", execution_id=executor.execution_id, node_id=executor.node_id, note=said.note)
            return
        executor.step_started = None
        if isinstance(said, Answer):
            executor.steps_done += 1
        if executor.deadline is not None:
            executor.deadline.cancel()
            executor.deadline = None
        if isinstance(said, Answer) and said.retire is not None:
            self._end(executor)
        else:
            executor.state = Slot.IDLE
        executor.deliver(said)
