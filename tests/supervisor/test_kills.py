"""Who may die, and what then: real processes, real signals.

Lease and min-idle are ten minutes in most of these: what finishes at all has been handed on, not waited for
(DECISIONS 44).
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from hosts import World, alive, until

PATIENT = {"lease_ttl_seconds": 600, "claim_min_idle_ms": 600_000, "preload": "trouble"}


def lines(path: Path) -> list[list[str]]:
    return [line.split() for line in path.read_text().splitlines()] if path.exists() else []


def test_S14_an_executor_killed_in_a_step_costs_only_that_step(world: World) -> None:
    file, enough = world.folder / "lines", world.folder / "enough"
    step = {"type": "t_line", "file": str(file)}
    world.chain("f", {**step, "id": "a"}, {**step, "id": "b", "until": str(enough)}, {**step, "id": "c"})
    supervisor = world.serving(**PATIENT)
    execution = world.start("f")
    victim = supervisor.busy("b")
    until(lambda: len(lines(file)) == 2, "the step's own line")
    os.kill(victim["pid"], signal.SIGKILL)
    enough.touch()
    row = world.wait(execution)
    assert row["status"] == "completed"
    assert [(line[1], line[2]) for line in lines(file)] == [("a", "1"), ("b", "1"), ("b", "2"), ("c", "1")]
    assert world.node(execution, "b")["attempts"] == 2
    assert world.node(execution, "a")["attempts"] == 1
    assert world.row(execution).death is not None
    status = supervisor.wait_serving().status()
    assert status is not None
    assert status["pid"] == supervisor.pid
    assert status["counters"]["executor_deaths"] == 1


def test_L7_a_supervisor_killed_leaves_nobody_behind_and_its_next_life_goes_on(world: World) -> None:
    file, pids, enough = (world.folder / name for name in ("lines", "pids", "enough"))
    world.chain("tree", {"type": "t_do", "id": "hang", "what": "daemon_and_hang", "file": str(pids)})
    world.chain(
        "f",
        {"type": "t_line", "id": "a", "file": str(file)},
        {"type": "t_line", "id": "b", "file": str(file), "until": str(enough)},
    )
    first = world.serving(**PATIENT)
    hanging, execution = world.start("tree"), world.start("f")
    first.busy("b")
    until(lambda: len(lines(pids)) == 3, "three children of the node")
    tree = first.tree() | {int(line[0]) for line in lines(pids)}
    assert len(tree) >= 5
    first.kill()
    until(lambda: not any(alive(pid) for pid in tree), "the end of the whole tree", seconds=10)
    enough.touch()
    second = world.serving(**PATIENT)
    assert world.wait(execution)["status"] == "completed"
    assert [(line[1], line[2]) for line in lines(file)] == [("a", "1"), ("b", "1"), ("b", "2")]
    second.busy("hang")
    assert world.client.cancel(hanging)["cancel_requested"]
    assert world.wait(hanging)["status"] == "cancelled"


def test_a_frozen_supervisor_loses_its_executors_before_its_lease_ends_and_carries_on(world: World) -> None:
    file = world.folder / "lines"
    world.chain("f", {"type": "t_line", "id": "a", "file": str(file), "seconds": 1000})
    supervisor = world.serving(lease_ttl_seconds=5, claim_min_idle_ms=500, executors=1, preload="trouble")
    execution = world.start("f")
    victim = supervisor.busy("a")
    lease = world.keys.lease(execution)
    supervisor.signal(signal.SIGSTOP)

    def dead_or_out() -> str:
        if not alive(victim["pid"]):
            return "dead"
        return "" if world.runner.do(_raw("EXISTS", lease)) else "lease over, executor alive"

    assert until(dead_or_out, "the end of executor or lease") == "dead"
    until(lambda: not world.runner.do(_raw("EXISTS", lease)), "the end of the lease")
    supervisor.signal(signal.SIGCONT)
    until(lambda: len(lines(file)) >= 2, "the step begun again")
    supervisor.busy("a")
    world.client.cancel(execution)
    assert world.wait(execution)["status"] == "cancelled"


def _raw(*words: str):  # type: ignore[no-untyped-def]
    from plaita.testing.server import raw

    return raw(*words)


def test_a_killed_template_comes_back_and_its_executors_go_on(world: World) -> None:
    file, enough = world.folder / "lines", world.folder / "enough"
    world.chain("f", {"type": "t_line", "id": "a", "file": str(file), "until": str(enough)})
    supervisor = world.serving(**PATIENT)
    execution = world.start("f")
    worker = supervisor.busy("a")
    status = supervisor.status()
    assert status is not None
    os.kill(status["template"]["pid"], signal.SIGKILL)
    supervisor.wait_status(lambda s: s["template"]["ready"] and s["template"]["generation"] == 2, "a new template")
    enough.touch()
    assert world.wait(execution)["status"] == "completed"
    assert [line[2] for line in lines(file)] == ["1"]
    assert int(lines(file)[0][3]) == worker["pid"]
    # the new one forks executors
    os.kill(worker["pid"], signal.SIGKILL)
    supervisor.wait_status(
        lambda s: all(row["state"] == "idle" and row["pid"] != worker["pid"] for row in s["executors"]),
        "a new executor",
    )
    assert world.run("f")["status"] == "completed"


def test_L7_the_new_template_watches_over_the_executors_of_the_old_one(world: World) -> None:
    world.chain("f", {"type": "t_line", "id": "a", "file": str(world.folder / "lines"), "seconds": 1000})
    supervisor = world.serving(lease_ttl_seconds=5, claim_min_idle_ms=500, executors=1, preload="trouble")
    world.start("f")
    victim = supervisor.busy("a")
    status = supervisor.status()
    assert status is not None
    os.kill(status["template"]["pid"], signal.SIGKILL)
    supervisor.wait_status(lambda s: s["template"]["ready"] and s["template"]["generation"] == 2, "a new template")
    supervisor.signal(signal.SIGSTOP)
    until(lambda: not alive(victim["pid"]), "the dead-man switch of the new template")


def test_a_plug_in_that_starts_a_thread_on_import_works(world: World) -> None:
    world.chain("f", {"type": "t_ticks", "id": "a"})
    supervisor = world.serving(preload=["threaded", "trouble"])
    row = world.run("f")
    assert row["status"] == "completed"
    assert row["output"]["a"] is True
    assert "template.late_module" in supervisor.text()


def test_fifty_executors_killed_in_one_go_are_all_replaced(world: World) -> None:
    supervisor = world.serving(executors=12, preload="trouble")
    before = {row["pid"] for row in supervisor.executors()}
    for pid in before:
        os.kill(pid, signal.SIGKILL)
    supervisor.wait_status(
        lambda s: all(row["state"] == "idle" and row["pid"] not in before for row in s["executors"]), "twelve new ones"
    )
    world.chain("f", {"type": "t_line", "id": "a", "file": str(world.folder / "lines")})
    assert world.run("f")["status"] == "completed"


@pytest.mark.parametrize("flags", [(), ("--loop", "asyncio")])
def test_both_loops_serve(world: World, flags: tuple[str, ...]) -> None:
    world.chain("f", {"type": "mock", "id": "a", "value": 7})
    supervisor = world.serving(*flags)
    assert world.run("f")["output"] == {"start": None, "a": 7}
    assert supervisor.stop() == 0
