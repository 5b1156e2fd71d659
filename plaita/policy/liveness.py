"""Does the node that a row calls open still run? For readers (ledger L4). Pure.

An open node alone proves nothing: its supervisor may have died under it.
"""

from __future__ import annotations

from enum import Enum

HEARTBEATS = 3


class Liveness(Enum):
    RUNS = "runs"
    SILENT = "silent"  # a node is open and nobody vouches for it: to be taken over, or its holder is cut off
    IDLE = "idle"  # no node is open: over, waiting for an event, or for its turn


def judge(
    *, status: str, open_node: bool, last_update_ms: int | None, now_ms: int, heartbeat_ms: int, leased: bool,
    holder_registered: bool,
) -> Liveness:  # fmt: skip
    """``heartbeat_ms`` is how often a holder renews (a third of the lease's life). A row in the future counts as fresh:
    clocks differ. ``leased``: a lease exists; ``holder_registered``: the registry knows the lease's holder."""
    if status != "running" or not open_node:
        return Liveness.IDLE
    fresh = last_update_ms is not None and now_ms - last_update_ms <= HEARTBEATS * heartbeat_ms
    return Liveness.RUNS if fresh and (leased or holder_registered) else Liveness.SILENT
