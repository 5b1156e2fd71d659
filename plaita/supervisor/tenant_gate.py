"""What becomes of carriers whose tenant may begin nothing now: dropped, left to others, or parked (ledger T2, T3).

``begin`` says so, ``policy.tenants`` judges what is read beside it. This also brings parked carriers back, when a place
is free here and about once a second for all hosts, and remembers for ``status`` and ``explain`` what holds what up.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable
from dataclasses import dataclass, replace

from plaita.clock import boot_ms, wall_ms
from plaita.policy import tenants as policy
from plaita.policy.carrier import Carrier
from plaita.policy.tenants import Verdict
from plaita.store import tenants
from plaita.store.call import Refused, Value
from plaita.store.carriers import Entry
from plaita.store.keys import Keys
from plaita.store.tenants import Park, Released
from plaita.supervisor import logs
from plaita.supervisor.dead_letters import count_trimmed
from plaita.supervisor.entries import Entries
from plaita.supervisor.log_limit import LogLimit
from plaita.supervisor.sender import Sender
from plaita.supervisor.stats import Stats

BEAT_S = 1.0
SAY_EVERY_MS = 60_000
LEFT_AT_MOST = 256

EPOCH_ADVICE = {
    "missing": "no deployment has said yet which tenants are enabled; `plaita tenant enable` or the console writes it",
    "older": "the statuses are of an earlier deployment; `plaita tenant enable` or the console writes them anew",
    "newer": "this host is of an earlier deployment; give it the new epoch, or stop it",
}


@dataclass(frozen=True, slots=True)
class TenantSettings:
    """``expected_epoch`` '': no epoch is looked at. ``patience_ms``: how long a call may stay unanswered."""

    consumer: str
    expected_epoch: str
    patience_ms: int
    dlq_maxlen: int


@dataclass(frozen=True, slots=True)
class EpochTrouble:
    """``since`` is epoch ms; ``refused``: carriers that it left to others since then."""

    why: str
    found: str
    since: int
    refused: int


class TenantGate:
    """One for a supervisor."""

    def __init__(self, settings: TenantSettings, keys: Keys, sender: Sender, entries: Entries, stats: Stats) -> None:
        self._settings = settings
        self._keys = keys
        self._sender = sender
        self._entries = entries
        self._stats = stats
        self._said = LogLimit(SAY_EVERY_MS)
        self._left: dict[str, None] = {}
        self.trouble: EpochTrouble | None = None
        self.waiting: set[str] = set()  # tenants known to have carriers parked

    @property
    def left(self) -> Iterable[str]:
        """Entries (``"q 1-0"``) that were left to others for their epoch: not to be claimed again while it is so."""
        return self._left

    @property
    def expected_epoch(self) -> str:
        """'' where none is looked at."""
        return self._settings.expected_epoch

    def judge(self, tenant: str, states: tenants.States) -> Verdict:
        """What ``begin`` would say of this tenant, but for its quota."""
        status = states.statuses.get(tenant)
        expected = self._settings.expected_epoch
        return policy.judge(tenant, status, states.epoch, expected, strict=True).verdict

    # -- carriers that were refused --------------------------------------------------------------------

    async def refused(self, keys: Keys, carrier: Carrier, entry: Entry, answer: Refused) -> None:
        """``begin`` refused it with ``tenant_disabled``, ``tenant_epoch`` or ``quota``."""
        if answer.reason == "quota":
            await self._park(keys, carrier, entry, answer.detail)
        elif answer.reason == "tenant_epoch":
            await self._leave(entry, answer.detail)
        elif await self._entries.drop_disabled(keys, carrier.execution_id, entry):
            self._stats.add("tenant_disabled_dropped")
            logs.info(
                "carrier.dropped",
                execution_id=carrier.execution_id,
                tenant_id=keys.tenant,
                entry_id=entry.entry_id,
                reason=answer.reason,
            )

    async def _park(self, keys: Keys, carrier: Carrier, entry: Entry, detail: str) -> None:
        fields = {"execution_id": carrier.execution_id, "tenant_id": keys.tenant}
        if carrier.first_enqueued_ms is not None:
            fields["first_enqueued_at"] = str(carrier.first_enqueued_ms)
        request = Park(carrier.execution_id, self._settings.consumer, entry.stream, entry.entry_id, fields)
        answer = await self._sender.send(tenants.park(keys, request), until=self._soon())
        if isinstance(answer, Refused):
            await self._entries.let_others(entry)  # a place became free meanwhile
            return
        if answer is None:
            return  # it stays pending, and is judged anew when it has been idle for long
        self._stats.add("parked")
        self.waiting.add(keys.tenant)
        count = self._said.allow(("quota", keys.tenant), boot_ms())
        if count is not None:
            logs.info("tenant.quota", tenant_id=keys.tenant, running=detail, parked_here=count)

    async def _leave(self, entry: Entry, why: str) -> None:
        """Left pending at no cost, like a carrier of another family (DECISIONS 12): each host hands it on once and
        remembers it. With too many to remember, one that comes back rests here for the min-idle time."""
        self._stats.add("tenant_epoch_refused")
        self._tell(why)
        remembered = len(self._left) < LEFT_AT_MOST
        if remembered:
            self._left[f"{entry.stream} {entry.entry_id}"] = None
        if remembered or not entry.reclaimed:
            await self._entries.let_others(entry)

    def _tell(self, why: str) -> None:
        before = self.trouble
        if before is None or before.why != why:
            before = EpochTrouble(why, "", wall_ms(), 0 if before is None else before.refused)
        self.trouble = replace(before, refused=before.refused + 1)
        count = self._said.allow(("epoch", why), boot_ms())
        if count is not None:
            logs.warning(
                "tenant.epoch_refused",
                why=why,
                expected=self._settings.expected_epoch,
                times=count,
                effect="carriers of all tenants but the default one are left pending",
                advice=EPOCH_ADVICE.get(why, ""),
            )

    # -- places ------------------------------------------------------------------------------------------

    async def place_free(self, tenant: str) -> None:
        """An execution of this tenant was let go: if others of it wait, the next need not wait for the beat."""
        if tenant in self.waiting:
            await self._release([tenant])

    async def _release(self, only: Iterable[str] = ()) -> bool:
        """Whether there may be more to bring back at once."""
        asked = list(only)
        call = tenants.release_parked(
            self._keys,
            asked,
            expected_epoch=self._settings.expected_epoch,
            dlq_maxlen=self._settings.dlq_maxlen,
        )
        answer = await self._sender.runner.run(call)
        if not isinstance(answer, Value):
            return False
        done: Released = answer.value
        self._stats.add("parked_released", done.moved)
        if done.bad:
            self._stats.add("delayed_bad", done.bad)
            logs.error("parked.bad_records", count=done.bad)
            count_trimmed(self._stats, done.trimmed, self._settings.dlq_maxlen)
        # With more of them than one call looks at, the rest is forgotten here until their turn: the beat finds all.
        self.waiting = (self.waiting - set(asked) if asked else set()) | set(done.left)
        return done.more

    # -- the beat ----------------------------------------------------------------------------------------

    async def beat(self) -> None:
        """About once a second, in every state but STOPPED: what has a place is brought back, for all hosts."""
        while True:
            more = await self._release()
            await self._look_at_epoch()
            await asyncio.sleep(0 if more else BEAT_S * (0.8 + random.random() * 0.4))

    async def _look_at_epoch(self) -> None:
        if self.trouble is None:
            return
        answer = await self._sender.runner.run(tenants.states(self._keys))
        trouble = self.trouble
        if not isinstance(answer, Value) or trouble is None:
            return
        found = answer.value.epoch
        why = policy.epoch_trouble(found, self._settings.expected_epoch, strict=True)
        if why:
            since = trouble.since if why == trouble.why else wall_ms()
            self.trouble = EpochTrouble(why, found, since, trouble.refused)
            return
        self.trouble = None
        self._left.clear()  # they can be claimed at once
        logs.info("tenant.epoch_fits", epoch=found, left_pending=trouble.refused)

    def _soon(self) -> int:
        return boot_ms() + self._settings.patience_ms
