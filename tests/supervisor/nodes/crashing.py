"""Nodes that write down each run and then fail, or kill: themselves or the supervisor above them."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

from plaita import Node


class Noted(Node):
    """Appends ``execution node attempt pid`` to ``file``, sleeps ``seconds``, and raises in its first ``fails`` runs of
    this execution."""

    node_type = "t_noted"
    file: str
    seconds: float = 0.0
    fails: int = 0

    def execute(self, execution: Any) -> Any:
        run = note(self.file, execution)
        end = time.monotonic() + self.seconds
        while time.monotonic() < end:
            time.sleep(0.01)
        if run <= self.fails:
            raise RuntimeError(f"run {run} of {self.fails} that fail")
        return execution.attempt


class Gated(Node):
    """Notes its run, waits until the file ``gate.<attempt>`` is there, notes that in ``gate.<attempt>.passed``, and
    raises in its first ``fails`` attempts. Answers the attempt."""

    node_type = "t_gated"
    file: str
    gate: str
    fails: int = 0

    def execute(self, execution: Any) -> Any:
        note(self.file, execution)
        gate = Path(f"{self.gate}.{execution.attempt}")
        while not gate.exists():
            time.sleep(0.01)
        gate.with_name(gate.name + ".passed").touch()
        if execution.attempt <= self.fails:
            raise RuntimeError(f"attempt {execution.attempt} fails")
        return execution.attempt


class Poison(Node):
    """Kills ``victim``, ``self`` or ``supervisor``, after ``seconds``."""

    node_type = "t_poison"
    file: str
    victim: str
    seconds: float = 0.0

    def execute(self, execution: Any) -> Any:
        note(self.file, execution)
        time.sleep(self.seconds)
        os.kill(os.getpid() if self.victim == "self" else os.getppid(), signal.SIGKILL)
        time.sleep(60)


def note(file: str, execution: Any) -> int:
    """Write the run down; which run of this node in this execution it is, from 1."""
    with open(file, "a+") as lines:
        lines.write(f"{execution.execution_id} {execution.node_id} {execution.attempt} {os.getpid()}\n")
        lines.flush()
        lines.seek(0)
        return sum(line.split()[:2] == [execution.execution_id, execution.node_id] for line in lines)
