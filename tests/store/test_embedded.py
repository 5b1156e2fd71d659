"""The embedded server: shared by its folder, outlives a killed user, ended by the last clean one (DECISIONS 35)."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from plaita.errors import InputError, UnreachableError
from plaita.store import embedded, server
from plaita.store.embedded import Embedded
from plaita.store.keys import Keys
from plaita.store.runner_sync import SyncRunner
from plaita.testing.server import raw

USER = """
import sys
from plaita.store.embedded import Embedded
hold = Embedded.open(sys.argv[1])
print(hold.pid, flush=True)
sys.stdin.readline()
hold.close()
print("closed", flush=True)
"""


def another_user(folder: Path) -> tuple[subprocess.Popen[str], int]:
    command = [sys.executable, "-c", USER, str(folder)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, int(process.stdout.readline())


def alive(pid: int) -> bool:
    return Path(f"/proc/{pid}/cwd").exists()


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.01)


def set_and_get(url: str, value: str | None = None) -> bytes | None:
    with SyncRunner(url) as runner:
        if value is not None:
            runner.do(raw("SET", "k", value))
        found: bytes | None = runner.do(raw("GET", "k"))
        return found


def test_first_starts_second_joins_last_stops(tmp_path: Path):
    first = Embedded.open(tmp_path / "d")
    second = Embedded.open(tmp_path / "d")
    assert (first.url, first.pid) == (second.url, second.pid)
    set_and_get(first.url, "1")
    first.close()
    first.close()
    assert alive(second.pid)
    assert set_and_get(second.url) == b"1"
    second.close()
    assert not alive(second.pid)
    assert not (tmp_path / "d" / "valkey.sock").exists()
    with Embedded.open(tmp_path / "d") as third:
        assert set_and_get(third.url) == b"1", "it was kept on disk"


def test_it_outlives_a_killed_user_and_other_processes_share_it(tmp_path: Path):
    process, pid = another_user(tmp_path)
    process.kill()
    process.wait()
    assert alive(pid)
    with Embedded.open(tmp_path) as hold:
        assert hold.pid == pid
        other, same = another_user(tmp_path)
        assert same == pid
        other.communicate("\n", timeout=30)
        assert alive(pid), "it is still used here"
    assert not alive(pid), "the killed user holds nothing"


def test_many_at_once_start_one(tmp_path: Path):
    command = [sys.executable, "-c", USER, str(tmp_path)]
    pipe = subprocess.PIPE
    users = [subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) for _ in range(4)]
    pids = {int(user.stdout.readline()) for user in users if user.stdout}
    assert len(pids) == 1
    for user in users:
        out, _ = user.communicate("\n", timeout=30)
        assert out == "closed\n"
    assert not alive(pids.pop())


def test_a_killed_server_is_started_again_with_its_data(tmp_path: Path):
    with Embedded.open(tmp_path) as hold:
        set_and_get(hold.url, "kept")
        with SyncRunner(hold.url) as runner:
            runner.do(raw("WAITAOF", 1, 0, 5000))
        os.kill(hold.pid, signal.SIGKILL)
        wait_for(lambda: not alive(hold.pid))
        with Embedded.open(tmp_path) as again:
            assert again.pid != hold.pid
            assert set_and_get(again.url) == b"kept"
    assert not alive(again.pid), "the last one stops the server that runs now, not only the one it met"


def test_a_stale_pid_of_somebody_else_is_not_taken_for_the_server(tmp_path: Path):
    """The pid in the folder is used again by another process, which must neither be trusted nor stopped."""
    (tmp_path / "server.pid").write_text(str(os.getpid()))
    (tmp_path / "valkey.sock").touch()
    with Embedded.open(tmp_path) as hold:
        assert hold.pid != os.getpid()
    (tmp_path / "server.pid").write_text("no number")
    with Embedded.open(tmp_path):
        pass


def test_private_files_and_a_server_on_no_port(tmp_path: Path):
    with Embedded.open(tmp_path / "d") as hold:
        assert stat.S_IMODE((tmp_path / "d").stat().st_mode) == 0o700
        for name in ("password", "server.conf", "server.log"):
            assert stat.S_IMODE((tmp_path / "d" / name).stat().st_mode) == 0o600
        with SyncRunner(hold.url) as runner:
            settings = runner.do(raw("CONFIG", "GET", "*"))
            found = dict(zip(settings[::2], settings[1::2], strict=True))
        assert (found[b"port"], found[b"appendonly"], found[b"appendfsync"]) == (b"0", b"yes", b"everysec")
        assert (tmp_path / "d" / "password").read_text() not in (tmp_path / "d" / "server.log").read_text()


def test_without_the_password_nothing_is_served(tmp_path: Path):
    with Embedded.open(tmp_path) as hold:
        bare = hold.url.partition("?")[0]
        with SyncRunner(bare) as runner:
            answer = runner.run(server.ping(Keys()))
        assert answer.auth is True  # type: ignore[union-attr]
        with SyncRunner(bare + "?password=wrong-one") as runner:
            answer = runner.run(server.ping(Keys()))
        assert answer.auth is True  # type: ignore[union-attr]
        assert "wrong-one" not in str(answer)


def test_the_server_inherits_no_mark_no_descriptor_no_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PLAITA_TREE", "mark")
    monkeypatch.setenv("PLAITA_REDIS_URL", "redis://:secret@h")
    read_end, write_end = os.pipe()
    os.set_inheritable(write_end, True)
    try:
        with Embedded.open(tmp_path) as hold:
            environment = Path(f"/proc/{hold.pid}/environ").read_bytes()
            assert b"PLAITA" not in environment
            assert os.getsid(hold.pid) == hold.pid
            held = {os.readlink(f"/proc/{hold.pid}/fd/{name}") for name in os.listdir(f"/proc/{hold.pid}/fd")}
            assert os.readlink(f"/proc/self/fd/{write_end}") not in held
            assert not any(name.endswith(".lock") for name in held)
    finally:
        os.close(read_end)
        os.close(write_end)


@pytest.mark.parametrize("name", ["d" * 60 + "/" + "e" * 60, "with space", "quote\"'s", "ünï", "per%cent?#"])
def test_folders_of_any_name(tmp_path: Path, name: str):
    for _ in range(2):
        with Embedded.open(tmp_path / name) as hold:
            assert set_and_get(hold.url, "1") == b"1"
            assert len(os.fsencode(hold.url.partition("?")[0])) < 400
    assert not alive(hold.pid)


def test_a_long_folder_cleans_its_short_one(tmp_path: Path):
    folder = tmp_path / ("d" * 100)
    with Embedded.open(folder):
        short = Path((folder / "socket.path").read_text()).parent
        assert short.is_dir()
        assert stat.S_IMODE(short.stat().st_mode) == 0o700
    assert not short.exists()


def test_what_is_no_folder(tmp_path: Path):
    (tmp_path / "file").touch()
    for place in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(InputError, match="is a file"):
            Embedded.open(place)


@pytest.mark.skipif(os.geteuid() != 0, reason="drops root to see a folder that cannot be written")
def test_a_folder_that_cannot_be_written():
    program = (
        "import sys, os; from plaita.store.embedded import Embedded; from plaita.errors import InputError\n"
        "os.setgid(65534); os.setuid(65534)\n"
        "try: Embedded.open(sys.argv[1])\n"
        "except InputError as error: print(error)"
    )

    def message(folder: str) -> str:
        command = [sys.executable, "-c", program, folder]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        assert "cannot be written" in message(folder)
        assert "cannot be made" in message(f"{folder}/new")


def test_a_server_that_ends_at_once_shows_its_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(embedded, "_settings", lambda *_: "no-such-setting 1\n")
    with pytest.raises(UnreachableError, match="no-such-setting"):
        Embedded.open(tmp_path)
    monkeypatch.undo()
    with Embedded.open(tmp_path):
        pass
