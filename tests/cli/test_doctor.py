"""``plaita doctor`` on a real server: scenes made by hand, what it finds, its exit codes, that it writes nothing."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from doctor_world import HOUR_MS, Do, Monitor, Run, checks, finding, row

from plaita.store import delayed
from plaita.store.embedded import Embedded
from plaita.store.keys import Keys
from plaita.store.runner_sync import SyncRunner

pytestmark = pytest.mark.usefixtures("quiet_host")


# -- exits ----------------------------------------------------------------------------------------


def test_all_is_well_and_exit_0(plaita: Run, registered: Callable[..., None], connected: str) -> None:
    registered(plaita_version=__import__("plaita").__version__)
    told = plaita("doctor", "--json")
    assert told.json["worst"] == "note", [one for one in told.json["findings"] if one["severity"] != "ok"]
    assert told.code == 0
    assert told.json["server"]["product"] == "valkey"
    assert told.json["server"]["role"] == "master"
    assert (told.json["tenant_id"], told.json["queue"]) == ("default", f"{connected}:queue")
    assert told.json["calls"] < 100
    expected = {"redis.reachable", "redis.persistence", "redis.eviction", "redis.clock", "redis.acl", "queue.readers"}
    assert {name for name, severity in checks(told).items() if severity == "ok"} >= expected


def test_nobody_reads_and_exit_1(plaita: Run, keys: Keys, redis_do: Do) -> None:
    redis_do("XADD", keys.queue, "*", "payload", "{}")
    told = plaita("doctor", "--json")
    assert told.code == 1
    assert (checks(told)["queue.readers"], told.json["worst"]) == ("error", "error")
    assert told.json["findings"][0]["severity"] == "error", "the gravest first"


def test_for_people(plaita: Run, keys: Keys, redis_do: Do) -> None:
    redis_do("XADD", keys.queue, "*", "payload", "{}")
    told = plaita("doctor")
    assert told.code == 1
    assert "→ systemctl start plaita-supervisor" in told.out
    assert "worst: error" in told.out
    assert "redis.persistence" in told.out
    assert "redis.persistence" not in plaita("doctor", "--brief").out


def test_nobody_answers_and_exit_3_with_the_host_shown(plaita: Run, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    told = plaita("doctor", "--redis-url", f"redis://:S3cr3t-marker@127.0.0.1:{port}/0", "--json")
    assert told.code == 3
    assert told.json["reachable"] is False
    assert checks(told)["redis.reachable"] == "error"
    assert checks(told)["host.disk"] == "ok"
    assert "S3cr3t-marker" not in told.out + told.err
    folder = tmp_path / "none"
    told = plaita("doctor", "--embedded", str(folder), "--json")
    assert (told.code, checks(told)["redis.reachable"]) == (3, "error")
    assert not folder.exists(), "looking starts no server and makes no folder"


def test_a_wrong_password_and_exit_3(plaita: Run, server: Embedded) -> None:
    path = server.url.partition("?")[0]
    told = plaita("doctor", "--redis-url", f"{path}?password=S3cr3t-marker", "--json")
    assert told.code == 3
    assert "WRONGPASS" in finding(told, "redis.reachable")["value"]
    assert "S3cr3t-marker" not in told.out + told.err


def test_bad_usage_and_exit_2(plaita: Run) -> None:
    for words in (("--redis-url", "http://x"), ("--no-such-flag",), ("--tenant", "a:b")):
        assert plaita("doctor", *words).code == 2, words


# -- it only reads --------------------------------------------------------------------------------


def test_it_writes_nothing(
    plaita: Run, server: Embedded, keys: Keys, redis_do: Do, registered: Callable[..., None], hello: Any, flow_file: Any
) -> None:
    registered()
    redis_do("ZADD", keys.instances, 1, "long-gone")  # a listing of instances would take this away
    assert plaita("flow", "put", flow_file(hello), "--id", "hello").code == 0
    assert plaita("start", "hello", "--id", "e").code == 0
    redis_do("ZREM", keys.index(), "e")  # a look at this row would index it again
    redis_do("XGROUP", "CREATE", keys.queue, keys.group, "0")
    redis_do("XREADGROUP", "GROUP", keys.group, "gone", "COUNT", "1", "STREAMS", keys.queue, ">")
    row(redis_do, keys, "lost", "running")
    row(redis_do, keys, "waits", "suspended", wait="1", wait_deadline=1)
    with SyncRunner(server.url) as runner:
        runner.do(delayed.put(keys, "d", -60_000, [("payload", b"{}"), ("execution_id", "x")]))
    redis_do("XADD", keys.dead_letters, "*", "payload", "{}")
    redis_do("SADD", keys.parked_tenants, "default")
    redis_do("RPUSH", keys.parked("q"), "x")
    redis_do("SCRIPT", "FLUSH")
    monitor = Monitor(server)
    before = redis_do("INFO", "commandstats")
    told = plaita("doctor", "--json")
    seen = monitor.stop(redis_do)
    # what MONITOR leaves out: commands of administrators
    assert calls_of(redis_do("INFO", "commandstats"), "config|set") == calls_of(before, "config|set")
    assert told.json["reachable"]
    assert {"INFO", "HMGET", "XPENDING", "ZSCAN", "MGET", "XREVRANGE"} <= set(seen), seen
    flags = {name: flags_of(redis_do, name) for name in set(seen)}
    assert {name for name, found in flags.items() if "write" in found} == set()
    assert {"KEYS", "SMEMBERS", "SCAN"} & set(seen) == set()


def calls_of(stats: bytes, command: str) -> str:
    return next((line for line in stats.decode().splitlines() if line.startswith(f"cmdstat_{command}:")), "")


def flags_of(do: Do, command: str) -> set[str]:
    [facts] = do("COMMAND", "INFO", command)
    return {flag.decode() if isinstance(flag, bytes) else str(flag) for flag in facts[2]}


# -- scenes ---------------------------------------------------------------------------------------


def test_D4_executions_without_holder_and_carrier(plaita: Run, keys: Keys, redis_do: Do) -> None:
    row(redis_do, keys, "lost", "running")
    row(redis_do, keys, "held", "running")
    redis_do("SET", keys.lease("held"), "v2 h/i 1:a q 1-0")
    for name in ("in-queue", "in-wake", "delayed", "foreign"):
        row(redis_do, keys, name, "pending")
    redis_do("XADD", keys.queue, "*", "payload", "{}", "execution_id", "in-queue", "tenant_id", "default")
    redis_do("XADD", keys.wake, "*", "payload", "{}", "execution_id", "in-wake", "tenant_id", "default")
    redis_do("XADD", keys.queue, "*", "payload", '{"type":"resume","execution_id":"foreign","resume_type":"continue"}')
    with SyncRunner(f"{finding_url(plaita)}") as runner:
        runner.do(delayed.put(keys, "d", 60_000, [("payload", b"{}"), ("execution_id", "delayed")]))
    told = plaita("doctor", "--json")
    assert finding(told, "executions.lost")["value"] == "1 execution without holder and carrier: lost"
    assert "plaita reindex --requeue" in finding(told, "executions.lost")["action"]
    assert checks(told)["executions.dead_holders"] == "note"
    # and doing it mends it
    assert plaita("reindex", "--requeue").code == 0
    assert checks(plaita("doctor", "--json"))["executions.lost"] == "ok"


def test_D4_another_tenants_carrier_of_that_id_is_none(plaita: Run, keys: Keys, redis_do: Do) -> None:
    row(redis_do, keys, "e", "running")
    redis_do("XADD", keys.queue, "*", "payload", "{}", "execution_id", "e", "tenant_id", "acme")
    assert checks(plaita("doctor", "--json"))["executions.lost"] == "error"


def test_D4_what_moves_while_it_is_looked_for_is_not_lost(
    plaita: Run, keys: Keys, redis_do: Do, monkeypatch: pytest.MonkeyPatch
) -> None:
    from plaita.client import asking

    for name in ("ends", "is-taken", "stays"):
        row(redis_do, keys, name, "running")
    looked = asking.carried

    def then_moved(*arguments: Any) -> Any:
        found = looked(*arguments)
        redis_do("HSET", keys.row("ends"), "status", "completed")
        redis_do("SET", keys.lease("is-taken"), "v2 h/i 1:a q 1-0")
        return found

    monkeypatch.setattr(asking, "carried", then_moved)
    told = plaita("doctor", "--json")
    assert finding(told, "executions.lost")["value"] == "1 execution without holder and carrier: stays"


def finding_url(plaita: Run) -> str:
    from plaita.client import Client

    with Client() as client:
        assert client._server is not None
        return client._server.url


def test_waits_whose_timer_is_gone(plaita: Run, keys: Keys, redis_do: Do) -> None:
    row(redis_do, keys, "gone", "suspended", wait="1", wait_deadline=1)
    row(redis_do, keys, "kept", "suspended", wait="1", wait_deadline=1)
    redis_do("ZADD", keys.delayed, 1, f"wait {keys.ns} kept 1")
    row(redis_do, keys, "woken", "suspended", wait="1", wait_deadline=1, woken="event")
    redis_do("XADD", keys.wake, "*", "payload", "{}", "execution_id", "woken", "tenant_id", "default")
    told = plaita("doctor", "--json")
    assert "plaita reindex makes them anew" in finding(told, "executions.timers")["action"]
    assert finding(told, "executions.timers")["value"].startswith("1 wait ")
    assert finding(told, "executions.overdue")["value"] == "1 wait overdue: kept"
    assert checks(told)["queue.delayed"] == "error"
    # what it says is what helps
    assert plaita("reindex", "--json").json["waits"] == 2, "one of them had half a timer"
    assert "executions.timers" not in checks(plaita("doctor", "--json"))


def test_a_step_that_runs_for_long(plaita: Run, keys: Keys, redis_do: Do, registered: Callable[..., None]) -> None:
    registered()
    now = int(time.time() * 1000)
    timing = json.dumps({"status": "running", "started_at": now - 25 * HOUR_MS, "ended_at": None})
    row(redis_do, keys, "long", "running", last_update_time=now, **{"t:n": timing})
    redis_do("SET", keys.lease("long"), "v2 h1/i-h1 1:a q 1-0")
    row(redis_do, keys, "silent", "running", **{"t:n": timing})
    redis_do("SET", keys.lease("silent"), "v2 h1/i-h1 1:a q 1-0")
    told = plaita("doctor", "--json")
    assert (checks(told)["executions.long_steps"], checks(told)["executions.silent"]) == ("warning", "warning")
    assert "silent" in finding(told, "executions.silent")["value"]
    assert "long" not in finding(told, "executions.silent")["value"]
    assert "executions.dead_holders" not in checks(told)


def test_C3_a_queue_in_trouble(
    plaita: Run, keys: Keys, redis_do: Do, registered: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLAITA_CLAIM_MIN_IDLE_MS", "100")
    registered("h1")
    registered("h2", plaita_version="2.0", status="draining", node_types=["end", "mine"])
    for family in ("cf1-a", "cf1-b"):
        redis_do("XADD", keys.queue, "*", "payload", "{}", "config_family", family)
    redis_do("XGROUP", "CREATE", keys.queue, keys.group, "0")
    redis_do("XREADGROUP", "GROUP", keys.group, "gone", "COUNT", "9", "STREAMS", keys.queue, ">")
    for entry, _ in redis_do("XRANGE", keys.queue, "-", "+"):
        redis_do("XCLAIM", keys.queue, keys.group, "gone", 0, entry, "IDLE", HOUR_MS, "JUSTID")
    for cause in ("SIGKILL", "SIGKILL", "exception"):
        redis_do("XADD", keys.dead_letters, "*", "payload", json.dumps({"cause": cause}))
    redis_do("XADD", f"{keys.dead_letters}:old", "*", "x", "y")
    redis_do("SADD", keys.parked_tenants, "acme")
    redis_do("RPUSH", keys.for_tenant("acme").parked("q"), "x")
    deadline = time.monotonic() + 30
    while redis_do("XINFO", "CONSUMERS", keys.queue, keys.group)[0][5] <= 100:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    told = plaita("doctor", "--json")
    found = checks(told)
    wanted = {
        "queue.generations": "error",
        "queue.dead_consumers": "note",
        "queue.oldest_pending": "warning",
        "queue.dead_letters": "note",
        "queue.parked": "note",
        "versions.plaita": "note",
        "registry.leaving": "note",
        "queue.readers": "ok",
    }
    assert {name: found.get(name) for name in wanted} == wanted
    assert "cf1-b" in finding(told, "queue.generations")["value"]
    assert "SIGKILL 2, exception 1" in finding(told, "queue.dead_letters")["value"]


def test_dead_letters_of_earlier_days_are_no_news(plaita: Run, keys: Keys, redis_do: Do) -> None:
    for hours in (49, 25):
        redis_do(
            "XADD", keys.dead_letters, f"{int(time.time() * 1000) - hours * HOUR_MS}-0", "payload", '{"cause":"x"}'
        )
    assert finding(plaita("doctor", "--json"), "queue.dead_letters")["value"] == "2, none in the last 24 h"


def test_one_tenant_at_a_time(plaita: Run, keys: Keys, redis_do: Do) -> None:
    row(redis_do, keys.for_tenant("acme"), "lost", "running")
    assert checks(plaita("doctor", "--json"))["executions.lost"] == "ok"
    told = plaita("doctor", "--json", "--tenant", "acme")
    assert (told.json["tenant_id"], checks(told)["executions.lost"]) == ("acme", "error")
    assert "--tenant acme" in finding(told, "executions.lost")["action"]


def test_T2_a_disabled_tenants_executions_wait(plaita: Run, keys: Keys, redis_do: Do) -> None:
    row(redis_do, keys.for_tenant("acme"), "waits", "running")
    assert plaita("tenant", "disable", "acme").code == 0
    told = plaita("doctor", "--json", "--tenant", "acme")
    assert checks(told)["executions.lost"] == "note"
    assert "plaita tenant enable acme" in finding(told, "executions.lost")["action"]
    assert plaita("tenant", "enable", "acme").code == 0
    assert checks(plaita("doctor", "--json", "--tenant", "acme"))["executions.lost"] == "ok"


def test_more_than_it_looks_at(plaita: Run, keys: Keys, redis_do: Do, monkeypatch: pytest.MonkeyPatch) -> None:
    from plaita.client import asking, doctor
    from plaita.store import looking

    monkeypatch.setattr(doctor, "ROWS_LOOKED_AT", 300)
    monkeypatch.setattr(asking, "CARRIER_PAGES", 2)
    monkeypatch.setattr(asking, "CARRIERS_LOOKED_AT", 20)
    monkeypatch.setattr(looking.rows, "__defaults__", ("0", 50))
    for number in range(700):
        row(redis_do, keys, f"e{number}", "running")
    for number in range(30):
        redis_do("XADD", keys.queue, "*", "payload", "{}", "execution_id", f"x{number}", "tenant_id", "default")
    told = plaita("doctor", "--json")
    assert checks(told)["executions.looked_at"] == "note"
    assert "of 700" in finding(told, "executions.looked_at")["value"]
    assert checks(told)["executions.lost"] == "note", "who is without a carrier cannot be told"
    assert told.json["calls"] < 200
