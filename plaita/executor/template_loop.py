"""The template's loop: one poll over the supervisor's socket, births under way, executors and the dead-man switch.

Nothing in here waits for anything but that poll (DECISIONS 10): a template that is stuck can kill nobody. Messages are
read before the clock is looked at, so that a tick which came in time counts, however late this process was woken.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import socket
import sys
from collections import deque
from collections.abc import Callable
from typing import NoReturn

from plaita import clock
from plaita.errors import FrameError
from plaita.executor.forking import Birth, fork_executor
from plaita.executor.main import Newborn, live
from plaita.executor.plugins import LatePlugin
from plaita.ipc.template_socket import (
    DESCRIPTORS,
    Adopt,
    Exit,
    Fatal,
    Forget,
    Spawn,
    Spawned,
    SpawnFailed,
    TemplateMessage,
    Tick,
    close_all,
    receive,
    send,
)
from plaita.nodes.registry import NodeRegistry
from plaita.unix.prctl import BootTimer
from plaita.unix.processes import kill_group, kill_session, pidfd_send_signal, send_signal, sweep, thread_count

_SWEEP_LIMIT_MS = 10_000
_EXIT_FATAL = 70


class Template:
    """``supervisor``: its pid, which executors wait to have as their parent. ``mark``: PLAITA_TREE of this tree.
    ``temporary``: the folder with the temporary folders of executors, removed when the supervisor is gone."""

    def __init__(
        self,
        sock: socket.socket,
        *,
        generation: int,
        supervisor: int,
        mark: str,
        registry: NodeRegistry,
        late: tuple[LatePlugin, ...],
        preloaded: tuple[str, ...],
        temporary: str = "",
    ) -> None:
        self._sock = sock
        self._generation = generation
        self._supervisor = supervisor
        self._mark = mark
        self._registry = registry
        self._late = late
        self._preloaded = preloaded
        self._temporary = temporary
        self._poller = select.poll()
        self._timer = BootTimer()
        self._kill_at: int | None = None
        self._executors: dict[int, int] = {}  # pid -> pidfd
        self._births: list[Birth] = []
        self._outgoing: deque[tuple[TemplateMessage, tuple[int, ...], Callable[[], object] | None]] = deque()
        self._handlers: dict[int, Callable[[], object]] = {}
        self._leaving = False
        self._exit_code: int | None = None
        self._watch(sock.fileno(), self._read_messages)
        self._watch(self._timer.fileno(), lambda: None)

    # -- the loop ---------------------------------------------------------------------------------

    def run(self) -> int:
        """Serve until told to leave, or until the supervisor is gone and its tree killed; the exit code."""
        while self._exit_code is None:
            ready = {descriptor: self._handlers.get(descriptor) for descriptor, _ in self._poller.poll()}
            if ready.pop(self._sock.fileno(), None) is not None:
                self._send_waiting()
                self._read_messages()
            for descriptor, handler in ready.items():
                # What was done in this round may have closed it, and the number may be another's by now.
                if handler is not None and self._handlers.get(descriptor) is handler:
                    handler()
            if self._kill_at is not None and clock.boot_ms() >= self._kill_at:
                self._dead_man()
            if self._leaving and not self._births and not self._outgoing:
                return 0
        return self._exit_code

    def _watch(self, descriptor: int, handler: Callable[[], object]) -> None:
        self._handlers[descriptor] = handler
        self._poller.register(descriptor, select.POLLIN)

    def _unwatch(self, descriptor: int) -> None:
        if self._handlers.pop(descriptor, None) is not None:
            self._poller.unregister(descriptor)

    # -- the supervisor ---------------------------------------------------------------------------

    def say(
        self, message: TemplateMessage, descriptors: tuple[int, ...] = (), then: Callable[[], object] | None = None
    ) -> None:
        """Tell the supervisor now, or as soon as its socket takes it; ``then`` is called once it is out."""
        self._outgoing.append((message, descriptors, then))
        self._send_waiting()

    def _send_waiting(self) -> None:
        while self._outgoing:
            message, descriptors, then = self._outgoing[0]
            try:
                send(self._sock, message, descriptors)
            except BlockingIOError:
                self._poller.modify(self._sock.fileno(), select.POLLIN | select.POLLOUT)
                return
            except OSError:
                self._outgoing.clear()  # the other end is gone: the next read says so
                return
            self._outgoing.popleft()
            if then is not None:
                then()
        self._poller.modify(self._sock.fileno(), select.POLLIN)

    def _read_messages(self) -> None:
        while self._exit_code is None:
            try:
                received = receive(self._sock)
            except BlockingIOError:
                return
            except FrameError as error:
                self._fatal(f"the supervisor's socket carries {error}")
                return
            except OSError:
                received = None
            if received is None:
                self._supervisor_gone()
                return
            message, descriptors = received
            if len(descriptors) != DESCRIPTORS.get(type(message), 0):
                close_all(descriptors)
                if isinstance(message, Spawn):
                    self.say(SpawnFailed(message.slot, message.seq, "no descriptor left in the template"))
                continue
            self._obey(message, descriptors)

    def _obey(self, message: TemplateMessage, descriptors: list[int]) -> None:
        if isinstance(message, Tick):
            self._kill_at = message.kill_at_boot_ms
            self._timer.arm(message.kill_at_boot_ms)
        elif isinstance(message, Spawn):
            self._spawn(message, descriptors)
        elif isinstance(message, Adopt):
            self._keep(message.pid, descriptors[0])
        elif isinstance(message, Forget):
            self._forget(message.pid)
        elif isinstance(message, Exit):
            self._leaving = True

    def _fatal(self, reason: str) -> None:
        _log(reason)
        self.say(Fatal(reason))
        self._exit_code = _EXIT_FATAL

    # -- births -----------------------------------------------------------------------------------

    def _spawn(self, message: Spawn, descriptors: list[int]) -> None:
        threads = thread_count()
        if threads != 1:
            close_all(descriptors)
            self._fatal(f"the template has {threads} threads and must not fork")
            return
        newborn = Newborn(
            slot=message.slot,
            generation=self._generation,
            supervisor=self._supervisor,
            socket_fd=descriptors[0],
            stdout_fd=descriptors[1],
            stderr_fd=descriptors[2],
            rlimit_data_mib=message.rlimit_data_mib,
            started_ms=clock.wall_ms(),
            registry=self._registry,
            late=self._late,
            preloaded=self._preloaded,
            temporary=message.temporary,
        )

        def become() -> NoReturn:
            live(newborn)

        sys.stdout.flush()
        sys.stderr.flush()
        try:
            birth = fork_executor(message.slot, message.seq, become)
        except OSError as error:
            self.say(SpawnFailed(message.slot, message.seq, f"fork: {error}"))
            return
        finally:
            close_all(descriptors)
        self._births.append(birth)
        self._watch(birth.report.fileno(), lambda: self._reported(birth))
        self._watch(birth.middle_pidfd, lambda: self._middle_ended(birth))

    def _reported(self, birth: Birth) -> None:
        if birth.reported:
            self._unwatch(birth.report.fileno())  # only its end-of-file can follow, and the pidfd tells that too
            return
        report = birth.read_report()
        if report is None:
            self._unwatch(birth.report.fileno())
            return
        birth.reported = True
        if isinstance(report, str):
            self.say(SpawnFailed(birth.slot, birth.seq, report), then=birth.release)
            return
        pid, pidfd = report
        self._keep(pid, pidfd)

        def told() -> None:
            birth.release()
            if self._executors.get(pid) != pidfd:  # it ended while the message was waiting
                os.close(pidfd)

        self.say(Spawned(birth.slot, birth.seq, pid), (pidfd,), then=told)

    def _middle_ended(self, birth: Birth) -> None:
        if not birth.reported:
            self._reported(birth)  # it may have reported and died between two polls
        os.waitpid(birth.middle, 0)  # its pidfd says that it has ended: this does not wait
        if not birth.reported:
            reason = "the process between template and executor was killed before it could report"
            self.say(SpawnFailed(birth.slot, birth.seq, reason))
        self._unwatch(birth.report.fileno())
        self._unwatch(birth.middle_pidfd)
        self._births.remove(birth)
        birth.close()

    # -- executors --------------------------------------------------------------------------------

    def _keep(self, pid: int, pidfd: int) -> None:
        self._forget(pid)
        self._executors[pid] = pidfd
        self._watch(pidfd, lambda: self._forget(pid))

    def _forget(self, pid: int) -> None:
        pidfd = self._executors.pop(pid, None)
        if pidfd is None:
            return
        self._unwatch(pidfd)
        if not any(pidfd in descriptors for _, descriptors, _ in self._outgoing):
            os.close(pidfd)  # else the message that waits to be sent with it closes it

    def _kill_executors(self) -> int:
        """SIGKILL every executor and its session. The group first: it can be told from a stranger's only while its
        leader is alive or unreaped, which the pidfd of a living process guarantees."""
        killed = 0
        for pid, pidfd in self._executors.items():
            if not pidfd_send_signal(pidfd, 0):
                continue
            kill_group(pid)
            killed += pidfd_send_signal(pidfd, signal.SIGKILL)
            kill_session(pid)
        return killed

    def _dead_man(self) -> None:
        """The supervisor has not turned, and what its executors do would not be theirs to do any more (DECISIONS 9)."""
        self._kill_at = None
        self._timer.arm(None)
        killed = self._kill_executors()
        swept, left = self._sweep()
        _log(
            f"the supervisor was silent past the end of its leases; killed {killed} executors "
            f"and {swept} processes of their nodes{_listed(left)}"
        )

    def _supervisor_gone(self) -> None:
        """Its executors die by their parent-death signal; what their nodes have started is killed here."""
        for birth in self._births:
            send_signal(birth.middle, signal.SIGKILL)  # its executor sees a parent that is not the supervisor and ends
        self._kill_executors()
        swept, left = self._sweep()
        if swept or left:
            _log(f"the supervisor is gone; killed {swept} processes of its tree{_listed(left)}")
        if self._temporary:
            shutil.rmtree(self._temporary, ignore_errors=True)  # what is left is swept at the next start
        self._exit_code = 0

    def _sweep(self) -> tuple[int, list[int]]:
        if not self._mark:
            return 0, []
        return sweep(self._mark, spare_templates=True, limit_ms=_SWEEP_LIMIT_MS)


def _listed(pids: list[int]) -> str:
    return f"; still alive: {', '.join(map(str, pids))}" if pids else ""


def _log(text: str) -> None:
    try:
        print(f"plaita template: {text}", file=sys.stderr, flush=True)
    except OSError:  # nobody reads it, as after the supervisor's death: no reason to stop
        pass
