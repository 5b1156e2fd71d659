"""Reaping: every child that has ended, with how it ended. No SIGCHLD handler: a pidfd wakes the caller's loop.

A subreaper gets strangers too (orphans of nodes), so all children are reaped and the caller tells its own apart by pid.
A status that somebody else has taken counts as a failure (trouble 50), never as success.
"""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Exit:
    """How one process ended: ``code`` or ``signal`` (both None: unknown). ``max_rss_kib``: its peak resident memory."""

    pid: int
    code: int | None
    signal: int | None
    core: bool = False
    max_rss_kib: int = 0

    @property
    def clean(self) -> bool:
        """Ended by itself with code 0. Unknown is not clean."""
        return self.code == 0

    def describe(self) -> str:
        """``exit code 3``, ``killed by SIGSEGV (core dumped)``, ``ended, how is unknown``."""
        if self.signal is not None:
            try:
                name = signal.Signals(self.signal).name
            except ValueError:
                name = f"signal {self.signal}"
            return f"killed by {name}" + (" (core dumped)" if self.core else "")
        if self.code is not None:
            return f"exit code {self.code}"
        return "ended, how is unknown"


def unknown_exit(pid: int) -> Exit:
    """For a child whose status somebody else has taken."""
    return Exit(pid=pid, code=None, signal=None)


def _exit_of(pid: int, status: int, max_rss_kib: int) -> Exit:
    if os.WIFSIGNALED(status):
        return Exit(pid, None, os.WTERMSIG(status), os.WCOREDUMP(status), max_rss_kib)
    return Exit(pid, os.WEXITSTATUS(status), None, False, max_rss_kib)


def reap_all() -> list[Exit]:
    """Every child that has ended, own or stranger, until none is left. Never blocks."""
    ended: list[Exit] = []
    while True:
        try:
            pid, status, usage = os.wait4(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if pid == 0:
            return ended
        ended.append(_exit_of(pid, status, usage.ru_maxrss))


def reap(pid: int) -> Exit | None:
    """How this child ended; None while it lives; ``unknown_exit`` when it is no child of ours (any more)."""
    try:
        found, status, usage = os.wait4(pid, os.WNOHANG)
    except ChildProcessError:
        return unknown_exit(pid)
    return None if found == 0 else _exit_of(pid, status, usage.ru_maxrss)


def has_children() -> bool:
    """Whether this process has any child, alive or waiting to be reaped. One call."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True
