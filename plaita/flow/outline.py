"""What can be known of a flow without its node types: start, timeouts, node types and names, and its hash.

For the supervisor, which must not import node code. Reads stored definitions, which may come from other producers:
anything that is not right is a FlowDefinitionError, never another exception.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

from plaita import jsontext
from plaita.errors import FlowDefinitionError, Problem
from plaita.flow.durations import DurationError, parse_timeout
from plaita.flow.graph import NoStart, Vertex, find_start, first_of, vertex


@dataclass(frozen=True, slots=True)
class NodeOutline:
    """``timeout_ms``: the node's own limit in milliseconds, None for none."""

    type: str
    name: str
    timeout_ms: int | None


@dataclass(frozen=True, slots=True)
class Outline:
    """``start`` is the id of the first node. ``timeout_includes_waits``: DECISIONS 19. ``callback_nodes``: the ids of
    those whose waits have URLs (DECISIONS 30)."""

    start: str
    timeout_ms: int | None
    nodes: dict[str, NodeOutline]
    timeout_includes_waits: bool = False
    callback_nodes: tuple[str, ...] = ()


def outline(definition: dict[str, Any]) -> Outline:
    """The outline of a definition. Raises FlowDefinitionError listing every fault that would mislead its reader."""
    if not isinstance(definition, dict) or not isinstance(definition.get("nodes"), list):
        raise FlowDefinitionError([Problem("nodes", "a flow is an object with a list of nodes")])
    problems: list[Problem] = []
    vertices: list[Vertex] = []
    nodes: dict[str, NodeOutline] = {}
    for index, raw in enumerate(definition["nodes"]):
        place = f"nodes[{index}]"
        found = vertex(raw)
        if found is None:
            problems.append(Problem(place, "a node is an object with an id and a type, both text"))
            continue
        if found.id in nodes:
            problems.append(Problem(f"{place}.id", f"two nodes have the id {found.id!r}"))
        vertices.append(found)
        name = raw.get("name")
        nodes[found.id] = NodeOutline(
            type=found.type,
            name=name if isinstance(name, str) and name else found.id,
            timeout_ms=_timeout(raw, f"{place}.timeout", problems),
        )
    timeout_ms = _timeout(definition, "timeout", problems)
    start = _start(vertices, problems)
    if problems:
        raise FlowDefinitionError(problems)
    _, includes_waits = first_of(definition, "timeout_includes_waits", "timeoutIncludesWaits")
    callback_nodes = tuple(node_id for node_id, node in nodes.items() if node.type == "http_callback")
    return Outline(start, timeout_ms, nodes, includes_waits is True, callback_nodes)


def _timeout(raw: dict[str, Any], place: str, problems: list[Problem]) -> int | None:
    try:
        return parse_timeout(raw.get("timeout"))
    except DurationError as error:
        problems.append(Problem(place, str(error)))
        return None


def _start(vertices: list[Vertex], problems: list[Problem]) -> str:
    try:
        return find_start(vertices)
    except NoStart as error:
        problems.append(Problem("nodes", str(error)))
        return ""


def flow_hash(definition: dict[str, Any]) -> str:
    """sha256 (hex) over the canonical JSON of the definition as its author wrote it (ledger F6): any change of
    content changes it, key order and white space do not. Raises jsontext.JSONValueError."""
    return hashlib.sha256(jsontext.canonical(definition)).hexdigest()
