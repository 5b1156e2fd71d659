"""The carriers in hand: one task each, from the moment a carrier is taken to the moment it is settled or let go."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine

from plaita.store.carriers import Entry


class Carries:
    """``on_end`` is called when a carrier has left, however it did."""

    def __init__(self, loop: asyncio.AbstractEventLoop, on_end: Callable[[], None]) -> None:
        self._loop = loop
        self._on_end = on_end
        self._entries: dict[asyncio.Task[None], Entry] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def start(self, entry: Entry, work: Coroutine[object, object, None]) -> None:
        """Take a carrier in hand."""
        task = self._loop.create_task(work)
        self._entries[task] = entry
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._entries.pop(task, None)
        self._on_end()

    def in_hand(self) -> list[str]:
        """``<stream> <entry id>`` of each, as a reclaim is told to leave them alone."""
        return [f"{entry.stream} {entry.entry_id}" for entry in self._entries.values()]

    def cancel_all(self) -> None:
        """Give them up, for a supervisor that must leave."""
        for task in self._entries:
            task.cancel()
