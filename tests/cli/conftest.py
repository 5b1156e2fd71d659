"""One embedded server for the whole directory; each test has queue and keys of its own."""

from __future__ import annotations

import copy
import io
import json
import os
import shutil
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from doctor_world import quiet_host, registered  # noqa: F401

from plaita.cli import exits, main, supervisor
from plaita.store.call import Call
from plaita.store.embedded import Embedded
from plaita.store.keys import Keys
from plaita.store.runner_sync import SyncRunner

_HELLO = {
    "nodes": [
        {"type": "start", "id": "begin", "next": "greet"},
        {"type": "assignment", "id": "greet", "output": {"text": "hello {% $INPUT.name %}"}, "next": "end"},
        {"type": "end", "id": "end", "output": "$NODE.greet"},
    ]
}


@dataclass(frozen=True, slots=True)
class Result:
    """What a command did: exit code and both streams."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one document on stdout; fails when there is more or less than one line."""
        [line] = self.out.splitlines()
        return json.loads(line)


Run = Callable[..., Result]


@pytest.fixture
def hello() -> dict[str, Any]:
    """A flow that greets ``$INPUT.name``."""
    return copy.deepcopy(_HELLO)


@pytest.fixture(scope="session")
def server() -> Iterator[Embedded]:
    folder = tempfile.mkdtemp(prefix="plaita-cli-")
    with Embedded.open(Path(folder) / "data") as held:
        yield held
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(autouse=True)
def _own_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No setting of the machine or of the person who runs the tests reaches a command."""
    for name in list(os.environ):
        if name.startswith(("PLAITA_", "REDIS_URL", "QUEUE_NAME")):
            monkeypatch.delenv(name)
    (tmp_path / "empty.toml").write_text("")
    monkeypatch.setenv("PLAITA_CONFIG", str(tmp_path / "empty.toml"))


@pytest.fixture
def connected(server: Embedded, monkeypatch: pytest.MonkeyPatch) -> str:
    """Commands of this test talk to the server, under a key prefix and a queue of their own."""
    prefix = f"t{uuid.uuid4().hex[:12]}"
    monkeypatch.setenv("PLAITA_EMBEDDED", str(server.folder))
    monkeypatch.setenv("PLAITA_KEY_PREFIX", prefix)
    monkeypatch.setenv("PLAITA_QUEUE_NAME", f"{prefix}:queue")
    return prefix


@pytest.fixture
def keys(connected: str) -> Keys:
    """The keys that the commands of this test use."""
    return Keys(prefix=connected, queue=f"{connected}:queue", dlq=f"{connected}:queue:dlq")


@pytest.fixture
def redis_do(server: Embedded, connected: str) -> Iterator[Callable[..., Any]]:
    """One plain command to the server, for looking at what a command left there and for setting a scene."""
    with SyncRunner(server.url) as runner:

        def do(*words: str | bytes | int) -> Any:
            call: Call[Any] = Call("test", None, (), words, "writer", False, lambda reply: reply)
            return runner.do(call)

        yield do


def _runner(app: Any, program: str, usage: int, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> Run:
    def run(*words: str, stdin: bytes | str | None = None) -> Result:
        if stdin is not None:
            data = stdin.encode() if isinstance(stdin, str) else stdin
            monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
        capsys.readouterr()
        code = exits.run_app(app, program, words, usage=usage)
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err, captured.err
        assert "Traceback" not in captured.out, captured.out
        return Result(code, captured.out, captured.err)

    return run


@pytest.fixture
def plaita(capsys: Any, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a ``plaita`` command in this process."""
    return _runner(main.app, "plaita", exits.USAGE, capsys, monkeypatch)


@pytest.fixture
def plaita_supervisor(capsys: Any, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a ``plaita-supervisor`` command in this process, which stays readable to its owner."""
    monkeypatch.setattr(supervisor, "set_dumpable", lambda wanted: None)
    return _runner(supervisor.app, "plaita-supervisor", exits.USAGE, capsys, monkeypatch)


@pytest.fixture
def flow_file(tmp_path: Path) -> Callable[[Any], str]:
    """Write a definition (text, bytes or JSON value) to a file and give its name."""

    def write(definition: Any, name: str = "flow.json") -> str:
        path = tmp_path / name
        if isinstance(definition, bytes):
            path.write_bytes(definition)
        else:
            path.write_text(definition if isinstance(definition, str) else json.dumps(definition), encoding="utf-8")
        return str(path)

    return write
