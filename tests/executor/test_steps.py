"""Steps through a real executor: contexts, flows, answers, ends (trouble 4, 14)."""

from __future__ import annotations

import json
import signal
from typing import Any

import pytest
from harness import ExecutorHandle, TemplateHandle, chain, doing, until, with_fields

from plaita.ipc.messages import Answer
from plaita.nodes.execution import idempotency_key


def test_a_flow_from_start_to_end_with_deltas(executor: ExecutorHandle) -> None:
    flow = chain(
        {"type": "try", "do": "facts"},
        {"type": "try", "do": "state"},
        {"type": "assignment", "output": "$NODE.n0.input.x"},
    )
    answer = executor.run(flow, "start", input=b'{"x":5}')
    step, seen = 1, []
    while answer.kind == "advanced":
        seen.append(answer.node_id)
        step += 1
        assert answer.next_node is not None
        message = executor.message(
            flow,
            answer.next_node,
            step=step,
            fresh=False,
            definition=None,
            input=None,
            last_node=seen[-1],
            visit=1,
        )
        executor.send(message)
        following = executor.receive()
        assert isinstance(following, Answer)
        answer = following
        if answer.node_id == "n1":
            assert answer.state == {"count": b"1"}
        if answer.node_id == "n2":
            assert answer.result == b"5"
    assert (answer.kind, answer.node_id, answer.output) == ("ended", "end", b'"done"')
    assert seen == ["start", "n0", "n1", "n2"]


def test_what_node_code_sees(executor: ExecutorHandle) -> None:
    answer = executor.run(
        chain({"type": "try", "do": "facts"}),
        execution_id="e9",
        tenant_id="acme",
        flow_id="orders",
        attempt=3,
        visit=2,
        step=7,
        input=b'{"a":1}',
        results={"start": b'{"b":2}'},
        last_node="start",
    )
    assert answer.result is not None
    assert json.loads(answer.result) == {
        "execution": "e9",
        "flow": "orders",
        "node": "n0",
        "tenant": "acme",
        "attempt": 3,
        "visit": 2,
        "key": idempotency_key("test", "e9", "n0", 2),
        "results": {"start": {"b": 2}},
        "input": {"a": 1},
        "last": "start",
    }
    assert answer.started_ms <= answer.ended_ms


def test_need(executor: ExecutorHandle) -> None:
    flow = doing("value")
    bare: dict[str, Any] = {"fresh": False, "definition": None, "input": None}
    assert executor.need(executor.message(flow, **bare)) == ["definition", "context"]
    assert executor.need(executor.message(flow, fresh=False)) == ["context"]
    assert executor.need(executor.message(flow, definition=None)) == ["definition"]
    assert executor.run(flow).kind == "advanced"
    assert executor.run(flow, step=2, **bare).kind == "advanced"
    # another execution, another flow, a step too far, a step again: none is what is held
    assert executor.need(executor.message(flow, step=3, execution_id="other", **bare)) == ["context"]
    assert executor.need(executor.message(doing("facts"), step=3, **bare)) == ["definition", "context"]
    assert executor.need(executor.message(flow, step=4, **bare)) == ["context"]
    assert executor.need(executor.message(flow, step=2, **bare)) == ["context"]
    assert executor.run(flow, step=3, **bare).kind == "advanced"
    # a failed step leaves nothing to go on from
    assert executor.run(doing("sys_exit"), step=1).kind == "failed"
    assert executor.need(executor.message(flow, step=4, **bare)) == ["context"]


def test_thirty_two_flows_are_held(executor: ExecutorHandle) -> None:
    flows = [doing("value", amount=number) for number in range(33)]
    for flow in flows:
        executor.run(flow)
    assert executor.need(executor.message(flows[0], definition=None)) == ["definition"]
    assert executor.run(flows[1], definition=None).result == b"1"
    executor.run(flows[0])
    assert executor.need(executor.message(flows[2], definition=None)) == ["definition"]
    assert executor.run(flows[1], definition=None).result == b"1"


def test_what_is_new_is_added_to_what_is_held(executor: ExecutorHandle) -> None:
    flow = doing("facts")
    executor.run(flow, input=b'{"a":1}')
    answer = executor.run(flow, step=2, fresh=False, input=None, results={"elsewhere": b"7"})
    assert answer.result is not None
    seen = json.loads(answer.result)
    assert seen["input"] == {"a": 1}
    assert seen["results"]["elsewhere"] == 7


