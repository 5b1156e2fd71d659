"""What a server that does not answer costs: the steps whose leases run out, and nothing else."""

from __future__ import annotations

import os
import signal

from hosts import World, until

from plaita.testing.server import Server


def test_only_the_step_whose_lease_runs_out_is_stopped(own_server: Server, own_world: World) -> None:
    """The dead-man switch would kill every executor: it is for supervisors that do not turn, not for this."""
    world = own_world
    file = world.folder / "lines"
    world.chain("f", {"type": "t_line", "id": "a", "file": str(file), "seconds": 600})
    supervisor = world.serving(executors=3, preload="trouble", lease_ttl_seconds=5, claim_min_idle_ms=500)
    execution = world.start("f")
    victim = supervisor.busy("a")
    until(file.exists, "the step")
    others = {row["pid"] for row in supervisor.executors()} - {victim["pid"]}
    os.kill(own_server.pid, signal.SIGSTOP)
    supervisor.wait_status(lambda s: victim["pid"] not in {row["pid"] for row in s["executors"]}, "the step's end")
    os.kill(own_server.pid, signal.SIGCONT)
    until(lambda: len(file.read_text().splitlines()) == 2, "the step begun again")
    assert others <= {row["pid"] for row in supervisor.executors()}
    assert "the supervisor was silent" not in supervisor.text()
    world.client.cancel(execution)
    assert world.wait(execution)["status"] == "cancelled"


def test_pause_is_answered_while_the_server_is_frozen(own_server: Server, own_world: World) -> None:
    supervisor = own_world.serving()
    os.kill(own_server.pid, signal.SIGSTOP)
    try:
        assert supervisor.ask("pause")["paused"] is True
        assert supervisor.ask("resume")["paused"] is False
    finally:
        os.kill(own_server.pid, signal.SIGCONT)
