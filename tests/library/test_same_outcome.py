"""A flow ends the same in a worker as in this process and through a supervisor: the flows of the supervisor's test."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from library_world import World

from plaita.nodes.builtin import BUILT_IN
from plaita.nodes.registry import NodeRegistry

SUPERVISOR = Path(__file__).parents[1] / "supervisor"


def _module(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"library_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.parent))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(path.parent))
    return module


def test_in_a_worker_a_flow_ends_as_everywhere(world: World) -> None:
    theirs, nodes = _module(SUPERVISOR / "test_same_outcome.py"), _module(SUPERVISOR / "nodes" / "outcomes.py")
    worker = world.worker(
        registry=NodeRegistry([*BUILT_IN, nodes.Ends, nodes.EndsLater]), max_deliveries=1, kill_grace=0.1
    )
    came: dict[str, dict[str, Any]] = {}
    definitions = {name: {**flow, "flow_id": f"f{number}"} for number, (name, flow) in enumerate(theirs.FLOWS.items())}
    for name, definition in definitions.items():
        world.flows.put_flow_definition(definition["flow_id"], definition)
        came[name] = world.background(worker.start_flow, definition["flow_id"], theirs.GIVEN)
    for thread in world.threads:
        thread.join(60)
    differences = {}
    for name, definition in definitions.items():
        answer = came[name]["answer"]
        error = answer["error"]
        if error is not None:
            error = {field: error[field] for field in ("code", "message", "error_type", "node")}
        here = {"status": answer["status"], "output": answer["output"], "error": error}
        local = theirs._local(definition)
        if name in theirs.TIMES:
            for outcome in (local, here):
                outcome["error"].pop("message")
        if json.dumps(local) != json.dumps(here):
            differences[name] = (local, here)
    assert not differences, json.dumps(differences, indent=1)
