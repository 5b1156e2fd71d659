"""Whose turn it is, wake-ups or starts, when more of both wait than there are free executors (DECISIONS 6).

Wake-ups are read first. Where they alone could keep a host busy for long, as the retries of a thousand executions can,
starts get every fourth place.
"""

from __future__ import annotations

WAKES_A_START = 3


def starts_first(owed: int, places: int) -> int:
    """How many of ``places`` go to starts before wake-ups are read. ``owed``: wake-ups taken since starts last had
    their turn, as ``owed_after`` counts them."""
    return min(places, owed // WAKES_A_START)


def owed_after(owed: int, *, reserved: int, wakes: int, starts: int) -> int:
    """``owed`` after a round in which ``reserved`` places were kept for starts and so many of each came. Fewer starts
    than places kept for them: none waits, so nothing is owed."""
    if starts < reserved:
        return 0
    return max(0, owed + wakes - starts * WAKES_A_START)
