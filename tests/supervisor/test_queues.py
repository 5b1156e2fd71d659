"""Executions that wait for queues, on real supervisors, with a second server for the queues (DECISIONS 41)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hosts import World, until

from plaita import jsontext
from plaita.testing.server import Server


def _reached(status: dict[str, Any]) -> list[int]:
    """How many waits each server has that is reached."""
    [service] = [one for one in status["services"] if one["service"] == "redis_queue"]
    return [target["waits"] for target in service["targets"] if target["away_since"] is None]


def test_E1_a_queue_on_another_server_wakes_executions_and_its_password_is_nowhere(
    world: World, tmp_path: Path
) -> None:
    target = Server(tmp_path / "target")
    try:
        secret = "S3cr3t-marker"
        target.do("ACL", "SETUSER", "default", f">{secret}")
        port = target.listen()
        world.chain(
            "f",
            {"type": "redis_queue", "id": "w", "redisHost": "127.0.0.1", "redisPort": port, "queueName": "jobs"}
            | {"redisPassword": secret},
        )
        allowed = {"PLAITA_REDIS_NODE_TARGETS": f"127.0.0.1:{port}", "PLAITA_LOG_LEVEL": "debug"}
        first = world.serving(environment=allowed, lease_ttl_seconds=600, claim_min_idle_ms=600_000)
        executions = [world.start("f") for _ in range(2)]
        until(lambda: all(world.get(each)["status"] == "suspended" for each in executions), "the waits")
        first.wait_status(lambda status: _reached(status) == [2], "the server of the queue")
        shown = str([world.get(each) for each in executions]) + str([first.ask(word) for word in ("status", "explain")])
        first.kill()
        target.do("RPUSH", "jobs", '{"n":1}', '{"n":2}', '{"n":3}')
        second = world.serving(instance="two", environment=allowed)
        rows = [world.wait(each) for each in executions]
        assert {row["status"] for row in rows} == {"completed"}
        assert sorted(row["output"]["w"]["event_data"]["message"]["n"] for row in rows) == [1, 2]
        until(lambda: not target.do("KEYS", "jobs:processing:????????????????????????????????????????"), "tidiness")
        assert [jsontext.loads(each) for each in target.do("LRANGE", "jobs", 0, -1)] == [{"n": 3}]
        assert secret not in shown + str(rows) + first.text() + second.text()
        assert not any(world.row(each).control.get("wait_config") for each in executions)
    finally:
        target.close()


def test_decision_41_a_server_that_is_not_listed_fails_the_node_with_the_reason(world: World) -> None:
    world.chain("f", {"type": "redis_queue", "id": "w", "queueName": "jobs"})
    supervisor = world.serving(max_deliveries=1)
    row = world.run("f")
    assert row["status"] == "error"
    assert "localhost:6379 is not in PLAITA_REDIS_NODE_TARGETS; it is empty" in row["error"]["message"]
    services = {one["service"]: one for one in supervisor.ask("status")["services"]}
    assert set(services) == {"events", "http_callback", "redis_queue", "schedules"}
    assert {(one["state"], one["failures"]) for one in services.values()} == {("running", 0)}
    assert services["redis_queue"]["targets"] == []
    gates = {gate["gate"]: gate for gate in supervisor.ask("explain")["gates"]}
    assert gates["services"]["value"] == "events, http_callback, redis_queue, schedules"
    none = world.serving("--no-services", instance="two")
    assert none.ask("status")["services"] == []
    assert {gate["gate"]: gate["value"] for gate in none.ask("explain")["gates"]}["services"] == "none on this host"
