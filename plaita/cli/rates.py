"""What happened in the last minutes, from the counters of several answers of ``status``. Pure: times are given."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

WINDOW_S = 300.0
_RATES = ("steps", "finished")
_COUNTS = (
    "step_failures",
    "step_timeouts",
    "node_retries",
    "executor_deaths",
    "dead_lettered",
    "reclaimed",
    "leases_lost",
    "lease_conflicts",
    "refused_writes",
    "handed_on",
    "killed",
)


class Rates:
    """The answers of the last five minutes. A supervisor that was started anew counts from 0: its life begins it."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, Mapping[str, Any]]] = deque()
        self._life: Any = None

    def add(self, status: Mapping[str, Any], at_s: float) -> None:
        """An answer that came at ``at_s``, seconds of a clock that never steps."""
        counters = status.get("counters")
        if not isinstance(counters, Mapping):
            return
        if status.get("incarnation") != self._life:
            self._seen.clear()
            self._life = status.get("incarnation")
        self._seen.append((at_s, counters))
        while len(self._seen) > 2 and self._seen[1][0] <= at_s - WINDOW_S:
            self._seen.popleft()

    def words(self) -> str:
        """``last 60 s: steps 12.0/s, finished 1.5/s, executor deaths 1``: what did not happen is left out."""
        if len(self._seen) < 2:
            return "being counted"
        (began, before), (ended, now) = self._seen[0], self._seen[-1]
        passed = ended - began
        if passed <= 0:
            return "being counted"
        parts = [f"{name} {_difference(before, now, name) / passed:.1f}/s" for name in _RATES]
        for name in _COUNTS:
            amount = _difference(before, now, name)
            if amount:
                parts.append(f"{name.replace('_', ' ')} {amount}")
        return f"last {passed:.0f} s: {', '.join(parts)}"


def _difference(before: Mapping[str, Any], now: Mapping[str, Any], name: str) -> int:
    first, last = before.get(name), now.get(name)
    return last - first if isinstance(first, int) and isinstance(last, int) else 0
