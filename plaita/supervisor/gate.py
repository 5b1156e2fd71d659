"""The gate: may this host take work now, and if not, why and since when.

Each condition is kept apart with the time it last changed, so that ``explain`` can answer at three in the morning.
No I/O: whoever knows a fact sets it here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from plaita.clock import wall_ms


@dataclass(slots=True)
class Condition:
    """``open`` lets work through. ``value``, ``limit`` and ``hint`` are texts for people. ``since`` is epoch ms."""

    name: str
    open: bool
    since: int
    value: str = ""
    limit: str = ""
    hint: str = ""


class Gate:
    """``redis``, ``status``, ``pause``, ``disk`` and ``failover``; executors are the pool's business (capacity)."""

    def __init__(self, on_change: Callable[[], None]) -> None:
        self._on_change = on_change
        now = wall_ms()
        self.conditions = {
            "redis": Condition("redis", False, now, "not connected yet", hint="check --redis-url and the server"),
            "status": Condition("status", False, now, "starting", "running"),
            "pause": Condition("pause", True, now, "not paused", hint="`plaita-supervisor resume` ends it"),
            "disk": Condition("disk", True, now, "not limited"),
            "writes": Condition("writes", True, now, "taken"),
            "failover": Condition("failover", True, now, "not looked yet"),
        }

    def set(self, name: str, is_open: bool, *, value: str = "", limit: str = "", hint: str = "") -> None:
        """Record a fact; waiters hear of it only when the condition opens or shuts."""
        condition = self.conditions[name]
        changed = condition.open != is_open
        condition.open = is_open
        condition.value = value or condition.value
        condition.limit = limit or condition.limit
        condition.hint = hint or condition.hint
        if changed:
            condition.since = wall_ms()
            self._on_change()

    @property
    def is_open(self) -> bool:
        """Every condition is open: the consumer may read and reclaim."""
        return all(condition.open for condition in self.conditions.values())

    def shut(self) -> list[str]:
        """The names of the conditions that are shut."""
        return [condition.name for condition in self.conditions.values() if not condition.open]
