"""Bad definitions: refused with exit 2, place and reason, never a traceback (issue 1, "Must hold")."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

START: dict[str, Any] = {"type": "start", "id": "s", "next": "e"}
END: dict[str, Any] = {"type": "end", "id": "e"}
BRANCH: dict[str, Any] = {
    "type": "if",
    "id": "x",
    "condition": {"field": "$INPUT.a", "operator": "eq", "value": 1},
    "next": "zz",
}
DEEP = 100_000


def flow(*nodes: Any, **fields: Any) -> dict[str, Any]:
    return {"nodes": list(nodes), **fields}


BAD: list[tuple[str, Any, str, str]] = [
    # name, definition, words of the place, words of the reason
    ("not JSON", "{nodes", "", ""),
    ("not text", b"\xff\xfe\x00", "", "UTF-8"),
    ("empty", "", "", "empty"),
    ("a list", "[]", "", "object"),
    ("a number", "5", "", "object"),
    ("null", "null", "", "object"),
    ("deep lists", "[" * DEEP + "]" * DEEP, "", "deep"),
    ("deep objects", '{"nodes":' * DEEP + "1" + "}" * DEEP, "", "deep"),
    ("deep yaml", "- " * DEEP + "1", "", "deep"),
    ("deep in a node", flow({**START, "desc": json.loads("[" * 80 + "]" * 80)}, END), "nodes[0]", "deep"),
    ("a key twice", '{"nodes": [], "nodes": []}', "", "twice"),
    ("a key twice by escape", '{"nodes": [{"type": "start", "id": "s", "i\\u0064": "t"}]}', "", "twice"),
    ("NaN", '{"nodes": [{"type": "mock", "id": "a", "value": NaN}]}', "", "NaN"),
    ("too large a number", '{"nodes": [{"type": "mock", "id": "a", "value": 1e999}]}', "", "large"),
    ("lone surrogate", '{"nodes": [{"type": "mock", "id": "a", "value": "\\ud800"}]}', "", "surrogate"),
    ("no nodes", {}, "nodes", "missing"),
    ("nodes are no list", {"nodes": {}}, "nodes", "list"),
    ("empty nodes", {"nodes": []}, "nodes", ""),
    ("a node is no object", flow(START, END, 5), "nodes[2]", "object"),
    ("a node without type", flow({"id": "s"}), "nodes[0].type", "missing"),
    ("a node without id", flow({"type": "start"}), "nodes[0].id", "missing"),
    ("an id of spaces", flow({**START, "id": "a b"}, END), "nodes[0].id", "character"),
    ("unknown type", flow(START, END, {"type": "assingment", "id": "x"}), "nodes[2].type", "assignment"),
    ("a type that is no text", flow({**START, "type": 5}, END), "nodes[0].type", "text"),
    ("two nodes with one id", flow(START, END, {**END}), "nodes[2].id", "two nodes"),
    ("next to nowhere", flow({**START, "next": "f"}, END), "nodes[0].next", "no node"),
    ("a branch to nowhere", flow(START, END, BRANCH), "nodes[2]", ""),
    ("bad expression", flow(START, {**END, "output": "{% $INPUT. %}"}), "nodes[1].output", ""),
    ("unknown root", flow(START, {**END, "output": "$INPTU.a"}), "nodes[1].output", ""),
    ("unknown function", flow(START, {**END, "output": "{% $F.uper('a') %}"}), "nodes[1].output", "upper"),
    ("bad timeout", flow({**START, "timeout": "soon"}, END), "nodes[0].timeout", ""),
    ("negative timeout", flow(START, END, timeout=-5), "timeout", ""),
    ("wrong runtime", flow(START, END, runtime="perl"), "runtime", ""),
    ("unknown strategy", flow({**START, "errorHandler": {"strategy": "shrug"}}, END), "nodes[0].errorHandler", ""),
    ("wrong type of a field", flow({**START, "next": ["e"]}, END), "nodes[0].next", ""),
    ("bad flow id", flow(START, END, flow_id="a b"), "flow_id", "character"),
    ("two starts", flow({"type": "mock", "id": "a", "value": 1}, {"type": "mock", "id": "b", "value": 2}), "nodes", ""),
]  # fmt: skip
SOME = BAD[::5]


@pytest.mark.parametrize(("definition", "place", "reason"), [case[1:] for case in BAD], ids=[case[0] for case in BAD])
def test_validate_refuses_with_place_and_reason(
    plaita: Callable[..., Any], flow_file: Callable[..., str], definition: Any, place: str, reason: str
) -> None:
    file = flow_file(definition)
    told = plaita("flow", "validate", file)
    assert told.code == 2
    assert told.out == ""
    assert file in told.err
    answered = plaita("flow", "validate", file, "--json")
    assert answered.code == 2
    assert answered.json["ok"] is False
    problems = answered.json["problems"]
    assert any(place in problem["place"] and reason in problem["reason"] for problem in problems), problems
    for problem in problems:
        assert set(problem) == {"place", "reason"}
        assert problem["reason"]
        assert problem["reason"] in told.err


@pytest.mark.parametrize(("definition", "place", "reason"), [case[1:] for case in SOME], ids=[case[0] for case in SOME])
def test_put_and_run_refuse_the_same_without_any_server(
    plaita: Callable[..., Any], flow_file: Callable[..., str], definition: Any, place: str, reason: str
) -> None:
    file = flow_file(definition)
    for words in (("flow", "put", file, "--redis-url", "redis://127.0.0.1:1/0"), ("run", file)):
        answered = plaita(*words, "--json")
        assert answered.code == 2
        assert answered.json["ok"] is False


def test_all_problems_are_told_together(plaita: Callable[..., Any], flow_file: Callable[..., str]) -> None:
    file = flow_file(flow({**START, "next": "x", "timeout": "soon"}, END, {"type": "nope", "id": "e"}))
    places = {problem["place"] for problem in plaita("flow", "validate", file, "--json").json["problems"]}
    assert {"nodes[0].next", "nodes[0].timeout", "nodes[2].id", "nodes[2].type"} <= places


@pytest.mark.parametrize("name", ["missing.json", ".", "a\0b", "/dev/zero"])
def test_files_that_cannot_be_read(plaita: Callable[..., Any], tmp_path: Path, name: str) -> None:
    source = name if name.startswith("/") else str(tmp_path / name)
    for command in ("validate", "put"):
        told = plaita("flow", command, source)
        assert told.code == 2
        assert "FILE" in told.err
        assert told.out == ""


def test_a_flow_comes_from_stdin_and_as_yaml(plaita: Callable[..., Any], flow_file: Callable[..., str]) -> None:
    text = "nodes:\n- {type: start, id: s, next: e}\n- {type: end, id: e, output: $INPUT.a}\n"
    assert plaita("flow", "validate", "-", stdin=text).code == 0
    answered = plaita("flow", "validate", flow_file(text, "order.yaml"), "--json")
    assert answered.json["ok"] is True
    assert answered.json["flow_id"] == "order"


def test_a_file_name_that_is_no_id_is_named(plaita: Callable[..., Any], flow_file: Callable[..., str]) -> None:
    file = flow_file(flow(START, END), "my flow.json")
    told = plaita("flow", "validate", file)
    assert told.code == 2
    assert "--id" in told.err
    assert plaita("flow", "validate", file, "--id", "mine").code == 0


def test_unknown_types_pass_when_asked(plaita: Callable[..., Any], flow_file: Callable[..., str]) -> None:
    file = flow_file(flow({**START, "next": "x"}, {"type": "elsewhere", "id": "x", "next": "e"}, END))
    assert plaita("flow", "validate", file).code == 2
    assert plaita("flow", "validate", file, "--allow-unknown-types").code == 0


def test_preloads_bring_node_types(
    plaita: Callable[..., Any], flow_file: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cli_test_nodes.py").write_text(
        "print('a plug-in that talks')\n"
        "from plaita import Node\n"
        "class Shout(Node):\n"
        "    node_type = 'cli_test_shout'\n"
        "    def execute(self, execution):\n"
        "        return 1\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    file = flow_file(flow({**START, "next": "x"}, {"type": "cli_test_shout", "id": "x", "next": "e"}, END))
    answered = plaita("flow", "validate", file, "--preload", "cli_test_nodes", "--json")
    assert answered.code == 0
    assert answered.json["ok"] is True
    told = plaita("flow", "validate", file, "--preload", "no_such_module_here")
    assert told.code == 2
    assert "no_such_module_here" in told.err
