"""What the tests of tenants share."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "supervisor")]

import tempfile  # noqa: E402
from collections.abc import Iterator  # noqa: E402

import pytest  # noqa: E402
from tenants_world import TenantsWorld  # noqa: E402

from plaita.testing.fixtures import plaita_server_process  # noqa: E402, F401
from plaita.testing.server import Server  # noqa: E402


@pytest.fixture
def world(plaita_server_process: Server) -> Iterator[TenantsWorld]:  # noqa: F811
    # Not pytest's tmp_path: a socket path has 107 bytes at most.
    with tempfile.TemporaryDirectory(prefix="plaita-") as folder:
        made = TenantsWorld(plaita_server_process.url, Path(folder))
        yield made
        made.close()
