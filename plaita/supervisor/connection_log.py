"""Says in the log when Redis goes and comes back: at once, but never more than a pair of lines in a few seconds,
however a bad line flaps. What holds in the end is always said.
"""

from __future__ import annotations

import asyncio
import re

from plaita.clock import boot_ms
from plaita.supervisor import logs

QUIET_MS = 5_000
AGAIN_MS = 15_000
_TIMES = re.compile(r"\d+(\.\d+)? s\b")


class WaitingLog:
    """Before the first connection: says why there is none, at once when the reason is another, else now and then."""

    def __init__(self) -> None:
        self._reason = ""
        self._said_at = 0
        self.said = 0  # how often

    def say(self, kind: str, error: str) -> None:
        reason = _TIMES.sub("", error)  # how long a silence was taken for one may differ each time
        if self.said and reason == self._reason and boot_ms() - self._said_at < AGAIN_MS:
            return
        logs.warning("redis.unreachable", answer=kind, error=error)
        self._reason, self._said_at = reason, boot_ms()
        self.said += 1


class ConnectionLog:
    """``set`` is told of every change."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._connected: bool | None = None
        self._said: bool | None = None
        self._error = ""
        self._lost_at = 0
        self._lost_said_at = -QUIET_MS
        self._losses = 0
        self._later: asyncio.TimerHandle | None = None

    def set(self, connected: bool, error: str) -> None:
        if self._connected and not connected:
            self._losses += 1
            self._lost_at = boot_ms()
        self._connected, self._error = connected, error
        self._say()

    def close(self) -> None:
        if self._later is not None:
            self._later.cancel()

    def _say(self) -> None:
        if self._connected is self._said or (self._said is None and not self._connected):
            return  # nothing new; what fails before the first connection is said by who waits for that
        if self._connected:
            if self._said is not None:
                logs.info("redis.connected", away_ms=boot_ms() - self._lost_at)
            self._said = True
            return
        wait = self._lost_said_at + QUIET_MS - boot_ms()
        if wait > 0:
            if self._later is None:
                self._later = self._loop.call_later(wait / 1000, self._say_later)
            return
        logs.warning("redis.lost", error=self._error, times=self._losses)
        self._lost_said_at, self._losses, self._said = boot_ms(), 0, False

    def _say_later(self) -> None:
        self._later = None
        self._say()
