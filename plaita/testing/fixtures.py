"""pytest fixtures. ``plaita_server``: a real server, empty at the start of each test, one a test process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from plaita.testing.server import Server

__all__ = ["plaita_server", "plaita_server_process"]


@pytest.fixture(scope="session")
def plaita_server_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The server of this test process (of this xdist worker). Tests take ``plaita_server``."""
    server = Server(tmp_path_factory.mktemp("valkey"))
    yield server
    server.close()


@pytest.fixture
def plaita_server(plaita_server_process: Server) -> Server:
    plaita_server_process.flush()
    return plaita_server_process
