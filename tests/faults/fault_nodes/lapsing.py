"""A node whose first attempt fails and whose next ones take long."""

from __future__ import annotations

import os
import time
from typing import Any

from plaita import Node


class OnceThenLong(Node):
    """Adds a line each time; raises at its first attempt, then sleeps ``seconds``."""

    node_type = "f_once_then_long"
    file: str
    seconds: float

    def execute(self, execution: Any) -> int:
        with open(self.file, "a") as file:
            file.write(f"{execution.execution_id} {execution.node_id} {execution.attempt} {os.getpid()}\n")
        if execution.attempt == 1:
            raise RuntimeError("the first time")
        time.sleep(self.seconds)
        return int(execution.attempt)
