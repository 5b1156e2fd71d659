"""One answer for status, explain, systemd's STATUS and the metrics (CONTRACT "explain", DECISIONS 24 and 36)."""

from __future__ import annotations

import os
import signal
import socket
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_systemd import FakeSystemd
from hosts import SupervisorProcess, World, until

from plaita.cli.control_client import ask
from plaita.testing.server import Server


@pytest.fixture
def systemd() -> Iterator[FakeSystemd]:
    made = FakeSystemd(watchdog_s=1.0)
    yield made
    made.close()


def gauge(port: int, gate: str) -> float:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
        lines = answer.read().decode().splitlines()
    [found] = [line for line in lines if line.startswith("plaita_worker_gate_open") and f'gate="{gate}"' in line]
    return float(found.rpartition(" ")[2])


def row(supervisor: SupervisorProcess, gate: str) -> dict[str, Any]:
    [found] = [one for one in supervisor.ask("explain")["gates"] if one["gate"] == gate]
    return found


def test_DECISIONS_36_what_is_known_is_the_same_in_every_place_and_keeps_the_ping(
    own_world: World, own_server: Server, systemd: FakeSystemd
) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = {**systemd.environment, "PLAITA_METRICS_HOST": "127.0.0.1"}
    supervisor = own_world.serving(metrics_port=port, environment=environment, executors=1)
    systemd.wait("STATUS", "serving; 0 of 1 executors at work")
    assert until(lambda: gauge(port, "pause") == 1, "the gauge")

    def same_everywhere(gate: str, answer: str) -> None:
        began = time.monotonic()
        systemd.wait("STATUS", answer, since=before)
        status, explained = supervisor.ask("status"), supervisor.ask("explain")
        assert (status["verdict"], status["serving"], status["shut"]) == ("not serving", False, [gate])
        assert status["answer"].startswith(answer)
        assert explained["answer"].partition(" since ")[0] == status["answer"].partition(" since ")[0]
        assert row(supervisor, gate)["open"] is False
        until(lambda: gauge(port, gate) == 0, "the gauge")
        systemd.wait("WATCHDOG", since=began, times=4)

    before = time.monotonic()
    supervisor.ask("pause")
    own_world.chain("f", {"type": "mock", "id": "a", "value": 1})
    own_world.start("f")
    same_everywhere("pause", "NOT taking work: it is paused since ")
    assert until(lambda: row(supervisor, "pause")["waiting"] == 1, "the carrier is counted")
    assert supervisor.ask("status")["answer"].endswith("1 carrier waits. `plaita-supervisor resume` ends it")
    supervisor.ask("resume")
    systemd.wait("STATUS", "serving", since=before)

    before = time.monotonic()
    own_server.kill()
    same_everywhere("redis", "NOT taking work: Redis cannot be reached (")
    assert row(supervisor, "redis")["waiting"] is None
    own_server.start()
    systemd.wait("STATUS", "serving", since=time.monotonic())
    assert supervisor.wait_serving().stop() == 0


def test_a_full_host_serves_and_explain_says_since_when_and_how_many_wait(world: World) -> None:
    opened = world.folder / "open"
    world.chain("f", {"type": "t_report", "id": "n", "file": str(opened)})
    supervisor = world.serving(preload="reporting", executors=1)
    ids = [world.start("f") for _ in range(3)]
    supervisor.busy("n")
    full = until(lambda: found if not (found := row(supervisor, "executors"))["open"] else None, "full")
    assert (full["value"], full["limit"], full["waiting"]) == ("0 free of 1", "1", 2)
    assert full["since"]
    status = supervisor.ask("status")
    assert (status["verdict"], status["serving"], status["shut"]) == ("serving", True, ["executors"])
    assert "2 carriers wait" in status["answer"]
    [executor] = status["executors"]
    assert executor["since"]
    assert (executor["usual_s"], executor["timeout_s"], executor["stuck"]) == (None, None, False)
    time.sleep(1.1)  # a look or two later it is the same since
    assert row(supervisor, "executors")["since"] == full["since"]
    opened.touch()
    assert [world.wait(one)["status"] for one in ids] == ["completed"] * 3
    until(lambda: row(supervisor, "executors")["open"], "free again")


def test_61_the_socket_of_a_real_supervisor_is_made_again(world: World) -> None:
    supervisor = world.serving()
    os.unlink(supervisor.socket)
    until(lambda: Path(supervisor.socket).exists() and supervisor.status(), "it listens again")
    assert "control.socket_made_again" in supervisor.text()
    assert ask(supervisor.socket, "explain")["serving"]
    supervisor.signal(signal.SIGTERM)
    assert supervisor.wait_exit() == 0
    assert not Path(supervisor.socket).exists()
