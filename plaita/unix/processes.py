"""Processes seen from outside: who they are, who belongs to whom, and how they are made to end.

Owns /proc reading, pidfds, sessions and the tree mark (DECISIONS 10). A bare pid is never trusted over time: callers
hold a pidfd, or compare the start time (trouble 64). Nothing here blocks, except ``sweep``, which is bounded.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import TextIO, cast

from plaita.unix import spare

TREE_VARIABLE = "PLAITA_TREE"
TEMPLATE_TITLE = "plaita: template"
TEMPLATE_MODULE = "plaita.executor.template"


@dataclass(frozen=True, slots=True)
class ProcessStat:
    """One line of /proc/<pid>/stat. ``start_ticks``: clock ticks after boot; with the pid it names one process."""

    pid: int
    name: str
    state: str
    parent: int
    group: int
    session: int
    start_ticks: int

    @property
    def zombie(self) -> bool:
        """Dead, only its exit status is left."""
        return self.state in "ZX"


def process_stat(pid: int) -> ProcessStat | None:
    """The process's line, or None when there is none (any more)."""
    try:
        line = spare.read_bytes(f"/proc/{pid}/stat")
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
    opening, closing = line.find(b"("), line.rfind(b")")
    if opening < 0 or closing < 0:
        return None
    fields = line[closing + 2 :].split()
    return ProcessStat(
        pid=pid,
        name=line[opening + 1 : closing].decode("utf-8", "replace"),
        state=fields[0].decode(),
        parent=int(fields[1]),
        group=int(fields[2]),
        session=int(fields[3]),
        start_ticks=int(fields[19]),
    )


def start_ticks(pid: int) -> int | None:
    """When the process began, in clock ticks after boot; None when there is none."""
    stat = process_stat(pid)
    return None if stat is None else stat.start_ticks


def pids() -> Iterator[int]:
    """Every pid in /proc at this moment."""
    for name in spare.names_in("/proc"):
        if name.isdigit():
            yield int(name)


def all_processes() -> list[ProcessStat]:
    """Every process at this moment, those that end meanwhile left out."""
    return [stat for pid in pids() if (stat := process_stat(pid)) is not None]


def children_of(pid: int) -> list[int]:
    """The live children of a process (of all its threads), zombies included."""
    found: list[int] = []
    try:
        for thread in spare.names_in(f"/proc/{pid}/task"):
            found.extend(map(int, spare.read_bytes(f"/proc/{pid}/task/{thread}/children").split()))
    except (FileNotFoundError, ProcessLookupError):  # a kernel without CONFIG_PROC_CHILDREN, or the process is gone
        return [stat.pid for stat in all_processes() if stat.parent == pid]
    return found


def pidfd_open(pid: int) -> int:
    """A descriptor for this very process (close-on-exec). Raises ProcessLookupError, or OSError at a limit.

    Race-free only while the pid cannot be given away: in the parent, before it reaps.
    """
    return os.pidfd_open(pid)


def pidfd_send_signal(pidfd: int, signal_number: int) -> bool:
    """Signal the process behind a pidfd. False when it has ended already."""
    try:
        signal.pidfd_send_signal(pidfd, signal_number)
    except ProcessLookupError:
        return False
    return True


def pidfd_ended(pidfd: int) -> bool:
    """Whether the process behind a pidfd has ended (reaped or not)."""
    return not pidfd_send_signal(pidfd, 0) or _readable(pidfd)


def _readable(descriptor: int) -> bool:
    poller = select.poll()
    poller.register(descriptor, select.POLLIN)
    return bool(poller.poll(0))


