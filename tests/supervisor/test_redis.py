"""Redis emptied, its streams deleted, restarted, away: the supervisor goes on by itself, and never in a hot loop."""

from __future__ import annotations

import json

import pytest
from hosts import SupervisorProcess, World, until

from plaita.testing.server import Server, raw


def _quiet(supervisor: SupervisorProcess, server: Server) -> None:
    """An idle supervisor sends few commands: measured by the server over one second."""
    import time

    def processed() -> int:
        info = server.do("INFO", "stats").decode()
        return int(
            next(line for line in info.splitlines() if line.startswith("total_commands_processed")).split(":")[1]
        )

    before = processed()
    time.sleep(1.0)
    assert processed() - before < 200, "a hot loop"


@pytest.mark.parametrize("deed", ["flushall", pytest.param("del-streams", marks=pytest.mark.long), "restart"])
def test_Q1_five_times_idle(own_server: Server, own_world: World, deed: str) -> None:
    world = own_world
    supervisor = world.serving(preload="trouble")
    for n in range(5):
        _hurt(own_server, world, deed)
        world.chain("f", {"type": "mock", "id": "a", "value": n})
        row = world.run("f")
        assert row["status"] == "completed"
        assert row["output"]["a"] == n
    _quiet(supervisor, own_server)
    assert supervisor.stop() == 0


def _hurt(server: Server, world: World, deed: str) -> None:
    if deed == "flushall":
        server.flush()
    elif deed == "del-streams":
        server.do("DEL", world.keys.queue, world.keys.wake)
    else:
        server.kill()
        server.start()
        until(lambda: _answers(world), "the server again")


def _answers(world: World) -> bool:
    from plaita.store.call import Value

    return isinstance(world.runner.run(raw("PING")), Value)


@pytest.mark.parametrize(
    "deed",
    [pytest.param("flushall", marks=pytest.mark.long), "del-streams", pytest.param("restart", marks=pytest.mark.long)],
)
def test_Q1_five_times_in_mid_step(own_server: Server, own_world: World, deed: str) -> None:
    world = own_world
    supervisor = world.serving(preload="trouble", executors=1)
    for n in range(5):
        step = {"type": "t_line", "file": str(world.folder / f"lines{n}"), "seconds": 0.3}
        world.chain("f", {**step, "id": "a"}, {**step, "id": "b"})
        execution = world.start("f")
        supervisor.busy("a")
        world.runner.do(raw("CONFIG", "SET", "appendfsync", "always"))
        _hurt(own_server, world, deed)
        if deed == "flushall":
            # The row is gone: nothing is invented. The executor becomes free and serves what comes next.
            supervisor.wait_status(lambda s: s["executors"][0]["state"] == "idle", "a free executor")
            assert world.runner.do(raw("EXISTS", world.keys.row(execution))) == 0
        else:
            assert world.wait(execution)["status"] == "completed"
        world.chain("g", {"type": "mock", "id": "a", "value": n})
        assert world.run("g")["output"]["a"] == n
    status = supervisor.wait_status(lambda s: s["serving"], "serving")
    assert status["pid"] == supervisor.pid
    _quiet(supervisor, own_server)
    assert supervisor.stop() == 0


def test_Q1_entries_added_before_the_loss_was_noticed_are_delivered(own_server: Server, own_world: World) -> None:
    world = own_world
    supervisor = world.serving()
    world.chain("f", {"type": "mock", "id": "a", "value": 1})
    supervisor.ask("pause")
    own_server.do("DEL", world.keys.queue, world.keys.wake)
    executions = [world.start("f") for _ in range(5)]
    supervisor.ask("resume")
    assert {world.wait(execution)["status"] for execution in executions} == {"completed"}


def test_redis_away_is_said_in_status_and_waited_for(own_server: Server, own_world: World) -> None:
    world = own_world
    own_server.kill()
    supervisor = world.supervisor()
    status = supervisor.wait_status(lambda s: not s["redis"]["connected"], "an answer without Redis")
    assert status["status"] == "starting"
    assert status["serving"] is False
    assert status["redis"]["error"]
    assert "S3cr3t" not in json.dumps(status)
    own_server.start()
    supervisor.wait_serving()
    world.chain("f", {"type": "mock", "id": "a", "value": 1})
    assert world.run("f")["status"] == "completed"
    assert supervisor.stop() == 0


def test_sigterm_while_redis_is_away_ends_at_once_with_0(own_server: Server, own_world: World) -> None:
    own_server.kill()
    supervisor = own_world.supervisor()
    supervisor.wait_status(lambda s: s["status"] == "starting", "an answer")
    assert supervisor.stop() == 0
    own_server.start()


def test_F9_bytes_written_per_step_do_not_grow_with_the_steps_before(own_server: Server, own_world: World) -> None:
    """Counted in the append-only file: 200 steps write twice what 100 write (a whole context a step: four times)."""
    world = own_world
    world.serving(executors=1)

    def written(steps: int) -> int:
        step = {"type": "mock", "value": {"n": 7, "text": "x" * 50}}
        world.chain(f"f{steps}", *({**step, "id": f"n{n:03d}"} for n in range(steps)))
        before = _log_bytes(own_server)
        assert world.run(f"f{steps}")["status"] == "completed"
        own_server.do("WAITAOF", "1", "0", "10000")
        return _log_bytes(own_server) - before

    written(10)
    base = written(1)
    hundred, two_hundred = written(100) - base, written(200) - base
    assert hundred > 100 * 100  # something was counted
    assert two_hundred < hundred * 2.2


def _log_bytes(server: Server) -> int:
    return sum(file.stat().st_size for file in (server.folder / "appendonlydir").iterdir())
