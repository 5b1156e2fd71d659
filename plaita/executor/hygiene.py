"""After each step: what node code has left behind is put right, or the executor is to be replaced (DECISIONS 33).

Repaired: children, working directory, umask, signal handlers, mask and timers, environment, standard streams, module
path, interpreter switches. Not repaired, since nobody can tell what else hangs on it: more threads, a changed resource
limit, priority or user, a descriptor left or gone, a preloaded module replaced: then ``after_step`` names the reason.

Runs on every step, so the clean case is a handful of system calls; what is dear is done only when something is wrong.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import contextlib
import gc
import operator
import os
import resource
import signal
import socket
import stat
import sys
import time

from plaita.executor import crash_reports
from plaita.unix import prctl
from plaita.unix.processes import (
    all_processes,
    descriptor_count,
    open_descriptors,
    send_signal,
    thread_count,
)
from plaita.unix.reaper import has_children

CHILDREN_LIMIT_S = 2.0

_SIGNALS = tuple(sorted(int(number) for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}))
_TIMERS = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)
_LIMITS = {
    "RLIMIT_AS": resource.RLIMIT_AS,
    "RLIMIT_CPU": resource.RLIMIT_CPU,
    "RLIMIT_DATA": resource.RLIMIT_DATA,
    "RLIMIT_FSIZE": resource.RLIMIT_FSIZE,
    "RLIMIT_NOFILE": resource.RLIMIT_NOFILE,
    "RLIMIT_NPROC": resource.RLIMIT_NPROC,
    "RLIMIT_STACK": resource.RLIMIT_STACK,
}
_LIMIT_NUMBERS = tuple(_LIMITS.values())


class Hygiene:
    """Takes the present state of the process as the one to come back to. ``frame_fd``: the supervisor's socket.
    ``temporary``: this executor's own temporary folder, '' for none."""

    def __init__(self, preloaded: tuple[str, ...], frame_fd: int, temporary: str = "") -> None:
        self._pid = os.getpid()
        self._descriptors_to_check = (0, 1, 2, frame_fd)
        self._identities = [_identity(descriptor) for descriptor in self._descriptors_to_check]
        self._descriptor_count = descriptor_count()
        self._threads = thread_count()
        self._directory = os.getcwd()
        self._temporary = temporary
        self._umask = os.umask(0o077)
        os.umask(self._umask)
        self._handlers = [_signal.getsignal(number) for number in _SIGNALS]
        self._environment = dict(_environment())
        self._streams = (sys.stdin, sys.stdout, sys.stderr)
        self._path = list(sys.path)
        self._recursion_limit = sys.getrecursionlimit()
        self._socket_timeout = socket.getdefaulttimeout()
        self._gc_enabled = gc.isenabled()
        self._users = (os.getresuid(), os.getresgid())
        self._priority = os.getpriority(os.PRIO_PROCESS, 0)
        self._limits = [resource.getrlimit(number) for number in _LIMIT_NUMBERS]
        names = [name for name in sys.modules if name in preloaded or name == "plaita" or name.startswith("plaita.")]
        self._module_names = tuple(names)
        self._pick_modules = operator.itemgetter(*names)
        self._modules = self._pick_modules(sys.modules)
        self._preloaded = [(name, sys.modules[name], sys.modules[name].__spec__) for name in preloaded]

    def after_step(self) -> str | None:
        """Put right what can be; why this process must not run another node, or None."""
        stuck = _end_children(self._pid) if has_children() else None
        self._restore_signals()
        self._restore_process()
        self._restore_interpreter()
        return stuck or self._spoiled()

    # -- repaired -----------------------------------------------------------------------------------

    def _restore_signals(self) -> None:
        handlers = list(map(_signal.getsignal, _SIGNALS))
        if handlers != self._handlers:
            for number, now, wanted in zip(_SIGNALS, handlers, self._handlers, strict=True):
                if now != wanted and wanted is not None:
                    signal.signal(number, wanted)
            crash_reports.install()
        signal.set_wakeup_fd(-1)
        for timer in _TIMERS:
            _signal.setitimer(timer, 0)
        if _signal.pthread_sigmask(signal.SIG_BLOCK, ()):
            signal.pthread_sigmask(signal.SIG_SETMASK, ())

    def _restore_process(self) -> None:
        os.umask(self._umask)
        try:
            directory = os.getcwd()
        except OSError:  # it was deleted
            directory = ""
        if directory != self._directory:
            try:
                os.chdir(self._directory)
            except OSError:  # ours is gone: any that exists will do
                os.chdir("/")
                self._directory = "/"
        if _environment() != self._environment:
            _restore_environment(self._environment)

    def _restore_interpreter(self) -> None:
        sys.stdin, sys.stdout, sys.stderr = self._streams
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except (OSError, ValueError):  # closed by the node: its descriptor is looked at below
                continue
        if sys.path != self._path:
            sys.path[:] = self._path
        if sys.getrecursionlimit() != self._recursion_limit:
            sys.setrecursionlimit(self._recursion_limit)
        if sys.gettrace() is not None:
            sys.settrace(None)
        if sys.getprofile() is not None:
            sys.setprofile(None)
        if socket.getdefaulttimeout() != self._socket_timeout:
            socket.setdefaulttimeout(self._socket_timeout)
        if gc.isenabled() != self._gc_enabled:
            (gc.enable if self._gc_enabled else gc.disable)()

    # -- beyond repair ------------------------------------------------------------------------------

    def _spoiled(self) -> str | None:
        if not (self._threads == 1 and prctl.is_single_threaded()):
            threads = thread_count()
            if threads > self._threads:
                return f"{threads - self._threads} more threads than before"
        for descriptor, identity in zip(self._descriptors_to_check, self._identities, strict=True):
            if _identity(descriptor) != identity:
                return f"descriptor {descriptor} was closed or replaced"
        if descriptor_count() != self._descriptor_count:
            left = {number: name for number, name in open_descriptors().items() if number > 3}
            return f"descriptors left open: {_listed(left)}"
        if any(stream.closed for stream in self._streams):
            return "a standard stream was closed"
        if self._temporary and not _is_folder(self._temporary):
            return "its temporary folder is gone"
        return self._limits_changed() or self._modules_changed()

    def _limits_changed(self) -> str | None:
        limits = list(map(resource.getrlimit, _LIMIT_NUMBERS))
        if limits != self._limits:
            changed = [name for name, now, was in zip(_LIMITS, limits, self._limits, strict=True) if now != was]
            return f"changed limits: {', '.join(changed)}"
        if (os.getresuid(), os.getresgid()) != self._users:
            return "changed user or group"
        if os.getpriority(os.PRIO_PROCESS, 0) != self._priority:
            return "changed priority"
        return None

    def _modules_changed(self) -> str | None:
        try:
            same = self._pick_modules(sys.modules) == self._modules
        except KeyError:
            same = False
        if not same:
            pairs = zip(self._module_names, self._modules, strict=True)
            changed = [name for name, module in pairs if sys.modules.get(name) is not module]
            return f"replaced modules: {', '.join(changed[:5])}"
        for name, module, spec in self._preloaded:
            if module.__spec__ is not spec:
                return f"reloaded module: {name}"
        return None


