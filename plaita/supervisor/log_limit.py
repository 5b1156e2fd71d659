"""Says how often something that repeats may be logged. No I/O."""

from __future__ import annotations

from collections.abc import Hashable


class LogLimit:
    """One line a key and interval; what was held back is counted and told with the next line."""

    def __init__(self, interval_ms: int, keys_at_most: int = 1024) -> None:
        self._interval = interval_ms
        self._most = keys_at_most
        self._last: dict[Hashable, int] = {}
        self._held_back: dict[Hashable, int] = {}

    def allow(self, key: Hashable, now: int, amount: int = 1) -> int | None:
        """None: not now. Else how many it stands for, those that were held back included."""
        last = self._last.get(key)
        if last is not None and now - last < self._interval:
            self._held_back[key] = self._held_back.get(key, 0) + amount
            return None
        if last is None and len(self._last) >= self._most:
            self._last.clear()
            self._held_back.clear()
        self._last[key] = now
        return self._held_back.pop(key, 0) + amount
