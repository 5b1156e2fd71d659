"""A server that answers and takes no writes: full (OOM), busy with a script, unable to save, without its replicas, or
with a user whose rights were taken (NOPERM).

Shuts the gate ``writes`` on the first such refusal and asks with a small write of its own until one is taken: what is
taken from the queue meanwhile could not even be begun. Steps under way go on, and their answers are sent again by
whoever holds them.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any

from plaita.policy.backoff import backoff_s
from plaita.store import server
from plaita.store.call import Value
from plaita.store.keys import Keys
from plaita.store.runner_async import AsyncRunner
from plaita.supervisor import logs, rights
from plaita.supervisor.gate import Gate

HINTS = {
    "OOM": "the server's memory is full: raise maxmemory or free some",
    "BUSY": "somebody's script blocks the server: SCRIPT KILL, or wait",
    "MISCONF": "the server cannot save: look at its log and its disk",
    "NOREPLICAS": "too few replicas are connected: see min-replicas-to-write",
    "NOPERM": f"the user of the Redis URL lacks a right: {rights.PAGE}",
}


class WriteGuard:
    """``refused`` is told by the runner. ``again()`` is called when writes are taken once more; ``background`` starts
    a task that the supervisor ends."""

    def __init__(
        self,
        runner: AsyncRunner,
        keys: Keys,
        gate: Gate,
        *,
        again: Callable[[], None],
        background: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        self._runner = runner
        self._keys = keys
        self._gate = gate
        self._again = again
        self._background = background
        self._asking = False
        self._denied = False

    def refused(self, error: str) -> None:
        """The server is up and refused a call with ``error``."""
        self._denied = self._denied or "NOPERM" in error
        hint = next((hint for code, hint in HINTS.items() if code in error), "see the server's log")
        self._gate.set("writes", False, value=error, hint=hint)
        if self._asking:
            return
        self._asking = True
        logs.error("redis.refuses_writes", error=error)
        self._background(self._ask())

    async def _ask(self) -> None:
        attempt = 4 if self._denied else 0  # a missing right may show again at once: no more than one try a second
        while True:
            await asyncio.sleep(backoff_s(attempt, base=0.1, cap=1.0, jitter=random.random()))
            attempt += 1
            if isinstance(await self._runner.run(server.write_probe(self._keys)), Value) and await self._may():
                break
        self._asking = self._denied = False
        self._gate.set("writes", True, value="taken")
        logs.info("redis.takes_writes", tries=attempt)
        self._again()

    async def _may(self) -> bool:
        """Where a right was missing: no right is any more. One small write that is allowed says nothing of that."""
        return not self._denied or await rights.missing(self._runner, self._keys) == ""
