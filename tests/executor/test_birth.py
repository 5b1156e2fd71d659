"""An executor's first moments, and what it has and has not (DESIGN "Processes", trouble 5, 19, 49, 53)."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
from harness import TemplateHandle, alive, doing, until

from plaita.ipc.messages import Answer, Hello, Leave
from plaita.ipc.template_socket import Fatal, Ready
from plaita.unix.processes import is_template, open_descriptors, process_stat, tree_mark


def test_hello_and_what_it_is(template: TemplateHandle) -> None:
    executor = template.spawn(slot=4, rlimit_data_mib=700)
    assert executor.hello is not None
    assert (executor.hello.pid, executor.hello.generation, executor.hello.slot) == (executor.pid, 1, 4)
    facts = executor.value("process")
    assert facts["fds"] == [0, 1, 2, 3]
    assert facts["session"] == executor.pid
    assert facts["parent"] == os.getpid()
    assert facts["oom"] == 500
    assert facts["core"] == 0
    assert facts["data"] == 700 << 20
    assert facts["mask"] == []
    assert facts["sigint"] is True
    assert facts["pdeathsig"] == signal.SIGKILL
    assert facts["mark"] == template.mark
    assert facts["stdin"] == "/dev/null"
    assert facts["threads"] == 1
    assert tree_mark(executor.pid) == template.mark
    assert not is_template(executor.pid)
    assert is_template(template.pid)


def test_each_holds_its_own_ends_only(template: TemplateHandle) -> None:
    executors = [template.spawn(slot) for slot in range(4)]
    held = [open_descriptors(executor.pid) for executor in executors]
    assert [sorted(descriptors) for descriptors in held] == [[0, 1, 2, 3]] * 4
    names = [name for descriptors in held for number, name in descriptors.items() if number > 0]
    assert len(set(names)) == 12
    executors[0].signal(signal.SIGKILL)
    assert executors[0].receive() is None  # end-of-file comes although three were forked after it
    assert executors[0].wait_exit().signal == signal.SIGKILL


def test_descriptors_stay_level_over_many_respawns(template: TemplateHandle) -> None:
    first = template.spawn()
    first.close()
    assert first.stdout.ended()
    assert first.stderr.ended()
    until(lambda: len(open_descriptors(template.pid)) == 5, "0 to 3 and the timer are left")
    template.executors.clear()
    ours, theirs = len(os.listdir("/proc/self/fd")), len(open_descriptors(template.pid))
    for _ in range(200):
        executor = template.spawn()
        executor.send(Leave())
        assert executor.wait_exit().clean
        executor.close()
        template.executors.clear()
    until(lambda: len(open_descriptors(template.pid)) == theirs, "the template has closed what it had opened")
    until(lambda: len(os.listdir("/proc/self/fd")) == ours, "so has this process")


def test_many_at_once(template: TemplateHandle) -> None:
    template.wait_ready()
    asked = [template.ask(slot) for slot in range(30)]
    for executor in asked:
        template.told(executor)
        assert isinstance(executor.receive(), Hello)
    assert len({executor.pid for executor in asked}) == 30


def test_random_state_is_each_ones_own(template: TemplateHandle) -> None:
    drawn = [template.spawn(slot).value("drawn") for slot in range(5)]
    for values in zip(*drawn, strict=True):
        assert len(set(map(str, values))) == 5


def test_sigterm_while_idle_and_before_hello(template: TemplateHandle) -> None:
    executor = template.spawn()
    executor.signal(signal.SIGTERM)
    assert executor.wait_exit().code == 0
    template.wait_ready()
    for _ in range(10):  # sent the moment the pid is known: somewhere in its first moments
        newborn = template.told(template.ask())
        newborn.signal(signal.SIGTERM)
        assert newborn.wait_exit().code == 0


def test_leave_and_end_of_file(template: TemplateHandle) -> None:
    executor = template.spawn()
    executor.send(Leave())
    assert executor.wait_exit().code == 0
    other = template.spawn()
    other.sock.shutdown(2)
    assert other.wait_exit().code == 0


def test_junk_from_the_supervisor_ends_it(template: TemplateHandle) -> None:
    executor = template.spawn()
    executor.sock.sendall(b"this is no frame")
    assert executor.wait_exit().code == 70
    assert "cannot be read" in until(executor.stderr.text, "it says why")


def test_output_goes_to_its_own_pipes(template: TemplateHandle) -> None:
    one, other = template.spawn(0), template.spawn(1)
    assert one.value("say") is None
    until(lambda: one.stdout.text() == "to stdout\nwithout an end", "stdout is flushed with the step")
    until(lambda: one.stderr.text() == "to stderr\n", "stderr too")
    assert (other.stdout.text(), other.stderr.text(), template.errors.text()) == ("", "", "")


def test_no_exit_handler_of_the_template_runs(tmp_path: Path) -> None:
    """Trouble 52."""
    path = tmp_path / "handlers"
    template = TemplateHandle(preload=("nodes_for_tests", "registers_exit"), extra={"EXIT_FILE": str(path)})
    executor = template.spawn()
    executor.value("value")
    executor.send(Leave())
    executor.wait_exit()
    other = template.spawn()
    other.do("sys_exit")
    other.signal(signal.SIGTERM)
    other.wait_exit()
    template.close()
    assert not path.exists()


def test_an_executor_that_misses_its_supervisor_ends(tmp_path: Path) -> None:
    """It is born to another parent than the one that the template was told of."""
    import subprocess
    import sys

    script = (
        "import os, sys, time\nsys.path.insert(0, sys.argv[1])\nfrom harness import *\n"
        "from plaita.unix import prctl\n"
        "template = TemplateHandle()\ntemplate.wait_ready()\n"
        "prctl.set_child_subreaper(False)\n"
        "executor = template.told(template.ask())\n"
        "print(executor.receive(), executor.pid, flush=True)\n"
        "template.sock.close()\ntemplate.wait_exit()\n"
    )
    answer = subprocess.run(
        [sys.executable, "-c", script, str(Path(__file__).parent)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    said, pid = answer.stdout.split()
    assert said == "None"
    until(lambda: not alive(int(pid)), "the executor has ended")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user() -> None:
    template = TemplateHandle(user="nobody", preload=())
    received = template.next_message()
    if received is not None and isinstance(received[0], Fatal):
        assert "cannot read" in received[0].reason
        assert template.wait_exit().code == 78
        template.close()
        pytest.skip(f"cannot be tried here: {received[0].reason}")
    template.ready = received[0] if received is not None and isinstance(received[0], Ready) else None
    executor = template.spawn()
    stat = os.stat(f"/proc/{executor.pid}")
    assert stat.st_uid != 0
    with open(f"/proc/{executor.pid}/status") as file:
        fields = dict(line.rstrip().split(":\t", 1) for line in file if ":\t" in line)
    assert set(fields["Uid"].split()) == {str(stat.st_uid)}
    assert "0" not in fields["Gid"].split()
    assert "0" not in fields["Groups"].split()
    with open(f"/proc/{executor.pid}/oom_score_adj") as file:
        assert file.read().strip() == "500"
    template.close()


def test_a_user_that_does_not_exist() -> None:
    template = TemplateHandle(user="no-such-user-here", preload=())
    assert "no-such-user-here" in template.wait_fatal()
    assert template.wait_exit().code == 78
    template.close()


def _title(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0 ")


def test_titles(template: TemplateHandle, tmp_path: Path) -> None:
    template.wait_ready()
    executor = template.spawn(slot=2)
    with open(f"/proc/{template.pid}/cmdline", "rb") as file:
        assert file.read().rstrip(b"\0 ") == b"plaita: template gen=1"
    with open(f"/proc/{executor.pid}/cmdline", "rb") as file:
        assert file.read().rstrip(b"\0 ") == b"plaita: executor 2  idle"
    enough = tmp_path / "enough"
    executor.send(executor.message(doing("wait_for_file", path=str(enough))))
    until(lambda: _title(executor.pid) == b"plaita: executor 2  e1 node=n0", "a step is shown")
    enough.touch()
    assert isinstance(executor.receive(), Answer)
    until(lambda: _title(executor.pid) == b"plaita: executor 2  idle", "a step that is over is not")
    stat = process_stat(template.pid)
    assert stat is not None
    assert stat.session == template.pid


def test_ready_names_the_node_types(template: TemplateHandle) -> None:
    ready = template.wait_ready()
    assert {"start", "end", "if", "switch", "case", "assignment", "mock", "try"} <= set(ready.node_types)
    assert template.imported == ["nodes_for_tests"]
    assert json.dumps(ready.late_modules) == "{}"
