"""A definition to a flow that may run, or every reason why not (FLOW-FORMAT 1-3, 18-20).

Owns the order of the checks: text, flow fields, each node, the graph. All problems are gathered before it refuses;
nothing but FlowDefinitionError leaves :func:`parse_flow`, whatever the definition or a plug-in's validators do.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, TypeVar

from pydantic import BaseModel, Field, StrictBool, ValidationError, field_validator

from plaita.errors import FlowDefinitionError, Problem
from plaita.flow.basenode import BaseNode, NodeTypes, OpaqueNode, Preparation
from plaita.flow.callback_urls import NODE_TYPE as CALLBACK_TYPE
from plaita.flow.callback_urls import not_a_callback
from plaita.flow.definition import FlowDefinition, NodePlan
from plaita.flow.durations import parse_timeout
from plaita.flow.explain import explained, joined
from plaita.flow.failure import described
from plaita.flow.fields import Part, legal_id, respell, spellings, unknown_fields
from plaita.flow.graph import NoStart, Vertex, canonical_id, find_start, reachable, vertex
from plaita.flow.limits import DEFAULT_LIMITS, Limits
from plaita.flow.nearest import Nearest, a_type, shown
from plaita.flow.outcome import StepStopped
from plaita.flow.outline import flow_hash
from plaita.flow.places import texts, worded
from plaita.flow.properties import Property
from plaita.flow.text import read_definition, refused

LATER_TYPES = frozenset(
    (
        *("loop", "while", "map", "filter", "find", "reduce", "child", "reference", "parallel", "http"),
        *("kafka_queue",),
        *("code", "calculate", "redis"),
    )
)
"""Types of the public engine's flows that this build does not have: refused by name, unless a plug-in brings them."""

Model = TypeVar("Model", bound=BaseModel)

MAX_PROBLEMS = 500
MAX_WARNINGS = 500


class _FlowFields(Part):
    """The fields of a flow, apart from its nodes."""

    special_names: ClassVar[Mapping[str, str]] = {"id": "flow_id"}
    tolerated_names: ClassVar[frozenset[str]] = frozenset({"nodes"})

    flow_id: str | None = None
    version: str | None = None
    runtime: Literal["python"] = "python"
    input_type: Property | None = None
    output_type: Property | None = None
    author: str | None = None
    desc: str | None = None
    metadata: dict[str, Any] = Field(default_factory=dict)
    timeout: Any = None
    timeout_includes_waits: StrictBool = False
    global_context: dict[str, Any] = Field(default_factory=dict)
    expose_env: list[str] = Field(default_factory=list)

    @field_validator("version", mode="before")
    @classmethod
    def _version_text(cls, value: Any) -> Any:
        return str(value) if isinstance(value, int) and not isinstance(value, bool) else value

    @field_validator("flow_id", "version")
    @classmethod
    def _legal_id(cls, value: str | None) -> str | None:
        return None if value is None else legal_id(value)

    @field_validator("timeout")
    @classmethod
    def _legal_timeout(cls, value: Any) -> Any:
        parse_timeout(value)
        return value

    @field_validator("input_type", "output_type", mode="before")
    @classmethod
    def _declaration(cls, value: Any) -> Any:
        return Property.from_json(value) if isinstance(value, str) else value


@dataclass(slots=True)
class _Reader:
    """One parse under way: what is wrong so far, and what to compare with."""

    registry: NodeTypes
    limits: Limits
    other_types: frozenset[str]
    any_type: bool
    problems: list[Problem] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)
    references: list[tuple[str, str]] = field(default_factory=list)
    callback_references: list[tuple[str, str | None]] = field(default_factory=list)
    type_names: Nearest | None = None

    def problem(self, place: str, reason: str) -> None:
        self.problems.append(Problem(place, reason))

    def warn(self, place: str, reason: str) -> bool:
        """False when there are so many warnings already that no more are kept: the caller may stop looking."""
        if len(self.warnings) >= MAX_WARNINGS:
            return False
        self.warnings.append(Problem(place, reason))
        return True


