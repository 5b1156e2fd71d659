"""Notices that another Redis answers than before, and drops what that one does not know to be ours (DECISIONS 11).

Shuts the gate ``failover`` while it asks. Kills and drops; acks nothing and enqueues nothing: whoever the new primary
gives the execution to decides.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

from plaita.clock import boot_ms
from plaita.policy import failover
from plaita.policy.backoff import backoff_s
from plaita.policy.failover import Change, Known
from plaita.store import leases, server
from plaita.store.call import Lane, Value
from plaita.store.keys import Keys
from plaita.store.leases import Ownership, parse_lease
from plaita.store.runner_async import AsyncRunner
from plaita.supervisor import logs
from plaita.supervisor.gate import Gate
from plaita.supervisor.held import Held
from plaita.supervisor.stats import Stats

LOOK_S = 10.0


class Failover:
    """``held()`` is what this supervisor holds; ``drop(held)`` kills its step and forgets it."""

    def __init__(
        self,
        runner: AsyncRunner,
        keys: Keys,
        gate: Gate,
        stats: Stats,
        *,
        held: Callable[[], list[Held]],
        drop: Callable[[Held, str], None],
    ) -> None:
        self._runner = runner
        self._keys = keys
        self._gate = gate
        self._stats = stats
        self._held = held
        self._drop = drop
        self._known: Known | None = None
        self._known_at = 0  # boot clock, ms: when it was last seen
        self._look = asyncio.Event()
        self._differs = False
        self._reconnected = False

    def connected(self) -> None:
        """The writer's connection is new and may lead to another server. Nothing is taken until that is known."""
        if self._known:
            self._gate.set("failover", False, value="the connection is new: which server answers is being asked")
        self._reconnected = True
        self._look.set()

    def token_differs(self, held: Held) -> None:
        """A renewal found the lease ours and the fence not."""
        logs.error("failover.token_differs", execution_id=held.execution_id, token=held.token)
        self._differs = True
        self._look.set()

    async def run(self) -> None:
        """Look every 10 s, and at once where there is a reason."""
        while True:
            try:
                await asyncio.wait_for(self._look.wait(), LOOK_S * (0.8 + random.random() * 0.2))
            except TimeoutError:  # time for the regular look
                await self._runner.follow_sentinels()
            self._look.clear()
            reconnected, self._reconnected = self._reconnected, False
            differs, self._differs = self._differs, False
            await self.look("writer" if reconnected else "keeper", differs)

    async def look(self, lane: Lane, differs: bool) -> None:
        """Ask who answers; if it is another one, or ``differs``, check every held token. Opens the gate at the end."""
        answer = await self._runner.run(server.replication(self._keys, lane))
        if not isinstance(answer, Value):
            self._differs = self._differs or differs
            if not self._gate.conditions["failover"].open or differs:
                self._reconnected = True
                self._look.set()
                await asyncio.sleep(0.2)
            return  # the gate ``redis`` is shut, and a new connection brings us here again
        there = answer.value
        seen = Known(there.replication_id, there.run_id, there.up_s, there.before)
        change = failover.change(self._known, seen, (boot_ms() - self._known_at) / 1000)
        if differs or change is not Change.SAME:
            await self._changed(change, seen, there.role, differs)
        if seen.replication_id:
            self._known = seen
        self._known_at = boot_ms()
        known = self._known.replication_id if self._known is not None else "unknown"
        self._gate.set("failover", True, value=f"replication id {known}")

    async def _changed(self, change: Change, seen: Known, role: str, differs: bool) -> None:
        """Check all that is held. A restart after which nothing differs is worth a word, a failover a loud one."""
        was = self._known.replication_id if self._known is not None else ""
        facts = {"was": was, "now": seen.replication_id, "role": role, "token_differs": differs}
        restarted = change is Change.RESTARTED and not differs
        self._gate.set("failover", False, value=f"{change.value} answers: what is held here is being checked")
        if not restarted:
            logs.error("failover.seen", **facts)
        checked, dropped = await self._check()
        if restarted and not dropped:
            logs.info("redis.restarted", was=was, now=seen.replication_id, up_s=seen.up_s, held_and_known=checked)
            return
        if restarted:
            logs.error(
                "failover.seen", **facts, lost="the server was started again and does not know all of its writes"
            )
        self._stats.add("failovers")

    async def _check(self) -> tuple[int, int]:
        """How many held tokens were compared, and how many of them dropped."""
        attempt = 0
        while True:
            asked = [(held, held.token) for held in self._held()]
            if not asked:
                return 0, 0
            call = leases.held_tokens(self._keys, [(held.tenant_id, held.execution_id) for held, _ in asked])
            answer = await self._runner.run(call)
            if isinstance(answer, Value):
                break
            await asyncio.sleep(backoff_s(attempt, base=0.05, cap=1.0, jitter=random.random()))
            attempt += 1
        dropped = 0
        still = set(map(id, self._held()))
        for (held, token), there in zip(asked, answer.value, strict=True):
            if id(held) in still and held.token == token and _verdict(token, there) is failover.Verdict.DROP:
                dropped += 1
                self._stats.add("failover_dropped")
                logs.error("failover.dropped", execution_id=held.execution_id, token=token, there=there)
                self._drop(held, "after a failover its token is not the one in Redis")
        return len(asked), dropped


def _verdict(token: str, there: Ownership) -> failover.Verdict:
    lease = parse_lease(there.lease) if there.lease else None
    lease_token = None if not there.lease else lease.token if lease is not None else ""
    return failover.judge(token=token, fence=there.fence, generation=there.generation, lease_token=lease_token)
