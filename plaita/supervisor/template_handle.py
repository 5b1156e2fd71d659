"""The supervisor's hand on the template process: starts it by exec, talks to it, notices its death.

The supervisor has threads and sockets from its first connection on, so it never forks: ``posix_spawn`` of a fresh
interpreter at boot, after a death and for a reload alike (DESIGN, "Processes"). The environment is an allow-list:
no Redis URL, no configuration path (DECISIONS 34).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from plaita.clock import boot_ms
from plaita.errors import FrameError
from plaita.ipc.template_socket import (
    DESCRIPTORS,
    Adopt,
    Exit,
    Fatal,
    Forget,
    Importing,
    Ready,
    Spawn,
    Spawned,
    SpawnFailed,
    TemplateMessage,
    Tick,
    close_all,
    receive,
    send,
    socket_pair,
    template_argv,
    template_environment,
)
from plaita.policy.respawn import TEMPLATE_WINDOW_MS, recent_deaths, template_delay_ms
from plaita.supervisor import logs
from plaita.unix.spawn import spawn_with_channel

# Settings that node code itself reads; none of them is a secret. Authors' own variables: PLAITA_NODE_ENV_*.
PASSED_ON_PREFIXES = ("PLAITA_NODE_ENV_", "PLAITA_HTTP_", "PLAITA_SANDBOX_", "PLAITA_NODES_")


@dataclass(frozen=True, slots=True)
class TemplateSettings:
    """What a template needs to be started. ``preload`` are module names. ``temporary``: the folder with the temporary
    folders of executors, which it removes when the supervisor is gone. ``deadline_s``: how long its imports may
    take."""

    preload: tuple[str, ...]
    user: str | None
    tree_mark: str
    temporary: str = ""
    deadline_s: float = 120.0


class TemplateHandle:
    """One living template at most. ``on_spawned(message, pidfd)``, ``on_spawn_failed(message)`` and
    ``on_ready(message)`` are called on the loop; ``on_fatal(reason)`` when it can never work (a preload that does not
    import)."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        settings: TemplateSettings,
        *,
        generation: int = 0,
        on_ready: Callable[[TemplateHandle, Ready], None],
        on_spawned: Callable[[Spawned, int], None],
        on_spawn_failed: Callable[[SpawnFailed], None],
        on_fatal: Callable[[TemplateHandle, str], None],
        on_death: Callable[[TemplateHandle], None],
        on_exit_hint: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._settings = settings
        self._on_ready = on_ready
        self._on_spawned = on_spawned
        self._on_spawn_failed = on_spawn_failed
        self._on_fatal = on_fatal
        self._on_death = on_death
        self._on_exit_hint = on_exit_hint
        self._socket: socket.socket | None = None
        self._overdue = False
        self._pidfd: int | None = None
        self._ready_deadline: asyncio.TimerHandle | None = None
        self._restart: asyncio.TimerHandle | None = None
        self._ends: deque[int] = deque(maxlen=32)  # when it died, or could not be started, boot ms
        self._last_end = ""
        self._fatal = ""  # why this one can never work, in its own words
        self._stopping = False
        self.generation = generation
        self.importing = ""  # the module it said last that it imports
        self.pid: int | None = None
        self.ready: Ready | None = None

    def start(self) -> None:
        """Start a template; it says Ready when its imports are done."""
        self._restart = None
        if self._stopping:
            return
        self.generation += 1
        self.importing = self._fatal = ""
        self._overdue = False
        try:
            ours, theirs = socket_pair()
            with contextlib.closing(theirs):
                self.pid = self._spawn(theirs, ours)
        except OSError as error:
            logs.error("template.spawn_failed", error=error)
            self._start_again(f"it cannot be started: {error}")
            return
        self._pidfd = os.pidfd_open(self.pid)
        self._loop.add_reader(self._pidfd, self._on_exit_hint)
        self._socket = ours
        self._loop.add_reader(ours.fileno(), self._readable)
        self._ready_deadline = self._loop.call_later(self._settings.deadline_s, self._not_ready)
        logs.info("template.started", pid=self.pid, generation=self.generation)

    def _spawn(self, theirs: socket.socket, ours: socket.socket) -> int:
        allowed = [name for name in os.environ if name.startswith(PASSED_ON_PREFIXES)]
        environment = template_environment(self._settings.tree_mark, allowed=allowed)
        try:
            return spawn_with_channel(
                template_argv(self.generation, self._settings.preload, self._settings.user, self._settings.temporary),
                environment,
                theirs.fileno(),
            )
        except OSError:
            ours.close()
            raise

    def _readable(self) -> None:
        reset = False
        while self._socket is not None:
            try:
                received = receive(self._socket)
            except BlockingIOError:
                return
            except ConnectionResetError as error:
                # It ended with ticks unread, which the kernel tells once and first. Its last words are still there: a
                # Fatal that is not heard would make it start over and over.
                if reset:
                    self._closed(str(error))
                    return
                reset = True
                continue
            except (OSError, FrameError) as error:
                self._closed(str(error))
                return
            if received is None:
                self._closed("closed by the template")
                return
            message, fds = received
            if len(fds) != DESCRIPTORS.get(type(message), 0):
                # No descriptor left in this process: what came cannot be watched over.
                close_all(fds)
                logs.error("template.descriptors_missing", message=message.kind)
                if isinstance(message, Spawned):
                    self._on_spawn_failed(SpawnFailed(message.slot, message.seq, "no descriptor left for its pidfd"))
                continue
            self._received(message, fds)

    def _received(self, message: TemplateMessage, fds: list[int]) -> None:
        if isinstance(message, Ready):
            self._cancel_deadline()
            self.importing = ""
            self.ready = message
            for module, reason in message.late_modules.items():
                logs.warning("template.late_module", module=module, reason=reason)
            logs.info("template.ready", pid=message.pid, generation=message.generation)
            self._on_ready(self, message)
        elif isinstance(message, Spawned):
            self._on_spawned(message, fds[0])
        elif isinstance(message, SpawnFailed):
            self._on_spawn_failed(message)
        elif isinstance(message, Importing):
            self.importing = message.module
        elif isinstance(message, Fatal):
            self._fatal = message.reason
            logs.error("template.fatal", reason=message.reason)
            self._on_fatal(self, message.reason)

    def _closed(self, reason: str) -> None:
        self._close_socket()
        # The socket says what the reaper will say too; only the reaper's word counts, so make sure that it comes.
        if self.pid is not None and not self._stopping:
            logs.warning("template.socket_closed", pid=self.pid, reason=reason)
            self.kill()

    def _not_ready(self) -> None:
        self._overdue = True
        deadline_s = self._settings.deadline_s
        logs.error("template.not_ready", pid=self.pid, seconds=deadline_s, importing=self.importing or None)
        self.kill()

    def why(self, cause: str) -> str:
        """Why one that was to follow another ended before it stood: ``cause`` is what the reaper saw."""
        return f"the new template {self._how(cause)}"

    def _how(self, cause: str) -> str:
        where = f" while it imported {self.importing}" if self.importing else ""
        if self._overdue:
            return f"did not stand within {self._settings.deadline_s:g} s{where} (--template-deadline)"
        return f"ended{where}: {cause}"

    def _cancel_deadline(self) -> None:
        if self._ready_deadline is not None:
            self._ready_deadline.cancel()
            self._ready_deadline = None

    def kill(self) -> None:
        """SIGKILL, for a template that does not answer; its executors go on."""
        if self._pidfd is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)

    def exited(self, cause: str) -> None:
        """The reaper has seen it die: start another, sooner or later."""
        logs.log(
            10 if self._stopping else 30,
            "template.exited",
            pid=self.pid,
            cause=cause,
            importing=self.importing or None,
        )
        self._cancel_deadline()
        self._drop()
        self._on_death(self)
        if not self._stopping:
            self._start_again(self._fatal or f"it {self._how(cause)}")

    def _start_again(self, cause: str) -> None:
        now = boot_ms()
        self._ends.append(now)
        self._last_end = cause
        wait_ms = template_delay_ms(self._ends, now)
        if wait_ms:
            logs.warning("template.restart_delayed", wait_ms=wait_ms, deaths=recent_deaths(self._ends, now))
        self._restart = self._loop.call_later(wait_ms / 1000, self.start)

    @property
    def words(self) -> str:
        """What it is at before it stands, for people; empty when it does."""
        if self.can_spawn:
            return ""
        return f"the template imports {self.importing}" if self.importing else "the template starts"

    @property
    def trouble(self) -> str:
        """What keeps it from standing, for people; empty while it stands, or has ended once only."""
        deaths = recent_deaths(self._ends, boot_ms())
        if self.ready is not None or deaths < 2:
            return ""
        return f"the template ended {deaths} times in {TEMPLATE_WINDOW_MS // 1000} s, the last time: {self._last_end}"

    def _close_socket(self) -> None:
        if self._socket is not None:
            self._loop.remove_reader(self._socket.fileno())
            self._socket.close()
            self._socket = None

    def _drop(self) -> None:
        self._close_socket()
        if self._pidfd is not None:
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = None
        self.pid = None
        self.ready = None

    @property
    def can_spawn(self) -> bool:
        """It stands and has said Ready."""
        return self._socket is not None and self.ready is not None

    def spawn(self, message: Spawn, fds: list[int]) -> bool:
        """Ask for an executor; False when there is no template to ask. The descriptors stay the caller's to close."""
        return self._send(message, fds)

    def adopt(self, pid: int, pidfd: int) -> None:
        """Give it an executor it did not fork, for the dead-man switch."""
        self._send(Adopt(pid), [pidfd])

    def forget(self, pid: int) -> None:
        self._send(Forget(pid), [])

    def tick(self, kill_at: int | None) -> None:
        """The supervisor's loop turns; ``kill_at`` (boot ms) is when running steps must be dead without a later
        tick."""
        self._send(Tick(kill_at), [])

    def _send(self, message: TemplateMessage, fds: list[int]) -> bool:
        if self._socket is None:
            return False
        try:
            send(self._socket, message, fds)
        except (OSError, FrameError) as error:
            # A full or broken socket: a template that does not read for so long is as good as dead.
            logs.warning("template.send_failed", error=error, message=message.kind)
            self.kill()
            return False
        return True

    def leave(self) -> None:
        """Tell it to go without touching anybody: a newer generation stands. Its exit is no death."""
        self._start_no_more()
        self._send(Exit(), [])

    def stop(self) -> None:
        """No template any more. Closing the socket makes it kill and sweep whatever is left of its tree."""
        self._start_no_more()
        self._close_socket()

    def _start_no_more(self) -> None:
        self._stopping = True
        self._cancel_deadline()
        if self._restart is not None:
            self._restart.cancel()
            self._restart = None