def parse_flow(
    definition: bytes | str | dict[str, Any],
    registry: NodeTypes,
    *,
    limits: Limits = DEFAULT_LIMITS,
    other_types: Collection[str] = (),
    allow_unknown_types: bool = False,
) -> FlowDefinition:
    """Parse a definition: JSON or YAML text, or a dict of JSON values (never changed, nor shared afterwards).

    ``other_types`` are node types that other hosts have (DECISIONS 23): their nodes are checked by the common fields
    only, and such a flow cannot run here. ``allow_unknown_types`` does that for any type.
    Raises FlowDefinitionError that lists all problems with their places. ``warnings`` of the result holds what is
    suspicious but no fault.
    """
    raw = read_definition(definition, limits)
    reader = _Reader(registry, limits, frozenset(other_types), allow_unknown_types)
    fields = _read_fields(raw, reader)
    raw_nodes = _raw_nodes(raw, reader)
    nodes, places = _read_nodes(raw_nodes, reader)
    shapes = [(index, shape) for index, shape in enumerate(map(vertex, raw_nodes)) if shape is not None]
    start = _read_graph(shapes, len(shapes) == len(raw_nodes), reader)
    if reader.problems or fields is None:
        raise FlowDefinitionError(_capped(reader.problems), source=str(raw.get("flow_id") or "")[:200])
    by_id = {shape.id: shape for _, shape in shapes}
    return FlowDefinition(
        start=start,
        nodes=nodes,
        plans={node_id: _plan(node, places[node_id], by_id[node_id]) for node_id, node in nodes.items()},
        raw=raw,
        hash=flow_hash(raw),
        flow_id=fields.flow_id,
        version=fields.version,
        input_type=fields.input_type,
        output_type=fields.output_type,
        author=fields.author or "",
        desc=fields.desc or "",
        metadata=fields.metadata,
        timeout_ms=parse_timeout(fields.timeout),
        timeout_includes_waits=fields.timeout_includes_waits,
        global_context=fields.global_context,
        expose_env=tuple(fields.expose_env),
        limits=limits,
        warnings=reader.warnings[:MAX_WARNINGS],
    )


def _capped(problems: list[Problem]) -> list[Problem]:
    if len(problems) <= MAX_PROBLEMS:
        return problems
    left_out = len(problems) - MAX_PROBLEMS
    return [*problems[:MAX_PROBLEMS], Problem("", f"and {left_out} more problems")]


# -- flow fields --------------------------------------------------------------------------------


def _read_fields(raw: dict[str, Any], reader: _Reader) -> _FlowFields | None:
    for place, reason in unknown_fields(_FlowFields, raw, ""):
        if not reader.warn(place, "not a field of a flow, ignored" if place == "name" else reason):
            break
    fields = _validated(_FlowFields, {key: value for key, value in raw.items() if key != "nodes"}, "", reader)
    if isinstance(fields, frozenset):
        return None
    for declared, name in ((fields.input_type, "inputType"), (fields.output_type, "outputType")):
        for place, reason in declared.unknown_types(name) if declared is not None else ():
            if not reader.warn(place, reason):
                break
    if not fields.expose_env and any("$ENV" in text for _, text in texts(raw, "")):
        reader.warn("exposeEnv", "$ENV is used, but no variable is exposed, so every one of them is null")
    return fields


def _raw_nodes(raw: dict[str, Any], reader: _Reader) -> list[Any]:
    if "nodes" not in raw:
        what = "required field is missing"
        if isinstance(raw.get("type"), str):
            what += f"; this looks like a single node of type {shown(raw['type'])}: put it into the nodes of a flow"
        raise refused("nodes", what)
    nodes = raw["nodes"]
    if not isinstance(nodes, list):
        raise refused("nodes", f"a list of nodes is wanted, this is {a_type(nodes)}")
    if len(nodes) > reader.limits.nodes:
        raise refused("nodes", f"{len(nodes)} nodes; the limit is {reader.limits.nodes}")
    return nodes


# -- nodes ----------------------------------------------------------------------------------------


