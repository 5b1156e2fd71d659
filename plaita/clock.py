"""The clocks plaita uses, each for one purpose.

* ``boot_ms``: time since boot, suspended time included. For leases, deadlines and every duration: it never steps.
* ``wall_ms``: epoch milliseconds, for records that people read. Never compared with another host's.
* Redis ``TIME`` (inside scripts): the one clock for due times and expiry.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime


def boot_ms() -> int:
    """Milliseconds since boot (CLOCK_BOOTTIME): goes on while the machine sleeps, never steps."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


def wall_ms() -> int:
    """Milliseconds since the epoch, by this host's clock."""
    return time.time_ns() // 1_000_000


def iso_utc(epoch_ms: int | float | None) -> str | None:
    """``2026-11-30T08:19:15.123Z`` for epoch milliseconds; None for None."""
    if epoch_ms is None:
        return None
    moment = datetime.fromtimestamp(epoch_ms / 1000, tz=UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
