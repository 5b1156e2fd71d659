"""What systemd hears: READY, RELOADING, STOPPING, time enough, one line, and a ping from a loop that turns."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_systemd import FakeSystemd
from hosts import NODES, World, until

from plaita.policy.lifecycle import State, Wish
from plaita.policy.service_manager import Facts
from plaita.supervisor.service_manager import ServiceManager
from plaita.testing.proxy import Proxy
from plaita.testing.server import Server
from plaita.unix.notify import Notifier

PATIENT = {"lease_ttl_seconds": 600, "claim_min_idle_ms": 600_000, "preload": "trouble"}
WAITS = "import os, time\nwhile not os.path.exists({go!r}):\n    time.sleep(0.01)\n"


@pytest.fixture
def systemd() -> Iterator[FakeSystemd]:
    made = FakeSystemd(watchdog_s=1.0)
    yield made
    made.close()


def _slow_plug_in(world: World, go: Path) -> dict[str, str]:
    (world.folder / "slow.py").write_text(WAITS.format(go=str(go)))
    return {"PYTHONPATH": f"{world.folder}:{NODES}"}


def test_a_start_that_waits_asks_for_time_and_says_for_what(
    world: World, proxy: Proxy, plaita_server_process: Server, systemd: FakeSystemd
) -> None:
    go = world.folder / "go"
    environment = {**_slow_plug_in(world, go), **systemd.environment}
    proxy.set_mode("cut")
    url = proxy.url(plaita_server_process.password)
    supervisor = world.supervisor(preload="slow", redis_url=url, environment=environment)
    systemd.wait("STATUS", "starting: waits for Redis")
    systemd.wait("STATUS", "the template, which imports slow")
    systemd.wait("EXTEND_TIMEOUT_USEC", times=3)
    assert all(int(value) >= 30_000_000 for value in systemd.values("EXTEND_TIMEOUT_USEC"))
    systemd.wait("WATCHDOG", times=3)
    proxy.set_mode("forward")
    go.touch()
    systemd.wait("READY")
    assert systemd.values("READY") == ["1"]
    assert supervisor.wait_serving().stop() == 0
    assert systemd.values("STOPPING")


def test_a_drain_by_command_is_no_stopping_and_a_stop_asks_for_what_it_may_take(
    world: World, systemd: FakeSystemd
) -> None:
    world.chain("f", {"type": "t_line", "id": "a", "file": str(world.folder / "lines"), "seconds": 1000})
    flags = {**PATIENT, "executors": 1, "environment": systemd.environment, "drain_timeout": 300, "kill_grace": 0.2}
    supervisor = world.serving(**flags)
    execution = world.start("f")
    supervisor.busy("a")
    supervisor.ask("drain")
    began = time.monotonic()
    systemd.wait("STATUS", f"draining: 1 step left, oldest {execution} at a since")
    systemd.wait("EXTEND_TIMEOUT_USEC", since=began, times=2)
    assert not systemd.values("STOPPING")
    supervisor.ask("undrain")
    supervisor.wait_serving()
    told = time.monotonic()
    supervisor.signal(signal.SIGTERM)
    systemd.wait("STOPPING")
    systemd.wait("EXTEND_TIMEOUT_USEC", since=told, times=4)
    for word in systemd.words:
        if word.name == "EXTEND_TIMEOUT_USEC" and word.at >= told:
            assert int(word.value) / 1e6 >= 300 + 0.2 - (word.at - told)
    systemd.wait("WATCHDOG", since=told, times=3)
    supervisor.signal(signal.SIGTERM)
    assert supervisor.wait_exit() == 75


def test_a_reload_is_told_from_its_begin_to_its_end_also_when_it_fails(world: World, systemd: FakeSystemd) -> None:
    go = world.folder / "go"
    go.touch()
    environment = {**_slow_plug_in(world, go), **systemd.environment}
    supervisor = world.serving(preload="slow", environment=environment, executors=1)
    go.unlink()
    began = time.clock_gettime(time.CLOCK_MONOTONIC)
    supervisor.signal(signal.SIGHUP)
    systemd.wait("RELOADING")
    [moment] = systemd.values("MONOTONIC_USEC")
    assert began * 1e6 <= int(moment) <= time.clock_gettime(time.CLOCK_MONOTONIC) * 1e6
    systemd.wait("STATUS", "reloading: the new template imports slow")
    systemd.wait("EXTEND_TIMEOUT_USEC", since=began, times=2)
    assert len(systemd.values("READY")) == 1
    go.touch()
    systemd.wait("READY", times=2)
    (world.folder / "slow.py").write_text("def broken(:\n")
    supervisor.signal(signal.SIGHUP)
    systemd.wait("RELOADING", times=2)
    systemd.wait("READY", times=3)
    assert supervisor.stop() == 0


def test_the_ping_goes_on_while_it_is_known_why_no_work_is_taken(
    world: World, proxy: Proxy, plaita_server_process: Server, systemd: FakeSystemd
) -> None:
    """DECISIONS 36: a pause, a drain and a Redis that is away are no hangs."""
    url = proxy.url(plaita_server_process.password)
    supervisor = world.serving(redis_url=url, executors=1, environment=systemd.environment)

    def pings() -> None:
        now = time.monotonic()
        systemd.wait("WATCHDOG", since=now, times=4)

    supervisor.ask("pause")
    pings()
    supervisor.ask("resume")
    supervisor.ask("drain")
    pings()
    supervisor.ask("undrain")
    proxy.set_mode("cut")
    until(lambda: not (supervisor.status() or {"serving": True})["serving"], "Redis missed")
    pings()
    moments = [word.at for word in systemd.words if word.name == "WATCHDOG"]
    assert len(moments) > 12


def test_a_loop_that_does_not_turn_is_silent(systemd: FakeSystemd) -> None:
    """One that is blocked for ten intervals says nothing in between; the next turn speaks again."""
    notifier = Notifier({"NOTIFY_SOCKET": systemd.address, "WATCHDOG_USEC": "90000"})
    manager = ServiceManager(notifier, lambda: Facts(State.RUNNING, Wish.NONE))

    async def hang() -> tuple[int, int]:
        task = asyncio.create_task(manager.run())
        while len(systemd.values("WATCHDOG")) < 3:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        before = len(systemd.values("WATCHDOG"))
        time.sleep(0.9)  # noqa: ASYNC251 - the point
        during = len(systemd.values("WATCHDOG"))
        while len(systemd.values("WATCHDOG")) <= during:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        task.cancel()
        return before, during

    before, during = asyncio.run(hang())
    assert during - before <= 1  # one may have been under way
    notifier.close()
