"""Waits between attempts that go on for ever: capped before they are computed, with jitter, safe for any count."""

from __future__ import annotations


def backoff_s(attempt: int, *, base: float = 0.1, cap: float = 5.0, jitter: float = 0.5) -> float:
    """Seconds before attempt ``attempt`` (0 is the first retry). ``jitter`` is a random number in [0, 1): it spreads
    the wait over the upper half of its range, so that hosts that lost the same server do not return to it together."""
    wait = min(cap, base * 2.0 ** min(max(attempt, 0), 32))
    return wait * (0.5 + jitter / 2)
