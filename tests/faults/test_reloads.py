"""Reloads that meet trouble: a template that dies meanwhile, code that does not import, another reload, the end."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from fake_systemd import FakeSystemd
from hosts import SupervisorProcess, World, alive, until

from plaita.errors import RefusedError

NODES = Path(__file__).parent.parent / "supervisor" / "nodes"
WAITS = "import os, time\nwhile not os.path.exists({go!r}):\n    time.sleep(0.01)\n"
NODE = """
from plaita import Node

class Says(Node):
    node_type = "t_says"

    def execute(self, execution):
        return {word!r}
"""


def _plug_in(world: World, word: str, *, go: str = "") -> None:
    text = WAITS.format(go=str(world.folder / go)) if go else ""
    (world.folder / "says.py").write_text(text + NODE.format(word=word))


def _serving(world: World, **named: Any) -> SupervisorProcess:
    _plug_in(world, "old")
    world.chain("f", {"type": "t_says", "id": "a"})
    return world.serving(preload="says", environment={"PYTHONPATH": f"{world.folder}:{NODES}"}, **named)


def _templates(supervisor: SupervisorProcess) -> list[int]:
    found = []
    for pid in supervisor.tree():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it may end while we look
            if b"template" in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(pid)
    return found


def test_a_template_that_dies_while_its_successor_imports_is_succeeded_once(world: World) -> None:
    supervisor = _serving(world)
    _plug_in(world, "new", go="go")
    status = supervisor.status()
    assert status is not None
    supervisor.ask("reload")
    until(lambda: len(_templates(supervisor)) == 2, "the template that imports")
    os.kill(status["template"]["pid"], signal.SIGKILL)
    (world.folder / "go").touch()
    supervisor.wait_status(lambda s: s["template"]["ready"] and s["template"]["generation"] > 1, "a new template")
    until(lambda: len(_templates(supervisor)) == 1, "one template only")
    supervisor.wait_serving()
    assert world.run("f")["output"]["a"] == "new"
    assert "stray.killed" not in supervisor.text()


def test_executors_serve_while_a_new_template_imports(world: World) -> None:
    supervisor = _serving(world)
    _plug_in(world, "new", go="go")
    supervisor.ask("reload")
    until(lambda: len(_templates(supervisor)) == 2, "the template that imports")
    assert world.run("f")["output"]["a"] == "old"
    (world.folder / "go").touch()
    until(lambda: world.run("f")["output"]["a"] == "new", "executors with the new code")


def test_code_that_does_not_import_leaves_everything_as_it_was(world: World) -> None:
    supervisor = _serving(world)
    before = {row["pid"] for row in supervisor.executors()}
    (world.folder / "says.py").write_text("import no_such_module_anywhere\n")
    with pytest.raises(RefusedError, match=r"reload\.failed"):
        supervisor.ask("reload", wait=True)
    assert world.run("f")["output"]["a"] == "old"
    assert {row["pid"] for row in supervisor.executors()} == before
    _plug_in(world, "repaired")
    supervisor.ask("reload", wait=True)
    assert world.run("f")["output"]["a"] == "repaired"


def test_the_last_of_two_reloads_in_a_row_counts(world: World) -> None:
    supervisor = _serving(world)
    _plug_in(world, "first", go="never")
    supervisor.ask("reload")
    until(lambda: len(_templates(supervisor)) == 2, "the template that imports")
    _plug_in(world, "second")
    supervisor.ask("reload", wait=True)
    assert [world.run("f")["output"]["a"] for _ in range(4)] == ["second"] * 4
    until(lambda: len(_templates(supervisor)) == 1, "one template only")


def test_sigterm_while_a_template_imports_for_ever_leaves_nobody_behind(world: World) -> None:
    supervisor = _serving(world)
    _plug_in(world, "new", go="never")
    supervisor.ask("reload")
    until(lambda: len(_templates(supervisor)) == 2, "the template that imports")
    tree = supervisor.tree()
    assert supervisor.stop() == 0
    assert not [pid for pid in tree if alive(pid)]


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        pytest.param("def broken(:\n", "says", marks=pytest.mark.long),
        ("import os\nos._exit(3)\n", "ended while it imported says: exit code 3"),
        pytest.param(
            "import os\nos.kill(os.getpid(), 11)\n",
            "ended while it imported says: killed by SIGSEGV",
            marks=pytest.mark.long,
        ),
        ("import time\ntime.sleep(1000)\n", "did not stand within 4 s while it imported says"),
    ],
)
def test_a_new_template_that_cannot_stand_is_told_and_the_old_one_serves_on(
    world: World, code: str, reason: str
) -> None:
    supervisor = _serving(world, executors=1, template_deadline=4)
    before = {row["pid"] for row in supervisor.executors()}
    (world.folder / "says.py").write_text(code)
    command = [sys.executable, "-m", "plaita.cli.supervisor", "reload", "--wait", "--socket", supervisor.socket]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == 1
    assert reason in done.stderr
    status = supervisor.status()
    assert status is not None
    assert status["reload"]["phase"] == "failed"
    assert reason in status["reload"]["reason"]
    assert "reload.failed" in supervisor.text()
    assert world.run("f")["output"]["a"] == "old"
    assert {row["pid"] for row in supervisor.executors()} == before
    _plug_in(world, "repaired")
    supervisor.ask("reload", wait=True)
    assert world.run("f")["output"]["a"] == "repaired"
    assert (supervisor.status() or {})["reload"]["phase"] == "done"


HELD = """
import os, time
from plaita import Node

