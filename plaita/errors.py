"""Every named error of plaita, in one place.

Two families. *Flow errors* describe what happened to an execution: their ``code`` and
``error_type`` end up in its row. *Operational errors* tell the caller of an API what to do:
fix the input, wait and try again, or leave the execution alone.

This module imports nothing of plaita's.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

CODE_TIMEOUT = -1
CODE_CANCELLED = -4
CODE_GENERIC = -500
CODE_REQUEST_NOT_BUILT = 1001
CODE_NO_RESPONSE = 1002
CODE_PROCESSING = 1003


class FlowErrorType(str, Enum):
    """The ``error_type`` values that an execution's ``error`` can carry."""

    NODE_ERROR = "node_error"
    FLOW_ERROR = "flow_error"
    ERROR_RESULT = "error_result"
    INVALID_CALLBACK = "invalid_callback"
    EXECUTION_NOT_FOUND = "execution_not_found"
    NODE_NOT_FOUND = "node_not_found"
    INVALID_NODE_TYPE = "invalid_node_type"
    EXECUTION_TIMEOUT = "execution_timeout"
    CALLBACK_TIMEOUT = "callback_timeout"


class PlaitaError(Exception):
    """Root of all errors that plaita raises on purpose."""


# -- flow errors ------------------------------------------------------------------------------


