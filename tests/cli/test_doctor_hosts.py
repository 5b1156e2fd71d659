"""``plaita doctor`` on spoilt servers, replicas, users with few rights, and on this host."""

from __future__ import annotations

import json
import re
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from doctor_world import Run, checks, finding

from plaita.cli import doctor_host
from plaita.policy.doctor.supervisors import Supervisor
from plaita.store.runner_sync import SyncRunner
from plaita.testing.server import Server, raw

pytestmark = pytest.mark.usefixtures("quiet_host")


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


def test_the_commands_it_advises_exist() -> None:
    """Every ``plaita …`` in the texts of the doctor names a command, and options that the command has."""
    import typer

    from plaita.cli import main, supervisor

    apps: dict[str, Any] = {
        "plaita": typer.main.get_command(main.app),
        "plaita-supervisor": typer.main.get_command(supervisor.app),
    }
    text = "\n".join(path.read_text() for path in (Path(main.__file__).parents[1] / "policy" / "doctor").glob("*.py"))
    advised = set(re.findall(r"\b(plaita(?:-supervisor)?) ([a-z][a-z-]*(?: [a-z][a-z-]*)?)((?: [^;,)\"' ]+)*)", text))
    checked = set()
    prose = {"does", "is", "in", "holds", "needs", "neither", "uses", "may", "on", "there", "plaita"}
    for program, words, rest in advised:
        first, *second = words.split(" ")
        if first not in apps[program].commands:
            assert first in prose, f"{program} {words}"
            continue
        command = apps[program].commands[first]
        if hasattr(command, "commands"):
            assert second, words
            assert second[0] in command.commands, words
            command = command.commands[second[0]]
        known = {option for parameter in command.params for option in parameter.opts}
        assert {word.partition("{")[0] for word in rest.split() if word.startswith("--")} <= known, (
            program,
            words,
            rest,
        )
        checked.add(words.split(" ")[0])
    assert {"reindex", "resume", "cancel", "dlq", "tenant", "explain", "check", "undrain"} <= checked
