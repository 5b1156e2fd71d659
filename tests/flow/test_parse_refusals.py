"""FLOW-FORMAT 1-3, 18-20: what is refused or warned of when a flow is parsed, with place and reason."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from plaita.errors import FlowDefinitionError
from plaita.flow.limits import Limits
from plaita.flow.model import LATER_TYPES, FlowDefinition, Preparation, parse_flow
from plaita.nodes.base import EventNode, Node
from plaita.nodes.builtin import BUILT_IN
from plaita.nodes.registry import NodeRegistry

Parse = Callable[..., FlowDefinition]

START = {"type": "start", "id": "s", "next": "e"}
END = {"type": "end", "id": "e"}
HOLDS = {"field": "$INPUT.x", "operator": "eq", "value": 1}


def flow(*nodes: Any, **fields: Any) -> dict[str, Any]:
    return {"nodes": list(nodes), **fields}


def between(node: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """A flow whose second node (``nodes[1]``) is ``node``."""
    return flow({"type": "start", "id": "s", "next": "n"}, {"id": "n", "next": "e", **node}, END, **fields)


def problems(parse: Parse, definition: Any, **options: Any) -> list[str]:
    with pytest.raises(FlowDefinitionError) as caught:
        parse(definition, **options)
    return [str(problem) for problem in caught.value.problems]


ONE_FAULT: list[tuple[str, Any, str]] = [
    # -- flow fields
    ("no nodes", {}, "nodes: required field is missing"),
    ("a bare node", {"type": "mock", "id": "x"}, "nodes: required field is missing; this looks like a single node"),
    ("nodes of a wrong type", {"nodes": {}}, "nodes: a list of nodes is wanted, this is an object"),
    ("no node at all", flow(), "nodes: the flow has no nodes, so nothing to start with"),
    ("flow timeout", flow(START, END, timeout="5 s"), "timeout: '5 s' is no duration"),
    ("flow timeout of a wrong type", flow(START, END, timeout=[1]), "timeout: a list is no duration"),
    ("runtime", flow(START, END, runtime="java"), "runtime: 'python' is wanted, not 'java'"),
    ("metadata", flow(START, END, metadata=[1]), "metadata: an object is wanted, not list"),
    ("global context", flow(START, END, globalContext="x"), "globalContext: an object is wanted, not text 'x'"),
    ("exposed variables", flow(START, END, expose_env="HOME"), "expose_env: a list is wanted, not text 'HOME'"),
    ("one exposed variable", flow(START, END, exposeEnv=["A", 3]), "exposeEnv[1]: text is wanted, not number 3"),
    ("flow id", flow(START, END, flow_id="a b"), "flow_id: 'a b' has the character ' ' (U+0020) at position 1"),
    ("flow id, other spelling", flow(START, END, id=""), "id: '' has 0 characters; an id has 1 to 200"),
    ("version", flow(START, END, version=1.5), "version: text is wanted, not number 1.5"),
    ("input type", flow(START, END, inputType=3), "inputType: an object is wanted, not number 3"),
    ("input type without type", flow(START, END, inputType={}), "inputType.data_type: required field is missing"),
    ("input type text", flow(START, END, input_type="{"), "input_type: not JSON"),
    (
        "waits",
        flow(START, END, timeoutIncludesWaits="yes"),
        "timeoutIncludesWaits: true or false is wanted, not text 'yes'",
    ),
    # -- nodes
    ("node is no object", flow(START, END, 7), "nodes[2]: a node is an object, this is a number: 7"),
    ("no type", flow({"id": "x"}), "nodes[0].type: required field is missing"),
    ("type is no text", flow({"id": "x", "type": 3}), "nodes[0].type: text is wanted, this is a number: 3"),
    ("unknown type", between({"type": "asignment"}), "nodes[1].type: unknown node type 'asignment'; did you mean 'ass"),
    (
        "type far off",
        between({"type": "zzz"}),
        "nodes[1].type: unknown node type 'zzz'; known: approval, assignment, case",
    ),
    ("no id", flow(START, {"type": "end"}, END), "nodes[1].id: required field is missing"),
    ("id is no text", flow(START, {"type": "end", "id": 5}, END), "nodes[1].id: text is wanted, not number 5"),
    (
        "id too long",
        flow(START, {"type": "end", "id": "x" * 201}, END),
        "nodes[1].id: 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx…' has 201 characters; an id has 1 to 200",
    ),
    ("two nodes with one id", flow(START, END, END), "nodes[2].id: two nodes have the id 'e'; the other is nodes[1]"),
    ("next to nowhere", between({"type": "mock", "next": "ende"}), "nodes[1].next: no node has the id 'ende'"),
    ("next of a wrong type", between({"type": "mock", "next": 3}), "nodes[1].next: text is wanted, not number 3"),
    ("node timeout", between({"type": "mock", "timeout": "5x"}), "nodes[1].timeout: '5x' is no duration"),
    (
        "negative timeout",
        between({"type": "mock", "timeout": -1}),
        "nodes[1].timeout: -1: a duration cannot be negative",
    ),
    ("boolean timeout", between({"type": "mock", "timeout": True}), "nodes[1].timeout: True is no duration"),
    (
        "strategy",
        between({"type": "mock", "errorHandler": {"strategy": "contine"}}),
        "nodes[1].errorHandler.strategy: unknown strategy 'contine'; did you mean 'continue'?",
    ),
    (
        "strategy retry",
        between({"type": "mock", "error_handler": {"strategy": "retry"}}),
        "nodes[1].error_handler.strategy: unknown strategy 'retry'; for retries set retryTimes",
    ),
    (
        "timeout strategy of a wrong type",
        between({"type": "mock", "timeoutHandler": {"strategy": 3}}),
        "nodes[1].timeoutHandler.strategy: unknown strategy 3",
    ),
    (
        "handler of a wrong type",
        between({"type": "mock", "errorHandler": "continue"}),
        "nodes[1].errorHandler: an object is wanted, not text 'continue'",
    ),
    (
        "retry times",
        between({"type": "mock", "errorHandler": {"retryTimes": "three"}}),
        "nodes[1].errorHandler.retryTimes: a whole number is wanted, not text 'three'",
    ),
    (
        "handler code",
        between({"type": "mock", "errorHandler": {"code": [1]}}),
        "nodes[1].errorHandler.code: a whole number or text is wanted, not list",
    ),
    # -- expressions and conditions
    ("bad expression", between({"type": "assignment", "output": "$INPUT."}), "nodes[1].output"),
    ("bad expression deep inside", between({"type": "assignment", "output": {"a": [1, "$F.upper("]}}), "nodes[1].outp"),
    ("unknown function", between({"type": "assignment", "output": "$F.uper($INPUT.x)"}), "nodes[1].output"),
    ("bad template", between({"type": "assignment", "output": "a {% $INPUT. %} b"}), "nodes[1].output"),
    ("bad expression of an end", flow(START, {**END, "output": "$F.add(1"}), "nodes[1].output"),
    (
        "unknown operator",
        between({"type": "if", "else_next": "e", "condition": {"field": 1, "operator": "equals", "value": 1}}),
        "nodes[1].condition.operator",
    ),
    (
        "incomplete condition",
        between({"type": "if", "else_next": "e", "condition": {"field": 1, "operator": "eq"}}),
        "nodes[1].condition",
    ),
    (
        "condition of a wrong type",
        between({"type": "if", "else_next": "e", "condition": "$INPUT.x"}),
        "nodes[1].condition",
    ),
    (
        "relation",
        between({"type": "if", "else_next": "e", "condition": {"relation": "xor", "conditions": []}}),
        "nodes[1].condition.relation",
    ),
    # -- branching nodes
    (
        "else_next to nowhere",
        between({"type": "if", "else_next": "x", "condition": HOLDS}),
        "nodes[1].else_next: no node has the id 'x'",
    ),
    (
        "elseNext to nowhere",
        between({"type": "if", "elseNext": "x", "condition": HOLDS}),
        "nodes[1].elseNext: no node has the id 'x'",
    ),
    ("switch without branches", between({"type": "switch"}), "nodes[1].branches: required field is missing"),
    (
        "branch to nowhere",
        between({"type": "switch", "branches": [{"name": "a", "next": "x", "condition": HOLDS}]}),
        "nodes[1].branches[0].next: no node has the id 'x'",
    ),
    (
        "branch name to nowhere",
        between({"type": "switch", "branches": [{"name": "x", "condition": HOLDS}]}),
        "nodes[1].branches[0].name: no node has the id 'x'",
    ),
    (
        "branch without condition",
        between({"type": "switch", "branches": [{"next": "e"}]}),
        "nodes[1].branches[0].condition: required, because the branch is not the default",
    ),
    (
        "branch without target",
        between({"type": "switch", "branches": [{"isDefault": True}]}),
        "nodes[1].branches[0]: needs a next",
    ),
    (
        "branch of a wrong type",
        between({"type": "switch", "branches": ["e"]}),
        "nodes[1].branches[0]: an object is wanted, not text 'e'",
    ),
    (
        "priority",
        between({"type": "switch", "branches": [{"next": "e", "isDefault": True, "priority": "high"}]}),
        "nodes[1].branches[0].priority: a number is wanted, not text 'high'",
    ),
    (
        "condition of a branch",
        between(
            {"type": "switch", "branches": [{"next": "e", "condition": {"field": 1, "operator": "??", "value": 1}}]}
        ),
        "nodes[1].branches[0].condition.operator",
    ),
    (
        "case to nowhere",
        between({"type": "case", "target": "$INPUT.x", "cases": [{"id": "x", "value": 1}], "default": "e"}),
        "nodes[1].cases[0].id: no node has the id 'x'",
    ),
    (
        "case default to nowhere",
        between({"type": "case", "target": "$INPUT.x", "cases": [{"id": "e", "value": 1}], "default": "x"}),
        "nodes[1].default: no node has the id 'x'",
    ),
    (
        "case without value",
        between({"type": "case", "target": "$INPUT.x", "cases": [{"id": "e"}], "default": "e"}),
        "nodes[1].cases[0].value: required field is missing",
    ),
    (
        "case without target",
        between({"type": "case", "cases": [{"id": "e", "value": 1}], "default": "e"}),
        "nodes[1].target: required field is missing",
    ),
    (
        "case with a bad expression",
        between({"type": "case", "target": "$INPUT.x", "cases": [{"id": "e", "value": "$F.no()"}], "default": "e"}),
        "nodes[1].cases[0].value",
    ),
    (
        "upstream item without value",
        between({"type": "assignment", "upstreamOutput": [{"upstream": "s"}]}),
        "nodes[1].upstreamOutput[0]: needs the field 'output'",
    ),
    (
        "output type of a wrong type",
        between({"type": "assignment", "outputType": "integer"}),
        "nodes[1].outputType: not JSON",
    ),
    # -- start
    (
        "several candidates",
        flow({"type": "mock", "id": "a", "next": "e"}, {"type": "mock", "id": "b", "next": "e"}, END),
        "nodes: no node of type 'start', and 2 nodes that nothing points to: 'a', 'b'",
    ),
    (
        "no candidate",
        flow({"type": "mock", "id": "a", "next": "b"}, {"type": "mock", "id": "b", "next": "a"}),
        "nodes: no node of type 'start', and every node is pointed to by another",
    ),
    # -- what is no definition
    ("null", None, "a flow is an object with a list of nodes; this is a null"),
    ("list", [], "a flow is an object with a list of nodes; this is a list"),
    ("empty text", "", "the text of the flow is empty"),
    ("blank text", " \n", "the text of the flow is empty"),
    ("no JSON", "hello there", "a flow is an object with a list of nodes; this is a text: 'hello there'"),
    ("cut JSON", '{"nodes": [', "not JSON"),
    ("JSON of a wrong type", "3", "a flow is an object with a list of nodes; this is a number: 3"),
    ("no UTF-8", b'{"nodes": "\xff"}', "not UTF-8: byte 0xff at position 11"),
    ("lone surrogate", '{"nodes": [], "desc": "\ud800"}', "not UTF-8: a lone surrogate"),
    ("escaped lone surrogate", '{"nodes": [], "desc": "\\ud800"}', "lone surrogate"),
    ("key twice", '{"nodes": [{"type": "start", "type": "end", "id": "e"}]}', "the key 'type' stands twice"),
    ("key twice by an escape", '{"nodes": [], "a": 1, "\\u0061": 2}', "the key 'a' stands twice"),
    ("NaN in text", '{"nodes": [], "metadata": {"x": NaN}}', "NaN is no JSON number"),
    ("NaN in a dict", flow(START, END, metadata={"x": float("nan")}), "metadata.x: nan is no JSON number"),
    ("a set in a dict", flow(START, END, metadata={"x": {1}}), "metadata.x: a set is no JSON value"),
    ("a number as key", flow(START, END, metadata={1: 2}), "metadata: the key 1 is a int; JSON keys are texts"),
    ("bytes that are nothing", b"\x00\x01\x02", "neither JSON nor YAML"),
]


@pytest.mark.parametrize(("definition", "expected"), [each[1:] for each in ONE_FAULT], ids=[e[0] for e in ONE_FAULT])
def test_rule_3_refused_with_place_and_reason(parse: Parse, definition: Any, expected: str) -> None:
    found = problems(parse, definition)
    assert len(found) == 1, found
    assert expected in found[0]
    if "nodes[" in expected:
        assert found[0].startswith(expected)


@pytest.mark.parametrize("node_type", sorted(LATER_TYPES))
def test_rule_3_types_of_later_builds_are_named(parse: Parse, node_type: str) -> None:
    (found,) = problems(parse, between({"type": node_type}))
    assert found == (
        f"nodes[1].type: node type {node_type!r} is not in this build; "
        "known: approval, assignment, case, delay, end, event, http_callback, if, mock, redis_queue, start, switch"
    )


def test_rule_3_every_problem_of_a_flow_is_listed_at_once(parse: Parse) -> None:
    found = problems(
        parse,
        flow(
            {"type": "strat", "id": "s", "next": "nowhere"},
            {"type": "assignment", "id": "a b", "timeout": "x", "output": "$F.nothing()"},
            {"type": "if", "id": "c", "next": "s", "elseNext": "d", "condition": {"field": 1}, "errorHandler": 3},
            timeout="soon",
            runtime="ruby",
        ),
    )
    assert [each.split(":")[0] for each in found] == [
        "runtime",
        "timeout",
        "nodes[0].type",
        "nodes[1].id",
        "nodes[1].timeout",
        "nodes[1].output",
        "nodes[2].errorHandler",
        "nodes[2].condition",
        "nodes[0].next",
        "nodes[2].elseNext",
        "nodes",
    ]


def test_rule_3_a_wrong_field_does_not_hide_a_bad_expression(parse: Parse) -> None:
    found = problems(parse, between({"type": "assignment", "timeout": "x", "output": "$F.nothing()"}))
    assert [each.split(":")[0] for each in found] == ["nodes[1].timeout", "nodes[1].output"]


def test_rule_19_text_size(parse: Parse) -> None:
    text = json.dumps(flow(START, END, desc="x" * 5_000_000))
    for definition in (text, text.encode()):
        (found,) = problems(parse, definition)
        assert "the limit is 4194304" in found


def test_rule_19_number_of_nodes(parse: Parse) -> None:
    many = [{"type": "mock", "id": f"n{index}", "next": f"n{index + 1}"} for index in range(10_000)]
    (found,) = problems(parse, flow(*many, END))
    assert found == "nodes: 10001 nodes; the limit is 10000"


def test_rule_19_ten_thousand_nodes_are_read(parse: Parse) -> None:
    many = [{"type": "mock", "id": f"n{index}", "next": f"n{index + 1}"} for index in range(9_999)]
    parsed = parse(flow(*many, {"type": "end", "id": "n9999"}))
    assert parsed.start == "n0"
    assert len(parsed.plans) == 10_000


def test_rule_19_ten_thousand_wrong_nodes_are_refused_in_bounded_length(parse: Parse) -> None:
    wrong = [{"type": f"mokc{index}", "id": f"n{index}", "next": f"x{index}"} for index in range(10_000)]
    found = problems(parse, flow(*wrong))
    assert len(found) == 501
    assert found[-1] == "and 19501 more problems"


@pytest.mark.parametrize("depth", [65, 600, 100_000])
def test_rule_19_depth_of_text(parse: Parse, depth: int) -> None:
    for opening, closing in (("[", "]"), ('{"a":', "}")):
        value = opening * depth + "1" + closing * depth
        text = '{"nodes": [{"type": "mock", "id": "m", "value": ' + value + "}]}"
        (found,) = problems(parse, text)
        assert "nested deeper than" in found


def test_rule_19_depth_of_a_dict(parse: Parse) -> None:
    value: Any = 1
    for _ in range(100_000):
        value = [value]
    (found,) = problems(parse, between({"type": "mock", "value": value}))
    assert "nested deeper than" in found
    endless: dict[str, Any] = between({"type": "mock"})
    endless["metadata"] = {"again": endless}
    (found,) = problems(parse, endless)
    assert "nested deeper than" in found


def test_rule_19_limits_are_settings(parse: Parse) -> None:
    parse(between({"type": "mock", "value": [[[[1]]]]}))
    (found,) = problems(parse, between({"type": "mock", "value": [[[[1]]]]}), limits=Limits(depth=6))
    assert found == "nodes[1].value[0][0][0]: nested deeper than 6 levels, the limit of a definition"
    (found,) = problems(parse, between({"type": "mock"}), limits=Limits(nodes=2))
    assert "the limit is 2" in found


def test_rule_20_ids_are_letters_of_any_script_and_compared_in_nfc(parse: Parse) -> None:
    parsed = parse(flow({"type": "start", "id": "开始", "next": "cafe\u0301"}, {"type": "end", "id": "caf\u00e9"}))
    assert parsed.start == "开始"
    assert list(parsed.nodes) == ["开始", "caf\u00e9"]
    assert parsed.plans["开始"].next_node == "caf\u00e9"


def test_a_flow_that_is_refused_changes_nothing_given_in(parse: Parse) -> None:
    definition = between({"type": "assignment", "output": {"a": ["$INPUT.x"]}})
    before = json.dumps(definition)
    parsed = parse(definition)
    definition["nodes"][1]["output"]["a"].append("later")
    assert json.dumps(parsed.raw) == before


# -- spelling (rule 1) ---------------------------------------------------------------------------------


def test_rule_1_snake_and_camel_case_mean_the_same(parse: Parse) -> None:
    snake = {
        "flow_id": "f",
        "input_type": {"data_type": "object"},
        "output_type": {"data_type": "any"},
        "global_context": {"a": 1},
        "expose_env": ["HOME"],
        "timeout_includes_waits": True,
        "nodes": [
            {"type": "start", "id": "s", "next": "i"},
            {"type": "if", "id": "i", "condition": HOLDS, "next": "a", "else_next": "w"},
            {
                "type": "assignment",
                "id": "a",
                "next": "e",
                "output_type": {"data_type": "any", "is_required": True, "item_type": {"data_type": "any"}},
                "upstream_output": [{"upstream": "i", "output": 1}],
                "error_handler": {"strategy": "continue_with", "default_value": 1, "retry_times": 2, "error_code": 7},
                "timeout_handler": {"strategy": "continue-with", "default_value": 2},
            },
            {"type": "switch", "id": "w", "branches": [{"name": "x", "next": "e", "is_default": True}]},
            {"type": "end", "id": "e", "result_type": "nop"},
        ],
    }
    text = json.dumps(snake)
    camel = {
        "flow_id": "flowId",
        "input_type": "inputType",
        "output_type": "outputType",
        "global_context": "globalContext",
        "expose_env": "exposeEnv",
        "timeout_includes_waits": "timeoutIncludesWaits",
        "else_next": "elseNext",
        "data_type": "dataType",
        "is_required": "isRequired",
        "item_type": "itemType",
        "upstream_output": "upstreamOutput",
        "error_handler": "errorHandler",
        "timeout_handler": "timeoutHandler",
        "default_value": "defaultValue",
        "retry_times": "retryTimes",
        "error_code": "code",
        "is_default": "isDefault",
        "result_type": "resultType",
    }
    for old, new in camel.items():
        assert f'"{old}"' in text
        text = text.replace(f'"{old}"', f'"{new}"')
    first, second = parse(snake), parse(text)
    assert first.warnings == second.warnings == []
    for node_id, node in first.nodes.items():
        assert node.model_dump() == second.nodes[node_id].model_dump()
    assert second.nodes["a"].error_handler.retry_times == 2
    assert second.nodes["a"].error_handler.code == 7
    assert second.nodes["a"].error_handler.default_value == 1
    assert second.flow_id == "f"
    assert second.expose_env == ("HOME",)
    assert second.global_context == {"a": 1}
    assert second.timeout_includes_waits


@pytest.mark.parametrize(
    ("fields", "flow_id"),
    [
        ({"flow_id": "a", "flowId": "b", "id": "c"}, "a"),
        ({"flowId": "b", "id": "c"}, "b"),
        ({"flow_id": None, "id": "c"}, "c"),
        ({"id": "c"}, "c"),
        ({}, None),
    ],
)
def test_rule_1_spellings_of_the_flow_id_in_their_order(
    parse: Parse, fields: dict[str, Any], flow_id: str | None
) -> None:
    assert parse(flow(START, END, **fields)).flow_id == flow_id
    assert parse(flow(START, END, **dict(reversed(fields.items())))).flow_id == flow_id


def test_rule_1_null_means_the_default(parse: Parse) -> None:
    node = {"type": "mock", "errorHandler": None, "timeoutHandler": {"strategy": None}, "timeout": None, "name": None}
    parsed = parse(between(node, metadata=None, exposeEnv=None, timeout=None, author=None, runtime=None))
    assert parsed.nodes["n"].error_handler.strategy == "abort"
    assert parsed.nodes["n"].timeout_handler.strategy == "abort"


def test_a_number_is_a_version(parse: Parse) -> None:
    assert parse(flow(START, END, version=3)).version == "3"


# -- warnings ------------------------------------------------------------------------------------------


def warned(parsed: FlowDefinition) -> list[str]:
    return [str(warning) for warning in parsed.warnings]


def test_rule_1_unknown_fields_warn_at_every_level(parse: Parse) -> None:
    parsed = parse(
        flow(
            {**START, "nxt": "e", "x-note": 1, "_own": 2},
            {**END, "anything": 1},
            {
                "type": "switch",
                "id": "w",
                "branches": [{"name": "a", "next": "e", "isDefault": True, "colour": "red"}],
                "errorHandler": {"retries": 3},
            },
            name="shown to people",
            timeOut=3,
            inputType={"type": "object", "minimum": 3},
        )
    )
    found = warned(parsed)
    assert "name: not a field of a flow, ignored" in found
    assert "timeOut: unknown field, ignored; did you mean 'timeout'?" in found
    assert "inputType.minimum: unknown field, ignored" in found
    assert "nodes[0].nxt: unknown field, ignored; did you mean 'next'?" in found
    assert "nodes[2].branches[0].colour: unknown field, ignored" in found
    assert any(each.startswith("nodes[2].errorHandler.retries: unknown field, ignored") for each in found)
    assert not any("anything" in each or "x-note" in each or "_own" in each for each in found)


def test_unreachable_nodes_warn(parse: Parse) -> None:
    found = warned(parse(flow(START, END, {"type": "mock", "id": "lost", "next": "e"})))
    assert found == ["nodes[2]: node 'lost' cannot be reached from 's'"]


def test_nodes_without_successor_warn(parse: Parse) -> None:
    (found,) = warned(parse(flow({"type": "start", "id": "s"})))
    assert "has no next" in found
    assert warned(parse(flow({"type": "start", "id": "s", "errorHandler": {"strategy": "continue"}}))) == []


def test_rule_18_foreign_templates_warn_and_stay(parse: Parse) -> None:
    parsed = parse(between({"type": "assignment", "output": {"a": "{{ x }}", "b": "${y}"}, "result": "${z}"}))
    places = {each.split(":")[0] for each in warned(parsed)}
    assert {"nodes[1].output.a", "nodes[1].output.b", "nodes[1].result"} <= places


def test_a_reference_to_no_node_warns_with_the_nearest(parse: Parse) -> None:
    (found,) = warned(parse(flow({"type": "start", "id": "fetch", "next": "e"}, {**END, "output": "$NODE.fecth.x"})))
    assert found.startswith("nodes[1].output: $NODE.fecth is always null")
    assert "'fetch'" in found


def test_env_without_exposed_variables_warns(parse: Parse) -> None:
    definition = flow(START, {**END, "output": "$ENV.HOME"})
    assert any(each.startswith("exposeEnv: ") for each in warned(parse(definition)))
    assert warned(parse({**definition, "exposeEnv": ["HOME"]})) == []


def test_unknown_result_type_is_success_with_a_warning(parse: Parse) -> None:
    (found,) = warned(parse(flow(START, {**END, "resultType": "sucess"})))
    assert found.startswith("nodes[1].resultType: unknown result type 'sucess'")


def test_placeholders_of_the_public_engine_only_warn(parse: Parse) -> None:
    found = warned(parse(between({"type": "if", "condition": HOLDS, "else_next": "false"})))
    assert found == ["nodes[1].else_next: the placeholder 'false' names no node"]


# -- node types from elsewhere --------------------------------------------------------------------------


def test_a_plugin_may_bring_a_type_this_build_lacks(parse: Parse, registry: NodeRegistry) -> None:
    @registry.register
    class Map(Node):
        node_type: ClassVar[str] = "map"

    assert parse(between({"type": "map"})).plans["n"].type == "map"


def test_decisions_23_types_of_other_hosts_are_checked_by_common_fields(parse: Parse) -> None:
    definition = between({"type": "llm", "prompt": "x", "timeout": "PT5S"})
    assert problems(parse, definition)[0].startswith("nodes[1].type: unknown node type 'llm'")
    parsed = parse(definition, other_types=["llm"])
    assert parsed.plans["n"].timeout_ms == 5000
    assert warned(parsed) == []
    assert parse(definition, allow_unknown_types=True).plans["n"].type == "llm"
    assert problems(parse, between({"type": "llm", "next": "x", "timeout": "?"}), other_types=["llm"]) == [
        "nodes[1].timeout: '?' is no duration; write an ISO 8601 duration (PT5S, PT0.3S, P1DT2H) "
        "or a number of milliseconds (5000)",
        "nodes[1].next: no node has the id 'x'; there is 's', 'n', 'e'",
    ]


def test_decisions_23_waiting_nodes_stand_at_the_top_level(parse: Parse, registry: NodeRegistry) -> None:
    @registry.register
    class Wait(EventNode):
        node_type: ClassVar[str] = "wait_for_it"

    assert parse(between({"type": "wait_for_it"})).plans["n"].suspending
    assert not parse(between({"type": "mock"})).plans["n"].suspending


def test_a_waiting_node_is_an_event_node(parse: Parse, registry: NodeRegistry) -> None:
    @registry.register
    class Alone(Node):
        node_type: ClassVar[str] = "alone"
        is_suspending: ClassVar[bool] = True

    assert problems(parse, between({"type": "alone"})) == [
        "nodes[1].type: node type 'alone' waits, but its class Alone is no subclass of EventNode"
    ]


EVENT_FAULTS: list[tuple[dict[str, Any], list[str]]] = [
    ({}, ["event_type: required field is missing"]),
    ({"event_type": 17}, ["event_type: text is wanted, not number 17"]),
    (
        {"eventType": ""},
        ["eventType: the text is empty; leave the field out, or write a name or an expression"],
    ),
    ({"event_type": "$INPUT..x"}, ["event_type: "]),
    ({"event_type": "t", "event_filter": ["a"]}, ["event_filter: an object is wanted, not list"]),
    (
        {"event_type": "t", "eventFilter": {"a..b": 1}},
        ["eventFilter: 'a..b' is no path: there is a dot too many; write names with one dot between them"],
    ),
    ({"event_type": "t", "event_filter": {"": 1}}, ["event_filter: an empty key is no path into an event's data; "]),
    ({"event_type": "t", "event_filter": {"a": "$F.nix()"}}, ["event_filter.a: "]),
    ({"event_type": "t", "correlationId": True}, ["correlationId: a whole number or text is wanted, not boolean True"]),
    ({"event_type": "t", "correlationId": {"a": 1}}, ["correlationId: a whole number or text is wanted, not object"]),
    ({"event_type": "t", "correlation_id": ""}, ["correlation_id: the text is empty; "]),
    (
        {"event_type": "t", "subscriptionTimeout": "soon"},
        [
            "subscriptionTimeout: 'soon' is no duration; write an ISO 8601 duration (PT30M, P1DT2H) "
            "or a number of seconds (1800)"
        ],
    ),
    ({"eventTyp": "t"}, ["event_type: required field is missing; 'eventTyp' is no field, did you mean 'eventType'?"]),
    ({"next_": "t", "timeout": 5}, ["event_type: required field is missing"]),
    ({"event_type": "x" * 1025}, ["event_type: event_type has 1025 characters; the limit is 1024"]),
    ({"eventType": "t", "correlationId": "x" * 1025}, ["correlationId: correlation_id has 1025 characters; the"]),
    ({"event_type": "t", "eventFilter": {"a": "x" * 65536}}, ["eventFilter: event_filter has 65544 bytes of JSON"]),
    (
        {"event_type": "t", "subscription_timeout": -1},
        ["subscription_timeout: -1: a duration cannot be "],
    ),
    ({"event_type": "t", "subscription_timeout": True}, ["subscription_timeout: True is no duration; write "]),
    ({"event_type": "t", "subscription_timeout": "P1M"}, ["subscription_timeout: 'P1M' is no duration: years and "]),
    ({"event_type": "t", "timeout": "x"}, ["timeout: 'x' is no duration; write "]),
    (
        {"event_filter": 1, "subscription_timeout": "x", "correlation_id": []},
        ["event_type: ", "event_filter: ", "correlation_id: ", "subscription_timeout: "],
    ),
]


@pytest.mark.parametrize(("fields", "expected"), EVENT_FAULTS)
def test_faults_of_an_event_node_are_named(parse: Parse, fields: dict[str, Any], expected: list[str]) -> None:
    found = problems(parse, between({"type": "event", **fields}))
    assert len(found) == len(expected)
    for each in expected:
        assert [line for line in found if line.startswith(f"nodes[1].{each}")], found


def test_an_event_node_warns_of_what_is_no_fault(parse: Parse) -> None:
    fields = {"type": "event", "event_type": "t", "event_filter": {"a": "{{ x }}"}, "eventTyp": 1}
    found = warned(parse(between(fields)))
    assert any(line.startswith("nodes[1].event_filter.a: ") for line in found)
    assert any("did you mean 'eventType'" in line or "did you mean 'event_type'" in line for line in found)


class Hostile(Node):
    node_type: ClassVar[str] = "hostile"
    how: str = ""

    def prepare(self, preparation: Preparation) -> None:
        if self.how == "exit":
            raise SystemExit(3)
        if self.how == "deep":
            self.prepare(preparation)
        if self.how == "own":
            preparation.problem("how", "is not to my liking")


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("exit", "nodes[1]: the node type 'hostile' cannot prepare it: SystemExit: the code called sys.exit(3)"),
        ("deep", "nodes[1]: the node type 'hostile' cannot prepare it: RecursionError"),
        ("own", "nodes[1].how: is not to my liking"),
    ],
)
def test_a_plugin_that_raises_while_parsing_refuses_only_the_flow(
    parse: Parse, registry: NodeRegistry, how: str, expected: str
) -> None:
    registry.register(Hostile)
    (found,) = problems(parse, between({"type": "hostile", "how": how}))
    assert found.startswith(expected)


# -- anything at all ------------------------------------------------------------------------------------

WORDS = st.sampled_from(
    [
        *("nodes", "type", "id", "next", "start", "end", "if", "switch", "case", "assignment", "mock", "condition"),
        *("branches", "cases", "default", "else_next", "elseNext", "errorHandler", "strategy", "timeout", "output"),
        *("outputType", "upstreamOutput", "dataType", "children", "field", "operator", "value", "eq", "relation"),
        *("conditions", "and", "$INPUT.x", "$F.add(1, 2)", "{% $NODE.a %}", "PT5S", "target", "isDefault", "name"),
        *("inputType", "flow_id", "globalContext", "exposeEnv", "a", "b", "resultType", "error", "code", "map"),
    ]
)
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | WORDS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(WORDS | st.text(max_size=3), inner, max_size=6),
    max_leaves=20,
)
NODES = st.lists(
    st.fixed_dictionaries(
        {"type": st.sampled_from(["start", "end", "if", "switch", "case", "assignment", "mock", "map"]), "id": WORDS},
        optional=dict.fromkeys(
            (
                *("next", "else_next", "output", "condition", "branches", "cases", "default", "errorHandler"),
                *("timeoutHandler", "timeout", "outputType", "upstreamOutput", "target", "value", "error"),
            ),
            JSON_VALUES | WORDS,
        ),
    ),
    max_size=4,
)
REGISTRY = NodeRegistry(BUILT_IN)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(WORDS, JSON_VALUES, max_size=6) | st.fixed_dictionaries({"nodes": NODES}) | JSON_VALUES)
def test_any_json_value_is_parsed_or_refused(definition: Any) -> None:
    problems: tuple[Any, ...] = ()
    try:
        parsed = parse_flow(definition, REGISTRY)
    except FlowDefinitionError as error:
        problems = error.problems
    assert problems or parsed.start in parsed.plans
    assert all(len(str(problem)) < 5000 for problem in problems)


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=200) | st.binary(max_size=200))
def test_any_text_is_parsed_or_refused(text: str | bytes) -> None:
    with pytest.raises(FlowDefinitionError):
        parse_flow(text, REGISTRY)


# -- definitions made to cost much ------------------------------------------------------------------------


def test_a_long_key_with_many_children_costs_no_square(parse: Parse) -> None:
    """Were a place built for each child, this would take gigabytes."""
    key = "k" * 300_000
    for children in ([[]] * 30_000, ["a"] * 30_000):
        assert parse(json.dumps(between({"type": "mock", "value": {key: children}}))).start == "s"
    (found,) = problems(parse, between({"type": "mock", "value": {key: {"x": float("nan")}}}))
    assert found == f"nodes[1].value.{'k' * 60}….x: nan is no JSON number"


def test_many_unknown_fields_are_told_up_to_a_number(parse: Parse) -> None:
    parsed = parse(between({"type": "mock", **{f"nexq{number}": 1 for number in range(100_000)}}))
    assert len(parsed.warnings) == 500


def test_a_field_in_two_spellings_with_two_values_warns(parse: Any) -> None:
    end = {"type": "end", "id": "e"}
    handlers = {"errorHandler": {"strategy": "continue"}, "error_handler": {"strategy": "abort"}}
    flow = parse({"nodes": [{"type": "mock", "id": "m", "next": "e", **handlers}, end]})
    assert flow.nodes["m"].error_handler.strategy == "abort"
    assert [str(each) for each in flow.warnings] == [
        "nodes[0].errorHandler: has no effect: 'error_handler' is given too, and counts"
    ]
    same = {name: {"strategy": "continue"} for name in handlers}
    assert not parse({"nodes": [{"type": "mock", "id": "m", "next": "e", **same}, end]}).warnings


def test_an_empty_next_is_no_next(parse: Any) -> None:
    flow = parse({"nodes": [{"type": "start", "id": "s", "next": ""}, {"type": "end", "id": "e"}]})
    assert any("is no end and has no next" in str(each) for each in flow.warnings)