class FlowResultError(RuntimeError, PlaitaError):
    """An ``end`` node of result type ``error``: the author's own ``code`` and ``message``."""

    def __init__(self, code: int | str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class NodeException(RuntimeError, PlaitaError):
    """Raised by node code that wants to give its failure a ``code`` of its own."""

    def __init__(self, code: int | str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class FlowExecutionException(PlaitaError):
    """An execution cannot go on. ``node`` is the id of the node it happened at, or None."""

    default_code: int | str = CODE_GENERIC
    default_type = FlowErrorType.FLOW_ERROR

    def __init__(
        self,
        message: str,
        *,
        code: int | str | None = None,
        error_type: FlowErrorType | None = None,
        node: str | None = None,
        source_line: int | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = self.default_code if code is None else code
        self.error_type = error_type or self.default_type
        self.node = node
        self.source_line = source_line


class NodeNotFoundError(FlowExecutionException):
    """A ``next``, branch target or start that names no node of the flow."""

    default_type = FlowErrorType.NODE_NOT_FOUND


class FlowStartMissingError(NodeNotFoundError):
    """The flow has no node to begin with."""


class NodeExecutionError(FlowExecutionException):
    """A node failed and its error handler says ``abort``. The cause is in ``__cause__``."""

    default_type = FlowErrorType.NODE_ERROR


class NodeTimeoutError(FlowExecutionException):
    """A node ran over its time. ``error_type`` is FLOW_ERROR when the flow's budget was the tighter limit."""

    default_code = CODE_TIMEOUT
    default_type = FlowErrorType.NODE_ERROR


class FlowTimeoutError(FlowExecutionException):
    """The flow's own time budget is spent."""

    default_code = CODE_TIMEOUT


class FlowErrorException(FlowExecutionException):
    """Wrapper around an exception that is none of plaita's; the original is in ``__cause__``."""


class FlowCancelledException(FlowExecutionException):
    """The execution was cancelled."""

    default_code = CODE_CANCELLED


class ErrorResultException(FlowExecutionException):
    """The flow reached an ``end`` node of result type ``error``; ``code`` is the author's."""

    default_type = FlowErrorType.ERROR_RESULT


class FlowWaitsError(FlowExecutionException):
    """A flow that runs in this process came to a node that waits for an event: only a supervisor can wait.

    ``node`` is that node; ``subscription`` says what it waits for: ``{"event_type", "event_filter", "correlation_id",
    "timeout_ms"}``.
    """

    def __init__(self, message: str, *, node: str, subscription: dict[str, object]) -> None:
        super().__init__(message, node=node)
        self.subscription = subscription


class ResumeError(FlowExecutionException):
    """A node's own resume failed, or the event data does not fit it."""

    default_type = FlowErrorType.NODE_ERROR


class ResumeGuardError(ResumeError):
    """A resume does not fit the state of the execution, which must stay as it was (ledger S7)."""


class ExpressionError(PlaitaError):
    """An expression cannot be parsed or evaluated. The message names the expression."""


class OutputValidationError(ValueError, PlaitaError):
    """A result does not match the ``outputType`` its author declared. Worth a retry (ledger S9)."""


class NodeOutputError(ValueError, PlaitaError):
    """A node's result cannot be stored: JSON cannot carry it exactly, or it is over the size limit."""


class ExecutorDiedError(FlowExecutionException):
    """The executor process died under the node, as often as ``max_deliveries`` allows (DECISIONS 7)."""

    default_type = FlowErrorType.NODE_ERROR


# -- definitions ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Problem:
    """One fault of a definition: where (``nodes[3].branches[0].next``) and what, with what would be right."""

    place: str
    reason: str

    def __str__(self) -> str:
        return f"{self.place}: {self.reason}" if self.place else self.reason


class FlowDefinitionError(PlaitaError):
    """A flow definition is refused. ``problems`` lists every fault found, at least one."""

    def __init__(self, problems: Iterable[Problem], *, source: str = "") -> None:
        self.problems: tuple[Problem, ...] = tuple(problems)
        self.source = source
        super().__init__("; ".join(str(p) for p in self.problems) or "the flow is not valid")


# -- operational errors -------------------------------------------------------------------------


class InputError(PlaitaError):
    """Bad input of a caller: names the field, the value and what would be right. CLI exit code 2."""


class ConfigError(InputError):
    """Settings that stop a start. ``faults`` lists all of them together (ledger C1). Exit code 78 in the daemon."""

    def __init__(self, faults: Iterable[str]) -> None:
        self.faults: tuple[str, ...] = tuple(faults)
        super().__init__("; ".join(self.faults))


class RefusedError(PlaitaError):
    """The store understood the request and refused it. ``reason`` is a stable word. CLI exit code 1."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class UnreachableError(PlaitaError):
    """Redis or a supervisor's socket cannot be reached. CLI exit code 3."""


class WaitTimeoutError(PlaitaError):
    """What was waited for did not happen in time. CLI exit code 4."""


class ExecutionLeaseError(PlaitaError):
    """The lease of an execution is another's, or no longer ours: nothing may be written (ledger L1-L3)."""


class StatePersistError(PlaitaError):
    """A row could not be saved: no ack, the carrier is delivered again (ledger F2)."""


class ExecutionStateLoadError(PlaitaError):
    """A row could not be loaded: no ack, the carrier is delivered again (ledger F2)."""


class WrongKeyTypeError(StatePersistError, ExecutionStateLoadError):
    """Something else than an execution stands at its key: it is named and never overwritten (DECISIONS 16)."""


class ExecutionDeletedError(ExecutionLeaseError):
    """The execution was deleted: nothing brings it back (ledger D1, D2)."""


class ExecutionIdConflictError(PlaitaError):
    """An execution id already belongs to another flow (ledger F8)."""


class ResumeProtocolError(PlaitaError):
    """A resume that does not fit the row: acked, the row untouched (ledger S6, S7)."""


class TenantContextMissingError(PlaitaError):
    """A write of a tenant's data where no tenant was ever set: nothing goes to ``default`` by mistake (ledger T1).

    ``site`` is what wanted to write, as in ``credentials.save``.
    """

    def __init__(self, site: str) -> None:
        super().__init__(
            f"{site}: no tenant is set here; call plaita.tenancy.set_current_tenant first, or hand it over to this "
            "thread or process with plaita.tenancy.carried"
        )
        self.site = site

    def __reduce__(self) -> tuple[type[TenantContextMissingError], tuple[str]]:
        return type(self), (self.site,)


class FrameError(PlaitaError):
    """Bytes on a pipe that are no frame of ours: the peer is not to be trusted any more."""
