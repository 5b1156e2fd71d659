"""Callbacks that write down what they are told, and misbehave when the execution's id asks for it."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from typing import Any

from plaita import FlowCallback, register_callback


def note(*words: Any) -> None:
    with open(os.environ["TOLD_FILE"], "a") as file:
        file.write(json.dumps([os.getpid(), *words]) + "\n")


def misbehave(event: Any) -> None:
    how, _, when = event.execution_id.partition("-at-")
    if when != event.kind:
        return
    if how == "exit":
        sys.exit("from a callback")
    if how == "raise":
        raise ValueError("boom")
    if how == "hang":
        note("hangs")
        time.sleep(600)
    if how == "swallow":
        note("hangs")
        try:
            time.sleep(600)
        except BaseException:
            return
    if how == "ignore":
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        note("hangs")
        time.sleep(600)
    if how == "thread":
        threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
    if how == "fork" and os.fork() == 0:
        return


class Teller(FlowCallback):
    def flush(self) -> None:
        note("flush")

    def finalize(self) -> None:
        note("finalize")


def told(self: Teller, event: Any) -> None:
    error = None if event.error is None else event.error.exception
    note(event.kind, event.node_id, event.attempt, event.action, error)
    misbehave(event)


for kind in ("flow_start", "flow_end", "flow_suspend", "flow_resume"):
    setattr(Teller, f"on_{kind}", told)
for kind in ("node_start", "node_end", "node_suspend", "node_resume"):
    setattr(Teller, f"on_{kind}", told)


def register_all() -> None:
    register_callback(Teller())
