"""The outline, read without node types, agrees with the parser on start, timeouts and types (FLOW-FORMAT 3)."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plaita.errors import FlowDefinitionError
from plaita.flow.model import FlowDefinition, parse_flow
from plaita.flow.outline import flow_hash, outline
from plaita.nodes.builtin import BUILT_IN
from plaita.nodes.registry import NodeRegistry

Parse = Callable[..., FlowDefinition]
REGISTRY = NodeRegistry(BUILT_IN)

SHAPES: list[tuple[str, list[dict[str, Any]], str | None]] = [
    ("a start node", [{"type": "end", "id": "e"}, {"type": "start", "id": "s", "next": "e"}], "s"),
    (
        "two start nodes: the first",
        [
            {"type": "start", "id": "a", "next": "e"},
            {"type": "start", "id": "b", "next": "e"},
            {"type": "end", "id": "e"},
        ],
        "a",
    ),
    ("only node nothing points to", [{"type": "end", "id": "e"}, {"type": "mock", "id": "m", "next": "e"}], "m"),
    ("a single node", [{"type": "end", "id": "e"}], "e"),
    ("a node that points to itself", [{"type": "mock", "id": "m", "next": "m"}], None),
    (
        "pointed to by else_next",
        [
            {"type": "end", "id": "e"},
            {"type": "if", "id": "i", "condition": None, "next": "e", "elseNext": "f"},
            {"type": "end", "id": "f"},
        ],
        "i",
    ),
    (
        "pointed to by branches, by next and by name",
        [
            {"type": "end", "id": "e"},
            {"type": "end", "id": "f"},
            {
                "type": "switch",
                "id": "w",
                "branches": [
                    {"name": "x", "next": "e", "isDefault": True},
                    {"name": "f", "condition": {"field": "$INPUT.x", "operator": "eq", "value": 1}},
                ],
            },
        ],
        "w",
    ),
    (
        "pointed to by cases and default",
        [
            {"type": "end", "id": "e"},
            {"type": "end", "id": "f"},
            {"type": "case", "id": "c", "target": "$INPUT.x", "cases": [{"id": "e", "value": 1}], "default": "f"},
        ],
        "c",
    ),
    ("the next of an end counts for nothing", [{"type": "end", "id": "e", "next": "e"}], "e"),
    (
        "an id in NFC, a next in NFD",
        [{"type": "end", "id": "\u00e9"}, {"type": "mock", "id": "m", "next": "e\u0301"}],
        "m",
    ),
    ("two candidates", [{"type": "end", "id": "a"}, {"type": "end", "id": "b"}], None),
    ("nothing", [], None),
]


@pytest.mark.parametrize(("nodes", "start"), [each[1:] for each in SHAPES], ids=[each[0] for each in SHAPES])
def test_rule_3_start_of_parser_and_outline(parse: Parse, nodes: list[dict[str, Any]], start: str | None) -> None:
    definition = {"nodes": nodes}
    if start is None:
        with pytest.raises(FlowDefinitionError) as of_parser:
            parse(definition)
        with pytest.raises(FlowDefinitionError) as of_outline:
            outline(definition)
        assert of_outline.value.problems[-1] == of_parser.value.problems[-1]
    else:
        assert parse(definition).start == start
        assert outline(definition).start == start


IDS = st.sampled_from(["a", "b", "c", "d"])
ANY_NODE = st.one_of(
    st.fixed_dictionaries({"type": st.sampled_from(["mock", "start", "end"]), "id": IDS}, optional={"next": IDS}),
    st.fixed_dictionaries(
        {"type": st.just("if"), "id": IDS}, optional={"next": IDS, "else_next": IDS, "elseNext": IDS}
    ),
    st.fixed_dictionaries(
        {
            "type": st.just("switch"),
            "id": IDS,
            "branches": st.lists(
                st.fixed_dictionaries({"isDefault": st.just(True), "name": IDS}, optional={"next": IDS}), max_size=3
            ),
        }
    ),
    st.fixed_dictionaries(
        {
            "type": st.just("case"),
            "id": IDS,
            "target": st.just(1),
            "cases": st.lists(st.fixed_dictionaries({"id": IDS, "value": st.integers()}), max_size=3),
        },
        optional={"default": IDS},
    ),
)


@settings(max_examples=200, deadline=None)
@given(st.lists(ANY_NODE, max_size=5), st.sampled_from([None, "PT5S", 300, "250"]))
def test_rule_3_parser_and_outline_agree_on_any_shape(nodes: list[dict[str, Any]], timeout: Any) -> None:
    definition = {"nodes": nodes, "timeout": timeout}
    try:
        parsed = parse_flow(definition, REGISTRY)
    except FlowDefinitionError:
        return
    seen = outline(definition)
    assert seen.start == parsed.start
    assert seen.timeout_ms == parsed.timeout_ms
    assert {node_id: node.type for node_id, node in seen.nodes.items()} == {
        node_id: plan.type for node_id, plan in parsed.plans.items()
    }
    assert {node_id: node.timeout_ms for node_id, node in seen.nodes.items()} == {
        node_id: plan.timeout_ms for node_id, plan in parsed.plans.items()
    }


def test_the_outline_reads_names_and_timeouts_of_any_type() -> None:
    seen = outline(
        {
            "timeout": "PT1M",
            "timeoutIncludesWaits": True,
            "nodes": [
                {"type": "llm", "id": "ask", "name": "Ask", "timeout": "PT5S", "next": "e"},
                {"type": "end", "id": "e"},
            ],
        }
    )
    assert (seen.start, seen.timeout_ms, seen.timeout_includes_waits) == ("ask", 60_000, True)
    assert seen.nodes["ask"].type == "llm"
    assert (seen.nodes["ask"].name, seen.nodes["ask"].timeout_ms) == ("Ask", 5000)
    assert (seen.nodes["e"].name, seen.nodes["e"].timeout_ms) == ("e", None)


@pytest.mark.parametrize(
    "definition",
    [
        {},
        {"nodes": 3},
        {"nodes": [3]},
        {"nodes": [{"id": "a"}]},
        {"nodes": [{"type": "end", "id": "e", "timeout": "soon"}]},
        {"nodes": [{"type": "end", "id": "e"}], "timeout": []},
        {"nodes": [{"type": "end", "id": "e"}, {"type": "end", "id": "e"}]},
        None,
        [],
    ],
)
def test_a_foreign_definition_that_is_wrong_is_a_definition_error(definition: Any) -> None:
    with pytest.raises(FlowDefinitionError):
        outline(definition)


def test_the_outline_imports_no_node_code() -> None:
    code = "import plaita.flow.outline, sys; print(*[m for m in sys.modules if m.startswith('plaita.nodes')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_f6_the_hash_is_of_the_content(parse: Parse) -> None:
    definition = {"flow_id": "f", "nodes": [{"type": "end", "id": "e", "output": {"b": 1, "a": "é"}}]}
    shuffled = '{"nodes":[{"output":{"a":"\\u00e9","b":1},"id":"e","type":"end"}],\n "flow_id":"f"}'
    assert parse(definition).hash == parse(shuffled).hash == flow_hash(definition)
    assert flow_hash(json.loads(shuffled)) == flow_hash(definition)
    assert flow_hash({**definition, "desc": ""}) != flow_hash(definition)
    assert len(flow_hash(definition)) == 64
