"""``approval``: waits until people have decided (FLOW-FORMAT 2.3, rule 16). Who may decide and when it is decided is
``policy.approval``; the node says what is asked, and what the decision means."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar, Literal

from pydantic import Field

from plaita import ids, jsontext
from plaita.errors import NodeOutputError, ResumeError
from plaita.flow.expressions import Scope
from plaita.flow.model import Preparation
from plaita.flow.nearest import shown
from plaita.flow.waiting import Service, Subscription
from plaita.nodes.base import EventNode, completed, with_service
from plaita.nodes.execution import Execution, copied

SERVICE = "approval"
MOST_APPROVERS = 1000
MAX_NAME = 200
MAX_CONFIG_BYTES = 256 * 1024
DEFAULT_HOURS = 24
MOST_HOURS = 100 * 366 * 24
_EVALUATED = (
    "approval_title",
    "approval_content",
    "approvers",
    "escalation_approvers",
    "escalation_timeout_hours",
    "form_fields",
    "notification_config",
)


class ApprovalNode(EventNode):
    """Asks ``approvers`` (a list of names, or an expression that gives one; a single text is one name).
    ``approval_strategy``: ``any`` is decided by the first approval, or when nobody can approve any more; ``all`` by the
    last approval or the first rejection; ``majority`` when more than half are of one mind, or cannot be (rejected).

    With ``auto_escalation``, ``escalation_approvers`` may decide too once ``escalation_timeout_hours`` have passed. The
    result has ``approved``, ``final_decision`` and, in ``event_data.approval_details``, who decided what and when.
    """

    node_type: ClassVar[str] = "approval"
    node_name: ClassVar[str] = "Approval"
    _awaited: ClassVar[str] = "decision"

    event_type: str | None = "approval_decision"
    approval_title: Any
    approval_content: Any
    approval_type: str = "manual"
    approvers: Any
    approval_strategy: Literal["any", "all", "majority"] = "any"
    auto_escalation: bool = False
    escalation_timeout_hours: Any = DEFAULT_HOURS
    escalation_approvers: Any = Field(default_factory=list)
    form_fields: Any = Field(default_factory=list)
    allow_comments: bool = True
    require_comments: bool = False
    notification_config: Any = Field(default_factory=dict)

    def prepare(self, preparation: Preparation) -> None:
        """Compile what may be an expression, and judge at once what is none."""
        super().prepare(preparation)
        self._compile(preparation, _EVALUATED)
        checks: dict[str, Callable[[Any], object]] = {
            "approval_title": lambda raw: _text("approval_title", raw),
            "approvers": lambda raw: _people("approvers", raw, least=1),
            "escalation_approvers": lambda raw: _people("escalation_approvers", raw, least=int(self.auto_escalation)),
            "escalation_timeout_hours": _hours,
            "form_fields": _fields,
        }
        self._judge_written(preparation, checks)
        if self.require_comments and not self.allow_comments:
            preparation.problem("require_comments", "comments are required and not allowed (allow_comments)")

    def execute(self, execution: Execution) -> Any:
        """Ask; the pending result names the approval (``service_config.approval_id``)."""
        scope = execution.scope
        given = {name: self._evaluated(getattr(self, name), scope) for name in _EVALUATED}
        pending = super().execute(execution)
        pending["event_type"] = "approval_decision"
        approval_id = f"approval_{execution.node_id}_{execution.idempotency_key[:16]}"
        with_service(
            self,
            pending,
            execution,
            approval_id=approval_id,
            approval_config={
                "title": _text("approval_title", self._title(given["approval_title"])),
                "content": given["approval_content"],
                "type": self.approval_type,
                "created_time": scope.now_ms,
            },
            approver_config={
                "approvers": _people("approvers", given["approvers"], least=1),
                "strategy": self.approval_strategy,
                "auto_escalation": self.auto_escalation,
                "escalation_timeout_hours": _hours(given["escalation_timeout_hours"]),
                "escalation_approvers": _people(
                    "escalation_approvers", given["escalation_approvers"], least=int(self.auto_escalation)
                ),
            },
            form_config={
                "fields": _fields(given["form_fields"]),
                "allow_comments": self.allow_comments,
                "require_comments": self.require_comments,
            },
            notification_config=given["notification_config"],
        )
        size = len(jsontext.dumps(pending["service_config"], "service_config"))
        if size > MAX_CONFIG_BYTES:
            raise NodeOutputError(
                f"approval_content and what else is asked have {size} bytes of JSON text; the limit is "
                f"{MAX_CONFIG_BYTES}: put it elsewhere and say where"
            )
        return pending

    def on_event(self, execution: Execution, event_data: Any) -> Any:
        """The decision. Raises ResumeError for data that holds none."""
        result = completed(execution.pending, event_data)
        data = result["event_data"]
        decision = data.get("final_decision") if isinstance(data, dict) else None
        if decision not in ("approve", "reject"):
            raise ResumeError(
                f"final_decision: {shown(decision)} is none; approve or reject is wanted", node=execution.node_id
            )
        return {**result, "approved": decision == "approve", "final_decision": decision}

    def _subscription(self, pending: Any, scope: Scope) -> Subscription:
        wanted = super()._subscription(pending, scope)
        config = pending["service_config"]
        service = Service(SERVICE, config["approval_id"], copied(config))  # also of a subclass under another name
        return replace(wanted, warnings=(*wanted.warnings, *self._warnings_of(scope)), service=service)

    def _title(self, value: Any) -> Any:
        """An expression that gives nothing counts as it is written: a question needs some title."""
        return self.approval_title if value is None else value

    def _warnings_of(self, scope: Scope) -> tuple[str, ...]:
        if self._evaluated(self.approval_title, scope) is None:
            return (f"approval_title {shown(self.approval_title)} gives nothing: it is shown as it is written",)
        return ()


def _text(field: str, value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise NodeOutputError(f"{field} gives {shown(value)}: a text that is not empty is wanted")
    return value


def _people(field: str, value: Any, *, least: int) -> list[str]:
    """Each once, as ``ids.person`` compares them."""
    if value is None and not least:
        return []
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list) or not all(isinstance(name, str) and ids.person(name) for name in names):
        raise NodeOutputError(f"{field} gives {shown(value)}: a list of names is wanted, none of them empty")
    unique = list(dict.fromkeys(ids.person(name) for name in names))
    too_long = next((name for name in unique if len(name) > MAX_NAME), None)
    if too_long is not None:
        raise NodeOutputError(f"{field}: the name {shown(too_long)} has {len(too_long)} characters; at most {MAX_NAME}")
    if not least <= len(unique) <= MOST_APPROVERS:
        raise NodeOutputError(f"{field} gives {len(unique)} names; {least} to {MOST_APPROVERS} are wanted")
    return unique


def _hours(value: Any) -> int | float:
    if value is None:
        return DEFAULT_HOURS
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= MOST_HOURS:
        raise NodeOutputError(
            f"escalation_timeout_hours gives {shown(value)}: a number of hours from 0 to {MOST_HOURS} is wanted"
        )
    return value


def _fields(value: Any) -> list[dict[str, Any]]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise NodeOutputError(f"form_fields gives {shown(value)}: a list of objects with a name is wanted")
    for at, field in enumerate(value):
        name = field.get("name") if isinstance(field, dict) else None
        if not isinstance(name, str) or not name:
            raise NodeOutputError(f"form_fields[{at}]: {shown(field)} is no object with a name")
        if not isinstance(field.get("required", False), bool):
            raise NodeOutputError(f"form_fields[{at}].required: {shown(field['required'])}; true or false is wanted")
    return value
