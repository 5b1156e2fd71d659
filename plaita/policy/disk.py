"""Whether a host may take work for what its disk has left, and why not (ledger G5). Pure.

Bytes and inodes, each with a line of its own. Shut below a line; open again only above it by a margin, so that a disk
that hovers at the line does not open and shut the gate at each look.
"""

from __future__ import annotations

from dataclasses import dataclass

GIB = 1024**3
MARGIN_BYTES = GIB // 4  # at most; a tenth of the line where that is less
MARGIN_SHARE = 10


@dataclass(frozen=True, slots=True)
class DiskFacts:
    """What an unprivileged process may still use. ``total_inodes`` is 0 on a file system that does not count them
    (btrfs, some network ones): nothing is judged by them then. ``total_bytes`` is for people; 0: not known."""

    free_bytes: int
    free_inodes: int = 0
    total_inodes: int = 0
    total_bytes: int = 0

    @property
    def free_gib(self) -> float:
        return self.free_bytes / GIB

    @property
    def free_inodes_percent(self) -> float | None:
        """None where inodes are not counted."""
        return 100 * self.free_inodes / self.total_inodes if self.total_inodes > 0 else None


@dataclass(frozen=True, slots=True)
class DiskLine:
    """``min_free_gib`` 0 switches the guard off, inodes included; ``min_free_inodes_percent`` 0 those alone."""

    min_free_gib: float
    min_free_inodes_percent: float = 0.0

    @property
    def on(self) -> bool:
        return self.min_free_gib > 0

    @property
    def opens_at_gib(self) -> float:
        """Once shut, open again from here."""
        return self.min_free_gib + min(self.min_free_gib / MARGIN_SHARE, MARGIN_BYTES / GIB)

    @property
    def opens_at_inodes_percent(self) -> float:
        """Once shut, open again from here; a line of 100 can be reached."""
        return min(100.0, self.min_free_inodes_percent * (1 + 1 / MARGIN_SHARE))


@dataclass(frozen=True, slots=True)
class Ruling:
    """``short_of``: of ``bytes`` and ``inodes``, what keeps the gate shut; nothing when it is open."""

    open: bool
    short_of: tuple[str, ...] = ()


def judge(facts: DiskFacts | None, line: DiskLine, *, short_of: tuple[str, ...] = ()) -> Ruling:
    """``facts`` None: the look failed, which says nothing about the disk and lets work through. ``short_of``: what was
    found wanting the last time, which has to come back above its margin."""
    if not line.on or facts is None:
        return Ruling(True)
    short = []
    if facts.free_gib < (line.opens_at_gib if "bytes" in short_of else line.min_free_gib):
        short.append("bytes")
    percent = facts.free_inodes_percent
    wanted = line.opens_at_inodes_percent if "inodes" in short_of else line.min_free_inodes_percent
    if percent is not None and percent < wanted:
        short.append("inodes")
    return Ruling(not short, tuple(short))
