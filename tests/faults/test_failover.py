"""A replica takes over and lacks what the old primary wrote last (DECISIONS 11): what is lost there is not done twice
at once, and what was not lost goes on undisturbed."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hosts import SupervisorProcess, World, alive, until

from plaita.store.call import Value
from plaita.testing.proxy import Proxy
from plaita.testing.server import Server, raw


@dataclass
class Pair:
    """Two servers behind one name. ``world`` sees what the name leads to."""

    primary: Server
    replica: Server
    name: Proxy
    world: World

    def in_step(self) -> None:
        """Everything written so far is on the replica."""
        assert until(lambda: self.primary.do("WAIT", 1, 1000), "the replica") == 1

    def move(self) -> None:
        """The name leads to the replica from now on; connections to the old primary break."""
        self.name.set_target(self.replica.socket_path)
        self.name.set_mode("cut")
        self.name.set_mode("forward")
        for runner in (self.world.runner, self.world.client._runner):
            until(lambda runner=runner: isinstance(runner.run(raw("PING")), Value), "a connection of the test's own")


@pytest.fixture
def pair(own_server: Server) -> Iterator[Pair]:
    with tempfile.TemporaryDirectory(prefix="plaita-") as folder:
        replica = Server.twin(own_server, Path(folder) / "twin")
        replica.follow(own_server)
        name = Proxy(own_server.socket_path)
        world = World(name.url(own_server.password), Path(folder))
        yield Pair(own_server, replica, name, world)
        world.close()
        name.close()
        replica.close()


def serve(world: World, **named: Any) -> SupervisorProcess:
    flags = {"preload": "trouble", "lease_ttl_seconds": 600, "claim_min_idle_ms": 600_000, "drain_timeout": 0} | named
    return world.serving(**flags)


def chain(world: World, name: str) -> Path:
    file = world.folder / name
    world.chain(name, {"type": "t_line", "id": name, "file": str(file), "seconds": 600})
    return file


def test_DECISIONS_11_what_the_new_primary_does_not_know_is_dropped_and_the_rest_goes_on(pair: Pair) -> None:
    world = pair.world
    kept_file, lost_file = chain(world, "kept"), chain(world, "lost")
    one = serve(world, executors=2)
    world.start("kept")
    kept_pid = one.busy("kept")["pid"]
    one.ask("pause")
    lost = world.start("lost")
    pair.in_step()
    pair.replica.promote()  # from here on nothing reaches it: its begin of `lost` is a lost write
    one.ask("resume")
    lost_pid = one.busy("lost")["pid"]
    assert world.row(lost).status == "running"
    pair.move()
    status = one.wait_status(lambda s: s["counters"]["failover_dropped"] == 1, "the check")
    assert status["counters"]["failovers"] == 1
    until(lambda: not alive(lost_pid), "the end of the step that was lost")
    # Its carrier is unread on the new primary, and taken from there once the gate is open.
    until(lambda: len(lost_file.read_text().splitlines()) == 2, "the lost step begun anew")
    row = world.row(lost)
    assert (row.status, row.control["attempts"]) == ("running", "1")
    assert one.busy("kept")["pid"] == kept_pid
    assert len(kept_file.read_text().splitlines()) == 1
    assert one.status()["counters"]["refused_writes"] == 0  # dropped, not found out by a refusal
    assert one.status()["counters"]["dead_lettered"] == 0


def test_DECISIONS_11_the_gate_is_open_again_and_says_which_server_it_knows(pair: Pair) -> None:
    world = pair.world
    world.chain("quick", {"type": "t_line", "id": "quick", "file": str(world.folder / "quick")})
    one = serve(world)
    assert world.run("quick")["status"] == "completed"
    pair.in_step()
    pair.replica.promote()
    pair.move()
    one.wait_status(lambda s: s["counters"]["failovers"] == 1 and s["serving"], "serving again")
    until(lambda: world.run("quick")["status"] == "completed", "work on the new primary")
    [gate] = [row for row in one.ask("explain")["gates"] if row["gate"] == "failover"]
    replication = pair.replica.do("INFO", "replication").decode()
    assert gate["value"].removeprefix("replication id ") in replication
    assert one.status()["counters"]["failover_dropped"] == 0


def test_DECISIONS_11_a_new_connection_to_the_same_server_is_no_failover(pair: Pair) -> None:
    one = serve(pair.world)
    kept_file = chain(pair.world, "kept")
    pair.world.start("kept")
    one.busy("kept")
    for _ in range(5):
        pair.name.set_mode("cut")
        pair.name.set_mode("forward")
    status = one.wait_status(lambda s: s["serving"], "serving again")
    assert (status["counters"]["failovers"], status["counters"]["leases_lost"]) == (0, 0)
    assert len(kept_file.read_text().splitlines()) == 1


def test_DECISIONS_11_a_plain_restart_is_said_quietly_and_all_that_is_held_is_checked_all_the_same(
    own_server: Server, own_world: World
) -> None:
    world = own_world
    one = serve(world)
    file = chain(world, "kept")
    world.start("kept")
    pid = one.busy("kept")["pid"]
    until(file.exists, "the step")
    own_server.kill()
    own_server.start()
    until(lambda: "event=redis.restarted" in one.text(), "the word of the restart")
    [line] = [line for line in one.text().splitlines() if "event=redis.restarted" in line]
    assert " INFO " in line
    assert "held_and_known=1" in line
    assert "failover.seen" not in one.text()
    status = one.wait_status(lambda s: s["serving"], "serving again")
    assert (status["counters"]["failovers"], status["counters"]["failover_dropped"]) == (0, 0)
    assert one.busy("kept")["pid"] == pid


def test_DECISIONS_11_a_restart_that_lost_writes_is_a_failover(own_server: Server, own_world: World) -> None:
    """Started again without its data: what is held is not known any more, and dropped."""
    world = own_world
    one = serve(world)
    file = chain(world, "kept")
    world.start("kept")
    pid = one.busy("kept")["pid"]
    until(file.exists, "the step")
    own_server.kill()
    shutil.rmtree(own_server.folder / "appendonlydir")
    own_server.start()
    status = one.wait_status(lambda s: s["counters"]["failover_dropped"] == 1, "the check")
    assert status["counters"]["failovers"] == 1
    until(lambda: not alive(pid), "the end of the step that was lost")
    assert "event=redis.restarted" not in one.text()
    [line] = [line for line in one.text().splitlines() if "event=failover.seen" in line]
    assert " ERROR " in line


def test_DECISIONS_11_a_token_that_differs_on_the_same_server_is_found_by_the_renewal(
    own_server: Server, own_world: World
) -> None:
    world = own_world
    one = serve(world, lease_ttl_seconds=5)
    file = chain(world, "robbed")
    robbed = world.start("robbed")
    pid = one.busy("robbed")["pid"]
    until(file.exists, "the step")
    own_server.do("SET", world.keys.fence(robbed), "99:another")
    status = one.wait_status(lambda s: s["counters"]["failovers"] == 1, "the check")
    assert status["counters"]["leases_lost"] == 1
    until(lambda: not alive(pid) or len(file.read_text().splitlines()) == 2, "the end of its step")
