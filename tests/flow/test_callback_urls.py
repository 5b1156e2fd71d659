"""``$F.callback_url``: the URL of a wait that is still to come (DECISIONS 30)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from plaita.callback_url import CallbackKey, execution_key, is_token, read_path
from plaita.errors import ExpressionError, FlowDefinitionError
from plaita.flow.callback_urls import CallbackUrls
from plaita.flow.context import Context
from plaita.flow.expressions import evaluate
from plaita.flow.functions import register, unregister
from plaita.flow.model import FlowDefinition, parse_flow
from plaita.nodes.registry import NodeRegistry

KEY = CallbackKey(execution_key("secret", "plaita", "acme", "x1"), "https://h")


def flow(registry: NodeRegistry, output: Any = None, **fields: Any) -> FlowDefinition:
    nodes = [
        {"type": "start", "id": "s", "next": "a"},
        {"type": "assignment", "id": "a", "next": "cb", "output": output},
        {"type": "http_callback", "id": "cb", "next": "é", **fields},
        {"type": "http_callback", "id": "é", "next": "e"},
        {"type": "end", "id": "e"},
    ]
    return parse_flow({"flow_id": "f", "nodes": nodes}, registry)


def asked(
    registry: NodeRegistry,
    text: str,
    key: CallbackKey | None = KEY,
    visits: Mapping[str, int] | None = None,
    given: Any = None,
    **fields: Any,
) -> Any:
    context = Context(execution_id="x1", flow_id="f", input=given)
    seen = visits or {}
    plans = flow(registry, **fields).plans
    context.callback_url = CallbackUrls(plans, key, "acme", "x1", lambda node: seen.get(node, 1))
    return evaluate(text, context.scope(0))


@pytest.mark.parametrize(
    ("text", "given", "node", "visit", "prefix"),
    [
        ("$F.callback_url('cb')", None, "cb", 3, "/signed"),
        ("{% $F.callback_url($INPUT) %}", "cb", "cb", 3, "/signed"),
        ("$F.callback_url('é')", None, "é", 1, ""),
        ("$F.callback_url('e\u0301')", None, "é", 1, ""),
    ],
)
def test_decision_30_it_is_the_url_of_the_nodes_next_visit(
    registry: NodeRegistry, text: str, given: Any, node: str, visit: int, prefix: str
) -> None:
    url = asked(registry, text, visits={"cb": 3}, given=given, callbackPath="/signed")
    found = read_path(url.removeprefix("https://h"))
    assert found is not None
    place, token = found
    assert (place.prefix, place.tenant, place.execution_id, place.node_id, place.visit) == (
        *(prefix, "acme", "x1"),
        *(node, visit),
    )
    assert is_token(KEY.key, place, token)


@pytest.mark.parametrize(
    ("text", "key", "reason"),
    [
        ("$F.callback_url('cb')", None, "PLAITA_CALLBACK_SECRET is not set"),
        ("$F.callback_url('cb')", CallbackKey(KEY.key), "PLAITA_CALLBACK_BASE_URL is not set"),
        ("$F.callback_url($INPUT.node)", KEY, "no node has the id 'nobody'"),
        ("$F.callback_url($INPUT.node)", None, "no node has the id 'nobody'"),
        ("$F.callback_url($INPUT.plain)", KEY, "'a' is of type 'assignment'; only http_callback nodes"),
        ("$F.callback_url($INPUT.number)", KEY, "expects a text"),
    ],
)
def test_where_none_can_be_made_it_says_why(
    registry: NodeRegistry, text: str, key: CallbackKey | None, reason: str
) -> None:
    with pytest.raises(ExpressionError, match=reason):
        asked(registry, text, key, given={"node": "nobody", "plain": "a", "number": 5})


def test_outside_of_a_step_there_is_none() -> None:
    with pytest.raises(ExpressionError, match="only a step of an execution"):
        evaluate("$F.callback_url('cb')", Context(execution_id="x1").scope(0))


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        ("$F.callback_url('cp')", "no node has the id 'cp'; there is 'cb', 'é'"),
        ({"x": ["to {% $F.callback_url('a') %}"]}, "'a' is of type 'assignment'; only http_callback nodes"),
        ("$F.upper($F.callback_url('nobody'))", "no node has the id 'nobody'"),
        ("$F.callback_url(5)", "the id of a node is wanted"),
    ],
)
def test_a_literal_that_names_no_callback_refuses_the_flow(registry: NodeRegistry, output: Any, reason: str) -> None:
    with pytest.raises(FlowDefinitionError) as caught:
        flow(registry, output)
    [problem] = caught.value.problems
    assert problem.place.startswith("nodes[1].output")
    assert reason in problem.reason


def test_a_flow_that_names_its_callbacks_is_read(registry: NodeRegistry) -> None:
    assert (
        flow(registry, ["$F.callback_url('cb')", "$F.callback_url('e\u0301')", "$F.callback_url($INPUT)"]).warnings
        == []
    )


def test_a_function_of_that_name_of_a_plug_in_takes_what_it_likes(registry: NodeRegistry) -> None:
    register("callback_url", lambda number: f"mine {number}", override=True)
    try:
        assert asked(registry, "$F.callback_url(5)") == "mine 5"
        assert flow(registry, "$F.callback_url('nobody')").warnings == []
    finally:
        unregister("callback_url")
