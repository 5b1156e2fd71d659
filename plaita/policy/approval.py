"""When an approval is decided, and by whom it may be (FLOW-FORMAT rule 16). Pure; times are epoch ms by Redis.

Whoever takes decisions, a client at a server or the runner that skips time, takes them by ``taken``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from plaita import jsontext
from plaita.errors import InputError
from plaita.policy.event_index import DATA_STANDS_IN

Decision = Literal["approve", "reject"]
HOUR_MS = 3_600_000
MAX_FORM_BYTES = 16 * 1024
FORM_STANDS_IN = 4  # levels of an event's data around a form
MAX_DECISIONS_BYTES = 4 * 1024 * 1024
"""All decisions of one approval with their comments and forms: they become a node's result, which has 8 MiB."""


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


class NotTaken(Exception):
    """A decision does not count; ``reason`` is a stable word of ``refusal``, or ``too_large``."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


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
    return "reject" if count - len(rejections) < needed else None


# -- taking a decision ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Taken:
    """``details``: all decisions with the new one, each ``{approver_id, decision, comments, timestamp}``, ``form``
    where one was filled in. ``final``: what is decided by it, None while the matter is open."""

    details: list[dict[str, Any]]
    final: Decision | None


def taken(
    config: Mapping[str, Any],
    details: Sequence[Mapping[str, Any]],
    by: str,
    decision: Decision,
    *,
    comment: str,
    form: Mapping[str, Any] | None,
    since: int,
    now: int,
    nonce: str = "",
) -> Taken:
    """A decision added to those there are. ``config``: the node's ``service_config``; ``since``: when the wait began;
    ``nonce``: names this call in what is kept, for who sends it again.

    Raises NotTaken; InputError for a form that does not fit.
    """
    terms = terms_of(config)
    said = [decided(one) for one in details]
    reason = refusal(terms, said, by, comment, now - since)
    if reason is not None:
        raise NotTaken(reason)
    entry: dict[str, Any] = {"approver_id": by, "decision": decision, "comments": comment, "timestamp": now}
    filled = checked_form(form_fields(config), form)
    if filled is not None:
        entry["form"] = filled
    if nonce:
        entry["nonce"] = nonce
    added = [*(dict(one) for one in details), entry]
    if (comment or filled) and len(jsontext.dumps(added)) > MAX_DECISIONS_BYTES:
        raise NotTaken("too_large")
    return Taken(added, outcome(terms, [*said, Decided(by, decision)], now - since))


def decided(detail: Mapping[str, Any]) -> Decided:
    """What a kept decision says."""
    return Decided(str(detail["approver_id"]), "approve" if detail["decision"] == "approve" else "reject")


def shown(details: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Decisions as people and nodes see them."""
    return [{name: value for name, value in one.items() if name != "nonce"} for one in details]


def event_data(
    config: Mapping[str, Any], final: Decision, details: Sequence[Mapping[str, Any]], tenant: str, now: int
) -> dict[str, Any]:
    """What the node's ``on_event`` gets."""
    return {
        "trigger_type": "approval_completed",
        "approval_id": config["approval_id"],
        "final_decision": final,
        "approval_details": shown(details),
        "node_id": config["node_id"],
        "execution_id": config["execution_id"],
        "flow_id": config["flow_id"],
        "tenant_id": tenant,
        "timestamp": now,
        "success": True,
    }


# -- forms ----------------------------------------------------------------------------------------


def form_fields(config: Mapping[str, Any]) -> dict[str, bool]:
    """The fields of its form and whether each is required."""
    fields = config["form_config"]["fields"] or ()
    return {
        str(one["name"]): one.get("required") is True for one in fields if isinstance(one, dict) and one.get("name")
    }


def checked_form(fields: Mapping[str, bool], form: object) -> dict[str, Any] | None:
    """What was filled in; None for nothing at all. Raises InputError naming the field."""
    if form is None:
        form = {}
        if not any(fields.values()):
            return None
    if not isinstance(form, Mapping):
        raise InputError(f"form: a {type(form).__name__}; an object of field names and values is wanted")
    for name in form:
        if name not in fields:
            raise InputError(f"form: there is no field {name!r}; there are {', '.join(map(repr, fields)) or 'none'}")
    for name, required in fields.items():
        if required and form.get(name) in (None, ""):
            raise InputError(f"form: the field {name!r} is required")
    try:
        jsontext.check(dict(form), "form", within=DATA_STANDS_IN + FORM_STANDS_IN)
        size = len(jsontext.dumps(dict(form), "form"))
    except jsontext.JSONValueError as error:
        raise InputError(str(error)) from None
    if size > MAX_FORM_BYTES:
        raise InputError(f"form: {size} bytes; at most {MAX_FORM_BYTES}")
    return dict(form)
