"""What one step can come to: plain records. Owns no behaviour but their JSON form."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from plaita.errors import FlowErrorType, FlowExecutionException


class StepStopped(BaseException):
    """The supervisor asked this step to stop. Passes through the engine untouched: no handler of the flow sees it."""


def asks_to_stop(error: BaseException) -> bool:
    """Whether an exception is a request to stop, or a group (from a task group) that hides one."""
    if isinstance(error, BaseExceptionGroup):
        return error.subgroup(StepStopped) is not None
    return isinstance(error, StepStopped)


@dataclass(frozen=True, slots=True)
class ErrorInfo:
    """Why an execution cannot go on, as it is stored.

    ``code``: FLOW-FORMAT 10. ``exception``: class name of the plaita error. ``cause``: class name of the first cause
    below it (its own name if none). ``retryable``: ledger S9. ``message`` is at most 8 KiB of valid UTF-8.
    """

    code: int | str
    message: str
    error_type: str
    node: str | None
    failed_node: str | None
    exception: str
    cause: str
    retryable: bool

    def to_json(self) -> dict[str, Any]:
        """A JSON object with the fields of the same names."""
        return {
            "code": self.code,
            "message": self.message,
            "error_type": self.error_type,
            "node": self.node,
            "failed_node": self.failed_node,
            "exception": self.exception,
            "cause": self.cause,
            "retryable": self.retryable,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> ErrorInfo:
        """The inverse of :meth:`to_json`; missing fields take the value that promises least."""
        return cls(
            code=data.get("code", -500),
            message=str(data.get("message", "")),
            error_type=str(data.get("error_type", FlowErrorType.FLOW_ERROR.value)),
            node=data.get("node"),
            failed_node=data.get("failed_node"),
            exception=str(data.get("exception", "FlowExecutionException")),
            cause=str(data.get("cause", data.get("exception", "FlowExecutionException"))),
            retryable=bool(data.get("retryable", False)),
        )


@dataclass(frozen=True, slots=True)
class Advanced:
    """The node is done and another follows.

    ``result_json`` is the JSON text of ``result``; ``state_json`` holds what node code stored with ``set_state`` in
    this step. ``branch`` is the chosen target of a branching node. ``warnings`` are for the log.
    """

    node_id: str
    result: Any
    next_node: str
    branch: str | None
    attempts: int
    result_json: bytes
    state_json: dict[str, bytes] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Ended:
    """The flow is done. ``output`` is what it returns; ``output_json`` its text (the same object as ``result_json``
    where an ``end`` node gave it)."""

    node_id: str
    result: Any
    output: Any
    attempts: int
    result_json: bytes
    output_json: bytes
    state_json: dict[str, bytes] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Failed:
    """The execution cannot go on from here. ``raised`` is the same as an exception, causes attached, for callers in
    the same process; it is not stored. What node code stored with ``set_state`` in this step is dropped."""

    node_id: str
    error: ErrorInfo
    attempts: int
    raised: FlowExecutionException


@dataclass(frozen=True, slots=True)
class Suspended:
    """The node waits. ``result`` is what it has so far; ``subscription`` says what for: ``Subscription.to_json`` of
    ``plaita.flow.waiting``."""

    node_id: str
    result: Any
    subscription: dict[str, Any]
    attempts: int
    result_json: bytes
    state_json: dict[str, bytes] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


Outcome = Advanced | Ended | Failed | Suspended
