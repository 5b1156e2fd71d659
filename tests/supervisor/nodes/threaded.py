"""A plug-in that starts a thread when it is imported, as metrics and logging libraries do."""

from __future__ import annotations

import threading
import time
from typing import Any

from plaita import Node

_ticks = [0]


def _tick() -> None:
    while True:
        _ticks[0] += 1
        time.sleep(0.005)


threading.Thread(target=_tick, daemon=True).start()


class Ticks(Node):
    """How far the thread has come after a moment: it must be running in the executor that asks."""

    node_type = "t_ticks"

    def execute(self, execution: Any) -> bool:
        before = _ticks[0]
        deadline = time.monotonic() + 10
        while _ticks[0] == before and time.monotonic() < deadline:
            time.sleep(0.005)
        return _ticks[0] > before
