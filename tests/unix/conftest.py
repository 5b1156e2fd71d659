from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator

import pytest


@pytest.fixture
def child() -> Iterator[Callable[[Callable[[], object]], int]]:
    """Fork a child that runs a function; killed and reaped afterwards if it still is there."""
    pids: list[int] = []

    def start(function: Callable[[], object]) -> int:
        pid = os.fork()
        if pid == 0:
            try:
                function()
            finally:
                os._exit(0)
        pids.append(pid)
        return pid

    yield start
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        except (ProcessLookupError, ChildProcessError):
            continue
