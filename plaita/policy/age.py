"""How old a carrier is, so that one from long ago is not run today (ledger D3, DECISIONS 20). Pure.

All times are epoch milliseconds. A carrier has up to three: when its stream entry was added, the ``timestamp`` of its
payload, and ``first_enqueued_at``, which copies carry on.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import Any

LATEST_MS = 253_402_300_799_999  # the last millisecond of year 9999
_MILLISECONDS_FROM = 100_000_000_000  # a smaller number is in seconds: as milliseconds it would be before 1973-03
# Python reads 1796051941006 as the 19th of May 1796, 10:06: what has more digits than a date is a number.
_NUMBER = re.compile(r"[+-]?\d{9,}(\.\d*)?")
_ENTRY_ID = re.compile(r"(\d+)-\d+")


def entry_ms(entry_id: str) -> int | None:
    """When a stream entry was added, by its id."""
    found = _ENTRY_ID.fullmatch(entry_id)
    return _in_range(int(found[1])) if found else None


def timestamp_ms(value: Any) -> int | None:
    """A producer's time: ISO 8601 text (UTC where it names no zone) or a number of seconds or milliseconds, also as
    text. None for anything else."""
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    if isinstance(value, str) and not _NUMBER.fullmatch(value):
        try:
            moment = datetime.fromisoformat(value)
            return _in_range(int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000))
        except (ValueError, OverflowError):
            pass
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return _in_range(int(value if abs(value) >= _MILLISECONDS_FROM else value * 1000))
    except (ValueError, OverflowError):
        return None


def timestamp_text(ms: int) -> str:
    """The ISO form of a time, which ``timestamp_ms`` reads back."""
    return datetime.fromtimestamp(ms / 1000, tz=UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _in_range(ms: int) -> int | None:
    return ms if 0 < ms <= LATEST_MS else None


def first_enqueued_ms(entry_id: str, *others: Any) -> int | None:
    """The earliest of the times that can be read. A time ahead of the entry's own, or one that cannot be read, makes
    nothing younger: the entry was there by then."""
    times = [entry_ms(entry_id), *(timestamp_ms(value) for value in others)]
    return min((time for time in times if time is not None), default=None)


class Verdict(Enum):
    RUNS = "runs"
    TOO_OLD = "older than the limit: dropped"
    UNKNOWN = "no time of it can be read: dropped"


@dataclass(frozen=True, slots=True)
class Ruling:
    verdict: Verdict
    age_ms: int | None = None


def too_old_after_ms(first_enqueued: int | None, max_age_ms: int) -> int | None:
    """The last moment at which a carrier is young enough; None where nothing limits it."""
    return None if first_enqueued is None or max_age_ms <= 0 else first_enqueued + max_age_ms


def judge(first_enqueued: int | None, now_ms: int, max_age_ms: int) -> Ruling:
    """``max_age_ms`` 0 is no limit. A carrier from the future (by a clock that is wrong) has age 0."""
    age = None if first_enqueued is None else max(0, now_ms - first_enqueued)
    if max_age_ms <= 0:
        return Ruling(Verdict.RUNS, age)
    if age is None:
        return Ruling(Verdict.UNKNOWN)
    return Ruling(Verdict.TOO_OLD if age > max_age_ms else Verdict.RUNS, age)
