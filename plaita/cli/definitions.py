"""Reading and judging a flow definition for ``flow put``, ``flow validate`` and ``run``."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from plaita import jsontext
from plaita.cli.inputs import MAX_DEFINITION_BYTES, flow_id_for, read_bytes
from plaita.errors import FlowDefinitionError, InputError, Problem

if TYPE_CHECKING:
    from plaita.nodes.registry import NodeRegistry


@dataclass(frozen=True, slots=True)
class Definition:
    """A flow that may be stored: ``body`` is its JSON in the author's order, ``flow_hash`` does not depend on that."""

    flow_id: str
    flow_hash: str
    body: bytes
    warnings: tuple[Problem, ...]


def node_registry(preloads: Sequence[str]) -> NodeRegistry:
    """The node types of this host: built in, by entry point, by ``--preload`` or ``PLAITA_PRELOAD``.

    Plug-ins may print when they are imported; that goes to stderr, stdout is for the answer. Raises InputError.
    """
    from plaita.nodes.registry import get_default_registry, load_preloads

    from_environment = re.split(r"[,\s]+", os.environ.get("PLAITA_PRELOAD", ""))
    modules = list(dict.fromkeys([*preloads, *(name for name in from_environment if name)]))
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())  # a module beside the flow, as `python -m` would find it
    with contextlib.redirect_stdout(sys.stderr):
        registry = get_default_registry()
        if modules:
            load_preloads(modules)
    return registry


@dataclass(frozen=True, slots=True)
class Source:
    """The bytes of a definition and where they came from: a file's name, or ``-``."""

    name: str
    data: bytes


def read_source(name: str) -> Source:
    """Read a file or stdin once. Raises InputError."""
    return Source(name, read_bytes(name, "FILE", MAX_DEFINITION_BYTES))


def judge_flow(
    source: Source,
    types: NodeRegistry,
    *,
    given_id: str | None = None,
    other_types: Collection[str] = (),
    allow_unknown_types: bool = False,
) -> Definition:
    """The definition, fit to be stored. Raises FlowDefinitionError with every problem."""
    from plaita.flow.model import parse_flow
    from plaita.flow.outline import flow_hash

    flow = parse_flow(source.data, types, other_types=other_types, allow_unknown_types=allow_unknown_types)
    try:
        flow_id = flow_id_for(source.name, given_id, flow.flow_id)
    except InputError as error:
        raise FlowDefinitionError([Problem("flow_id", str(error))]) from None
    return Definition(
        flow_id=flow_id,
        flow_hash=flow_hash(flow.raw),
        body=jsontext.dumps(flow.raw),
        warnings=tuple(flow.warnings),
    )


def problems_document(error: FlowDefinitionError) -> dict[str, Any]:
    """The refusal of a definition as ``--json`` prints it."""
    return {
        "ok": False,
        "problems": [{"place": problem.place, "reason": problem.reason} for problem in error.problems],
    }
