"""What node code leaves behind: repaired, or the executor is retired (DECISIONS 33, trouble 16)."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from harness import ExecutorHandle, TemplateHandle, alive, doing, until

from plaita.errors import FrameError


def test_a_left_child_is_ended_and_does_not_delay(executor: ExecutorHandle) -> None:
    pid = executor.value("leave_child")
    assert not alive(pid)
    assert not os.path.exists(f"/proc/{pid}")  # reaped, too
    assert executor.value("value", amount=1) == 1


def test_a_left_daemon_is_ended(executor: ExecutorHandle, tmp_path: Path) -> None:
    answer = executor.do("leave_daemon", path=str(tmp_path / "pid"))
    assert answer.retire is None
    assert answer.result is not None
    assert not alive(int(answer.result))


@pytest.mark.parametrize("name", ["fork_and_return", "fork_and_raise", "fork_and_exit"])
def test_a_fork_that_comes_back_twice_answers_once(executor: ExecutorHandle, name: str) -> None:
    for _ in range(5):
        assert executor.value(name) == "parent"
    answer = executor.do("value", amount=8)
    assert (answer.result, answer.retire) == (b"8", None)


def test_what_is_put_right(executor: ExecutorHandle) -> None:
    before = executor.value("look")
    answer = executor.do("mess")
    assert (answer.kind, answer.retire) == ("advanced", None)
    assert executor.value("look") == before
    assert executor.value("sleep", amount=1) == "slept"  # the alarm that was set does not come
    assert executor.stderr.text() == ""
    executor.signal(signal.SIGUSR1)
    until(lambda: "Current thread" in executor.stderr.text(), "its stack can still be asked for")
    assert executor.value("value", amount=1) == 1


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("leave_thread", "1 more threads than before"),
        ("leave_descriptor", "descriptors left open: 4 (/dev/null)"),
        ("close_stdout", "descriptor 1 was closed or replaced"),
        ("close_stream", "a standard stream was closed"),
        ("change_limit", "changed limits: RLIMIT_NOFILE"),
        ("change_modules", "replaced modules: nodes_for_tests"),
        ("reload_module", "reloaded module: nodes_for_tests"),
    ],
)
def test_what_cannot_be_put_right_retires(executor: ExecutorHandle, name: str, reason: str) -> None:
    answer = executor.do(name)
    assert (answer.kind, answer.retire) == ("advanced", reason)
    assert executor.wait_exit().code == 0  # it leaves by itself


def test_a_flooded_stdout_is_read_and_harmless(executor: ExecutorHandle) -> None:
    assert executor.value("flood", amount=200) is None
    until(lambda: executor.stdout.total == 200 * 65536, "all of it has been read")
    assert executor.value("value", amount=1) == 1


def test_junk_in_every_descriptor_is_seen_as_such(executor: ExecutorHandle) -> None:
    executor.send(executor.message(doing("junk_everywhere")))
    with pytest.raises(FrameError):
        executor.receive()
    assert executor.stdout.text().startswith("junk") or until(executor.stdout.text, "the junk on stdout")


@pytest.mark.parametrize("name", ["replace_frames", "close_everything"])
def test_without_its_frames_it_ends(executor: ExecutorHandle, name: str) -> None:
    executor.send(executor.message(doing(name)))
    assert executor.receive() is None
    assert executor.wait_exit().code == 70
    if name == "replace_frames":
        until(lambda: "descriptor 3 was closed or replaced" in executor.stderr.text(), "it says what was done to it")


def test_a_stdout_that_nobody_reads_any_more(template: TemplateHandle) -> None:
    """Trouble 59: the broken pipe is the node's failure where it writes, and no harm to the next one."""
    template.wait_ready()
    executor = template.told(template.ask(unread_output=True))
    assert executor.receive() is not None
    answer = executor.do("say")
    assert answer.kind == "failed"
    assert answer.error is not None
    assert answer.error["cause"] == "BrokenPipeError"
    assert executor.value("value", amount=1) == 1
