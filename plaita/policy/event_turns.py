"""Whose event a host works on next, so that a flood of one tenant holds up no other (KNOWN-TROUBLE 73). Pure.

Events are held in rows: those of one tenant, type and correlation, which go one after the other. Tenants take turns,
and none has all places at once. Their events come in lanes: some of a tenant's types share one. Of a lane only so many
are held; what comes beyond them is for the caller to leave where it is, and to come back to. So a flood of one type
holds up few other types of its tenant, and how many types there are costs nothing.
"""

from __future__ import annotations

import zlib
from collections import Counter, deque
from typing import Generic, TypeVar

T = TypeVar("T")

Row = tuple[str, str, str | None]
"""Tenant, type, correlation."""

LANES = 8  # of a tenant
CROWD = 4  # times as many are held where all are of different lanes


def lane_of(tenant: str, event_type: str) -> str:
    """The lane of an event."""
    return f"{tenant} {zlib.crc32(event_type.encode('utf-8', 'surrogateescape')) % LANES}"


def order_of(log_id: str) -> tuple[int, int]:
    """Ids of entries, ``<ms>-<number>``, by time."""
    milliseconds, _, number = log_id.partition("-")
    return int(milliseconds), int(number or 0)


def before(log_id: str) -> str:
    """The id just below an id, which asks for this one as the next."""
    milliseconds, number = order_of(log_id)
    if number:
        return f"{milliseconds}-{number - 1}"
    return f"{milliseconds - 1}-{2**64 - 1}" if milliseconds else "0-0"


class Turns(Generic[T]):
    """``at_once``: places; ``of_one``: for one tenant at most. ``held``: how many events are held, about;
    ``held_of_one``: of one lane at most."""

    def __init__(self, *, at_once: int = 16, of_one: int = 12, held: int = 512, held_of_one: int = 32) -> None:
        self._at_once, self._of_one = at_once, of_one
        self._most, self._most_of_one = held, held_of_one
        # With their lanes; of the rows that hold something or are begun.
        self._queued: dict[Row, deque[tuple[str, T]]] = {}
        self._begun: set[Row] = set()
        self._places: Counter[str] = Counter()  # taken, by tenant
        self._held: Counter[str] = Counter()  # by lane
        self._total = 0
        self._ready: dict[str, deque[Row]] = {}  # rows with something held that are not begun, by tenant, in turn

    def takes(self, lane: str) -> bool:
        """Whether one more of the lane is to be held. One that has none is not shut out by the others, unless there are
        more lanes than a host can hold."""
        mine = self._held[lane]
        return mine < self._most_of_one and self._total < self._most * (1 if mine else CROWD)

    def is_low(self, lane: str) -> bool:
        """Whether it is time to come back to what was left."""
        return self._held[lane] * 2 <= self._most_of_one and self.takes(lane)

    def hold(self, lane: str, row: Row, item: T) -> None:
        """An event, behind those of its row."""
        if row not in self._queued:
            self._queued[row] = deque()
            self._ready.setdefault(row[0], deque()).append(row)
        self._queued[row].append((lane, item))
        self._held[lane] += 1
        self._total += 1

    def begin(self) -> tuple[Row, T] | None:
        """The event whose turn it is, where there is a place for one; ``end`` its row when it is done."""
        if len(self._begun) >= self._at_once:
            return None
        tenant = next((one for one in self._ready if self._places[one] < self._of_one), None)
        if tenant is None:
            return None
        rows = self._ready.pop(tenant)
        row = rows.popleft()
        if rows:
            self._ready[tenant] = rows  # behind all others
        self._begun.add(row)
        self._places[tenant] += 1
        lane, item = self._queued[row].popleft()
        self._less(self._held, lane)
        self._total -= 1
        return row, item

    def end(self, row: Row) -> None:
        """The event of this row that was begun is done, or given up."""
        self._begun.remove(row)
        self._less(self._places, row[0])
        if self._queued[row]:
            self._ready.setdefault(row[0], deque()).append(row)
        else:
            del self._queued[row]

    @staticmethod
    def _less(counts: Counter[str], name: str) -> None:
        counts[name] -= 1
        if not counts[name]:
            del counts[name]