@pytest.mark.parametrize("size", [65_000, 65_534, 65_535, 65_536, 65_537, 1 << 20, 7 << 20])
def test_large_results(executor: ExecutorHandle, size: int) -> None:
    answer = executor.do("text", amount=size)
    assert answer.result == b'"' + b"x" * size + b'"'


def test_a_result_over_the_limit_and_a_large_input(executor: ExecutorHandle) -> None:
    answer = executor.do("text", amount=20 << 20)
    assert answer.kind == "failed"
    assert answer.error is not None
    assert answer.error["cause"] == "NodeOutputError"
    large = json.dumps({"text": "y" * (16 << 20)}).encode()
    assert executor.run(doing("value", amount=4), input=large).result == b"4"


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("sys_exit", "SystemExit"),
        ("interrupt", "KeyboardInterrupt"),
        ("generator_exit", "GeneratorExit"),
        ("base_exception", "BaseException"),
    ],
)
def test_exceptions_that_are_no_exception_are_the_nodes_failure(
    executor: ExecutorHandle, name: str, cause: str
) -> None:
    answer = executor.do(name)
    assert (answer.kind, answer.retire) == ("failed", None)
    assert answer.error is not None
    assert (answer.error["exception"], answer.error["cause"]) == ("NodeExecutionError", cause)
    assert executor.value("value", amount=1) == 1


@pytest.mark.parametrize(
    ("name", "code", "number"),
    [
        ("os_exit", 3, None),
        ("segfault", None, signal.SIGSEGV),
        ("abort", None, signal.SIGABRT),
        ("kill_self", None, signal.SIGKILL),
    ],
)
def test_ends_of_the_process_are_seen_as_they_are(
    executor: ExecutorHandle, name: str, code: int | None, number: int | None
) -> None:
    executor.send(executor.message(doing(name)))
    assert executor.receive() is None
    ended = executor.wait_exit()
    assert (ended.code, ended.signal) == (code, number)
    if name in ("segfault", "abort"):
        until(lambda: "nodes_for_tests.py" in executor.stderr.text(), "the place of the crash on stderr")


def test_a_flow_that_cannot_be_read_here(executor: ExecutorHandle) -> None:
    flow = {"flow_id": "f", "nodes": [{"id": "n0", "type": "not-installed-here"}]}
    answer = executor.run(flow)
    assert answer.kind == "failed"
    assert answer.error is not None
    assert "not-installed-here" in answer.error["message"]
    assert (answer.error["cause"], answer.error["retryable"]) == ("FlowDefinitionError", False)
    answer = executor.run(doing("value"), results={"x": b"{"})
    assert answer.kind == "failed"
    assert answer.error is not None
    assert answer.error["cause"] == "JSONTextError"
    assert executor.value("value", amount=3) == 3


def test_timed_out_runs_the_handler_only(executor: ExecutorHandle) -> None:
    flow = chain({"type": "try", "do": "os_exit", "timeout": 1, "timeoutHandler": {"policy": "abort"}})
    answer = executor.run(flow, action="timed_out")
    assert answer.kind == "failed"
    assert answer.error is not None
    assert answer.error["exception"] == "NodeTimeoutError"


def test_progress(executor: ExecutorHandle) -> None:
    assert executor.value("notes", amount=1000) is None
    assert executor.progress[0] == "note 0 \\ud800"
    assert len(executor.progress) < 100


def test_memory_limit(template: TemplateHandle) -> None:
    executor = template.spawn(rlimit_data_mib=300)
    answer = executor.do("allocate", amount=1000)
    assert answer.kind == "failed"
    assert answer.error is not None
    assert answer.error["cause"] == "MemoryError"
    assert answer.retire == "memory limit"
    assert executor.wait_exit().code == 0


def test_a_message_twice_is_run_twice(executor: ExecutorHandle) -> None:
    message = executor.message(doing("value", amount=2))
    executor.send(message)
    executor.send(with_fields(message, seq=99))
    first, second = executor.receive(), executor.receive()
    assert isinstance(first, Answer)
    assert isinstance(second, Answer)
    assert (first.seq, second.seq) == (message.seq, 99)
