"""The disk pre-check: below its line no carrier is read or reclaimed; running work goes on (ledger G5)."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass

from plaita.supervisor import logs
from plaita.supervisor.gate import Gate

POLL_S = 15.0
GIB = 1024**3


@dataclass(slots=True)
class DiskGuard:
    """``min_free_gib`` 0 switches it off. ``free_gib`` is what the last probe saw, None when it failed."""

    path: str
    min_free_gib: float
    free_gib: float | None = None

    def probe(self, gate: Gate) -> None:
        """Look once. A probe that fails lets work through: it says nothing about the disk."""
        try:
            facts = os.statvfs(self.path)
            self.free_gib = facts.f_bavail * facts.f_frsize / GIB
        except OSError as error:
            self.free_gib = None
            logs.warning("disk.probe_failed", path=self.path, error=error)
        if self.min_free_gib <= 0:
            return
        was_open = gate.conditions["disk"].open
        is_open = self.free_gib is None or self.free_gib >= self.min_free_gib
        free = "unknown" if self.free_gib is None else f"{self.free_gib:.2f} GiB free"
        gate.set(
            "disk",
            is_open,
            value=free,
            limit=f"{self.min_free_gib:g} GiB",
            hint=f"free space on {self.path}, or lower --min-free-disk-gib",
        )
        if was_open != is_open:
            logs.warning("disk.gate", open=is_open, path=self.path, free=free, min_free_gib=self.min_free_gib)

    async def watch(self, gate: Gate) -> None:
        """Probe again every 15 s."""
        while True:
            await asyncio.sleep(POLL_S)
            self.probe(gate)
