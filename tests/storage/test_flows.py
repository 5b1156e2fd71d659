"""The conformance suite of ``FlowStorage``; every test runs on Redis and in memory."""

from __future__ import annotations

import json
from typing import Any

import pytest
from storage_pair import Pair

from plaita.errors import FlowDefinitionError, InputError, RefusedError
from plaita.flow.outline import flow_hash


def flow(note: Any = 1) -> dict[str, Any]:
    nodes = [{"type": "start", "id": "s", "next": "e"}, {"type": "end", "id": "e", "output": note}]
    return {"nodes": nodes, "flow_id": "f"}


def test_what_is_put_is_given_back(pair: Pair) -> None:
    assert pair.flows.put_flow_definition("f", flow()) == "1"
    assert pair.flows.get_flow_definition("f") == flow()
    assert list(pair.flows.get_flow_definition("f") or ()) == ["nodes", "flow_id"]
    assert pair.flows.get_flow_definition("f", "1") == flow()
    assert pair.flows.get_flow_definition("f", "2") is None
    assert pair.flows.get_flow_definition("g") is None


def test_versions_count_up_and_the_same_content_is_the_same_version(pair: Pair) -> None:
    assert [pair.flows.put_flow_definition("f", flow(note)) for note in (1, 1, 2)] == ["1", "1", "2"]
    assert pair.flows.get_flow_definition("f") == flow(2)
    assert pair.flows.get_flow_definition("f", "1") == flow(1)
    stored = pair.flows.versions("f")
    assert [(one.version, one.flow_hash) for one in stored] == [("1", flow_hash(flow(1))), ("2", flow_hash(flow(2)))]
    assert pair.flows.versions("g") == []


def test_other_content_under_a_version_needs_force(pair: Pair) -> None:
    pair.flows.put_flow_definition("f", flow(1), "v")
    with pytest.raises(RefusedError, match="version_exists"):
        pair.flows.put_flow_definition("f", flow(2), "v")
    assert pair.flows.get_flow_definition("f", "v") == flow(1)
    assert pair.flows.put_flow_definition("f", flow(2), "v", force=True) == "v"
    assert pair.flows.get_flow_definition("f", "v") == flow(2)


def test_text_is_taken_too(pair: Pair) -> None:
    assert pair.flows.put_flow_definition("f", json.dumps(flow())) == "1"
    yaml = "flow_id: f\nnodes:\n- {type: start, id: s, next: e}\n- {type: end, id: e, output: 1}\n"
    assert pair.flows.put_flow_definition("f", yaml.encode()) == "1"


@pytest.mark.parametrize("bad", [{}, {"nodes": []}, "{", "", {"nodes": [1]}, {"nodes": [{"type": "x", "id": "a"}] * 2}])
def test_what_is_no_flow_is_refused(pair: Pair, bad: Any) -> None:
    with pytest.raises(FlowDefinitionError):
        pair.flows.put_flow_definition("f", bad)
    assert pair.flows.list_flows() == []


def test_bad_ids_are_refused(pair: Pair) -> None:
    for call in (pair.flows.versions, pair.flows.get_flow_definition, pair.flows.remove_flow):
        with pytest.raises(InputError):
            call("a b")


def test_listing_and_removing(pair: Pair) -> None:
    for name in ("b", "a"):
        pair.flows.put_flow_definition(name, flow())
    assert pair.flows.list_flows() == ["a", "b"]
    assert pair.flows.remove_flow("a") is True
    assert pair.flows.remove_flow("a") is False
    assert (pair.flows.list_flows(), pair.flows.get_flow_definition("a")) == (["b"], None)
