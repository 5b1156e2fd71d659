"""Takes carriers: as many as there are free executors and no more, only while the gate is open (ledger G5, R1).

One call takes what can be reclaimed, then wake-ups, then starts, which have their turn beside a backlog of wake-ups
(``policy.turns``). When there is nothing it waits in a blocking read on a connection of its own, while a timer on the
writer connection goes on reclaiming (DECISIONS 4).
"""

from __future__ import annotations

import asyncio
import random
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

from plaita.clock import boot_ms
from plaita.policy import turns
from plaita.policy.backoff import backoff_s
from plaita.store import carriers
from plaita.store.call import Answer, Refused, Unknown, Value
from plaita.store.carriers import START, Entry, Take, Taken
from plaita.store.keys import Keys
from plaita.store.runner_async import AsyncRunner
from plaita.supervisor import logs
from plaita.supervisor.stats import Stats

T = TypeVar("T")

RECLAIM_EVERY_S = 0.5
LATE_LOOK_S = 0.5  # after the longest time that the server holds a blocking read
GIVEN_BACK = 1024  # carriers remembered
SAY_EVERY = 20  # failures in a row are logged at the first and then each so many


@dataclass(frozen=True, slots=True)
class ConsumerSettings:
    """Times in ms. ``adopt`` takes over what an earlier life of this instance left, once at the start.
    ``denied_repos``: carriers that name one of them are not claimed (ledger G6)."""

    consumer: str
    holder: str
    claim_min_idle_ms: int
    read_block_ms: int
    config_family: str
    budget_generation: str
    adopt: bool
    denied_repos: tuple[str, ...] = ()


