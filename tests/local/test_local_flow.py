"""A flow in this process (CONTRACT "Library"): input, output, errors, time and threads."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import os
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any, ClassVar

import pytest

from plaita import Flow
from plaita.errors import (
    ErrorResultException,
    FlowDefinitionError,
    FlowExecutionException,
    FlowTimeoutError,
    FlowWaitsError,
    InputError,
    NodeExecutionError,
    NodeTimeoutError,
)
from plaita.local import StepRecord
from plaita.nodes.base import Node
from plaita.nodes.builtin import BUILT_IN
from plaita.nodes.execution import Execution
from plaita.nodes.registry import NodeRegistry

HELLO = """
flow_id: hello
inputType: {dataType: object}
nodes:
  - {type: start, id: s, next: a}
  - {type: assignment, id: a, output: "hello {% $INPUT.name %}", next: e}
  - {type: end, id: e, output: $NODE.a}
"""


def chain(node: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {
        "nodes": [
            {"type": "start", "id": "s", "next": "n"},
            {"id": "n", "next": "e", **node},
            {"type": "end", "id": "e", "output": "$NODE.n"},
        ],
        **fields,
    }


class Call(Node):
    """Runs the function that the test put into ``functions``."""

    node_type: ClassVar[str] = "call"
    functions: ClassVar[dict[str, Any]] = {}
    function: str = "f"

    def execute(self, execution: Execution) -> Any:
        return self.functions[self.function](execution)


class CallLater(Node):
    node_type: ClassVar[str] = "call_later"

    async def arun(self, execution: Execution) -> Any:
        return await Call.functions["f"](execution)


@pytest.fixture
def make() -> Any:
    """make(function, flow fields, **node fields): a flow around one node that runs the function."""
    registry = NodeRegistry([*BUILT_IN, Call, CallLater])

    def build(function: Any, flow_fields: dict[str, Any] | None = None, **fields: Any) -> Flow:
        Call.functions["f"] = function
        return Flow.from_dict(chain({"type": "call", **fields}, **(flow_fields or {})), registry=registry)

    return build


# -- making and input -------------------------------------------------------------------------------------


def test_from_string_dict_and_file(tmp_path: Path) -> None:
    assert Flow.from_string(HELLO).run(name="x") == "hello x"
    assert Flow.from_string(HELLO.encode()).run(name="x") == "hello x"
    for name, text in (("f.yaml", HELLO), ("f.json", '{"nodes": [{"type": "end", "id": "e", "output": 1}]}')):
        (tmp_path / name).write_text(text, encoding="utf-8")
    assert Flow.from_file(tmp_path / "f.yaml").run(name="y") == "hello y"
    assert Flow.from_file(str(tmp_path / "f.json")).run() == 1
    assert Flow.from_dict({"nodes": [{"type": "end", "id": "e", "output": 1}]}).run() == 1


def test_what_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FlowDefinitionError, match="empty"):
        Flow.from_string("  ")
    with pytest.raises(FileNotFoundError):
        Flow.from_file(tmp_path / "gone.json")
    (tmp_path / "large.json").write_bytes(b" " * 5_000_000)
    with pytest.raises(FlowDefinitionError, match="limit"):
        Flow.from_file(tmp_path / "large.json")


def test_input_is_one_dict_or_keywords_or_both() -> None:
    flow = Flow.from_dict({"nodes": [{"type": "end", "id": "e", "output": "$INPUT"}]})
    assert flow.run() == {}
    assert flow.run({"a": 1}) == {"a": 1}
    assert flow.run(a=1, self=2) == {"a": 1, "self": 2}
    assert flow.run({"a": 1, "b": 1}, b=2) == {"a": 1, "b": 2}
    for wrong in ((1,), ("x",), ([1],), (None,), ({}, {})):
        for method in (flow.run, flow.debug):
            with pytest.raises(TypeError, match="one dict and/or keyword arguments"):
                method(*wrong)
        with pytest.raises(TypeError):
            asyncio.run(flow.arun(*wrong))


def test_input_must_be_json_and_is_not_shared(make: Any) -> None:
    with pytest.raises(InputError, match=r"input\.a: a set is no JSON value"):
        make(lambda execution: 1).run(a={1})
    given = {"a": [1]}
    make(lambda execution: execution.scope.roots["INPUT"]["a"].append(2)).run(given)
    assert given == {"a": [1]}


def test_input_type_is_matched() -> None:
    flow = Flow.from_string(HELLO.replace("{dataType: object}", "{type: object, properties: {name: {type: string}}}"))
    assert flow.run(name="x") == "hello x"
    with pytest.raises(FlowExecutionException, match=r"\$INPUT\.name: a text that is not empty is wanted"):
        flow.run(name=3)


def test_warnings_of_the_definition_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="plaita.local"):
        Flow.from_string(HELLO + "\nname: hello")
    assert "flow hello: name: not a field of a flow" in caplog.text


# -- errors ---------------------------------------------------------------------------------------------------


def test_errors_are_raised_with_their_cause(make: Any) -> None:
    def fail(execution: Execution) -> None:
        raise KeyError("lost")

    with pytest.raises(NodeExecutionError) as caught:
        make(fail, errorHandler={"code": 7}).run()
    assert caught.value.code == 7
    assert caught.value.node == "n"
    assert isinstance(caught.value.__cause__, KeyError)
    with pytest.raises(ErrorResultException) as ended:
        Flow.from_dict(
            {"nodes": [{"type": "end", "id": "e", "resultType": "error", "error": {"code": 4, "message": "no"}}]}
        ).run()
    assert (ended.value.code, ended.value.message) == (4, "no")


def test_a_node_that_exits_does_not_end_the_program(make: Any) -> None:
    with pytest.raises(NodeExecutionError, match=r"sys\.exit\(3\)"):
        make(lambda execution: sys.exit(3)).run()


def test_handlers_and_retries_work_here_too(make: Any) -> None:
    seen: list[int] = []

    def second(execution: Execution) -> int:
        seen.append(execution.attempt)
        if len(seen) < 2:
            raise RuntimeError("first")
        return execution.attempt

    assert make(second, errorHandler={"retryTimes": 1}).run() == 2
    assert seen == [1, 2]


def test_visits_of_a_node_are_told_apart(make: Any) -> None:
    keys: list[str] = []

    def note(execution: Execution) -> int:
        keys.append(execution.idempotency_key)
        return execution.visit

    flow = make(note)
    loop = {"field": "$NODE.n", "operator": "lt", "value": 3}
    definition = {
        "nodes": [
            {"type": "call", "id": "n", "next": "i"},
            {"type": "if", "id": "i", "condition": loop, "next": "n", "else_next": "e"},
            {"type": "start", "id": "s", "next": "n"},
            {"type": "end", "id": "e", "output": "$NODE.n"},
        ]
    }
    assert flow.run() == 1
    keys.clear()
    assert Flow.from_dict(definition, registry=NodeRegistry([*BUILT_IN, Call])).run() == 3
    assert len(set(keys)) == 3


def test_only_exposed_variables_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEEN", "yes")
    monkeypatch.setenv("HIDDEN", "no")
    output = ["$ENV.SEEN", "$ENV.HIDDEN", "$ENV.MISSING"]
    flow = Flow.from_dict({"nodes": [{"type": "end", "id": "e", "output": output}], "exposeEnv": ["SEEN", "MISSING"]})
    assert flow.run() == ["yes", None, None]


# -- time ---------------------------------------------------------------------------------------------------------


def test_a_node_over_its_time_is_told_and_given_up(make: Any) -> None:
    told, released = threading.Event(), threading.Event()

    def slow(execution: Execution) -> None:
        if execution.cancel_event.wait(60):
            told.set()
        released.wait(60)
        execution.set_state("late", True)

    with pytest.raises(NodeTimeoutError) as caught:
        make(slow, timeout=20).run()
    released.set()
    assert told.wait(60)
    assert (caught.value.code, caught.value.node) == (-1, "n")
    assert "timed out after 20 ms" in caught.value.message


def test_a_timeout_handler_goes_on(make: Any) -> None:
    flow = make(
        lambda execution: execution.cancel_event.wait(60),
        timeout="PT0.02S",
        timeoutHandler={"strategy": "continue-with", "defaultValue": "late"},
        errorHandler={"retryTimes": 5},
    )
    assert flow.run() == "late"


def test_all_attempts_share_one_budget(make: Any) -> None:
    attempts: list[int] = []

    def slow_failure(execution: Execution) -> None:
        attempts.append(execution.attempt)
        threading.Event().wait(0.03)
        raise RuntimeError("again")

    with pytest.raises(NodeTimeoutError):
        make(slow_failure, timeout=100, errorHandler={"retryTimes": 1_000_000}).run()
    assert 1 <= len(attempts) < 100


def test_the_flows_time_binds_nodes_and_the_gaps_between_them(make: Any) -> None:
    with pytest.raises(NodeTimeoutError) as caught:
        make(lambda execution: execution.cancel_event.wait(60), {"timeout": 50}, timeout="PT1H").run()
    assert caught.value.error_type.value == "flow_error"
    assert "the time of the whole flow is spent" in caught.value.message
    late = make(
        lambda execution: execution.cancel_event.wait(60), {"timeout": 30}, timeoutHandler={"strategy": "continue"}
    )
    with pytest.raises(FlowTimeoutError) as spent:
        late.run()
    assert (spent.value.code, spent.value.node) == (-1, "e")


def test_node_code_with_a_limit_sees_the_callers_context_variables(make: Any) -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable")
    variable.set("mine")
    assert make(lambda execution: variable.get(), timeout="PT1M").run() == "mine"
    assert make(lambda execution: variable.get()).run() == "mine"


def test_flows_run_at_the_same_time_without_mixing() -> None:
    flow = Flow.from_string(HELLO)
    results: dict[int, str] = {}

    def run(number: int) -> None:
        for _ in range(20):
            results[number] = flow.run(name=str(number))

    threads = [threading.Thread(target=run, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {number: f"hello {number}" for number in range(8)}


# -- arun ---------------------------------------------------------------------------------------------------------


def test_arun_runs_asynchronous_nodes_on_the_callers_loop(make: Any) -> None:
    loops: list[Any] = []

    async def later(execution: Execution) -> Any:
        loops.append(asyncio.get_running_loop())
        return execution.evaluate("$INPUT.a")

    async def main() -> Any:
        loops.append(asyncio.get_running_loop())
        return await flow.arun(a=5)

    flow = make(later, type="call_later")
    assert asyncio.run(main()) == 5
    assert loops[0] is loops[1]
    assert flow.run(a=6) == 6
    assert loops[2] is not loops[0]


def test_arun_does_not_block_the_loop(make: Any) -> None:
    free = threading.Event()
    flow = make(lambda execution: free.wait(60))

    async def main() -> Any:
        task = asyncio.create_task(flow.arun())
        await asyncio.sleep(0)
        free.set()  # only a loop that still turns gets here
        return await task

    assert asyncio.run(main()) is True


def test_arun_times_out_and_raises_like_run(make: Any) -> None:
    async def never(execution: Execution) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    cancelled = threading.Event()
    with pytest.raises(NodeTimeoutError):
        asyncio.run(make(never, type="call_later", timeout=20).arun())
    assert cancelled.is_set()

    async def fail(execution: Execution) -> None:
        raise TimeoutError("its own")

    with pytest.raises(NodeTimeoutError, match="its own"):
        asyncio.run(make(fail, type="call_later", timeout="PT1M").arun())


def test_a_cancelled_arun_stops(make: Any) -> None:
    began = threading.Event()
    told = threading.Event()

    def slow(execution: Execution) -> None:
        began.set()
        if execution.cancel_event.wait(60):
            told.set()

    async def main() -> None:
        task = asyncio.create_task(make(slow).arun())
        await asyncio.to_thread(began.wait, 60)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert told.wait(60)


# -- debug --------------------------------------------------------------------------------------------------------


def test_debug_tells_each_step() -> None:
    steps = Flow.from_string(HELLO).debug(name="x")
    records: list[StepRecord] = []
    while True:
        try:
            records.append(next(steps))
        except StopIteration as stop:
            output = stop.value
            break
    assert output == "hello x"
    assert [(each.node_id, each.node_type, each.status, each.next_node) for each in records] == [
        ("s", "start", "advanced", "a"),
        ("a", "assignment", "advanced", "e"),
        ("e", "end", "completed", None),
    ]
    assert records[1].result == records[2].output == "hello x"


def test_debug_shows_the_failure_before_it_raises(make: Any) -> None:
    steps = make(lambda execution: 1 / 0).debug()
    assert next(steps).status == "advanced"
    failed = next(steps)
    assert failed.status == "error"
    assert failed.error is not None
    assert failed.error.cause == "ZeroDivisionError"
    with pytest.raises(NodeExecutionError):
        next(steps)


# -- Ctrl-C -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("timeout", ["", "PT5M"])
def test_ctrl_c_ends_the_program_and_not_the_node_only(timeout: str) -> None:
    code = f"""
        import threading
        from plaita import Flow, Node, get_default_registry

        @get_default_registry().register
        class Slow(Node):
            node_type = "slow"
            def execute(self, execution):
                print("began", flush=True)
                threading.Event().wait(300)

        handler = {{"strategy": "continue"}}
        Flow.from_dict({{"nodes": [
            {{"type": "slow", "id": "n", "next": "e", "timeout": {timeout!r}, "errorHandler": handler}},
            {{"type": "end", "id": "e"}},
        ]}}).run()
        print("went on", flush=True)
    """
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "began\n"
    os.kill(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert out == ""
    assert process.returncode != 0
    assert err.rstrip().endswith("KeyboardInterrupt")


# -- waiting ----------------------------------------------------------------------------------------------

WAITS = {
    "type": "event",
    "name": "Payment",
    "event_type": "order.{% $INPUT.what %}",
    "event_filter": {"id": "$INPUT.id"},
    "correlation_id": "$INPUT.id",
    "timeout": 5000,
    "errorHandler": {"strategy": "continue"},
}


def test_a_flow_that_waits_says_where_and_for_what() -> None:
    flow = Flow.from_dict(chain(WAITS))
    with pytest.raises(FlowWaitsError) as caught:
        flow.run(what="paid", id=7)
    assert str(caught.value) == (
        "node 'n' (Payment) waits for an event of type 'order.paid' for '7' with {\"id\":7}: only a supervisor can "
        "wait (plaita flow put and plaita start), Flow.run cannot; in a test "
        "plaita.testing.TimeSkippingRunner lets its time pass"
    )
    assert caught.value.node == "n"
    assert caught.value.subscription == {
        "event_type": "order.paid",
        "event_filter": {"id": 7},
        "correlation_id": "7",
        "timeout_ms": 5000,
    }
    with pytest.raises(FlowWaitsError):
        asyncio.run(flow.arun(what="paid", id=7))


def test_debug_shows_the_wait_before_it_raises() -> None:
    steps = Flow.from_dict(chain({"type": "event", "event_type": "t"})).debug()
    assert next(steps).node_id == "s"
    record = next(steps)
    assert (record.status, record.node_id, record.node_type, record.next_node) == ("suspended", "n", "event", None)
    assert record.result["status"] == "pending"
    assert record.subscription is not None
    assert record.subscription["event_type"] == "t"
    with pytest.raises(FlowWaitsError, match="'n' waits for an event of type 't': only"):
        next(steps)
