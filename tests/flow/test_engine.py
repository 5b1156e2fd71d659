"""One step: results, successors, handlers and codes (FLOW-FORMAT 1.5, 1.7, 2, rules 10, 13, 14; ledger F4, S9)."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from typing import Any, ClassVar

import pytest

from plaita.errors import (
    FlowCancelledException,
    FlowResultError,
    FlowTimeoutError,
    NodeException,
    NodeTimeoutError,
    OutputValidationError,
)
from plaita.flow.context import Context
from plaita.flow.engine import run_step
from plaita.flow.limits import Limits
from plaita.flow.model import FlowDefinition
from plaita.flow.outcome import Advanced, Ended, ErrorInfo, Failed, StepStopped
from plaita.nodes.base import Node
from plaita.nodes.execution import Execution
from plaita.nodes.registry import NodeRegistry

Drive = Callable[..., Any]
Parse = Callable[..., FlowDefinition]


def chain(*nodes: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """start -> the nodes in a row -> end ``e`` (with the last node's result as output)."""
    named = [{"id": f"n{index}", **node} for index, node in enumerate(nodes)]
    for node, following in zip(named, [*named[1:], {"id": "e"}], strict=True):
        node.setdefault("next", following["id"])
    end = {"type": "end", "id": "e", "output": f"$NODE.{named[-1]['id']}"}
    return {"nodes": [{"type": "start", "id": "s", "next": named[0]["id"]}, *named, end], **fields}


def condition(field: Any, operator: str, value: Any) -> dict[str, Any]:
    return {"field": field, "operator": operator, "value": value}


# -- the node types ------------------------------------------------------------------------------------


def test_start_mock_assignment_end(drive: Drive) -> None:
    driven = drive(
        chain({"type": "mock", "value": {"a": "$INPUT.x", "b": [1]}}, {"type": "assignment", "output": "$NODE.n0"}),
        {"x": 1},
    )
    assert driven.visited == ["s", "n0", "n1", "e"]
    assert driven.last.output == {"a": "$INPUT.x", "b": [1]}
    assert driven.outcomes[0] == Advanced("s", None, "n0", None, 1, b"null")
    assert json.loads(driven.last.output_json) == driven.last.output
    assert driven.last.output_json is driven.last.result_json
    assert driven.context.results["e"] == driven.last.output
    assert driven.context.last_node == "e"


@pytest.mark.parametrize(
    ("fields", "output"),
    [
        ({}, None),
        ({"output": "$INPUT.x"}, 7),
        ({"output": {"v": ["{% $INPUT.x %}!"]}}, {"v": ["7!"]}),
        ({"output": "$INPUT.x", "resultType": "success"}, 7),
        ({"output": "$INPUT.x", "resultType": "whatever"}, 7),
        ({"output": "$INPUT.x", "result_type": "nop"}, None),
    ],
)
def test_end_result_types(drive: Drive, fields: dict[str, Any], output: Any) -> None:
    driven = drive({"nodes": [{"type": "end", "id": "e", **fields}]}, {"x": 7})
    assert isinstance(driven.last, Ended)
    assert driven.last.output == output


def test_end_error_is_the_authors_error(drive: Drive) -> None:
    driven = drive(
        {
            "nodes": [
                {
                    "type": "end",
                    "id": "e",
                    "resultType": "error",
                    "error": {"code": 4001, "message": "bad $INPUT"},
                    "errorHandler": {"strategy": "continue", "retryTimes": 3},
                }
            ]
        }
    )
    assert driven.last.error == ErrorInfo(
        code=4001,
        message="bad $INPUT",
        error_type="error_result",
        node="e",
        failed_node="e",
        exception="ErrorResultException",
        cause="FlowResultError",
        retryable=False,
    )
    assert driven.last.attempts == 1


UPSTREAM = [{"upstream": "a", "output": "$INPUT.a"}, {"upstream": "n0", "value": "$INPUT.n0"}]


@pytest.mark.parametrize(
    ("fields", "result"),
    [
        ({}, None),
        ({"output": {"t": "{% $INPUT.a %}"}}, {"t": "1"}),
        ({"upstreamOutput": [{"upstream": "other", "output": "$INPUT.a"}], "output": 5}, 1),
        ({"upstreamOutput": UPSTREAM, "output": 5}, 2),
        ({"upstreamOutput": [*UPSTREAM[:1], {"upstream": "b", "value": 3}], "output": 5}, []),
        ({"upstream_output": [], "output": 5}, 5),
        ({"upstreamOutput": [{"upstream": "n0", "output": None, "value": 3}]}, None),
    ],
)
def test_rule_8_assignment_sources(drive: Drive, fields: dict[str, Any], result: Any) -> None:
    driven = drive(chain({"type": "mock"}, {"type": "assignment", **fields}), {"a": 1, "n0": 2})
    assert driven.last.output == result


def test_assignment_checks_its_type(drive: Drive) -> None:
    node = {"type": "assignment", "output": "$INPUT.x", "outputType": {"dataType": "integer"}}
    assert drive(chain(node), {"x": 3}).last.output == 3
    failed = drive(chain(node), {"x": "3"}).last
    assert failed.error.code == -500
    assert failed.error.cause == "OutputValidationError"
    assert failed.error.retryable
    assert "a whole number is wanted, this is the text '3'" in failed.error.message


@pytest.mark.parametrize(("x", "end"), [(18, "adult"), (17, "minor"), (None, "minor")])
def test_if_takes_one_of_two_ways(drive: Drive, x: Any, end: str) -> None:
    driven = drive(
        {
            "nodes": [
                {
                    "type": "if",
                    "id": "i",
                    "condition": condition("$INPUT.x", "gte", 18),
                    "next": "adult",
                    "elseNext": "minor",
                },
                {"type": "end", "id": "adult", "output": ["$BRANCH", "$LAST_NODE", "$NODE.i"]},
                {"type": "end", "id": "minor", "output": ["$BRANCH", "$LAST_NODE", "$NODE.i"]},
            ]
        },
        {"x": x},
    )
    assert driven.outcomes[0] == Advanced("i", end, end, end, 1, json.dumps(end).encode())
    assert driven.last.output == [end, "i", end]


def test_if_without_condition_always_takes_else(drive: Drive) -> None:
    nodes = [
        {"type": "if", "id": "i", "next": "a", "else_next": "b"},
        {"type": "end", "id": "a"},
        {"type": "end", "id": "b"},
    ]
    assert drive({"nodes": nodes}).visited == ["i", "b"]


BRANCHES = [
    {"name": "low", "next": "a", "condition": condition("$INPUT.x", "gt", 0)},
    {"name": "high", "next": "b", "priority": 5, "condition": condition("$INPUT.x", "gt", 10)},
    {"name": "tie", "next": "c", "priority": 5, "condition": condition("$INPUT.x", "gt", 10)},
    {"name": "d", "isDefault": True},
    {"name": "a", "isDefault": True},
]


@pytest.mark.parametrize(("x", "end"), [(20, "b"), (5, "a"), (-1, "d")])
def test_rule_14_switch_order(drive: Drive, x: int, end: str) -> None:
    nodes = [{"type": "switch", "id": "w", "branches": BRANCHES}, *({"type": "end", "id": name} for name in "abcd")]
    assert drive({"nodes": nodes}, {"x": x}).visited == ["w", end]


def test_switch_tries_a_default_with_a_condition_like_any_other(drive: Drive) -> None:
    branches = [{"next": "a", "isDefault": True, "condition": condition("$INPUT.x", "eq", 1)}]
    nodes = [{"type": "switch", "id": "w", "branches": branches}, {"type": "end", "id": "a"}]
    assert drive({"nodes": nodes}, {"x": 1}).visited == ["w", "a"]
    assert drive({"nodes": nodes}, {"x": 2}).visited == ["w", "a"]


@pytest.mark.parametrize(("x", "end"), [(1, "a"), ("1", "c"), ([1, 2], "b"), ("y", "d"), (None, "c"), (1.0, "a")])
def test_case_jumps_to_the_equal_value(drive: Drive, x: Any, end: str) -> None:
    cases = [{"id": "a", "value": 1}, {"id": "b", "value": [1, 2]}, {"id": "d", "value": "$INPUT.y", "name": "why"}]
    nodes = [
        {"type": "case", "id": "k", "target": "$INPUT.x", "cases": cases, "default": "c"},
        *({"type": "end", "id": name} for name in "abcd"),
    ]
    assert drive({"nodes": nodes}, {"x": x, "y": "y"}).visited == ["k", end]


# -- unmatched branches ----------------------------------------------------------------------------------

UNMATCHED: list[tuple[str, dict[str, Any], str, str]] = [
    (
        "if without else",
        {"type": "if", "condition": condition("$INPUT.x", "eq", 1), "next": "e"},
        "NodeNotFoundError",
        "'false'",
    ),
    (
        "if with the placeholder",
        {"type": "if", "condition": condition("$INPUT.x", "eq", 1), "next": "e", "else_next": "false"},
        "NodeNotFoundError",
        "'false'",
    ),
    (
        "if with an empty else",
        {"type": "if", "condition": condition("$INPUT.x", "eq", 1), "next": "e", "else_next": ""},
        "FlowExecutionException",
        "no branch matched",
    ),
    (
        "if without next",
        {"type": "if", "condition": condition("$INPUT.x", "eq", None), "next": None, "else_next": "e"},
        "NodeNotFoundError",
        "'true'",
    ),
    (
        "switch",
        {"type": "switch", "branches": [{"next": "e", "condition": condition("$INPUT.x", "eq", 1)}], "next": None},
        "FlowExecutionException",
        "no branch matched",
    ),
    (
        "switch without branches",
        {"type": "switch", "branches": [], "next": None},
        "FlowExecutionException",
        "no branch",
    ),
    (
        "case",
        {"type": "case", "target": "$INPUT.x", "cases": [{"id": "e", "value": 1}], "next": None},
        "NodeNotFoundError",
        "'default'",
    ),
    ("no next", {"type": "mock", "value": 1, "next": ""}, "FlowExecutionException", "is no end and has no next"),
]


@pytest.mark.parametrize(("node", "exception", "text"), [each[1:] for each in UNMATCHED], ids=[e[0] for e in UNMATCHED])
def test_f4_unmatched_ends_in_an_error_that_names_the_node(
    drive: Drive, node: dict[str, Any], exception: str, text: str
) -> None:
    definition = {"nodes": [{"type": "start", "id": "s", "next": "n"}, {"id": "n", **node}, {"type": "end", "id": "e"}]}
    failed = drive(definition).last
    assert isinstance(failed, Failed)
    assert (failed.error.exception, failed.error.code, failed.error.node) == (exception, -500, "n")
    assert failed.error.error_type == ("node_not_found" if exception == "NodeNotFoundError" else "flow_error")
    assert text in failed.error.message
    assert "'n'" in failed.error.message
    assert not failed.error.retryable
    for strategy in ("abort", "continue-with"):
        definition["nodes"][1]["errorHandler"] = {"strategy": strategy, "defaultValue": 1}
        assert isinstance(drive(definition).last, Failed)


@pytest.mark.parametrize("node", [each[1] for each in UNMATCHED], ids=[each[0] for each in UNMATCHED])
def test_f4_continue_ends_the_flow_with_all_results_and_a_warning(drive: Drive, node: dict[str, Any]) -> None:
    handler = {"strategy": "continue"}
    definition = chain({"type": "mock", "value": {"a": 1}, "next": "n"})
    definition["nodes"].append({"id": "n", **node, "errorHandler": handler})
    ended = drive(definition).last
    assert isinstance(ended, Ended)
    assert ended.output == {"s": None, "n0": {"a": 1}, "n": ended.result}
    assert json.loads(ended.output_json) == ended.output
    assert "'n'" in ended.warnings[0]


# -- failures, retries, handlers -------------------------------------------------------------------------


class Steps(Node):
    """Does what its class was told: ``script`` holds results and exceptions, one an attempt."""

    node_type: ClassVar[str] = "steps"
    script: ClassVar[list[Any]] = []
    calls: ClassVar[int] = 0

    def execute(self, execution: Execution) -> Any:
        item = type(self).script[type(self).calls]
        type(self).calls += 1
        if isinstance(item, BaseException) or (isinstance(item, type) and issubclass(item, BaseException)):
            raise item
        return item() if callable(item) else item


@pytest.fixture
def script(registry: NodeRegistry, drive: Drive) -> Callable[..., Any]:
    """script(results, **node fields): the last outcome of a flow whose node ``n0`` does what the results say."""

    def run(results: list[Any], *, step_options: dict[str, Any] | None = None, **fields: Any) -> Any:
        Steps.script, Steps.calls = results, 0
        registry.register(Steps)
        return drive(chain({"type": "steps", **fields}), **(step_options or {}))

    return run


def test_retries_until_an_attempt_succeeds(script: Any) -> None:
    driven = script([ValueError("a"), KeyError("b"), 3], errorHandler={"retryTimes": 3})
    assert driven.outcomes[1].attempts == 3
    assert driven.last.output == 3


@pytest.mark.parametrize(("retry_times", "calls"), [(0, 1), (2, 3), (-5, 1)])
def test_retries_are_bounded(script: Any, retry_times: int, calls: int) -> None:
    driven = script([ValueError("x")] * 10, errorHandler={"retryTimes": retry_times})
    assert (Steps.calls, driven.last.attempts) == (calls, calls)


def test_the_default_failure(script: Any) -> None:
    failed = script([KeyError("lost")], name="Charge").last
    assert failed.error == ErrorInfo(
        code=-500,
        message="node 'n0' (Charge) failed: KeyError: 'lost'",
        error_type="node_error",
        node="n0",
        failed_node="n0",
        exception="NodeExecutionError",
        cause="KeyError",
        retryable=True,
    )
    assert isinstance(failed.raised.__cause__, KeyError)
    assert ErrorInfo.from_json(json.loads(json.dumps(failed.error.to_json()))) == failed.error


def test_the_source_line_is_told(script: Any) -> None:
    assert script([KeyError("x")], source_line=12).last.error.message.endswith("[line 12]")


CODES: list[tuple[str, BaseException, dict[str, Any], Any]] = [
    ("none", RuntimeError("x"), {}, -500),
    ("the author's", RuntimeError("x"), {"code": 7}, 7),
    ("the author's text", RuntimeError("x"), {"code": "E7"}, "E7"),
    ("the author's zero", RuntimeError("x"), {"code": 0}, 0),
    ("the author's old default", RuntimeError("x"), {"code": -9527}, -9527),
    ("the node's", NodeException(1002, "x"), {}, 1002),
    ("the node's business code", NodeException("NO_STOCK", "x"), {}, "NO_STOCK"),
    ("the author's over the node's", NodeException(1002, "x"), {"code": 7}, 7),
    ("a cause's", None, {}, 1003),  # type: ignore[list-item]
    ("no code at all", NodeException(object(), "x"), {}, -500),  # type: ignore[arg-type]
    ("a boolean", NodeException(True, "x"), {}, -500),
]


@pytest.mark.parametrize(("error", "handler", "code"), [each[1:] for each in CODES], ids=[each[0] for each in CODES])
def test_rule_10_codes(script: Any, error: BaseException | None, handler: dict[str, Any], code: Any) -> None:
    if error is None:
        error = RuntimeError("outer")
        error.__cause__ = NodeException(1003, "inner")
    failed = script([error], errorHandler=handler).last
    assert failed.error.code == code
    json.dumps(failed.error.to_json())


def test_the_authors_message_stands_alone(script: Any) -> None:
    assert script([RuntimeError("x")], errorHandler={"message": "try later"}).last.error.message == "try later"


@pytest.mark.parametrize("value", [None, 0, "$INPUT.x", [1], {"a": "{% $INPUT.x %}"}, 2**80])
def test_rule_10_default_values_are_taken_as_they_stand(script: Any, value: Any) -> None:
    driven = script([RuntimeError("x")], errorHandler={"strategy": "continue_with", "defaultValue": value})
    assert driven.last.output == value
    assert "errorHandler says continue-with: RuntimeError: x" in driven.outcomes[1].warnings[0]
    driven = script([TimeoutError("x")], timeoutHandler={"strategy": "continue-with", "default_value": value})
    assert driven.last.output == value


def test_continue_gives_null(script: Any) -> None:
    driven = script([RuntimeError("x")], errorHandler={"strategy": "continue", "defaultValue": 5})
    assert driven.last.output is None
    assert driven.outcomes[1].result_json == b"null"


def test_a_default_value_may_choose_the_branch(drive: Drive) -> None:
    bad = condition("$INPUT.x", "lt", "text")
    handler = {"strategy": "continue-with", "defaultValue": "b"}
    nodes = [
        {"type": "if", "id": "i", "condition": bad, "next": "a", "else_next": "b", "errorHandler": handler},
        {"type": "end", "id": "a"},
        {"type": "end", "id": "b"},
    ]
    assert drive({"nodes": nodes}, {"x": 1}).visited == ["i", "b"]


# -- timeouts and cancellation -----------------------------------------------------------------------------


def test_a_timeout_error_of_node_code_is_a_timeout(script: Any) -> None:
    failed = script([TimeoutError("read timed out"), 1], errorHandler={"retryTimes": 5, "code": 7}).last
    assert failed.attempts == 1
    assert failed.error == ErrorInfo(
        code=-1,
        message="NodeTimeoutError: node 'n0' timed out: TimeoutError: read timed out",
        error_type="node_error",
        node="n0",
        failed_node="n0",
        exception="NodeTimeoutError",
        cause="TimeoutError",
        retryable=False,
    )


def test_a_timeout_handler_code_and_message_have_no_effect(script: Any) -> None:
    failed = script([TimeoutError("x")], timeoutHandler={"code": 9, "message": "mine"}).last
    assert failed.error.code == -1
    assert failed.error.message != "mine"


@pytest.mark.parametrize(
    ("timeout", "time_left_ms", "error_type", "limit"),
    [
        ("PT5S", None, "node_error", 5000),
        ("PT5S", 9000, "node_error", 5000),
        ("PT5S", 400, "flow_error", 400),
        (None, 400, "flow_error", 400),
    ],
)
@pytest.mark.parametrize("killed", [True, False])
def test_rule_15_the_tighter_limit_is_told(
    parse: Parse, timeout: Any, time_left_ms: int | None, error_type: str, limit: int, killed: bool
) -> None:
    flow = parse(chain({"type": "mock", "timeout": timeout}))

    def call(node: Any) -> Any:
        assert not killed, "nothing may run once the caller has killed it"
        raise NodeTimeoutError("limit", node=node.id)

    failed = run_step(
        flow,
        Context(execution_id="e1"),
        "n0",
        call=call,
        now_ms=0,
        action="timed_out" if killed else "execute",
        time_left_ms=time_left_ms,
    )
    assert isinstance(failed, Failed)
    assert (failed.error.exception, failed.error.code, failed.error.error_type) == ("NodeTimeoutError", -1, error_type)
    assert f"{limit} ms" in failed.error.message
    assert not failed.error.retryable


def test_a_killed_step_goes_through_the_timeout_handler(parse: Parse) -> None:
    flow = parse(
        chain({"type": "mock", "timeout": 5, "timeoutHandler": {"strategy": "continue-with", "defaultValue": [1]}})
    )
    context = Context(execution_id="e1")
    context.step_state.set("half", "done")
    outcome = run_step(flow, context, "n0", call=lambda node: 1 / 0, now_ms=0, action="timed_out")
    assert isinstance(outcome, Advanced)
    assert (outcome.result, outcome.next_node, outcome.state_json) == ([1], "e", {})
    assert "timed out after 5 ms" in outcome.warnings[0]


def test_a_flow_without_time_left_begins_nothing(parse: Parse) -> None:
    flow = parse(chain({"type": "mock", "timeoutHandler": {"strategy": "continue"}}))
    failed = run_step(flow, Context(execution_id="e1"), "n0", call=lambda node: 1 / 0, now_ms=0, time_left_ms=0)
    assert isinstance(failed, Failed)
    assert isinstance(failed.raised, FlowTimeoutError)
    assert (failed.error.code, failed.error.error_type, failed.error.retryable) == (-1, "flow_error", False)
    assert failed.attempts == 0


def test_a_cancellation_passes_all_handlers(script: Any) -> None:
    error = FlowCancelledException("asked for")
    failed = script([error, 1], errorHandler={"strategy": "continue", "retryTimes": 3}).last
    assert (failed.error.code, failed.error.exception, failed.attempts) == (-4, "FlowCancelledException", 1)
    assert not failed.error.retryable


def test_a_request_to_stop_passes_through_and_leaves_the_context_alone(parse: Parse) -> None:
    flow = parse(chain({"type": "mock", "errorHandler": {"strategy": "continue", "retryTimes": 3}}))
    context = Context(execution_id="e1")

    def stopped(node: Any) -> Any:
        context.step_state.set("half", "done")
        raise StepStopped

    def in_group(node: Any) -> Any:
        raise BaseExceptionGroup("tasks", [ValueError("x"), StepStopped()])

    for call in (stopped, in_group):
        with pytest.raises(StepStopped):
            run_step(flow, context, "n0", call=call, now_ms=0)
    assert context.results == {}
    assert context.last_node is None
    assert context.commit_state() == {}


# -- what is worth a retry (S9) --------------------------------------------------------------------------------


def chained(*errors: BaseException) -> BaseException:
    for outer, inner in pairwise(errors):
        outer.__cause__ = inner
    return errors[0]


@pytest.mark.parametrize(
    ("error", "retryable"),
    [
        (RuntimeError("x"), True),
        (SystemExit(1), True),
        (OSError("x"), True),
        (NodeException(1002, "x"), True),
        (NodeException(1003, "x"), True),
        (NodeException(4711, "x"), True),
        (NodeException(1001, "x"), False),
        (ValueError("x"), False),
        (OutputValidationError("x"), True),
        (chained(RuntimeError("x"), ValueError("y")), True),
        (chained(RuntimeError("x"), NodeException(1001, "y")), False),
        (chained(RuntimeError("x"), TimeoutError("y")), False),
        (chained(RuntimeError("x"), OSError("y"), NodeTimeoutError("z")), False),
        (chained(RuntimeError("x"), FlowCancelledException("y")), False),
        (chained(*[RuntimeError(str(depth)) for depth in range(5)], TimeoutError("too far down")), True),
        (FlowResultError(4001, "x"), False),
    ],
)
def test_s9_what_is_worth_a_retry(script: Any, error: BaseException, retryable: bool) -> None:
    assert script([error]).last.error.retryable is retryable


def test_a_chain_that_goes_round_ends(script: Any) -> None:
    first, second = RuntimeError("a"), RuntimeError("b")
    first.__cause__, second.__cause__ = second, first
    assert script([first]).last.error.cause == "RuntimeError"


# -- hostile exceptions and results ---------------------------------------------------------------------------


class NoText(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


class ExitsInText(Exception):
    def __str__(self) -> str:
        raise SystemExit(9)


class NotAText(Exception):
    def __str__(self) -> str:
        return 7  # type: ignore[return-value]  # noqa: PLE0307 - that is the point


def deep() -> None:
    deep()


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (SystemExit(3), "SystemExit: the code called sys.exit(3)"),
        (SystemExit("bye"), "SystemExit: the code called sys.exit('bye')"),
        (SystemExit(), "SystemExit: the code called sys.exit(None)"),
        (SystemExit(object()), "SystemExit: the code called sys.exit(…)"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
        (GeneratorExit(), "GeneratorExit"),
        (MemoryError(), "MemoryError"),
        (StopIteration(3), "StopIteration: 3"),
        (BaseException("base"), "BaseException: base"),
        (NoText(), "NoText (its text cannot be read: RuntimeError)"),
        (ExitsInText(), "ExitsInText (its text cannot be read: SystemExit)"),
        (NotAText(), "NotAText (its text cannot be read: TypeError)"),
        (RuntimeError("a\udcffb"), "RuntimeError: a?b"),
        (RuntimeError("a\0b"), "RuntimeError: a?b"),
        (ExceptionGroup("many", [ValueError("x")]), "ExceptionGroup: many (1 sub-exception)"),
    ],
)
def test_every_kind_of_exception_is_the_nodes_failure(script: Any, error: BaseException, text: str) -> None:
    failed = script([error]).last
    assert failed.error.message == f"node 'n0' failed: {text}"
    assert failed.error.exception == "NodeExecutionError"
    assert failed.error.cause == type(error).__name__
    assert failed.error.code == -500


def test_a_recursion_without_end_is_the_nodes_failure(script: Any) -> None:
    assert script([deep]).last.error.cause == "RecursionError"


@pytest.mark.parametrize("text", ["x" * 10_000_000, "é" * 10_000, "\U0001f600" * 9_000, "\udcff" * 50_000])
def test_long_messages_are_cut_to_8_kib(script: Any, text: str) -> None:
    failed = script([RuntimeError(text)]).last
    assert len(failed.error.message.encode("utf-8")) <= 8192
    assert failed.error.message.endswith("(cut)")


class HostileDict(dict):  # type: ignore[type-arg]
    def items(self) -> Any:
        raise SystemExit(5)


class BadRepr:
    def __repr__(self) -> str:
        raise RuntimeError("no repr")


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (lambda: {1, 2}, "$: a set is no JSON value"),
        (lambda: {"a": [object()]}, "$.a[0]: a object is no JSON value"),
        (lambda: float("nan"), "$: nan is no JSON number"),
        (lambda: {"a": float("inf")}, "$.a: inf is no JSON number"),
        (lambda: json.loads("[" * 300 + "]" * 300), "$[0][0][0][0][0][0][0][0][0][0]…: nested deeper than 256 levels"),
        (lambda: "\ud800", "$: the text holds a lone surrogate"),
        (lambda: {1: 2}, "$: the key 1 is a int"),
        (lambda: {BadRepr(): 2}, "whose repr raises RuntimeError"),
        (BadRepr, "a BadRepr is no JSON value"),
        (lambda: HostileDict(a=1), "SystemExit: the code called sys.exit(5)"),
        (lambda: b"bytes", "$: a bytes is no JSON value"),
        (lambda: 10**5000, "more than 4300 digits"),
        (lambda: "x" * (8 * 1024 * 1024), "the result has 8388610 bytes of JSON text; the limit is 8388608"),
    ],
)
def test_results_that_cannot_be_stored(script: Any, result: Any, text: str) -> None:
    failed = script([result], errorHandler={"retryTimes": 0}).last
    assert isinstance(failed, Failed)
    assert failed.error.cause == "NodeOutputError"
    assert failed.error.code == -500
    assert text in failed.error.message
    assert not failed.error.retryable


