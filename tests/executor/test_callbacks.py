"""User callbacks in real executors (ledger F7, DECISIONS 25): told across processes, and bounded like node code."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import TemplateHandle, chain, doing, until

from plaita.ipc.messages import Answer


class Told:
    """What the callbacks of a template's executors have written down."""

    def __init__(self, template: TemplateHandle, path: Path) -> None:
        self.template = template
        self.path = path
        self.executor = template.spawn()

    def lines(self) -> list[list[Any]]:
        return [json.loads(line) for line in self.path.read_text().splitlines()] if self.path.exists() else []

    def kinds(self) -> list[str]:
        return [line[1] for line in self.lines()]


@pytest.fixture
def told(tmp_path: Path) -> Iterator[Told]:
    path = tmp_path / "told"
    preload = ("nodes_for_tests", "callbacks_for_tests")
    handle = TemplateHandle(preload=preload, extra={"TOLD_FILE": str(path)})
    yield Told(handle, path)
    handle.close()


def test_F7_they_see_every_step_across_a_wait_and_processes(told: Told) -> None:
    flow = chain({"type": "wait"})
    first = told.executor
    first.run(flow, "start")
    suspended = first.run(flow, fresh=False, definition=None, input=None, step=2, last_node="start")
    assert suspended.kind == "suspended"
    assert suspended.retire is None
    second = told.template.spawn(1)
    context = {"last_node": "n0", "results": {"start": b"null", "n0": suspended.result or b""}}
    assert second.run(flow, action="event", event=b"1", step=3, attempt=5, **context).kind == "advanced"
    assert second.run(flow, "end", fresh=False, definition=None, input=None, step=4, last_node="n0").kind == "ended"
    here, there = first.pid, second.pid
    assert told.lines() == [
        [here, "flow_start", "start", 1, "execute", None],
        [here, "node_start", "start", 1, "execute", None],
        [here, "node_end", "start", 1, "execute", None],
        [here, "flush"],
        [here, "node_start", "n0", 1, "execute", None],
        [here, "node_suspend", "n0", 1, "execute", None],
        [here, "flow_suspend", "n0", 1, "execute", None],
        [here, "flush"],
        [there, "flow_resume", "n0", 5, "event", None],
        [there, "node_resume", "n0", 5, "event", None],
        [there, "node_end", "n0", 5, "event", None],
        [there, "flush"],
        [there, "node_start", "end", 1, "execute", None],
        [there, "node_end", "end", 1, "execute", None],
        [there, "flow_end", "end", 1, "execute", None],
        [there, "finalize"],
        [there, "flush"],
    ]


def test_F7_a_failure_is_told_and_a_killed_step_too(told: Told) -> None:
    told.executor.run(doing("sys_exit"), last_node="start")
    told.executor.run(doing("os_exit", timeout=5), last_node="start", action="timed_out")
    assert [line[1:] for line in told.lines() if line[1] != "flush"] == [
        ["node_start", "n0", 1, "execute", None],
        ["node_end", "n0", 1, "execute", "NodeExecutionError"],
        ["node_end", "n0", 1, "timed_out", "NodeTimeoutError"],
        ["flow_end", "n0", 1, "timed_out", "NodeTimeoutError"],
        ["finalize"],
    ]


@pytest.mark.parametrize("how", ["exit", "raise"])
@pytest.mark.parametrize("when", ["flow_start", "node_start", "node_end"])
def test_F7_what_they_raise_is_logged_and_never_a_failure(told: Told, how: str, when: str) -> None:
    answer = told.executor.run(doing("value", amount=3), execution_id=f"{how}-at-{when}")
    assert (answer.kind, answer.result, answer.retire) == ("advanced", b"3", None)
    wanted = ["callbacks_for_tests.Teller.on_" + when, "Traceback", "SystemExit" if how == "exit" else "boom"]
    stderr = told.executor.stderr
    until(lambda: all(word in stderr.text() for word in wanted), "the error is on stderr")
    assert told.kinds() == ["flow_start", "node_start", "node_end", "flush"]


@pytest.mark.parametrize("how", ["hang", "swallow"])
@pytest.mark.parametrize("when", ["node_start", "node_end"])
def test_F7_one_that_hangs_is_stopped_with_its_step(told: Told, how: str, when: str) -> None:
    told.executor.send(told.executor.message(doing("value"), execution_id=f"{how}-at-{when}"))
    until(lambda: "hangs" in told.kinds(), "the callback hangs")
    told.executor.signal(signal.SIGTERM)
    answer = told.executor.receive()
    assert isinstance(answer, Answer)
    assert (answer.kind, answer.result, answer.retire) == ("stopped", None, "stopped")
    assert told.executor.wait_exit().code == 0


def test_F7_one_that_ignores_the_signal_is_killed_with_its_step(told: Told) -> None:
    told.executor.send(told.executor.message(doing("value"), execution_id="ignore-at-node_end"))
    until(lambda: "hangs" in told.kinds(), "the callback hangs")
    told.executor.signal(signal.SIGTERM)
    with pytest.raises(AssertionError, match="no message"):
        told.executor.receive(seconds=0.3)
    told.executor.signal(signal.SIGKILL)
    assert told.executor.wait_exit().signal == signal.SIGKILL


@pytest.mark.parametrize("how", ["hang", "ignore"])
def test_F7_one_that_hangs_after_the_kill_of_its_node_is_left_behind(told: Told, how: str) -> None:
    """Nobody limits this step from outside: its time was up before it began."""
    flow = doing("os_exit", timeout=5, timeoutHandler={"strategy": "continue"})
    answer = told.executor.run(flow, action="timed_out", execution_id=f"{how}-at-node_end")
    assert answer.kind == "advanced"
    assert "more threads" in (answer.retire or "")
    until(lambda: "callbacks of node n0 did not return" in told.executor.stderr.text(), "it is told")


def test_what_they_leave_behind_is_seen_after_steps_of_pure_nodes_too(told: Told) -> None:
    flow = chain({"type": "mock", "value": 1})
    assert told.executor.run(flow).retire is None
    answer = told.executor.run(flow, execution_id="thread-at-node_start")
    assert answer.kind == "advanced"
    assert "more threads" in (answer.retire or "")


def test_one_that_forks_and_comes_back_twice_answers_once(told: Told) -> None:
    answer = told.executor.run(doing("value", amount=1), execution_id="fork-at-node_start")
    assert (answer.kind, answer.result) == ("advanced", b"1")
    assert told.executor.run(doing("value", amount=2)).result == b"2"
