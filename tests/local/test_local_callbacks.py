"""User callbacks of flows that run in this process (ledger F7)."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterator
from typing import Any, ClassVar

import pytest

from plaita import CallbackEvent, Flow, FlowCallback, register_callback, unregister_callback
from plaita.errors import FlowWaitsError, NodeExecutionError, NodeTimeoutError
from plaita.nodes.base import Node
from plaita.nodes.builtin import BUILT_IN
from plaita.nodes.execution import Execution
from plaita.nodes.registry import NodeRegistry


class Raise(Node):
    node_type: ClassVar[str] = "raise"

    def execute(self, execution: Execution) -> Any:
        raise RuntimeError("bad")


def flow(node: dict[str, Any], **fields: Any) -> Flow:
    nodes = [{"type": "start", "id": "s", "next": "n"}, {"id": "n", "next": "e", **node}, {"type": "end", "id": "e"}]
    definition = {"flow_id": "f", "version": 3, "nodes": nodes, **fields}
    return Flow.from_dict(definition, registry=NodeRegistry([*BUILT_IN, Raise]))


class Teller(FlowCallback):
    """Notes what it is told; ``act`` may do more."""

    def __init__(self) -> None:
        self.events: list[CallbackEvent] = []
        self.act: Any = lambda event: None

    def _told(self, event: CallbackEvent) -> None:
        self.events.append(event)
        self.act(event)

    on_flow_start = on_flow_end = on_flow_suspend = on_node_start = on_node_end = on_node_suspend = _told

    def told(self) -> list[tuple[str, str]]:
        return [(event.node_id, event.kind) for event in self.events]


@pytest.fixture
def teller() -> Iterator[Teller]:
    given = Teller()
    register_callback(given)
    yield given
    assert unregister_callback(given)


WHOLE = [
    ("s", "flow_start"),
    ("s", "node_start"),
    ("s", "node_end"),
    ("n", "node_start"),
    ("n", "node_end"),
    ("e", "node_start"),
    ("e", "node_end"),
    ("e", "flow_end"),
]


@pytest.mark.parametrize("fields", [{}, {"timeout": "PT10S"}])
@pytest.mark.parametrize("asynchronous", [False, True])
def test_F7_every_step_is_told(teller: Teller, fields: dict[str, Any], asynchronous: bool) -> None:
    ready = flow({"type": "mock", "value": 5}, **fields)
    _ = asyncio.run(ready.arun(a=1)) if asynchronous else ready.run(a=1)
    assert teller.told() == WHOLE
    assert teller.events[0].input == {"a": 1}
    assert (teller.events[4].result, teller.events[4].next_node) == (5, "e")
    for event in teller.events:
        assert (event.flow_id, event.version, event.tenant_id, event.attempt) == ("f", "3", "default", 1)
    assert len({event.execution_id for event in teller.events}) == 1


def test_F7_a_failure_and_a_wait_are_told(teller: Teller) -> None:
    with pytest.raises(NodeExecutionError):
        flow({"type": "raise"}).run()
    assert teller.told()[3:] == [("n", "node_start"), ("n", "node_end")]
    assert teller.events[-1].error is not None
    teller.events.clear()
    with pytest.raises(FlowWaitsError):
        flow({"type": "event", "event_type": "t"}).run()
    assert teller.told()[3:] == [("n", "node_start"), ("n", "node_suspend"), ("n", "flow_suspend")]


@pytest.mark.parametrize("fields", [{}, {"timeout": "PT10S"}])
def test_F7_what_is_raised_is_logged(teller: Teller, fields: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    def leave(event: CallbackEvent) -> None:
        raise SystemExit("100% out")

    teller.act = leave
    with caplog.at_level(logging.ERROR):
        assert flow({"type": "mock"}, **fields).run() is None
    assert teller.told() == WHOLE
    assert f"callback {__name__}.Teller.on_flow_start failed" in caplog.text
    assert "SystemExit: 100% out" in caplog.text


def test_ctrl_c_in_a_callback_is_the_persons(teller: Teller) -> None:
    def interrupted(event: CallbackEvent) -> None:
        raise KeyboardInterrupt

    teller.act = interrupted
    with pytest.raises(KeyboardInterrupt):
        flow({"type": "mock"}).run()


@pytest.mark.parametrize(("when", "ends"), [("node_start", False), ("node_end", True)])
def test_one_that_hangs_is_left_behind_at_the_nodes_limit(
    teller: Teller, when: str, ends: bool, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("plaita.local.run.CALLBACK_TIME_S", 0.01)
    release, left = threading.Event(), threading.Event()

    def hang(event: CallbackEvent) -> None:
        if (event.node_id, event.kind) == ("n", when):
            release.wait(60)
            left.set()

    teller.act = hang
    ready = flow({"type": "mock", "value": 1, "timeout": 60})
    try:
        if ends:
            assert ready.run() is None
        else:
            with pytest.raises(NodeTimeoutError):
                ready.run()
        assert "callbacks of node 'n' did not return within its time" in caplog.text
    finally:
        release.set()
        assert left.wait(60)
