"""A node that says when it is in and when it is out again, and waits in between where it is told to."""

from __future__ import annotations

import os
import time
from typing import Any

from plaita import Node


class Counted(Node):
    """Lines ``+ tenant execution node`` and ``- ...`` in ``file``; in between it waits until ``gate`` exists."""

    node_type = "t_counted"
    file: str
    gate: str = ""

    def execute(self, execution: Any) -> Any:
        self.note("+", execution)
        while self.gate and not os.path.exists(self.gate):
            time.sleep(0.005)
        self.note("-", execution)
        return self.id

    def note(self, sign: str, execution: Any) -> None:
        line = f"{sign} {execution.tenant_id} {execution.execution_id} {self.id}\n"
        file = os.open(self.file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            os.write(file, line.encode())  # in one write: steps of other processes write too
        finally:
            os.close(file)
