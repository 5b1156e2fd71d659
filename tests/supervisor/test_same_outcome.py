"""A flow ends the same way in this process (``Flow.run``) and through a supervisor: status, output, error, code.

The two share the engine; what they do not share (threads or killed processes for time, the way a result is carried)
must not show in the outcome (FLOW-FORMAT 10 and 15).
"""

from __future__ import annotations

import json
import sys
from typing import Any

from hosts import NODES, World

from plaita import Flow
from plaita.client import operations
from plaita.errors import FlowExecutionException
from plaita.nodes.builtin import BUILT_IN
from plaita.nodes.registry import NodeRegistry

GIVEN: dict[str, Any] = {"n": 2, "name": "Ann", "trap": "{% $ENV.HOME %}", "big": 2**70, "list": [1, 2], "null": None}


def one(type_: str = "t_ends", **fields: Any) -> dict[str, Any]:
    """A flow around one node."""
    nodes = [
        {"type": "start", "id": "s", "next": "n"},
        {"type": type_, "id": "n", "next": "e", **fields},
        {"type": "end", "id": "e", "output": {"n": "$NODE.n", "last": "$LAST_NODE"}},
    ]
    return {"nodes": nodes}


def ends(**fields: Any) -> dict[str, Any]:
    return {"nodes": [{"type": "start", "id": "s", "next": "e"}, {"type": "end", "id": "e", **fields}]}


def _counts() -> dict[str, Any]:
    """A cycle that counts to 5."""
    smaller = {"field": "$NODE.add", "operator": "lt", "value": 5}
    nodes = [
        {"type": "start", "id": "s", "next": "add"},
        {"type": "assignment", "id": "add", "output": "$F.add($F.ifelse($NODE.add, $NODE.add, 0), 1)", "next": "if"},
        {"type": "if", "id": "if", "condition": smaller, "next": "add", "else_next": "e"},
        {"type": "end", "id": "e", "output": "$NODE"},
    ]
    return {"nodes": nodes}


def _switch(*branches: dict[str, Any], **fields: Any) -> dict[str, Any]:
    nodes = [
        {"type": "start", "id": "s", "next": "sw"},
        {"type": "switch", "id": "sw", "branches": list(branches), **fields},
        {"type": "end", "id": "low", "output": "low"},
        {"type": "end", "id": "high", "output": "high {% $BRANCH %}"},
    ]
    return {"nodes": nodes}


ALWAYS = {"field": 1, "operator": "eq", "value": 1}
NEVER = {"field": 1, "operator": "eq", "value": 2}

