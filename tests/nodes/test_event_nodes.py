"""Node types that wait (CONTRACT "Node API", FLOW-FORMAT 2.2): the defaults, and what plug-ins may change."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, ClassVar

import pytest
from pydantic import Field

from plaita.flow.context import Context
from plaita.flow.engine import run_step
from plaita.flow.model import FlowDefinition, parse_flow
from plaita.flow.outcome import Advanced, Failed, Suspended
from plaita.nodes.base import EventNode, Node, completed, enter
from plaita.nodes.event import EventWaitNode
from plaita.nodes.execution import Execution, idempotency_key
from plaita.nodes.registry import NodeRegistry, load_preloads

NOW_MS = 1_700_000_000_000


class World:
    """One execution of start -> w -> end, its context kept or loaded anew from JSON text, as on another host."""

    def __init__(self, registry: NodeRegistry, node: dict[str, Any], flow_input: Any = None) -> None:
        nodes = [
            {"type": "start", "id": "s", "next": "w"},
            {"id": "w", "next": "e", **node},
            {"type": "end", "id": "e"},
        ]
        self.flow: FlowDefinition = parse_flow({"flow_id": "f", "nodes": nodes}, registry)
        self.input = flow_input or {}
        self.context = self.fresh()

    def fresh(self) -> Context:
        return Context(execution_id="x1", flow_id="f", input=self.input)

    def on_another_host(self, outcome: Suspended) -> None:
        self.context = self.fresh()
        self.context.load_result("w", outcome.result_json)
        for key, text in outcome.state_json.items():
            self.context.load_state(key, text)
        self.context.last_node = "w"

    def step(self, action: Any = "execute", event: Any = None, **fields: Any) -> Any:
        return run_step(
            self.flow,
            self.context,
            "w",
            call=lambda node: enter(node, Execution(node, self.context, **fields)),  # type: ignore[arg-type]
            now_ms=NOW_MS,
            action=action,
            event=event,
        )


def test_the_pending_result_of_an_event_node(registry: NodeRegistry) -> None:
    world = World(registry, {"type": "event", "eventType": "paid", "event_filter": {"a.b": "$INPUT.x"}}, {"x": [1]})
    outcome = world.step(namespace="ns", visit=2)
    assert outcome.result == {
        "event_type": "paid",
        "event_filter": {"a.b": [1]},
        "is_async": True,
        "event_id": f"event_w_{NOW_MS}",
        "status": "pending",
        "subscription_id": "sub_" + idempotency_key("ns", "x1", "w", 2)[:32],
    }
    assert world.context.results["w"] == outcome.result
    assert world.step(namespace="ns", visit=2, attempt=3).result == outcome.result, "the same over all attempts"


WRAPPED = {"event_id": "ev-1", "event_type": "paid", "event_data": {"a": 1}, "subscription_id": "s"}

EVENTS: list[tuple[Any, Any, str | None]] = [
    # what came, event_data, event_id (None: that of the pending result)
    (None, None, None),
    ({}, {}, None),
    ([], [], None),
    ("", "", None),
    (0, 0, None),
    ({"a": 1}, {"a": 1}, None),
    (WRAPPED, {"a": 1}, "ev-1"),
    ({**WRAPPED, "event_data": None}, None, "ev-1"),
    ({**WRAPPED, "event_data": WRAPPED}, WRAPPED, "ev-1"),
    ({key: WRAPPED[key] for key in ("event_id", "event_type", "event_data")}, {"a": 1}, "ev-1"),
    ({**WRAPPED, "event_id": None}, {"a": 1}, None),
    ({**WRAPPED, "event_id": ""}, {"a": 1}, None),
    ({**WRAPPED, "more": 1}, {**WRAPPED, "more": 1}, None),
    ({"event_data": {"a": 1}}, {"event_data": {"a": 1}}, None),
    ({"event_id": "mine", "event_data": 1}, {"event_id": "mine", "event_data": 1}, None),
]


@pytest.mark.parametrize(("came", "event_data", "event_id"), EVENTS)
def test_rule_11_the_data_stands_one_level_down_however_it_came(
    registry: NodeRegistry, came: Any, event_data: Any, event_id: str | None
) -> None:
    world = World(registry, {"type": "event", "event_type": "paid"})
    pending = world.step()
    world.on_another_host(pending)
    outcome = world.step("event", came)
    assert isinstance(outcome, Advanced)
    assert outcome.result == {
        **pending.result,
        "status": "completed",
        "event_data": event_data,
        "event_id": event_id or pending.result["event_id"],
    }


def test_completed_takes_any_pending_value() -> None:
    assert completed(7, {"a": 1}) == {"status": "completed", "event_data": {"a": 1}}
    assert completed(None, WRAPPED) == {"status": "completed", "event_data": {"a": 1}, "event_id": "ev-1"}


@pytest.mark.parametrize(
    ("handler", "result"),
    [({"strategy": "continue"}, None), ({"strategy": "continue-with", "defaultValue": {"late": True}}, {"late": True})],
)
def test_a_wait_without_an_event_is_a_timeout_for_the_handler(
    registry: NodeRegistry, handler: dict[str, Any], result: Any
) -> None:
    node = {"type": "event", "event_type": "$INPUT.t"}
    failing = World(registry, node, {"t": "order.paid"})
    failing.step()
    failed = failing.step("timeout")
    assert isinstance(failed, Failed)
    assert (failed.error.code, failed.error.exception, failed.error.retryable) == (-1, "NodeTimeoutError", False)
    assert "no event of type 'order.paid' came in time" in failed.error.message
    handled = World(registry, {**node, "timeoutHandler": handler}, {"t": "order.paid"})
    handled.step()
    assert handled.step("timeout").result == result


def test_cancel_does_nothing_by_default(registry: NodeRegistry) -> None:
    world = World(registry, {"type": "event", "event_type": "t"})
    world.step()
    assert isinstance(world.step("cancelled"), Advanced)


class Order(EventNode):
    """A plug-in: places something when the wait begins, judges what came, takes it back."""

    node_type: ClassVar[str] = "order"
    seen: ClassVar[list[Any]] = []

    event_type: str | None = "order.done"
    event_filter: dict[str, Any] = Field(default_factory=lambda: {"order": "$INPUT.order"})
    what: str = ""

    def execute(self, execution: Execution) -> Any:
        assert execution.pending is None
        assert execution.woken is None
        execution.set_state("placed", self.what)
        return {**super().execute(execution), "number": 4711}

    def on_event(self, execution: Execution, event_data: Any) -> Any:
        assert execution.woken is not None
        pending = execution.pending
        pending["number"] += 1  # a copy: a further attempt sees the stored one
        event_data["mine"] = True
        self.seen.append((pending["number"], execution.get_state("placed"), dict(event_data)))
        if len(self.seen) < 2:
            raise RuntimeError("once more")
        return {"number": pending["number"], "by": event_data["by"]}

    def on_timeout(self, execution: Execution) -> Any:
        return {"late": execution.pending["number"]}

    def on_cancel(self, execution: Execution) -> None:
        self.seen.append(("cancelled", execution.pending["number"], execution.idempotency_key))


@pytest.fixture
def order(registry: NodeRegistry) -> World:
    registry.register(Order)
    Order.seen.clear()
    node = {"type": "order", "what": "book", "errorHandler": {"retryTimes": 1}}
    world = World(registry, node, {"order": 5})
    outcome = world.step()
    assert outcome.subscription["event_filter"] == {"order": 5}
    assert outcome.result["number"] == 4711
    world.on_another_host(outcome)
    return world


def test_a_plug_in_reads_its_pending_result_and_state(order: World) -> None:
    event = {"by": "ann"}
    assert order.step("event", event).result == {"number": 4712, "by": "ann"}
    assert Order.seen == [(4712, "book", {"by": "ann", "mine": True})] * 2
    assert event == {"by": "ann"}


def test_a_plug_in_may_end_a_wait_itself(order: World) -> None:
    assert order.step("timeout").result == {"late": 4711}
    key = idempotency_key("plaita", "x1", "w", 1)
    order.context.load_result("w", b'{"number":1}')
    assert isinstance(order.step("cancelled"), Advanced)
    assert Order.seen == [("cancelled", 1, key)]


def test_the_halves_may_be_coroutines(registry: NodeRegistry) -> None:
    @registry.register
    class Coroutines(EventNode):
        node_type: ClassVar[str] = "coroutines"
        event_type: str | None = "t"

        async def arun(self, execution: Execution) -> Any:
            return {"begun": True}

        async def on_event(self, execution: Execution, event_data: Any) -> Any:  # type: ignore[override]
            return [execution.pending, event_data]

        async def on_timeout(self, execution: Execution) -> Any:  # type: ignore[override]
            raise KeyError("late")

        async def on_cancel(self, execution: Execution) -> None:  # type: ignore[override]
            raise KeyError("cancelled")

    world = World(registry, {"type": "coroutines"})
    assert world.step().result == {"begun": True}
    assert "KeyError: 'cancelled'" in world.step("cancelled").error.message
    assert "KeyError: 'late'" in world.step("timeout").error.message
    assert world.step("event", 1).result == [{"begun": True}, 1]


def test_a_plug_in_may_declare_the_fields_its_own_way(registry: NodeRegistry) -> None:
    @registry.register
    class Loose(EventNode):
        node_type: ClassVar[str] = "loose"
        event_type: str | None = "t"
        event_filter: dict[str, Any] | None = None  # type: ignore[assignment]
        correlation_id: str | None = "$EXECUTION_ID"

        def prepare(self, preparation: Any) -> None:
            pass

    subscription = World(registry, {"type": "loose"}).step().subscription
    assert subscription == {"event_type": "t", "event_filter": None, "correlation_id": "x1", "timeout_ms": None}


PLUG_IN = """
from plaita import EventNode

