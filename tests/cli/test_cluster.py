"""``plaita cluster ...``: what hosts said of themselves, and what follows from it (ledger C2, G1)."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from plaita.client import Client
from plaita.runtime_config import SupervisorConfig, effective, generations
from plaita.store import registry
from plaita.store.call import Value
from plaita.store.keys import Keys
from plaita.store.runner_sync import SyncRunner

Run = Callable[..., Any]
Do = Callable[..., Any]

pytestmark = pytest.mark.usefixtures("connected")


@pytest.fixture
def announce(connected: str, keys: Keys, server: Any) -> Callable[..., None]:
    """Write a record as a supervisor does; ``late_s``: so long ago."""

    def write(instance: str, *, late_s: float = 0, record: bytes | None = None, **settings: Any) -> None:
        config = SupervisorConfig(
            queue_name=keys.queue, consumer_group=keys.group, key_prefix=keys.prefix, instance_id=instance, **settings
        )
        ids = generations(config)
        found = {
            "status": "running",
            "paused": False,
            "shut": [],
            "host": f"{instance}.example",
            "pid": 4711,
            "plaita_version": "1.0",
            "uptime_s": 3700.0,
            "capacity": {"executors": 2, "free": 1, "busy": 1, "queue": {"pending": 1}, "disk": None},
            "generations": {
                "config_family": ids.config_family,
                "config_generation": ids.config_generation,
                "budget_generation": ids.budget_generation,
            },
            "config": effective(config),
        }
        with SyncRunner(server.url, name="test") as runner:
            call = registry.register(keys, instance, "i1", record or json.dumps(found).encode(), 30_000)
            assert runner.run(call) == Value(True)
            if late_s:
                runner.do(_raw("ZINCRBY", keys.instances, -late_s * 1000, instance))

    return write


def _raw(*words: Any) -> Any:
    from plaita.testing.server import raw

    return raw(*words)


def said(plaita: Run, *words: str) -> dict[str, Any]:
    done = plaita("cluster", *words, "--json")
    assert done.code == 0, done.err
    found: dict[str, Any] = done.json
    return found


def test_G1_instances_with_their_standing(plaita: Run, redis_do: Do, keys: Keys, announce: Callable[..., None]) -> None:
    announce("a")
    announce("late", late_s=25)
    announce("gone")
    announce("strange", record=b"{")
    redis_do("DEL", keys.instance("gone"))
    announce("left")
    redis_do("DEL", keys.instance("left"), keys.incarnation("left"))
    redis_do("DEL", keys.instance("late"))
    redis_do("LPUSH", keys.instance("late"), "no record")  # something else stands there: it has none
    announce("slow", late_s=25)
    found = said(plaita, "instances")
    standing = {one["instance_id"]: one["state"] for one in found["instances"]}
    assert standing == {"a": "alive", "gone": "dead", "late": "dead", "slow": "stale", "strange": "unreadable"}
    assert (found["total"], found["alive"], found["mixed"]) == (5, 1, [])
    [first] = [one for one in found["instances"] if one["instance_id"] == "a"]
    assert (first["status"], first["busy"], first["executors"], first["pid"]) == ("running", 1, 2, 4711)
    assert 3700 <= first["uptime_s"] < 3800
    assert 0 <= first["heartbeat_age_s"] < 20
    assert redis_do("ZSCORE", keys.instances, "left") is None  # who left in order is forgotten
    [slow] = [one for one in found["instances"] if one["instance_id"] == "slow"]
    assert 25 <= slow["heartbeat_age_s"] < 100


def test_G1_ages_are_by_the_servers_clock(
    plaita: Run, announce: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """KNOWN-TROUBLE 44: the clock of who asks is an hour ahead."""
    announce("a")
    monkeypatch.setattr(time, "time_ns", lambda real=time.time_ns: real() + 3600 * 10**9)
    [one] = said(plaita, "instances")["instances"]
    assert one["state"] == "alive"
    assert one["heartbeat_age_s"] < 100


def test_C2_differences_and_mixes_are_pointed_out(plaita: Run, announce: Callable[..., None]) -> None:
    announce("a", redis_url="redis://user:S3cr3t-marker@h/0", executors=2, socket="/a")
    announce("b", redis_url="redis://user:S3cr3t-marker@h/0", executors=2, socket="/b", max_deliveries=9)
    found = said(plaita, "config")
    assert [one["name"] for one in found["differences"]] == ["max_deliveries"]
    assert found["differences"][0]["values"] == [
        {"value": 5, "instances": ["a"]},
        {"value": 9, "instances": ["b"]},
    ]
    assert [one["name"] for one in found["mixed"]] == ["config_generation", "budget_generation"]
    assert found["instances"][0]["config"]["executors"] == 2
    for words in (("config",), ("config", "a"), ("instances",)):
        for more in ((), ("--json",)):
            done = plaita("cluster", *words, *more)
            assert done.code == 0
            assert "S3cr3t" not in done.out + done.err
    page = plaita("cluster", "config").out
    assert "max_deliveries differs: 5 on a; 9 on b" in page
    assert "budget_generation differs" in page
    assert "drain" in page
    assert "the same on all of them" in page
    assert "b only" in page
    assert [one["instance_id"] for one in said(plaita, "config", "b")["instances"]] == ["b"]


def test_C2_a_secret_in_a_foreign_record_is_masked(plaita: Run, announce: Callable[..., None]) -> None:
    config = {"redis_url": "redis://:S3cr3t-marker@h/0", "credential_key": "S3cr3t-marker", "executors": 1}
    announce("a", record=json.dumps({"status": "running", "config": config}).encode())
    done = plaita("cluster", "config", "--json")
    assert "S3cr3t" not in done.out
    assert done.json["instances"][0]["config"]["executors"] == 1


@pytest.mark.parametrize(
    "record",
    [
        b"[]",
        b"7",
        b'{"status": 7, "shut": "x", "capacity": [], "generations": 1, "config": 3, "uptime_s": "long"}',
        b"{}",
    ],
)
def test_any_record_is_shown(plaita: Run, announce: Callable[..., None], record: bytes) -> None:
    announce("a", record=record)
    for words in (("instances",), ("config",), ("instances", "--json"), ("config", "--json")):
        done = plaita("cluster", *words)
        assert done.code == 0, done.err


def test_exit_codes(plaita: Run, announce: Callable[..., None]) -> None:
    assert plaita("cluster", "instances").code == 0
    assert "no instance" in plaita("cluster", "instances").err
    announce("a")
    done = plaita("cluster", "config", "nobody")
    assert done.code == 1
    assert "nobody" in done.err
    assert "a" in done.err
    assert plaita("cluster").code == 2
    assert plaita("cluster", "instances", "--redis-url", "redis://127.0.0.1:1/0").code == 3


def test_the_client_answers_the_same(connected: str, keys: Keys, server: Any, announce: Callable[..., None]) -> None:
    announce("a")
    with Client(server.url, queue_name=keys.queue, consumer_group=keys.group, key_prefix=keys.prefix) as client:
        assert client.instances()["alive"] == 1
        assert client.cluster_config("a")["instances"][0]["instance_id"] == "a"
