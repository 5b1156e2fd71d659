"""A node that stands at a known line, for stacks: ``t_report``."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

from plaita import Node


def waits_for_the_file(path: str) -> None:
    while not os.path.exists(path):
        time.sleep(0.01)


class Report(Node):
    """``deaf``: has given SIGUSR1 back to the system; ``loud``: bytes it writes before."""

    node_type = "t_report"
    file: str
    deaf: bool = False
    loud: int = 0

    def execute(self, execution: Any) -> Any:
        if self.deaf:
            signal.signal(signal.SIGUSR1, signal.SIG_DFL)
        for _ in range(self.loud // 80):
            os.write(2, b"blah " * 16 + b"\n")
        waits_for_the_file(execution.evaluate(self.file))
        return "done"
