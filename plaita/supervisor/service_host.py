"""What the supervisor lends to the services that run in it: its connection, its names, its log and its counters."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any, TypeVar

from plaita.services.host import Level
from plaita.store.call import Answer, Call
from plaita.store.keys import Keys
from plaita.store.runner_async import AsyncRunner
from plaita.supervisor import logs
from plaita.supervisor.stats import Stats

T = TypeVar("T")

_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


@dataclass(slots=True)
class Lent:
    """A ``ServiceHost``."""

    keys: Keys
    consumer: str
    min_idle_ms: int
    runner: AsyncRunner
    stats: Stats
    redis_targets: tuple[str, ...] = ()

    async def run(self, call: Call[T]) -> Answer[T]:
        return await self.runner.run(call)

    def tell(self, level: Level, event: str, **fields: Any) -> None:
        logs.log(_LEVELS[level], event, **fields)

    def count(self, name: str, amount: int = 1) -> None:
        self.stats.add(name, amount)
