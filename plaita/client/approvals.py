"""Approvals: who is asked what, and their decisions (FLOW-FORMAT rule 16). The last decision wakes the execution."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from plaita import ids, jsontext
from plaita.client.operations import Operation, ask
from plaita.clock import iso_utc
from plaita.errors import InputError, RefusedError
from plaita.policy import approval
from plaita.policy.approval import Decided, Decision, Terms
from plaita.policy.carrier import resume_payload
from plaita.store import events, tasks
from plaita.store.keys import DEFAULT_TENANT, Keys, check_tenant
from plaita.store.tasks import Decide, Task

TYPE = "approval"
EVENT_TYPE = "approval_decision"
MAX_COMMENT = 4000
MAX_NAME = 200
MAX_FORM_BYTES = 16 * 1024
_TRIES = 20

REFUSALS = {
    "no_approval": "nobody is asked for this approval: it is decided, its time was over, or it never was",
    "not_an_approver": "their word is not asked for here",
    "decided_before": "they have decided already; the first decision stands",
    "comment_missing": "a decision on this needs a comment",
    "no_comments": "comments are not taken here",
    "too_late": "its deadline has passed",
}


def list_approvals(keys: Keys, limit: int = 50) -> Operation[dict[str, Any]]:
    """What is open: ``{"approvals": [...], "total"}``, the oldest first, each as ``show`` has it."""
    check_tenant(keys.tenant)
    if not isinstance(limit, int) or isinstance(limit, bool) or not 1 <= limit <= 10_000:
        raise InputError(f"limit: {limit!r}; a number from 1 to 10000")
    page = yield from ask(tasks.page(keys, TYPE, 0, limit))
    return {"approvals": [_shown(task, page.now) for task in page.tasks], "total": page.total}


def get_approval(keys: Keys, approval_id: str) -> Operation[dict[str, Any]]:
    """One open approval: ``{"approval_id", "title", "content", "approvers", "strategy", "escalated", "decisions",
    "execution_id", "flow_id", "node_id", "created_at", "deadline", "form_fields", ...}``. Refused: ``no_approval``."""
    task, now = yield from _task(keys, approval_id)
    return _shown(task, now)


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

    Raises InputError; RefusedError with a reason of ``REFUSALS``.
    """
    if decision not in ("approve", "reject"):
        raise InputError(f"decision: {decision!r}; approve or reject")
    who = _line(by, "by", MAX_NAME)
    if not who.strip():
        raise InputError("by: who decides is missing")
    said = _line(comment, "comment", MAX_COMMENT)
    nonce = ids.new_nonce()
    for _ in range(_TRIES):
        task, now = yield from _task(keys, approval_id)
        config = jsontext.loads(task.config)
        terms = approval.terms_of(config)
        details = _details(task)
        earlier = [_decided(one) for one in details]
        waits_ms = now - task.since
        refusal = approval.refusal(terms, earlier, who, said, waits_ms)
        if refusal is not None:
            raise _refused(refusal, approval_id, who)
        entry: dict[str, Any] = {"approver_id": who, "decision": decision, "comments": said, "timestamp": now}
        if form is not None:
            entry["form"] = check_form(config, form)
        final = approval.outcome(terms, [*earlier, Decided(who, decision)], waits_ms)
        request = _request(keys, task, [*details, entry], final, nonce, now, family)
        try:
            settled = yield from ask(tasks.decide(keys, request))
        except RefusedError as error:
            if error.reason == "changed":
                continue
            raise _refused("no_approval" if error.reason == "over" else error.reason, approval_id, who) from None
        return {
            "approval_id": task.task_id,
            "execution_id": task.execution_id,
            "decision": decision,
            "settled": settled,
            "final_decision": final,
        }
    raise RefusedError("changed", f"approval {approval_id!r}: others decide at the same time; try again")


def check_form(config: Mapping[str, Any], form: Mapping[str, Any]) -> dict[str, Any]:
    """What was filled in, judged by the form's fields (``name``, ``required``). Raises InputError naming the field."""
    fields = config["form_config"]["fields"]
    known = {str(one["name"]): one for one in fields if isinstance(one, dict) and one.get("name")} if fields else {}
    if not isinstance(form, Mapping):
        raise InputError(f"form: a {type(form).__name__}; an object of field names and values is wanted")
    for name in form:
        if name not in known:
            raise InputError(f"form: there is no field {name!r}; there are {', '.join(known) or 'none'}")
    for name, one in known.items():
        if one.get("required") and form.get(name) in (None, ""):
            raise InputError(f"form: the field {name!r} is required")
    try:
        size = len(jsontext.dumps(dict(form), "form"))
    except jsontext.JSONValueError as error:
        raise InputError(str(error)) from None
    if size > MAX_FORM_BYTES:
        raise InputError(f"form: {size} bytes; at most {MAX_FORM_BYTES}")
    return dict(form)


def _task(keys: Keys, approval_id: str) -> Operation[tuple[Task, int]]:
    check_tenant(keys.tenant)
    wanted = ids.check_id(approval_id, "approval id")
    page = yield from ask(tasks.get(keys, TYPE, wanted))
    if not page.tasks:
        raise _refused("no_approval", approval_id, "")
    return page.tasks[0], page.now


def _request(
    keys: Keys,
    task: Task,
    details: list[dict[str, Any]],
    final: Decision | None,
    nonce: str,
    now: int,
    family: str | None,
) -> Decide:
    tenant = keys.tenant or DEFAULT_TENANT
    event_id = f"{task.task_id}:decided"
    data = None
    if final is not None:
        said = {
            "trigger_type": "approval_completed",
            "approval_id": task.task_id,
            "final_decision": final,
            "approval_details": details,
            "node_id": task.node_id,
            "execution_id": task.execution_id,
            "flow_id": task.flow_id,
            "tenant_id": tenant,
            "timestamp": now,
            "success": True,
        }
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
    return Decide(task, jsontext.dumps(details), data, event_id, nonce, fields)


def _shown(task: Task, now: int) -> dict[str, Any]:
    config = jsontext.loads(task.config)
    terms: Terms = approval.terms_of(config)
    details = _details(task)
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
        "require_comments": terms.require_comments,
        "execution_id": task.execution_id,
        "flow_id": task.flow_id,
        "node_id": task.node_id,
        "created_at": iso_utc(task.since),
        "deadline": iso_utc(task.deadline),
    }


def _details(task: Task) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = jsontext.loads(task.decisions) if task.decisions else []
    return found


def _decided(one: Mapping[str, Any]) -> Decided:
    return Decided(str(one["approver_id"]), "approve" if one["decision"] == "approve" else "reject")


def _refused(reason: str, approval_id: str, by: str) -> RefusedError:
    who = f" by {by!r}" if by else ""
    return RefusedError(reason, f"approval {approval_id!r}{who}: {REFUSALS.get(reason, reason)}")


def _line(value: object, what: str, most: int) -> str:
    if not isinstance(value, str):
        raise InputError(f"{what}: a {type(value).__name__} is no text")
    try:
        jsontext.check(value, what)
    except jsontext.JSONValueError as error:
        raise InputError(str(error)) from None
    if len(value) > most:
        raise InputError(f"{what}: {len(value)} characters; at most {most}")
    return value