class Door(EventNode):
    node_type = "door"; node_name = "Door"
    event_type: str = "door.opened"

    def on_event(self, execution, event_data):
        return {"opened_by": event_data["who"], "waited_since": execution.pending["event_id"]}
"""


def test_a_preloaded_plug_in_waits(registry: NodeRegistry, write_module: Callable[[str, str], str]) -> None:
    load_preloads([write_module("door_plug_in", PLUG_IN)], registry)
    world = World(registry, {"type": "door"})
    assert world.step().subscription["event_type"] == "door.opened"
    result = world.step("event", {"who": "ann"}).result
    assert result == {"opened_by": "ann", "waited_since": f"event_w_{NOW_MS}"}
    failed = world.step("event", None)
    assert (failed.error.exception, failed.error.cause) == ("NodeExecutionError", "TypeError")
    assert sys.modules["door_plug_in"].Door.node_type == "door"


def test_a_node_that_is_no_event_node_cannot_go_on_from_an_event() -> None:
    class Plain(Node):
        node_type: ClassVar[str] = "plain"

        def execute(self, execution: Execution) -> Any:
            return 1

    node, context = Plain(id="p"), Context(execution_id="x")
    assert enter(node, Execution(node, context)) == 1
    assert EventWaitNode.is_suspending
    assert not Plain.is_suspending
