"""The disk pre-check: below its line no carrier is read or reclaimed; running work goes on (ledger G5).

Looks on a thread of its own, since ``statvfs`` of a network file system whose server is gone does not come back: the
loop must not stand still for it, nor the end of the process. Between looks it sleeps on the loop, where a stop cancels
it at once. What follows from a look is ``policy.disk``'s.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Callable
from typing import Any

from plaita.clock import iso_utc
from plaita.policy import disk
from plaita.policy.disk import DiskFacts, DiskLine
from plaita.supervisor import logs
from plaita.supervisor.gate import Gate

PATIENCE_S = 2.0  # a look that takes longer has failed
SAY_EVERY = 20  # failed looks in a row are told at the first and then each so many

Look = Callable[[str], DiskFacts]


def look(path: str) -> DiskFacts:
    """What the file system of ``path`` has left. Raises OSError; may never come back."""
    found = os.statvfs(path)
    return DiskFacts(found.f_bavail * found.f_frsize, found.f_favail, found.f_files, found.f_blocks * found.f_frsize)


class DiskGuard:
    """``facts`` is what the last look saw, None when it failed; ``looked`` is set once there was one.
    ``on_change(open)`` is told when the gate opens or shuts."""

    def __init__(
        self,
        path: str,
        line: DiskLine,
        gate: Gate,
        *,
        poll_s: float = 15.0,
        patience_s: float = PATIENCE_S,
        look: Look = look,
        on_change: Callable[[bool], None] = lambda is_open: None,
    ) -> None:
        self._path = path
        self._line = line
        self._gate = gate
        self._poll_s = poll_s
        self._patience_s = patience_s
        self._look = look
        self._on_change = on_change
        self._short_of: tuple[str, ...] = ()
        self._failures = 0
        self._under_way: asyncio.Future[DiskFacts] | None = None
        self.facts: DiskFacts | None = None
        self.looked = asyncio.Event()

    async def watch(self) -> None:
        """Look now, and again each ``poll_s``, until cancelled."""
        while True:
            await self.probe()
            self.looked.set()
            await asyncio.sleep(self._poll_s)

    async def probe(self) -> None:
        """Look once and set the gate. A look that fails lets work through: it says nothing about the disk."""
        error = await self._try()
        if error is not None:
            self.facts = None
            if self._line.on and self._failures % SAY_EVERY == 0:
                logs.warning("disk.probe_failed", path=self._path, error=error, failures=self._failures + 1)
            self._failures += 1
        elif self._failures:
            self._failures = 0
            logs.info("disk.probe_works_again", path=self._path)
        if self._line.on:
            self._judge(error)

    def block(self) -> dict[str, Any]:
        """The ``disk`` object of ``status`` (CONTRACT). Numbers are None where the last look failed."""
        facts, condition = self.facts, self._gate.conditions["disk"]
        counted = facts is not None and facts.total_inodes > 0
        return {
            "path": self._path,
            "free_gib": None if facts is None else round(facts.free_gib, 3),
            "total_gib": None if facts is None or not facts.total_bytes else round(facts.total_bytes / disk.GIB, 3),
            "min_free_gib": self._line.min_free_gib,
            "free_inodes": facts.free_inodes if facts is not None and counted else None,
            "min_free_inodes_percent": self._line.min_free_inodes_percent,
            "open": condition.open,
            "since": iso_utc(condition.since),
        }

    # -- inside ------------------------------------------------------------------------------------------

    def _judge(self, error: str | None) -> None:
        line, facts = self._line, self.facts
        was_open = self._gate.conditions["disk"].open
        ruling = disk.judge(facts, line, short_of=self._short_of)
        self._short_of = ruling.short_of
        percent = None if facts is None else facts.free_inodes_percent
        free = f"unknown ({error})" if facts is None else f"{facts.free_gib:.3g} GiB free"
        limit = f"{line.min_free_gib:g} GiB"
        if percent is not None and line.min_free_inodes_percent:
            free += f", {percent:.3g} % of inodes"
            limit += f", {line.min_free_inodes_percent:g} % of inodes"
        if not ruling.open:
            limit += f"; opens again at {line.opens_at_gib:.6g} GiB" if "bytes" in ruling.short_of else ""
            limit += f"; opens again at {line.opens_at_inodes_percent:.6g} %" if "inodes" in ruling.short_of else ""
        wanted = "files" if ruling.short_of == ("inodes",) else "space"
        setting = "--min-free-inodes-percent" if ruling.short_of == ("inodes",) else "--min-free-disk-gib"
        hint = f"make room on the file system of {self._path} (it is short of {wanted}), or lower {setting}"
        self._gate.set("disk", ruling.open, value=free, limit=limit, hint=hint)
        if was_open != ruling.open:
            short = ", ".join(ruling.short_of) or None
            logs.warning("disk.gate", open=ruling.open, path=self._path, short_of=short, free=free, limit=limit)
            self._on_change(ruling.open)

    async def _try(self) -> str | None:
        """Look; why that failed, None when ``facts`` are new. One thread at most: what hangs is waited for again."""
        if self._under_way is None:
            try:
                self._under_way = self._begin()
            except RuntimeError as error:  # no thread can be started: a limit of this machine
                return str(error)
        under_way = self._under_way
        await asyncio.wait({under_way}, timeout=self._patience_s)
        if not under_way.done():
            return f"no answer within {self._patience_s:g} s"
        self._under_way = None
        try:
            self.facts = under_way.result()
        except OSError as error:
            return error.strerror or str(error)
        return None

    def _begin(self) -> asyncio.Future[DiskFacts]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[DiskFacts] = loop.create_future()

        def tell(found: DiskFacts | OSError) -> None:
            if future.done():
                return
            if isinstance(found, DiskFacts):
                future.set_result(found)
            else:
                future.set_exception(found)

        def work() -> None:
            found: DiskFacts | OSError
            try:
                found = self._look(self._path)
            except OSError as error:
                found = error
            with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
                loop.call_soon_threadsafe(tell, found)

        # A daemon: the process must be able to end while it hangs, which a thread of the loop's own pool prevents.
        threading.Thread(target=work, name="disk probe", daemon=True).start()
        return future