def test_a_result_that_contains_itself_cannot_be_stored(script: Any) -> None:
    endless: list[Any] = []
    endless.append(endless)
    assert script([lambda: endless]).last.error.cause == "NodeOutputError"


def test_a_result_that_cannot_be_stored_goes_through_the_error_handler(script: Any) -> None:
    driven = script([lambda: {1}, 5], errorHandler={"retryTimes": 1})
    assert driven.last.output == 5
    driven = script([lambda: {1}], errorHandler={"strategy": "continue-with", "defaultValue": "d"})
    assert driven.last.output == "d"


def test_results_are_what_the_store_will_give_back(script: Any) -> None:
    class Text(str):
        pass

    kept = {"a": (1, 2), "big": 2**80, "t": Text("x")}
    driven = script([lambda: kept])
    kept["later"] = True
    result = driven.context.results["n0"]
    assert result == {"a": [1, 2], "big": 2**80, "t": "x"}
    assert type(result["t"]) is str
    assert driven.last.output == json.loads(driven.last.output_json)


def test_rule_19_the_whole_context_is_bounded(parse: Parse) -> None:
    flow = parse(
        chain({"type": "mock", "value": "x" * 60}, {"type": "mock", "value": "y" * 60}), limits=Limits(context=100)
    )
    context = Context(execution_id="e1")
    values = {"n0": "x" * 60, "n1": "y" * 60}
    first = run_step(flow, context, "n0", call=lambda node: values[node.id], now_ms=0)
    assert isinstance(first, Advanced)
    again = run_step(flow, context, "n0", call=lambda node: values[node.id], now_ms=0)
    assert isinstance(again, Advanced), "a result that is replaced does not count twice (DECISIONS 22)"
    failed = run_step(flow, context, "n1", call=lambda node: values[node.id], now_ms=0)
    assert isinstance(failed, Failed)
    assert failed.error.cause == "NodeOutputError"
    assert "124 bytes; the limit is 100" in failed.error.message
    assert not failed.error.retryable
    assert "n1" not in context.results


