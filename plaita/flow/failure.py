"""Exceptions of node code, turned into text and into the stored error. Whatever was raised, this does not raise.

Owns the codes of FLOW-FORMAT 10 and the verdict ``retryable`` of ledger S9.
"""

from __future__ import annotations

from collections.abc import Iterator

from plaita.errors import (
    CODE_CANCELLED,
    CODE_GENERIC,
    CODE_REQUEST_NOT_BUILT,
    CODE_TIMEOUT,
    ErrorResultException,
    ExpressionError,
    FlowCancelledException,
    FlowErrorType,
    FlowExecutionException,
    FlowResultError,
    FlowTimeoutError,
    NodeException,
    NodeExecutionError,
    NodeOutputError,
    NodeTimeoutError,
    OutputValidationError,
)
from plaita.flow.outcome import ErrorInfo, StepStopped

MAX_MESSAGE_BYTES = 8 * 1024
_CUT = " … (cut)"
_CHAIN = 5
"""How far down the causes are looked at (ledger S9)."""


def clean_text(text: str, limit: int = MAX_MESSAGE_BYTES) -> str:
    """``text`` as valid UTF-8 of at most ``limit`` bytes: lone surrogates and NULs replaced, the rest cut off."""
    # at most `limit` characters can be kept, so a text of many megabytes costs no more than a short one
    data = text[: limit + 1].encode("utf-8", "replace").replace(b"\0", b"?")
    if len(data) <= limit and len(text) <= limit:
        return data.decode("utf-8")
    room = limit - len(_CUT.encode())
    return data[:room].decode("utf-8", "ignore") + _CUT


def class_name(error: BaseException) -> str:
    """The name of the exception's class."""
    return clean_text(str(type.__getattribute__(type(error), "__name__")), 200)


def described(error: BaseException) -> str:
    """``ValueError: bad amount``. An exception whose own text cannot be had is named all the same."""
    name = class_name(error)
    if type(error) is SystemExit:
        return f"SystemExit: the code called sys.exit({_exit_argument(error)})"
    try:
        text = clean_text(str(error))
    except StepStopped:
        raise
    except BaseException as second:  # noqa: BLE001 - str() of a foreign exception runs foreign code
        return f"{name} (its text cannot be read: {class_name(second)})"
    return clean_text(f"{name}: {text}") if text else name


def _exit_argument(error: SystemExit) -> str:
    code = error.code
    return (
        repr(code) if code is None or type(code) is int else clean_text(repr(code) if type(code) is str else "…", 200)
    )


def causes(error: BaseException) -> Iterator[BaseException]:
    """The exception and what it was raised from, at most five, never one twice."""
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and len(seen) < _CHAIN and id(current) not in seen:
        seen.add(id(current))
        yield current
        current = current.__cause__


def is_timeout(error: BaseException) -> bool:
    """Whether this exception itself says that time ran out."""
    return isinstance(error, (TimeoutError, NodeTimeoutError, FlowTimeoutError))


def is_cancellation(error: BaseException) -> bool:
    """Whether this exception itself says that the execution was cancelled."""
    return isinstance(error, FlowCancelledException)


def own_code(error: BaseException) -> int | str | None:
    """The code that the node gave its failure: that of the first exception among the causes whose code is the raiser's
    own, or None."""
    for each in causes(error):
        if isinstance(each, (NodeException, FlowResultError, ErrorResultException)):
            return legal_code(each.code)
    return None


def legal_code(code: object) -> int | str | None:
    """A code as it can be stored: a whole number or text; None for anything else."""
    if isinstance(code, str):
        return clean_text(str(code), 200)
    if isinstance(code, int) and not isinstance(code, bool) and code.bit_length() <= 256:
        return int(code)
    return None


def worth_a_retry(error: BaseException) -> bool:
    """Ledger S9 for an exception of node code: False for a timeout or cancellation anywhere in the chain, code 1001, a
    ValueError that is no output validation, and a result that cannot be stored."""
    chain = list(causes(error))
    if any(is_timeout(each) or is_cancellation(each) for each in chain):
        return False
    if own_code(error) == CODE_REQUEST_NOT_BUILT:
        return False
    cause = chain[0]
    if isinstance(cause, (NodeOutputError, ExpressionError)):
        return False  # the same again: an expression sees only what the checkpoint holds
    return not isinstance(cause, ValueError) or isinstance(cause, OutputValidationError)


def node_failure(
    error: BaseException, *, node: str, label: str, code: int | str | None, message: str | None, line: int | None
) -> NodeExecutionError:
    """The NodeExecutionError for an exception of node code; ``code`` and ``message`` are the author's or None.
    ``label`` names the node in the text (NodePlan)."""
    text = message
    if text is None:
        text = f"{label} failed: {described(error)}" + (f" [line {line}]" if line is not None else "")
    own = own_code(error)
    final = code if code is not None else own if own is not None else CODE_GENERIC
    raised = NodeExecutionError(clean_text(text), code=final, node=node, source_line=line)
    raised.__cause__ = error
    return raised


def error_info(raised: FlowExecutionException, *, retryable: bool) -> ErrorInfo:
    """The stored form of an exception that ended a step."""
    cause = raised.__cause__ if raised.__cause__ is not None else raised
    return ErrorInfo(
        code=raised.code,
        message=clean_text(raised.message),
        error_type=raised.error_type.value,
        node=raised.node,
        failed_node=raised.node,
        exception=class_name(raised),
        cause=class_name(cause),
        retryable=retryable,
    )


def timeout_failure(
    *, node: str, label: str, limit_ms: int | None, flow_is_tighter: bool, error: BaseException | None
) -> NodeTimeoutError:
    """The NodeTimeoutError of a node that ran over ``limit_ms`` (its own, or what the flow had left), or whose code
    raised a TimeoutError itself: ``error``."""
    if limit_ms is not None:
        text = f"NodeTimeoutError: {label} timed out after {limit_ms} ms"
    elif error is not None:
        text = f"NodeTimeoutError: {label} timed out: {described(error)}"
    else:
        text = f"NodeTimeoutError: {label} timed out"
    if flow_is_tighter:
        text += ": the time of the whole flow is spent"
    kind = FlowErrorType.FLOW_ERROR if flow_is_tighter else FlowErrorType.NODE_ERROR
    raised = NodeTimeoutError(clean_text(text), code=CODE_TIMEOUT, error_type=kind, node=node)
    raised.__cause__ = error
    return raised


def error_result(error: FlowResultError, *, node: str) -> ErrorResultException:
    """The ErrorResultException of an end node's error (or of node code that raised one)."""
    code = legal_code(error.code)
    text = error.message if type(error.message) is str else described(error)
    raised = ErrorResultException(clean_text(text), code=CODE_GENERIC if code is None else code, node=node)
    raised.__cause__ = error
    return raised


def cancelled_failure(error: BaseException, *, node: str) -> FlowCancelledException:
    """The FlowCancelledException with the node named."""
    raised = FlowCancelledException(clean_text(described(error)), code=CODE_CANCELLED, node=node)
    raised.__cause__ = error
    return raised
