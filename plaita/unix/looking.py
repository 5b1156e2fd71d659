"""What the kernel and systemd tell of this host, for a diagnosis. Changes nothing; what cannot be had is None."""

from __future__ import annotations

import ctypes
import ctypes.util
import os
import resource
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_TIME_ERROR = 5  # adjtimex: the clock is not set by anybody
_SYSTEMCTL_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Space:
    """Bytes and inodes of a file system; ``free`` is what this user may use."""

    free: int
    total: int
    free_inodes: int
    total_inodes: int


def space(path: str) -> Space:
    """Raises OSError."""
    found = os.statvfs(path)
    return Space(found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize, found.f_favail, found.f_files)


def limit(which: int) -> int | None:
    """A soft limit of this process; None for no limit."""
    soft = resource.getrlimit(which)[0]
    return None if soft == resource.RLIM_INFINITY else soft


def open_files() -> int | None:
    return limit(resource.RLIMIT_NOFILE)


def processes() -> int | None:
    return limit(resource.RLIMIT_NPROC)


def limits_of(pid: int) -> tuple[int | None, int | None] | None:
    """(open files, processes): soft limits of another process, each None for no limit; None where unreadable."""
    said = _read(f"/proc/{pid}/limits")
    if said is None:
        return None
    found: dict[str, int | None] = {}
    for line in said.splitlines():
        for name in ("Max open files", "Max processes"):
            if line.startswith(name):
                soft = line.removeprefix(name).split()[0]
                found[name] = int(soft) if soft.isdigit() else None
    return found.get("Max open files"), found.get("Max processes")


def descriptors_of(pid: int) -> int | None:
    """How many it has open; None where that may not be read."""
    try:
        return len(os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        return None


def memory() -> tuple[int, int] | None:
    """(total, available) in bytes."""
    found = _numbers("/proc/meminfo")
    if "MemTotal" not in found or "MemAvailable" not in found:
        return None
    return found["MemTotal"] * 1024, found["MemAvailable"] * 1024


def swapped_in() -> int | None:
    """Pages that came back from swap since the boot."""
    return _numbers("/proc/vmstat").get("pswpin")


def _numbers(path: str) -> dict[str, int]:
    found = {}
    for line in (_read(path) or "").splitlines():
        words = line.replace(":", " ").split()
        if len(words) >= 2 and words[1].isdigit():
            found[words[0]] = int(words[1])
    return found


def overcommit() -> str | None:
    """``vm.overcommit_memory``."""
    return _read("/proc/sys/vm/overcommit_memory")


def huge_pages() -> str | None:
    """``always``, ``madvise`` or ``never``."""
    said = _read("/sys/kernel/mm/transparent_hugepage/enabled")
    return said.partition("[")[2].partition("]")[0] or None if said is not None else None


def _read(path: str) -> str | None:
    try:
        return Path(path).read_text("utf-8", "replace").strip()
    except OSError:
        return None


# -- the clock ------------------------------------------------------------------------------------


class _Timex(ctypes.Structure):
    """The head of ``struct timex``; the kernel writes all of it, so there is room for the rest."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        ("rest", ctypes.c_char * 256),
    )


def clock() -> tuple[bool, float] | None:
    """(whether somebody keeps this host's clock, the kernel's bound of its error in seconds), by adjtimex."""
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "adjtimex"):
        return None
    asked = _Timex()
    state = libc.adjtimex(ctypes.byref(asked))  # modes 0: only reads
    return None if state < 0 else (state != _TIME_ERROR, asked.maxerror / 1e6)


# -- systemd --------------------------------------------------------------------------------------


def systemd_runs() -> bool:
    """As sd_booted(3) tells."""
    return os.path.isdir("/run/systemd/system")


def show_units(pattern: str, properties: Sequence[str]) -> str:
    """What ``systemctl show`` prints. Raises OSError with the reason where it does not answer."""
    command = ["systemctl", "show", pattern, "--no-pager", "--property", ",".join(properties)]
    try:
        done = subprocess.run(
            command, capture_output=True, timeout=_SYSTEMCTL_SECONDS, check=False, stdin=subprocess.DEVNULL
        )
    except subprocess.TimeoutExpired:
        raise OSError(f"systemctl did not answer within {_SYSTEMCTL_SECONDS:g} s") from None
    if done.returncode != 0:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise OSError(f"systemctl: {said[0] if said else f'exit {done.returncode}'}")
    return done.stdout.decode("utf-8", "replace")
