"""A wait through real executors: its two halves in two processes (FLOW-FORMAT 2.2, ledger S7, S8)."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest
from harness import ExecutorHandle, TemplateHandle, chain, until

from plaita.ipc.messages import Answer
from plaita.nodes.execution import idempotency_key

FLOW = chain({"type": "wait", "first": "state", "eventFilter": {"a.b": "$INPUT.x"}, "timeout": "PT1H"})


def begun(executor: ExecutorHandle, flow: dict[str, Any] = FLOW) -> tuple[Answer, dict[str, Any]]:
    """The answer of the first half, and the fields that load what it left on another host."""
    answer = executor.run(flow, last_node="start", step=2, input=b'{"x":5}', results={"start": b"null"})
    assert answer.kind == "suspended", answer
    assert answer.result is not None
    context = {
        "last_node": "n0",
        "step": 3,
        "input": b'{"x":5}',
        "results": {"start": b"null", "n0": answer.result},
        "state": answer.state,
    }
    return answer, context


def test_the_first_half_says_what_it_waits_for(executor: ExecutorHandle) -> None:
    answer, _ = begun(executor)
    assert answer.subscription == {
        "event_type": "paid",
        "event_filter": {"a.b": 5},
        "correlation_id": None,
        "timeout_ms": 3_600_000,
    }
    assert (answer.node_id, answer.next_node, answer.retire, answer.state) == ("n0", None, None, {"count": b"1"})
    pending = json.loads(answer.result or b"")
    assert (pending["status"], pending["event_filter"], pending["first"]) == ("pending", {"a.b": 5}, 0)


@pytest.mark.parametrize(
    ("action", "event", "data"),
    [
        ("event", b'{"by":"ann"}', {"by": "ann"}),
        ("event", b"null", None),
        ("event", None, None),
        ("timeout", None, None),
    ],
)
def test_the_second_half_runs_in_another_process(
    shared_template: TemplateHandle, executor: ExecutorHandle, action: str, event: bytes | None, data: Any
) -> None:
    first, context = begun(executor)
    other = shared_template.spawn()
    answer = other.run(FLOW, action=action, event=event, attempt=4, **context)
    assert answer.kind == "advanced", answer
    assert json.loads(answer.result or b"") == {
        "woken": [action, data],
        "pending": json.loads(first.result or b""),
        "count": 1,
        "attempt": 4,
        "key": idempotency_key("test", "e1", "n0", 1),
    }
    assert answer.next_node == "end"
    assert other.run(FLOW, "end", fresh=False, step=4, last_node="n0", definition=None, input=None).output == b'"done"'
    other.close()
    shared_template.executors.remove(other)


def test_the_same_process_may_go_on(executor: ExecutorHandle) -> None:
    begun(executor)
    answer = executor.run(
        FLOW, fresh=False, definition=None, input=None, step=3, last_node="n0", action="event", event=b"[]"
    )
    assert answer.kind == "advanced"
    assert json.loads(answer.result or b"")["woken"] == ["event", []]


def test_S8_a_cancelled_wait_is_undone_and_nothing_else(executor: ExecutorHandle) -> None:
    first, context = begun(executor)
    answer = executor.run(FLOW, action="cancelled", **context)
    assert answer.kind == "advanced"
    until(lambda: "taken back: event_n0_" in executor.stdout.text(), "on_cancel has run")
    assert first.state == {"count": b"1"}
    message = executor.message(FLOW, fresh=False, definition=None, input=None, step=4)
    assert executor.need(message) == ["context"], "nothing goes on from a cancelled wait"


def test_S8_what_undoing_raises_is_told(executor: ExecutorHandle) -> None:
    flow = chain({"type": "wait", "do": "sys_exit", "errorHandler": {"strategy": "continue", "retryTimes": 3}})
    _, context = begun(executor, flow)
    answer = executor.run(flow, action="cancelled", **context)
    assert (answer.kind, answer.attempts) == ("failed", 1)
    assert "SystemExit" in (answer.error or {})["message"]


@pytest.mark.parametrize("action", ["event", "timeout", "cancelled"])
def test_S7_a_node_that_waits_for_nothing_answers_a_guard_error(executor: ExecutorHandle, action: str) -> None:
    answer = executor.run(chain({"type": "try", "do": "os_exit"}), action=action, results={"n0": b"1"})
    assert (answer.kind, answer.error and answer.error["exception"]) == ("failed", "ResumeGuardError")


def test_event_data_that_is_no_json_is_refused(executor: ExecutorHandle) -> None:
    _, context = begun(executor)
    answer = executor.run(FLOW, action="event", event=b"{", **context)
    assert (answer.kind, answer.error and answer.error["cause"]) == ("failed", "JSONTextError")


@pytest.mark.parametrize("action", ["event", "timeout", "cancelled"])
def test_the_second_half_is_stopped_like_any_step(executor: ExecutorHandle, tmp_path: Path, action: str) -> None:
    path = tmp_path / "begun"
    flow = chain({"type": "wait", "do": "sleep", "path": str(path)})
    _, context = begun(executor, flow)
    executor.send(executor.message(flow, action=action, **context))
    until(lambda: path.exists() and path.read_text(), "the node has begun")
    executor.signal(signal.SIGTERM)
    answer = executor.receive()
    assert isinstance(answer, Answer)
    assert (answer.kind, answer.retire) == ("stopped", "stopped")


def test_what_an_event_type_falls_back_on_is_logged(executor: ExecutorHandle) -> None:
    flow = chain({"type": "event", "event_type": "$INPUT.nothing"})
    answer, _ = begun(executor, flow)
    assert (answer.subscription or {})["event_type"] == "$INPUT.nothing"
    until(lambda: "'$INPUT.nothing' gives no text" in executor.stderr.text(), "the warning is on stderr")
