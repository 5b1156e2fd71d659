"""The units at work: started, asked, reloaded, stopped and killed as their own lines say (ledger O6)."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from manager import Manager
from unit_file import DROP_INS, INSTANCED, PLAIN, Unit

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
REFUSED = ("credential", "environment file", "environment of the supervisor", "socket", "signal")
WALL = """
import os, signal, socket, subprocess, time
from plaita import Node, get_default_registry

ROOT = os.environ["PLAITA_NODE_ENV_ROOT"]

def tried(what):
    try:
        what()
    except PermissionError:
        return "refused"
    return "yes"

def connect():
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(ROOT + "/run/plaita/supervisor.sock")

@get_default_registry().register
class Wall(Node):
    node_type = "wall"
    node_name = "Wall"
    def execute(self, execution):
        return {
            "uid": os.getuid(),
            "own folder": tried(lambda: open(os.environ["TMPDIR"] + "/mine", "w").close()),
            "credential": tried(lambda: open(ROOT + "/run/credentials/plaita.redis_url").read()),
            "environment file": tried(lambda: open(ROOT + "/etc/plaita/environment").read()),
            "environment of the supervisor": tried(lambda: open(f"/proc/{os.getppid()}/environ").read()),
            "socket": tried(connect),
            "signal": tried(lambda: os.kill(os.getppid(), 0)),
        }

@get_default_registry().register
class Hang(Node):
    node_type = "hang"
    node_name = "Hang"
    def execute(self, execution):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        subprocess.Popen(["setsid", "sleep", "1000"])
        time.sleep(1000)
"""


def settings(root: Path, *lines: str, name: str = "environment") -> None:
    path = root / "etc/plaita" / name
    path.write_text("# of a test\n" + "".join(f"{line}\n" for line in lines), "utf-8")
    path.chmod(0o600)  # systemd reads it as root


def credential(root: Path, url: str) -> None:
    (root / "etc/credstore/plaita.redis_url").write_text(f"{url}\n", "utf-8")


def put(url: str, flow_id: str, node: dict[str, Any]) -> None:
    """start, this node, end (whose output is its result)."""
    start, end = {"type": "start", "id": "start", "next": node["id"]}, {"type": "end", "id": "end"}
    flow = {"flow_id": flow_id, "nodes": [start, node, {**end, "output": f"$NODE.{node['id']}"}]}
    with SyncRunner(url, name="test") as runner:
        expect(runner.run(flows.put(Keys(), flow_id, None, flow_hash(flow), jsontext.dumps(flow))))


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
        put(server.url, "hello", {"type": "assignment", "id": "greet", "output": "hello", "next": "end"})
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


def processes_of(user: str, words: str) -> list[str]:
    listed = subprocess.run(["ps", "-u", user, "-o", "args="], capture_output=True, text=True, check=False)
    return [line for line in listed.stdout.splitlines() if words in line]


def folder_of_executors(pid: int) -> str:
    """The temporary folder that the supervisor holds open, and locked."""
    held = (os.readlink(entry) for entry in Path(f"/proc/{pid}/fd").iterdir())
    return next(path for path in held if "plaita-executors-" in path)


def _cannot_be(user: str) -> str:
    """Why executors cannot be this user here; '' when they can."""
    if os.getuid() != 0 or shutil.which("setpriv") is None:
        return "only root can become another user, and setpriv must be installed"
    script = f"import sys; sys.path[:0] = {sys.path!r}\n"
    script += f"from plaita.executor.identity import drop_to_user; drop_to_user({user!r})"
    tried = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    return "" if tried.returncode == 0 else (tried.stderr.strip().splitlines() or ["it failed"])[-1]


def test_DECISIONS_34_the_rights_of_the_executor_user_drop_in_are_enough_and_its_wall_holds(
    root: Path, server: Server, manage: Manage
) -> None:
    """A node of another user works, is refused secrets and socket, is killed with all it started; nothing stays."""
    why = _cannot_be("nobody")
    if why:
        pytest.skip(f"CANNOT BE TRIED HERE: executors as nobody: {why}")
    for folder in (root, root / "run", root / "var", root / "var/lib"):
        folder.mkdir(exist_ok=True)
        folder.chmod(0o755)
    (root / "wall_nodes.py").write_text(WALL, "utf-8")
    where = (f"PYTHONPATH={root}", f"PLAITA_NODE_ENV_ROOT={root}", "PLAITA_PRELOAD=wall_nodes")
    settings(root, "PLAITA_EXECUTORS=1", "PLAITA_EXECUTOR_USER=nobody", "PLAITA_KILL_GRACE=0", *where)
    credential(root, server.url)
    drop_in = next(path for path in DROP_INS if path.name == "executor-user.conf")
    service = manage(Unit(PLAIN, drop_in)).start()
    service.wait_said("READY=1")
    put(server.url, "wall", {"type": "wall", "id": "n", "next": "end"})
    put(server.url, "hang", {"type": "hang", "id": "n", "next": "end", "timeout": 500})
    with Client(server.url) as client:
        found = client.wait(client.start("wall").execution_id, timeout=60)["output"]
        assert found == {"uid": pwd.getpwnam("nobody").pw_uid, "own folder": "yes", **dict.fromkeys(REFUSED, "refused")}
        assert client.wait(client.start("hang").execution_id, timeout=60)["status"] == "error"
    assert processes_of("nobody", "sleep 1000") == []
    folder = Path(folder_of_executors(service.pid))
    assert folder.exists()
    assert service.stop() == EXIT_CLEAN
    assert not folder.exists()