class Says(Node):
    node_type = "t_says"

    def execute(self, execution):
        while execution.node_id == "a" and not os.path.exists({go!r}):
            time.sleep(0.01)
        return {word!r}
"""


def test_a_step_in_flight_ends_with_the_old_code_and_the_next_one_runs_the_new(world: World) -> None:
    """One executor: it is replaced after its step, in the middle of its carrier."""
    supervisor = _serving(world, executors=1, lease_ttl_seconds=600, claim_min_idle_ms=600_000)
    go = str(world.folder / "step")
    (world.folder / "says.py").write_text(HELD.format(go=go, word="held"))
    supervisor.ask("reload", wait=True)
    world.chain("g", {"type": "t_says", "id": "a"}, {"type": "t_says", "id": "b"})
    execution = world.start("g")
    supervisor.busy("a")
    _plug_in(world, "new")
    supervisor.ask("reload")
    supervisor.wait_status(lambda s: s["reload"]["phase"] == "replacing", "the new template")
    command = [sys.executable, "-m", "plaita.cli.supervisor", "reload", "--wait", "--timeout", "1"]
    done = subprocess.run([*command, "--socket", supervisor.socket], capture_output=True, text=True, timeout=100)
    assert done.returncode == 4
    assert "not done within 1 s" in done.stderr
    supervisor.wait_status(lambda s: s["reload"]["phase"] == "replacing", "the template of that one")
    assert (supervisor.status() or {})["reload"]["left"] == 1
    (world.folder / "step").touch()
    row = world.wait(execution)
    assert (row["output"]["a"], row["output"]["b"]) == ("held", "new")
    assert [node["attempts"] for node in row["nodes"] if node["id"] in "ab"] == [1, 1]
    assert supervisor.stop() == 0


def test_a_sighup_during_the_start_is_done_after_it(world: World) -> None:
    _plug_in(world, "old", go="go")
    world.chain("f", {"type": "t_says", "id": "a"})
    environment = {"PYTHONPATH": f"{world.folder}:{NODES}"}
    supervisor = world.supervisor(preload="says", environment=environment, executors=1)
    until(lambda: "template.started" in supervisor.text(), "the first template")
    supervisor.wait_status(lambda s: s["status"] == "starting", "the start")
    # The text that waits was read by now, or is read when it is new: both end with the new one.
    supervisor.signal(signal.SIGHUP)
    until(lambda: "reload.put_off" in supervisor.text(), "the signal heard")
    until(lambda: "(the template imports says)" in supervisor.ask("explain")["answer"], "what it waits for, told")
    assert supervisor.ask("reload", wait=True, within=0.1)["unfinished"] == "it is put off until the start is over"
    _plug_in(world, "new")
    (world.folder / "go").touch()
    supervisor.wait_status(lambda s: s["reload"]["phase"] == "done", "the reload")
    assert world.run("f")["output"]["a"] == "new"
    assert supervisor.stop() == 0


def test_two_sighups_in_a_row_and_one_while_drained(world: World) -> None:
    supervisor = _serving(world, executors=1)
    _plug_in(world, "first", go="never")
    supervisor.signal(signal.SIGHUP)
    until(lambda: len(_templates(supervisor)) == 2, "the template that imports")
    _plug_in(world, "second")
    supervisor.signal(signal.SIGHUP)
    supervisor.wait_status(lambda s: s["reload"]["phase"] == "done", "the second reload")
    assert world.run("f")["output"]["a"] == "second"
    supervisor.ask("drain")
    supervisor.wait_status(lambda s: s["drain"]["phase"] == "drained", "the drain")
    _plug_in(world, "third")
    supervisor.ask("reload", wait=True)
    supervisor.ask("undrain")
    assert world.run("f")["output"]["a"] == "third"
    assert supervisor.stop() == 0


def test_a_stop_ends_a_reload_that_has_not_come_to_stand(world: World) -> None:
    """Its template could stand in the middle of the drain: then nothing may be told or replaced any more."""
    _plug_in(world, "old")
    world.chain("g", {"type": "t_line", "id": "a", "file": str(world.folder / "lines"), "seconds": 1000})
    systemd = FakeSystemd()
    environment = {"PYTHONPATH": f"{world.folder}:{NODES}", **systemd.environment}
    flags = {"executors": 2, "drain_timeout": 600, "kill_grace": 0.2, "environment": environment}
    supervisor = world.serving(preload=["trouble", "says"], **flags)
    world.start("g")
    supervisor.busy("a")
    _plug_in(world, "new", go="never")
    waiting = subprocess.Popen(
        [sys.executable, "-m", "plaita.cli.supervisor", "reload", "--wait", "--socket", supervisor.socket],
        stderr=subprocess.PIPE,
        text=True,
    )
    until(lambda: len(_templates(supervisor)) == 2, "the template that imports")
    supervisor.signal(signal.SIGTERM)
    assert "told to stop" in waiting.communicate(timeout=60)[1]
    assert waiting.returncode == 1
    until(lambda: len(_templates(supervisor)) == 1, "one template only")
    supervisor.signal(signal.SIGTERM)
    assert supervisor.wait_exit() == 75
    names = [word.name for word in systemd.words if word.name in ("READY", "RELOADING", "STOPPING")]
    assert names[:3] == ["READY", "RELOADING", "STOPPING"]
    assert "READY" not in names[3:]
    systemd.close()


def test_a_sighup_on_the_way_out_is_refused(world: World) -> None:
    world.chain("g", {"type": "t_line", "id": "a", "file": str(world.folder / "lines"), "seconds": 1000})
    supervisor = world.serving(preload="trouble", executors=1, drain_timeout=600, kill_grace=0.2)
    world.start("g")
    supervisor.busy("a")
    supervisor.signal(signal.SIGTERM)
    supervisor.wait_status(lambda s: s["status"] == "draining", "draining")
    supervisor.signal(signal.SIGHUP)
    until(lambda: "reload.refused" in supervisor.text(), "the refusal")
    with pytest.raises(RefusedError, match="draining"):
        supervisor.ask("reload")
    assert len(_templates(supervisor)) == 1
    supervisor.signal(signal.SIGTERM)
    assert supervisor.wait_exit() == 75


def test_a_template_that_dies_while_its_code_is_broken_leaves_the_executors_at_work(world: World) -> None:
    supervisor = _serving(world, executors=1)
    (world.folder / "says.py").write_text("import no_such_module_anywhere\n")
    os.kill(_templates(supervisor)[0], signal.SIGKILL)
    until(lambda: "template.broken" in supervisor.text(), "a template that fails")
    assert world.run("f")["output"]["a"] == "old"
    _plug_in(world, "repaired")
    supervisor.wait_status(lambda s: s["template"]["ready"], "a template that stands")
    supervisor.ask("reload", wait=True)
    assert world.run("f")["output"]["a"] == "repaired"
    assert supervisor.stop() == 0


def test_a_reload_takes_one_executor_at_a_time(world: World) -> None:
    supervisor = _serving(world, executors=4)
    before = {row["pid"] for row in supervisor.executors()}
    supervisor.ask("reload")
    standing = []
    while True:
        status = supervisor.status()
        assert status is not None
        standing.append(sum(row["state"] in ("idle", "busy") for row in status["executors"]))
        if status["reload"]["phase"] == "done":
            break
    assert min(standing) >= 3
    assert not before & {row["pid"] for row in supervisor.executors()}
