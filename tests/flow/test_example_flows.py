"""Flow files as their users have them: each runs, or is refused for a reason that names what is missing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from plaita.errors import FlowDefinitionError
from plaita.flow.graph import pointers
from plaita.flow.model import LATER_TYPES, FlowDefinition
from plaita.flow.outcome import Suspended
from plaita.nodes.registry import NodeRegistry

ROOT = Path(__file__).parents[2]
DATA = Path(__file__).parent / "data"
EXAMPLES = ROOT / "examples" / "flows"
SHARED = ROOT.parent / "shared" / "flows"

RUNS: list[tuple[str, Any, Any]] = [
    ("shout.json", {"word": "hey"}, "HEY!"),
    ("ticket-price.json", {"years": 7}, "半价"),
    ("ticket-price.json", {"years": 12}, "全价"),
    ("without-id.json", {}, {"text": "早上好", "flow": None}),
    ("mood.json", {"mood": "glad"}, "smile"),
    ("mood.json", {"mood": "sad"}, "sigh"),
    ("mood.json", {}, "nod"),
]


@pytest.mark.parametrize(("name", "flow_input", "output"), RUNS)
def test_a_flow_of_this_builds_nodes_runs(drive: Callable[..., Any], name: str, flow_input: Any, output: Any) -> None:
    assert drive((DATA / name).read_bytes(), flow_input).last.output == output


def test_an_authors_error_ends_the_flow(drive: Callable[..., Any]) -> None:
    error = drive((DATA / "refused-business.json").read_bytes()).last.error
    assert (error.code, error.message, error.error_type) == (4002, "库存不足", "error_result")


REFUSED = [
    ("fetch.json", "nodes[1].type", "node type 'http' is not in this build"),
    ("squares.json", "nodes[1].type", "node type 'map' is not in this build"),
    ("ask-model.json", "nodes[1].type", "unknown node type 'chat_model'; known: approval, "),
    ("single-node.json", "nodes", "this looks like a single node of type 'mock'"),
]


@pytest.mark.parametrize(("name", "place", "reason"), REFUSED)
def test_a_flow_of_other_nodes_is_refused_for_a_named_reason(
    parse: Callable[..., FlowDefinition], name: str, place: str, reason: str
) -> None:
    with pytest.raises(FlowDefinitionError) as caught:
        parse((DATA / name).read_bytes())
    (problem,) = caught.value.problems
    assert problem.place == place
    assert reason in problem.reason


@pytest.mark.parametrize(
    ("given", "delay_ms", "warnings"), [({"n": 2}, 2000, 0), ({"n": 0.0005}, 1, 0), ({}, 60_000, 1)]
)
def test_a_delay_waits_as_long_as_it_says(
    drive: Callable[..., Any], given: dict[str, Any], delay_ms: int, warnings: int
) -> None:
    last = drive((DATA / "wait-a-little.json").read_bytes(), given).last
    assert isinstance(last, Suspended)
    assert (last.subscription["timeout_ms"], len(last.warnings)) == (delay_ms, warnings)


def test_every_data_file_is_in_a_table() -> None:
    named = {each[0] for each in [*RUNS, *REFUSED]} | {"refused-business.json", "wait-a-little.json"}
    assert {path.name for path in DATA.iterdir()} == named


# -- examples/ ------------------------------------------------------------------------------------------

EXAMPLE_RUNS: list[tuple[str, Any, Any]] = [
    ("greeting.json", {"name": "ann lee"}, "Good day, Ann Lee!"),
    ("order-routing.json", {"total": 1200, "country": "DE", "paid": True}, {"depot": "Bremen", "speed": "express"}),
    ("order-routing.json", {"total": 20, "country": "at", "paid": True}, {"depot": "Graz", "speed": "standard"}),
    ("order-routing.json", {"total": 2000, "country": "US", "paid": True}, {"depot": "Rotterdam", "speed": "standard"}),
    ("countdown.json", {"from": 3}, {"left": 0, "said": [3, 2, 1]}),
    ("price-with-fallback.yaml", {"price": 12.5}, {"price": 12.5, "with_tax": 14.88}),
    ("price-with-fallback.yaml", {"price": "ask"}, {"price": 0, "note": "ask for an offer"}),
]


@pytest.mark.parametrize(("name", "flow_input", "output"), EXAMPLE_RUNS)
def test_the_examples_run_without_a_warning(drive: Callable[..., Any], name: str, flow_input: Any, output: Any) -> None:
    driven = drive((EXAMPLES / name).read_bytes(), flow_input)
    assert driven.last.output == output
    assert driven.flow.warnings == []


def test_every_example_is_in_the_table() -> None:
    assert {path.name for path in EXAMPLES.iterdir()} == {each[0] for each in EXAMPLE_RUNS}


# -- the public engine's own files, where they are at hand --------------------------------------------------


def shared_flows() -> list[Any]:
    if not SHARED.is_dir():
        return [pytest.param(None, marks=pytest.mark.skip(reason=f"no flows of the public engine at {SHARED}"))]
    return [pytest.param(path, id=path.name) for path in sorted(SHARED.glob("*.json"))]


def whole(definition: dict[str, Any]) -> dict[str, Any]:
    """A flow around a fragment that is a single node: a start before it, an end for each of its targets."""
    if "nodes" in definition:
        return definition
    ends = dict.fromkeys(pointer.target for pointer in pointers(definition))
    start = {"type": "start", "id": "start-of-fragment", "next": definition["id"]}
    return {"nodes": [start, definition, *({"type": "end", "id": end} for end in ends)]}


@pytest.mark.parametrize("path", shared_flows())
def test_flows_of_the_public_engine_run_or_are_refused_by_type(
    drive: Callable[..., Any], registry: NodeRegistry, path: Path
) -> None:
    definition = whole(json.loads(path.read_text(encoding="utf-8")))
    types = {node["type"] for node in definition["nodes"]}
    missing = types - set(registry.names())
    flow_input = {"name": "ann", "age": 20, "type": "B", "question": "?", "message": "m"}
    if not missing:
        last = drive(definition, flow_input).last
        if isinstance(last, Suspended):
            waiting = next(node for node in definition["nodes"] if node["id"] == last.node_id)
            assert last.subscription["event_filter"] == waiting.get("event_filter")
            return
        assert hasattr(last, "output") or last.error.error_type == "error_result", last
        return
    with pytest.raises(FlowDefinitionError) as caught:
        drive(definition, flow_input)
    for problem in caught.value.problems:
        assert problem.place.endswith(".type")
        named = [node_type for node_type in missing if repr(node_type) in problem.reason]
        assert named
        expected = "is not in this build" if named[0] in LATER_TYPES else "unknown node type"
        assert expected in problem.reason
