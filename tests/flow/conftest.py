"""Shared helpers: a registry of its own for each test, and an engine driven without threads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from plaita.flow.context import Context
from plaita.flow.engine import run_step
from plaita.flow.model import FlowDefinition, parse_flow
from plaita.flow.outcome import Advanced, Outcome
from plaita.nodes.builtin import BUILT_IN
from plaita.nodes.execution import Execution
from plaita.nodes.registry import NodeRegistry


@dataclass
class Driven:
    """A flow driven to its last outcome."""

    flow: FlowDefinition
    context: Context
    outcomes: list[Outcome] = field(default_factory=list)

    @property
    def last(self) -> Any:
        return self.outcomes[-1]

    @property
    def visited(self) -> list[str]:
        return [outcome.node_id for outcome in self.outcomes]


@pytest.fixture
def registry() -> NodeRegistry:
    """Built-in types only, free to be changed."""
    return NodeRegistry(BUILT_IN)


@pytest.fixture
def parse(registry: NodeRegistry) -> Callable[..., FlowDefinition]:
    def parse(definition: Any, **options: Any) -> FlowDefinition:
        return parse_flow(definition, registry, **options)

    return parse


@pytest.fixture
def drive(registry: NodeRegistry) -> Callable[..., Driven]:
    """drive(definition, input) runs every step; node code runs directly."""

    def drive(definition: Any, flow_input: Any = None, *, max_steps: int = 50, **step_options: Any) -> Driven:
        flow = parse_flow(definition, registry)
        given = {} if flow_input is None else flow_input
        context = Context(execution_id="e1", flow_id=flow.flow_id, input=given, global_context=flow.global_context)
        driven = Driven(flow, context)
        node_id = flow.start
        for _ in range(max_steps):
            outcome = run_step(
                flow,
                context,
                node_id,
                call=lambda node: node.execute(Execution(node, context)),
                now_ms=1_700_000_000_000,
                **step_options,
            )
            driven.outcomes.append(outcome)
            if not isinstance(outcome, Advanced):
                return driven
            node_id = outcome.next_node
        return driven

    return drive
