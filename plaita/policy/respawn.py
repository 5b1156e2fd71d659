"""How soon a dead executor is replaced: a restart-intensity window, as a pure function.

An executor that dies is normally replaced at once: its death is what steps are allowed to do. Many deaths in a short
time mean something else is wrong (no memory, no processes, a broken plug-in); then replacing slows down, and never
stops: a host that gets better goes on by itself.
"""

from __future__ import annotations

from collections.abc import Sequence

WINDOW_MS = 10_000
FREE_DEATHS = 8  # in the window and per slot: replaced at once
MAX_DELAY_MS = 10_000


def respawn_delay_ms(deaths: Sequence[int], now: int, *, spawn_failures: int) -> int:
    """Milliseconds to wait before the next spawn of a slot.

    ``deaths`` are the boot-clock times of the slot's last deaths; ``spawn_failures`` counts executors in a row that
    never said hello, which slow things down from the first one on.
    """
    recent = sum(1 for at in deaths if now - at < WINDOW_MS)
    excess = max(recent - FREE_DEATHS, spawn_failures)
    if excess <= 0:
        return 0
    return int(min(MAX_DELAY_MS, 100 * 2 ** min(excess - 1, 16)))
