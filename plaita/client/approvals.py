"""Approvals: who is asked what, and their decisions (FLOW-FORMAT rule 16). The last decision wakes the execution."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from plaita import ids, jsontext
from plaita.client.operations import Operation, ask, check_text
from plaita.clock import iso_utc
from plaita.errors import InputError, RefusedError
from plaita.policy import approval
from plaita.policy.approval import Decision, NotTaken, Taken
from plaita.policy.carrier import resume_payload
from plaita.store import events, tasks
from plaita.store.keys import DEFAULT_TENANT, Keys, check_tenant
from plaita.store.tasks import Decide, Task

TYPE = "approval"
EVENT_TYPE = "approval_decision"
MAX_COMMENT = 4000
MAX_NAME = 200
MAX_ID = 400
_TRIES = 20
_PAGE = 16  # a configuration has at most 256 KiB, a call at most 4 MiB (DECISIONS 16)

REFUSALS = {
    "no_approval": "nobody is asked for this approval: it is decided, its time was over, or it never was",
    "not_an_approver": "their word is not asked for here",
    "decided_before": "they have decided already; the first decision stands",
    "comment_missing": "a decision on this needs a comment",
    "no_comments": "comments are not taken here",
    "too_late": "its deadline has passed",
    "too_large": "there is no room left for a comment or a form; decide without",
    "cancelled": "the execution is being cancelled; nothing was changed",
    "unreadable": "what it asks was not written by an approval node; nothing was changed",
}


def list_approvals(keys: Keys, limit: int = 50) -> Operation[dict[str, Any]]:
    """What is open: ``{"approvals": [...], "total"}``, the oldest first, each as ``show`` has it. One that cannot be
    read has ``problem`` instead of what it asks."""
    check_tenant(keys.tenant)
    if not isinstance(limit, int) or isinstance(limit, bool) or not 1 <= limit <= 10_000:
        raise InputError(f"limit: {limit!r}; a number from 1 to 10000")
    found: dict[str, dict[str, Any]] = {}
    first, total = 0, None
    while len(found) < limit:
        page = yield from ask(tasks.page(keys, TYPE, first, min(_PAGE, limit)))
        if total is not None and page.total < total:  # some have ended meanwhile: the others have moved up
            first, total = max(0, first - (total - page.total)), page.total
            continue
        total = page.total
        for task in page.tasks:
            found[task.task_id] = _listed(task, page.now)
        first += min(_PAGE, limit)
        if first >= total:
            break
    return {"approvals": list(found.values())[:limit], "total": total or 0}


def get_approval(keys: Keys, approval_id: str) -> Operation[dict[str, Any]]:
    """One open approval: ``{"approval_id", "title", "content", "approvers", "strategy", "escalated", "decisions",
    "execution_id", "flow_id", "node_id", "created_at", "deadline", "form_fields", ...}``. Changes nothing.

    Refused: ``no_approval``, ``unreadable``."""
    task, now = yield from _task(keys, approval_id)
    try:
        return _shown(task, now)
    except _UNREADABLE:
        raise refused("unreadable", approval_id, "") from None


def decide(
    keys: Keys,
    approval_id: str,
    decision: Decision,
    by: str,
    comment: str = "",
    form: Mapping[str, Any] | None = None,
    family: str | None = None,
) -> Operation[dict[str, Any]]:
    """Say ``approve`` or ``reject`` as ``by``: ``{"approval_id", "execution_id", "decision", "settled",
    "final_decision"}``. Decisions of several people at once are taken one after another; each person has one.

    Raises InputError; RefusedError with a reason of ``REFUSALS``, or ``changed``: too many decide at once.
    """
    if decision not in ("approve", "reject"):
        raise InputError(f"decision: {decision!r}; approve or reject")
    who, said = checked(by, comment)
    nonce = ids.new_nonce()
    for _ in range(_TRIES):
        task, now = yield from _task(keys, approval_id)
        taken = _taken(task, who, decision, said, form, now, nonce)
        try:
            settled = yield from ask(tasks.decide(keys, _request(keys, task, taken, nonce, now, family)))
        except RefusedError as error:
            if error.reason == "changed":
                continue
            raise refused("no_approval" if error.reason == "over" else error.reason, approval_id, who) from None
        return {
            "approval_id": task.task_id,
            "execution_id": task.execution_id,
            "decision": decision,
            "settled": settled,
            "final_decision": taken.final,
        }
    raise RefusedError("changed", f"approval {approval_id!r}: others decide at the same time; try again")


_UNREADABLE = (KeyError, TypeError, ValueError, AttributeError)
"""What reading a configuration raises that no approval node made."""


def _taken(
    task: Task, who: str, decision: Decision, said: str, form: Mapping[str, Any] | None, now: int, nonce: str
) -> Taken:
    try:
        config, details = jsontext.loads(task.config), _details(task)
        approval.terms_of(config)
        approval.form_fields(config)
        approval.event_data(config, decision, (), "", now)  # what a decision that settles it needs
        for one in details:
            approval.decided(one)
    except _UNREADABLE:
        raise refused("unreadable", task.task_id, who) from None
    try:
        return approval.taken(
            config, details, who, decision, comment=said, form=form, since=task.since, now=now, nonce=nonce
        )
    except NotTaken as why:
        raise refused(why.reason, task.task_id, who) from None


def _task(keys: Keys, approval_id: str) -> Operation[tuple[Task, int]]:
    check_tenant(keys.tenant)
    wanted = check_text(approval_id, "approval id", MAX_ID)
    if not wanted:
        raise InputError("approval id: it is missing")
    page = yield from ask(tasks.get(keys, TYPE, wanted))
    if not page.tasks:
        raise refused("no_approval", approval_id, "")
    return page.tasks[0], page.now


def _request(keys: Keys, task: Task, taken: Taken, nonce: str, now: int, family: str | None) -> Decide:
    tenant = keys.tenant or DEFAULT_TENANT
    event_id = f"{task.task_id}:decided"
    data = None
    if taken.final is not None:
        said = approval.event_data(jsontext.loads(task.config), taken.final, taken.details, tenant, now)
        data = events.told(event_id, EVENT_TYPE, jsontext.dumps(said))
    payload = resume_payload(
        execution_id=task.execution_id,
        flow_id=task.flow_id or None,
        resume_type="event",
        tenant_id=tenant,
        timestamp=iso_utc(now) or "",
        wait=task.wait,
    )
    fields: list[tuple[str, bytes | str]] = [
        ("payload", payload),
        ("schema_version", "1"),
        ("execution_id", task.execution_id),
        ("tenant_id", tenant),
    ]
    if family is not None:
        fields.append(("config_family", family))
    return Decide(task, jsontext.dumps(taken.details), data, event_id, nonce, fields)


def _listed(task: Task, now: int) -> dict[str, Any]:
    try:
        return _shown(task, now)
    except _UNREADABLE:
        return {
            "approval_id": task.task_id,
            "execution_id": task.execution_id,
            "flow_id": task.flow_id,
            "node_id": task.node_id,
            "created_at": iso_utc(task.since),
            "deadline": iso_utc(task.deadline),
            "problem": REFUSALS["unreadable"],
        }


def _shown(task: Task, now: int) -> dict[str, Any]:
    config = jsontext.loads(task.config)
    terms = approval.terms_of(config)
    details = approval.shown(_details(task))
    decided = {one["approver_id"] for one in details}
    waits_ms = now - task.since
    return {
        "approval_id": task.task_id,
        "title": config["approval_config"]["title"],
        "content": config["approval_config"]["content"],
        "type": config["approval_config"]["type"],
        "approvers": list(terms.approvers),
        "strategy": terms.strategy,
        "escalated": approval.escalated(terms, waits_ms),
        "escalation_approvers": list(terms.escalation_approvers),
        "undecided": [name for name in approval.may_decide(terms, waits_ms) if name not in decided],
        "decisions": details,
        "form_fields": config["form_config"]["fields"],
        "allow_comments": terms.allow_comments,
        "require_comments": terms.require_comments,
        "notification_config": config["notification_config"],
        "execution_id": task.execution_id,
        "flow_id": task.flow_id,
        "node_id": task.node_id,
        "created_at": iso_utc(task.since),
        "deadline": iso_utc(task.deadline),
    }


def _details(task: Task) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = jsontext.loads(task.decisions) if task.decisions else []
    return found


def refused(reason: str, approval_id: str, by: str) -> RefusedError:
    """A refusal in words."""
    who = f" by {by!r}" if by else ""
    return RefusedError(reason, f"approval {approval_id!r}{who}: {REFUSALS.get(reason, reason)}")


def checked(by: object, comment: object) -> tuple[str, str]:
    """Who decides, as names are compared, and what they say. Raises InputError."""
    who = ids.person(check_text(by, "by", MAX_NAME))
    if not who:
        raise InputError("by: who decides is missing")
    return who, check_text(comment, "comment", MAX_COMMENT)
