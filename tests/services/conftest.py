"""Executions are walked by the store's calls, as in its own tests; the service runs on a loop of the test's own."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "store"))
sys.path.insert(0, str(Path(__file__).parent))

from feed_hosts import Feeds
from store_world import World, world

from plaita.testing.fixtures import plaita_server, plaita_server_process
from plaita.testing.server import Server

__all__ = ["World", "plaita_server", "plaita_server_process", "world"]


@pytest.fixture
def feeds(plaita_server: Server) -> Feeds:
    return Feeds(plaita_server)
