"""Resource limits: those an executor gets, and whether the host's are high enough for a pool (trouble 56)."""

from __future__ import annotations

import resource

_DESCRIPTORS_PER_EXECUTOR = 6  # frame socket, stdout, stderr and pidfd, and the other ends while one is being made
_DESCRIPTORS_BESIDE = 64  # Redis connections, loop, logs, control socket
_PROCESSES_PER_EXECUTOR = 3
_PROCESSES_BESIDE = 32


def no_core_files() -> None:
    """A crashing node writes no core file: it would hold what the flow carries, and fill the disk."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def cap_data_mib(mebibytes: int) -> None:
    """RLIMIT_DATA: allocation beyond it fails (MemoryError in Python) instead of eating the host.

    It counts private writable memory of this process, so children have it each for themselves. Never raised above a
    lower hard limit that is already set.
    """
    wanted = mebibytes * 1024 * 1024
    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    value = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (value, value))


def problems(executors: int) -> list[str]:
    """One line for each limit too low for a pool of this size, with the value that would do."""
    found: list[str] = []
    for name, limit, needed in (
        ("open files (ulimit -n)", resource.RLIMIT_NOFILE, executors * _DESCRIPTORS_PER_EXECUTOR + _DESCRIPTORS_BESIDE),
        ("processes (ulimit -u)", resource.RLIMIT_NPROC, executors * _PROCESSES_PER_EXECUTOR + _PROCESSES_BESIDE),
    ):
        soft = resource.getrlimit(limit)[0]
        if soft != resource.RLIM_INFINITY and soft < needed:
            found.append(f"{name}: {soft} is too low for {executors} executors; {needed} would do")
    return found
