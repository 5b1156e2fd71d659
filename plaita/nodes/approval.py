"""``approval``: waits until people have decided (FLOW-FORMAT 2.3, rule 16). Who may decide and when it is decided is
``policy.approval``; the node says what is asked, and what the decision means."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field

from plaita.errors import NodeOutputError, ResumeError
from plaita.flow.expressions import Scope
from plaita.flow.model import Preparation
from plaita.flow.nearest import shown
from plaita.flow.waiting import Service, Subscription
from plaita.nodes.base import EventNode, completed
from plaita.nodes.execution import Execution, copied

MOST_APPROVERS = 1000
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
    """Asks ``approvers`` (a list of names, or an expression that gives one). ``approval_strategy``: ``any`` is decided
    by the first approval, or when nobody can approve any more; ``all`` by the last approval or the first rejection;
    ``majority`` when more than half are of one mind, or cannot be (then it is rejected).

    With ``auto_escalation``, ``escalation_approvers`` may decide too once ``escalation_timeout_hours`` have passed. The
    result has ``approved``, ``final_decision`` and, in ``event_data.approval_details``, who decided what and when.
    """

    node_type: ClassVar[str] = "approval"
    node_name: ClassVar[str] = "Approval"

    event_type: str | None = "approval_decision"
    approval_title: Any
    approval_content: Any
    approval_type: str = "manual"
    approvers: Any
    approval_strategy: Literal["any", "all", "majority"] = "any"
    auto_escalation: bool = False
    escalation_timeout_hours: Any = 24
    escalation_approvers: Any = Field(default_factory=list)
    form_fields: Any = Field(default_factory=list)
    allow_comments: bool = True
    require_comments: bool = False
    notification_config: Any = Field(default_factory=dict)

    def prepare(self, preparation: Preparation) -> None:
        """Compile what may be an expression; a list of approvers is judged at once."""
        super().prepare(preparation)
        for name in _EVALUATED:
            raw = getattr(self, name)
            self._compiled[id(raw)] = (raw, preparation.value(raw, name))
        if isinstance(self.approvers, list) and not self.approvers:
            preparation.problem("approvers", "nobody is named; name those who may decide")
        if self.require_comments and not self.allow_comments:
            preparation.problem("require_comments", "comments are required and not allowed (allow_comments)")

    def execute(self, execution: Execution) -> Any:
        """Ask; the pending result names the approval (``service_config.approval_id``)."""
        scope = execution.scope
        pending = super().execute(execution)
        pending["event_type"] = "approval_decision"
        approval_id = f"approval_{execution.node_id}_{execution.idempotency_key[:12]}"
        pending["node_subtype"] = self.node_type
        pending["service_config"] = {
            "type": self.node_type,
            "node_id": execution.node_id,
            "execution_id": execution.execution_id,
            "flow_id": execution.flow_id,
            "event_type": pending["event_type"],
            "event_filter": pending["event_filter"],
            "approval_id": approval_id,
            "approval_config": {
                "title": self._text("approval_title", scope),
                "content": self._evaluated(self.approval_content, scope),
                "type": self.approval_type,
                "created_time": scope.now_ms,
            },
            "approver_config": {
                "approvers": self._people("approvers", scope, least=1),
                "strategy": self.approval_strategy,
                "auto_escalation": self.auto_escalation,
                "escalation_timeout_hours": self._hours(scope),
                "escalation_approvers": self._people("escalation_approvers", scope, least=int(self.auto_escalation)),
            },
            "form_config": {
                "fields": self._evaluated(self.form_fields, scope),
                "allow_comments": self.allow_comments,
                "require_comments": self.require_comments,
            },
            "notification_config": self._evaluated(self.notification_config, scope),
        }
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
        service = Service(self.node_type, config["approval_id"], copied(config))
        return Subscription(
            wanted.event_type,
            wanted.event_filter,
            wanted.correlation_id,
            wanted.timeout_ms,
            wanted.warnings,
            service,
        )

    def _text(self, field: str, scope: Scope) -> str:
        value = self._evaluated(getattr(self, field), scope)
        if not isinstance(value, str) or not value:
            raise NodeOutputError(f"{field} gives {shown(value)}: a text that is not empty is wanted")
        return value

    def _people(self, field: str, scope: Scope, *, least: int) -> list[str]:
        value = self._evaluated(getattr(self, field), scope)
        names = [value] if isinstance(value, str) and value else value
        if not isinstance(names, list) or not all(isinstance(name, str) and name.strip() for name in names):
            raise NodeOutputError(f"{field} gives {shown(value)}: a list of names is wanted")
        unique = list(dict.fromkeys(names))
        if not least <= len(unique) <= MOST_APPROVERS:
            raise NodeOutputError(f"{field} gives {len(unique)} names; {least} to {MOST_APPROVERS} are wanted")
        return unique

    def _hours(self, scope: Scope) -> float:
        value = self._evaluated(self.escalation_timeout_hours, scope)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e6:
            raise NodeOutputError(f"escalation_timeout_hours gives {shown(value)}: a number of hours is wanted")
        return value