def _is_folder(path: str) -> bool:
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except OSError:
        return False


def _identity(descriptor: int) -> tuple[int, int] | None:
    try:
        status = os.fstat(descriptor)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _environment() -> dict[bytes, bytes]:
    """The mapping behind ``os.environ``: comparing it whole costs less than a tenth of decoding it."""
    data: dict[bytes, bytes] = os.environ._data  # type: ignore[attr-defined]
    return data


def _restore_environment(wanted: dict[bytes, bytes]) -> None:
    for name in set(os.environb) - set(wanted):
        del os.environb[name]
    for name, value in wanted.items():
        os.environb[name] = value


def _listed(descriptors: dict[int, str]) -> str:
    shown = [f"{number} ({name})" for number, name in sorted(descriptors.items())[:5]]
    return ", ".join(shown) + (f" and {len(descriptors) - 5} more" if len(descriptors) > 5 else "")


def _end_children(pid: int) -> str | None:
    """SIGKILL and reap all that descends from this process; who is left after CHILDREN_LIMIT_S, as a reason to retire.

    This process is a child subreaper, so sessions of their own and double forks do not hide anybody: an orphan becomes
    a child, and the next round finds it. Last of all the one that Python itself started to clean up behind shared
    memory and named semaphores: it does so once nobody holds its pipe any more.
    """
    deadline = time.monotonic() + CHILDREN_LIMIT_S
    tracker, patience = _resource_tracker(), time.monotonic() + CHILDREN_LIMIT_S / 2
    while True:
        _reap()
        if not has_children():
            return None
        descendants = _descendants(pid)
        if time.monotonic() > deadline:
            return f"processes that cannot be ended: {', '.join(map(str, descendants[:5]))}"
        if descendants == [tracker] and time.monotonic() < patience:
            _let_go_resource_tracker()
        else:
            for descendant in descendants:
                if descendant != tracker or time.monotonic() > patience:
                    send_signal(descendant, signal.SIGKILL)
        if _reap() == 0:
            time.sleep(0.0005)


def _resource_tracker() -> int | None:
    """The pid of multiprocessing's resource tracker, where this process has started one."""
    module = sys.modules.get("multiprocessing.resource_tracker")
    pid = getattr(getattr(module, "_resource_tracker", None), "_pid", None)
    return pid if isinstance(pid, int) else None


def _let_go_resource_tracker() -> None:
    """Close our end of its pipe: it removes what was not removed, and ends. Its own method would wait for it."""
    tracker = sys.modules["multiprocessing.resource_tracker"]._resource_tracker
    descriptor, tracker._fd, tracker._pid = tracker._fd, None, None
    if isinstance(descriptor, int):
        with contextlib.suppress(OSError):  # a node closed it
            os.close(descriptor)


def _reap() -> int:
    reaped = 0
    try:
        while os.waitpid(-1, os.WNOHANG)[0] != 0:
            reaped += 1
    except ChildProcessError:
        pass
    return reaped


def _descendants(pid: int) -> list[int]:
    """Everything below ``pid`` that lives, nearest first, by one walk over /proc."""
    children: dict[int, list[int]] = {}
    for process in all_processes():
        if not process.zombie:
            children.setdefault(process.parent, []).append(process.pid)
    found, level = [], [pid]
    while level:
        level = [child for parent in level for child in children.get(parent, ())]
        found.extend(level)
    return found
