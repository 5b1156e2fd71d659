"""The nodes of the measurements: one says when it ran, one leaves a line and takes a while, one hears nothing."""

from __future__ import annotations

import os
import signal
import subprocess
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


class Stubborn(Node):
    """Appends its pid and that of a child in a session of its own to ``file``, then hears nothing, for ever."""

    node_type = "bench_stubborn"
    node_name = "Stubborn"
    file: str

    def execute(self, execution):
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        child = subprocess.Popen(["sleep", "1000"], start_new_session=True)
        with open(self.file, "a") as file:
            file.write(f"{os.getpid()} {child.pid}\n")
        while True:
            try:
                time.sleep(1000)
            except BaseException:  # noqa: BLE001 - that is what it is for
                continue
