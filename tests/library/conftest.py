"""A world for each test, on the server of this test process."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from library_world import World

from plaita.testing.fixtures import plaita_server_process
from plaita.testing.server import Server

__all__ = ["plaita_server_process"]


@pytest.fixture
def world(plaita_server_process: Server) -> Iterator[World]:
    made = World(plaita_server_process.url)
    yield made
    made.close()
