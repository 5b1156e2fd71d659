"""The capacity snapshot in the registry record: what others see of a host without asking it (ledger C2, G1).

For people and for ``plaita cluster``. Nobody decides by it where work goes: a host that is ``running`` gets work
whatever its snapshot says, since that may be old.
"""

from __future__ import annotations

from typing import Any

from plaita.clock import iso_utc, wall_ms

COUNTS = ("stream_length", "pending", "lag", "delayed", "parked", "dlq_length")


def snapshot(
    *,
    executors: int,
    free: int,
    busy: int,
    generations: dict[str, str],
    queue: dict[str, Any] | None = None,
    disk: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """``queue`` and ``disk``: those objects of ``status`` as they were last seen, None where there are none. ``at`` is
    by this host's wall clock, for people."""
    return {
        "executors": executors,
        "free": free,
        "busy": busy,
        "queue": None if queue is None else {name: queue[name] for name in COUNTS},
        "disk": None if disk is None else {"free_gib": disk["free_gib"], "open": disk["open"]},
        "generations": generations,
        "at": iso_utc(wall_ms()),
    }