def _read_nodes(raw_nodes: list[Any], reader: _Reader) -> tuple[dict[str, BaseNode], dict[str, str]]:
    nodes: dict[str, BaseNode] = {}
    places: dict[str, str] = {}
    seen: dict[str, str] = {}
    for index, raw in enumerate(raw_nodes):
        place = f"nodes[{index}]"
        if not isinstance(raw, dict):
            reader.problem(place, f"a node is an object, this is {a_type(raw)}: {shown(raw)}")
            continue
        raw_id = raw.get("id")
        if isinstance(raw_id, str) and raw_id:
            node_id = canonical_id(raw_id)
            if node_id in seen:
                reader.problem(f"{place}.id", f"two nodes have the id {shown(node_id)}; the other is {seen[node_id]}")
            seen.setdefault(node_id, place)
        node = _read_node(raw, place, reader)
        if node is not None and node.id not in nodes:
            nodes[node.id] = node
            places[node.id] = place
    return nodes, places


def _read_node(raw: dict[str, Any], place: str, reader: _Reader) -> BaseNode | None:
    cls = _node_class(raw, place, reader)
    if cls is None:
        # the common fields are checked all the same, so that one run names every fault
        _validated(OpaqueNode, raw, place, reader)
        return None
    for where, reason in unknown_fields(cls, raw, place):
        if not reader.warn(where, reason):
            break
    fields = {key: value for key, value in raw.items() if key != "type" or "type" in cls.model_fields}
    before = len(reader.problems)
    validated = _validated(cls, fields, place, reader)
    node = _without_faults(cls, fields, validated) if isinstance(validated, frozenset) else validated
    if node is None:
        return None
    spelled = {name: key for key, name in spellings(cls).items() if key in raw and name not in raw}
    preparation = Preparation(place, reader.problems, reader.warnings, spelled)
    try:
        node.prepare(preparation)
    except (KeyboardInterrupt, StepStopped):
        raise
    except BaseException as error:  # noqa: BLE001 - a plug-in's own code; whatever it raises refuses this flow only
        reader.problem(place, f"the node type {raw['type']!r} cannot prepare it: {described(error)}")
    reader.references.extend(preparation.node_references)
    reader.callback_references.extend(preparation.callback_references)
    _warn_of_node(node, raw, place, reader)
    return node if len(reader.problems) == before else None


def _without_faults(cls: type[BaseNode], fields: dict[str, Any], wrong: frozenset[str]) -> BaseNode | None:
    """The node without the fields that are ``wrong``, if it can be made: to find the faults of its expressions too."""
    right = {key: value for key, value in respell(cls, fields).items() if key not in wrong}
    right.setdefault("id", "unnamed")
    try:
        return cls.model_validate(right)
    except (KeyboardInterrupt, StepStopped):
        raise
    except BaseException:  # noqa: BLE001 - required fields were wrong, or a plug-in raises: both are named already
        return None


def _node_class(raw: dict[str, Any], place: str, reader: _Reader) -> type[BaseNode] | None:
    node_type = raw.get("type")
    if node_type is None:
        reader.problem(f"{place}.type", "required field is missing")
        return None
    if not isinstance(node_type, str):
        reader.problem(f"{place}.type", f"text is wanted, this is {a_type(node_type)}: {shown(node_type)}")
        return None
    cls = reader.registry.get(node_type)
    if cls is not None:
        if cls.is_suspending and not callable(getattr(cls, "_subscription", None)):
            reason = f"node type {shown(node_type)} waits, but its class {cls.__name__} is no subclass of EventNode"
            reader.problem(f"{place}.type", reason)
            return None
        return cls
    if node_type in reader.other_types or reader.any_type:
        return OpaqueNode
    known = sorted({*reader.registry.names(), *reader.other_types})
    listed = ", ".join(known[:40])
    if node_type in LATER_TYPES:
        reader.problem(f"{place}.type", f"node type {node_type!r} is not in this build; known: {listed}")
        return None
    if reader.type_names is None:
        reader.type_names = Nearest([*known, *sorted(LATER_TYPES)])
    near = reader.type_names.find(node_type)
    hint = f"; did you mean {near!r}?" if near else ";"
    plugin = "" if near else "; a plug-in's types come with --preload"
    reader.problem(f"{place}.type", f"unknown node type {shown(node_type)}{hint} known: {listed}{plugin}")
    return None


