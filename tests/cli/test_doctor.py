"""``plaita doctor`` on a real server: scenes made by hand, what it finds, its exit codes, that it writes nothing."""

from __future__ import annotations

import json
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from plaita.cli import doctor_host
from plaita.policy.doctor import server_load
from plaita.policy.doctor.supervisors import Supervisor
from plaita.store import delayed, registry
from plaita.store.embedded import Embedded
from plaita.store.keys import Keys
from plaita.store.runner_sync import SyncRunner
from plaita.testing.server import Server, raw

Run = Callable[..., Any]
Do = Callable[..., Any]
HOUR_MS = 3_600_000


@pytest.fixture(autouse=True)
def _a_host_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No supervisor of the machine is asked, and its memory, disk and load decide no test."""
    monkeypatch.setattr(server_load, "LATENCY_WARNING_MS", 60_000.0)
    monkeypatch.setattr(server_load, "LATENCY_ERROR_MS", 60_000.0)
    monkeypatch.setattr(doctor_host.control_client, "candidates", lambda environ: [str(tmp_path / "none.sock")])
    monkeypatch.setattr(doctor_host.looking, "systemd_runs", lambda: False)
    monkeypatch.setattr(doctor_host.looking, "clock", lambda: (True, 0.01))
    monkeypatch.setattr(doctor_host.looking, "memory", lambda: (1000, 900))
    monkeypatch.setattr(
        doctor_host.looking, "space", lambda path: doctor_host.looking.Space(90 << 30, 100 << 30, 9, 10)
    )


def checks(told: Any) -> dict[str, str]:
    """The gravest severity of each check."""
    order = ["ok", "note", "warning", "error"]
    found: dict[str, str] = {}
    for one in told.json["findings"]:
        assert set(one) == {"check", "severity", "value", "wanted", "why", "action"}
        before = found.get(one["check"], "ok")
        found[one["check"]] = max(before, one["severity"], key=order.index)
    return found


def finding(told: Any, check: str) -> dict[str, str]:
    found: dict[str, str] = next(one for one in told.json["findings"] if one["check"] == check)
    return found


@pytest.fixture
def registered(server: Embedded, keys: Keys) -> Iterator[Callable[..., None]]:
    """Register an instance as a supervisor would."""
    with SyncRunner(server.url) as runner:

        def register(name: str = "h1", **changes: Any) -> None:
            record = {
                "status": "running",
                "plaita_version": "1.0",
                "queue": keys.queue,
                "consumer": name,
                "generations": {"config_family": "cf1-a", "config_generation": "cfg1-a", "budget_generation": "bg1-a"},
                "node_types": ["end"],
            } | changes
            runner.do(registry.register(keys, name, f"i-{name}", json.dumps(record).encode(), HOUR_MS))

        yield register


def row(do: Do, keys: Keys, execution_id: str, status: str, **fields: str | int) -> None:
    """A row as it would stand, written an hour ago."""
    written = int(time.time() * 1000) - HOUR_MS
    given: dict[str, str | int] = {
        "status": status,
        "last_update_time": written,
        "flow_id": "f",
        "next_node": "n",
    } | fields
    do("HSET", keys.row(execution_id), *[word for pair in given.items() for word in pair])
    do("ZADD", keys.index(status), 1, execution_id)


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


class Monitor:
    """What the server is given meanwhile, by its own MONITOR: the commands of clients and of scripts."""

    def __init__(self, server: Embedded) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(server.url.removeprefix("unix://").partition("?")[0])
        password = (server.folder / "password").read_text().strip()
        self._file = self._socket.makefile("rwb")
        for command in (f"AUTH {password}", "MONITOR"):
            self._file.write(command.encode() + b"\r\n")
            self._file.flush()
            assert self._file.readline() == b"+OK\r\n"
        self.seen: list[str] = []
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        for line in self._file:
            words = line.decode("utf-8", "replace").split('"')
            if len(words) > 1:
                if words[1] == "ECHO" and words[3] == "the end":
                    return
                self.seen.append(words[1].upper())

    def stop(self, do: Do) -> list[str]:
        do("ECHO", "the end")
        self._thread.join(10)
        assert not self._thread.is_alive()
        self._socket.close()
        return self.seen


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
    assert "plaita resume gone --type timeout" in finding(told, "executions.timers")["action"]
    assert finding(told, "executions.timers")["value"].startswith("1 wait ")
    assert finding(told, "executions.overdue")["value"] == "1 wait overdue: kept"
    assert checks(told)["queue.delayed"] == "error"
    # what it says is what helps
    assert plaita("resume", "gone", "--type", "timeout").code == 0
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


# -- servers of their own -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def lone() -> Iterator[Server]:
    """A server whose settings may be spoilt."""
    folder = tempfile.mkdtemp(prefix="plaita-doctor-")
    made = Server(Path(folder) / "data")
    yield made
    made.close()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def spoilt(lone: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    monkeypatch.setenv("PLAITA_REDIS_URL", lone.url)
    before: dict[str, str] = {}

    def spoil(name: str, value: str) -> None:
        before.setdefault(name, lone.do("CONFIG", "GET", name)[1].decode())
        lone.do("CONFIG", "SET", name, value)

    yield spoil
    for name, value in before.items():
        lone.do("CONFIG", "SET", name, value)


def test_a_server_that_loses_work(plaita: Run, spoilt: Callable[..., None]) -> None:
    for name, value in (
        ("appendonly", "no"), ("maxmemory", "1500000"), ("maxmemory-policy", "allkeys-lru"), ("timeout", "5"),
    ):  # fmt: skip
        spoilt(name, value)
    told = plaita("doctor", "--json")
    found = checks(told)
    wanted = {"redis.persistence": "error", "redis.eviction": "error", "redis.timeout": "warning"}
    assert {name: found.get(name) for name in wanted} == wanted
    assert "appendonly yes" in finding(told, "redis.persistence")["action"]
    assert found["redis.memory"] in ("ok", "warning", "error")
    spoilt("maxmemory", "1")  # every write is refused from here on; looking still works
    full = plaita("doctor", "--json")
    assert (checks(full)["redis.memory"], full.code, full.json["reachable"]) == ("error", 1, True)


def test_a_user_with_few_rights_gets_notes_not_a_crash(plaita: Run, lone: Server) -> None:
    lone.do(
        "ACL", "SETUSER", "weak", "on", ">pw", "~plaita:*", "-@all", "+@read", "+hello", "+eval", "+evalsha", "+time"
    )
    lone.do("ACL", "SETUSER", "mute", "on", ">pw", "-@all", "+hello")
    base = lone.url.partition("?")[0]
    told = plaita("doctor", "--redis-url", f"{base}?username=weak&password=pw", "--json")
    assert told.code == 1
    found = checks(told)
    assert (found["redis.info"], found["redis.acl"], found["executions.looked_at"]) == ("note", "error", "ok")
    assert "xadd" in finding(told, "redis.acl")["value"]
    assert "SETUSER weak" in finding(told, "redis.acl")["action"]
    told = plaita("doctor", "--redis-url", f"{base}?username=mute&password=pw", "--json")
    found = checks(told)
    assert told.code == 1
    assert (found["queue.streams"], found["executions.looked_at"], found["registry.instances"]) == ("note",) * 3


def test_a_replica_is_told_from_the_primary(plaita: Run, lone: Server, tmp_path: Path) -> None:
    lone.do("CONFIG", "SET", "repl-diskless-sync-delay", 0)
    replica = Server.twin(lone, tmp_path / "replica")
    try:
        replica.follow(lone)
        told = plaita("doctor", "--redis-url", replica.url, "--json")
        assert (told.code, checks(told)["redis.role"], told.json["server"]["role"]) == (1, "error", "slave")
        primary = plaita("doctor", "--redis-url", lone.url, "--json")
        assert checks(primary)["redis.role"] == "ok"
        assert checks(primary)["redis.min_replicas"] == "warning"
        assert checks(primary)["redis.replicas"] in ("ok", "warning")
    finally:
        replica.close()


def test_a_script_that_holds_the_server(plaita: Run, lone: Server) -> None:
    lone.do("CONFIG", "SET", "busy-reply-threshold", 1)

    def hold() -> None:
        with SyncRunner(lone.url, response_timeout_s=60) as runner:
            runner.run(raw("EVAL", "while true do end", 0))

    holder = threading.Thread(target=hold)
    with SyncRunner(lone.url) as runner:
        runner.do(raw("PING"))
        holder.start()
        try:
            deadline = time.monotonic() + 30
            while "BUSY" not in str(runner.run(raw("PING"))):
                assert time.monotonic() < deadline
                time.sleep(0.01)
            told = plaita("doctor", "--redis-url", lone.url, "--json")
        finally:
            runner.run(raw("SCRIPT", "KILL"))
            holder.join(30)
            lone.do("CONFIG", "SET", "busy-reply-threshold", 5000)
    assert told.code == 3
    assert "BUSY" in finding(told, "redis.reachable")["value"]
    assert "SCRIPT KILL" in finding(told, "redis.reachable")["action"]


# -- this host ------------------------------------------------------------------------------------


def test_a_supervisor_that_answers_is_asked(
    plaita: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, connected: str
) -> None:
    path = tmp_path / "s.sock"
    status = {"ok": True, "instance_id": "h1", "status": "running", "serving": False, "shut": ["disk"],
              "disk": {"path": str(tmp_path), "min_free_gib": 95.0}}  # fmt: skip
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()

    def answer() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                if connection.recv(65536):
                    connection.sendall(json.dumps(status).encode() + b"\n")

    answering = threading.Thread(target=answer)
    answering.start()
    try:
        told = plaita("doctor", "--socket", str(path), "--json")
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        answering.join(10)
    assert checks(told)["host.supervisor"] == "error"
    assert "shut: disk" in finding(told, "host.supervisor")["value"]
    assert checks(told)["host.disk"] == "error", "its line, not the one of this shell"


def test_each_line_of_a_disk_is_looked_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))

    def watches(path: str, line: float) -> Supervisor:
        return Supervisor("/s", {"disk": {"path": path, "min_free_gib": line}})

    one, two = watches(str(tmp_path), 1.0), watches(str(tmp_path), 2.0)
    assert [disk.min_free_gib for disk in doctor_host.disks(None, [one, two, one])] == [1.0, 2.0]
    monkeypatch.setattr(doctor_host.looking, "space", lambda path: doctor_host.looking.Space(*range(1, 5)))
    there = [disk.what for disk in doctor_host.disks(None, [], "/proc")]
    assert "the disk of the Redis server" in there, "it is on another file system"
    assert len(doctor_host.disks(None, [], "/no-such-folder")) == 1
    gone = doctor_host.disks(None, [watches(str(tmp_path / "not" / "yet"), 0.0)])
    assert [(disk.path, disk.free is not None) for disk in gone] == [(str(tmp_path / "not" / "yet"), True)]


def test_a_socket_that_was_left_behind(plaita: Run, tmp_path: Path, connected: str) -> None:
    path = tmp_path / "s.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
    told = plaita("doctor", "--socket", str(path), "--json")
    assert (checks(told)["host.supervisor"], finding(told, "host.supervisor")["value"]) == (
        "warning",
        f"{path}: a socket is there and nobody listens",
    )


def test_units_are_judged_where_systemd_runs(
    plaita: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, connected: str
) -> None:
    program = tmp_path / "bin" / "systemctl"
    program.parent.mkdir()
    program.write_text(
        "#!/bin/sh\ncat <<END\nId=plaita-supervisor.service\nActiveState=active\nKillMode=process\nEND\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    monkeypatch.setattr(doctor_host.looking, "systemd_runs", lambda: True)
    assert checks(plaita("doctor", "--json"))["host.unit_killmode"] == "warning"
    program.write_text("#!/bin/sh\necho 'Failed to connect to bus' >&2\nexit 1\n")
    assert "Failed to connect to bus" in finding(plaita("doctor", "--json"), "host.units")["value"]


def test_settings_that_a_supervisor_would_refuse(plaita: Run, connected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLAITA_LEASE_TTL_SECONDS", "1")
    told = plaita("doctor", "--json")
    assert checks(told)["host.settings"] == "warning"
    assert "LEASE_TTL" in finding(told, "host.settings")["value"]
