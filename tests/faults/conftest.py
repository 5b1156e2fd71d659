"""A server of a test's own, a world on it, and a proxy for the supervisor alone: tests look past what they break."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "supervisor"))
sys.path.insert(0, str(Path(__file__).parent))

from fault_load import NODE_FOLDERS, Serve
from hosts import SupervisorProcess, World

from plaita.testing.fixtures import plaita_server_process  # noqa: F401
from plaita.testing.proxy import Proxy
from plaita.testing.server import Server


@pytest.fixture
def world(plaita_server_process: Server) -> Iterator[World]:  # noqa: F811
    # Not pytest's tmp_path: a socket path has 107 bytes at most.
    with tempfile.TemporaryDirectory(prefix="plaita-") as folder:
        made = World(plaita_server_process.url, Path(folder))
        yield made
        made.close()


@pytest.fixture
def own_server() -> Iterator[Server]:
    """A server of the test's own, for tests that restart or change it."""
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


@pytest.fixture
def proxy(plaita_server_process: Server) -> Iterator[Proxy]:  # noqa: F811
    made = Proxy(plaita_server_process.socket_path)
    yield made
    made.close()


@pytest.fixture
def serve(world: World, proxy: Proxy, plaita_server_process: Server) -> Serve:  # noqa: F811
    """A supervisor behind the proxy that serves. Lease and min-idle of 10 minutes unless said otherwise: whatever goes
    on within a test does not go on because one of them has run out (DECISIONS 44)."""

    def make(**named: Any) -> SupervisorProcess:
        flags = {"preload": ["trouble", "faulty"], "lease_ttl_seconds": "600", "claim_min_idle_ms": "600000", **named}
        flags["environment"] = {"PYTHONPATH": NODE_FOLDERS}
        return world.serving(redis_url=proxy.url(plaita_server_process.password), **flags)

    return make
