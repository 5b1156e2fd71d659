"""What a service is given, and how one goes on through what Redis answers."""

from __future__ import annotations

import asyncio
import random
from typing import Any, Literal, Protocol, TypeVar

from plaita.policy.backoff import backoff_s
from plaita.store.call import Answer, Call, Refused, Value
from plaita.store.keys import Keys

T = TypeVar("T")

Level = Literal["debug", "info", "warning", "error"]


class ServiceHost(Protocol):
    """``consumer`` names this host in consumer groups, and no other that lives. ``min_idle_ms``: what another host has
    had for so long without being done with it may be taken from it. ``redis_targets``: the servers that queues may be
    read from."""

    keys: Keys
    consumer: str
    min_idle_ms: int
    redis_targets: tuple[str, ...]

    async def run(self, call: Call[T]) -> Answer[T]:
        """Send a call."""
        ...

    def tell(self, level: Level, event: str, **fields: Any) -> None:
        """Log an event."""
        ...

    def count(self, name: str, amount: int = 1) -> None:
        """Add to a counter."""
        ...


class NotServed(Exception):
    """Redis did not do it, now; what was begun is left to be taken up again. ``refused``: it was asked and said no, so
    that time alone may change nothing."""

    def __init__(self, said: str, *, refused: bool = False) -> None:
        super().__init__(said)
        self.refused = refused


async def served(host: ServiceHost, call: Call[T], *, tries: int = 4) -> T:
    """The value of a call, sent again while that may help. Raises NotServed."""
    for attempt in range(tries):
        answer = await host.run(call)
        if isinstance(answer, Value):
            return answer.value
        if isinstance(answer, Refused) or not call.idempotent:
            break
        await asyncio.sleep(backoff_s(attempt, base=0.05, cap=1.0, jitter=random.random()))
    raise NotServed(f"{call.name}: {answer}", refused=isinstance(answer, Refused))
