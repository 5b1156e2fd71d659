"""The consumer group over the lives of many supervisors: names do not pile up, the pending of the dead comes back."""

from __future__ import annotations

import pytest
from fault_load import STEPS, Load, judge
from hosts import World, until

from plaita.store import carriers
from plaita.store.carriers import Take
from plaita.testing.server import Server, raw


def _consumers(world: World) -> list[str]:
    streams = (world.keys.queue, world.keys.wake)
    return [row[1].decode() for name in streams for row in world.do(raw("XINFO", "CONSUMERS", name, world.keys.group))]


def test_who_stops_cleanly_takes_its_name_along(world: World) -> None:
    """KNOWN-TROUBLE 29."""
    world.chain("f", {"type": "mock", "id": "a", "value": 1})
    for life in range(2):
        supervisor = world.serving(instance=f"life-{life}", executors=1)
        assert world.run("f")["status"] == "completed"
        assert supervisor.stop() == 0
    assert _consumers(world) == []


def _abandoned(world: World, load: Load, count: int) -> None:
    """Carriers that were read by one that died before it began them."""
    load.start(count)
    taken = world.do(carriers.take(world.keys, Take("dead", count, 60_000, "dead/0")))
    assert len(taken.entries) == count


def test_the_pending_entries_of_a_dead_consumer(world: World, plaita_server_process: Server) -> None:
    """More than a page, the first of them without body: all are recovered, page after page (KNOWN-TROUBLE 25, 26)."""
    load = Load(world, plaita_server_process)
    _abandoned(world, load, 90)
    first = world.do(raw("XRANGE", world.keys.queue, "-", "+", "COUNT", 10))
    for execution, entry in zip(load.executions[:10], first, strict=True):
        world.do(raw("XDEL", world.keys.queue, entry[0]))
        load.executions.remove(execution)
    supervisor = world.serving(executors=2, preload="trouble", claim_min_idle_ms=100)
    load.wait()
    load.clean()
    status = judge(supervisor, supervisor.pid, lines=150)
    assert status["counters"]["ghosts_acked"] == 10
    assert status["counters"]["reclaimed"] >= 80


@pytest.mark.long
def test_a_thousand_pending_entries_of_a_dead_consumer(world: World, plaita_server_process: Server) -> None:
    load = Load(world, plaita_server_process)
    _abandoned(world, load, 1000)
    supervisor = world.serving(executors=4, preload="trouble", claim_min_idle_ms=100)
    load.wait(120)
    load.clean()
    status = judge(supervisor, supervisor.pid, lines=1200)
    assert status["counters"]["reclaimed"] >= 1000


@pytest.mark.parametrize("count", [20, pytest.param(200, marks=pytest.mark.long)])
def test_the_server_is_killed_in_the_middle_of_a_recovery(own_server: Server, own_world: World, count: int) -> None:
    """The next life of a killed supervisor takes over what that held; a hiccup in this leaves nothing behind, although
    leases and min-idle are 10 minutes (KNOWN-TROUBLE 28)."""
    own_server.do("CONFIG", "SET", "appendfsync", "always")
    flags = {"preload": "trouble", "lease_ttl_seconds": 600, "claim_min_idle_ms": 600_000, "executors": 4}
    first = own_world.serving(**flags)
    load = Load(own_world, own_server, seconds=0.05)
    load.start(count)
    load.wait_lines(10)
    first.kill()
    seen = len(own_world.do(raw("CLIENT", "LIST")).splitlines())
    second = own_world.supervisor(**flags)
    until(lambda: len(own_world.do(raw("CLIENT", "LIST")).splitlines()) > seen, "the next life, connected")
    own_server.kill()
    own_server.start()
    for execution in load.executions:
        assert own_world.wait(execution)["status"] == "completed"
    lines = load.lines()
    assert set(lines) == {(execution, node) for execution in load.executions for node in STEPS}
    again = {step: times for step, times in lines.items() if times > 1}
    assert len(again) <= 4, f"more than what was in flight: {again}"
    assert set(again.values()) <= {2}
    load.clean()
    judge(second, second.pid, lines=60 + count)