# -- what a step sees and leaves behind -----------------------------------------------------------------------


def test_an_unknown_node_id_is_a_failure(parse: Parse) -> None:
    failed = run_step(parse(chain({"type": "mock"})), Context(execution_id="e"), "gone", call=lambda n: 1, now_ms=0)
    assert isinstance(failed, Failed)
    assert (failed.error.exception, failed.error.node, failed.error.retryable) == ("NodeNotFoundError", "gone", False)


def test_the_input_is_matched_on_start_and_defaults_are_not_applied(drive: Drive) -> None:
    declared = {
        "type": "object",
        "properties": {"n": {"type": "integer", "default": 3, "required": True}, "t": {"type": "string"}},
    }
    definition = chain({"type": "assignment", "output": "$INPUT"}, inputType=declared)
    assert drive(definition, {"n": 1}).last.output == {"n": 1}
    failed = drive(definition, {"n": "1"}).last
    assert failed.node_id == "s"
    assert "inputType: $INPUT.n: a whole number is wanted, this is the text '1'" in failed.error.message
    assert (failed.error.code, failed.error.cause, failed.error.retryable) == (-500, "InputError", False)
    assert "$INPUT.n: required" in drive(definition, {}).last.error.message


def test_the_input_is_not_matched_again_when_a_cycle_meets_the_start(parse: Parse) -> None:
    flow = parse(chain({"type": "mock"}, inputType={"type": "array"}))
    context = Context(execution_id="e1", input={}, last_node="n0")
    assert isinstance(run_step(flow, context, "s", call=lambda node: None, now_ms=0), Advanced)


