"""What is kept of an executor that died: for ``status``, the last of them (``Pool.deaths``)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from plaita.clock import iso_utc

KEPT = 20


@dataclass(frozen=True, slots=True)
class Death:
    """``at`` in epoch ms. ``execution_id`` and ``node_id`` are None when it died with no step."""

    at: int
    slot: int
    pid: int
    cause: str
    execution_id: str | None
    node_id: str | None
    peak_rss_mib: int

    def row(self) -> dict[str, Any]:
        """An object of the ``deaths`` list of ``status``."""
        return {
            "at": iso_utc(self.at),
            "slot": self.slot,
            "pid": self.pid,
            "cause": self.cause,
            "execution_id": self.execution_id,
            "node_id": self.node_id,
            "peak_rss_mib": self.peak_rss_mib,
        }
