"""The shape of a flow, read from its raw JSON: who points where, where it starts, what is reached.

Works without a node registry, so that the supervisor (which imports no node code) and the parser agree by
construction: both call :func:`find_start` on what :func:`pointers` gives. Must not look at anything but the fields
that name other nodes.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

START_TYPE = "start"
END_TYPE = "end"


@dataclass(frozen=True, slots=True)
class Pointer:
    """One field that names a successor: ``place`` within the node (``branches[0].next``), the target's id (NFC), and
    whether it is only the public engine's placeholder (``else_next: "false"``), which names nothing on purpose."""

    place: str
    target: str
    placeholder: bool = False


@dataclass(frozen=True, slots=True)
class Vertex:
    """A node as far as the shape is concerned."""

    id: str
    type: str
    pointers: tuple[Pointer, ...]


class NoStart(ValueError):
    """No single node to begin with; the message names the candidates."""


def canonical_id(text: str) -> str:
    """Ids are compared in NFC, so that two spellings of one letter are one id (DECISIONS 18)."""
    return text if text.isascii() else unicodedata.normalize("NFC", text)


def first_of(raw: Mapping[str, Any], *names: str) -> tuple[str, Any]:
    """The first of several spellings that is present and not null: (spelling, value), else (first name, None)."""
    for name in names:
        value = raw.get(name)
        if value is not None:
            return name, value
    return names[0], None


def pointers(raw: Mapping[str, Any]) -> tuple[Pointer, ...]:
    """All successors a raw node names: ``next``, ``else_next``, ``branches[].next`` (of a switch: or ``name``), and of
    a case ``cases[].id`` and ``default``. Fields of a wrong type are skipped: the model refuses them."""
    node_type = raw.get("type")
    found: list[Pointer] = []
    if node_type != END_TYPE:
        found.extend(_field(raw, "next", placeholder="true" if node_type == "if" else None))
        found.extend(_field(raw, "else_next", "elseNext", placeholder="false" if node_type == "if" else None))
        found.extend(_branches(raw.get("branches"), by_name=node_type == "switch"))
    if node_type == "case":
        found.extend(_cases(raw.get("cases")))
        found.extend(_field(raw, "default", placeholder="default"))
    return tuple(found)


def _field(raw: Mapping[str, Any], *names: str, placeholder: str | None = None) -> Iterator[Pointer]:
    name, value = first_of(raw, *names)
    if isinstance(value, str) and value:
        yield Pointer(name, canonical_id(value), value == placeholder)


def _branches(branches: Any, *, by_name: bool) -> Iterator[Pointer]:
    if not isinstance(branches, list):
        return
    for index, branch in enumerate(branches):
        if not isinstance(branch, Mapping):
            continue
        targets = list(_field(branch, "next"))
        if not targets and by_name:
            targets = list(_field(branch, "name"))
        for pointer in targets:
            yield Pointer(f"branches[{index}].{pointer.place}", pointer.target)


def _cases(cases: Any) -> Iterator[Pointer]:
    if not isinstance(cases, list):
        return
    for index, case in enumerate(cases):
        if isinstance(case, Mapping):
            for pointer in _field(case, "id"):
                yield Pointer(f"cases[{index}].id", pointer.target)


def vertex(raw: Any) -> Vertex | None:
    """The vertex of a raw node, or None where id or type is missing or no text."""
    if not isinstance(raw, Mapping):
        return None
    node_id, node_type = raw.get("id"), raw.get("type")
    if not isinstance(node_id, str) or not node_id or not isinstance(node_type, str):
        return None
    return Vertex(canonical_id(node_id), node_type, pointers(raw))


def find_start(vertices: Sequence[Vertex]) -> str:
    """The id to begin with (FLOW-FORMAT 3): the first node of type ``start``; else the only node that nothing points
    to. Raises NoStart with the candidates named."""
    if not vertices:
        raise NoStart("the flow has no nodes, so nothing to start with")
    for candidate in vertices:
        if candidate.type == START_TYPE:
            return candidate.id
    pointed_to = {pointer.target for each in vertices for pointer in each.pointers}
    free = [each.id for each in vertices if each.id not in pointed_to]
    if len(free) == 1:
        return free[0]
    if not free:
        raise NoStart("no node of type 'start', and every node is pointed to by another; add a start node")
    listed = ", ".join(repr(name) for name in free[:10]) + (", …" if len(free) > 10 else "")
    raise NoStart(f"no node of type 'start', and {len(free)} nodes that nothing points to: {listed}; add a start node")


def reachable(start: str, vertices: Iterable[Vertex]) -> set[str]:
    """Ids of all nodes that can be reached from ``start``, itself included."""
    targets = {each.id: [pointer.target for pointer in each.pointers] for each in vertices}
    seen = {start}
    waiting = [start]
    while waiting:
        for target in targets.get(waiting.pop(), ()):
            if target not in seen:
                seen.add(target)
                waiting.append(target)
    return seen
