"""Who a supervisor says it is: its record through a life, and a life without one (ledger G1 to G3)."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from hosts import World, until
from server_log import ServerLog

from plaita.policy import affinity
from plaita.policy.affinity import Handover, Target, Verdict
from plaita.store import registry
from plaita.supervisor.identity import registry_status
from plaita.testing.server import Server

PATIENT = {"lease_ttl_seconds": 600, "claim_min_idle_ms": 600_000, "preload": "trouble"}


@pytest.fixture
def server_log(plaita_server_process: Server) -> Iterator[ServerLog]:
    made = ServerLog(plaita_server_process)
    yield made
    made.close()


def record(world: World, instance: str = "one") -> dict[str, Any]:
    found = world.do(registry.get(world.keys, instance))
    return {} if found is None else json.loads(found.record)


def written(log: ServerLog, world: World, instance: str = "one") -> list[str]:
    """Every status that was written to the record, in order, each once in a row."""
    statuses: list[str] = []
    for line in log.of("SET", world.keys.instance(instance)):
        status = line.partition('\\"status\\":\\"')[2].partition("\\")[0]
        if status not in statuses[-1:]:
            statuses.append(status)
    return statuses


def test_G1_G2_the_record_through_a_life(world: World, server_log: ServerLog, plaita_server_process: Server) -> None:
    key = world.keys.instance("one")
    assert key == f"{world.keys.prefix}:registry:flow_worker:one"
    supervisor = world.serving(**PATIENT)
    found = until(lambda: record(world) if record(world).get("status") == "running" else None, "running")
    assert 0 < plaita_server_process.do("PTTL", key) <= 30_000
    assert found["generations"] == found["capacity"]["generations"] == supervisor.status()["generations"]
    assert (found["paused"], found["shut"], found["pid"]) == (False, [], supervisor.pid)
    assert found["capacity"]["executors"] == 2
    assert found["capacity"]["disk"]["open"] is True
    assert found["capacity"]["at"]
    supervisor.ask("pause")
    until(lambda: record(world)["paused"], "a pause is written at once")
    assert (record(world)["status"], record(world)["shut"]) == ("running", ["pause"])
    supervisor.ask("resume")
    enough = world.folder / "enough"
    world.chain("f", {"type": "t_line", "id": "a", "file": str(world.folder / "lines"), "until": str(enough)})
    world.start("f")
    supervisor.busy("a")
    assert supervisor.stop_within(enough) == 0
    assert record(world)["status"] == "stopped"
    assert 0 < plaita_server_process.do("PTTL", key) <= 5_000
    assert written(server_log, world) == ["starting", "running", "draining", "stopping", "stopped"]
    assert world.do(registry.get(world.keys, "one")) is not None  # the mark; it goes by itself


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        (
            {"status": "running", "capacity": {"free": 0, "busy": 8, "at": "2000-01-01T00:00:00.000Z"}},
            Verdict.HAND_OVER,
        ),
        ({"status": "running"}, Verdict.HAND_OVER),  # no snapshot at all
        ({"status": "running", "capacity": "what?"}, Verdict.HAND_OVER),
        *[
            ({"status": status, "capacity": {"free": 99}}, Verdict.BROADCAST)
            for status in ("starting", "draining", "stopping", "stopped", "lurking", "", None, 7)
        ],
        ({"capacity": {"free": 99}}, Verdict.BROADCAST),
        ([], Verdict.BROADCAST),
    ],
)
def test_G1_only_running_gets_work_whatever_its_capacity_says(found: Any, verdict: Verdict) -> None:
    status = registry_status(json.dumps(found).encode())
    ruling = affinity.judge(
        ours=False, target=Target(True, status), instance_id="two", handover=Handover(), now_ms=9, patience_ms=60_000
    )
    assert ruling.verdict is verdict


def test_G3_without_an_entry_it_works_and_is_not_ready_until_it_has_one(
    world: World, plaita_server_process: Server
) -> None:
    """Something else stands at its key. A drain of this state finishes its step too."""
    key = world.keys.instance("one")
    plaita_server_process.do("LPUSH", key, "not a record")
    lines = world.folder / "lines"
    world.chain("f", {"type": "t_line", "id": "a", "file": str(lines)})
    one = world.supervisor(**PATIENT)
    assert world.wait(world.start("f"))["status"] == "completed"
    status = one.status()
    assert (status["status"], status["registry_registered"], status["verdict"]) == ("starting", False, "degraded")
    assert "event=registry.register_failed" in one.text()
    assert " ERROR " in next(line for line in one.text().splitlines() if "registry.register_failed" in line)
    plaita_server_process.do("DEL", key)
    status = one.wait_status(lambda s: s["status"] == "running", "running")
    assert status["registry_registered"] is True
    assert record(world)["status"] == "running"
    assert one.stop() == 0


def test_G3_R6_a_stop_without_an_entry_finishes_the_step_and_hands_on(
    world: World, plaita_server_process: Server
) -> None:
    plaita_server_process.do("LPUSH", world.keys.instance("one"), "not a record")
    lines, enough = world.folder / "lines", world.folder / "enough"
    step = {"type": "t_line", "file": str(lines)}
    world.chain("f", {**step, "id": "a", "until": str(enough)}, {**step, "id": "b"})
    one = world.supervisor(**PATIENT)
    execution = world.start("f")
    one.busy("a")
    assert one.stop_within(enough) == 0
    assert plaita_server_process.do("TYPE", world.keys.instance("one")) == b"list"  # not ours: left alone
    world.serving(instance="two", **PATIENT)
    assert world.wait(execution)["status"] == "completed"
    assert [line.split()[1:3] for line in lines.read_text().splitlines()] == [["a", "1"], ["b", "1"]]


def test_G3_redis_away_at_the_start_is_an_error_and_registers_when_it_comes(
    own_server: Server, own_world: World
) -> None:
    own_server.kill()
    one = own_world.supervisor()
    one.wait_status(lambda s: s["redis"]["error"] and "registry.register_failed" in one.text(), "the error")
    status = one.status()
    assert (status["status"], status["registry_registered"], status["serving"]) == ("starting", False, False)
    [row] = [row for row in one.ask("explain")["gates"] if row["gate"] == "redis"]
    assert row["open"] is False
    assert "--redis-url" in row["advice"]
    for command, word in (("status", "NOT taking work"), ("explain", "redis")):
        done = subprocess.run(
            [sys.executable, "-m", "plaita.cli.supervisor", command, "--socket", one.socket],
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert word in done.stdout
        assert done.returncode == 1 or command == "explain"
    own_server.start()
    one.wait_status(lambda s: s["status"] == "running" and s["registry_registered"], "registered")
    own_world.chain("f", {"type": "mock", "id": "a", "value": 1})
    assert own_world.run("f")["status"] == "completed"


def test_G1_C2_the_cluster_as_its_supervisors_said(world: World, plaita_server_process: Server) -> None:
    one = world.serving(**PATIENT)
    two = world.serving(instance="two", **PATIENT, max_deliveries=9, executors=1)
    found = until(lambda: world.client.instances() if world.client.instances()["alive"] == 2 else None, "two")
    first, second = found["instances"]
    assert (first["pid"], second["pid"]) == (one.pid, two.pid)
    assert first["generations"] == one.status()["generations"]
    assert [mix["name"] for mix in found["mixed"]] == ["config_generation", "budget_generation"]
    config = world.client.cluster_config()
    assert {name["name"] for name in config["differences"]} == {"executors", "max_deliveries"}
    assert plaita_server_process.password not in json.dumps([found, config])
    two.kill()
    plaita_server_process.do("DEL", world.keys.instance("two"))  # as after its time to live
    assert one.stop() == 0
    states = {row["instance_id"]: row["state"] for row in world.client.instances()["instances"]}
    assert states == {"one": "stopped", "two": "dead"}


def test_G3_DECISIONS_1_what_an_earlier_life_left_is_taken_over_only_with_an_entry(
    world: World, plaita_server_process: Server
) -> None:
    """Until the registry says that the name is ours, what is pending for it may be another's, who lives."""
    lines, enough = world.folder / "lines", world.folder / "enough"
    world.chain("f", {"type": "t_line", "id": "a", "file": str(lines), "until": str(enough)})
    world.chain("short", {"type": "mock", "id": "a", "value": 1})
    first = world.serving(**PATIENT)
    left = world.start("f")
    first.busy("a")
    first.kill()
    enough.touch()
    key = world.keys.instance("one")
    plaita_server_process.do("DEL", key)
    plaita_server_process.do("LPUSH", key, "not a record")
    second = world.supervisor(**PATIENT)
    for _ in range(3):
        assert world.wait(world.start("short"))["status"] == "completed"
    assert world.get(left)["status"] == "running"
    assert len(lines.read_text().splitlines()) == 1
    plaita_server_process.do("DEL", key)
    assert world.wait(left)["status"] == "completed"
    assert second.status()["registry_registered"] is True
