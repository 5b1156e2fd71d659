"""This host: disk, limits, memory, clock. The supervisors that run on it are in ``supervisors``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from plaita.policy.doctor import supervisors
from plaita.policy.doctor.finding import Finding, error, fine, note, plural, size, span, warning
from plaita.policy.doctor.supervisors import Limits, Supervisor

GIB = 1024**3
DISK_LOW = 0.05  # of a disk without a line of its own
DISK_LOWEST_BYTES = GIB
INODES_LOW = 0.05
MEMORY_WARNING = 0.10
MEMORY_ERROR = 0.05
SWAP_PAGES_A_SECOND = 100
DESCRIPTORS_PER_EXECUTOR, DESCRIPTORS_BESIDE = 6, 64  # the twin of unix/limits.py, which a test holds this to
PROCESSES_PER_EXECUTOR, PROCESSES_BESIDE = 3, 32
DESCRIPTORS_FULL = 0.9


@dataclass(frozen=True, slots=True)
class Disk:
    """``what`` it is for people. ``min_free_gib``: below it the supervisor takes nothing, 0 for no line. Numbers are
    None where it could not be looked at: then ``error`` says why."""

    path: str
    what: str
    free: int | None = None
    total: int | None = None
    free_inodes: int | None = None
    total_inodes: int | None = None
    min_free_gib: float = 0.0
    error: str = ""


@dataclass(frozen=True, slots=True)
class HostFacts:
    """``shell``: limits of this shell, which one started here would have. Memory in bytes, None unknown.
    ``swapped_in``: pages a second while we looked. ``clock_synchronised``: None where the kernel does not tell;
    ``clock_error_s``: its own bound; ``server_agrees``: Redis has the same time; ``now_s``: epoch. ``config_faults``:
    why a supervisor started from here would refuse."""

    disks: Sequence[Disk] = ()
    supervisors: Sequence[Supervisor] = ()
    shell: Limits = field(default_factory=lambda: Limits(1))
    memory_total: int | None = None
    memory_available: int | None = None
    swapped_in: float | None = None
    clock_synchronised: bool | None = None
    clock_error_s: float | None = None
    server_agrees: bool = False
    now_s: float = 0.0
    config_faults: Sequence[str] = ()


def disks(facts: HostFacts) -> Iterable[Finding]:
    for disk in facts.disks:
        if disk.free is None or not disk.total:
            yield warning(
                "host.disk",
                f"{disk.path}: {disk.error or 'no answer'}",
                "a path that can be looked at",
                f"{disk.what} cannot be watched: the guard lets work through",
                f"ls -ld {disk.path}; set PLAITA_WORKER_DISK_GUARD_PATH to a path that exists",
            )
            continue
        yield _space(disk)
        yield from _inodes(disk)


def _space(disk: Disk) -> Finding:
    assert disk.free is not None
    assert disk.total is not None
    value = f"{disk.path}: {size(disk.free)} of {size(disk.total)} free"
    if disk.min_free_gib:
        line, wanted = disk.min_free_gib * GIB, f"at least {disk.min_free_gib:g} GiB"
        then = "a supervisor here takes no work until there is room"
    else:
        line, wanted = (
            min(DISK_LOWEST_BYTES, disk.total * DISK_LOW),
            f"at least {size(min(GIB, disk.total * DISK_LOW))}",
        )
        then = "steps that write fail, and logs are lost; no line is set (--min-free-disk-gib), so work is taken on"
    act = f"du -xh --max-depth=2 {disk.path} | sort -h | tail; journalctl --vacuum-size=500M"
    if disk.free < line:
        return error("host.disk", value, wanted, f"{disk.what}: {then}", act)
    if disk.min_free_gib and disk.free < 1.2 * line:
        return warning("host.disk", value, wanted, f"{disk.what} is near its line: below it, {then}", act)
    return fine("host.disk", value, wanted)


def _inodes(disk: Disk) -> Iterable[Finding]:
    if not disk.total_inodes or disk.free_inodes is None:
        return  # a file system without a fixed number
    share = disk.free_inodes / disk.total_inodes
    if share < INODES_LOW:
        grave = error if share < INODES_LOW / 5 else warning
        yield grave(
            "host.inodes",
            f"{disk.path}: {disk.free_inodes} of {disk.total_inodes} free ({share:.1%})",
            f"at least {INODES_LOW:.0%}",
            "no file can be made although there is room",
            f"find {disk.path} -xdev -printf '%h\\n' | sort | uniq -c | sort -n | tail",
        )


def limits(facts: HostFacts) -> Iterable[Finding]:
    """Of each supervisor that runs here; of this shell where none tells."""
    known = [(supervisors.name_of(one), one.limits) for one in facts.supervisors if one.limits is not None]
    for who, found in known or [("this shell", facts.shell)]:
        yield from _limits(who, found)


def _limits(who: str, found: Limits) -> Iterable[Finding]:
    for check, flag, unit, limit, wanted in (
        (
            "host.open_files",
            "-n",
            "LimitNOFILE",
            found.open_files,
            found.executors * DESCRIPTORS_PER_EXECUTOR + DESCRIPTORS_BESIDE,
        ),
        (
            "host.processes",
            "-u",
            "LimitNPROC",
            found.processes,
            found.executors * PROCESSES_PER_EXECUTOR + PROCESSES_BESIDE,
        ),
    ):
        shown = "unlimited" if limit is None else str(limit)
        value, right = f"{who}: ulimit {flag} {shown}, {plural(found.executors, 'executor')}", f"{wanted} or more"
        if limit is not None and limit < wanted:
            yield warning(
                check,
                value,
                right,
                "forks and opens fail: an executor that ends cannot be replaced",
                f"{unit}={wanted * 2} in the unit (systemctl edit plaita-supervisor), or ulimit {flag} {wanted * 2}",
            )
        else:
            yield fine(check, value, right)
    if found.descriptors is not None and found.open_files and found.descriptors > DESCRIPTORS_FULL * found.open_files:
        yield error(
            "host.descriptors",
            f"{who}: {found.descriptors} of {found.open_files} open files",
            f"below {DESCRIPTORS_FULL:.0%}",
            "at the limit it can neither connect nor start an executor",
            "ls -l /proc/PID/fd shows which; raise LimitNOFILE, and restart it on the way",
        )


def memory(facts: HostFacts) -> Iterable[Finding]:
    if facts.memory_total and facts.memory_available is not None:
        share = facts.memory_available / facts.memory_total
        value = f"{size(facts.memory_available)} of {size(facts.memory_total)} available ({share:.0%})"
        wanted = f"at least {MEMORY_WARNING:.0%}"
        why = "when it is gone, the kernel kills executors in mid-step, or the server"
        act = "ps -eo rss,pid,args --sort -rss | head; set --max-executor-rss-mib, or use fewer --executors"
        if share < MEMORY_ERROR:
            yield error("host.memory", value, wanted, why, act)
        elif share < MEMORY_WARNING:
            yield warning("host.memory", value, wanted, why, act)
        else:
            yield fine("host.memory", value, wanted)
    if facts.swapped_in is not None and facts.swapped_in > SWAP_PAGES_A_SECOND:
        yield warning(
            "host.swap",
            f"{facts.swapped_in:.0f} pages a second come back from swap",
            f"below {SWAP_PAGES_A_SECOND}",
            "the host thrashes: steps and renewals take the time of a disk, and leases may be lost",
            "ps -eo rss,pid,args --sort -rss | head; use fewer --executors, or plaita-supervisor drain on this host",
        )


def clock(facts: HostFacts) -> Iterable[Finding]:
    if facts.clock_synchronised is None:
        yield note(
            "host.clock", "not known", "synchronised", "the kernel does not tell here whether the clock is set by NTP"
        )
    elif not facts.clock_synchronised:
        yield (note if facts.server_agrees else warning)(
            "host.clock",
            "not synchronised" + (", but the server's clock agrees" if facts.server_agrees else ""),
            "synchronised",
            "nobody sets this host's clock: times in its logs and records drift from those of other hosts",
            "timedatectl set-ntp true, or systemctl enable --now chronyd",
        )
    else:
        bound = f", within {span(facts.clock_error_s)}" if facts.clock_error_s is not None else ""
        yield fine("host.clock", f"synchronised{bound}", "synchronised")


def settings(facts: HostFacts) -> Iterable[Finding]:
    if facts.config_faults:
        yield warning(
            "host.settings",
            "; ".join(facts.config_faults[:3]),
            "settings that a supervisor starts with",
            "a supervisor with this environment and file would not start (exit 78)",
            "plaita-supervisor check",
        )


Check = Callable[[HostFacts], Iterable[Finding]]

CHECKS: tuple[Check, ...] = (disks, limits, memory, clock, settings)


def judge(facts: HostFacts) -> list[Finding]:
    """The supervisors, then all of the table, in its order."""
    found = supervisors.judge(facts.supervisors, facts.now_s)
    return [*found, *(finding for check in CHECKS for finding in check(facts))]
