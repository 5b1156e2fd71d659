"""Nodes that go wrong the first time only: ``file`` remembers."""

from __future__ import annotations

import os
import signal
from typing import Any

from plaita import Node


def _first(path: str) -> bool:
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


class FailsOnce(Node):
    """Raises, then returns its attempt."""

    node_type = "f_fails_once"
    file: str

    def execute(self, execution: Any) -> int:
        if _first(self.file):
            raise RuntimeError("the first time")
        return int(execution.attempt)


class DiesOnce(Node):
    """Kills its executor, then returns its attempt."""

    node_type = "f_dies_once"
    file: str

    def execute(self, execution: Any) -> int:
        if _first(self.file):
            os.kill(os.getpid(), signal.SIGKILL)
        return int(execution.attempt)


class Size(Node):
    """How long the input's ``blob`` is."""

    node_type = "f_size"

    def execute(self, execution: Any) -> int:
        return len(execution.evaluate("$INPUT.blob"))
