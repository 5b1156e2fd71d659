"""Whether a carrier is run by this host at all, before anything is begun: generations (ledger C3), age (D3) and the
host it names (G4, in ``affinity``).

Verdicts come from ``policy.generations`` and ``policy.age``. A carrier of other hosts costs nothing: it is handed on
once and then left alone, by the reclaim script where its entry fields say whose it is, else by the memory kept here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from plaita.clock import boot_ms, wall_ms
from plaita.policy import age, generations, repos
from plaita.policy.carrier import Carrier, Malformed, TooNew, payload_fields, stamps_of
from plaita.policy.generations import Fit, Stamps
from plaita.store import server
from plaita.store.call import Value
from plaita.store.carriers import Entry
from plaita.store.keys import Keys
from plaita.supervisor import logs
from plaita.supervisor.affinity import Affinity
from plaita.supervisor.entries import Entries
from plaita.supervisor.log_limit import LogLimit
from plaita.supervisor.sender import Sender
from plaita.supervisor.stats import Stats

REMEMBERED = 256
SAY_EVERY_MS = 60_000
PATIENCE_MS = 60_000


@dataclass(frozen=True, slots=True)
class AdmissionSettings:
    """``ours``: what this host is. ``max_age_ms`` 0: no limit. ``denied_repos``: last names of repositories whose tasks
    are left to other hosts (ledger G6)."""

    ours: Stamps
    max_age_ms: int
    denied_repos: frozenset[str] = frozenset()


class Admission:
    """One for a supervisor."""

    def __init__(
        self,
        settings: AdmissionSettings,
        keys: Keys,
        sender: Sender,
        entries: Entries,
        stats: Stats,
        affinity: Affinity,
    ) -> None:
        self._settings = settings
        self._keys = keys
        self._sender = sender
        self._entries = entries
        self._stats = stats
        self._affinity = affinity
        self._said = LogLimit(SAY_EVERY_MS)
        self._others: dict[str, Fit] = {}  # RUNS: its repository is denied

    @property
    def others(self) -> Iterable[str]:
        """Entries (``"q 1-0"``) of other hosts that were met before, the last ones: not to be claimed again."""
        return self._others

    @property
    def by_body(self) -> list[tuple[str, str]]:
        """What each of them is, as ``carriers.left_to_others`` takes them."""
        letters = {Fit.OTHER_FAMILY: "f", Fit.OTHER_BUDGET: "b", Fit.RUNS: "r"}
        return [(letters[fit], entry) for entry, fit in self._others.items()]

    def too_old_after_ms(self, carrier: Carrier) -> int | None:
        """By the server's clock; None where nothing limits its age."""
        return age.too_old_after_ms(carrier.first_enqueued_ms, self._settings.max_age_ms)

    async def admits(self, carrier: Carrier | Malformed | TooNew, entry: Entry) -> bool:
        """False when the carrier was left to others or dropped."""
        stamps = carrier.stamps if isinstance(carrier, Carrier) else stamps_of(entry.fields)
        ruling = generations.judge(stamps, self._settings.ours)
        for name in ruling.malformed:
            logs.warning("config.stamp_malformed", entry_id=entry.entry_id, field=name, value=getattr(stamps, name))
        if ruling.fit is not Fit.RUNS:
            await self._leave(entry, ruling.fit, stamps)
            return False
        if self._settings.denied_repos and isinstance(carrier, Carrier) and await self._denied(carrier, entry):
            return False
        return not isinstance(carrier, Carrier) or await self._young_enough(carrier, entry)

    async def runs_here(self, carrier: Carrier, entry: Entry) -> bool:
        """Whether it may run on this host, after ``admits``; False when it was put back for another one (ledger G4).
        Not to be asked once this host leaves: that puts nothing into the queue any more (ledger R4)."""
        return await self._affinity.runs_here(carrier, entry)

    async def _leave(self, entry: Entry, fit: Fit, stamps: Stamps) -> None:
        """Handed on at once when it is new (DECISIONS 4), and remembered, so that it does not come straight back. One
        that does come back, forgotten among many, is not handed on again: it rests for the min-idle time."""
        theirs = stamps.config_family if fit is Fit.OTHER_FAMILY else stamps.budget_generation
        self.tell(fit, str(theirs), entry.entry_id)
        await self._pass_on(entry, fit)

    async def _denied(self, carrier: Carrier, entry: Entry) -> bool:
        """Left to other hosts where it is a task for a repository that this one denies: like one of another family, it
        stays pending and spends nothing (ledger G6)."""
        repo = repos.repo_of(entry.fields, payload_fields(entry.fields))
        if not repos.is_denied(repo, self._settings.denied_repos):
            return False
        self._stats.add("repo_denied")
        times = self._said.allow(("repo", repo), boot_ms())
        if times is not None:
            logs.info(
                "dispatch-repo-denied",
                times=times,
                execution_id=carrier.execution_id,
                entry_id=entry.entry_id,
                repo=repo,
                advice="it is left for hosts whose PLAITA_WORKER_DENY_REPOS does not name it",
            )
        # One that names it in its body only is claimed again by every such host: each hands it on once.
        await self._pass_on(entry, Fit.RUNS, reclaimed_too=len(self._others) < REMEMBERED)
        return True

    async def _pass_on(self, entry: Entry, fit: Fit, *, reclaimed_too: bool = False) -> None:
        if len(self._others) >= REMEMBERED:
            self._others.pop(next(iter(self._others)))
        self._others[f"{entry.stream} {entry.entry_id}"] = fit
        if reclaimed_too or not entry.reclaimed:
            await self._entries.let_others(entry)

    def tell(self, fit: Fit, theirs: str | None, entry_id: str | None = None, amount: int = 1) -> None:
        """Log that carriers were left to others, once a minute for each of their generations."""
        count = self._said.allow((fit, theirs), boot_ms(), amount)
        if count is None:
            return
        ours = self._settings.ours
        logs.warning(
            fit.value,
            times=count,
            entry_id=entry_id,
            theirs=theirs,
            ours=ours.config_family if fit is Fit.OTHER_FAMILY else ours.budget_generation,
            advice=generations.ADVICE[fit],
        )

    def tell_skipped(self, family: int, budget: int) -> None:
        """Log that a reclaim left so many alone: without that they would lie there unseen (ledger C3)."""
        for fit, count in ((Fit.OTHER_FAMILY, family), (Fit.OTHER_BUDGET, budget)):
            if count:
                self.tell(fit, None, amount=count)

    async def _young_enough(self, carrier: Carrier, entry: Entry) -> bool:
        first, limit = carrier.first_enqueued_ms, self._settings.max_age_ms
        ruling = age.judge(first, wall_ms(), limit)
        if ruling.verdict is age.Verdict.TOO_OLD:
            # Stream ids are the server's time: only by its own clock may something be lost for ever.
            answer = await self._sender.send(server.now_ms(self._keys), until=boot_ms() + PATIENCE_MS)
            if not isinstance(answer, Value):
                return False
            ruling = age.judge(first, answer.value, limit)
        if ruling.verdict is age.Verdict.RUNS:
            return True
        self._stats.add("carriers_too_old" if ruling.verdict is age.Verdict.TOO_OLD else "carrier_age_unknown_total")
        logs.warning(
            "carrier.dropped",
            execution_id=carrier.execution_id,
            entry_id=entry.entry_id,
            reason=ruling.verdict.value,
            age_s=None if ruling.age_ms is None else ruling.age_ms // 1000,
            limit_s=limit // 1000,
        )
        await self._entries.ack(entry)
        return False
