"""How soon a dead executor or template is replaced: restart-intensity windows, as pure functions.

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


TEMPLATE_WINDOW_MS = 60_000
TEMPLATE_MAX_DELAY_MS = 5_000


def recent_deaths(deaths: Sequence[int], now: int) -> int:
    """How many of a template's ends lie in its window."""
    return sum(1 for at in deaths if now - at < TEMPLATE_WINDOW_MS)


def template_delay_ms(deaths: Sequence[int], now: int) -> int:
    """Milliseconds before a template that has ended is started again. ``deaths``: boot-clock times of its ends, this
    one included, however far each had come: one that stands and dies, over and over, costs as much as one that never
    stands."""
    count = recent_deaths(deaths, now)
    return 0 if count <= 1 else min(TEMPLATE_MAX_DELAY_MS, 200 * 2 ** min(count - 2, 16))