def test_roots(drive: Drive) -> None:
    roots = [
        "$INPUT.a",
        "$NODE.n0",
        "$GLOBAL",
        "$PARENT",
        "$ENV",
        "$FLOW_ID",
        "$FLOW",
        "$LAST_NODE",
        "$BRANCH",
        "$EXECUTION_ID",
    ]
    definition = chain(
        {"type": "mock", "value": 1}, {"type": "assignment", "output": roots}, flow_id="f", globalContext={"k": "v"}
    )
    assert drive(definition, {"a": 2}).last.output == [
        *(2, 1, {"k": "v", "flow_id": "f"}, {}, {}, "f", "f", "n0", None, "e1"),
    ]


def test_decisions_22_a_node_met_again_overwrites_its_result(drive: Drive) -> None:
    definition = {
        "nodes": [
            {"type": "start", "id": "s", "next": "count"},
            {
                "type": "assignment",
                "id": "count",
                "output": "$F.add($F.ifelse($NODE.count, $NODE.count, 0), 1)",
                "next": "i",
            },
            {
                "type": "if",
                "id": "i",
                "condition": condition("$NODE.count", "lt", 3),
                "next": "count",
                "else_next": "e",
            },
            {"type": "end", "id": "e", "output": "$NODE.count"},
        ]
    }
    driven = drive(definition)
    assert driven.last.output == 3
    assert driven.visited == ["s", "count", "i", "count", "i", "count", "i", "e"]


