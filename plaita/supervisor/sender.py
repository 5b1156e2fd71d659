"""Sends a call until its outcome is known: the one place where an unknown outcome is sent again.

Only idempotent calls are sent again after Unknown; any call is after Unavailable, since it was not carried out.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import TypeVar

from plaita.clock import boot_ms
from plaita.policy.backoff import backoff_s
from plaita.store.call import Call, Refused, Unknown, Value
from plaita.store.runner_async import AsyncRunner
from plaita.supervisor import logs
from plaita.supervisor.stats import Stats

T = TypeVar("T")


class Sender:
    """A runner with patience."""

    def __init__(self, runner: AsyncRunner, stats: Stats) -> None:
        self.runner = runner
        self._stats = stats

    async def send(
        self,
        call: Call[T],
        *,
        until: int | None = None,
        give_up: asyncio.Event | None = None,
        waits: Callable[[], None] = lambda: None,
    ) -> Value[T] | Refused | None:
        """The answer, or None when boot time ``until`` has passed or ``give_up`` is set before it was known.
        ``waits`` is called once, when it turns out that the call must be sent again.

        A Refused that comes after an Unknown acts on nothing more than any other: the call was keyed, so the refusal
        says that somebody else has the execution now (DECISIONS 2).
        """
        attempt = 0
        while True:
            answer = await self.runner.run(call)
            if isinstance(answer, Value | Refused):
                return answer
            if isinstance(answer, Unknown) and not call.idempotent:
                return None
            if give_up is not None and give_up.is_set():
                return None
            if until is not None and boot_ms() >= until:
                return None
            if attempt == 0:
                waits()
                logs.warning("redis.call_repeated", call=call.name, answer=type(answer).__name__, error=answer.error)
            self._stats.add("answers_resent")
            await self._pause(backoff_s(attempt, base=0.02, cap=1.0, jitter=random.random()), give_up)
            attempt += 1

    @staticmethod
    async def _pause(seconds: float, give_up: asyncio.Event | None) -> None:
        if give_up is None:
            await asyncio.sleep(seconds)
            return
        try:
            await asyncio.wait_for(give_up.wait(), seconds)
        except TimeoutError:
            return
