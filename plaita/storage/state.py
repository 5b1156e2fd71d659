"""``ExecutionState``: an execution as one record (REFERENCE 5.2), and its way to and from the row.

The row holds each value in a field of its own (DECISIONS 16); the record has them all in ``context``. What of a context
no field stands for (the order of its keys, keys of other producers) is kept in the row's field ``context``. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from plaita import jsontext
from plaita.clock import iso_utc
from plaita.ids import check_id
from plaita.jsontext import JSONValueError
from plaita.policy.age import timestamp_ms
from plaita.store.rows import Row

Status = Literal["pending", "running", "suspended", "completed", "error", "cancelled"]

QUEUE_INVOKER = "worker"  # what every start through the queue says (REFERENCE 5.2)
_UNKNOWN_LAST = 1 << 62


class ExecutionState(BaseModel):
    """Everything of one execution. Times are ISO 8601 (UTC where they name no zone).

    ``context``: what expressions see, by its names: ``$INPUT``, ``$NODE`` (results by node id, in the order of their
    first start), ``$LAST_NODE``, ``$BRANCH``, ``$FLOW_ID``, ``$EXECUTION_ID``, ``$GLOBAL``, ``$PARENT``, ``$ENV``.
    Other keys are kept as they are. ``node_state``: what node code stored by ``set_state``. ``node_timings``: by node.
    ``next_node``: where a supervisor goes on; left out, the node of ``$LAST_NODE`` is run again. ``output``: of a flow
    that has ended. ``fence``: whose last right to write it was when this was loaded (ledger L2); None for a record that
    was not loaded.
    """

    model_config = ConfigDict(validate_assignment=True)

    execution_id: str
    flow_id: str | None = None
    flow_name: str | None = None
    flow_version: str | None = None
    flow_hash: str | None = None
    tenant_id: str | None = None
    context: dict[str, Any] = Field(default_factory=dict)
    status: Status = "running"
    start_time: str | None = None
    last_update_time: str | None = None
    end_time: str | None = None
    error: dict[str, Any] | None = None
    invoker: str | None = None
    next_node: str | None = None
    output: Any = None
    node_state: dict[str, Any] = Field(default_factory=dict)
    node_timings: dict[str, Any] = Field(default_factory=dict)
    fence: str | None = None


@dataclass(frozen=True, slots=True)
class RowFields:
    """``fields``: what a row is to hold; ``drop``: the names it must not hold."""

    fields: dict[str, bytes | str]
    drop: tuple[str, ...]


# -- to the row -----------------------------------------------------------------------------------------


def to_fields(state: ExecutionState) -> RowFields:
    """The row of a record. Raises JSONValueError (what JSON cannot carry, with its path) and InputError (ids)."""
    context = state.context
    results, last_node = _results(context), _text_of(context, "$LAST_NODE")
    fields: dict[str, bytes | str] = {
        "input": jsontext.dumps(context.get("$INPUT", {}), "$INPUT"),
        "last_node": last_node,
        "branch": _text_of(context, "$BRANCH"),
        "next_node": state.next_node if state.next_node is not None else last_node,
        "context": jsontext.dumps(_skeleton(context), "context"),
    }
    optional = {
        "flow_id": state.flow_id if state.flow_id is not None else context.get("$FLOW_ID"),
        "flow_name": state.flow_name,
        "version": state.flow_version,
        "flow_hash": state.flow_hash,
        "tenant_id": state.tenant_id,
        "invoker": state.invoker,
    }
    drop = [name for name, value in optional.items() if value is None]
    fields |= {name: _text(value, name) for name, value in optional.items() if value is not None}
    fields |= {f"r:{node}": text for node, text in results.items()}
    for name, value in state.node_state.items():
        fields[f"s:{_text(name, 'node_state')}"] = jsontext.dumps(value, f"node_state[{name!r}]")
    for node, value in state.node_timings.items():
        fields[f"t:{_text(node, 'node_timings')}"] = jsontext.dumps(value, f"node_timings[{node!r}]")
    if state.node_timings:
        fields["nodes"] = str(len(state.node_timings))
    output = state.output
    if output is None and state.status == "completed":
        output = context.get("$NODE", {}).get(last_node)  # there is no other place for it in such a record
    for name, value in (("output", output), ("error", state.error)):
        if value is None:
            drop.append(name)
        else:
            fields[name] = jsontext.dumps(value, name)
    return RowFields(fields, tuple(drop))


def _results(context: Mapping[str, Any]) -> dict[str, bytes]:
    results = context.get("$NODE", {})
    if not isinstance(results, dict):
        raise JSONValueError("$NODE", f"a {type(results).__name__}; node results are an object by node id")
    return {check_id(node, "$NODE"): jsontext.dumps(value, f"$NODE[{node!r}]") for node, value in results.items()}


def _text_of(context: Mapping[str, Any], name: str) -> str:
    value = context.get(name)
    return "" if value is None else _text(value, name)


def _text(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise JSONValueError(name, f"a {type(value).__name__}; it is a text or nothing")
    jsontext.check(value, name)
    return value


def _skeleton(context: Mapping[str, Any]) -> dict[str, Any]:
    """The context less what has fields of its own: of the results only their order stays."""
    own: dict[str, Any] = {"$INPUT": None, "$NODE": list(context.get("$NODE", {}))}
    return {name: own.get(name, value) for name, value in context.items()}


# -- from the row -----------------------------------------------------------------------------------------


def from_row(row: Row, fence: str, definition: Mapping[str, Any] | None) -> ExecutionState:
    """The record of a row. ``definition``: of its flow, None where that is gone. Raises JSONTextError."""
    control = row.control
    timings = {node: jsontext.loads(text) for node, text in row.timings.items()}
    order = sorted(timings, key=lambda node: _order(timings[node]))
    flow_id = control.get("flow_id") or None
    named = definition.get("name") if definition is not None else None
    return ExecutionState(
        execution_id=row.execution_id,
        flow_id=flow_id,
        flow_name=control.get("flow_name") or (named if isinstance(named, str) else None),
        flow_version=control.get("version") or None,
        flow_hash=control.get("flow_hash") or None,
        tenant_id=control.get("tenant_id") or None,
        context=_context(row, order, definition),
        status=row.status,  # type: ignore[arg-type]  # judged by pydantic
        start_time=_time(control.get("started_at") or control.get("created_at")),
        last_update_time=_time(control.get("last_update_time")),
        end_time=_time(control.get("ended_at")),
        error=None if row.error is None else jsontext.loads(row.error),
        invoker=control.get("invoker") or QUEUE_INVOKER,
        next_node=control.get("next_node") or None,
        output=None if row.output is None else jsontext.loads(row.output),
        node_state={name: jsontext.loads(text) for name, text in row.state.items()},
        node_timings={node: timings[node] for node in order},
        fence=fence,
    )


def listed(control: Mapping[str, str]) -> ExecutionState:
    """The record of one entry of a listing: without context, error and results."""
    return ExecutionState(
        execution_id=control["execution_id"],
        flow_id=control.get("flow_id"),
        flow_version=control.get("version"),
        flow_hash=control.get("flow_hash"),
        tenant_id=control.get("tenant_id"),
        status=control.get("status", ""),  # type: ignore[arg-type]  # judged by pydantic
        start_time=_time(control.get("started_at") or control.get("created_at")),
        last_update_time=_time(control.get("last_update_time")),
        end_time=_time(control.get("ended_at")),
        invoker=QUEUE_INVOKER,
        next_node=control.get("next_node") or None,
    )


def _order(timing: Any) -> int:
    order = timing.get("order") if isinstance(timing, dict) else None
    return order if isinstance(order, int) else _UNKNOWN_LAST


def _time(ms: str | None) -> str | None:
    return iso_utc(int(ms)) if ms and ms.isdigit() else None


def time_ms(value: str | None) -> int | None:
    """A record's time as epoch ms; None for none, or one that cannot be read."""
    return None if value is None else timestamp_ms(value)


