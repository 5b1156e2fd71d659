"""Reaping and stray children: the supervisor is a child subreaper, so it gets strangers too (DESIGN "Reaping",
"Killing").

A pidfd that becomes readable wakes the loop; every child that has ended is reaped then, since one wake-up may stand for
many deaths. Children nobody here knows are what nodes left behind: they are killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable

from plaita.supervisor import logs
from plaita.supervisor.stats import Stats
from plaita.unix.processes import children_of
from plaita.unix.reaper import Exit, reap_all

LOOK_S = 1.0


class Reaping:
    """``claimed(exit)`` is asked for each exit whose it is; ``known()`` are the pids of living children of ours;
    ``uncertain()`` is True while a child of ours may exist whose pid is not known yet."""

    def __init__(
        self,
        stats: Stats,
        *,
        claimed: Callable[[Exit], bool],
        known: Callable[[], set[int]],
        uncertain: Callable[[], bool],
    ) -> None:
        self._stats = stats
        self._claimed = claimed
        self._known = known
        self._uncertain = uncertain

    def reap(self) -> None:
        """Reap everything that has ended and tell whose it was."""
        for ended in reap_all():
            if not self._claimed(ended):
                logs.debug("stray.reaped", pid=ended.pid, how=ended.describe())

    def kill_strays(self) -> None:
        """SIGKILL children that are not ours: what escaped from a node's session by setsid or a double fork."""
        if self._uncertain():
            return
        known = self._known()
        try:
            children = children_of(os.getpid())
        except OSError as error:  # no descriptor left: in a second it looks again
            logs.warning("stray.unknown", error=error)
            return
        for pid in children:
            if pid in known:
                continue
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
                self._stats.add("strays_killed")
                logs.warning("stray.killed", pid=pid)

    async def watch(self) -> None:
        """Look again every second: strangers have no pidfd that would wake us."""
        while True:
            await asyncio.sleep(LOOK_S)
            self.reap()
            self.kill_strays()
            self.reap()
