"""What the tests of ``plaita doctor`` share: a host that decides no test, rows by hand, the commands a server got."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from plaita.cli import doctor_host
from plaita.policy.doctor import server_load
from plaita.store import registry
from plaita.store.embedded import Embedded
from plaita.store.keys import Keys
from plaita.store.runner_sync import SyncRunner

Run = Callable[..., Any]
Do = Callable[..., Any]
HOUR_MS = 3_600_000


@pytest.fixture
def quiet_host(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
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