def _context(row: Row, order: list[str], definition: Mapping[str, Any] | None) -> dict[str, Any]:
    control = row.control
    stored = control.get("context")
    skeleton = jsontext.loads(stored.encode("utf-8", "surrogateescape")) if stored else None
    saved_order = skeleton.get("$NODE", []) if isinstance(skeleton, dict) else []
    first = [node for node in saved_order if node in row.results]
    later = sorted(row.results.keys() - set(first), key=lambda node: order.index(node) if node in order else len(order))
    values: dict[str, Any] = {
        "$INPUT": {} if row.input is None else jsontext.loads(row.input),
        "$NODE": {node: jsontext.loads(row.results[node]) for node in [*first, *later]},
        "$LAST_NODE": control.get("last_node") or None,
        "$BRANCH": control.get("branch") or None,
        "$FLOW_ID": control.get("flow_id") or None,
        "$EXECUTION_ID": row.execution_id,
    }
    if isinstance(skeleton, dict):
        return _overlaid(skeleton, values)
    given = definition.get("globalContext", definition.get("global_context")) if definition is not None else None
    variables = given if isinstance(given, dict) else {}
    # $ENV is never stored: its values are the host's that runs a step
    return {**values, "$GLOBAL": {**variables, "flow_id": values["$FLOW_ID"]}, "$PARENT": None, "$ENV": {}}


def _overlaid(skeleton: dict[str, Any], values: dict[str, Any]) -> dict[str, Any]:
    """A saved context with what has become of the execution since. Keys it never had come only with a value."""
    context = {name: values[name] if name in ("$INPUT", "$NODE") else value for name, value in skeleton.items()}
    for name in ("$LAST_NODE", "$BRANCH"):
        if (context.get(name) or None) != values[name]:
            context[name] = values[name]
    if "$NODE" not in context and values["$NODE"]:
        context["$NODE"] = values["$NODE"]
    return context
