"""Keeps the leases of all held executions alive, and stops a step before its lease can run out (ledger L3, L7).

Two loops that do not wait for each other: one renews (one call for all leases, on a connection of its own), one looks
at the clock. What cannot be renewed is not ours: renewal that fails drops authority, never the other way round. A
renewal also says in the row what runs (ledger L4).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

from plaita.clock import boot_ms, wall_ms
from plaita.policy import lease
from plaita.policy.backoff import backoff_s
from plaita.store import leases, tenants
from plaita.store.call import Value
from plaita.store.keys import Keys
from plaita.store.leases import Renewal
from plaita.store.runner_async import AsyncRunner
from plaita.supervisor import logs
from plaita.supervisor.beats import beat_of
from plaita.supervisor.held import Held
from plaita.supervisor.log_limit import LogLimit
from plaita.supervisor.stats import Stats

CANCEL_POLL_S = 1.0
SAY_EVERY_MS = 10_000
STILL_MS = 1000  # the guard looks ten times a second
TICK_S = 1.0
FIRST_BEAT_MS = 1_000  # a step that a carrier begins with is in no row yet; if it is long, it gets there after so long
TELL_AT_ONCE_MS = 2_000  # more than a tick; less than what is left of any lease that is renewed in time


class LeaseKeeper:
    """``ask(held, reason, grace_s)`` stops a running step; ``kill(held)`` kills it; ``tick(kill_at)`` tells the
    template; ``fenced(held)``: its lease is ours and its fence token is not; ``tenant_shut(tenant, states)``: it may
    begin nothing now.

    Without ``watchdog`` (PLAITA_DISABLE_LEASE_WATCHDOG) nothing is renewed while a step runs and nothing is killed for
    its lease: a step longer than the lease may then run on two hosts. What it saves is refused as ever.
    """

    def __init__(
        self,
        runner: AsyncRunner,
        keys: Keys,
        consumer: str,
        ttl_ms: int,
        stats: Stats,
        *,
        ask: Callable[[Held, str, float | None], None],
        kill: Callable[[Held, str], None],
        tick: Callable[[int | None], None],
        fenced: Callable[[Held], None] = lambda held: None,
        tenant_shut: Callable[[str, tenants.States], bool] = lambda tenant, states: False,
        watchdog: bool = True,
    ) -> None:
        self._runner = runner
        self._keys = keys
        self._consumer = consumer
        self._ttl_ms = ttl_ms
        self._stats = stats
        self._ask = ask
        self._kill = kill
        self._tick = tick
        self._fenced = fenced
        self._tenant_shut = tenant_shut
        self._watchdog = watchdog
        self._unseen: dict[int, int] = {}  # the step that each began with, until the row says that it runs
        self._held: dict[int, Held] = {}
        self._said = LogLimit(SAY_EVERY_MS)
        self._told: int | None = None
        self._looked = boot_ms()
        self._stood_still_until = -STILL_MS
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        self._tasks = [
            asyncio.create_task(self._renew_loop(), name="lease renewal"),
            asyncio.create_task(self._guard_loop(), name="lease guard"),
            asyncio.create_task(self._cancel_loop(), name="cancel flags"),
            asyncio.create_task(self._tenant_loop(), name="tenant statuses"),
        ]

    async def stop(self) -> None:
        """Stop renewing. Called when nothing is held any more, or nothing may be."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def held(self) -> list[Held]:
        """Every execution this supervisor holds."""
        return list(self._held.values())

    def add(self, held: Held) -> None:
        self._held[id(held)] = held
        self._unseen[id(held)] = held.step

    def remove(self, held: Held) -> None:
        self._held.pop(id(held), None)
        self._unseen.pop(id(held), None)

    def step_begins(self, held: Held) -> None:
        """Node code runs from now on; the template must know a ``kill_at`` before it does."""
        held.running = True
        held.killed = False
        held.step_started = boot_ms()
        held.step_began_at = wall_ms()
        if self._told is None:
            self.tell()

    def step_ends(self, held: Held) -> None:
        held.running = False
        if self._told is not None and self._told - boot_ms() < TELL_AT_ONCE_MS:
            self.tell()  # before the template acts on what has ended

    def tell(self) -> None:
        """Tell the template now by when running steps must be dead; a new one knows nothing, and must not wait for the
        next round to learn it. A step whose process was sent SIGKILL already needs nobody else to end it."""
        running = (held for held in self._held.values() if self._watchdog and held.running and not held.killed)
        self._told = min((held.lease.dead_man_at for held in running), default=None)
        self._tick(self._told)

    def _lost(self, held: Held, why: str) -> None:
        if held.lease_lost or held.settling:
            return
        held.lease_lost = True
        self._stats.add("leases_lost")
        logs.warning("lease.lost", execution_id=held.execution_id, token=held.token, why=why)
        if held.running:
            self._ask(held, "lease", max(0.0, (held.lease.kill_at - boot_ms()) / 1000))

    def drop(self, held: Held, why: str) -> None:
        """It is certainly not ours: its step is killed at once, and nothing is written."""
        if held.lease_lost:
            return
        held.lease_lost = True
        self._stats.add("leases_lost")
        logs.warning("lease.dropped", execution_id=held.execution_id, token=held.token, why=why)
        if held.running and not held.killed:
            held.killed = True
            self._kill(held, why)
            self.tell()

    # -- the clock ---------------------------------------------------------------------------------

    async def _guard_loop(self) -> None:
        loop = asyncio.get_running_loop()
        next_tick = loop.time()
        while True:
            self._note_standstill(boot_ms())
            killed = self._guard(boot_ms())
            if killed or loop.time() >= next_tick:
                self.tell()
                next_tick = loop.time() + TICK_S * (0.8 + random.random() * 0.4)
            await asyncio.sleep(self._guard_pause_s(boot_ms()))

    def _note_standstill(self, now: int) -> None:
        if now - self._looked > STILL_MS:
            self._stood_still_until = now
        self._looked = now

    @property
    def stood_still(self) -> bool:
        """This process did not run for a while and has just come to again: what died meanwhile was killed for its
        lease, by the template, whichever of the loop's callbacks hears of it first."""
        now = boot_ms()
        return now - self._looked > STILL_MS or now - self._stood_still_until < STILL_MS

    def _guard(self, now: int) -> bool:
        """Stop what runs too long under its lease; whether anything was killed."""
        killed = False
        for held in list(self._held.values()):
            if not held.running or held.killed or not self._watchdog:
                continue
            if now >= held.lease.kill_at:
                held.killed = killed = True
                self._kill(held, "the lease could not be renewed in time")
            elif now >= held.lease.ask_at and not held.lease_lost:
                self._ask(held, "lease", max(0.0, (held.lease.kill_at - now) / 1000))
        return killed

    def _guard_pause_s(self, now: int) -> float:
        """To the moment of the next kill, if it is near: after that the template would kill everybody."""
        running = (held.lease.kill_at for held in self._held.values() if held.running and not held.killed)
        return min(100, max(1, min(running, default=now + 100) - now)) / 1000

    # -- renewal --------------------------------------------------------------------------------------

    async def _renew_loop(self) -> None:
        failures = 0
        while True:
            due = self._due(boot_ms())
            if not due:
                failures = 0
                await asyncio.sleep(max(0.02, self._renewal_pause_ms(boot_ms()) / 1000 * (0.8 + random.random() * 0.2)))
            elif await self._renew(due):
                failures = 0
            else:
                await asyncio.sleep(backoff_s(failures, base=0.05, cap=1.0, jitter=random.random()))
                failures += 1

    def _renewable(self) -> list[Held]:
        watched = (held for held in self._held.values() if self._watchdog or not held.running)
        return [held for held in watched if not held.lease_lost and not held.settling]

    def _due(self, now: int) -> list[Held]:
        """All leases once one of them must be renewed; before that, those whose row does not say yet what runs."""
        renewable = self._renewable()
        if any(held.lease.renew_at <= now for held in renewable):
            return renewable
        return [held for held in renewable if self._says_nothing(held) and held.step_started + FIRST_BEAT_MS <= now]

    def _says_nothing(self, held: Held) -> bool:
        return held.running and self._unseen.get(id(held)) == held.step

    def _renewal_pause_ms(self, now: int) -> float:
        soonest = min((held.lease.renew_at for held in self._renewable()), default=now + self._ttl_ms)
        return min(soonest - now, self._ttl_ms / 12, FIRST_BEAT_MS)

    async def _renew(self, due: list[Held]) -> bool:
        sent_at = boot_ms()
        tokens = [held.token for held in due]
        renewals = [
            Renewal(held.tenant_id, held.execution_id, held.lease_value, held.stream, held.entry_id, beat_of(held))
            for held in due
        ]
        answer = await self._runner.run(leases.renew(self._keys, self._consumer, renewals, self._ttl_ms))
        if not isinstance(answer, Value):
            times = self._said.allow("renewal", boot_ms())
            if times is not None:
                logs.warning("lease.renewal_failed", leases=len(due), answer=answer, times=times)
            return False
        for held, token, renewal, word in zip(due, tokens, renewals, answer.value, strict=True):
            if id(held) not in self._held or held.token != token:
                continue  # let go, or taken anew, while the call was under way
            if word == "ok":
                held.lease = lease.times(sent_at, self._ttl_ms)
                if renewal.beat is not None and renewal.beat.step == self._unseen.get(id(held), -1) + 1:
                    del self._unseen[id(held)]
            elif word == "fenced":
                self._lost(held, "its fence token is not the one in Redis")
                self._fenced(held)
            else:
                self._lost(held, "another holder, or none, has the lease")
        return True

    # -- cancel ------------------------------------------------------------------------------------------

    async def _cancel_loop(self) -> None:
        while True:
            await asyncio.sleep(CANCEL_POLL_S * (0.8 + random.random() * 0.4))
            running = [held for held in self._held.values() if held.running and held.cancel is None]
            if not running:
                continue
            answer = await self._runner.run(
                leases.cancel_flags(self._keys, [(held.tenant_id, held.execution_id) for held in running])
            )
            if not isinstance(answer, Value):
                continue  # seen again in a second; a commit answers the flag too
            told = []
            for held, reason in zip(running, answer.value, strict=True):
                if reason is not None and held.cancel is None:
                    held.cancel = reason
                    logs.info("cancel.seen", execution_id=held.execution_id, node_id=held.node_id)
                    if held.running:
                        self._ask(held, "cancel", None)
                        told.append((held.tenant_id, held.execution_id, held.token))
            if told:  # for those who ask how far it is; nothing depends on it
                await self._runner.run(leases.note_signalled(self._keys, told))

    # -- tenants -----------------------------------------------------------------------------------------

    async def _tenant_loop(self) -> None:
        while True:
            await asyncio.sleep(CANCEL_POLL_S * (0.8 + random.random() * 0.4))
            if self._held:
                await self._look_at_tenants()

    async def _look_at_tenants(self) -> None:
        """What is held of a tenant that may begin nothing any more is let go after the step that runs (ledger T2)."""
        asked = sorted({held.tenant_id for held in self._held.values()})
        answer = await self._runner.run(tenants.states(self._keys, asked))
        if not isinstance(answer, Value):
            return  # seen again in a second, and by the next begin
        shut = {tenant for tenant in asked if self._tenant_shut(tenant, answer.value)}
        for held in self._held.values():
            if held.tenant_id in asked and (held.tenant_id in shut) != held.tenant_shut:
                held.tenant_shut = held.tenant_id in shut
                state = "shut" if held.tenant_shut else "open"
                logs.info("tenant.seen", tenant_id=held.tenant_id, execution_id=held.execution_id, state=state)
