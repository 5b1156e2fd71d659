"""How long a step usually takes, and when one takes so long that a person should look at it (DECISIONS 24).

A step without a time limit is never ended for its length; it is named. Pure functions.
"""

from __future__ import annotations

from collections.abc import Sequence

ENOUGH = 5  # lengths to know before one is called unusual
TIMES = 10
FLOOR_MS = 10_000  # nobody is told of a step of a second, however short it was before
UNKNOWN_MS = 3_600_000  # what never ended here has no usual length; after an hour it is named all the same
OVERDUE_MS = 10_000  # past its limit and the grace: a process that not even SIGKILL ends, as one on a dead disk


def usual_ms(lengths: Sequence[int]) -> int | None:
    """The median of the last lengths in ms; None when there are too few to say."""
    if len(lengths) < ENOUGH:
        return None
    return sorted(lengths)[len(lengths) // 2]


def is_stuck(elapsed_ms: int, *, usual: int | None, limit_ms: int | None, grace_ms: int) -> bool:
    """Whether a step that has run for so long is to be named. ``limit_ms``: its time limit, which ends it, so that only
    one that outlives limit and ``grace_ms`` (between SIGTERM and SIGKILL) is of interest."""
    if limit_ms is not None:
        return elapsed_ms > limit_ms + grace_ms + OVERDUE_MS
    if usual is None:
        return elapsed_ms > UNKNOWN_MS
    return elapsed_ms > max(FLOOR_MS, TIMES * usual)
