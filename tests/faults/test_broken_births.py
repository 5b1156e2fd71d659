"""What is broken at boot makes no hot loop: births are put off, told, and go on by themselves once it is mended."""

from __future__ import annotations

import os
import re
import signal
from typing import Any

from hosts import SupervisorProcess, World, until

# Late (its import starts a thread), so that each executor imports it anew; there it dies before it can say hello.
DEADLY = """
import os, pathlib, sys, threading, time
from plaita import Node

FOLDER = pathlib.Path(__file__).parent
if (FOLDER / "tried").exists() and not (FOLDER / "mended").exists():
    print("no licence found", file=sys.stderr, flush=True)
    os._exit(3)
(FOLDER / "tried").touch()
threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()

class Fine(Node):
    node_type = "t_fine"

    def execute(self, execution):
        return 1
"""


# Late too; in executors its import hangs for as long as it is not mended.
SLEEPY = """
import pathlib, threading, time
from plaita import Node

FOLDER = pathlib.Path(__file__).parent
while (FOLDER / "tried").exists() and not (FOLDER / "mended").exists():
    time.sleep(0.01)
(FOLDER / "tried").touch()
threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
"""

SHORT_DEADLINE = """
import sys
if "plaita.cli.supervisor" in sys.orig_argv:
    import plaita.supervisor.births
    plaita.supervisor.births.SPAWN_DEADLINE_S = 0.5
"""


def _executors_gate(supervisor: SupervisorProcess) -> dict[str, Any]:
    [row] = [row for row in supervisor.ask("explain")["gates"] if row["gate"] == "executors"]
    return row


def _waits(text: str, event: str) -> list[int]:
    return [int(wait) for wait in re.findall(rf"event={event} .*?wait_ms=(\d+)", text)]


def test_a_plugin_that_kills_every_executor_at_boot_is_tried_less_and_less_often(world: World) -> None:
    (world.folder / "deadly.py").write_text(DEADLY)
    supervisor = world.supervisor(executors=1, preload="deadly", environment={"PYTHONPATH": str(world.folder)})
    told = supervisor.wait_status(lambda status: status["counters"]["spawn_failures"] >= 4, "births that failed")
    assert told["status"] == "running", "its Redis and its template are in order: this is nothing that a restart mends"
    assert told["serving"] is False
    assert _waits(supervisor.text(), "executor.respawn_delayed")[:4] == [100, 200, 400, 800]
    assert told["counters"]["executor_spawns"] <= told["counters"]["spawn_failures"] + 1
    assert told["deaths"][-1]["cause"] == "exit 3 before it said hello"
    assert "no licence found" in supervisor.text()
    row = until(
        lambda: next((row for row in [_executors_gate(supervisor)] if "respawn slowed" in row["value"]), None),
        "explain says that it waits",
    )
    assert "1 of 1 slots wait" in row["value"]
    assert "exit 3 before it said hello" in row["value"]
    assert row["advice"]
    world.chain("f", {"type": "t_fine", "id": "a"})
    execution = world.start("f")
    (world.folder / "mended").touch()
    assert world.wait(execution)["status"] == "completed"
    assert "respawn slowed" not in _executors_gate(supervisor)["value"]
    assert supervisor.stop() == 0


def test_a_template_that_dies_over_and_over_is_started_less_and_less_often(world: World) -> None:
    supervisor = world.serving(executors=1)
    told, deaths = "", 0

    def explained_or_ready() -> bool:
        nonlocal told
        value = _executors_gate(supervisor)["value"]
        told = value if "the template ended" in value else told
        return bool(told) or bool(supervisor.ask("status")["template"]["ready"])

    while not told and deaths < 7:  # the longer it waits, the surer it is seen waiting
        pid = supervisor.wait_status(lambda status: status["template"]["ready"], "a template")["template"]["pid"]
        os.kill(pid, signal.SIGKILL)
        deaths += 1
        supervisor.wait_status(
            lambda status, count=deaths: status["counters"]["template_restarts"] >= count, "its death is known"
        )
        until(explained_or_ready, "a word on it, or the next one")
    assert re.search(rf"the template ended {deaths} times in 60 s, the last time: it ended.*SIGKILL", told)
    assert _waits(supervisor.text(), "template.restart_delayed") == [200 * 2**n for n in range(deaths - 1)]
    world.chain("f", {"type": "mock", "id": "a", "value": 1})
    assert world.run("f")["status"] == "completed", "executors go on without it"
    supervisor.wait_status(lambda status: status["template"]["ready"], "the next one")
    assert "the template ended" not in _executors_gate(supervisor)["value"]
    assert supervisor.stop() == 0


def test_an_executor_that_does_not_boot_in_time_is_ended_and_costs_nobody_an_attempt(world: World) -> None:
    (world.folder / "sleepy.py").write_text(SLEEPY)
    (world.folder / "sitecustomize.py").write_text(SHORT_DEADLINE)
    supervisor = world.supervisor(
        executors=1,
        preload="sleepy",
        environment={"PYTHONPATH": str(world.folder)},
        through=("env",),  # an interpreter of its own, that reads sitecustomize
    )
    world.chain("f", {"type": "mock", "id": "a", "value": 1})
    execution = world.start("f")
    told = supervisor.wait_status(lambda status: status["counters"]["spawn_failures"] >= 2, "births that were cut off")
    assert {death["cause"] for death in told["deaths"]} == {"no hello within 0.5 s"}
    assert {death["execution_id"] for death in told["deaths"]} == {None}
    (world.folder / "mended").touch()
    assert world.wait(execution)["status"] == "completed"
    assert world.node(execution, "a")["attempts"] == 1
    assert world.row(execution).control["lost"] == "1"
    assert supervisor.stop() == 0
