"""The nodes of the measurements: one says when it ran, one leaves a line and takes a while."""

from __future__ import annotations

import os
import time

from plaita import Node


class Clock(Node):
    """Answers the wall clock in nanoseconds."""

    node_type = "bench_clock"
    node_name = "Clock"

    def execute(self, execution):
        return time.time_ns()


class Line(Node):
    """Appends ``execution node attempt`` to ``file`` in one write, then takes ``ms`` milliseconds."""

    node_type = "bench_line"
    node_name = "Line"
    file: str
    ms: int

    def execute(self, execution):
        line = f"{execution.execution_id} {execution.node_id} {execution.attempt}\n"
        descriptor = os.open(self.file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(descriptor, line.encode())
        finally:
            os.close(descriptor)
        time.sleep(self.ms / 1000)
        return self.ms
