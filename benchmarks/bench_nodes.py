"""The node of the latency measurement: says when it ran."""

from __future__ import annotations

import time

from plaita import Node


class Clock(Node):
    """Answers the wall clock in nanoseconds."""

    node_type = "bench_clock"
    node_name = "Clock"

    def execute(self, execution):
        return time.time_ns()
