"""Bringing dead letters back, each in one call: the one-time mark, the carrier and the audit (ledger D5).

What can be said from a letter alone is ``policy.replay``'s; here is what only the server knows at that moment. A letter
is never taken away by its replay: the mark keeps it from going twice, and it is there to be looked at.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from plaita.policy.replay import Outcome, Plan
from plaita.store.call import Argument, Call, lane_for, script, text
from plaita.store.dead_letters import PAGE_BYTES, LetterPage, parse_page
from plaita.store.keys import DEFAULT_TENANT, Keys

MARK_TTL_MS = 7 * 86_400_000
AUDIT_MAX = 10_000  # entries of the audit stream, about


@dataclass(frozen=True, slots=True)
class Try:
    """One attempt to replay one letter. ``nonce`` makes a resend recognisable; ``force`` goes past the mark; a
    ``dry_run`` writes nothing, no audit either. ``audit``: who and why, as they stand in the audit stream.
    ``audit_repetition`` False: that it was replayed before is not written down again (a sweep over many letters)."""

    dlq_id: str
    nonce: str
    audit: Sequence[tuple[str, str]] = ()
    force: bool = False
    dry_run: bool = False
    audit_repetition: bool = True


@dataclass(frozen=True, slots=True)
class Replayed:
    """``detail`` adds to the outcome (a key, a hash, a lease, when it was replayed before, epoch ms). ``status``: of
    the execution, empty without a row. ``enqueued_as``: ``start`` or a resume type; ``retry`` where the execution had
    ended in error."""

    outcome: Outcome
    detail: str = ""
    message_id: str = ""
    status: str = ""
    enqueued_as: str = ""


def replay(keys: Keys, attempt: Try, plan: Plan) -> Call[Replayed]:
    """Enqueue what ``plan`` says, once. ``keys``: of the plan's tenant. Sent again, it answers the same."""
    execution_id, version = plan.execution_id, plan.version
    carrier, retry = _flat(plan.fields), _flat(plan.retry_fields)
    said = [
        ("execution_id", execution_id),
        ("tenant_id", plan.tenant_id),
        ("flow_id", plan.flow_id),
        ("kind", plan.kind),
        *attempt.audit,
    ]
    return Call(
        "replays.replay",
        script("replay"),
        (
            *_own_keys(keys, attempt),
            keys.queue,
            keys.wake,
            keys.row(execution_id),
            keys.lease(execution_id),
            keys.cancel(execution_id),
            keys.tombstone(execution_id),
            keys.of_execution("g1wakeups", execution_id),
            keys.of_execution("nofail", execution_id),
            keys.flow_versions(plan.flow_id),
            keys.flow_meta(plan.flow_id),
        ),
        (
            *_arguments(attempt, None, ""),
            keys.tenant or DEFAULT_TENANT,
            plan.kind,
            int(plan.foreign),
            plan.flow_id,
            version,
            plan.wait,
            keys.ns,
            *_audit(keys, said),
            len(carrier),
            *carrier,
            *retry,
        ),
        lane_for(*(value for _, value in (*plan.fields, *plan.retry_fields) if isinstance(value, bytes))),
        True,
        _parse,
    )


def refuse(keys: Keys, attempt: Try, outcome: Outcome, detail: str = "") -> Call[Replayed]:
    """Write a try down that ends with ``outcome``; the mark and a missing letter are told first all the same."""
    return Call(
        "replays.refuse",
        script("replay"),
        _own_keys(keys, attempt),
        (*_arguments(attempt, outcome, detail), "", "", 0, "", "", "", "", *_audit(keys, attempt.audit)),
        "writer",
        True,
        _parse,
    )


def _own_keys(keys: Keys, attempt: Try) -> tuple[str, ...]:
    return (keys.dead_letters, keys.replay_mark(attempt.dlq_id), keys.replay_audit)


def _arguments(attempt: Try, outcome: Outcome | None, detail: str) -> tuple[Argument, ...]:
    return (
        attempt.dlq_id,
        attempt.nonce,
        int(attempt.force),
        int(attempt.dry_run),
        "" if outcome is None else outcome.value,
        detail,
        MARK_TTL_MS,
        AUDIT_MAX,
        int(attempt.audit_repetition),
    )


def _audit(keys: Keys, said: Sequence[tuple[str, str]]) -> list[Argument]:
    words = _flat([("dlq_key", keys.dead_letters), *said])
    return [len(words), *words]


def _flat(fields: Sequence[tuple[str, bytes | str]]) -> list[Argument]:
    return [word for pair in fields for word in pair]


def _parse(reply: Sequence[Any]) -> Replayed:
    return Replayed(Outcome(text(reply[0])), *(text(word) for word in reply[1:5]))


def oldest(keys: Keys, limit: int, newer_than: str | None, last_id: str) -> Call[LetterPage]:
    """At most ``limit`` letters, the oldest first, none behind ``last_id``: what comes in while a replay goes on must
    not be replayed by it."""
    return Call(
        "replays.oldest",
        script("dlq_page"),
        (keys.dead_letters,),
        ("XRANGE", "-" if newer_than is None else f"({newer_than}", last_id, limit, PAGE_BYTES),
        "bulk",
        True,
        parse_page,
    )


def replayed_at(keys: Keys, dlq_id: str) -> Call[tuple[int, str] | None]:
    """When (epoch ms) and as which message a letter was replayed, within the last seven days; None when it was not."""

    def parse(reply: Any) -> tuple[int, str] | None:
        words = text(reply).split(" ")
        return (int(words[0]), words[2]) if len(words) == 4 else None

    key = keys.replay_mark(dlq_id)
    return Call("replays.replayed_at", None, (key,), ("GET", key), "writer", True, parse)