def _warn_of_node(node: BaseNode, raw: dict[str, Any], place: str, reader: _Reader) -> None:
    if node.timeout_handler.code is not None:
        reader.warn(f"{place}.timeoutHandler.code", "has no effect: a timeout always has the code -1")
    absorbs = node.error_handler.strategy == "continue"
    if not node.branching and not node.ends_flow and not node.next and not absorbs:
        reader.warn(place, f"node {node.id!r} is no end and has no next: an execution that gets here ends in error")
    if len(reader.warnings) >= MAX_WARNINGS:
        return
    warned = {warning.place for warning in reader.warnings}
    for where, text in texts(raw, place):
        if ("{{" in text or "${" in text) and worded(where) not in warned:
            reader.warn(worded(where), "{{ }} and ${ } are plain text here; write {% $INPUT.name %}")


def _plan(node: BaseNode, place: str, shape: Vertex) -> NodePlan:
    return NodePlan(
        node=node,
        label=f"node {node.id!r} ({node.name[:200]})" if node.name else f"node {node.id!r}",
        place=place,
        type=shape.type,
        next_node=canonical_id(node.next) if node.next else None,
        targets=frozenset(pointer.target for pointer in shape.pointers if not pointer.placeholder),
        branching=node.branching,
        ends_flow=node.ends_flow,
        timeout_ms=parse_timeout(node.timeout),
        attempts=max(0, node.error_handler.retry_times) + 1,
        suspending=node.is_suspending,
    )


# -- the graph --------------------------------------------------------------------------------------


def _read_graph(shapes: list[tuple[int, Vertex]], complete: bool, reader: _Reader) -> str:
    """The id of the start, or an empty text after a problem. ``complete``: no node had to be left out."""
    vertices = [shape for _, shape in shapes]
    ids = {shape.id for shape in vertices}
    names = Nearest(shape.id for shape in vertices)
    for index, shape in shapes:
        for pointer in shape.pointers:
            if pointer.target in ids:
                continue
            place = f"nodes[{index}].{pointer.place}"
            if pointer.placeholder:
                reader.warn(place, f"the placeholder {pointer.target!r} names no node")
            else:
                reader.problem(place, f"no node has the id {shown(pointer.target)}{names.hint(pointer.target)}")
    _check_callbacks(vertices, reader)
    try:
        start = find_start(vertices)
    except NoStart as error:
        if complete:  # else the broken nodes are the problem, and already named
            reader.problem("nodes", str(error))
        return ""
    for place, key in reader.references:
        if canonical_id(key) not in ids:
            if len(reader.warnings) >= MAX_WARNINGS:
                break
            reader.warn(place, f"$NODE.{key} is always null: no node has that id{names.hint(key)}")
    reached = reachable(start, vertices)
    for index, shape in shapes:
        if shape.id not in reached:
            reader.warn(f"nodes[{index}]", f"node {shown(shape.id)} cannot be reached from {shown(start)}")
    return start


def _check_callbacks(vertices: list[Vertex], reader: _Reader) -> None:
    """Every ``$F.callback_url('<id>')`` must name a node that has a URL."""
    types = {shape.id: shape.type for shape in vertices}
    callbacks = Nearest(node_id for node_id, node_type in types.items() if node_type == CALLBACK_TYPE)
    for place, key in reader.callback_references:
        if key is None:
            reader.problem(place, "$F.callback_url: the id of a node is wanted, a quoted text")
            continue
        node_type = types.get(canonical_id(key))
        if node_type != CALLBACK_TYPE:
            reader.problem(place, f"$F.callback_url: {not_a_callback(key, node_type)}{callbacks.hint(key)}")


# -- pydantic's errors in an author's words -------------------------------------------------------------


def _validated(cls: type[Model], data: dict[str, Any], place: str, reader: _Reader) -> Model | frozenset[str]:
    """An instance; or, after its faults were noted, the names of the fields that are wrong. Validators of plug-ins may
    raise whatever they like."""
    try:
        return cls.model_validate(data)
    except ValidationError as error:
        faults = error.errors(include_url=False, include_context=False)
        for where, reason in explained(cls, data, faults):
            reader.problem(joined(place, where), reason)
        return frozenset(str(fault["loc"][0]) for fault in faults if fault["loc"])
    except (KeyboardInterrupt, StepStopped):
        raise
    except BaseException as error:  # noqa: BLE001 - a plug-in's own code; whatever it raises refuses this flow only
        reader.problem(place, f"it cannot be read: {described(error)}")
    return frozenset()