class Consumer:
    """``capacity()`` is how many carriers may be taken now; ``start(entry)`` begins one; ``give_back(entry)`` hands
    one on that nobody here can take; ``skipped(family, budget)`` is told how many of other hosts a reclaim met;
    ``may_adopt()``: the registry says that this instance's name is ours, so what is pending for it is no other's."""

    def __init__(
        self,
        settings: ConsumerSettings,
        keys: Keys,
        runner: AsyncRunner,
        stats: Stats,
        *,
        capacity: Callable[[], int],
        start: Callable[[Entry], None],
        give_back: Callable[[Entry], None],
        in_hand: Callable[[], list[str]],
        skipped: Callable[[int, int], None],
        may_adopt: Callable[[], bool] = lambda: True,
    ) -> None:
        self._settings = settings
        self._keys = keys
        self._runner = runner
        self._stats = stats
        self._capacity = capacity
        self._start = start
        self._give_back = give_back
        self._in_hand = in_hand
        self._skipped = skipped
        self._may_adopt = may_adopt
        self._changed = asyncio.Event()
        self._cursors = (START, START)
        self._adopting = settings.adopt
        self._looks = 0
        self._late_look: asyncio.TimerHandle | None = None
        self._given_back: OrderedDict[str, None] = OrderedDict()
        self._more = False
        self._delivered = False
        self._took_at = 0  # boot clock, ms
        self._owed = 0  # to starts, see policy.turns
        self._failures = 0
        self._calls: set[asyncio.Task[Any]] = set()

    def wake(self) -> None:
        """Something changed: the gate, or an executor became free."""
        self._changed.set()

    def look_again(self) -> None:
        """What is pending for us and not in hand is to be taken up now, not when it has been idle for long: a reply
        that was lost, or a server that lost its last writes, has left entries with us that we do not know of."""
        self._adopting = self._settings.adopt
        self._cursors = (START, START)
        self._looks += 1  # a take that is under way has looked too early
        self._changed.set()

    async def run(self) -> None:
        """Take carriers until cancelled. Every failure waits longer than the last, up to a limit: never a hot loop."""
        reading: asyncio.Task[bool] | None = None
        while True:
            self._changed.clear()
            if self._capacity() <= 0:
                await self._wait(None)
                continue
            if self._delivered and boot_ms() - self._took_at < RECLAIM_EVERY_S * 1000:
                # The blocking read has just brought something: another read, on its own connection, brings what
                # else comes. A take here would stand between that carrier and its begin. But where reads never wait,
                # only a take reclaims.
                self._delivered = False
                reading = self._under_way(self._read())
                await self._wait(reading)
                continue
            took = await asyncio.shield(self._under_way(self._take()))
            if took is None:
                await self._back_off()
                continue
            self._failures = 0
            if took or self._more:
                continue
            if reading is None or reading.done():
                reading = self._under_way(self._read())
            await self._wait(reading)

    def _under_way(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        # Not cancelled with run(): what the server has delivered must be given back, not forgotten.
        task = asyncio.create_task(work)
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)
        return task

    async def finish(self) -> None:
        """After ``run`` was cancelled: until no call is under way that could still bring something."""
        while self._calls:
            await asyncio.wait(self._calls)

    def drop(self) -> None:
        """Wait for no reply any more."""
        for task in self._calls:
            task.cancel()

    async def _wait(self, reading: asyncio.Task[bool] | None) -> None:
        """Until something changes, the blocking read ends, or it is time to reclaim again."""
        change = asyncio.create_task(self._changed.wait())
        waits: set[asyncio.Task[bool]] = {change}
        if reading is not None:
            waits.add(reading)
        try:
            await asyncio.wait(
                waits,
                timeout=RECLAIM_EVERY_S * (0.8 + random.random() * 0.4),
                return_when=asyncio.FIRST_COMPLETED,
            )
        finally:
            change.cancel()
        if reading is not None and reading.done() and not reading.cancelled() and not reading.result():
            await self._back_off()

    async def _back_off(self) -> None:
        await asyncio.sleep(backoff_s(self._failures, base=0.05, cap=2.0, jitter=random.random()))
        self._failures += 1

    def _failed(self, call: str, answer: Answer[list[Entry]] | Answer[Taken]) -> None:
        if isinstance(answer, Unknown):
            self.look_again()
            self._look_later()
        if self._failures % SAY_EVERY == 0:
            logs.warning("queue.not_served", call=call, failures=self._failures + 1, answer=answer)

    def _look_later(self) -> None:
        """The server may still hold our blocking read, and deliver to it, when we know already that it is lost."""
        if self._late_look is not None:
            self._late_look.cancel()
        seconds = self._settings.read_block_ms / 1000 + LATE_LOOK_S
        self._late_look = asyncio.get_running_loop().call_later(seconds, self.look_again)

    async def _take(self) -> int | None:
        """How many carriers were begun; None when Redis did not serve."""
        looks = self._looks
        self._took_at = boot_ms()
        places = self._capacity()
        reserved = turns.starts_first(self._owed, places)
        request = Take(
            consumer=self._settings.consumer,
            count=places,
            min_idle_ms=self._settings.claim_min_idle_ms,
            holder=self._settings.holder,
            adopt=self._adopting and self._may_adopt(),
            cursors=self._cursors,
            family=self._settings.config_family,
            budget=self._settings.budget_generation,
            in_hand=self._in_hand(),  # what waits for Redis in here may be idle for long: it is ours all the same
            starts_first=reserved,
            denied_repos=self._settings.denied_repos,
        )
        answer = await self._runner.run(carriers.take(self._keys, request))
        if not isinstance(answer, Value):
            self._failed("take", answer)
            return None
        taken = answer.value
        self._more = taken.more_pending or looks != self._looks
        if looks == self._looks:
            self._cursors = taken.cursors
            if not taken.more_pending:
                self._adopting = False  # all of it was looked at once: what is let go of unsettled must not spin
        self._stats.add("ghosts_acked", taken.ghosts)
        self._stats.add("claim_guard_skipped", taken.leased)
        self._skipped(taken.other_family, taken.other_budget)
        wakes = sum(entry.stream == "w" for entry in taken.entries)
        starts = len(taken.entries) - wakes
        self._owed = turns.owed_after(self._owed, reserved=reserved, wakes=wakes, starts=starts)
        for entry in taken.entries:
            if entry.reclaimed and not self._was_given_back(entry):
                self._stats.add("reclaimed")
                logs.info("carrier.reclaimed", entry_id=entry.entry_id, stream=entry.stream)
            self._begin(entry)
        return len(taken.entries)

    async def _read(self) -> bool:
        """Wait for one carrier; False when Redis did not serve."""
        answer = await self._runner.run(
            carriers.read_blocking(self._keys, self._settings.consumer, self._settings.read_block_ms)
        )
        if isinstance(answer, Value):
            for entry in answer.value:
                self._begin(entry)
            # What could not be begun is reclaimed by the next take, before it is read past.
            self._delivered = bool(answer.value) and not any(self._is_given_back(entry) for entry in answer.value)
            return True
        if not (isinstance(answer, Refused) and answer.reason == "no_group"):
            self._failed("read", answer)
            return False
        # The stream was deleted or the server emptied; the next take makes the group anew, from id 0.
        return True

    def _begin(self, entry: Entry) -> None:
        if f"{entry.stream} {entry.entry_id}" in self._in_hand():
            return  # looked for as left behind while the reply that delivers it was under way
        if self._capacity() > 0:
            self._start(entry)
        else:
            self._given_back[f"{entry.stream} {entry.entry_id}"] = None
            if len(self._given_back) > GIVEN_BACK:
                self._given_back.popitem(last=False)
            self._give_back(entry)

    def _is_given_back(self, entry: Entry) -> bool:
        return f"{entry.stream} {entry.entry_id}" in self._given_back

    def _was_given_back(self, entry: Entry) -> bool:
        """By us, a moment ago, for want of an executor: nobody was lost, so there is nothing to tell."""
        found = self._is_given_back(entry)
        self._given_back.pop(f"{entry.stream} {entry.entry_id}", None)
        return found
