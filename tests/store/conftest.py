"""What the store's tests share: a server, a blocking runner, and ``world``."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from bridge_world import target, target_process, there
from schedule_world import clocks
from store_world import world

from plaita.store.keys import Keys
from plaita.testing.fixtures import plaita_server, plaita_server_process

__all__ = ["clocks", "plaita_server", "plaita_server_process", "target", "target_process", "there", "world"]


@pytest.fixture
def keys() -> Keys:
    return Keys()
