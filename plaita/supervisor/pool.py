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
import socket
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass

from plaita.clock import boot_ms, wall_ms
from plaita.ipc.frames import Frame
from plaita.ipc.messages import Answer, Hello, Leave, Need, Run, Step, decode_from_executor
from plaita.ipc.polled import FrameChannel
from plaita.ipc.template_socket import Spawn, Spawned, SpawnFailed
from plaita.policy import slot as machine
from plaita.policy.respawn import respawn_delay_ms
from plaita.policy.slot import Slot, SlotAction, SlotEvent
from plaita.supervisor import deaths, logs
from plaita.supervisor.deaths import Death
from plaita.supervisor.executor import Died, Executor, describe
from plaita.supervisor.output import OutputReader
from plaita.supervisor.stats import Stats
from plaita.supervisor.template_handle import TemplateHandle
from plaita.supervisor.temporary import TemporaryFolders
from plaita.supervisor.usual import UsualLengths
from plaita.unix.processes import kill_session, rss_kib
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
        self._temporary = temporary
        self._on_burial = on_burial
        self.template = template
        self._stats = stats
        self._on_capacity = on_capacity
        self._on_exit_hint = on_exit_hint
        self.executors: list[Executor] = []
        self.restarts = [-1] * settings.size  # per slot; the first spawn is none
        self.deaths: deque[Death] = deque(maxlen=deaths.KEPT)  # the last ones, for ``status``
        self.usual = UsualLengths()
        self._deaths: list[deque[int]] = [deque(maxlen=32) for _ in range(settings.size)]
        self._spawn_failures = [0] * settings.size
        self._seq = 0
        self._run_seq = 0
        self._new_from = 0
        self._unasked: set[int] = set()  # slots that wait for a template to be asked
        self._waiters: deque[tuple[str, asyncio.Future[Executor]]] = deque()
        self._early_exits: dict[int, Exit] = {}
        self._tasks: set[asyncio.Task[object]] = set()
        self._closing = False
        self._rss_timer: asyncio.TimerHandle | None = None

    # -- life ---------------------------------------------------------------------------------

    def start(self) -> None:
        """Ask for all executors; they come as soon as the template is ready."""
        for index in range(self._settings.size):
            self.executors.append(Executor(slot=index, seq=0, state=Slot.GONE))
            self._spawn(index)
        if self._settings.max_rss_mib is not None:
            self._rss_timer = self._loop.call_later(RSS_POLL_S, self._poll_rss)

    def template_ready(self) -> None:
        """A template stands: ask it for every slot that waits, and let it watch over the executors that live."""
        for executor in self.executors:
            if executor.pid is not None and executor.pidfd is not None:
                self.template.adopt(executor.pid, executor.pidfd)
        for index in sorted(self._unasked):
            self._spawn(index)

    def template_died(self, template: TemplateHandle) -> None:
        """What this one was asked for and had not done will not come; what another is doing goes on."""
        for executor in self.executors:
            asked = executor.state in (Slot.SPAWNING, Slot.KILLED) and executor.pid is None
            if asked and executor.template is template:
                self._apply(executor, SlotEvent.EXITED)

    def replace_all(self, template: TemplateHandle) -> None:
        """From now on ``template`` forks; every executor of before is replaced once it has nothing to do."""
        self.template = template
        self._new_from = self._seq + 1
        for executor in self.executors:
            if executor.available:
                self.retire(executor, "reload")

    @property
    def all_new(self) -> bool:
        """Every executor was spawned after the last ``replace_all`` and stands."""
        return all(
            executor.seq >= self._new_from and executor.state in (Slot.IDLE, Slot.BUSY) for executor in self.executors
        )

    async def wait_all_new(self) -> None:
        """Until ``all_new``; looked at often enough for a person who waits."""
        while not self.all_new:  # noqa: ASYNC110 - slots change for many reasons; one person waits
            await asyncio.sleep(0.05)

    def close(self) -> None:
        """No replacement any more; whoever waits for an executor is cancelled."""
        self._closing = True
        if self._rss_timer is not None:
            self._rss_timer.cancel()
        while self._waiters:
            self._waiters.popleft()[1].cancel()

    def kill_all(self) -> None:
        """SIGKILL to every executor's session, whatever it is doing: the last act before leaving."""
        for executor in self.executors:
            if executor.state is not Slot.GONE:
                self._kill(executor)

    # -- asking for executors -------------------------------------------------------------------

    @property
    def free(self) -> int:
        """How many carriers could start now: available executors that nobody in here waits for."""
        available = sum(1 for executor in self.executors if executor.available)
        return max(0, available - len(self._waiters))

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
        if executor.available and executor.seq < self._new_from:
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
        if self._apply(executor, SlotEvent.STOP) is Slot.ASKED:
            self._start_grace(executor, grace)

    def kill(self, executor: Executor, detail: str) -> None:
        """SIGKILL now. ``detail`` says why, for the death record."""
        executor.kill_detail = executor.kill_detail or detail
        self._apply(executor, SlotEvent.KILL)

    def retire(self, executor: Executor, reason: str) -> None:
        """Let an idle process leave by itself; its slot gets a fresh one."""
        logs.debug("executor.retired", slot=executor.slot, pid=executor.pid, reason=reason)
        if executor.state is Slot.IDLE and executor.channel is not None:
            executor.state = Slot.ASKED
            executor.channel.send(Leave().to_frame())
            self._start_grace(executor, self._settings.kill_grace_s)

    # -- the machine --------------------------------------------------------------------------------

    def _apply(self, executor: Executor, event: SlotEvent, outcome: Answer | Need | Exit | None = None) -> Slot:
        executor.state, actions = machine.transition(executor.state, event)
        for action in actions:
            self._perform(executor, action, outcome)
        return executor.state

    def _perform(self, executor: Executor, action: SlotAction, outcome: Answer | Need | Exit | None) -> None:
        match action:
            case SlotAction.OFFER:
                self._cancel_deadline(executor)
                self._spawn_failures[executor.slot] = 0
                if executor.seq < self._new_from:
                    self.retire(executor, "reload")  # the old template was at it when the new one took over
                else:
                    self._offer(executor)
            case SlotAction.DELIVER:
                assert isinstance(outcome, Answer | Need)
                self._answered(executor, outcome)
            case SlotAction.ASK:
                self._signal(executor, signal.SIGTERM)
            case SlotAction.KILL:
                self._kill(executor)
            case SlotAction.REPORT_EXIT:
                ended = outcome if isinstance(outcome, Exit) else unknown_exit(executor.pid or 0)
                executor.deliver(Died(ended, executor.stop_reason, executor.kill_detail))
            case SlotAction.COUNT_SPAWN_FAILURE:
                self._spawn_failures[executor.slot] += 1
                self._stats.add("spawn_failures")
            case SlotAction.REPLACE:
                self._bury(executor)
                self._clear_and_replace(executor)
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
                reader.new_step()
            limit = self._settings.max_steps
            if executor.state is Slot.IDLE and outcome.retire is not None:
                self.retire(executor, outcome.retire)
            elif executor.state is Slot.IDLE and limit is not None and executor.steps_done >= limit:
                self.retire(executor, "max steps")
            elif executor.state is Slot.ASKED and executor.channel is not None:
                executor.channel.send(Leave().to_frame())
        executor.deliver(outcome)

    def _start_grace(self, executor: Executor, grace_s: float, *, only_if_sooner: bool = False) -> None:
        due = self._loop.time() + grace_s
        if executor.deadline is not None and not executor.deadline.cancelled():
            if only_if_sooner and executor.deadline.when() <= due:
                return
            executor.deadline.cancel()
        executor.deadline = self._loop.call_later(grace_s, self._apply, executor, SlotEvent.GRACE_OVER)

    @staticmethod
    def _cancel_deadline(executor: Executor) -> None:
        if executor.deadline is not None:
            executor.deadline.cancel()
            executor.deadline = None

    def _signal(self, executor: Executor, number: signal.Signals) -> None:
        if executor.pidfd is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(executor.pidfd, number)

    def _kill(self, executor: Executor) -> None:
        if executor.pid is None:
            return
        # The pidfd names exactly this process; the session is safe to signal while it is not reaped.
        self._signal(executor, signal.SIGKILL)
        kill_session(executor.pid)

    # -- messages ------------------------------------------------------------------------------------

    def _on_frame(self, executor: Executor, frame: Frame) -> None:
        message = decode_from_executor(frame)
        if isinstance(message, Answer | Need):
            if message.seq != executor.run_seq or executor.waiting is None:
                self._protocol_error(executor, f"an answer to step {message.seq}, which was not asked")
                return
            self._apply(executor, SlotEvent.ANSWER, message)
        elif isinstance(message, Hello):
            self._greeted(executor, message.pid)
        else:
            logs.info("step.progress", execution_id=executor.execution_id, node_id=executor.node_id, note=message.note)

    def _greeted(self, executor: Executor, pid: int) -> None:
        if executor.pid is None:
            executor.hello_pid = pid  # its own socket was faster than the template's: spawned() will compare
        elif pid != executor.pid:
            self._protocol_error(executor, f"a hello of pid {pid}, not {executor.pid}")
        else:
            self._apply(executor, SlotEvent.HELLO)

    def _protocol_error(self, executor: Executor, detail: str) -> None:
        logs.warning("executor.protocol_error", slot=executor.slot, pid=executor.pid, detail=detail)
        self.kill(executor, f"protocol error: {detail}")

    def _on_closed(self, executor: Executor, reason: str) -> None:
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

    # -- spawning and burying ---------------------------------------------------------------------------

    def _clear_and_replace(self, executor: Executor) -> None:
        """The next one is born when nothing of this one is left to find, or when that takes too long."""
        if self._temporary is None or not executor.temporary:
            self._replace(executor.slot)
            return
        waiting: list[asyncio.TimerHandle] = []

        def cleared() -> None:
            if waiting:
                waiting.pop().cancel()
                self._replace(executor.slot)

        def tell() -> None:  # in the thread that has removed it
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody needs to know
                self._loop.call_soon_threadsafe(cleared)

        if self._temporary.remove(executor.temporary, tell):
            self._replace(executor.slot)
        else:
            waiting.append(self._loop.call_later(CLEAR_S, cleared))

    def _replace(self, index: int) -> None:
        if self._closing:
            return
        wait_ms = respawn_delay_ms(self._deaths[index], boot_ms(), spawn_failures=self._spawn_failures[index])
        if wait_ms == 0:
            self._spawn(index)
        else:
            logs.warning("executor.respawn_delayed", slot=index, wait_ms=wait_ms)
            self._loop.call_later(wait_ms / 1000, self._spawn, index)

    def _spawn(self, index: int) -> None:
        """Ask the template for an executor in this slot, or note that one must be asked when a template stands."""
        if self._closing or self.executors[index].state is not Slot.GONE:
            return
        if not self.template.can_spawn:
            self._unasked.add(index)
            return
        self._unasked.discard(index)
        self._seq += 1
        executor = Executor(slot=index, seq=self._seq, template=self.template)
        self.executors[index] = executor
        try:
            self._ask_template(executor)
        except OSError as error:  # EMFILE, ENOMEM: nothing was made, nothing leaks; try again later
            logs.error("executor.spawn_failed", slot=index, error=error)
            self._apply(executor, SlotEvent.EXITED)

    def _ask_template(self, executor: Executor) -> None:
        with contextlib.ExitStack() as stack:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
            stack.callback(theirs.close)
            guard = stack.enter_context(contextlib.ExitStack())
            guard.callback(ours.close)
            pipes = []
            for _ in range(2):
                read_end, write_end = os.pipe()
                stack.callback(os.close, write_end)
                guard.callback(os.close, read_end)
                pipes.append((read_end, write_end))
            # Set before the request is sent, so that no executor is ever SPAWNING without a deadline.
            executor.deadline = self._loop.call_later(SPAWN_DEADLINE_S, self._not_born, executor)
            backstop = None if self._settings.max_rss_mib is None else self._settings.max_rss_mib * 2 + 256
            if self._temporary is not None:
                executor.temporary = self._temporary.make(executor.seq)
            message = Spawn(
                slot=executor.slot, seq=executor.seq, rlimit_data_mib=backstop, temporary=executor.temporary
            )
            if not self.template.spawn(message, [theirs.fileno(), pipes[0][1], pipes[1][1]]):
                self._cancel_deadline(executor)
                raise OSError("the template does not take requests")
            guard.pop_all()
        self.restarts[executor.slot] += 1
        self._stats.add("executor_spawns")
        executor.channel = FrameChannel(
            self._loop,
            ours,
            lambda frame: self._on_frame(executor, frame),
            lambda reason: self._on_closed(executor, reason),
        )
        self._background(executor.channel.open())
        executor.outputs = [
            OutputReader(self._loop, read_end, name, lambda: self._about(executor), self._stats)
            for name, (read_end, _) in zip(("stdout", "stderr"), pipes, strict=True)
        ]

    def _not_born(self, executor: Executor) -> None:
        silent = executor.state is Slot.SPAWNING and executor.pid is None
        self._apply(executor, SlotEvent.SPAWN_DEADLINE)
        if silent and executor.template is not None:
            # There is no process to reap, so only the end of the one that was asked gives the slot back.
            logs.error("template.silent", pid=executor.template.pid, slot=executor.slot, seconds=SPAWN_DEADLINE_S)
            executor.template.kill()

    def _background(self, work: Coroutine[object, object, object]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    @staticmethod
    def _about(executor: Executor) -> dict[str, object]:
        return {
            "slot": executor.slot,
            "pid": executor.pid,
            "execution_id": executor.execution_id,
            "node_id": executor.node_id,
        }

    def spawned(self, message: Spawned, pidfd: int) -> None:
        """The template has forked it; the pidfd was opened by its parent, so it names this process and no other."""
        executor = self.executors[message.slot]
        if executor.seq != message.seq or executor.state is Slot.GONE:
            # Asked for by an earlier life of the slot: nobody will use it.
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
            os.close(pidfd)
            return
        executor.pid = message.pid
        executor.pidfd = pidfd
        self._loop.add_reader(pidfd, self._on_exit_hint)
        if executor.template is not self.template:
            self.template.adopt(message.pid, pidfd)
        if executor.state is Slot.KILLED:
            self._kill(executor)
        if executor.hello_pid is not None:
            self._greeted(executor, executor.hello_pid)
        early = self._early_exits.pop(message.pid, None)
        if early is not None:
            self._apply(executor, SlotEvent.EXITED, early)

    def spawn_failed(self, message: SpawnFailed) -> None:
        """The template could not fork (EAGAIN, ENOMEM)."""
        executor = self.executors[message.slot]
        logs.error("executor.spawn_failed", slot=message.slot, error=message.reason)
        if executor.seq == message.seq and executor.state in (Slot.SPAWNING, Slot.KILLED):
            self._apply(executor, SlotEvent.EXITED)

    def exited(self, ended: Exit) -> bool:
        """The reaper's word. True if it was an executor of ours."""
        for executor in self.executors:
            if executor.pid == ended.pid and executor.state is not Slot.GONE:
                if executor.waiting is not None and executor.channel is not None:
                    executor.channel.read_rest()  # a step that was answered is not a step that died
                self._log_exit(executor, ended)
                self._apply(executor, SlotEvent.EXITED, ended)
                return True
        if any(executor.state is Slot.SPAWNING and executor.pid is None for executor in self.executors):
            # Dead before the template could tell its pid: kept for spawned(), a few only.
            self._early_exits[ended.pid] = ended
            while len(self._early_exits) > 64:
                self._early_exits.pop(next(iter(self._early_exits)))
        return False

    def _log_exit(self, executor: Executor, ended: Exit) -> None:
        expected = executor.state is Slot.ASKED or (executor.state is Slot.IDLE and ended.clean)
        if expected or self._closing:
            logs.debug("executor.exited", slot=executor.slot, pid=ended.pid, cause=describe(ended))
            return
        self._stats.add("executor_deaths")
        # Only these slow the slot down: one that leaves because it was told to says nothing about the host.
        self._deaths[executor.slot].append(boot_ms())
        death = Death(
            at=wall_ms(),
            slot=executor.slot,
            pid=ended.pid,
            cause=executor.kill_detail or describe(ended),
            execution_id=executor.execution_id,
            node_id=executor.node_id,
            peak_rss_mib=ended.max_rss_kib // 1024,
        )
        self.deaths.append(death)
        logs.warning("executor.died", **{name: value for name, value in death.row().items() if name != "at"})

    def _bury(self, executor: Executor) -> None:
        self._cancel_deadline(executor)
        if executor.channel is not None:
            executor.channel.close()
        for reader in executor.outputs:
            reader.close()
        if executor.pid is not None:
            kill_session(executor.pid)  # what it started and did not take along
            self.template.forget(executor.pid)
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

    @property
    def spawning(self) -> bool:
        """A spawn is outstanding: a child whose pid nobody has told us yet may be one of ours."""
        return any(executor.state is Slot.SPAWNING and executor.pid is None for executor in self.executors)

    def _poll_rss(self) -> None:
        limit = self._settings.max_rss_mib
        assert limit is not None
        for executor in self.executors:
            if executor.state in (Slot.BUSY, Slot.ASKED) and executor.pid is not None:
                used = rss_kib(executor.pid)
                if used is not None and used > limit * 1024:
                    self.kill(executor, f"memory: {used // 1024} MiB resident, over --max-executor-rss-mib {limit}")
        self._rss_timer = self._loop.call_later(RSS_POLL_S, self._poll_rss)
