"""How executors come to be: asked of the template, waited for, and replaced sooner or later when they have ended.

Owns what was asked of which template, the deadline of each birth, and how soon a slot gets its next executor
(``policy.respawn``). What an executor does once it stands is ``pool``'s, which is told through ``Slots``.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from collections import deque
from collections.abc import Coroutine
from typing import Protocol

from plaita.clock import boot_ms
from plaita.ipc.frames import Frame
from plaita.ipc.polled import FrameChannel
from plaita.ipc.template_socket import Spawn, Spawned, SpawnFailed
from plaita.policy.respawn import respawn_delay_ms
from plaita.policy.slot import Slot, SlotEvent
from plaita.supervisor import logs
from plaita.supervisor.executor import Executor
from plaita.supervisor.output import OutputReader
from plaita.supervisor.stats import Stats
from plaita.supervisor.template_handle import TemplateHandle
from plaita.supervisor.temporary import TemporaryFolders
from plaita.unix.reaper import Exit

SPAWN_DEADLINE_S = 15.0
CLEAR_S = 10.0  # how long a slot waits for the temporary folder of its last executor to be removed
EARLY_EXITS = 64


class Slots(Protocol):
    """What a birth tells the pool."""

    def apply(self, executor: Executor, event: SlotEvent) -> Slot: ...

    def heard(self, executor: Executor, frame: Frame) -> None: ...

    def greeted(self, executor: Executor, pid: int) -> None: ...

    def pipe_closed(self, executor: Executor, reason: str) -> None: ...

    def end_session(self, executor: Executor) -> None: ...

    def ended(self, executor: Executor, ended: Exit) -> None: ...

    def exit_hint(self) -> None: ...


class Births:
    """``executors``: the pool's list, in which a new one takes the place of the last. ``rlimit_data_mib``: the hard
    limit each gets, None for none. ``temporary``: where executors get their temporary folders; None: from nobody."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        template: TemplateHandle,
        stats: Stats,
        executors: list[Executor],
        slots: Slots,
        *,
        size: int,
        rlimit_data_mib: int | None,
        temporary: TemporaryFolders | None,
    ) -> None:
        self._loop = loop
        self.template = template
        self._stats = stats
        self._executors = executors
        self._slots = slots
        self._size = size
        self._rlimit_data_mib = rlimit_data_mib
        self._temporary = temporary
        self.restarts = [-1] * size  # per slot; the first spawn is none
        self._deaths: list[deque[int]] = [deque(maxlen=32) for _ in range(size)]
        self._failures = [0] * size  # births in a row that came to nothing
        self._due: dict[int, int] = {}  # slots whose next birth is put off: until when, boot ms
        self._why = ""
        self.seq = 0
        self._unasked: set[int] = set()  # slots that wait for a template to be asked
        self._early_exits: dict[int, Exit] = {}
        self._tasks: set[asyncio.Task[object]] = set()
        self._closing = False

    def close(self) -> None:
        """No executor any more."""
        self._closing = True

    # -- what others see and say ----------------------------------------------------------------------

    def start(self) -> None:
        """Ask for all; they come as soon as the template is ready."""
        for index in range(self._size):
            self._executors.append(Executor(slot=index, seq=0, state=Slot.GONE))
            self._spawn(index)

    def template_ready(self) -> None:
        """Ask it for every slot that waits for one that can be asked."""
        for index in sorted(self._unasked):
            self._spawn(index)

    def stood(self, index: int) -> None:
        """An executor in this slot has said hello."""
        self._failures[index] = 0

    def failed(self, index: int) -> None:
        """One came to nothing before its hello."""
        self._failures[index] += 1
        self._stats.add("spawn_failures")

    def died(self, index: int, cause: str) -> None:
        """One died, and not because it was told to: one that leaves says nothing about the host."""
        self._deaths[index].append(boot_ms())
        self._why = cause

    @property
    def outstanding(self) -> bool:
        """A child whose pid nobody has told us yet may be one of ours."""
        return any(executor.state is Slot.SPAWNING and executor.pid is None for executor in self._executors)

    @property
    def trouble(self) -> str:
        """Why executors are replaced slower than they end, for people; empty while they are not."""
        found = [self.template.trouble] if self.template.trouble else []
        if self._due:
            next_s = max(0, min(self._due.values()) - boot_ms()) / 1000
            slots = f"{len(self._due)} of {self._size} slots wait, the next for {next_s:.1f} s"
            found.append(f"respawn slowed: {slots}; the last: {self._why}")
        return "; ".join(found)

    # -- the next one -----------------------------------------------------------------------------------

    def replace(self, executor: Executor) -> None:
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
        now = boot_ms()
        wait_ms = respawn_delay_ms(self._deaths[index], now, spawn_failures=self._failures[index])
        if wait_ms == 0:
            self._spawn(index)
        else:
            logs.warning("executor.respawn_delayed", slot=index, wait_ms=wait_ms)
            self._due[index] = now + wait_ms
            self._loop.call_later(wait_ms / 1000, self._spawn, index)

    def _spawn(self, index: int) -> None:
        """Ask the template for an executor in this slot, or note that one must be asked when a template stands."""
        self._due.pop(index, None)
        if self._closing or self._executors[index].state is not Slot.GONE:
            return
        if not self.template.can_spawn:
            self._unasked.add(index)
            return
        self._unasked.discard(index)
        self.seq += 1
        executor = Executor(slot=index, seq=self.seq, template=self.template)
        self._executors[index] = executor
        try:
            self._ask_template(executor)
        except OSError as error:  # EMFILE, ENOMEM: nothing was made, nothing leaks; try again later
            self._log_failure(index, str(error))
            self._slots.apply(executor, SlotEvent.EXITED)

    def _log_failure(self, index: int, reason: str) -> None:
        self._why = reason
        logs.error("executor.spawn_failed", slot=index, error=reason)

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
            if self._temporary is not None:
                executor.temporary = self._temporary.make(executor.seq)
            message = Spawn(
                slot=executor.slot,
                seq=executor.seq,
                rlimit_data_mib=self._rlimit_data_mib,
                temporary=executor.temporary,
            )
            if not self.template.spawn(message, [theirs.fileno(), pipes[0][1], pipes[1][1]]):
                executor.cancel_deadline()
                raise OSError("the template does not take requests")
            guard.pop_all()
        self.restarts[executor.slot] += 1
        self._stats.add("executor_spawns")
        executor.channel = FrameChannel(
            self._loop,
            ours,
            lambda frame: self._slots.heard(executor, frame),
            lambda reason: self._slots.pipe_closed(executor, reason),
        )
        self._background(executor.channel.open())
        executor.outputs = [
            OutputReader(self._loop, read_end, name, executor.about, self._stats)
            for name, (read_end, _) in zip(("stdout", "stderr"), pipes, strict=True)
        ]

    def _not_born(self, executor: Executor) -> None:
        silent = executor.state is Slot.SPAWNING and executor.pid is None
        if executor.state is Slot.SPAWNING:
            executor.kill_detail = f"no hello within {SPAWN_DEADLINE_S:g} s"
            self._log_failure(executor.slot, executor.kill_detail)
        self._slots.apply(executor, SlotEvent.SPAWN_DEADLINE)
        if silent and executor.template is not None:
            # There is no process to reap, so only the end of the one that was asked gives the slot back.
            logs.error("template.silent", pid=executor.template.pid, slot=executor.slot, seconds=SPAWN_DEADLINE_S)
            executor.template.kill()

    def _background(self, work: Coroutine[object, object, object]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # -- what became of it ----------------------------------------------------------------------------------

    def spawned(self, message: Spawned, pidfd: int) -> None:
        """The template has forked it; the pidfd was opened by its parent, so it names this process and no other."""
        executor = self._executors[message.slot]
        if executor.seq != message.seq or executor.state is Slot.GONE:
            # Asked for by an earlier life of the slot: nobody will use it.
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
            os.close(pidfd)
            return
        executor.pid = message.pid
        executor.pidfd = pidfd
        self._loop.add_reader(pidfd, self._slots.exit_hint)
        if executor.template is not self.template:
            self.template.adopt(message.pid, pidfd)
        if executor.state is Slot.KILLED:
            self._slots.end_session(executor)
        if executor.hello_pid is not None:
            self._slots.greeted(executor, executor.hello_pid)
        early = self._early_exits.pop(message.pid, None)
        if early is not None:
            self._slots.ended(executor, early)

    def spawn_failed(self, message: SpawnFailed) -> None:
        """The template could not fork (EAGAIN, ENOMEM)."""
        executor = self._executors[message.slot]
        self._log_failure(message.slot, message.reason)
        if executor.seq == message.seq and executor.state in (Slot.SPAWNING, Slot.KILLED):
            self._slots.apply(executor, SlotEvent.EXITED)

    def template_died(self, template: TemplateHandle) -> None:
        """What this one was asked for and had not done will not come; what another is doing goes on."""
        for executor in self._executors:
            asked = executor.state in (Slot.SPAWNING, Slot.KILLED) and executor.pid is None
            if asked and executor.template is template:
                self._slots.apply(executor, SlotEvent.EXITED)

    def keep_early(self, ended: Exit) -> None:
        """A child died whose pid nobody has told yet: kept for ``spawned``, a few only."""
        if self.outstanding:
            self._early_exits[ended.pid] = ended
            while len(self._early_exits) > EARLY_EXITS:
                self._early_exits.pop(next(iter(self._early_exits)))
