"""A plug-in node for the demo: does work that can be measured, and leaves a line in a file for each time it was
begun."""

from __future__ import annotations

import hashlib
import os
import time

from plaita import Node


class Work(Node):
    """Hashes ``rounds`` times; appends ``<epoch s> <execution> <node> <attempt> <pid>`` to ``file`` when it begins."""

    node_type = "work"
    node_name = "Work"

    file: str
    rounds: int = 120_000

    def execute(self, execution):
        line = f"{time.time():.6f} {execution.execution_id} {execution.node_id} {execution.attempt} {os.getpid()}\n"
        # One write of a short line to a file opened for appending: lines of many processes do not mix.
        log = os.open(execution.evaluate(self.file), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(log, line.encode())
        finally:
            os.close(log)
        digest = execution.evaluate(self.output) or execution.execution_id
        data = str(digest).encode()
        for _ in range(self.rounds):
            data = hashlib.sha256(data).digest()
        return {"digest": data.hex(), "rounds": self.rounds}
