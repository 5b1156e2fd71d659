"""``drain --wait``: tells what a drain still waits for, until nothing is left."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from plaita.cli import status_view
from plaita.cli.output import note
from plaita.errors import RefusedError

POLL_SECONDS = 0.5
TELL_SECONDS = 10.0


def wait_for_drain(ask: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """``ask`` answers ``status``; the answer that has nothing left. Raises UnreachableError when the supervisor goes
    away before that, RefusedError when somebody takes the drain back."""
    told, again = "", 0.0
    try:
        while True:
            answer = ask()
            if not status_view.left(answer):
                return answer
            if answer.get("status") == "running":
                raise RefusedError("undrained", "the drain was taken back meanwhile; work is taken again")
            line, since = status_view.left_line(answer)
            if line != told or time.monotonic() >= again:
                note(line + since)
                told, again = line, time.monotonic() + TELL_SECONDS
            time.sleep(POLL_SECONDS)
    except KeyboardInterrupt:
        note("the drain goes on; `plaita-supervisor undrain` takes it back")
        raise