FLOWS: dict[str, dict[str, Any]] = {
    # ends well
    "echo": ends(output="$INPUT"),
    "text from data is no expression": ends(output="{% $INPUT.trap %} {% $INPUT.name %}"),
    "nothing": ends(resultType="nop", output="$INPUT"),
    "a tuple": one(how="tuple"),
    "a big integer": one(how="big_integer"),
    "cycle": _counts(),
    "priority": _switch({"next": "low", "condition": ALWAYS}, {"next": "high", "condition": ALWAYS, "priority": 2}),
    "default": _switch({"next": "low", "condition": NEVER}, {"next": "high", "isDefault": True}),
    "global and ids": {**ends(output=["$GLOBAL", "$FLOW_ID", "$PARENT", "$BRANCH"]), "globalContext": {"k": [1]}},
    # handlers
    "continue": one(how="key_error", errorHandler={"strategy": "continue"}),
    "continue with": one(how="exit", errorHandler={"strategy": "continue-with", "defaultValue": ["$INPUT.n", 0]}),
    "continue with after retries": one(
        how="value_error", errorHandler={"strategy": "continue_with", "defaultValue": 7, "retryTimes": 2}
    ),
    "timeout continue": one(how="sleeps", timeout="PT0.2S", timeoutHandler={"strategy": "continue"}),
    "timeout continue with": one(
        how="sleeps", timeout="200", timeoutHandler={"strategy": "continue-with", "defaultValue": False}
    ),
    "own timeout error continue": one(how="async_timeout", timeoutHandler={"strategy": "continue"}),
    "unmatched continue": _switch({"next": "low", "condition": NEVER}, errorHandler={"strategy": "continue"}),
    "unmatched continue with": _switch(
        {"next": "low", "condition": NEVER}, errorHandler={"strategy": "continue-with", "defaultValue": "low"}
    ),
    # ends in error
    "value error": one(how="value_error"),
    "key error": one(how="key_error"),
    "handler's code and message": one(how="business", errorHandler={"code": -9527, "message": "said the author"}),
    "business code": one(how="business"),
    "a code that is text": one(how="text_code"),
    "the cause's code": one(how="caused"),
    "error result from a node": one(how="result_error"),
    "error end": ends(resultType="error", error={"code": 4, "message": "no {% $INPUT.name %}"}),
    "error end without error": ends(resultType="error"),
    "output validation": one(how="output_validation"),
    "cancelled by the node": one(how="cancelled"),
    "timeout error of the code": one(how="timeout_error"),
    "sys.exit": one(how="exit"),
    "generator exit": one(how="interrupt"),
    "text that UTF-8 cannot carry": one(how="surrogate"),
    "NaN": one(how="nan"),
    "a set": one(how="set"),
    "too large": one(how="large"),
    "node timeout": one(how="sleeps", timeout=200, errorHandler={"strategy": "continue"}, timeoutHandler={"code": 9}),
    "flow timeout": {**one(how="sleeps", timeout="PT50S"), "timeout": 300},
    "unmatched": _switch({"next": "low", "condition": NEVER}),
    "no next": {"nodes": [{"type": "start", "id": "s", "next": "m"}, {"type": "mock", "id": "m", "value": 1}]},
    "bad index": ends(output="$INPUT.list[7]"),
    "what cannot be compared": _switch(
        {"next": "low", "condition": {"field": "$INPUT.n", "operator": "lt", "value": "$INPUT.name"}}
    ),
    "a type that does not fit": one("assignment", output="$INPUT.n", outputType={"type": "string"}),
    "input that does not fit": {
        **ends(),
        "inputType": {"type": "object", "properties": {"n": {"type": "string", "required": True}}},
    },
    "coroutine": one("t_ends_later", how="business"),
}
TIMES = ("flow timeout",)  # its message names what was left of the time


def _local(definition: dict[str, Any]) -> dict[str, Any]:
    sys.path.insert(0, str(NODES))
    try:
        import outcomes
    finally:
        sys.path.remove(str(NODES))
    flow = Flow.from_dict(definition, registry=NodeRegistry([*BUILT_IN, outcomes.Ends, outcomes.EndsLater]))
    try:
        return {"status": "completed", "output": flow.run(GIVEN), "error": None}
    except FlowExecutionException as error:
        told = {"code": error.code, "message": error.message, "error_type": error.error_type.value, "node": error.node}
        return {"status": "error", "output": None, "error": told}


def test_an_input_of_null_is_null_and_none_at_all_is_an_empty_object(world: World) -> None:
    world.serving()
    world.put(**ends(output={"all": "$INPUT", "key": "$INPUT.key"}), flow_id="f")
    told = world.client.perform(operations.start(world.keys, "f", None))
    row = world.wait(told.execution_id)
    assert (row["input"], row["output"]) == (None, {"all": None, "key": None})
    row = world.run("f")
    assert (row["input"], row["output"]) == ({}, {"all": {}, "key": None})


def test_in_process_and_through_a_supervisor_a_flow_ends_the_same(world: World) -> None:
    world.serving(preload="outcomes", max_deliveries=1, kill_grace=1, executors=2)
    definitions = {name: {**flow, "flow_id": f"f{number}"} for number, (name, flow) in enumerate(FLOWS.items())}
    started: dict[str, str] = {}
    for name, definition in definitions.items():
        world.put(**definition)
        started[name] = world.start(definition["flow_id"], GIVEN)
    differences = {}
    for name, definition in definitions.items():
        row = world.wait(started[name])
        error = row["error"]
        if error is not None:
            error = {field: error[field] for field in ("code", "message", "error_type", "node")}
        supervised = {"status": row["status"], "output": row["output"], "error": error}
        local = _local(definition)
        if name in TIMES:
            for outcome in (local, supervised):
                outcome["error"].pop("message")
        if json.dumps(local) != json.dumps(supervised):
            differences[name] = (local, supervised)
    assert not differences, json.dumps(differences, indent=1)
