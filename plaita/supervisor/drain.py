"""The drain: what the actions of ``policy.lifecycle`` do between the last claim and the way out (ledger R2, R6).

Running steps finish, and each execution is handed on after its step (``dispatch`` does both, since no step starts any
more). At the deadline what still runs is asked to stop, and killed after the grace. What then still waits for Redis
alone is given up: it stays pending, for others. A second drain, or one undone, starts from nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from plaita.clock import boot_ms, wall_ms
from plaita.policy.service_manager import Work
from plaita.supervisor import logs
from plaita.supervisor.carries import Carries
from plaita.supervisor.lease_keeper import LeaseKeeper
from plaita.supervisor.life import EXIT_KILLED_WORK, Drain, Life
from plaita.supervisor.pool import Pool
from plaita.supervisor.stats import Stats

# After the grace: the killed are reaped and handed on within milliseconds where Redis answers. Where it does not, these
# two and the way out stay within the second that a drain may take beyond its timeout and its grace.
GIVE_UP_S = 0.3
CANCEL_S = 0.2


class Draining:
    """``over()`` is called when the drain's time has passed."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        life: Life,
        keeper: LeaseKeeper,
        pool: Pool,
        carries: Carries,
        stats: Stats,
        *,
        timeout_s: float,
        kill_grace_s: float,
        over: Callable[[], object],
    ) -> None:
        self._loop = loop
        self._life = life
        self._keeper = keeper
        self._pool = pool
        self._carries = carries
        self._stats = stats
        self._timeout_s = timeout_s
        self._kill_grace_s = kill_grace_s
        self._over = over
        self._deadline: asyncio.TimerHandle | None = None
        self._giving_up: asyncio.TimerHandle | None = None
        self.gave_up = False  # on Redis: it did not take what was to be written

    def begin(self) -> None:
        """Nothing is claimed from now on. Without effect on one that has begun."""
        drain = self._life.drain
        if drain.since is None:
            drain.since, drain.began, drain.before = wall_ms(), boot_ms(), self._stats.snapshot()

    def ask_for(self, timeout_s: float) -> None:
        """The time that this drain gets in place of the configured one, from now on if it has begun."""
        self._life.drain.timeout_s = timeout_s
        if self._deadline is not None:
            self.start_deadline()

    def start_deadline(self) -> None:
        """Its time begins, anew if it had: a stop after a ``drain`` command gets the whole time."""
        if self._deadline is not None:
            self._deadline.cancel()
        timeout_s = self._life.drain.timeout_s
        self._life.drain.deadline = boot_ms() + int(timeout_s * 1000)
        self._deadline = self._loop.call_later(timeout_s, self._over)

    def cancel_deadline(self) -> None:
        """It is undone, or over."""
        for timer in (self._deadline, self._giving_up):
            if timer is not None:
                timer.cancel()
        self._deadline = self._giving_up = None
        self._life.drain.deadline = None

    def undo(self) -> None:
        """Work is taken again: what this drain was told and did does not count any more."""
        self.cancel_deadline()
        self._life.drain = Drain(timeout_s=self._timeout_s)
        self._life.exit_code = 0

    def kill(self) -> None:
        """Stop every running step; what only waits for Redis gets the grace too, then is given up."""
        self._life.drain.killing = True
        if not self._life.undoable:
            self._pool.births.close()  # nobody needs those that would follow the killed
        working = [held for held in self._keeper.held if held.running and held.executor is not None]
        for held in working:
            if held.executor is not None:
                self._pool.stop(held.executor, "drain")
        if working or self._carries:
            self._life.ends_with(EXIT_KILLED_WORK)
            logs.warning("drain.kill", running=len(working), carriers=len(self._carries))
        if self._giving_up is None:
            self._giving_up = self._loop.call_later(self._kill_grace_s + GIVE_UP_S, self._give_up)

    def _give_up(self) -> None:
        self.gave_up = bool(self._carries)
        self._life.drain.left = len(self._carries)
        for held in self._keeper.held:
            held.abandoned.set()
        self._giving_up = self._loop.call_later(CANCEL_S, self._carries.cancel_all)

    @property
    def left_ms(self) -> int:
        """The most it may still take until nothing is in hand."""
        last = int((GIVE_UP_S + CANCEL_S) * 1000)
        if self._giving_up is not None:
            return max(0, int((self._giving_up.when() - self._loop.time()) * 1000)) + last
        deadline = self._life.drain.deadline
        left = max(0, deadline - boot_ms()) if deadline is not None else int(self._life.drain.timeout_s * 1000)
        return left + int(self._kill_grace_s * 1000) + last

    def oldest(self) -> Work | None:
        """The step that has run longest."""
        running = [held for held in self._keeper.held if held.running]
        if not running:
            return None
        first = min(running, key=lambda held: held.step_started)
        return Work(first.execution_id, first.node_id, (boot_ms() - first.step_started) / 1000)

    @property
    def spent_s(self) -> float:
        """How long it has been going on."""
        began = self._life.drain.began
        return 0.0 if began is None else (boot_ms() - began) / 1000

    def log_receipt(self) -> None:
        """Once, at the end of the process: what became of the work that the drain found."""
        receipt = self._life.drain.receipt(self._stats.snapshot())
        logs.info("drain.receipt", **receipt, seconds=round(self.spent_s, 3))
