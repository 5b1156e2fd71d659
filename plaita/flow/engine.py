"""One step of a flow: run a node's code through the caller, apply its handlers, find what follows.

Owns the semantics of FLOW-FORMAT 1.5 and 1.7 and ledger F4, S9. It holds no thread, clock or process: the caller runs
the code (``call``), measures time and enforces limits; the engine only judges what came back.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal, cast

from plaita import jsontext
from plaita.errors import (
    FlowExecutionException,
    FlowResultError,
    FlowTimeoutError,
    InputError,
    NodeNotFoundError,
    NodeOutputError,
    NodeTimeoutError,
    ResumeGuardError,
)
from plaita.flow import failure
from plaita.flow.basenode import BaseNode, ErrorHandler
from plaita.flow.context import Context
from plaita.flow.definition import FlowDefinition, NodePlan
from plaita.flow.graph import canonical_id
from plaita.flow.nearest import shown
from plaita.flow.outcome import Advanced, Ended, Failed, Outcome, StepStopped, Suspended, asks_to_stop
from plaita.flow.waiting import Subscription, Suspending, WakeKind, Woken, earlier

Action = Literal["execute", "timed_out", "event", "timeout", "cancelled"]
_PLAIN = (str, int, float, bool, type(None))


def run_step(
    flow: FlowDefinition,
    context: Context,
    node_id: str,
    *,
    call: Callable[[BaseNode], Any],
    now_ms: int,
    action: Action = "execute",
    time_left_ms: int | None = None,
    event: Any = None,
) -> Outcome:
    """Run the node ``node_id`` once, with its retries and handlers, and record its result in ``context``.

    ``call(node)`` runs the node's code and gives its result or raises anything; which method that is,
    ``context.woken`` tells (``plaita.nodes.entry``). Who calls with a limit raises NodeTimeoutError from it when
    :func:`time_limit` has passed since the step began, also at the entry of a further attempt: all attempts share one
    budget. ``now_ms`` is the step's start in epoch milliseconds. ``time_left_ms`` is what remained of the flow's
    timeout when the step began.

    ``action``: ``execute`` runs the node; one that waits gives Suspended. ``event`` (with the event's data, a JSON
    value), ``timeout`` and ``cancelled`` go on from the end of its wait. Retries and handlers apply to the first two
    as to ``execute``; a cancelled wait runs the node's code once, whatever it raises is a Failed for the log, and
    nothing is recorded. ``timed_out`` runs nothing: the caller has already killed what ran.

    Never raises for reasons of the flow or its nodes; StepStopped from ``call`` passes through, the context unchanged.
    """
    plan = flow.plans.get(node_id)
    if plan is None:
        error = NodeNotFoundError(f"no node has the id {shown(node_id)}", node=node_id)
        return _failed(context, node_id, error, 0)
    context.now_ms = now_ms
    context.woken = None
    if action == "timed_out":
        return _timed_out(flow, context, plan, None, 1, time_left_ms)
    if action != "execute":
        refused = _resumed(context, plan, action, event)
        if refused is not None:
            return refused
        if action == "cancelled":
            return _cancelled(context, plan, call)
    if time_left_ms is not None and time_left_ms <= 0:
        not_run = "begun" if action == "execute" else "gone on with"
        spent = FlowTimeoutError(f"the time of the flow is spent; node {node_id!r} was not {not_run}", node=node_id)
        return _failed(context, node_id, spent, 0)
    if node_id == flow.start and flow.input_type is not None and context.last_node is None:
        refused = _refused_input(flow, context, node_id)
        if refused is not None:
            return refused
    return _attempt(flow, context, plan, call, time_left_ms)


def time_limit(plan: NodePlan, time_left_ms: int | None, *, after_wait: bool = False) -> tuple[int | None, bool]:
    """(milliseconds this step may take or None, whether the flow's limit is the tighter one). ``after_wait``: the
    node's own timeout was for its wait (DECISIONS 19), so only the flow's limit holds."""
    own = None if after_wait else plan.timeout_ms
    if time_left_ms is None:
        return own, False
    if own is None or time_left_ms < own:
        return time_left_ms, True
    return own, False


def _refused_input(flow: FlowDefinition, context: Context, node_id: str) -> Failed | None:
    mismatch = flow.input_mismatch(context.input)
    if mismatch is None:
        return None
    error = FlowExecutionException(f"the input does not fit inputType: {mismatch}", node=node_id)
    error.__cause__ = InputError(mismatch)
    return _failed(context, node_id, error, 0)


def _resumed(context: Context, plan: NodePlan, kind: WakeKind, data: Any) -> Failed | None:
    """Note how the wait ended, or refuse where none is (ledger S7)."""
    node_id = plan.node.id
    if not plan.suspending:
        error = ResumeGuardError(f"{plan.label} is of type {plan.type!r}, which waits for nothing", node=node_id)
        return _failed(context, node_id, error, 0)
    if node_id not in context.results:
        error = ResumeGuardError(f"{plan.label} is not waiting: nothing is pending there", node=node_id)
        return _failed(context, node_id, error, 0)
    context.woken = Woken(kind, data)
    return None


def _cancelled(context: Context, plan: NodePlan, call: Callable[[BaseNode], Any]) -> Outcome:
    """The node's own undoing of what it began. Its result is nobody's; what it stores is dropped."""
    node = plan.node
    try:
        call(node)
    except StepStopped:
        raise
    except BaseException as error:  # the execution is cancelled all the same
        if asks_to_stop(error):
            raise StepStopped from error
        raised = failure.node_failure(error, node=node.id, label=plan.label, code=None, message=None, line=None)
        return _failed(context, node.id, raised, 1)
    finally:
        context.discard_state()
    return Advanced(node.id, None, plan.next_node or node.id, None, 1, b"null")


def _attempt(
    flow: FlowDefinition,
    context: Context,
    plan: NodePlan,
    call: Callable[[BaseNode], Any],
    time_left_ms: int | None,
) -> Outcome:
    last_error: BaseException | None = None
    begins_wait = plan.suspending and context.woken is None
    subscription: Subscription | None = None
    for attempt in range(1, plan.attempts + 1):
        try:
            result = call(plan.node)
            result, result_json = _stored_form(result, flow.limits.node_output)
            if begins_wait:
                subscription = cast(Suspending, plan.node)._subscription(result, context.scope(context.now_ms))
                if flow.timeout_includes_waits and time_left_ms is not None:
                    subscription = replace(subscription, timeout_ms=earlier(subscription.timeout_ms, time_left_ms))
        except StepStopped:
            context.discard_state()
            raise
        except BaseException as error:  # sys.exit and the like in node code are the node's failure
            context.discard_state()
            if asks_to_stop(error):
                raise StepStopped from error
            final = _without_retry(flow, context, plan, error, attempt, time_left_ms)
            if final is not None:
                return final
            last_error = error
        else:
            if subscription is not None:
                return _suspended(flow, context, plan, result, result_json, attempt, subscription)
            return _succeeded(flow, context, plan, result, result_json, attempt, ())
    assert last_error is not None
    return _gave_up(flow, context, plan, last_error)


def _stored_form(result: Any, limit: int) -> tuple[Any, bytes]:
    """The result as the store will give it back, with its JSON text. Raises NodeOutputError.

    Lists and objects are read back from their text, so that a node which keeps and changes what it returned, or
    returned a subclass or a tuple, cannot make this process see something else than the next one.
    """
    if result is None:
        return None, b"null"
    try:
        text = jsontext.dumps(result)
        if len(text) <= limit:
            return (result if type(result) in _PLAIN else jsontext.loads(text)), text
    except jsontext.JSONValueError as error:
        raise NodeOutputError(f"the result cannot be stored: {error}") from error
    except StepStopped:
        raise
    except BaseException as error:  # methods of foreign subclasses of dict, list and str run here
        raise NodeOutputError(f"the result cannot be stored: {failure.described(error)}") from error
    raise NodeOutputError(f"the result has {len(text)} bytes of JSON text; the limit is {limit}")


# -- failures ---------------------------------------------------------------------------------------


def _without_retry(
    flow: FlowDefinition,
    context: Context,
    plan: NodePlan,
    error: BaseException,
    attempt: int,
    time_left_ms: int | None,
) -> Outcome | None:
    """What ends the step whatever the retries say: an error result, a cancellation, a timeout; else None."""
    if isinstance(error, FlowResultError):
        return _failed(context, plan.node.id, failure.error_result(error, node=plan.node.id), attempt)
    if failure.is_cancellation(error):
        return _failed(context, plan.node.id, failure.cancelled_failure(error, node=plan.node.id), attempt)
    if failure.is_timeout(error):
        return _timed_out(flow, context, plan, error, attempt, time_left_ms)
    return None


def _gave_up(flow: FlowDefinition, context: Context, plan: NodePlan, error: BaseException) -> Outcome:
    """All attempts failed: the error handler decides."""
    node, handler = plan.node, plan.node.error_handler
    if handler.strategy == "abort":
        raised = failure.node_failure(
            error,
            node=node.id,
            label=plan.label,
            code=handler.code,
            message=handler.message,
            line=node.source_line,
        )
        return _failed(context, node.id, raised, plan.attempts, retryable=failure.worth_a_retry(error))
    warning = f"node {node.id!r} failed, errorHandler says {handler.strategy}: {failure.described(error)}"
    return _absorbed(flow, context, plan, handler, plan.attempts, warning)


def _timed_out(
    flow: FlowDefinition,
    context: Context,
    plan: NodePlan,
    error: BaseException | None,
    attempt: int,
    time_left_ms: int | None,
) -> Outcome:
    """The timeout handler decides. ``error`` is what the code raised, or None if it was killed."""
    node, handler = plan.node, plan.node.timeout_handler
    context.discard_state()
    by_limit = error is None or isinstance(error, (NodeTimeoutError, FlowTimeoutError))
    # last_node is the node itself when its wait has begun: then what ran over was the code after the wait
    after_wait = plan.suspending and context.last_node == node.id
    limit_ms, flow_is_tighter = time_limit(plan, time_left_ms, after_wait=after_wait) if by_limit else (None, False)
    raised = failure.timeout_failure(
        node=node.id, label=plan.label, limit_ms=limit_ms, flow_is_tighter=flow_is_tighter, error=error
    )
    if handler.strategy == "abort":
        return _failed(context, node.id, raised, attempt)
    warning = f"{raised.message}; timeoutHandler says {handler.strategy}"
    return _absorbed(flow, context, plan, handler, attempt, warning)


def _absorbed(
    flow: FlowDefinition, context: Context, plan: NodePlan, handler: ErrorHandler, attempts: int, warning: str
) -> Outcome:
    """Go on with null (``continue``) or the handler's default value, as it stands."""
    value = handler.default_value if handler.strategy == "continue-with" else None
    result, result_json = _stored_form(value, flow.limits.flow_text)
    return _succeeded(flow, context, plan, result, result_json, attempts, (failure.clean_text(warning),))


def _failed(
    context: Context, node_id: str, raised: FlowExecutionException, attempts: int, *, retryable: bool = False
) -> Failed:
    context.discard_state()
    return Failed(node_id, failure.error_info(raised, retryable=retryable), attempts, raised)


# -- what follows -------------------------------------------------------------------------------------


def _succeeded(
    flow: FlowDefinition,
    context: Context,
    plan: NodePlan,
    result: Any,
    result_json: bytes,
    attempts: int,
    warnings: tuple[str, ...],
) -> Outcome:
    node_id = plan.node.id
    total = context.size_with(node_id, len(result_json))
    if total > flow.limits.context:
        return _context_too_large(flow, context, plan, total, attempts)
    if plan.ends_flow:
        _record(context, node_id, result, result_json, None)
        state = context.commit_state()
        return Ended(node_id, result, result, attempts, result_json, result_json, state, warnings)
    next_node = _chosen(plan, result) if plan.branching else plan.next_node
    if next_node is None:
        return _no_successor(flow, context, plan, result, result_json, attempts, warnings)
    branch = next_node if plan.branching else None
    _record(context, node_id, result, result_json, branch)
    return Advanced(node_id, result, next_node, branch, attempts, result_json, context.commit_state(), warnings)


def _suspended(
    flow: FlowDefinition,
    context: Context,
    plan: NodePlan,
    result: Any,
    result_json: bytes,
    attempts: int,
    subscription: Subscription,
) -> Outcome:
    """The node's result so far stands at ``$NODE.<id>`` while it waits."""
    total = context.size_with(plan.node.id, len(result_json))
    if total > flow.limits.context:
        return _context_too_large(flow, context, plan, total, attempts)
    _record(context, plan.node.id, result, result_json, None)
    state = context.commit_state()
    wanted = subscription.to_json()
    return Suspended(plan.node.id, result, wanted, attempts, result_json, state, subscription.warnings)


def _record(context: Context, node_id: str, result: Any, result_json: bytes, branch: str | None) -> None:
    context.record(node_id, result, len(result_json))
    context.last_node = node_id
    if branch is not None:
        context.branch = branch


def _chosen(plan: NodePlan, result: Any) -> str | None:
    """The successor that a branching node answered, if it is one of its own."""
    if not isinstance(result, str):
        return None
    target = canonical_id(result)
    return target if target in plan.targets else None


def _no_successor(
    flow: FlowDefinition,
    context: Context,
    plan: NodePlan,
    result: Any,
    result_json: bytes,
    attempts: int,
    warnings: tuple[str, ...],
) -> Outcome:
    """Ledger F4: an error that names the node, unless its error handler says ``continue``: then the flow ends with all
    node results as they stand, and a warning."""
    raised = _unmatched(flow, plan, result)
    if plan.node.error_handler.strategy != "continue":
        return _failed(context, plan.node.id, raised, attempts)
    _record(context, plan.node.id, result, result_json, None)
    output = dict(context.results)
    output_json = jsontext.dumps(output)
    warning = f"{raised.message}; errorHandler says continue, so the flow ends here with all node results"
    state = context.commit_state()
    return Ended(plan.node.id, result, output, attempts, result_json, output_json, state, (*warnings, warning))


def _unmatched(flow: FlowDefinition, plan: NodePlan, result: Any) -> FlowExecutionException:
    node = plan.node
    if not plan.branching:
        return FlowExecutionException(f"{plan.label} is no end and has no next", node=node.id)
    if result is None or result == "":
        return FlowExecutionException(f"{plan.label}: no branch matched, and there is no default", node=node.id)
    if isinstance(result, str) and canonical_id(result) not in flow.nodes:
        return NodeNotFoundError(f"{plan.label} goes to {shown(result)}, but no node has that id", node=node.id)
    return FlowExecutionException(f"{plan.label} answered {shown(result)}, which is none of its branches", node=node.id)


def _context_too_large(flow: FlowDefinition, context: Context, plan: NodePlan, total: int, attempts: int) -> Failed:
    reason = f"the results of all nodes would have {total} bytes; the limit is {flow.limits.context}"
    error = NodeOutputError(reason)
    node = plan.node
    raised = failure.node_failure(error, node=node.id, label=plan.label, code=None, message=None, line=None)
    return _failed(context, node.id, raised, attempts)
