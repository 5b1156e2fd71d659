"""A world for each test: own keys and queue on the server of this test process; every supervisor is gone at the end."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from hosts import World

from plaita.testing.fixtures import plaita_server_process  # noqa: F401
from plaita.testing.server import Server


@pytest.fixture
def world(plaita_server_process: Server) -> Iterator[World]:  # noqa: F811
    # Not pytest's tmp_path: a socket path has 107 bytes at most.
    with tempfile.TemporaryDirectory(prefix="plaita-") as folder:
        made = World(plaita_server_process.url, Path(folder))
        yield made
        made.close()


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[Server]:
    """A server of the test's own, for tests that empty, restart or stop it."""
    with tempfile.TemporaryDirectory(prefix="plaita-") as folder:
        server = Server(Path(folder) / "data")
        server.write_through()
        yield server
        server.close()


@pytest.fixture
def own_world(own_server: Server) -> Iterator[World]:
    with tempfile.TemporaryDirectory(prefix="plaita-") as folder:
        made = World(own_server.url, Path(folder))
        yield made
        made.close()
