"""A node that waits, and writes down each time its code is entered."""

from __future__ import annotations

import os
import time
from typing import Any

from plaita import EventNode, Node
from plaita.nodes.approval import ApprovalNode


class Wait(EventNode):
    """Waits for an ``event_type``; a line ``entry execution attempt idempotency key`` for each of execute, on_event,
    on_timeout and on_cancel in ``file``."""

    node_type = "t_wait"
    event_type: str | None = "go"
    file: str
    hang: str = ""  # the entry that takes for ever
    fail: int = 0  # how many times on_event raises before it succeeds
    die: int = 0  # how many times on_event takes its executor down

    def note(self, execution: Any, what: str) -> int:
        """Write the line; how many lines of this kind there are now."""
        with open(self.file, "a") as file:
            file.write(f"{what} {execution.execution_id} {execution.attempt} {execution.idempotency_key}\n")
        while self.hang == what:
            time.sleep(0.01)
        with open(self.file) as file:
            return sum(line.startswith(f"{what} {execution.execution_id} ") for line in file)

    def execute(self, execution: Any) -> Any:
        self.note(execution, "execute")
        return super().execute(execution)

    def on_event(self, execution: Any, event_data: Any) -> Any:
        count = self.note(execution, "on_event")
        if count <= self.fail:
            raise RuntimeError("not yet")
        if count <= self.die:
            os._exit(3)
        return super().on_event(execution, event_data)

    def on_timeout(self, execution: Any) -> Any:
        self.note(execution, "on_timeout")
        return super().on_timeout(execution)

    def on_cancel(self, execution: Any) -> None:
        self.note(execution, "on_cancel")
        super().on_cancel(execution)


class FailUntil(Node):
    """Raises until ``file`` exists; a line in ``log`` each time."""

    node_type = "t_fail_until"
    file: str
    log: str

    def execute(self, execution: Any) -> Any:
        with open(self.log, "a") as log:
            log.write(f"{execution.attempt}\n")
        if not os.path.exists(self.file):
            raise RuntimeError("not yet")
        return execution.attempt


class Asks(ApprovalNode):
    """An approval of a plug-in's own; a line for each of execute, on_event, on_timeout, on_cancel in ``file``."""

    node_type = "t_asks"
    file: str

    def note(self, what: str) -> None:
        with open(self.file, "a") as file:
            file.write(f"{what}\n")

    def execute(self, execution: Any) -> Any:
        self.note("execute")
        return super().execute(execution)

    def on_event(self, execution: Any, event_data: Any) -> Any:
        self.note("on_event")
        return super().on_event(execution, event_data)

    def on_timeout(self, execution: Any) -> Any:
        self.note("on_timeout")
        return super().on_timeout(execution)

    def on_cancel(self, execution: Any) -> None:
        self.note(f"on_cancel {execution.pending['status']}")
