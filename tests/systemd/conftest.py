"""Units that run below a folder, on a server of this test's own."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from manager import Manager
from unit_file import Unit

from plaita.testing.server import Server


@pytest.fixture
def root() -> Iterator[Path]:
    """Stands for /. Not pytest's tmp_path: a socket path has 107 bytes at most."""
    with tempfile.TemporaryDirectory(prefix="plaita-unit-") as folder:
        for name in ("etc/plaita", "etc/credstore"):
            (Path(folder) / name).mkdir(parents=True)
        yield Path(folder)


@pytest.fixture
def server() -> Iterator[Server]:
    with tempfile.TemporaryDirectory(prefix="plaita-") as folder:
        made = Server(Path(folder) / "data")
        yield made
        made.close()


@pytest.fixture
def manage(root: Path) -> Iterator[Callable[[Unit], Manager]]:
    made: list[Manager] = []

    def make(unit: Unit) -> Manager:
        made.append(Manager(unit, root))
        return made[-1]

    yield make
    for manager in made:
        manager.close()
