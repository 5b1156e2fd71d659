"""When an approval is decided, and by whom it may be (FLOW-FORMAT rule 16). Pure; times are epoch ms by Redis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Decision = Literal["approve", "reject"]
HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class Terms:
    """Who decides how. ``escalation_after_ms`` None: nobody else ever. ``require_comments``: a decision says why."""

    approvers: tuple[str, ...]
    strategy: str
    escalation_after_ms: int | None
    escalation_approvers: tuple[str, ...]
    allow_comments: bool
    require_comments: bool


@dataclass(frozen=True, slots=True)
class Decided:
    """What one person said."""

    approver_id: str
    decision: Decision


def terms_of(config: Mapping[str, Any]) -> Terms:
    """From a node's ``service_config``. Raises KeyError, TypeError or ValueError for one that no approval node made."""
    people, form = config["approver_config"], config["form_config"]
    escalates = bool(people["auto_escalation"])
    return Terms(
        approvers=tuple(str(name) for name in people["approvers"]),
        strategy=str(people["strategy"]),
        escalation_after_ms=int(float(people["escalation_timeout_hours"]) * HOUR_MS) if escalates else None,
        escalation_approvers=tuple(str(name) for name in people["escalation_approvers"]) if escalates else (),
        allow_comments=bool(form["allow_comments"]),
        require_comments=bool(form["require_comments"]),
    )


def escalated(terms: Terms, waits_ms: int) -> bool:
    """Whether those further up may decide too, after so long."""
    return terms.escalation_after_ms is not None and waits_ms >= terms.escalation_after_ms


def may_decide(terms: Terms, waits_ms: int) -> tuple[str, ...]:
    """Everybody whose word counts now."""
    if not escalated(terms, waits_ms):
        return terms.approvers
    return tuple(dict.fromkeys((*terms.approvers, *terms.escalation_approvers)))


def refusal(terms: Terms, said: Sequence[Decided], by: str, comment: str, waits_ms: int) -> str | None:
    """Why a decision is not taken, a stable word: ``not_an_approver``, ``decided_before`` (by this person),
    ``comment_missing``, ``no_comments``; None when it is."""
    if by not in may_decide(terms, waits_ms):
        return "not_an_approver"
    if any(one.approver_id == by for one in said):
        return "decided_before"
    if terms.require_comments and not comment.strip():
        return "comment_missing"
    if comment and not terms.allow_comments:
        return "no_comments"
    return None


def outcome(terms: Terms, said: Sequence[Decided], waits_ms: int) -> Decision | None:
    """The final decision, or None while it is open.

    Those further up have a full say: ``any`` asks whether somebody of all can still approve; ``all`` and ``majority``
    count the approvers, and take the word of one further up as final.
    """
    approvals = {one.approver_id for one in said if one.decision == "approve"}
    rejections = {one.approver_id for one in said if one.decision == "reject"}
    everybody = may_decide(terms, waits_ms)
    if terms.strategy == "any":
        if approvals:
            return "approve"
        return "reject" if rejections >= set(everybody) else None
    above = set(terms.escalation_approvers) - set(terms.approvers)
    for one in said:
        if one.approver_id in above:
            return one.decision
    if terms.strategy == "all":
        if rejections:
            return "reject"
        return "approve" if approvals >= set(terms.approvers) else None
    count, needed = len(terms.approvers), len(terms.approvers) // 2 + 1
    if len(approvals) >= needed:
        return "approve"
    if len(rejections) >= needed or len(approvals) + (count - len(approvals) - len(rejections)) < needed:
        return "reject"
    return None
