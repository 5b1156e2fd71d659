"""Lease arithmetic (DECISIONS 9): one function from what was measured to what must happen when.

All times are boot-clock milliseconds (``clock.boot_ms``). The horizon is counted from *before* the call that took or
renewed the lease was sent, so it is never later than the moment Redis lets the lease go.
"""

from __future__ import annotations

from dataclasses import dataclass

MIN_TTL_MS = 5_000


@dataclass(frozen=True, slots=True)
class Times:
    """When a lease ends for us, and what that means for the step that runs under it."""

    horizon: int  # Redis may let the lease go from here on
    dead_man_at: int  # the template kills by then, if the supervisor, which should have, said nothing
    kill_at: int  # SIGKILL: nothing of the step may live after this
    ask_at: int  # SIGTERM
    renew_at: int


def times(sent_at: int, ttl_ms: int) -> Times:
    """The times of a lease whose last taking or renewal was sent at ``sent_at``."""
    horizon = sent_at + ttl_ms
    kill_at = horizon - max(300, ttl_ms // 20)
    return Times(
        horizon=horizon,
        dead_man_at=horizon - (horizon - kill_at) * 2 // 3,  # later than kill_at: it kills everybody, not one step
        kill_at=kill_at,
        ask_at=kill_at - ttl_ms // 10,
        renew_at=horizon - 2 * ttl_ms // 3,
    )


def may_start_step(now: int, lease: Times) -> bool:
    """A step starts only while its lease leaves it time to be stopped in order."""
    return now < lease.ask_at
