from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from plaita.unix.limits import problems
from plaita.unix.notify import Notifier


@pytest.fixture(params=["path", "abstract"])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[socket.socket, str]]:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    if request.param == "path":
        address = str(tmp_path / "notify")
        sock.bind(address)
    else:
        address = f"@plaita-test-{os.urandom(6).hex()}"
        sock.bind("\0" + address[1:])
    sock.settimeout(20)
    yield sock, address
    sock.close()


def test_what_is_said(manager: tuple[socket.socket, str]) -> None:
    sock, address = manager
    notifier = Notifier({"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "3000000", "WATCHDOG_PID": str(os.getpid())})
    assert notifier.active
    assert notifier.watchdog_ms == 3000

    def said() -> list[str]:
        return sock.recv(4096).decode().splitlines()

    assert notifier.ready("running\n5/8")
    assert said() == ["READY=1", "STATUS=running 5/8", f"MAINPID={os.getpid()}"]
    assert notifier.status("é")
    assert said() == ["STATUS=é"]
    assert notifier.stopping()
    assert said() == ["STOPPING=1"]
    assert notifier.watchdog()
    assert said() == ["WATCHDOG=1"]
    assert notifier.extend_timeout(1500)
    assert said() == ["EXTEND_TIMEOUT_USEC=1500000"]
    assert notifier.reloading()
    first, second = said()
    assert first == "RELOADING=1"
    assert int(second.removeprefix("MONOTONIC_USEC=")) > 0
    sock.close()
    assert not notifier.watchdog()
    notifier.close()
    assert not notifier.active


@pytest.mark.parametrize("environment", [{}, {"NOTIFY_SOCKET": ""}, {"NOTIFY_SOCKET": "vsock:1:2"}])
def test_nobody_listens(environment: dict[str, str]) -> None:
    notifier = Notifier(environment)
    assert not notifier.active
    assert not notifier.ready()


@pytest.mark.parametrize(
    ("environment", "wanted"),
    [
        ({}, None),
        ({"WATCHDOG_USEC": "x"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "1500"}, 1),
        ({"WATCHDOG_USEC": "2000000", "WATCHDOG_PID": "1"}, None),
    ],
)
def test_the_watchdog_of_the_manager(environment: dict[str, str], wanted: int | None) -> None:
    assert Notifier(environment).watchdog_ms == wanted


def test_limits_too_low_are_named() -> None:
    assert problems(1) == []
    found = problems(10_000_000)
    assert any("open files" in line and "would do" in line for line in found)
