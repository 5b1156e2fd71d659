"""The control socket by itself: who may have the path, what rude clients get, and a file that is deleted (61, 62)."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import socket
import stat
import tempfile
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
import uvloop

from plaita.errors import ConfigError
from plaita.supervisor import control
from plaita.supervisor.control import ControlServer, listen


@pytest.fixture
def folder() -> Iterator[Path]:
    """Short: a socket's path has 107 bytes at most."""
    with tempfile.TemporaryDirectory(prefix="pl-", dir="/tmp") as made:
        yield Path(made)


def mode_of(path: Path) -> int:
    return stat.S_IMODE(os.lstat(path).st_mode)


def connects(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as client:
        return client.connect_ex(str(path)) == 0


# -- the path ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077, 0o777], ids=oct)
def test_62_the_mode_is_0660_whatever_the_umask_is(folder: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        sock = listen(str(folder / "s"))
    finally:
        os.umask(before)
    with sock:
        assert mode_of(folder / "s") == 0o660
        assert connects(folder / "s")


def test_62_it_is_never_open_to_others_not_even_as_it_is_made(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    class Watched(socket.socket):
        def bind(self, address: Any) -> None:
            super().bind(address)
            seen.append(mode_of(Path(address)))

    monkeypatch.setattr(control.socket, "socket", Watched)
    before = os.umask(0)
    try:
        listen(str(folder / "s")).close()
    finally:
        os.umask(before)
    assert seen == [0o660]


def test_61_of_many_that_start_at_once_on_a_stale_socket_one_has_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each waits between its look and its bind, so that without order all of them would find the same stale one."""
    make_room, looking = control._make_room, threading.Barrier(4)

    def slowly(path: str) -> None:
        make_room(path)
        with contextlib.suppress(threading.BrokenBarrierError):
            looking.wait(0.3)

    monkeypatch.setattr(control, "_make_room", slowly)
    path = folder / "s"
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(path))
    got: list[socket.socket] = []
    faults: list[str] = []

    def start() -> None:
        try:
            got.append(listen(str(path)))
        except ConfigError as error:
            faults.extend(error.faults)

    threads = [threading.Thread(target=start) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(got) == 1
    assert len(faults) == 3
    assert all("live supervisor" in fault for fault in faults)
    assert connects(path)
    assert os.listdir(folder) == ["s"], "no lock file is left"
    got[0].close()


def test_61_a_live_one_whose_queue_is_full_is_live(folder: Path) -> None:
    path = str(folder / "s")
    with socket.socket(socket.AF_UNIX) as live, socket.socket(socket.AF_UNIX) as first:
        live.bind(path)
        live.listen(0)
        first.connect(path)
        with pytest.raises(ConfigError, match="live supervisor"):
            listen(path)
    assert os.path.exists(path)


def test_a_folder_is_made_and_one_that_cannot_be_is_named(folder: Path) -> None:
    listen(str(folder / "a" / "b" / "s")).close()
    assert stat.S_IMODE(os.stat(folder / "a" / "b").st_mode) & 0o007 == 0
    (folder / "file").write_text("")
    with pytest.raises(ConfigError, match=r"file/s.*--socket"):
        listen(str(folder / "file" / "s"))
    with pytest.raises(ConfigError, match="path too long"):
        listen(str(folder / ("x" * 120)))


def test_somebody_who_holds_the_folders_lock_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "LOCK_S", 0.05)
    descriptor = os.open(folder, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    with pytest.raises(ConfigError, match="lock"):
        listen(str(folder / "s"))
    os.close(descriptor)
    listen(str(folder / "s")).close()


# -- serving ------------------------------------------------------------------------------------------

Run = Callable[[Callable[[], Coroutine[Any, Any, None]]], None]


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    """Runs a coroutine on each kind of loop; what the loop has to complain of fails the test."""
    complaints: list[dict[str, Any]] = []

    def on_this(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
        with asyncio.Runner(loop_factory=request.param) as runner:
            runner.get_loop().set_exception_handler(lambda loop, context: complaints.append(context))
            runner.run(main())
        assert complaints == []

    return on_this


async def status(request: dict[str, Any]) -> dict[str, Any]:
    return {"ok": True, "given": request}


async def broken(request: dict[str, Any]) -> dict[str, Any]:
    raise RuntimeError("no facts")


@contextlib.asynccontextmanager
async def serving(path: Path, **handlers: Callable[[dict[str, Any]], Awaitable[Any]]) -> AsyncIterator[ControlServer]:
    server = ControlServer(listen(str(path)), {"status": status, "broken": broken} | handlers)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


async def asked(path: Path, line: bytes) -> dict[str, Any]:
    reader, writer = await asyncio.open_unix_connection(str(path))
    writer.write(line)
    answer = await reader.readline()
    writer.close()
    return json.loads(answer)


async def eventually(condition: Callable[[], bool]) -> None:
    for _ in range(1000):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("never came")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"\n", "the line is"),
        (b"status\n", "the line is"),
        (b"\xff\xfe\n", "the line is"),
        (b"[" * 60_000 + b"\n", "the line is"),
        (b'{"command": "status"} x\n', "the line is"),
        (b"[]\n", "a request is an object"),
        (b"null\n", "a request is an object"),
        (b"{}\n", "a request is an object"),
        (b'{"command": 7}\n', "a request is an object"),
        (b'{"command": ["status"]}\n', "a request is an object"),
        (b'{"command": "explode\\u001b[2J"}\n', "there are: broken, status"),
        (b'{"command": "broken"}\n', "no facts"),
        (b"x" * 70_000 + b"\n", "65536 bytes"),
    ],
    ids=lambda given: repr(given)[:30],
)
def test_62_what_is_no_request_is_answered_in_words(folder: Path, line: bytes, words: str, run: Run) -> None:
    async def main() -> None:
        async with serving(folder / "s"):
            answer = await asked(folder / "s", line)
            assert answer["ok"] is False
            assert words in answer["error"]
            assert "\x1b" not in answer["error"]
            assert (await asked(folder / "s", b'{"command": "status", "n": 1}\n'))["given"]["n"] == 1

    run(main)


def test_62_a_thousand_silent_clients_keep_nobody_out(folder: Path, run: Run) -> None:
    async def main() -> None:
        async with serving(folder / "s") as server:
            silent = []
            for number in range(1000):
                reader, writer = await asyncio.open_unix_connection(str(folder / "s"))
                writer.write(b'{"command": ' if number % 2 else b"")
                silent.append((reader, writer))
                if number % 100 == 99:
                    assert (await asked(folder / "s", b'{"command": "status"}\n'))["ok"]
            await eventually(lambda: server._connections <= control.MAX_CONNECTIONS)
            for _, writer in silent:
                writer.close()
            await eventually(lambda: server._connections == 0)
            assert not server._waiting

    run(main)


def test_62_clients_that_are_being_served_are_not_let_go(
    folder: Path, monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    monkeypatch.setattr(control, "MAX_CONNECTIONS", 2)

    async def main() -> None:
        opened = asyncio.Event()

        async def waits(request: dict[str, Any]) -> dict[str, Any]:
            await opened.wait()
            return {"ok": True}

        async with serving(folder / "s", waits=waits) as server:
            served = [asyncio.create_task(asked(folder / "s", b'{"command": "waits"}\n')) for _ in range(2)]
            await eventually(lambda: server._connections == 2 and not server._waiting)
            assert "too many" in (await asked(folder / "s", b'{"command": "status"}\n'))["error"]
            opened.set()
            assert [answer["ok"] for answer in await asyncio.gather(*served)] == [True, True]

    run(main)


def test_62_silence_half_a_line_and_an_unread_answer_have_an_end(
    folder: Path, monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    monkeypatch.setattr(control, "IDLE_S", 0.1)
    monkeypatch.setattr(control, "WRITE_S", 0.1)

    async def main() -> None:
        async def large(request: dict[str, Any]) -> dict[str, Any]:
            return {"ok": True, "text": "x" * 8_000_000}

        async with serving(folder / "s", large=large) as server:
            clients = []
            for line in (b"", b'{"command"', b'{"command": "large"}\n'):
                client = socket.socket(socket.AF_UNIX)
                client.connect(str(folder / "s"))
                client.sendall(line)
                clients.append(client)
            await eventually(lambda: server._connections > 0)
            await eventually(lambda: server._connections == 0)
            for client in clients:
                client.close()

    run(main)


def test_62_who_leaves_before_the_answer_is_nobodys_trouble(folder: Path, run: Run) -> None:
    async def main() -> None:
        asked_for, opened = asyncio.Event(), asyncio.Event()

        async def waits(request: dict[str, Any]) -> dict[str, Any]:
            asked_for.set()
            await opened.wait()
            await asyncio.sleep(0.02)  # the loop turns, as in every real command
            return {"ok": True}

        async with serving(folder / "s", waits=waits) as server:
            client = socket.socket(socket.AF_UNIX)
            client.connect(str(folder / "s"))
            client.sendall(b'{"command": "waits"}\n' * 5)
            await asked_for.wait()
            client.close()
            opened.set()
            await eventually(lambda: server._connections == 0)

    run(main)


def test_62_a_flood_of_questions_that_nobody_waits_for_keeps_nobody_out(folder: Path, run: Run) -> None:
    async def main() -> None:
        async def slowly(request: dict[str, Any]) -> dict[str, Any]:
            await asyncio.sleep(0.001)
            return {"ok": True}

        async with serving(folder / "s", status=slowly) as server:
            rude = []
            for number in range(300):
                _, writer = await asyncio.open_unix_connection(str(folder / "s"))
                writer.write(b'{"command": "status"}\n' * 50)
                rude.append(writer)
                if number % 50 == 49:
                    assert (await asked(folder / "s", b'{"command": "status"}\n'))["ok"]
            for writer in rude:
                writer.close()
            await eventually(lambda: server._connections == 0)

    run(main)


# -- the file that is deleted -------------------------------------------------------------------------


def test_61_a_deleted_socket_is_made_again(folder: Path, monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    monkeypatch.setattr(control, "LOOK_S", 0.02)
    path = folder / "in" / "s"

    async def main() -> None:
        async with serving(path):
            reader, writer = await asyncio.open_unix_connection(str(path))
            for whole_folder in (False, True):
                path.unlink()
                if whole_folder:
                    path.parent.rmdir()
                await eventually(lambda: path.exists() and connects(path))
                assert mode_of(path) == 0o660
                assert (await asked(path, b'{"command": "status"}\n'))["ok"]
            writer.write(b'{"command": "status"}\n')
            assert json.loads(await reader.readline())["ok"], "who was connected stays"
            writer.close()
        assert not path.exists()

    run(main)


def test_61_what_another_has_put_there_is_left_alone_and_taken_once_it_is_stale(
    folder: Path, monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    monkeypatch.setattr(control, "LOOK_S", 0.02)
    tried: list[str] = []

    def counted(path: str) -> socket.socket:
        tried.append(path)
        return listen(path)

    monkeypatch.setattr(control, "listen", counted)
    path = folder / "s"

    async def main() -> None:
        async with serving(path):
            path.unlink()
            path.write_text("precious")
            before = len(tried)
            await eventually(lambda: len(tried) > before + 2)
            assert path.read_text() == "precious"
            path.unlink()
            with socket.socket(socket.AF_UNIX) as other:
                other.bind(str(path))
                other.listen()
                inode = os.lstat(path).st_ino
                before = len(tried)
                await eventually(lambda: len(tried) > before + 2)
                assert os.lstat(path).st_ino == inode
            await eventually(lambda: os.path.exists(path) and connects(path))
            assert (await asked(path, b'{"command": "status"}\n'))["ok"]

    run(main)


def test_61_at_the_end_only_the_own_socket_is_removed(folder: Path, run: Run) -> None:
    path = folder / "s"

    async def main() -> None:
        async with serving(path):
            path.unlink()
            path.write_text("precious")
        assert path.read_text() == "precious"

    run(main)
