"""Drains undone, hurried and repeated; stops under load."""

from __future__ import annotations

from hosts import World, until

PATIENT = {"lease_ttl_seconds": 600, "claim_min_idle_ms": 600_000, "preload": "trouble"}


def test_a_drain_that_was_undone_does_not_kill_in_the_next_one(world: World) -> None:
    file = world.folder / "lines"
    world.chain("f", {"type": "t_line", "id": "a", "file": str(file), "seconds": 4.0})
    supervisor = world.serving(**PATIENT, kill_grace=0, executors=1)
    supervisor.ask("drain", deadline=0)
    supervisor.wait_status(lambda s: s["drain"]["phase"] == "drained", "the first drain")
    supervisor.ask("undrain")
    execution = world.start("f")
    supervisor.busy("a")
    supervisor.ask("drain", deadline=60)  # what the first would have given up on 1 s and 3 s later must live on
    status = supervisor.wait_status(lambda s: s["drain"]["phase"] == "drained", "the second drain")
    assert status["drain"]["receipt"] == {"finished": 0, "handed_on": 1, "killed": 0, "left": 0}
    supervisor.ask("undrain")
    assert world.wait(execution)["status"] == "completed"
    assert len(file.read_text().splitlines()) == 1
    assert supervisor.stop() == 0


def test_a_drain_can_be_hurried(world: World) -> None:
    world.chain("f", {"type": "t_line", "id": "a", "file": str(world.folder / "lines"), "seconds": 600})
    supervisor = world.serving(**PATIENT, kill_grace=0.2, executors=1)
    execution = world.start("f")
    supervisor.busy("a")
    supervisor.ask("drain", deadline=600)
    supervisor.ask("drain", deadline=0)
    status = supervisor.wait_status(lambda s: s["drain"]["phase"] == "drained", "the drain")
    assert status["drain"]["receipt"]["killed"] == 1
    world.client.cancel(execution)
    supervisor.ask("undrain")
    assert world.wait(execution)["status"] == "cancelled"
    assert supervisor.stop() == 0  # the drain that killed was undone


def test_lives_that_end_by_sigterm_under_load_leave_nothing_lying(world: World) -> None:
    """Min-idle is ten minutes: a carrier delivered at the last moment must have been given back."""
    file = world.folder / "lines"
    world.chain("f", *({"type": "t_line", "id": name, "file": str(file), "seconds": 0.01} for name in "abc"))
    executions = []
    world.serving(**PATIENT, instance="other", executors=1)
    for _ in range(3):
        supervisor = world.serving(**PATIENT, executors=2)
        executions += [world.start("f") for _ in range(8)]
        assert supervisor.stop() == 0
        executions += [world.start("f") for _ in range(5)]
    assert {world.wait(execution)["status"] for execution in executions} == {"completed"}
    ran = [tuple(line.split()[:2]) for line in file.read_text().splitlines()]
    assert len(ran) == len(set(ran)) == 3 * len(executions)
    until(lambda: all(stream.pending == 0 for stream in world.stats().streams), "an empty queue")
