"""The way into the dead letters (ledger Q4, Q5): reads the facts, asks the one guard, does what it rules, tells of it.

Decides nothing itself (``policy.dead_letter_guard`` does) and never raises: a carrier it could not judge or bury stays
pending and comes again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from plaita.clock import boot_ms, wall_ms
from plaita.policy import dead_letter_guard
from plaita.policy.carrier import Carrier, schema_version_of
from plaita.policy.copies import Fields, continue_copy
from plaita.policy.dead_letter import envelope
from plaita.policy.dead_letter_guard import UNKNOWN_EXECUTION, UNREADABLE, Facts, Lease, Verdict
from plaita.store import dead_letters
from plaita.store.call import Refused, Value
from plaita.store.carriers import Entry
from plaita.store.dead_letters import Allowed, Buried, GuardFacts
from plaita.store.keys import Keys
from plaita.supervisor import logs
from plaita.supervisor.held import Held
from plaita.supervisor.sender import Sender
from plaita.supervisor.stats import Stats

JUDGED_ANEW = 5  # times the facts may change between judging and burying before the carrier is left for another round


@dataclass(frozen=True, slots=True)
class Wanted:
    """A carrier that is to be given up, and why. ``execution``: the keys of its tenant and its id, where it names one.
    ``carrier`` where it could be read; ``raw`` keeps its fields byte for byte."""

    entry: Entry
    reason: str
    cause: str
    execution: tuple[Keys, str] | None = None
    carrier: Carrier | None = None
    schema_rejected: bool = False
    raw: bool = False


@dataclass(frozen=True, slots=True)
class Notice:
    """What the hooks are told of a dead letter (``on_dead_letter`` of the ledger)."""

    dlq_id: str
    reason: str
    cause: str
    stream: str
    entry_id: str
    execution_id: str | None
    delivery_count: int


class DeadLetters:
    """``on_dead_letter`` is called with each Notice; what it raises is logged and stops nothing."""

    def __init__(
        self, keys: Keys, sender: Sender, stats: Stats, *, maxlen: int, max_deliveries: int, patience_ms: int
    ) -> None:
        self._keys = keys
        self._sender = sender
        self._stats = stats
        self._maxlen = maxlen
        self._max_deliveries = max_deliveries
        self._patience_ms = patience_ms
        self.on_dead_letter: list[Callable[[Notice], None]] = []

    async def dead_letter_if_allowed(self, wanted: Wanted) -> Verdict:
        """The verdict, already carried out, but for END: that needs the lease, so it is the caller's to do."""
        try:
            verdict = await self._judge_and_bury(wanted)
        except Exception as error:  # noqa: BLE001 - a guard that raises lets nothing go (Q4)
            verdict = Verdict.KEEP
            logs.error("dlq.guard_failed", entry_id=wanted.entry.entry_id, error=repr(error))
        if verdict is Verdict.KEEP:
            self._stats.add("dlq_guard_skipped")
            logs.warning(
                "dlq.guard_skipped",
                entry_id=wanted.entry.entry_id,
                execution_id=wanted.execution[1] if wanted.execution else None,
                reason=wanted.reason,
            )
        return verdict

    async def _judge_and_bury(self, wanted: Wanted) -> Verdict:
        for _ in range(JUDGED_ANEW):
            seen, facts = await self._facts(wanted)
            verdict = dead_letter_guard.judge(facts)
            if verdict not in (Verdict.LET_GO, Verdict.LET_GO_WITH_COPY):
                return verdict
            copy = self._copy(wanted, seen) if verdict is Verdict.LET_GO_WITH_COPY else []
            answer = await self._bury(wanted, seen, copy)
            if isinstance(answer, Value):
                self._buried(wanted, answer.value)
                return verdict
            if answer is None or answer.reason != "changed":
                return Verdict.KEEP
        return Verdict.KEEP

    async def _facts(self, wanted: Wanted) -> tuple[GuardFacts | None, Facts]:
        if wanted.execution is None:
            return None, UNKNOWN_EXECUTION
        keys, execution_id = wanted.execution
        answer = await self._sender.send(dead_letters.guard_facts(keys, execution_id), until=self._until())
        if not isinstance(answer, Value) or not answer.value.readable:
            return None, UNREADABLE
        seen = answer.value
        return seen, Facts(
            known=True,
            status=seen.status,
            lease=Lease.NOBODY if seen.lease is None else Lease.ANOTHER,
            budget_spent=max(seen.failures, seen.lost) >= self._max_deliveries,
            tombstoned=seen.tombstoned,
            schema_rejected=wanted.schema_rejected,
        )

    def _copy(self, wanted: Wanted, seen: GuardFacts | None) -> Fields:
        assert wanted.execution is not None and seen is not None  # noqa: PT018 - a copy has an execution
        keys, execution_id = wanted.execution
        entry = wanted.entry
        return continue_copy(
            entry.fields, entry.entry_id, execution_id=execution_id, flow_id=seen.flow_id, tenant_id=keys.tenant
        )

    async def _bury(self, wanted: Wanted, seen: GuardFacts | None, copy: Fields) -> Value[Buried] | Refused | None:
        entry = wanted.entry
        allowed = None
        if wanted.execution is not None and seen is not None:
            allowed = Allowed(*wanted.execution, seen.mark)
        call = dead_letters.bury(
            self._keys,
            entry.stream,
            entry.entry_id,
            self._letter(wanted),
            self._maxlen,
            allowed=allowed,
            copy=copy,
        )
        return await self._sender.send(call, until=self._until())

    def _letter(self, wanted: Wanted) -> Sequence[tuple[str, bytes | str]]:
        entry, carrier = wanted.entry, wanted.carrier
        keys, execution_id = wanted.execution or (None, None)
        return envelope(
            reason=wanted.reason,
            cause=wanted.cause,
            source_stream=self._keys.stream(entry.stream),
            source_id=entry.entry_id,
            fields=entry.fields,
            schema_version=schema_version_of(entry.fields),
            dead_lettered_at_ms=wall_ms(),
            attempts=entry.delivered,
            execution_id=execution_id,
            flow_id=carrier.flow_id if carrier is not None else None,
            tenant_id=keys.tenant if keys is not None else None,
            raw_fields=entry.raw if wanted.raw else None,
        )

    def _buried(self, wanted: Wanted, buried: Buried) -> None:
        entry = wanted.entry
        if buried.copy_id:
            logs.warning(
                "carrier.recovery_copy",
                entry_id=entry.entry_id,
                copy_id=buried.copy_id,
                execution_id=wanted.execution[1] if wanted.execution else None,
            )
        self.written(
            Notice(
                dlq_id=buried.dlq_id,
                reason=wanted.reason,
                cause=wanted.cause,
                stream=self._keys.stream(entry.stream),
                entry_id=entry.entry_id,
                execution_id=wanted.execution[1] if wanted.execution else None,
                delivery_count=entry.delivered,
            ),
            buried.trimmed,
        )

    # -- the end of an execution that is held ----------------------------------------------------------

    def allows_end(self, held: Held) -> bool:
        """Whether a spent budget of what we hold may end in a dead letter: the guard's word on it, like on all. The
        end itself is one script that checks the lease again."""
        facts = Facts(known=True, status="running", lease=Lease.OURS, budget_spent=True)
        return not held.lease_lost and dead_letter_guard.judge(facts) is Verdict.END

    def written(self, notice: Notice, trimmed: int) -> None:
        """A dead letter stands in the stream: counted, logged, told. ``trimmed``: how many old ones it cost, -1 when
        cutting failed (ledger Q5)."""
        self._stats.add("dead_lettered")
        logs.error(
            "carrier.dead_lettered",
            entry_id=notice.entry_id,
            execution_id=notice.execution_id,
            reason=notice.reason,
            cause=notice.cause,
            dlq_id=notice.dlq_id,
        )
        count_trimmed(self._stats, trimmed, self._maxlen)
        for hook in self.on_dead_letter:
            try:
                hook(notice)
            except Exception as error:  # noqa: BLE001 - a hook is somebody else's code
                logs.error("dlq.hook_failed", error=repr(error))

    def _until(self) -> int:
        return boot_ms() + self._patience_ms


def count_trimmed(stats: Stats, trimmed: int, maxlen: int) -> None:
    """What the limit of the dead letters has cost, or that it could not be kept."""
    if trimmed > 0:
        stats.add("dlq_trimmed", trimmed)
        logs.warning("dlq.trimmed", lost=trimmed, limit=maxlen, advice="raise PLAITA_DLQ_MAX_LEN or empty it sooner")
    elif trimmed < 0:
        stats.add("dlq_trim_failures")
        logs.warning("dlq.trim_failed", limit=maxlen, advice="may the user of --redis-url run XTRIM?")
