"""The writes that wait for Redis, and how much they may weigh together (DECISIONS 9).

Only what has met an outage counts: what is on its way to a server that answers is bounded by the executors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from plaita.store.call import Call

HELD_ANSWERS_BYTES = 64 * 1024 * 1024


class HeldAnswers:
    """Finished answers in the order in which they began to wait. ``limit`` in bytes."""

    def __init__(self, limit: int = HELD_ANSWERS_BYTES) -> None:
        self._limit = limit
        self._waiting: dict[int, tuple[int, Callable[[], None]]] = {}
        self._next = 0
        self.size = 0

    def add(self, size: int, drop: Callable[[], None]) -> int:
        """One more waits; its number, for ``remove``. Over the limit the oldest others are dropped, one after the
        other: their executions are run again from their checkpoints, by whoever takes their carriers."""
        self._next += 1
        self._waiting[self._next] = (size, drop)
        self.size += size
        while self.size > self._limit and len(self._waiting) > 1:
            self._drop_oldest()
        return self._next

    def remove(self, number: int) -> None:
        """It waits no longer: written, refused, or dropped before."""
        size, _ = self._waiting.pop(number, (0, None))
        self.size -= size

    def _drop_oldest(self) -> None:
        number = next(iter(self._waiting))
        size, drop = self._waiting.pop(number)
        self.size -= size
        drop()


def weight(call: Call[Any]) -> int:
    """The bytes that a call keeps in memory while it waits."""
    return sum(len(argument) for argument in call.args if isinstance(argument, str | bytes))
