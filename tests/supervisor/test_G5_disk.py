"""Below its line a host takes nothing, and the server's own command log says so; another takes it; back by itself."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hosts import SupervisorProcess, World, until
from server_log import ServerLog
from small_disk import SmallDisk

from plaita.store.call import script
from plaita.testing.proxy import Proxy
from plaita.testing.server import Server

MIB = 1024 * 1024
LINE_GIB = 32 / 1024
PATIENT = {"lease_ttl_seconds": 600, "claim_min_idle_ms": 600_000, "preload": "trouble"}
GUARD = {"min_free_disk_gib": LINE_GIB, "disk_guard_poll_seconds": 0.2}


@pytest.fixture
def disk(world: World) -> Iterator[SmallDisk]:
    made = SmallDisk(world.folder / "disk", "size=64m,nr_inodes=1000")
    yield made
    made.close()


@pytest.fixture
def server_log(plaita_server_process: Server) -> Iterator[ServerLog]:
    made = ServerLog(plaita_server_process)
    yield made
    made.close()


def guarded(world: World, disk: SmallDisk, **named: object) -> SupervisorProcess:
    return world.supervisor(through=disk.through, disk_guard_path=disk.path, **GUARD, **PATIENT, **named)


def wait_disk(supervisor: SupervisorProcess, is_open: bool) -> dict[str, object]:
    found: dict[str, object] = supervisor.wait_status(lambda s: s["disk"]["open"] is is_open, f"disk open {is_open}")[
        "disk"
    ]
    return found


def asked_for(world: World, log: ServerLog, consumer: str) -> list[str]:
    """Reads and claims of carriers under this name. Events are matched all the same: that takes no carrier."""
    found = [*log.of("EVALSHA", script("take").sha, consumer)]
    for stream in (world.keys.queue, world.keys.wake):
        found += [*log.of("XREADGROUP", consumer, stream), *log.of("XCLAIM", consumer, stream)]
    return found


def test_G5_below_the_line_nothing_is_read_or_claimed_and_it_comes_back_by_itself(
    world: World, disk: SmallDisk, server_log: ServerLog
) -> None:
    lines, enough = world.folder / "lines", world.folder / "enough"
    step = {"type": "t_line", "file": str(lines)}
    world.chain("f", {**step, "id": "a"}, {**step, "id": "b"})
    world.chain("long", {**step, "id": "a", "until": str(enough)}, {**step, "id": "b"})
    one = guarded(world, disk).wait_serving()
    running = world.start("long")
    one.busy("a")
    disk.fill(left=31 * MIB)
    shut = wait_disk(one, False)
    assert (shut["path"], shut["free_gib"]) == (str(disk.path), round(31 / 1024, 3))
    assert one.status()["shut"] == ["disk"]
    [row] = [row for row in one.ask("explain")["gates"] if row["gate"] == "disk"]
    assert row["open"] is False
    assert "GiB free" in row["value"]
    assert "opens again at" in row["limit"]
    assert "make room" in row["advice"]
    enough.touch()
    assert world.wait(running)["status"] == "completed"  # work that was taken goes on, nobody else is there
    server_log.lines.clear()
    executions = [world.start("f") for _ in range(5)]
    two = world.serving(instance="two", **PATIENT)
    assert {world.wait(execution)["status"] for execution in executions} == {"completed"}
    # Two more whole reads of the other, a second each by the server's time: one would have asked by now.
    reads = len(server_log.of("XREADGROUP", "two", world.keys.queue))
    until(lambda: len(server_log.of("XREADGROUP", "two", world.keys.queue)) >= reads + 3, "reads of the other")
    assert asked_for(world, server_log, "two")
    assert asked_for(world, server_log, "one") == []
    # Above the line, not yet by the margin: still shut.
    disk.fill(left=33 * MIB)
    one.wait_status(lambda s: s["disk"]["free_gib"] == round(33 / 1024, 3), "a look at 33 MiB")
    assert one.status()["disk"]["open"] is False
    disk.free()
    wait_disk(one, True)
    assert two.stop() == 0
    assert world.wait(world.start("f"))["status"] == "completed"
    assert asked_for(world, server_log, "one")
    assert one.text().count("event=disk.gate") == 2
    assert one.stop() == 0


def test_G5_below_the_line_from_the_beginning_and_a_stop_in_between(
    world: World, disk: SmallDisk, server_log: ServerLog
) -> None:
    """Out of inodes this time. Running all the same: it is a known reason (DECISIONS 36), and SIGTERM ends it."""
    for number in range(995):
        (disk.outside / str(number)).touch()
    one = guarded(world, disk)
    status = one.wait_status(lambda s: s["status"] == "running" and s["shut"] == ["disk"], "running, its executors up")
    assert (status["serving"], status["registry_registered"]) == (False, True)
    assert status["disk"]["free_inodes"] < 10
    world.chain("f", {"type": "mock", "id": "a", "value": 1})
    execution = world.start("f")
    two = world.serving(instance="two", **PATIENT)
    assert world.wait(execution)["status"] == "completed"
    assert asked_for(world, server_log, "one") == []
    assert one.stop() == 0
    assert two.stop() == 0


def test_G5_R1_what_a_read_brings_after_the_line_was_crossed_is_given_back(
    world: World, disk: SmallDisk, plaita_server_process: Server
) -> None:
    """The server delivers to a read that was under way; the answer comes when the gate is shut. With a lease and a
    minimal idle time of 10 minutes, another host has it only because it was given back."""
    lines = world.folder / "lines"
    world.chain("f", {"type": "t_line", "id": "a", "file": str(lines)})
    proxy = Proxy(plaita_server_process.socket_path)
    try:
        one = guarded(world, disk, redis_url=proxy.url(plaita_server_process.password)).wait_serving()
        until(lambda: _waits_for_carriers(plaita_server_process), "a read")
        proxy.set_mode("freeze")
        execution = world.start("f")
        until(lambda: sum(stream.pending for stream in world.stats().streams) == 1, "delivered, the answer on its way")
        disk.fill(left=1 * MIB)
        wait_disk(one, False)
        proxy.set_mode("forward")
        world.serving(instance="two", **PATIENT)
        assert world.wait(execution)["status"] == "completed"
        [line] = lines.read_text().splitlines()
        assert line.split()[2] == "1"  # the first attempt
        assert world.row(execution).control["last_holder"].startswith("two/")
        assert one.stop() == 0
    finally:
        proxy.close()


def _waits_for_carriers(server: Server) -> bool:
    clients = server.do("CLIENT", "LIST", "TYPE", "NORMAL").decode().splitlines()
    return any("name=plaita-reader" in one and "cmd=xreadgroup" in one and "flags=b" in one for one in clients)
