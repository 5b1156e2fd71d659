"""A parsed flow: everything a step needs, looked up once. Immutable after parsing; shared by executions.

Owns :class:`FlowDefinition` and :class:`NodePlan`. Reads no text (``parse`` does) and runs nothing (``engine`` does).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from plaita.errors import Problem
from plaita.flow.basenode import BaseNode
from plaita.flow.limits import DEFAULT_LIMITS, Limits
from plaita.flow.properties import Property


@dataclass(frozen=True, slots=True)
class NodePlan:
    """What the engine needs of one node, read from it once.

    ``next_node``: where a node that does not branch goes. ``targets``: the ids a branching node may answer.
    ``attempts``: 1 + retryTimes. ``suspending``: its ``execute`` begins a wait. ``place``: where the node stands
    (``nodes[3]``); ``label``: its id, and its name if it has one, for messages.
    """

    node: BaseNode
    label: str
    place: str
    type: str
    next_node: str | None
    targets: frozenset[str]
    branching: bool
    ends_flow: bool
    timeout_ms: int | None
    attempts: int
    suspending: bool


@dataclass
class FlowDefinition:
    """A flow that may run. ``nodes`` and ``plans`` are by id, in the order of the definition; ``timeout_ms`` is the
    flow's own limit or None; ``raw`` is the definition as its author wrote it, ``hash`` its flow hash (ledger F6)."""

    start: str
    nodes: dict[str, BaseNode]
    plans: dict[str, NodePlan]
    raw: dict[str, Any]
    hash: str
    flow_id: str | None = None
    version: str | None = None
    input_type: Property | None = None
    output_type: Property | None = None
    author: str = ""
    desc: str = ""
    metadata: dict[str, Any] = field(default_factory=dict)
    timeout_ms: int | None = None
    timeout_includes_waits: bool = False
    global_context: dict[str, Any] = field(default_factory=dict)
    expose_env: tuple[str, ...] = ()
    limits: Limits = DEFAULT_LIMITS
    warnings: list[Problem] = field(default_factory=list)

    def input_mismatch(self, value: Any) -> str | None:
        """None if ``value`` fits ``inputType`` (or none is declared), else where it does not and what is wanted."""
        return None if self.input_type is None else self.input_type.mismatch(value, "$INPUT")
