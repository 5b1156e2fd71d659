"""What authors give to the runner that skips time, judged: flows in all their forms, inputs, spans of time."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

from plaita import jsontext
from plaita.client.operations import encode_input
from plaita.errors import InputError
from plaita.flow.durations import LONGEST_MS
from plaita.flow.model import FlowDefinition, parse_flow
from plaita.local import Flow
from plaita.nodes.registry import NodeRegistry

AnyFlow = Flow | FlowDefinition | Mapping[str, Any] | str | bytes | Path


def definition_of(flow: AnyFlow, registry: NodeRegistry) -> FlowDefinition:
    """A path is read, a text is a definition. Raises FlowDefinitionError, InputError."""
    if isinstance(flow, Flow):
        return flow.definition
    if isinstance(flow, FlowDefinition):
        return flow
    if isinstance(flow, Path):
        return Flow.from_file(flow, registry=registry).definition
    if isinstance(flow, str) and flow.endswith((".json", ".yaml", ".yml")):
        raise InputError(f"flow: {flow!r} is the name of a file; give Path({flow!r})")
    return parse_flow(dict(flow) if isinstance(flow, Mapping) else flow, registry)


def input_of(given: Any) -> Any:
    """A copy of an input, as it would be stored. Raises InputError."""
    return jsontext.loads(encode_input({} if given is None else given))


def span_ms(days: float, hours: float, minutes: float, seconds: float) -> int:
    """So much time, in milliseconds. Raises InputError."""
    try:
        span = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(f"time: numbers of days, hours, minutes, seconds are wanted: {error}") from None
    if span < timedelta(0):
        raise InputError(f"time: {span} is negative; it only goes on")
    if span > timedelta(milliseconds=LONGEST_MS):
        raise InputError(f"time: {span} is longer than a hundred years")
    return round(span.total_seconds() * 1000)
