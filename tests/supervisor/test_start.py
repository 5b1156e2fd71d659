"""Starting: wrong flags, taken names, stale sockets; each clear, with the exit code of DECISIONS 31."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hosts import World, until

from plaita.cli.control_client import ask
from plaita.errors import RefusedError
from plaita.store import registry
from plaita.supervisor.identity import registry_status
from plaita.testing.server import Server


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--executors", "0"], ["executors", "0"]),
        (["--executors", "many"], ["executors", "many"]),
        (["--lease-ttl-seconds", "4"], ["lease-ttl-seconds", "4", "5"]),
        (["--no-such-flag"], ["no-such-flag"]),
        (["--queue-name", ""], ["queue-name"]),
        (["--consumer-group", " "], ["consumer-group"]),
        (["--instance-id", ""], ["instance-id"]),
        (["--redis-url", "not a url"], ["redis-url"]),
        (["--isolate", "never"], ["isolate", "never"]),
        (["--socket", "/" + "x" * 120], ["socket"]),
        (["--preload", "no module"], ["preload"]),
        (["--disk-guard-path", "/no/such/folder"], ["disk-guard-path"]),
    ],
)
def test_C1_a_wrong_flag_is_named_with_its_value(world: World, flags: list[str], words: list[str]) -> None:
    supervisor = world.supervisor(*flags)
    assert supervisor.wait_exit() == 78
    for word in words:
        assert word in supervisor.text()
    assert "Traceback" not in supervisor.text()


def test_a_preload_that_does_not_import_ends_with_78_and_its_name(world: World) -> None:
    supervisor = world.supervisor(preload="no_such_module_anywhere")
    assert supervisor.wait_exit() == 78
    assert "no_such_module_anywhere" in supervisor.text()


def test_a_setting_that_does_nothing_in_this_build_says_so(world: World) -> None:
    supervisor = world.serving("--langfuse")
    assert "--langfuse: this build sends no traces" in supervisor.text()
    assert supervisor.stop() == 0


def test_a_stale_socket_is_replaced(world: World) -> None:
    path = str(world.folder / "one.sock")
    left = socket.socket(socket.AF_UNIX)
    left.bind(path)
    left.close()
    supervisor = world.serving()
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o660
    assert supervisor.stop() == 0
    assert not os.path.exists(path)


@pytest.mark.parametrize("kind", ["file", "folder", "link"])
def test_something_else_at_the_sockets_path_is_left_alone(world: World, kind: str) -> None:
    path, other = world.folder / "one.sock", world.folder / "precious"
    other.write_text("precious")
    if kind == "file":
        path.write_text("precious")
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to(other)
    supervisor = world.supervisor()
    assert supervisor.wait_exit() == 78
    assert "socket" in supervisor.text()
    assert other.read_text() == "precious"
    assert path.exists()


def test_a_live_supervisor_on_the_socket_is_untouched(world: World) -> None:
    first = world.serving()
    second = world.supervisor("--socket", first.socket, instance="two")
    assert second.wait_exit() == 78
    assert "live supervisor" in second.text()
    assert first.status() is not None
    assert first.stop() == 0


def test_a_live_supervisor_with_the_same_id_is_untouched(world: World) -> None:
    first = world.serving()
    second = world.supervisor("--socket", str(world.folder / "other.sock"))
    assert second.wait_exit() == 78
    assert "instance-id" in second.text()
    status = first.status()
    assert status is not None
    assert status["registry_registered"]
    world.chain("f", {"type": "mock", "id": "a", "value": 1})
    assert world.run("f")["status"] == "completed"


def test_the_same_id_after_a_kill_is_taken_over_at_once(world: World) -> None:
    world.serving().kill()
    second = world.serving()
    assert "registry.namesake_dead" in second.text()


def test_a_wrong_password_is_a_fast_clear_failure(world: World, plaita_server_process: Server) -> None:
    url = f"unix://{plaita_server_process.socket_path}?password=S3cr3t-marker"
    supervisor = world.supervisor("--redis-url", url)
    assert supervisor.wait_exit() == 78
    assert "password" in supervisor.text()
    assert "S3cr3t-marker" not in supervisor.text()


def test_an_embedded_folder_that_cannot_be_written(world: World) -> None:
    blocked = world.folder / "file"
    blocked.write_text("x")
    supervisor = world.supervisor("--embedded", str(blocked / "data"))
    assert supervisor.wait_exit() == 78
    assert "file" in supervisor.text()
    assert "Traceback" not in supervisor.text()


EVERY_50_MS = [pytest.param(ms, marks=pytest.mark.long) for ms in range(0, 2000, 50)]


def _registered(world: World) -> str | None:
    """The status that the registry shows of instance ``one``."""
    record = world.do(registry.get(world.keys, "one"))
    return None if record is None else registry_status(record.record)


@pytest.mark.parametrize("delay_ms", [5, 150, 300, 450, *EVERY_50_MS])
def test_sigterm_at_any_moment_of_the_start_ends_clean(world: World, delay_ms: int) -> None:
    """KNOWN-TROUBLE 49. Started by exec: the moments before the first line of plaita count too."""
    supervisor = world.supervisor(preload="trouble", through=["/usr/bin/env"])
    time.sleep(delay_ms / 1000)
    begun = "config.effective" in supervisor.text()
    supervisor.signal(signal.SIGTERM)
    code = supervisor.wait_exit()
    # Before there is a handler, the signal ends the process as any other; systemd takes both for a clean end.
    assert code == 0 or (code == -signal.SIGTERM and not begun)
    assert not supervisor.tree()
    assert not os.path.exists(supervisor.socket)
    assert _registered(world) in (None, "stopped")


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


UNSHARE = ["unshare", "--pid", "--fork", "--mount-proc"]


@pytest.mark.skipif(subprocess.run([*UNSHARE, "true"], check=False).returncode != 0, reason="no pid namespaces here")
@pytest.mark.parametrize("moment", ["handlers", "state=running"])
def test_as_the_first_process_of_a_container_it_hears_a_stop_at_once(world: World, moment: str) -> None:
    """KNOWN-TROUBLE 49: the kernel ignores signals that such a process has no handler for."""
    model = world.supervisor("--check", through=["/usr/bin/env"])
    words = model.process.args[model.process.args.index("run") :]  # type: ignore[union-attr,arg-type,operator]
    command = [*UNSHARE, sys.executable, "-m", "plaita.cli.supervisor_entry", *words[:-1]]  # type: ignore[index]
    log = world.folder / "first.log"
    with open(log, "wb") as file:
        process = subprocess.Popen(command, env=model.environment, stdout=file, stderr=file)
    try:
        [first] = until(lambda: _children(process.pid), "the process")

        def ready() -> bool:
            if moment != "handlers":
                return moment in log.read_text()
            caught = Path(f"/proc/{first}/status").read_text().partition("SigCgt:")[2].split()[0]
            return bool(int(caught, 16) & 1 << signal.SIGTERM - 1)

        until(ready, moment)
        os.kill(first, signal.SIGTERM)
        assert process.wait(timeout=60) == 0
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("mark", ["config.effective", "template.started", "template.ready", "supervisor.state"])
def test_a_stop_after_each_part_of_the_start_ends_clean(world: World, mark: str) -> None:
    supervisor = world.supervisor(preload="trouble")
    until(lambda: mark in supervisor.text(), mark)
    supervisor.signal(signal.SIGTERM)
    supervisor.signal(signal.SIGTERM)  # nothing is at work: forced or not, it is clean
    assert supervisor.wait_exit() == 0
    assert not supervisor.tree()
    assert not os.path.exists(supervisor.socket)
    assert _registered(world) in (None, "stopped")


def test_stops_that_rain_down_to_the_very_end_change_no_exit_code(world: World) -> None:
    """The loop takes its handlers along when it closes; the process lives a little longer."""
    supervisor = world.serving(executors=1)
    while supervisor.code is None:
        with contextlib.suppress(ProcessLookupError):  # it has ended this moment
            supervisor.signal(signal.SIGTERM)
        time.sleep(0.0005)
    assert supervisor.code == 0


def test_a_stop_while_the_embedded_server_is_opened_takes_it_along(world: World) -> None:
    folder = world.folder / "data"
    supervisor = world.supervisor("--embedded", str(folder))
    until(lambda: (folder / "users.lock").exists(), "the folder in use")
    supervisor.signal(signal.SIGTERM)
    assert supervisor.wait_exit() == 0
    assert not (folder / "server.pid").exists()
    assert not supervisor.tree()


@pytest.mark.parametrize(
    "closed", [(0, 1, 2), *(pytest.param((number,), marks=pytest.mark.long) for number in (0, 1, 2))]
)
def test_started_without_standard_descriptors(world: World, closed: tuple[int, ...]) -> None:
    redirections = " ".join(f"{fd}>&-" if fd else "0<&-" for fd in closed)
    first = world.supervisor(instance="probe")
    command = [sys.executable, "-m", "plaita.cli.supervisor", "run", *first.process.args[4:]]  # type: ignore[index]
    first.wait_serving()
    first.stop()
    quoted = " ".join(f"'{word}'" for word in command)
    process = subprocess.Popen(["sh", "-c", f"exec {quoted} {redirections}"], env=first.environment)
    try:
        until(lambda: first.status() is not None and first.status()["serving"], "serving")  # type: ignore[index]
        world.chain("f", {"type": "mock", "id": "a", "value": 1})
        assert world.run("f")["status"] == "completed"
    finally:
        process.terminate()
        assert process.wait(timeout=20) == 0


def test_rude_clients_of_the_socket_harm_nobody(world: World) -> None:
    supervisor = world.serving()
    rude = []
    for _ in range(40):
        client = socket.socket(socket.AF_UNIX)
        client.connect(supervisor.socket)
        rude.append(client)
    rude[0].sendall(b'{"command": ')
    rude[1].sendall(b"\xff\xfe\n")
    rude[2].settimeout(0.2)
    with pytest.raises((TimeoutError, BrokenPipeError, ConnectionResetError)):
        rude[2].sendall(b"x" * 100_000_000)
    for _ in range(200):
        try:
            rude[3].sendall(b'{"command": "status"}\n')
            rude[3].settimeout(0.2)
        except OSError:
            break
    assert ask(supervisor.socket, "status")["serving"]
    with pytest.raises(RefusedError, match="there are"):
        ask(supervisor.socket, "explode")
    for client in rude:
        client.close()
    world.chain("f", {"type": "mock", "id": "a", "value": 1})
    assert world.run("f")["status"] == "completed"


def test_the_process_has_a_title_and_its_children_have_theirs(world: World) -> None:
    supervisor = world.serving(executors=2)
    titles = {Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").decode() for pid in supervisor.tree()}
    assert any(title.startswith("plaita: template") for title in titles)
    assert any(title.startswith("plaita: executor 0") for title in titles)
    own = Path(f"/proc/{supervisor.pid}/cmdline").read_bytes().decode()
    assert own.startswith("plaita: supervisor one running")
