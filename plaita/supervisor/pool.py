"""The pool of executors: one slot a CPU (or as told), each a state of ``policy.slot``, whose actions are performed
here.

Owns spawning, assigning, stopping, killing and replacing. Who waits for an executor waits here, first come first
served, those that go on with a carrier before new carriers. Does not know what a step means: ``dispatch`` does.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from plaita.clock import boot_ms, wall_ms
from plaita.ipc.frames import Frame
from plaita.ipc.messages import Answer, Hello, Leave, Need, Run, Step, decode_from_executor
from plaita.policy import slot as machine
from plaita.policy.slot import Slot, SlotAction, SlotEvent
from plaita.supervisor import deaths, logs
from plaita.supervisor.births import Births
from plaita.supervisor.deaths import Death
from plaita.supervisor.executor import Died, Executor, describe
from plaita.supervisor.renewal import Renewal
from plaita.supervisor.stats import Stats
from plaita.supervisor.template_handle import TemplateHandle
from plaita.supervisor.temporary import TemporaryFolders
from plaita.supervisor.usual import UsualLengths
from plaita.unix.oom import OomKills
from plaita.unix.processes import kill_session, kill_sessions, rss_kib
from plaita.unix.reaper import Exit, unknown_exit

SPAWN_DEADLINE_S = 15.0
RSS_POLL_S = 0.1
CLEAR_S = 10.0  # how long a slot waits for the temporary folder of its last executor to be removed
CLOSED_S = 0.5  # from the end of its pipe to its end: to give back much memory takes a while


@dataclass(frozen=True, slots=True)
class PoolSettings:
    """``kill_grace_s`` lies between SIGTERM and SIGKILL. Limits of None are off."""

    size: int
    kill_grace_s: float
    max_steps: int | None
    max_rss_mib: int | None


class ExecutorFault(Exception):
    """The supervisor asked a slot for what its state does not allow: a bug here, not in the executor."""


class Pool:
    """``on_capacity`` is called whenever an executor may have become free, ``on_exit_hint`` when one may have ended,
    ``on_burial`` when one has, so that what it started and lost can be ended. ``temporary``: where executors get their
    temporary folders; None: from nobody."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        settings: PoolSettings,
        template: TemplateHandle,
        stats: Stats,
        on_capacity: Callable[[], None],
        on_exit_hint: Callable[[], None],
        temporary: TemporaryFolders | None = None,
        on_burial: Callable[[], None] | None = None,
    ) -> None:
        self._loop = loop
        self._settings = settings
        self._on_burial = on_burial
        self._stats = stats
        self._on_capacity = on_capacity
        self.exit_hint = on_exit_hint
        self.executors: list[Executor] = []
        self.births = Births(
            loop,
            template,
            stats,
            self.executors,
            self,
            size=settings.size,
            rlimit_data_mib=None if settings.max_rss_mib is None else settings.max_rss_mib * 2 + 256,
            temporary=temporary,
        )
        self.deaths: deque[Death] = deque(maxlen=deaths.KEPT)  # the last ones, for ``status``
        self.usual = UsualLengths()
        self.oom = OomKills()
        self._run_seq = 0
        self._renewal = Renewal()
        self._waiters: deque[tuple[str, asyncio.Future[Executor]]] = deque()
        self._closing = False
        self._ending: set[int] = set()  # sessions of killed executors
        self._rss_timer: asyncio.TimerHandle | None = None

    # -- life ---------------------------------------------------------------------------------

    def start(self) -> None:
        """Ask for all executors; they come as soon as the template is ready."""
        self.births.start()
        if self._settings.max_rss_mib is not None:
            self._rss_timer = self._loop.call_later(RSS_POLL_S, self._poll_rss)

    def template_ready(self) -> None:
        """A template stands: let it watch over the executors that live, and ask it for those that are missing."""
        for executor in self.executors:
            if executor.pid is not None and executor.pidfd is not None:
                self.births.template.adopt(executor.pid, executor.pidfd)
        self.births.template_ready()

    def replace_all(self, template: TemplateHandle) -> None:
        """From now on ``template`` forks; the executors of before are replaced one by one, each after its step."""
        self.births.template = template
        self._renewal.begin(self.births.seq + 1)
        self._renew_next()

    def _renew_next(self) -> None:
        for executor in self.executors:
            if executor.available and self._renewal.leaves(executor):
                self.retire(executor, "reload")

    @property
    def old(self) -> int:
        """How many executors a reload has still to replace."""
        return len(self.old_ones)

    @property
    def old_ones(self) -> list[Executor]:
        """Those executors."""
        return [executor for executor in self.executors if self._renewal.is_old(executor)]

    @property
    def all_new(self) -> bool:
        """Every executor was spawned after the last ``replace_all`` and stands."""
        return not self.old and all(executor.state in (Slot.IDLE, Slot.BUSY) for executor in self.executors)

    def close(self) -> None:
        """No replacement any more; whoever waits for an executor is cancelled."""
        self._closing = True
        self.births.close()
        if self._rss_timer is not None:
            self._rss_timer.cancel()
        while self._waiters:
            self._waiters.popleft()[1].cancel()

    def kill_all(self) -> None:
        """SIGKILL to every executor's session, whatever it is doing: the last act before leaving."""
        for executor in self.executors:
            self._signal(executor, signal.SIGKILL)
        kill_sessions(self.known_pids())

    # -- asking for executors -------------------------------------------------------------------

    @property
    def free(self) -> int:
        """How many carriers could start now: available executors that nobody in here waits for."""
        available = sum(1 for executor in self.executors if executor.available)
        return max(0, available - len(self._waiters))

    @property
    def ready(self) -> int:
        """How many executors stand, at work or not."""
        return sum(1 for executor in self.executors if executor.state in (Slot.IDLE, Slot.BUSY))

    @property
    def busy(self) -> int:
        """How many executors a carrier has."""
        return sum(1 for executor in self.executors if executor.reserved)

    def try_acquire(self, tenant: str) -> Executor | None:
        """An available executor for this tenant at once, or None."""
        best = None
        for executor in self.executors:
            if executor.available:
                if executor.tenant == tenant:
                    best = executor
                    break
                if executor.tenant is None and best is None:
                    best = executor
        if best is None:
            return None
        best.reserved = True
        best.tenant = tenant
        return best

    async def acquire(self, tenant: str) -> Executor:
        """An executor for this tenant, reserved for the caller. An executor that served another tenant is retired
        first: its replacement is the caller's. Cancelled when the pool closes."""
        executor = self.try_acquire(tenant)
        if executor is not None:
            return executor
        waiter: asyncio.Future[Executor] = self._loop.create_future()
        self._waiters.append((tenant, waiter))
        self._make_room()
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self.release(waiter.result())
            else:
                self._waiters = deque(entry for entry in self._waiters if entry[1] is not waiter)
            raise

    def _make_room(self) -> None:
        # Executors that served other tenants are the only available ones left: each is retired for one waiter.
        strangers = [executor for executor in self.executors if executor.available]
        coming = sum(1 for executor in self.executors if executor.state in (Slot.SPAWNING, Slot.ASKED, Slot.KILLED))
        for executor in strangers[: max(0, len(self._waiters) - coming)]:
            self.retire(executor, "tenant")

    def release(self, executor: Executor) -> None:
        """The carrier is done with it."""
        executor.reserved = False
        executor.execution_id = executor.flow_id = executor.version = executor.node_id = None
        executor.step_started = executor.limit_ms = None
        if executor.available and self._renewal.leaves(executor):
            self.retire(executor, "reload")
        elif executor.available:
            self._offer(executor)

    def _offer(self, executor: Executor) -> None:
        while self._waiters and executor.available:
            tenant, waiter = self._waiters[0]
            if waiter.done():
                self._waiters.popleft()
                continue
            if executor.tenant not in (None, tenant):
                self.retire(executor, "tenant")
                return
            self._waiters.popleft()
            executor.reserved = True
            executor.tenant = tenant
            waiter.set_result(executor)
            return
        self._on_capacity()

    # -- steps ------------------------------------------------------------------------------------

    def next_run_seq(self) -> int:
        """A number for the next Run; an answer with another number is a protocol error."""
        self._run_seq += 1
        return self._run_seq

    def run(self, executor: Executor, message: Run | Step) -> asyncio.Future[Answer | Need | Died]:
        """Send a step; the future gives the answer, or how the process died. Raises ExecutorFault on a slot that is not
        idle."""
        following, actions = machine.transition(executor.state, SlotEvent.ASSIGN)
        if SlotAction.FAULT in actions or executor.channel is None:
            raise ExecutorFault(f"slot {executor.slot} is {executor.state.value}, not idle")
        executor.state = following
        executor.run_seq = message.seq
        executor.stop_reason = None
        executor.kill_detail = ""
        executor.step_started = boot_ms()
        future: asyncio.Future[Answer | Need | Died] = self._loop.create_future()
        executor.waiting = future
        executor.channel.send(message.to_frame())
        return future

    def stop(self, executor: Executor, reason: str, grace_s: float | None = None) -> None:
        """Ask the process to stop: SIGTERM, then after the grace SIGKILL to its session. ``reason`` is kept for whoever
        waits. Without effect on one that was asked already, but a shorter grace counts."""
        if executor.stop_reason is None:
            executor.stop_reason = reason
        grace = self._settings.kill_grace_s if grace_s is None else grace_s
        if executor.state is Slot.ASKED:
            self._start_grace(executor, grace, only_if_sooner=True)
            return
        if self.apply(executor, SlotEvent.STOP) is Slot.ASKED:
            self._start_grace(executor, grace)

    def kill(self, executor: Executor, detail: str) -> None:
        """SIGKILL now. ``detail`` says why, for the death record."""
        executor.kill_detail = executor.kill_detail or detail
        self.apply(executor, SlotEvent.KILL)

    def retire(self, executor: Executor, reason: str) -> None:
        """Let an idle process leave by itself; its slot gets a fresh one."""
        logs.debug("executor.retired", slot=executor.slot, pid=executor.pid, reason=reason)
        if executor.state is Slot.IDLE and executor.channel is not None:
            executor.state = Slot.ASKED
            executor.channel.send(Leave().to_frame())
            self._start_grace(executor, self._settings.kill_grace_s)

    # -- the machine --------------------------------------------------------------------------------

    def apply(self, executor: Executor, event: SlotEvent, outcome: Answer | Need | Exit | None = None) -> Slot:
        executor.state, actions = machine.transition(executor.state, event)
        for action in actions:
            self._perform(executor, action, outcome)
        return executor.state

    def _perform(self, executor: Executor, action: SlotAction, outcome: Answer | Need | Exit | None) -> None:
        match action:
            case SlotAction.OFFER:
                executor.cancel_deadline()
                self.births.stood(executor.slot)
                self._renewal.stands(executor)
                if self._renewal.leaves(executor):
                    self.retire(executor, "reload")  # the old template was at it when the new one took over
                else:
                    self._offer(executor)
                self._renew_next()
            case SlotAction.DELIVER:
                assert isinstance(outcome, Answer | Need)
                self._answered(executor, outcome)
            case SlotAction.ASK:
                self._signal(executor, signal.SIGTERM)
            case SlotAction.KILL:
                self.end_session(executor)
            case SlotAction.REPORT_EXIT:
                ended = outcome if isinstance(outcome, Exit) else unknown_exit(executor.pid or 0)
                executor.deliver(Died(ended, executor.stop_reason, executor.kill_detail))
            case SlotAction.COUNT_SPAWN_FAILURE:
                self.births.failed(executor.slot)
            case SlotAction.REPLACE:
                self._bury(executor)
                self.births.replace(executor)
            case SlotAction.SEND | SlotAction.FAULT:
                raise ExecutorFault(f"{action.value} is performed by run(), not here")

    def _answered(self, executor: Executor, outcome: Answer | Need) -> None:
        started, executor.step_started = executor.step_started, None
        if isinstance(outcome, Answer):
            executor.steps_done += 1
            key = executor.node_key
            if started is not None and key is not None and outcome.kind in ("advanced", "ended", "suspended"):
                self.usual.add(key, boot_ms() - started)
            for reader in executor.outputs:
                reader.step_ended()
            limit = self._settings.max_steps
            if executor.state is Slot.IDLE and outcome.retire is not None:
                self.retire(executor, outcome.retire)
            elif executor.state is Slot.IDLE and limit is not None and executor.steps_done >= limit:
                self.retire(executor, "max steps")
            elif self._renewal.leaves(executor):
                self.retire(executor, "reload")
            elif executor.state is Slot.IDLE and self._over_memory(executor) is not None:
                self.retire(executor, "memory")  # what a step has left behind is not the next one's fault
            elif executor.state is Slot.ASKED and executor.channel is not None:
                executor.channel.send(Leave().to_frame())
        executor.deliver(outcome)

    def _over_memory(self, executor: Executor) -> int | None:
        """Its resident memory in MiB where that is over the limit."""
        limit = self._settings.max_rss_mib
        used = rss_kib(executor.pid) if limit is not None and executor.pid is not None else None
        return used // 1024 if limit is not None and used is not None and used > limit * 1024 else None

    def _start_grace(self, executor: Executor, grace_s: float, *, only_if_sooner: bool = False) -> None:
        due = self._loop.time() + grace_s
        if executor.deadline is not None and not executor.deadline.cancelled():
            if only_if_sooner and executor.deadline.when() <= due:
                return
            executor.deadline.cancel()
        executor.deadline = self._loop.call_later(grace_s, self.apply, executor, SlotEvent.GRACE_OVER)

    def _signal(self, executor: Executor, number: signal.Signals) -> None:
        if executor.pidfd is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(executor.pidfd, number)

    def end_session(self, executor: Executor) -> None:
        if executor.pid is None:
            return
        # The pidfd names exactly this process. The sessions of all that are killed in one turn of the loop are ended by
        # one walk over /proc; that is safe for those that are not reaped by then, and a burial ends the others.
        self._signal(executor, signal.SIGKILL)
        if not self._ending:
            self._loop.call_soon(self._end_sessions)
        self._ending.add(executor.pid)

    def _end_sessions(self) -> None:
        ending, self._ending = self._ending, set()
        kill_sessions(ending & self.known_pids())

    # -- messages ------------------------------------------------------------------------------------

    def heard(self, executor: Executor, frame: Frame) -> None:
        message = decode_from_executor(frame)
        if isinstance(message, Answer | Need):
            if message.seq != executor.run_seq or executor.waiting is None:
                self._protocol_error(executor, f"an answer to step {message.seq}, which was not asked")
                return
            self.apply(executor, SlotEvent.ANSWER, message)
        elif isinstance(message, Hello):
            self.greeted(executor, message.pid)
        else:
            logs.info("step.progress", execution_id=executor.execution_id, node_id=executor.node_id, note=message.note)

    def greeted(self, executor: Executor, pid: int) -> None:
        if executor.pid is None:
            executor.hello_pid = pid  # its own socket was faster than the template's: spawned() will compare
        elif pid != executor.pid:
            self._protocol_error(executor, f"a hello of pid {pid}, not {executor.pid}")
        else:
            self.apply(executor, SlotEvent.HELLO)

    def _protocol_error(self, executor: Executor, detail: str) -> None:
        logs.warning("executor.protocol_error", slot=executor.slot, pid=executor.pid, detail=detail)
        self.kill(executor, f"protocol error: {detail}")

    def pipe_closed(self, executor: Executor, reason: str) -> None:
        # EOF is a hint, never proof of death: its end is the reaper's to tell, a moment later. But a process that lives
        # on without its pipe is of no use to anybody.
        if executor.state in (Slot.KILLED, Slot.GONE):
            return
        if executor.state is Slot.ASKED and reason == "eof":
            return  # it leaves, as it was told; its grace is running
        if reason.startswith("protocol"):
            self._protocol_error(executor, reason)
        else:
            self._loop.call_later(CLOSED_S, self._kill_if_alive, executor)

    def _kill_if_alive(self, executor: Executor) -> None:
        if executor.state not in (Slot.KILLED, Slot.GONE):
            self.kill(executor, "closed its pipe")

    # -- the end of one ---------------------------------------------------------------------------------

    def exited(self, ended: Exit) -> bool:
        """The reaper's word. True if it was an executor of ours."""
        for executor in self.executors:
            if executor.pid == ended.pid and executor.state is not Slot.GONE:
                self.ended(executor, ended)
                return True
        self.births.keep_early(ended)
        return False

    def ended(self, executor: Executor, ended: Exit) -> None:
        """Its process has been reaped."""
        if executor.waiting is not None and executor.channel is not None:
            executor.channel.read_rest()  # a step that was answered is not a step that died
        if ended.signal == signal.SIGKILL and self.oom.grew() and executor.state is not Slot.KILLED:
            executor.kill_detail = executor.kill_detail or f"{describe(ended)} (probably out of memory)"
        self._log_exit(executor, ended)
        self.apply(executor, SlotEvent.EXITED, ended)

    def _log_exit(self, executor: Executor, ended: Exit) -> None:
        expected = executor.state is Slot.ASKED or (executor.state is Slot.IDLE and ended.clean)
        if expected or self._closing:
            logs.debug("executor.exited", slot=executor.slot, pid=ended.pid, cause=describe(ended))
            return
        self._stats.add("executor_deaths")
        early = " before it said hello" if executor.state is Slot.SPAWNING else ""
        death = Death(
            at=wall_ms(),
            slot=executor.slot,
            pid=ended.pid,
            cause=executor.kill_detail or describe(ended) + early,
            execution_id=executor.execution_id,
            node_id=executor.node_id,
            peak_rss_mib=ended.max_rss_kib // 1024,
        )
        self.deaths.append(death)
        self.births.died(executor.slot, death.cause)
        logs.warning("executor.died", **{name: value for name, value in death.row().items() if name != "at"})

    def _bury(self, executor: Executor) -> None:
        executor.cancel_deadline()
        if executor.channel is not None:
            executor.channel.close()
        for reader in executor.outputs:
            reader.close()
        if executor.pid is not None:
            if not self._closing:  # then all sessions were ended at once
                kill_session(executor.pid)  # what it started and did not take along
            self.births.template.forget(executor.pid)
        if executor.pidfd is not None:
            self._loop.remove_reader(executor.pidfd)
            os.close(executor.pidfd)
            executor.pidfd = None
        executor.deliver(Died(unknown_exit(executor.pid or 0), executor.stop_reason, executor.kill_detail))
        if self._on_burial is not None:
            self._on_burial()

    def known_pids(self) -> set[int]:
        """The pids of executors that are not reaped yet."""
        return {
            executor.pid for executor in self.executors if executor.pid is not None and executor.state is not Slot.GONE
        }

    def _poll_rss(self) -> None:
        for executor in self.executors:
            if executor.state in (Slot.BUSY, Slot.ASKED):
                used = self._over_memory(executor)
                if used is not None:
                    limit = self._settings.max_rss_mib
                    self.kill(executor, f"memory: {used} MiB resident, over --max-executor-rss-mib {limit}")
        self._rss_timer = self._loop.call_later(RSS_POLL_S, self._poll_rss)