class Keeper(Node):
    node_type: ClassVar[str] = "keeper"
    branching: ClassVar[bool] = False
    fails: bool = False

    def execute(self, execution: Execution) -> Any:
        before = execution.get_state("n", 0)
        execution.set_state("n", before + 1)
        if self.fails:
            raise RuntimeError("after set_state")
        return before


def test_state_is_kept_by_steps_that_succeed_only(drive: Drive, registry: NodeRegistry) -> None:
    registry.register(Keeper)
    continues = {"strategy": "continue", "retryTimes": 2}
    driven = drive(
        chain(
            {"type": "keeper"},
            {"type": "keeper", "fails": True, "errorHandler": continues},
            {"type": "keeper"},
            {"type": "keeper", "fails": True},
        )
    )
    assert [getattr(outcome, "state_json", None) for outcome in driven.outcomes] == [
        *({}, {"n": b"1"}, {}, {"n": b"2"}, None),
    ]
    assert driven.context.step_state.get("n") == 2


def test_a_context_can_be_built_from_stored_bytes(parse: Parse) -> None:
    flow = parse(chain({"type": "assignment", "output": ["$NODE.x.a", "$LAST_NODE"]}))
    context = Context(execution_id="e1", last_node="x", branch="b")
    context.load_result("x", b'{"a": 123456789012345678901234567890}')
    context.load_state("k", b"[1]")
    assert context.result_bytes == 37
    outcome = run_step(flow, context, "n0", call=lambda node: node.execute(Execution(node, context)), now_ms=0)
    assert isinstance(outcome, Advanced)
    assert outcome.result == [123456789012345678901234567890, "x"]
    assert context.step_state.get("k") == [1]


