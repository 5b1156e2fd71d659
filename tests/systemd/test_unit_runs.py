"""The units at work: started, asked, reloaded, stopped and killed as their own lines say (ledger O6)."""

from __future__ import annotations

import os
import re
import signal
import socket
import stat
from collections.abc import Callable
from pathlib import Path

from manager import Manager
from unit_file import INSTANCED, PLAIN, Unit

from plaita import jsontext
from plaita.client import Client
from plaita.executor.main import OOM_SCORE_ADJ
from plaita.flow.outline import flow_hash
from plaita.store import deaths, flows
from plaita.store.keys import Keys
from plaita.store.runner_sync import SyncRunner, expect
from plaita.supervisor.life import EXIT_CLEAN, EXIT_CONFIGURATION
from plaita.testing.server import Server
from plaita.unix.processes import oom_score_adj

Manage = Callable[[Unit], Manager]
HELLO = {
    "flow_id": "hello",
    "nodes": [
        {"type": "start", "id": "begin", "next": "greet"},
        {"type": "assignment", "id": "greet", "output": "hello", "next": "end"},
        {"type": "end", "id": "end", "output": "$NODE.greet"},
    ],
}


def settings(root: Path, *lines: str, name: str = "environment") -> None:
    (root / "etc/plaita" / name).write_text("# of a test\n" + "".join(f"{line}\n" for line in lines), "utf-8")


def credential(root: Path, url: str) -> None:
    (root / "etc/credstore/plaita.redis_url").write_text(f"{url}\n", "utf-8")


def put_hello(url: str) -> None:
    with SyncRunner(url, name="test") as runner:
        expect(runner.run(flows.put(Keys(), "hello", None, flow_hash(HELLO), jsontext.dumps(HELLO))))


def environment_of(pid: int) -> bytes:
    return Path(f"/proc/{pid}/environ").read_bytes()


def pids_of_executors(service: Manager, count: int) -> list[int]:
    """Of all of them, once all stand."""
    status = service.ask("status") or {"executors": []}
    found = [row["pid"] for row in status["executors"] if row["pid"] and row["state"] in ("idle", "busy")]
    return found if len(found) == count else []


def test_O6_a_life_by_the_unit(root: Path, server: Server, manage: Manage) -> None:
    """Ready from the main process, watchdog, socket, work, reload, stop; nothing of it in the executors."""
    settings(root, "PLAITA_EXECUTORS=2")
    credential(root, server.url)
    service = manage(Unit(PLAIN)).start()

    ready = service.wait_said("READY=1")
    assert f"MAINPID={service.pid}" in ready.lines
    service.wait_said("WATCHDOG=1")
    mode = os.stat(service.socket).st_mode
    assert stat.S_ISSOCK(mode)
    assert stat.S_IMODE(mode) == 0o660

    status = service.until(lambda: service.ask("status"), "an answer")
    assert status["instance_id"] == socket.gethostname()
    executors = service.until(lambda: pids_of_executors(service, 2), "two executors")
    for pid in executors:
        assert oom_score_adj(pid) == OOM_SCORE_ADJ
        assert not re.search(rb"NOTIFY_SOCKET|WATCHDOG|CREDENTIALS_DIRECTORY|REDIS", environment_of(pid))
    own = oom_score_adj(service.pid)
    assert own is not None
    assert own <= 0  # as the unit says, or as it was where that needs rights; the executors go first

    with Client(server.url) as client:
        put_hello(server.url)
        assert client.wait(client.start("hello").execution_id, timeout=60)["output"] == "hello"

    told = len(service.said)
    service.reload()
    service.wait_said("RELOADING=1", after=told)
    service.wait_said("READY=1", after=told)

    told = len(service.said)
    assert service.stop() == EXIT_CLEAN
    stopping = service.wait_said_late("STOPPING=1", told)
    assert stopping.pid == service.pid
    service.wait_said_late("EXTEND_TIMEOUT_USEC=", told)
    assert {said.pid for said in service.said} == {service.pid}  # NotifyAccess=main hears nobody else
    assert service.after.returncode == 0, service.after.stderr
    assert not service.socket.exists()


def test_O6_a_kill_is_told_by_ExecStopPost(root: Path, server: Server, manage: Manage) -> None:
    settings(root, "PLAITA_INSTANCE_ID=nobody", name="environment-2")
    settings(root, "PLAITA_EXECUTORS=1", name="environment-1")
    credential(root, server.url)
    service = manage(Unit(INSTANCED, instance="1")).start()
    service.wait_said("READY=1")
    status = service.until(lambda: service.ask("status"), "an answer")
    assert status["instance_id"] == "testhost-1"
    assert service.socket.parent.name == "plaita-1"

    os.kill(service.pid, signal.SIGKILL)
    assert service.ended() == -signal.SIGKILL
    assert service.starts_again(-signal.SIGKILL)
    assert service.after.returncode == 0, service.after.stderr
    with SyncRunner(server.url, name="test") as runner:
        life = expect(runner.run(deaths.last_life(Keys(), "testhost-1")))
        assert life.incarnation is not None
        told = expect(runner.run(deaths.find(Keys(), "testhost-1", life.incarnation)))
    assert told is not None
    assert b"SIGKILL" in told


def test_KT32_a_server_that_comes_late_is_waited_for(root: Path, manage: Manage) -> None:
    """Without one it stays up, says so, asks for more time and is not ready; with it, it is."""
    address = root / "late.sock"
    settings(root, f"PLAITA_REDIS_URL=unix://{address}", "PLAITA_EXECUTORS=1")
    service = manage(Unit(PLAIN)).start()
    asked = service.wait_said("EXTEND_TIMEOUT_USEC=")
    service.wait_said("EXTEND_TIMEOUT_USEC=", after=service.said.index(asked) + 1)
    service.wait_said("STATUS=starting: waits for Redis")
    status = service.until(lambda: service.ask("status"), "an answer")
    assert not status["redis"]["connected"]
    assert not any("READY=1" in said.lines for said in service.said)
    late = Server(root / "late")
    try:
        os.symlink(late.socket_path, address)
        late.do("CONFIG", "SET", "requirepass", "")
        late.do("ACL", "SETUSER", "default", "on", "nopass", "~*", "&*", "+@all")
        service.wait_said("READY=1")
        assert service.stop() == EXIT_CLEAN
    finally:
        late.close()


def test_O6_wrong_settings_keep_it_down_and_are_told(root: Path, manage: Manage) -> None:
    settings(root, "PLAITA_CLAIM_MIN_IDLE_MS=soon")
    service = manage(Unit(PLAIN)).start()
    code = service.ended()
    assert code == EXIT_CONFIGURATION
    assert not service.starts_again(code)
    assert "PLAITA_CLAIM_MIN_IDLE_MS" in service.log.read_text("utf-8")
    assert all(service.starts_again(other) for other in (0, 70, 75, 127, -signal.SIGKILL))
