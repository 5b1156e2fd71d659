"""Who dies with whom: supervisor, template, executors and what nodes have started (DECISIONS 10, trouble 16, 17)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from harness import FOLDER, TemplateHandle, alive, doing, until

from plaita.ipc.template_socket import Adopt, Exit, Forget
from plaita.unix.processes import find_marked, process_stat


def daemon_of(template: TemplateHandle, path: Path) -> int:
    """A setsid grandchild left running by a node that still sleeps."""
    executor = template.spawn()
    executor.send(executor.message(doing("leave_daemon_and_sleep", path=str(path))))
    until(lambda: path.exists() and path.read_text().strip(), "the daemon has begun")
    return int(path.read_text())


def test_the_end_of_the_supervisors_socket_ends_the_tree(tmp_path: Path) -> None:
    template = TemplateHandle()
    idle, daemon = template.spawn(), daemon_of(template, tmp_path / "pid")
    busy = template.executors[-1]
    assert process_stat(daemon).session not in (idle.pid, busy.pid)  # type: ignore[union-attr]
    template.sock.close()
    assert template.wait_exit().code == 0
    assert not alive(daemon)
    assert (idle.wait_exit().signal, busy.wait_exit().signal) == (signal.SIGKILL, signal.SIGKILL)
    assert find_marked(template.mark) == {}
    template.close()


def test_a_killed_supervisor_takes_everything_along(tmp_path: Path) -> None:
    script = (
        "import sys, time, pathlib\nsys.path.insert(0, sys.argv[1])\nfrom harness import *\n"
        "from test_tree import daemon_of\n"
        "template = TemplateHandle(mark=sys.argv[2])\n"
        "template.spawn()\ndaemon_of(template, pathlib.Path(sys.argv[3]))\n"
        "print(template.pid, *[one.pid for one in template.executors], flush=True)\ntime.sleep(600)\n"
    )
    mark = f"test-{os.urandom(8).hex()}"
    supervisor = subprocess.Popen(
        [sys.executable, "-c", script, str(FOLDER), mark, str(tmp_path / "pid")], stdout=subprocess.PIPE
    )
    assert supervisor.stdout is not None
    pids = [int(text) for text in supervisor.stdout.readline().split()]
    pids.append(int((tmp_path / "pid").read_text()))
    assert len(pids) == 4
    assert all(map(alive, pids))
    supervisor.kill()
    supervisor.wait()
    supervisor.stdout.close()
    until(lambda: not any(map(alive, pids)), "nothing of it is left")
    assert find_marked(mark) == {}


def test_the_dead_mans_switch(tmp_path: Path) -> None:
    template = TemplateHandle()
    idle, daemon = template.spawn(), daemon_of(template, tmp_path / "pid")
    busy = template.executors[-1]
    template.tick(600_000)
    template.tick(300)  # and no later tick
    assert busy.wait_exit().signal == signal.SIGKILL
    assert idle.wait_exit().signal == signal.SIGKILL
    until(lambda: not alive(daemon), "the daemon is killed too")
    until(lambda: "silent" in template.errors.text(), "the template says so")
    assert template.spawn().value("value", amount=1) == 1  # it has stayed, and works
    template.close()


def test_a_later_tick_in_time_and_none_at_all(template: TemplateHandle) -> None:
    executor = template.spawn()
    template.tick(50)
    template.tick(None)
    template.tick(100)
    template.tick(600_000)
    assert executor.value("sleep", amount=1) == "slept"
    template.tick(None)
    assert executor.value("value", amount=2) == 2


def test_a_tick_that_waits_in_the_socket_counts(template: TemplateHandle) -> None:
    """The template is stopped over kill_at, as a suspended machine would be; the supervisor had ticked meanwhile."""
    executor = template.spawn()
    template.tick(100)
    os.kill(template.pid, signal.SIGSTOP)
    until(lambda: process_stat(template.pid).state == "T", "it is stopped")  # type: ignore[union-attr]
    template.tick(600_000)
    assert executor.value("sleep", amount=1) == "slept"  # kill_at is over
    os.kill(template.pid, signal.SIGCONT)
    assert template.spawn().value("value", amount=1) == 1
    assert executor.value("value", amount=1) == 1


def test_executors_outlive_their_template_and_another_adopts_them(tmp_path: Path) -> None:
    template = TemplateHandle()
    executor, daemon = template.spawn(), daemon_of(template, tmp_path / "pid")
    busy = template.executors[-1]
    template.kill()
    assert executor.value("value", amount=1) == 1
    assert alive(daemon)
    successor = TemplateHandle(generation=2, mark=template.mark)
    successor.wait_ready()
    for one in (executor, busy):
        successor.tell(Adopt(one.pid), (one.pidfd,))
    successor.spawn()
    successor.tick(1)
    assert executor.wait_exit().signal == signal.SIGKILL
    assert busy.wait_exit().signal == signal.SIGKILL
    until(lambda: not alive(daemon), "the daemon carries the same mark")
    template.close()
    successor.close()


def test_exit_leaves_everybody_alone_and_two_templates_spare_each_other() -> None:
    old = TemplateHandle()
    executor = old.spawn()
    new = TemplateHandle(generation=2, mark=old.mark)
    other = new.spawn()
    assert other.hello is not None
    assert other.hello.generation == 2
    old.tick(1)  # kills its executor and sweeps the mark: the other's executor carries it, the other template too
    assert executor.wait_exit().signal == signal.SIGKILL
    assert other.wait_exit().signal == signal.SIGKILL
    other = new.spawn()
    old.tell(Exit())
    assert old.wait_exit().code == 0
    assert other.value("value", amount=1) == 1
    assert alive(new.pid)
    old.close()  # ends whatever carries the mark, the other template too
    new.close()


def test_what_is_asked_before_exit_is_done(template: TemplateHandle) -> None:
    template.wait_ready()
    executor = template.ask()
    template.tell(Exit())
    template.told(executor)
    assert executor.spawn_failed is None
    assert template.wait_exit().code == 0
    assert executor.receive() is not None
    assert executor.value("value", amount=1) == 1


def test_forget_and_nonsense_about_strangers(template: TemplateHandle) -> None:
    executor = template.spawn()
    template.tell(Forget(executor.pid))
    template.tell(Forget(12345678))
    template.tell(Forget(executor.pid))
    template.tick(1)
    other = template.spawn()
    assert other.value("value", amount=1) == 1
    assert executor.wait_exit().signal == signal.SIGKILL  # forgotten, but it carries the mark


def test_terminal_signals_do_not_touch_it(template: TemplateHandle) -> None:
    template.wait_ready()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(template.pid, number)
    assert template.spawn().value("value", amount=1) == 1


def test_no_process_and_no_descriptor_to_be_had(template: TemplateHandle) -> None:
    """Trouble 56: the request is refused, nothing leaks, and it works again once the limit is raised."""
    import resource

    template.wait_ready()
    template.spawn().close()
    template.executors.clear()
    before = 5  # 0 to 3 and the timer
    until(lambda: len(os.listdir(f"/proc/{template.pid}/fd")) == before, "the first is forgotten")
    was = resource.prlimit(template.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(template.pid, resource.RLIMIT_NOFILE, (before + 1, was[1]))
    for _ in range(20):
        assert template.told(template.ask()).spawn_failed
    resource.prlimit(template.pid, resource.RLIMIT_NOFILE, was)
    assert template.spawn().value("value", amount=1) == 1
    template.executors[-1].close()
    template.executors.clear()
    until(lambda: len(os.listdir(f"/proc/{template.pid}/fd")) == before, "nothing leaked")