def test_rule_17_now_is_the_start_of_the_step(drive: Drive) -> None:
    driven = drive(chain({"type": "assignment", "output": ["$F.now()", "$F.now()"]}))
    first, second = driven.last.output
    assert first == second
    assert first.startswith("2023-11-14")


class Router(Node):
    node_type: ClassVar[str] = "router"
    branching: ClassVar[bool] = True
    branches: list[dict[str, Any]] = []  # noqa: RUF012 - pydantic copies defaults
    answer: Any = None

    def execute(self, execution: Execution) -> Any:
        return self.answer


@pytest.mark.parametrize(
    ("answer", "expected"),
    [("a", "a"), ("b", "FlowExecutionException"), ("gone", "NodeNotFoundError"), (3, "FlowExecutionException")],
)
def test_a_plugin_may_branch_to_its_own_branches_only(
    drive: Drive, registry: NodeRegistry, answer: Any, expected: str
) -> None:
    registry.register(Router)
    nodes = [
        {"type": "start", "id": "s", "next": "r"},
        {"type": "router", "id": "r", "branches": [{"next": "a"}], "answer": answer},
        {"type": "end", "id": "a"},
        {"type": "end", "id": "b"},
    ]
    last = drive({"nodes": nodes}).last
    assert last.node_id == expected if isinstance(last, Ended) else last.error.exception == expected
