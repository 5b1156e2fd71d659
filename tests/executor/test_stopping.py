"""SIGTERM during a step."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from harness import ExecutorHandle, doing, until

from plaita.ipc.messages import Answer


def begin(executor: ExecutorHandle, name: str, path: Path) -> None:
    executor.send(executor.message(doing(name, path=str(path))))
    until(lambda: path.exists() and path.read_text(), "the node has begun")


@pytest.mark.parametrize("name", ["sleep", "swallow_stop", "wait_for_cancel"])
def test_the_step_is_stopped_once(executor: ExecutorHandle, tmp_path: Path, name: str) -> None:
    begin(executor, name, tmp_path / "begun")
    executor.signal(signal.SIGTERM)
    answer = executor.receive()
    assert isinstance(answer, Answer)
    assert (answer.kind, answer.retire, answer.result) == ("stopped", "stopped", None)
    assert executor.wait_exit().code == 0
    if name == "wait_for_cancel":
        assert (tmp_path / "begun.seen").read_text() == "[True]"


def test_many_signals_are_one_stop(executor: ExecutorHandle, tmp_path: Path) -> None:
    begin(executor, "wait_for_cancel", tmp_path / "begun")
    for _ in range(50):
        executor.signal(signal.SIGTERM)
    answer = executor.receive()
    assert isinstance(answer, Answer)
    assert answer.kind == "stopped"
    assert executor.wait_exit().code == 0


def test_a_node_that_ignores_it_goes_on_until_it_is_killed(executor: ExecutorHandle, tmp_path: Path) -> None:
    begin(executor, "ignore_stop", tmp_path / "begun")
    executor.signal(signal.SIGTERM)
    with pytest.raises(AssertionError, match="no message"):
        executor.receive(seconds=0.5)
    executor.signal(signal.SIGKILL)
    assert executor.wait_exit().signal == signal.SIGKILL


def test_a_signal_at_any_moment_of_busy_work_loses_nothing_in_between(executor: ExecutorHandle) -> None:
    """Steps run one after the other while the signal comes: every step sent is answered or the end is clean."""
    flow = doing("value", amount=1)
    executor.run(flow)
    messages = [executor.message(flow, definition=None) for _ in range(200)]
    for message in messages[:100]:
        executor.send(message)
    executor.signal(signal.SIGTERM)
    answered = []
    while (answer := executor.receive()) is not None:
        assert isinstance(answer, Answer)
        answered.append(answer)
    assert [answer.seq for answer in answered] == [message.seq for message in messages[: len(answered)]]
    assert all(answer.kind == "advanced" for answer in answered[:-1])
    assert executor.wait_exit().code == 0


def test_sigint_does_nothing(executor: ExecutorHandle, tmp_path: Path) -> None:
    begin(executor, "sleep", tmp_path / "begun")
    executor.signal(signal.SIGINT)
    executor.signal(signal.SIGTERM)
    answer = executor.receive()
    assert isinstance(answer, Answer)
    assert answer.kind == "stopped"


def test_the_stack_is_told_on_sigusr1(executor: ExecutorHandle, tmp_path: Path) -> None:
    begin(executor, "sleep", tmp_path / "begun")
    executor.signal(signal.SIGUSR1)
    until(lambda: "nodes_for_tests.py" in executor.stderr.text(), "the stack is on stderr")
    executor.signal(signal.SIGKILL)
