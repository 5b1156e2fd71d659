"""A host name with several addresses, IPv6, time limits from the URL, unix sockets that do not open: both runners."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import uvloop

from plaita.store.call import Answer, Unavailable, Unknown, Value
from plaita.store.dialling import NotReached, share_s, targets, telling
from plaita.store.endpoint import parse_endpoint
from plaita.store.runner_async import AsyncRunner
from plaita.store.runner_sync import SyncRunner
from plaita.store.wire import GreetingError
from plaita.testing.server import Server, raw

Run = Callable[..., Answer[Any]]
SECRET = "S3cr3t-marker"


def _sync(url: str, *words: str) -> Answer[Any]:
    with SyncRunner(url) as runner:
        return runner.run(raw(*(words or ("PING",))))


async def _ask(url: str, *words: str) -> Answer[Any]:
    runner = AsyncRunner(url)
    try:
        return await runner.run(raw(*(words or ("PING",))))
    finally:
        await runner.close()


def _asyncio(url: str, *words: str) -> Answer[Any]:
    return asyncio.run(_ask(url, *words))


def _uvloop(url: str, *words: str) -> Answer[Any]:
    return uvloop.run(_ask(url, *words))


@pytest.fixture(params=[_sync, _asyncio], ids=["sync", "asyncio"])
def run(request: pytest.FixtureRequest) -> Run:
    """uvloop resolves names by itself, where a test cannot reach."""
    return request.param  # type: ignore[no-any-return]


@pytest.fixture(params=[_sync, _asyncio, _uvloop], ids=["sync", "asyncio", "uvloop"])
def any_run(request: pytest.FixtureRequest) -> Run:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture
def silent() -> Iterator[int]:
    """A port that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


def resolve_to(monkeypatch: pytest.MonkeyPatch, *ports: int) -> None:
    """``several.example`` has these addresses (ports of this host stand for them)."""
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port)) for port in ports]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)


def test_each_address_is_tried(plaita_server: Server, silent: int, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """One refuses, one is silent, one serves: found within one attempt."""
    resolve_to(monkeypatch, 1, silent, plaita_server.listen())
    url = f"redis://:{plaita_server.password}@several.example?socket_connect_timeout=1"
    assert run(url) == Value(b"PONG")


def test_what_a_server_said_is_told_rather_than_that_another_is_away(
    plaita_server: Server, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolve_to(monkeypatch, plaita_server.listen(), 1)
    answer = run(f"redis://:{SECRET}@several.example")
    assert isinstance(answer, Unavailable)
    assert answer.auth
    assert "WRONGPASS" in answer.error
    assert SECRET not in answer.error


def test_a_name_that_nobody_knows(any_run: Run) -> None:
    answer = any_run(f"redis://:{SECRET}@no-such-host.invalid?socket_connect_timeout=5")
    assert isinstance(answer, Unavailable)
    assert "the name 'no-such-host.invalid' cannot be resolved" in answer.error or "not resolved" in answer.error
    assert SECRET not in answer.error


def test_ipv6(plaita_server: Server, any_run: Run) -> None:
    port = plaita_server.listen()
    try:
        socket.create_connection(("::1", port), timeout=1).close()
    except OSError as error:
        pytest.skip(f"no IPv6 on this host: {error}")
    assert any_run(f"redis://:{plaita_server.password}@[::1]:{port}/1") == Value(b"PONG")


def test_a_server_that_takes_the_connection_and_says_nothing(silent: int, any_run: Run) -> None:
    answer = any_run(f"redis://127.0.0.1:{silent}?socket_connect_timeout=0.2")
    assert isinstance(answer, Unavailable)
    assert "no answer within 0." in answer.error


def test_the_time_for_an_answer_stands_in_the_url(plaita_server: Server, any_run: Run) -> None:
    """Its own limit would be 5 s; the server sleeps for longer than any limit here."""
    plaita_server.do("DEL", "nothing")
    url = f"{plaita_server.url}&socket_timeout=0.2"
    answer = any_run(url, "BLPOP", "nothing", "20")
    assert isinstance(answer, Unknown)
    assert "no answer within 0.2 s" in answer.error


# -- unix sockets -------------------------------------------------------------------------------------


def test_a_unix_socket_that_is_not_there(tmp_path: Path, any_run: Run) -> None:
    answer = any_run(f"unix://u:{SECRET}@{tmp_path}/none.sock")
    assert answer == Unavailable(f"unix://{tmp_path}/none.sock: there is no such socket")


def test_a_unix_socket_where_nobody_listens(any_run: Run, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(f"{tmp_path}/old.sock")
    assert any_run(f"unix://{tmp_path}/old.sock") == Unavailable(
        f"unix://{tmp_path}/old.sock: nobody listens on the socket"
    )


def test_a_unix_socket_that_this_user_may_not_use(plaita_server: Server) -> None:
    """As nobody, where this test may become nobody (DECISIONS 46)."""
    if os.geteuid() != 0:
        pytest.skip("only root can become another user here")
    script = (
        "import os, sys\n"
        "from plaita.store.runner_sync import SyncRunner\n"
        "from plaita.testing.server import raw\n"
        "os.setgid(65534); os.setuid(65534)\n"
        "print(SyncRunner(sys.argv[1]).run(raw('PING')))\n"
    )
    command = [sys.executable, "-c", script, plaita_server.url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert "permission denied" in done.stdout
    assert plaita_server.password not in done.stdout


# -- pure ---------------------------------------------------------------------------------------------


def test_addresses_share_the_time_and_each_comes_once() -> None:
    assert share_s(3.0, 3) == 1.0
    assert share_s(-1.0, 2) > 0
    one = (socket.AF_INET, 1, 6, "", ("10.0.0.1", 1))
    two = (socket.AF_INET6, 1, 6, "", ("::1", 1, 0, 0))
    assert targets([one, two, one]) == [(socket.AF_INET, ("10.0.0.1", 1)), (socket.AF_INET6, ("::1", 1, 0, 0))]


def test_the_failure_that_says_more() -> None:
    endpoint = parse_endpoint("redis://h")
    away, gone = NotReached(endpoint, "away"), NotReached(endpoint, "gone")
    said = GreetingError(Unavailable("READONLY"))
    assert telling(None, away) is away
    assert telling(away, gone) is gone
    assert telling(said, away) is said
    assert telling(away, said) is said


def test_many_sockets_are_not_left_open(silent: int, any_run: Run) -> None:
    """Twenty connections that do not come about leave no descriptor."""
    any_run(f"redis://127.0.0.1:{silent}?socket_connect_timeout=0.05")
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        any_run(f"redis://127.0.0.1:{silent}?socket_connect_timeout=0.05")
        any_run("redis://127.0.0.1:1?socket_connect_timeout=0.05")
    deadline = time.monotonic() + 10
    while len(os.listdir("/proc/self/fd")) > before and time.monotonic() < deadline:
        time.sleep(0.05)
    assert len(os.listdir("/proc/self/fd")) <= before
