"""Nodes that wait: what a step gives for each action, node and handler (FLOW-FORMAT 2.2, rules 11 and 15; S7, S8)."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, ClassVar

import pytest

from plaita.errors import FlowCancelledException, NodeTimeoutError, ResumeError
from plaita.flow.context import Context
from plaita.flow.engine import run_step
from plaita.flow.limits import Limits
from plaita.flow.model import FlowDefinition
from plaita.flow.outcome import Advanced, Ended, Failed, StepStopped, Suspended
from plaita.flow.waiting import MAX_FILTER_BYTES, MAX_NAME_LENGTH, Woken
from plaita.nodes.base import EventNode, enter
from plaita.nodes.execution import Execution
from plaita.nodes.registry import NodeRegistry

Parse = Callable[..., FlowDefinition]
NOW_MS = 1_700_000_000_000


class Script(EventNode):
    """Each method takes its next result from ``results``; exceptions are raised. ``calls`` lists the methods run."""

    node_type: ClassVar[str] = "script"
    results: ClassVar[list[Any]] = []
    calls: ClassVar[list[str]] = []

    event_type: str | None = "paid"

    def _next(self, method: str) -> Any:
        self.calls.append(method)
        result = self.results.pop(0)
        if isinstance(result, BaseException):
            raise result
        return result

    def execute(self, execution: Execution) -> Any:
        execution.set_state("by", "execute")
        return self._next("execute")

    def on_event(self, execution: Execution, event_data: Any) -> Any:
        execution.set_state("by", "on_event")
        return self._next("on_event")

    def on_timeout(self, execution: Execution) -> Any:
        return self._next("on_timeout")

    def on_cancel(self, execution: Execution) -> None:
        execution.set_state("by", "on_cancel")
        return self._next("on_cancel")


class Choice(Script):
    node_type: ClassVar[str] = "choice"
    branching: ClassVar[bool] = True


@pytest.fixture
def steps(registry: NodeRegistry, parse: Parse) -> Callable[..., Any]:
    """steps(node, action, results) begins a wait at node ``w`` (pending 'P'), then takes the action; the outcome."""
    registry.register(Script)
    registry.register(Choice)

    def steps(fields: dict[str, Any], action: Any, results: list[Any], **options: Any) -> Any:
        context = options.pop("context", None) or Context(execution_id="x1")
        flow = parse(waiting({"type": "script", **fields}))
        Script.results, Script.calls = results, []
        if action != "execute" and "w" not in context.results:
            context.load_result("w", b'"P"')
            context.last_node = "w"
        return run(flow, context, "w", action, **options)

    return steps


def waiting(node: dict[str, Any], **fields: Any) -> dict[str, Any]:
    nodes = [{"type": "start", "id": "s", "next": "w"}, {"id": "w", "next": "e", **node}, {"type": "end", "id": "e"}]
    return {"nodes": nodes, **fields}


def run(flow: FlowDefinition, context: Context, node_id: str, action: Any = "execute", **options: Any) -> Any:
    return run_step(
        flow,
        context,
        node_id,
        call=lambda node: enter(node, Execution(node, context)),  # type: ignore[arg-type]
        now_ms=NOW_MS,
        action=action,
        **options,
    )


# -- action x what the node does x handlers ----------------------------------------------------------

ABORT: dict[str, Any] = {}
RETRY = {"errorHandler": {"retryTimes": 2}}
GO_ON = {"errorHandler": {"strategy": "continue"}, "timeoutHandler": {"strategy": "continue-with", "defaultValue": "D"}}
WITH = {"errorHandler": {"strategy": "continue-with", "defaultValue": "E", "retryTimes": 1}}
BAD = ResumeError("bad data")
LATE = TimeoutError("late")
GONE = FlowCancelledException("asked for")

TABLE: list[tuple[str, dict[str, Any], list[Any], tuple[Any, ...]]] = [
    # action, handlers, what the method gives (each time), (outcome, result or error class, attempts)
    ("execute", ABORT, [7], (Suspended, 7, 1)),
    ("execute", ABORT, [None], (Suspended, None, 1)),
    ("execute", ABORT, [BAD], (Failed, "NodeExecutionError", 1)),
    ("execute", RETRY, [BAD, BAD, 7], (Suspended, 7, 3)),
    ("execute", RETRY, [BAD, BAD, BAD], (Failed, "NodeExecutionError", 3)),
    ("execute", RETRY, [BAD, LATE], (Failed, "NodeTimeoutError", 2)),
    ("execute", GO_ON, [BAD], (Advanced, None, 1)),
    ("execute", GO_ON, [LATE], (Advanced, "D", 1)),
    ("execute", WITH, [BAD, BAD], (Advanced, "E", 2)),
    ("execute", WITH, [GONE], (Failed, "FlowCancelledException", 1)),
    ("event", ABORT, [8], (Advanced, 8, 1)),
    ("event", ABORT, [None], (Advanced, None, 1)),
    ("event", ABORT, [BAD], (Failed, "NodeExecutionError", 1)),
    ("event", ABORT, [SystemExit(3)], (Failed, "NodeExecutionError", 1)),
    ("event", ABORT, [LATE], (Failed, "NodeTimeoutError", 1)),
    ("event", RETRY, [BAD, BAD, 8], (Advanced, 8, 3)),
    ("event", RETRY, [BAD, BAD, BAD], (Failed, "NodeExecutionError", 3)),
    ("event", GO_ON, [BAD], (Advanced, None, 1)),
    ("event", GO_ON, [LATE], (Advanced, "D", 1)),
    ("event", WITH, [BAD, BAD], (Advanced, "E", 2)),
    ("event", WITH, [GONE], (Failed, "FlowCancelledException", 1)),
    ("timeout", ABORT, [9], (Advanced, 9, 1)),
    ("timeout", ABORT, [LATE], (Failed, "NodeTimeoutError", 1)),
    ("timeout", RETRY, [LATE], (Failed, "NodeTimeoutError", 1)),
    ("timeout", ABORT, [BAD], (Failed, "NodeExecutionError", 1)),
    ("timeout", RETRY, [BAD, 9], (Advanced, 9, 2)),
    ("timeout", GO_ON, [LATE], (Advanced, "D", 1)),
    ("timeout", GO_ON, [BAD], (Advanced, None, 1)),
    ("timeout", WITH, [BAD, BAD], (Advanced, "E", 2)),
    ("cancelled", ABORT, [None], (Advanced, None, 1)),
    ("cancelled", ABORT, ["ignored"], (Advanced, None, 1)),
    ("cancelled", RETRY, [BAD], (Failed, "NodeExecutionError", 1)),
    ("cancelled", GO_ON, [LATE], (Failed, "NodeExecutionError", 1)),
    ("timed_out", ABORT, [], (Failed, "NodeTimeoutError", 1)),
    ("timed_out", GO_ON, [], (Advanced, "D", 1)),
]
METHODS = {
    "execute": "execute",
    "event": "on_event",
    "timeout": "on_timeout",
    "cancelled": "on_cancel",
    "timed_out": "",
}


@pytest.mark.parametrize(("action", "handlers", "given", "expected"), TABLE)
def test_action_by_node_by_handler(
    steps: Any, action: str, handlers: dict[str, Any], given: list[Any], expected: tuple[Any, ...]
) -> None:
    outcome = steps(handlers, action, list(given))
    kind, value, attempts = expected
    assert type(outcome) is kind
    assert (outcome.error.exception if kind is Failed else outcome.result) == value
    assert outcome.attempts == attempts
    assert Script.calls == [METHODS[action]] * len(given)
    if kind is Advanced and action != "cancelled":
        assert outcome.next_node == "e"
        assert outcome.result_json == json.dumps(value).encode()


@pytest.mark.parametrize(
    ("error", "retryable"), [(BAD, True), (ValueError("x"), False), (RuntimeError("x"), True), (LATE, False)]
)
def test_S7_a_failed_resume_follows_the_retry_rules(steps: Any, error: BaseException, retryable: bool) -> None:
    failed = steps({}, "event", [error])
    assert failed.error.retryable is retryable
    assert failed.error.failed_node == "w"


@pytest.mark.parametrize("action", ["event", "timeout", "cancelled"])
def test_S7_a_resume_of_a_node_that_waits_for_nothing_is_a_guard_error(parse: Parse, action: str) -> None:
    flow = parse(waiting({"type": "mock", "errorHandler": {"strategy": "continue"}}))
    context = Context(execution_id="x1")
    context.load_result("w", b"1")
    failed = run(flow, context, "w", action)
    assert isinstance(failed, Failed)
    assert (failed.error.exception, failed.error.retryable, failed.attempts) == ("ResumeGuardError", False, 0)
    assert "type 'mock'" in failed.error.message


@pytest.mark.parametrize("action", ["event", "timeout", "cancelled"])
def test_S7_a_resume_without_a_pending_result_is_a_guard_error(parse: Parse, action: str) -> None:
    flow = parse(waiting({"type": "event", "event_type": "t", "errorHandler": {"strategy": "continue"}}))
    failed = run(flow, Context(execution_id="x1"), "w", action)
    assert isinstance(failed, Failed)
    assert (failed.error.exception, failed.attempts) == ("ResumeGuardError", 0)


def test_what_a_failed_half_stored_is_dropped(steps: Any) -> None:
    context = Context(execution_id="x1")
    assert steps({}, "execute", [1], context=context).state_json == {"by": b'"execute"'}
    assert isinstance(steps({}, "event", [BAD], context=context), Failed)
    assert context.step_state.get("by") == "execute"
    assert context.results["w"] == 1, "the pending result stays for the retry"
    assert steps({}, "event", [2], context=context).state_json == {"by": b'"on_event"'}
    assert context.results["w"] == 2


def test_S8_a_cancelled_wait_changes_nothing(steps: Any) -> None:
    context = Context(execution_id="x1")
    outcome = steps({}, "cancelled", [5], context=context)
    assert (outcome.result, outcome.state_json) == (None, {})
    assert context.results["w"] == "P"
    assert context.commit_state() == {}


@pytest.mark.parametrize("action", ["execute", "event", "timeout", "cancelled"])
@pytest.mark.parametrize("error", [StepStopped(), BaseExceptionGroup("tasks", [StepStopped()])])
def test_a_request_to_stop_passes_through_every_action(steps: Any, action: str, error: BaseException) -> None:
    context = Context(execution_id="x1")
    with pytest.raises(StepStopped):
        steps(GO_ON, action, [error], context=context)
    assert context.commit_state() == {}
    assert context.results.get("w") == (None if action == "execute" else "P")


@pytest.mark.parametrize("action", ["execute", "event", "timeout"])
def test_a_flow_without_time_left_runs_no_half(steps: Any, action: str) -> None:
    failed = steps(GO_ON, action, [], time_left_ms=0)
    assert (failed.error.exception, failed.error.code) == ("FlowTimeoutError", -1)
    assert Script.calls == []


def test_a_cancelled_wait_is_undone_though_the_flow_has_no_time_left(steps: Any) -> None:
    assert isinstance(steps({}, "cancelled", [None], time_left_ms=0), Advanced)
    assert Script.calls == ["on_cancel"]


@pytest.mark.parametrize("action", ["event", "timeout", "timed_out"])
def test_the_nodes_timeout_was_for_the_wait_and_not_for_what_comes_after(steps: Any, action: str) -> None:
    results = [] if action == "timed_out" else [NodeTimeoutError("limit")]
    failed = steps({"timeout": 40}, action, list(results), time_left_ms=70)
    assert "timed out after 70 ms: the time of the whole flow is spent" in failed.error.message
    assert failed.error.error_type == "flow_error"
    failed = steps({"timeout": 40}, action, list(results))
    assert failed.error.message.startswith("NodeTimeoutError: node 'w' timed out")
    assert "40 ms" not in failed.error.message
    assert failed.error.error_type == "node_error"


@pytest.mark.parametrize("action", ["execute", "timed_out"])
def test_the_nodes_timeout_binds_the_first_half(steps: Any, action: str) -> None:
    context = Context(execution_id="x1", last_node="s")
    context.load_result("w", b"1")  # of an earlier visit
    results: list[Any] = [] if action == "timed_out" else [NodeTimeoutError("limit")]
    assert "timed out after 40 ms" in steps({"timeout": 40}, action, results, context=context).error.message


def test_what_is_too_large_does_not_wait(steps: Any, parse: Parse, registry: NodeRegistry) -> None:
    registry.register(Script)
    flow = parse(waiting({"type": "script"}), limits=Limits(node_output=10))
    Script.results, Script.calls = ["x" * 20], []
    assert run(flow, Context(execution_id="x"), "w").error.cause == "NodeOutputError"
    flow = parse(waiting({"type": "script"}), limits=Limits(context=10))
    Script.results = ["x" * 20]
    assert "all nodes would have" in run(flow, Context(execution_id="x"), "w").error.message


def test_a_waiting_node_may_choose_the_way_after_its_event(steps: Any) -> None:
    context = Context(execution_id="x1")
    waits = steps({"type": "choice"}, "execute", ["e"], context=context)
    assert isinstance(waits, Suspended)
    assert context.branch is None
    assert steps({"type": "choice"}, "event", ["e"], context=context).branch == "e"
    assert steps({"type": "choice"}, "event", ["s"], context=context).error.exception == "FlowExecutionException"


# -- a waiting node at the end, at the start, in a cycle -------------------------------------------------


@pytest.mark.parametrize("strategy", ["abort", "continue"])
def test_F4_a_waiting_node_without_next_waits_first(parse: Parse, strategy: str) -> None:
    node = {"type": "event", "id": "w", "event_type": "t", "errorHandler": {"strategy": strategy}}
    flow = parse({"nodes": [{"type": "start", "id": "s", "next": "w"}, node]})
    warned = any("is no end and has no next" in str(each) for each in flow.warnings)
    assert warned is (strategy == "abort")
    context = Context(execution_id="x1")
    assert isinstance(run(flow, context, "w"), Suspended)
    ended = run(flow, context, "w", "event", event=1)
    if strategy == "abort":
        assert isinstance(ended, Failed)
        assert "is no end and has no next" in ended.error.message
    else:
        assert isinstance(ended, Ended)
        assert ended.output["w"]["event_data"] == 1


def test_a_flow_may_begin_with_a_wait(parse: Parse) -> None:
    nodes = [{"type": "event", "id": "w", "event_type": "t", "next": "e"}, {"type": "end", "id": "e"}]
    flow = parse({"nodes": nodes, "inputType": {"dataType": "string"}})
    assert isinstance(run(flow, Context(execution_id="x", input=5), "w"), Failed)
    context = Context(execution_id="x", input="five")
    assert isinstance(run(flow, context, "w"), Suspended)
    assert isinstance(run(flow, context, "w", "event"), Advanced)


def test_a_wait_met_again_begins_anew(parse: Parse) -> None:
    flow = parse(waiting({"type": "event", "event_type": "t"}))
    context = Context(execution_id="x1")
    run(flow, context, "w")
    run(flow, context, "w", "event", event={"a": 1})
    assert context.results["w"]["status"] == "completed"
    assert isinstance(run(flow, context, "w"), Suspended)
    assert context.woken is None
    assert context.results["w"]["status"] == "pending"


# -- what is waited for ---------------------------------------------------------------------------------------

FLOW_INPUT = {"topic": "order.paid", "id": 17, "who": {"name": "ann"}, "none": None, "empty": "", "flag": True}
FLOW_INPUT |= {"long": "x" * (MAX_NAME_LENGTH + 1), "vast": "x" * MAX_FILTER_BYTES}
PLAIN = {"event_type": "t", "event_filter": None, "correlation_id": None, "timeout_ms": None}

SUBSCRIPTIONS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"event_type": "t"}, {}),
    ({"eventType": "$INPUT.topic"}, {"event_type": "order.paid"}),
    ({"event_type": "{% $INPUT.topic %}.{% $INPUT.id %}"}, {"event_type": "order.paid.17"}),
    ({"event_type": "$INPUT.none"}, {"event_type": "$INPUT.none"}),
    ({"event_type": "$INPUT.empty"}, {"event_type": "$INPUT.empty"}),
    ({"event_type": "$INPUT.id"}, {"event_type": "$INPUT.id"}),
    ({"event_filter": {}}, {}),
    (
        {"eventFilter": {"order.id": "$INPUT.id", "who": "$INPUT.who", "fixed": [1, "{% $INPUT.topic %}"]}},
        {"event_filter": {"order.id": 17, "who": {"name": "ann"}, "fixed": [1, "order.paid"]}},
    ),
    ({"event_filter": {"a": None}}, {"event_filter": {"a": None}}),
    ({"correlationId": "$INPUT.topic"}, {"correlation_id": "order.paid"}),
    ({"correlation_id": "$INPUT.id"}, {"correlation_id": "17"}),
    ({"correlation_id": 12345678901234567890}, {"correlation_id": "12345678901234567890"}),
    ({"correlation_id": "plain"}, {"correlation_id": "plain"}),
    ({"correlation_id": None}, {}),
    ({"subscription_timeout": 1.5}, {"timeout_ms": 1500}),
    ({"subscriptionTimeout": "30"}, {"timeout_ms": 30_000}),
    ({"subscription_timeout": "PT2M"}, {"timeout_ms": 120_000}),
    ({"subscription_timeout": 0}, {}),
    ({"subscription_timeout": None}, {}),
    ({"timeout": 400}, {"timeout_ms": 400}),
    ({"timeout": 400, "subscription_timeout": 1}, {"timeout_ms": 400}),
    ({"timeout": "PT3S", "subscription_timeout": 1}, {"timeout_ms": 1000}),
]


@pytest.mark.parametrize(("fields", "expected"), SUBSCRIPTIONS)
def test_rules_11_and_15_what_is_waited_for(parse: Parse, fields: dict[str, Any], expected: dict[str, Any]) -> None:
    node = {"type": "event", **({} if "eventType" in fields else {"event_type": "t"}), **fields}
    context = Context(execution_id="x1", input=FLOW_INPUT)
    outcome = run(parse(waiting(node)), context, "w")
    assert isinstance(outcome, Suspended)
    assert outcome.subscription == {**PLAIN, **expected}
    assert json.loads(json.dumps(outcome.subscription)) == outcome.subscription
    literal = outcome.subscription["event_type"].startswith("$")
    assert bool(outcome.warnings) is literal
    assert outcome.result["event_type"] == outcome.subscription["event_type"]
    assert outcome.result["event_filter"] == (outcome.subscription["event_filter"] or {})


def test_a_filter_for_what_the_input_lacks_is_warned_of(parse: Parse) -> None:
    """A slip in a path gives null (rule 4), and no event may ever have null there."""
    wanted = {"order.id": "$INPUT.odrer", "a": None, "b": "$INPUT.id", "c": "$INPUT.none"}
    node = {"type": "event", "event_type": "t", "event_filter": wanted}
    outcome = run(parse(waiting(node)), Context(execution_id="x1", input=FLOW_INPUT), "w")
    assert outcome.subscription["event_filter"] == {"order.id": None, "a": None, "b": 17, "c": None}
    assert [text.partition(" gives nothing")[0] for text in outcome.warnings] == [
        "event_filter: '$INPUT.odrer' at 'order.id'",
        "event_filter: '$INPUT.none' at 'c'",
    ]


FAULTS: list[tuple[dict[str, Any], str, str]] = [
    ({"correlation_id": "$INPUT.none"}, "NodeOutputError", "correlationId gives null"),
    ({"correlation_id": "$INPUT.flag"}, "NodeOutputError", "correlationId gives boolean"),
    ({"correlation_id": "$INPUT.who"}, "NodeOutputError", "correlationId gives object"),
    ({"correlation_id": "$INPUT.empty"}, "NodeOutputError", "correlationId gives ''"),
    ({"correlation_id": "$INPUT.long"}, "NodeOutputError", f"the limit is {MAX_NAME_LENGTH}"),
    ({"event_type": "$INPUT.long"}, "NodeOutputError", f"the limit is {MAX_NAME_LENGTH}"),
    ({"event_filter": {"a": "$INPUT.vast"}}, "NodeOutputError", f"the limit is {MAX_FILTER_BYTES}"),
    ({"event_filter": {"a": "$F.div($INPUT.id, 0)"}}, "ExpressionError", "div"),
    ({"event_type": "$F.div($INPUT.id, 0)"}, "ExpressionError", "div"),
]


@pytest.mark.parametrize(("fields", "cause", "text"), FAULTS)
def test_a_subscription_that_cannot_be_is_a_failure_of_the_node(
    parse: Parse, fields: dict[str, Any], cause: str, text: str
) -> None:
    node = {"type": "event", "event_type": "t", **fields}
    context = Context(execution_id="x1", input=FLOW_INPUT)
    failed = run(parse(waiting(node)), context, "w")
    assert isinstance(failed, Failed)
    assert (failed.error.cause, failed.error.retryable) == (cause, False)
    assert text in failed.error.message
    assert context.results == {}
    absorbed = run(parse(waiting({**node, "errorHandler": {"strategy": "continue"}})), context, "w")
    assert isinstance(absorbed, Advanced)


PENDING: list[tuple[Any, dict[str, Any]]] = [
    (7, {"event_type": "paid", "event_filter": {"id": 17}}),
    ({"event_type": 5}, {"event_type": "paid", "event_filter": {"id": 17}}),
    ({"event_type": "other"}, {"event_type": "other", "event_filter": {"id": 17}}),
    ({"event_type": "other", "event_filter": {"x": 1}}, {"event_type": "other", "event_filter": {"x": 1}}),
    ({"event_filter": {}}, {"event_type": "paid"}),
]


@pytest.mark.parametrize(("pending", "expected"), PENDING)
def test_a_pending_object_overrules_the_fields(steps: Any, pending: Any, expected: dict[str, Any]) -> None:
    context = Context(execution_id="x1", input=FLOW_INPUT)
    outcome = steps({"event_filter": {"id": "$INPUT.id"}}, "execute", [pending], context=context)
    assert outcome.subscription == {**PLAIN, **expected}


@pytest.mark.parametrize(
    ("node", "left", "included", "expected"),
    [
        ({}, 900, True, 900),
        ({"timeout": 500}, 900, True, 500),
        ({"timeout": 5000}, 900, True, 900),
        ({"timeout": 5000}, 900, False, 5000),
        ({}, 900, False, None),
        ({"timeout": 5000}, None, True, 5000),
    ],
)
def test_rule_15_a_wait_lasts_no_longer_than_its_flow_where_that_counts_waits(
    parse: Parse, node: dict[str, Any], left: int | None, included: bool, expected: int | None
) -> None:
    fields = {} if left is None else {"timeout": 1000}
    flow = parse(waiting({"type": "event", "event_type": "t", **node}, timeoutIncludesWaits=included, **fields))
    outcome = run(flow, Context(execution_id="x1"), "w", time_left_ms=left)
    assert outcome.subscription["timeout_ms"] == expected


def test_a_waiting_node_without_an_event_type_fails(parse: Parse, registry: NodeRegistry) -> None:
    @registry.register
    class Nameless(EventNode):
        node_type: ClassVar[str] = "nameless"

    failed = run(parse(waiting({"type": "nameless"})), Context(execution_id="x"), "w")
    assert "event_type gives None: the name of an event is wanted" in failed.error.message


def test_the_engine_says_how_the_wait_ended(parse: Parse) -> None:
    flow = parse(waiting({"type": "event", "event_type": "t"}))
    context = Context(execution_id="x1")
    seen: list[Woken | None] = []

    def call(node: Any) -> Any:
        seen.append(context.woken)
        return 1

    for action in ("execute", "event", "timeout", "cancelled", "execute"):
        run_step(flow, context, "w", call=call, now_ms=0, action=action, event={"a": 1})  # type: ignore[arg-type]
    assert [woken and (woken.kind, woken.data) for woken in seen] == [
        None,
        ("event", {"a": 1}),
        ("timeout", {"a": 1}),
        ("cancelled", {"a": 1}),
        None,
    ]
