"""Drain, pause, stop: what the running step gets, who goes on, what the exit code says (R1-R6, DECISIONS 31, 32)."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from hosts import World, until

from plaita.errors import RefusedError

PATIENT = {"lease_ttl_seconds": 600, "claim_min_idle_ms": 600_000, "preload": "trouble"}


def lines(path: Path) -> list[list[str]]:
    return [line.split() for line in path.read_text().splitlines()] if path.exists() else []


def _two_steps(world: World) -> tuple[str, Path]:
    """The first of them goes on until ``_enough`` is there."""
    file = world.folder / "lines"
    step = {"type": "t_line", "file": str(file)}
    world.chain("f", {**step, "id": "a", "until": str(_enough(world))}, {**step, "id": "b"})
    return "f", file


def _enough(world: World) -> Path:
    return world.folder / "enough"


def test_R6_sigterm_finishes_the_running_step_and_hands_the_execution_on(world: World) -> None:
    flow, file = _two_steps(world)
    first = world.serving(**PATIENT)
    execution = world.start(flow)
    first.busy("a")
    assert first.stop_within(_enough(world)) == 0
    assert [line[1] for line in lines(file)] == ["a"]
    assert world.get(execution)["status"] == "running"
    assert world.get(execution)["holder"] is None
    world.serving(instance="two", **PATIENT)
    assert world.wait(execution)["status"] == "completed"
    assert [(line[1], line[2]) for line in lines(file)] == [("a", "1"), ("b", "1")]


def test_R6_an_idle_supervisor_ends_with_0_and_leaves_no_entry(world: World) -> None:
    supervisor = world.serving()
    assert supervisor.stop() == 0
    assert not supervisor.tree()
    assert not Path(supervisor.socket).exists()
    second = world.serving()
    assert (
        "registry.namesake" not in second.text().partition("supervisor.exit")[2].partition("registry.namesake_dead")[0]
    )


def test_R2_a_step_that_outlasts_the_drain_timeout_is_killed_and_handed_on(world: World) -> None:
    flow, file = _two_steps(world)
    first = world.serving(drain_timeout=0.5, kill_grace=0.5, **PATIENT)
    execution = world.start(flow)
    first.busy("a")
    assert first.stop() == 75
    assert world.row(execution).control["lost"] == "0"  # a drain costs no budget
    second = world.serving(instance="two", **PATIENT)
    second.busy("a")
    until(lambda: len(lines(file)) == 2, "the step begun again")
    assert [(line[1], line[2]) for line in lines(file)] == [("a", "1"), ("a", "1")]
    world.client.cancel(execution)
    assert world.wait(execution)["status"] == "cancelled"


def test_a_second_sigterm_forces(world: World) -> None:
    flow, _ = _two_steps(world)
    first = world.serving(drain_timeout=600, kill_grace=0.5, **PATIENT)
    world.start(flow)
    first.busy("a")
    first.signal(signal.SIGTERM)
    first.wait_status(lambda s: s["status"] == "draining", "draining")
    first.signal(signal.SIGTERM)
    assert first.wait_exit() == 75


def test_drain_stays_hands_on_and_can_be_undone(world: World) -> None:
    flow, file = _two_steps(world)
    supervisor = world.serving(**PATIENT)
    execution = world.start(flow)
    supervisor.busy("a")
    assert supervisor.ask("drain")["status"] == "draining"
    _enough(world).touch()
    status = supervisor.wait_status(lambda s: s["drain"]["phase"] == "drained", "drained")
    assert status["drain"]["receipt"]["handed_on"] == 1
    assert [line[1] for line in lines(file)] == ["a"]
    assert world.get(execution)["status"] == "running"
    supervisor.ask("undrain")
    assert world.wait(execution)["status"] == "completed"
    assert supervisor.stop() == 0


def test_undrain_is_refused_on_the_way_out(world: World) -> None:
    flow, _ = _two_steps(world)
    supervisor = world.serving(**PATIENT)
    world.start(flow)
    supervisor.busy("a")
    supervisor.signal(signal.SIGTERM)
    supervisor.wait_status(lambda s: s["status"] == "draining", "draining")
    with pytest.raises(RefusedError):
        supervisor.ask("undrain")
    _enough(world).touch()
    assert supervisor.wait_exit() == 0


def test_pause_shuts_the_gate_and_hands_nothing_on(world: World) -> None:
    flow, file = _two_steps(world)
    supervisor = world.serving(**PATIENT)
    running = world.start(flow)
    supervisor.busy("a")
    supervisor.ask("pause")
    waiting = world.start(flow)
    _enough(world).touch()
    assert world.wait(running)["status"] == "completed"
    assert world.get(waiting)["status"] == "pending"
    status = supervisor.status()
    assert status is not None
    assert (status["status"], status["paused"], status["serving"]) == ("running", True, False)
    gates = {row["gate"]: row["open"] for row in supervisor.ask("explain")["gates"]}
    assert gates["pause"] is False
    assert gates["redis"] is True
    assert supervisor.ask("drain")["status"] == "draining"
    drained = supervisor.ask("resume")
    assert (drained["serving"], "undrain" in drained["answer"]) == (False, True)
    supervisor.ask("pause")
    undrained = supervisor.ask("undrain")
    assert (undrained["status"], undrained["serving"]) == ("running", False)
    assert "it is paused" in undrained["answer"]
    assert supervisor.ask("resume")["serving"] is True
    assert world.wait(waiting)["status"] == "completed"
    assert len(lines(file)) == 4


def test_reload_replaces_every_executor_and_loses_nothing(world: World) -> None:
    flow, file = _two_steps(world)
    supervisor = world.serving(**PATIENT)
    before = {row["pid"] for row in supervisor.executors()}
    execution = world.start(flow)
    supervisor.busy("a")
    supervisor.ask("reload")
    _enough(world).touch()
    assert world.wait(execution)["status"] == "completed"
    supervisor.wait_status(
        lambda s: all(row["state"] == "idle" and row["pid"] not in before for row in s["executors"]), "new executors"
    )
    assert [(line[1], line[2]) for line in lines(file)] == [("a", "1"), ("b", "1")]
    assert supervisor.stop() == 0


def test_S8_cancel_stops_a_running_step_and_keeps_the_checkpoint(world: World) -> None:
    file = world.folder / "lines"
    world.chain(
        "g",
        {"type": "mock", "id": "first", "value": 1},
        {"type": "t_line", "id": "a", "file": str(file), "seconds": 1000},
    )
    supervisor = world.serving(**PATIENT)
    execution = world.start("g")
    supervisor.busy("a")
    world.client.cancel(execution, reason="not wanted any more")
    row = world.wait(execution)
    assert row["status"] == "cancelled"
    assert row["error"]["code"] == -4
    assert "not wanted any more" in row["error"]["message"]
    assert world.row(execution).results["first"] == b"1"
    assert row["last_node_id"] == "first"
    assert until(lambda: supervisor.stop() == 0, "a clean end")


def test_S8_cancel_of_what_has_not_begun(world: World) -> None:
    flow, file = _two_steps(world)
    supervisor = world.serving(**PATIENT)
    supervisor.ask("pause")
    execution = world.start(flow)
    world.client.cancel(execution)
    supervisor.ask("resume")
    assert world.wait(execution)["status"] == "cancelled"
    assert lines(file) == []
