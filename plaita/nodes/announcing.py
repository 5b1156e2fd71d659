"""When callbacks are told of what (ledger F7): the events of one step, before it and after it.

The same for every place that runs steps: executors, and ``Flow.run``. Owns no callback and no limit of time.
"""

from __future__ import annotations

from typing import Any

from plaita import clock
from plaita.errors import CODE_CANCELLED, FlowCancelledException, ResumeGuardError
from plaita.flow.context import Context
from plaita.flow.definition import NodePlan
from plaita.flow.engine import Action
from plaita.flow.failure import error_info
from plaita.flow.outcome import Advanced, Ended, ErrorInfo, Failed, Outcome, Suspended
from plaita.nodes.callbacks import CallbackEvent, Callbacks, Kind, Report, report_to_stderr
from plaita.nodes.execution import copied


def kinds_before(action: Action, *, first: bool) -> tuple[Kind, ...]:
    """What is told before a step; ``first``: no step of the execution was ever done."""
    if action == "execute":
        return ("flow_start", "node_start") if first else ("node_start",)
    return () if action == "timed_out" else ("flow_resume", "node_resume")


def kinds_after(action: Action, outcome: Outcome) -> tuple[Kind, ...]:
    """What is told after a step. A guard error leaves the execution as it is (ledger S7)."""
    if isinstance(outcome, Suspended):
        return ("node_suspend", "flow_suspend")
    if isinstance(outcome, Failed) and outcome.error.exception == ResumeGuardError.__name__:
        return ("node_end",)
    if action == "cancelled" or isinstance(outcome, Ended):
        return ("node_end", "flow_end")
    if isinstance(outcome, Failed) and not outcome.error.retryable:
        return ("node_end", "flow_end")
    return ("node_end",)


class StepCallbacks:
    """Tells of one step. ``passing``: exceptions of callbacks that are raised, besides StepStopped."""

    def __init__(
        self,
        callbacks: Callbacks,
        context: Context,
        plan: NodePlan,
        *,
        action: Action,
        tenant_id: str,
        version: int | str | None,
        visit: int,
        attempt: int,
        report: Report = report_to_stderr,
        passing: tuple[type[BaseException], ...] = (),
    ) -> None:
        self._callbacks = callbacks
        self._context = context
        self._plan = plan
        self._action = action
        self._tenant_id = tenant_id
        self._version = version
        self._visit = visit
        self._attempt = attempt
        self._report = report
        self._passing = passing

    def before(self, event_data: Any = None) -> None:
        """The step is about to run. Raises StepStopped, and what is ``passing``."""
        for kind in kinds_before(self._action, first=self._context.last_node is None):
            if kind == "flow_start":
                self._tell(kind, input=self._context.input)
            else:
                self._tell(kind, event_data=event_data)

    def after(self, outcome: Outcome) -> None:
        """The step has run. Raises StepStopped, and what is ``passing``."""
        kinds = kinds_after(self._action, outcome)
        for kind in kinds:
            self._tell(kind, **self._told_of(kind, outcome))
        self._callbacks.end_step(self._report, self._passing, flow_ended="flow_end" in kinds)

    def _told_of(self, kind: Kind, outcome: Outcome) -> dict[str, Any]:
        if isinstance(outcome, Suspended):
            # What a service is told may hold a password, and callbacks write down what they see.
            wanted = {name: value for name, value in outcome.subscription.items() if name != "service"}
            return {"result": outcome.result, "subscription": wanted}
        if self._action == "cancelled" and (kind == "flow_end" or isinstance(outcome, Advanced)):
            return {"error": _cancelled(self._plan.node.id)}
        if isinstance(outcome, Failed):
            return {"error": outcome.error}
        if kind == "flow_end":
            return {"output": outcome.output} if isinstance(outcome, Ended) else {}
        next_node = outcome.next_node if isinstance(outcome, Advanced) else None
        return {"result": outcome.result, "next_node": next_node}

    def _tell(self, kind: Kind, **fields: Any) -> None:
        if not self._callbacks.listens(kind):
            return
        context, plan = self._context, self._plan
        event = CallbackEvent(
            kind=kind,
            execution_id=context.execution_id,
            flow_id=context.flow_id,
            version=self._version,
            tenant_id=self._tenant_id,
            node_id=plan.node.id,
            node_type=plan.type,
            node_name=plan.node.name,
            visit=self._visit,
            attempt=self._attempt,
            action=self._action,
            at_ms=clock.wall_ms(),
            **{name: copied(value) for name, value in fields.items()},
        )
        self._callbacks.tell(event, self._report, self._passing)


def _cancelled(node_id: str) -> ErrorInfo:
    text = f"the execution was cancelled while node {node_id!r} waited"
    return error_info(FlowCancelledException(text, code=CODE_CANCELLED, node=node_id), retryable=False)
