"""Connections break, hang and lag between supervisor and Redis while it works."""

from __future__ import annotations

import time

import pytest
from fault_load import Load, Serve, bounded, judge
from hosts import World, until

from plaita.testing.proxy import Proxy
from plaita.testing.server import Server


def _reset_for(proxy: Proxy, seconds: float, every_s: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        proxy.reset()
        time.sleep(every_s)


@pytest.mark.parametrize("seconds", [1.0, pytest.param(3.0, marks=pytest.mark.long)])
def test_all_connections_closed_every_50_ms(
    world: World, plaita_server_process: Server, proxy: Proxy, serve: Serve, seconds: float
) -> None:
    supervisor = serve()
    load = Load(world, plaita_server_process, seconds=0.02)
    load.start(20)
    load.wait_lines(3)
    with bounded(plaita_server_process, 1500):
        _reset_for(proxy, seconds, 0.05)
    load.wait()
    load.clean()
    judge(supervisor, supervisor.pid, lines=120)


def test_no_connection_for_a_while_and_status_says_so(
    world: World, plaita_server_process: Server, proxy: Proxy, serve: Serve
) -> None:
    supervisor = serve()
    load = Load(world, plaita_server_process, seconds=0.05)
    load.start(4)
    load.wait_lines(2)
    proxy.set_mode("cut")
    status = supervisor.wait_status(lambda s: not s["redis"]["connected"], "an outage that is seen")
    assert status["serving"] is False
    assert status["redis"]["error"]
    before = proxy.connections
    begun = time.monotonic()
    time.sleep(1.0)
    assert (proxy.connections - before) / (time.monotonic() - begun) < 50, "a hot loop of connecting"
    proxy.set_mode("forward")
    load.wait()
    load.clean()
    judge(supervisor, supervisor.pid)
    assert [supervisor.text().count(f"event={event}") for event in ("redis.lost", "redis.connected")] == [1, 1]


def test_half_open_while_idle(world: World, plaita_server_process: Server, proxy: Proxy, serve: Serve) -> None:
    """Nothing passes and nothing is closed (KNOWN-TROUBLE 10): found out within BLOCK and the response timeout. What
    was delivered into the silence is taken up by its own consumer; min-idle is 10 minutes."""
    supervisor = serve(read_block_ms=500)
    load = Load(world, plaita_server_process)
    proxy.set_mode("freeze")
    load.start(3)
    status = supervisor.wait_status(lambda s: not s["redis"]["connected"], "a half-open connection that is seen")
    assert "no answer within" in status["redis"]["error"] or "no connection within" in status["redis"]["error"]
    proxy.set_mode("forward")
    load.wait()
    load.clean()
    judge(supervisor, supervisor.pid)


@pytest.mark.long
def test_half_open_in_mid_step(world: World, plaita_server_process: Server, proxy: Proxy, serve: Serve) -> None:
    supervisor = serve()
    load = Load(world, plaita_server_process, seconds=0.3)
    load.start(4)
    supervisor.busy("b")
    proxy.set_mode("freeze")
    supervisor.wait_status(lambda s: not s["redis"]["connected"], "a half-open connection that is seen")
    proxy.set_mode("forward")
    load.wait()
    load.clean()
    judge(supervisor, supervisor.pid)


def test_a_slow_way(world: World, plaita_server_process: Server, proxy: Proxy, serve: Serve) -> None:
    """30 ms each way: slower, nothing else."""
    supervisor = serve()
    load = Load(world, plaita_server_process)
    proxy.delay_s = 0.03
    load.start(4)
    load.wait()
    load.clean()
    proxy.delay_s = 0.0
    status = judge(supervisor, supervisor.pid)
    assert status["counters"]["answers_resent"] == 0


@pytest.mark.parametrize("seconds", [3.0, pytest.param(20.0, marks=pytest.mark.long)])
def test_idle_is_silent(
    world: World, plaita_server_process: Server, proxy: Proxy, serve: Serve, seconds: float
) -> None:
    """BLOCK and response timeout do not race (KNOWN-TROUBLE 11): silence in log and network."""
    supervisor = serve(read_block_ms=300)
    load = Load(world, plaita_server_process)
    load.start(1)
    load.wait()
    until(lambda: "execution.finished" in supervisor.text(), "the log of the run")
    said, connections = supervisor.text(), proxy.connections
    with bounded(plaita_server_process, 100):
        time.sleep(seconds)
    assert supervisor.text() == said
    assert proxy.connections == connections
