"""A callback that says on stdout what it is told, fails at each wake, and hangs where an execution's id says so."""

from __future__ import annotations

import os
import time
from typing import Any

from plaita import FlowCallback, register_callback


@register_callback
class Teller(FlowCallback):
    def _told(self, event: Any) -> None:
        error = "-" if event.error is None else event.error.exception
        words = (event.execution_id, event.kind, event.node_id, event.action, event.attempt, error, os.getpid())
        print("told", *words, "end", flush=True)
        if event.kind == "flow_resume":
            raise SystemExit("a callback that leaves")
        while event.execution_id == f"hang-{event.kind}-{event.node_id}":
            try:
                time.sleep(600)
            except BaseException:  # the worst of callbacks: it takes the request to stop for its own affair
                continue

    on_flow_start = on_flow_end = on_flow_suspend = on_flow_resume = _told
    on_node_start = on_node_end = on_node_suspend = on_node_resume = _told