def send_signal(pid: int, signal_number: int) -> bool:
    """Signal by pid, for processes that cannot have been reaped meanwhile (own children). False: gone or not ours."""
    try:
        os.kill(pid, signal_number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def kill_group(pid: int, signal_number: int = signal.SIGKILL) -> bool:
    """Signal the process group that ``pid`` leads. False when it has no member, or none that may be signalled.

    Only while ``pid`` is known not to be given away: it is alive, or its exit has not been reaped.
    """
    if pid <= 1:
        raise ValueError(f"the process group {pid} is never ours")
    try:
        os.killpg(pid, signal_number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def session_members(session: int) -> list[int]:
    """The live processes of a session, whatever their groups."""
    return [stat.pid for stat in all_processes() if stat.session == session and not stat.zombie]


def kill_session(session: int, signal_number: int = signal.SIGKILL) -> int:
    """Signal the group that the session's leader made, then every other process of the session; the number reached.

    A shell with job control gives each of its children a group of its own, so the group alone is not enough.
    The same condition as for ``kill_group``. One walk over /proc: for the moment of a kill, not for each step. Where
    that is impossible (no descriptor left) the group is all that is reached; never raises.
    """
    reached = int(kill_group(session, signal_number))
    try:
        members = session_members(session)
    except OSError:
        return reached
    for pid in members:
        if pid != os.getpid() and send_signal(pid, signal_number):
            reached += 1
    return reached


def kill_sessions(sessions: Collection[int]) -> int:
    """SIGKILL for several sessions by one walk over /proc; the number reached. The same condition as for
    ``kill_group``."""
    if not sessions:
        return 0
    reached = sum(kill_group(session) for session in sessions)
    for stat in all_processes():
        if stat.session in sessions and not stat.zombie and stat.pid != os.getpid():
            reached += send_signal(stat.pid, signal.SIGKILL)
    return reached


# -- the tree mark ------------------------------------------------------------------------------


def tree_mark(pid: int) -> str | None:
    """The value of PLAITA_TREE the process was started with; None without one, or where it may not be read."""
    try:
        block = spare.read_bytes(f"/proc/{pid}/environ")
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
    wanted = TREE_VARIABLE.encode() + b"="
    for entry in block.split(b"\0"):
        if entry.startswith(wanted):
            return entry[len(wanted) :].decode("utf-8", "replace")
    return None


def is_template(pid: int) -> bool:
    """Whether the process is a template by its command line, before or after it set its title."""
    try:
        line = spare.read_bytes(f"/proc/{pid}/cmdline", 4096)
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return False
    return line.startswith(TEMPLATE_TITLE.encode()) or TEMPLATE_MODULE.encode() in line.split(b"\0")


def find_marked(
    mark: str | None = None, *, spare: Collection[int] = (), spare_templates: bool = False
) -> dict[int, str]:
    """pid -> mark of the live processes whose environment carries ``mark`` (None: any mark), this process left out."""
    own = os.getpid()
    found: dict[int, str] = {}
    for pid in pids():
        if pid == own or pid in spare:
            continue
        value = tree_mark(pid)
        if value is None or (mark is not None and value != mark):
            continue
        if not (spare_templates and is_template(pid)):
            found[pid] = value
    return found


def sweep(
    mark: str, *, spare: Collection[int] = (), spare_templates: bool = False, limit_ms: int = 5000
) -> tuple[int, list[int]]:
    """SIGKILL every process that carries the mark until none is left, at most ``limit_ms``.

    Answers how many were killed and who is left (not ours to signal, or stuck in the kernel). It looks again after
    each round, since what is killed may have forked in between.
    """
    deadline = time.monotonic() + limit_ms / 1000
    killed: set[int] = set()
    while True:
        found = find_marked(mark, spare=spare, spare_templates=spare_templates)
        if not found:
            return len(killed), []
        for pid in found:
            if send_signal(pid, signal.SIGKILL):
                killed.add(pid)
        if time.monotonic() >= deadline:
            return len(killed), sorted(found)
        time.sleep(0.002)


# -- this process -------------------------------------------------------------------------------


def thread_count() -> int:
    """Threads of this process, also those Python knows nothing of. One stat, no listing."""
    return os.stat("/proc/self/task").st_nlink - 2


def descriptor_count() -> int:
    """Open descriptors of this process. One stat from Linux 6.2 on, a listing before."""
    return os.stat("/proc/self/fd").st_size or len(os.listdir("/proc/self/fd")) - 1


def open_descriptors(pid: int | None = None) -> dict[int, str]:
    """descriptor -> what it is open on, for this process (the listing's own left out) or another."""
    folder = f"/proc/{'self' if pid is None else pid}/fd"
    found: dict[int, str] = {}
    for name in os.listdir(folder):
        try:
            found[int(name)] = os.readlink(f"{folder}/{name}")
        except FileNotFoundError:
            continue
    return found


def close_fds_except(keep: Collection[int]) -> None:
    """Close every descriptor of this process that is not in ``keep``, in few calls."""
    low = 0
    for descriptor in sorted(set(keep)):
        _close_range(low, descriptor)
        low = descriptor + 1
    try:
        high = max((int(name) for name in os.listdir("/proc/self/fd")), default=low)
    except OSError:  # no descriptor free for the listing itself
        high = os.sysconf("SC_OPEN_MAX")
    _close_range(low, high + 1)


def _close_range(low: int, high: int) -> None:
    if low < high:  # os.closerange(0, 0) closes everything: its "high - 1" wraps around
        os.closerange(low, high)


def ensure_std_fds() -> list[int]:
    """Open /dev/null on each of 0, 1, 2 that is closed, and answer which were (trouble 59).

    To be called before anything else is opened: otherwise the first socket becomes descriptor 0.
    """
    opened: list[int] = []
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            null = os.open(os.devnull, os.O_RDONLY if descriptor == 0 else os.O_WRONLY)
            if null != descriptor:
                os.dup2(null, descriptor)
                os.close(null)
            os.set_inheritable(descriptor, True)
            opened.append(descriptor)
    for descriptor, name in ((0, "stdin"), (1, "stdout"), (2, "stderr")):
        if descriptor in opened and getattr(sys, name) is None:
            setattr(sys, name, text_stream(descriptor))
    return opened


def text_stream(descriptor: int) -> TextIO:
    """A text stream on an open descriptor, which it does not own: reading for 0, else writing line by line."""
    mode = "r" if descriptor == 0 else "w"
    stream = open(  # noqa: SIM115
        descriptor, mode, buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False
    )
    return cast(TextIO, stream)


def set_oom_score_adj(value: int) -> bool:
    """Make this process and its later children likelier victims of the OOM killer (-1000..1000). False: not allowed."""
    try:
        with open("/proc/self/oom_score_adj", "wb") as file:
            file.write(str(value).encode())
    except OSError:
        return False
    return True


def oom_score_adj(pid: int) -> int | None:
    """The process's OOM adjustment, or None when it is gone."""
    try:
        with open(f"/proc/{pid}/oom_score_adj", "rb") as file:
            return int(file.read())
    except OSError:
        return None


def catches(pid: int, signal_number: int) -> bool:
    """Whether the process has a handler for this signal now. False too when it cannot be looked at."""
    try:
        with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as file:
            masks = [line.split()[1] for line in file if line.startswith("SigCgt:")]
    except OSError:
        return False
    return bool(masks) and bool(int(masks[0], 16) >> (signal_number - 1) & 1)


def rss_kib(pid: int) -> int | None:
    """Resident memory in KiB from /proc/<pid>/statm, or None when the process is gone, or cannot be looked at."""
    try:
        return int(spare.read_bytes(f"/proc/{pid}/statm").split()[1]) * (os.sysconf("SC_PAGE_SIZE") // 1024)
    except (OSError, IndexError):
        return None
