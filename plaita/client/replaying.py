"""Replaying dead letters, one or many (ledger D5): the one function behind the command, the clients and the console.

Each letter is judged and enqueued in a call of its own, so a run that is killed has lost nothing and doubles nothing:
the next one counts what is done as ``already_replayed`` and goes on. What is dead-lettered meanwhile is left to it.
"""

from __future__ import annotations

import dataclasses
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from plaita import ids
from plaita.client import views
from plaita.client.operations import Operation, Pause, ask, check_dlq_id, check_reason
from plaita.clock import iso_utc
from plaita.errors import InputError, RefusedError
from plaita.policy import replay as policy
from plaita.policy.age import entry_ms, timestamp_ms
from plaita.policy.replay import EXPLANATIONS, Outcome, Unfit
from plaita.store import dead_letters, replays, server
from plaita.store.dead_letters import Letter
from plaita.store.keys import Keys, check_tenant
from plaita.store.replays import Replayed, Try

DEFAULT_RATE = 100.0  # letters a second: new work must get its turn beside them
_PAGE = 50
_LISTED = 10_000  # entries named one by one in an answer; the counts are of all
DONE = frozenset({Outcome.REPLAYED, Outcome.ALREADY_REPLAYED})


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which letters: those named by ``dlq_ids``, else all that match every filter that is given; ``everything`` says
    that no filter is meant.

    ``reason``: a part of the reason, in any case; ``cause``, ``flow_id``, ``node_id``: exactly; ``since_ms`` and
    ``until_ms``: when it was dead-lettered, epoch ms. ``limit``: at most so many are replayed.
    """

    dlq_ids: Sequence[str] = ()
    reason: str | None = None
    cause: str | None = None
    flow_id: str | None = None
    node_id: str | None = None
    since_ms: int | None = None
    until_ms: int | None = None
    limit: int | None = None
    everything: bool = False

    @property
    def filtered(self) -> bool:
        """Whether any filter is given."""
        filters = (self.reason, self.cause, self.flow_id, self.node_id, self.since_ms, self.until_ms)
        return any(value is not None for value in filters)

    def matches(self, letter: Letter, shown: dict[str, Any]) -> bool:
        """``shown``: the letter as ``dlq list`` has it."""
        at = timestamp_ms(shown["dead_lettered_at"]) or entry_ms(letter.dlq_id) or 0
        return (
            (self.reason is None or self.reason.casefold() in str(shown["reason"] or "").casefold())
            and (self.cause is None or shown["cause"] == self.cause)
            and (self.flow_id is None or shown["flow_id"] == self.flow_id)
            and (self.node_id is None or shown["node_id"] == self.node_id)
            and (self.since_ms is None or at >= self.since_ms)
            and (self.until_ms is None or at <= self.until_ms)
        )


@dataclass(frozen=True, slots=True)
class Manner:
    """How: ``tenant`` is the one named by the caller (None: each letter's own). ``by`` and ``why`` go to the audit.
    ``force`` goes past the one-time mark and the age limit. ``rate``: letters a second, 0 for no limit.
    ``max_age_ms`` 0 is no limit, None that of the settings."""

    tenant: str | None = None
    by: str = ""
    why: str = ""
    force: bool = False
    dry_run: bool = False
    rate: float = DEFAULT_RATE
    max_age_ms: int | None = None


class _Tally:
    """What became of the letters so far."""

    def __init__(self) -> None:
        self.entries: list[dict[str, Any]] = []
        self.outcomes: Counter[str] = Counter()
        self.groups: dict[tuple[Any, ...], Counter[str]] = {}

    def add(self, dlq_id: str, shown: dict[str, Any], done: Replayed) -> None:
        word = done.outcome.value
        self.outcomes[word] += 1
        group = tuple(shown.get(name) for name in ("reason", "cause", "flow_id", "node_id"))
        self.groups.setdefault(group, Counter())[word] += 1
        if len(self.entries) >= _LISTED:
            return
        self.entries.append(
            {
                "dlq_id": dlq_id,
                "outcome": word,
                "execution_id": shown.get("execution_id"),
                "message_id": done.message_id or None,
                "enqueued_as": done.enqueued_as or None,
                "status": done.status or None,
                "detail": _detail(done),
            }
        )

    def document(self, dry_run: bool, more: bool) -> dict[str, Any]:
        groups = [
            dict(zip(("reason", "cause", "flow_id", "node_id"), group, strict=True))
            | {"count": counts.total(), "outcomes": dict(counts)}
            for group, counts in sorted(self.groups.items(), key=lambda one: -one[1].total())
        ]
        return {
            "dry_run": dry_run,
            "replayed": 0 if dry_run else self.outcomes[Outcome.REPLAYED.value],
            "outcomes": dict(self.outcomes),
            "groups": groups,
            "entries": self.entries,
            "more": more,
        }


def _detail(done: Replayed) -> str | None:
    if done.outcome is Outcome.ALREADY_REPLAYED and done.detail.isdecimal():
        return f"at {iso_utc(int(done.detail))}"
    return done.detail or None


def replay(keys: Keys, wanted: Wanted, manner: Manner) -> Operation[dict[str, Any]]:
    """Replay dead letters: ``{"dry_run", "replayed", "outcomes": {word: count}, "groups", "entries", "more"}``.

    A dry run enqueues and writes nothing; what it counts as ``replayed`` is what would be. ``more``: the limit kept
    matching letters from being looked at. Words: ``policy.replay.Outcome``. Raises InputError.
    """
    _check(wanted, manner)
    pace = _Pace(0.0 if manner.dry_run else manner.rate)
    tally = _Tally()
    if wanted.dlq_ids:
        for dlq_id in dict.fromkeys(wanted.dlq_ids):
            letter = yield from ask(dead_letters.get(keys, dlq_id))
            done = yield from _one(keys, dlq_id, letter, manner, sweep=False)
            shown = _shown(letter)
            if shown and _of_another_tenant(shown, manner):  # whose it is, and what, is not for who asks
                tally.add(dlq_id, {}, dataclasses.replace(done, detail=""))
            else:
                tally.add(dlq_id, shown, done)
            yield from pace.keep(done)
        return tally.document(manner.dry_run, more=False)
    more = yield from _sweep(keys, wanted, manner, tally, pace)
    return tally.document(manner.dry_run, more)


def _sweep(keys: Keys, wanted: Wanted, manner: Manner, tally: _Tally, pace: _Pace) -> Operation[bool]:
    newest = yield from ask(dead_letters.page(keys, 1))
    if not newest.letters:
        return False
    last_id, newer_than = newest.letters[0].dlq_id, None
    while True:
        page = yield from ask(replays.oldest(keys, _PAGE, newer_than, last_id))
        for letter in page.letters:
            shown = _shown(letter)
            if not wanted.matches(letter, shown) or _of_another_tenant(shown, manner):
                continue
            if wanted.limit is not None and tally.outcomes[Outcome.REPLAYED.value] >= wanted.limit:
                return True
            done = yield from _one(keys, letter.dlq_id, letter, manner, sweep=True)
            tally.add(letter.dlq_id, shown, done)
            yield from pace.keep(done)
        if not page.letters or not page.more:
            return False
        newer_than = page.letters[-1].dlq_id


def _one(keys: Keys, dlq_id: str, letter: Letter | None, manner: Manner, *, sweep: bool) -> Operation[Replayed]:
    """One letter: what it says is judged here, what the server knows by the call."""
    attempt = Try(
        dlq_id,
        ids.new_nonce(),
        (("by", manner.by), ("reason", manner.why)),
        force=manner.force,
        dry_run=manner.dry_run,
        audit_repetition=not sweep,
    )
    if letter is None:
        return (yield from ask(replays.refuse(keys, attempt, Outcome.NO_LETTER)))
    now_ms = yield from ask(server.now_ms(keys))  # not by our own clock: a wrong one would make letters too old
    plan = policy.plan(
        letter.fields,
        dlq_key=keys.dead_letters,
        dlq_id=dlq_id,
        tenant=manner.tenant,
        now_ms=now_ms,
        max_age_ms=0 if manner.force else manner.max_age_ms or 0,
    )
    if isinstance(plan, Unfit):
        return (yield from ask(replays.refuse(keys, attempt, plan.outcome, plan.why)))
    try:
        tenant = check_tenant(plan.tenant_id)
    except InputError as error:
        return (yield from ask(replays.refuse(keys, attempt, Outcome.MALFORMED, str(error))))
    try:
        return (yield from ask(replays.replay(keys.for_tenant(tenant), attempt, plan)))
    except RefusedError as error:  # a key of another type, say: one letter's trouble is not the others'
        return (yield from ask(replays.refuse(keys, attempt, Outcome.REFUSED, f"{error.reason} {error}".strip())))


def _shown(letter: Letter | None) -> dict[str, Any]:
    return {} if letter is None else views.dead_letter(letter.dlq_id, letter.fields)


def _of_another_tenant(shown: dict[str, Any], manner: Manner) -> bool:
    """A sweep with a tenant is over that tenant's letters, and over those that name none."""
    return manner.tenant is not None and shown["tenant_id"] not in (None, "", manner.tenant)


def _check(wanted: Wanted, manner: Manner) -> None:
    check_reason(manner.why)
    if wanted.dlq_ids and (wanted.filtered or wanted.everything or wanted.limit is not None):
        raise InputError("which dead letters: name them by id, or by filters and a limit, not both")
    if not wanted.dlq_ids and not wanted.filtered and not wanted.everything:
        raise InputError("which dead letters: name ids, or filters, or say that all are meant")
    for dlq_id in wanted.dlq_ids:
        check_dlq_id(dlq_id)
    if wanted.limit is not None and wanted.limit < 1:
        raise InputError(f"limit: {wanted.limit}; 1 or more")
    if not 0 <= manner.rate < float("inf"):
        raise InputError(f"rate: {manner.rate!r}; letters a second, 0 for no limit")


class _Pace:
    """Keeps what is enqueued to so many a second, over the whole run; what is only looked at costs nothing."""

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._began: float | None = None
        self._enqueued = 0

    def keep(self, done: Replayed) -> Operation[None]:
        if done.outcome is not Outcome.REPLAYED or self._rate <= 0:
            return
        now = time.monotonic()
        if self._began is None:
            self._began = now
        self._enqueued += 1
        ahead = self._enqueued / self._rate - (now - self._began)
        if ahead > 0.05:
            yield Pause(ahead)


def explain(outcome: str) -> str:
    """The sentence for an outcome's word."""
    return EXPLANATIONS[Outcome(outcome)]
