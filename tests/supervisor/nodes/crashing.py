"""Nodes that write down each run and then fail, or kill: themselves or the supervisor above them."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

from plaita import EventNode, Node


class Noted(Node):
    """Appends ``execution node attempt pid`` to ``file``, sleeps ``seconds``, and raises in its first ``fails`` runs of
    this execution: what is retried, or with ``final`` what is not."""

    node_type = "t_noted"
    file: str
    seconds: float = 0.0
    fails: int = 0
    final: bool = False

    def execute(self, execution: Any) -> Any:
        run = note(self.file, execution)
        spend(self.seconds)
        fail(run, self.fails, self.final)
        return execution.attempt


class NotedWait(EventNode):
    """Waits for a ``go``; appends ``execution node.entry attempt pid`` to ``file`` for each of its four entries. In the
    one that ``slow`` names it sleeps ``seconds``, waits as ``Gated`` does, given a ``gate``, and fails as ``Noted``."""

    node_type = "t_noted_wait"
    event_type: str | None = "go"
    file: str
    slow: str = ""
    seconds: float = 0.0
    gate: str = ""
    fails: int = 0
    final: bool = False

    def enter(self, execution: Any, entry: str) -> None:
        run = note(self.file, execution, f".{entry}")
        if self.slow == entry:
            spend(self.seconds)
            if self.gate:
                pass_gate(self.gate, execution)
            fail(run, self.fails, self.final)

    def execute(self, execution: Any) -> Any:
        self.enter(execution, "execute")
        return super().execute(execution)

    def on_event(self, execution: Any, event_data: Any) -> Any:
        self.enter(execution, "on_event")
        return super().on_event(execution, event_data)

    def on_timeout(self, execution: Any) -> Any:
        self.enter(execution, "on_timeout")
        return super().on_timeout(execution)

    def on_cancel(self, execution: Any) -> None:
        self.enter(execution, "on_cancel")


class Gated(Node):
    """Notes its run, waits until the file ``gate.<attempt>`` is there, notes that in ``gate.<attempt>.passed``, and
    raises in its first ``fails`` attempts. Answers the attempt."""

    node_type = "t_gated"
    file: str
    gate: str
    fails: int = 0

    def execute(self, execution: Any) -> Any:
        note(self.file, execution)
        pass_gate(self.gate, execution)
        if execution.attempt <= self.fails:
            raise RuntimeError(f"attempt {execution.attempt} fails")
        return execution.attempt


class Poison(Node):
    """Kills ``victim``, ``self`` or ``supervisor``, after ``seconds``, and not before ``gate`` lets it."""

    node_type = "t_poison"
    file: str
    victim: str
    seconds: float = 0.0
    gate: str = ""

    def execute(self, execution: Any) -> Any:
        note(self.file, execution)
        time.sleep(self.seconds)
        if self.gate:
            pass_gate(self.gate, execution)
        os.kill(os.getpid() if self.victim == "self" else os.getppid(), signal.SIGKILL)
        time.sleep(60)


def pass_gate(path: str, execution: Any) -> None:
    """Wait until the file ``path.<attempt>`` is there, and note that in ``path.<attempt>.passed``."""
    gate = Path(f"{path}.{execution.attempt}")
    while not gate.exists():
        time.sleep(0.01)
    gate.with_name(gate.name + ".passed").touch()


def fail(run: int, fails: int, final: bool) -> None:
    """Raise in the first runs."""
    if run <= fails:
        raise (ValueError if final else RuntimeError)(f"run {run} of {fails} that fail")


def spend(seconds: float) -> None:
    """Node code that takes so long."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(0.01)


def note(file: str, execution: Any, entry: str = "") -> int:
    """Write the run down; which run of this node (and entry) in this execution it is, from 1."""
    name = execution.node_id + entry
    with open(file, "a+") as lines:
        lines.write(f"{execution.execution_id} {name} {execution.attempt} {os.getpid()}\n")
        lines.flush()
        lines.seek(0)
        return sum(line.split()[:2] == [execution.execution_id, name] for line in lines)
