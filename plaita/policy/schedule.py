"""When a schedule's runs are due, and which of them are fired (ledger E5; KNOWN-TROUBLE 40, 41, 43).

The calendar is cronsim's: five fields as Debian's cron reads them, in a time zone. All moments are epoch milliseconds
of the server's clock. Due times follow from the one that is stored, never from when somebody looked, so a clock that
goes back fires nothing twice.
"""

from __future__ import annotations

import difflib
import re
import zoneinfo
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from functools import lru_cache
from itertools import takewhile
from typing import Literal, get_args

from cronsim import CronSim, CronSimError

from plaita.errors import InputError

Misfire = Literal["skip", "once", "all"]
MISFIRES: tuple[str, ...] = get_args(Misfire)
Kind = Literal["cron", "manual"]

GRACE_MS = 60_000  # a due time that nobody took for longer was missed
ALL_AT_MOST = 100  # runs that ``all`` fires for one outage, the latest ones
COUNTED_AT_MOST = 1500  # missed due times that are counted one by one: a day of minutes
MAX_EXPRESSION = 500
MAX_COUNT = 100
_HOUR_MS = 3_600_000
_WEEK_MS = 8 * 24 * _HOUR_MS  # and a day

_FIELDS = ("minute", "hour", "day-of-month", "month", "day-of-week")
_RIGHT = {
    "minute": "0 to 59",
    "hour": "0 to 23",
    "day-of-month": "1 to 31, L or LW, and one that its months have",
    "month": "1 to 12 or JAN to DEC",
    "day-of-week": "0 to 7 or SUN to SAT, 5L, MON#2",
}
_SHORTHANDS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_OFFSET = re.compile(r"(?:UTC|GMT|Z)?[+-]?[0-9]", re.IGNORECASE)
_OTHER_SETS = ("posix/", "right/")  # not on every host; the seconds of the second are not those of the server
_NO_ZONES = frozenset({"localtime", "posixrules", "Factory"})  # what they mean is another thing on each host


# -- cron expressions in a zone -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Calendar:
    """A judged cron expression in a zone; made by ``calendar``."""

    expression: str
    zone: str

    def after(self, moment_ms: int) -> Iterator[int]:
        """The due times after a moment, rising, the same wherever one begins. Ends where 50 years bring none."""
        last = moment_ms
        while True:
            for found in self._walk(last):
                # A time that the clocks repeat or leave out stands where the library has it: perhaps where we are.
                if found <= last:
                    continue
                sooner = self._passed_over(last, found)
                last = found if sooner is None else sooner
                yield last
                if sooner is not None:
                    break  # on from there
            else:
                return

    def latest(self, moment_ms: int, count: int, since_ms: int) -> list[int]:
        """The last due times from ``since_ms`` to a moment, rising: ``count`` of them, all where there are fewer.

        Always walked forwards: backwards the library finds no way past a midnight that the clocks leave out.
        """
        window = _HOUR_MS
        while True:
            begin = max(since_ms - 1, moment_ms - window)
            found = deque(takewhile(lambda due: due <= moment_ms, self.after(begin)), maxlen=count)
            if len(found) == count or begin < since_ms:
                return list(found)
            window *= 2

    def next_after(self, moment_ms: int) -> int | None:
        """The first due time after a moment; None where 50 years bring none."""
        return next(self.after(moment_ms), None)

    def _walk(self, moment_ms: int) -> Iterator[int]:
        try:
            for found in CronSim(self.expression, self.local(moment_ms)):
                yield round(found.timestamp()) * 1000
        except (OverflowError, ValueError, OSError):
            return  # the calendar's own end: the years 1 and 9999

    def _passed_over(self, last: int, found: int) -> int | None:
        """What the library passes over where clocks change by other than whole hours (Lord Howe): it walks by hours of
        real time, and so comes to the hours of that day at their half. None where there is nothing."""
        begin = max(last - _HOUR_MS, found - _WEEK_MS)
        before = self._offset_s(begin)
        if (self._offset_s(found) - before) % 3600 == 0:
            return None
        same, change = begin // 1000, found // 1000  # seconds: with the old offset, with the new one
        while change - same > 1:
            middle = (same + change) // 2
            same, change = (middle, change) if self._offset_s(middle * 1000) == before else (same, middle)
        hour = change + (-(change + self._offset_s(change * 1000))) % 3600  # the next whole one by the new clocks
        seen = (next((due for due in self._walk((at - 1) * 1000) if due > last), found) for at in (change, hour))
        sooner = min(seen)
        return sooner if sooner < found else None

    def local(self, moment_ms: int) -> datetime:
        """A moment by the clocks of the zone."""
        return datetime.fromtimestamp(moment_ms / 1000, tz=UTC).astimezone(zone_of(self.zone))

    def _offset_s(self, moment_ms: int) -> int:
        offset = self.local(moment_ms).utcoffset()
        return 0 if offset is None else round(offset.total_seconds())


def calendar(expression: object, zone: object, now_ms: int) -> Calendar:
    """A cron expression and a zone, judged. Raises InputError that names the field: also for one that never comes."""
    words = _words(expression)
    found = Calendar(" ".join(words), _zone_name(zone))
    try:
        CronSim(found.expression, datetime(2000, 1, 1, tzinfo=UTC))
    except CronSimError as error:
        field = str(error).removeprefix("Bad ")
        place = _FIELDS.index(field) if field in _FIELDS else 0
        right = _RIGHT.get(field, "as in `crontab -e`")
        raise InputError(f"cron: the field {field} is {_shown(words[place])}; {right}, with * , - and /") from None
    if found.next_after(now_ms) is None:
        raise InputError(f"cron: {_shown(found.expression)} never comes: no day is of that month and that weekday")
    return found


def _words(expression: object) -> list[str]:
    if not isinstance(expression, str):
        raise InputError(f"cron: {_shown(expression)}; a text of five fields is wanted, like '0 6 * * 1-5'")
    if len(expression) > MAX_EXPRESSION:
        raise InputError(f"cron: {len(expression)} characters; at most {MAX_EXPRESSION}")
    words = expression.split()
    if len(words) == 5:
        return words
    name = expression.strip().lower()
    if name in _SHORTHANDS:
        raise InputError(f"cron: {name!r} is not taken; write {_SHORTHANDS[name]!r}")
    six = "; seconds are not planned: leave out the first" if len(words) == 6 else ""
    raise InputError(
        f"cron: {_shown(expression)} has {len(words)} fields; five are wanted: minute, hour, day of month, month, "
        f"day of week{six}"
    )


@lru_cache(maxsize=1024)
def zone_of(name: str) -> tzinfo:
    """The zone by its name. Raises InputError that names it and the nearest right one."""
    if name in ("UTC", "Etc/UTC"):
        return UTC
    try:
        if name in _NO_ZONES or name.startswith(_OTHER_SETS):
            raise ValueError(name)
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        raise InputError(f"tz: {_shown(name)} is no time zone; {_near(name)}") from None


def _near(name: str) -> str:
    if _OFFSET.match(name):  # the nearest names are the most misleading: Etc/GMT+3 is three hours behind
        return "an offset knows no summer time: name a place, like Europe/Berlin, or Etc/GMT-2 for UTC+02:00 all year"
    zones = {zone.lower(): zone for zone in sorted(zoneinfo.available_timezones() - _NO_ZONES)}
    cities = {zone.rpartition("/")[2]: zone for zone in zones.values()}
    wrong = name[:60].lower().replace(" ", "_")
    near = difflib.get_close_matches(wrong, [*zones, *(city.lower() for city in cities)], n=1, cutoff=0.6)
    if not near:
        return "one is Europe/Berlin"
    found = zones.get(near[0]) or next(zone for city, zone in cities.items() if city.lower() == near[0])
    return f"did you mean {found!r}?"


def _shown(value: object, limit: int = 60) -> str:
    text = repr(value)
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _zone_name(zone: object) -> str:
    if not isinstance(zone, str) or not zone:
        raise InputError(f"tz: {_shown(zone)}; the name of a time zone is wanted, like Europe/Berlin")
    zone_of(zone)
    return zone


# -- what is fired ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Firing:
    """``fire``: the due times to run, rising. ``skipped``: how many others had passed, ``skipped_from`` to
    ``skipped_to``; not ``counted``: at least so many. ``next_due``: the first one after now, None for never."""

    fire: tuple[int, ...]
    skipped: int
    skipped_from: int | None
    skipped_to: int | None
    counted: bool
    next_due: int | None


def firing(plan: Calendar, due_ms: int, now_ms: int, misfire: Misfire) -> Firing:
    """What to do about the stored due time ``due_ms`` and all that passed since.

    ``skip``: only what is not older than ``GRACE_MS``. ``once``: the latest one, for all. ``all``: each, the latest
    ``ALL_AT_MOST``. Nothing before its time: with a clock that went back, the stored due time is waited for.
    """
    if now_ms < due_ms:
        return Firing((), 0, None, None, True, due_ms)
    passed = [due_ms]
    next_due: int | None = None
    counted = True
    for found in plan.after(due_ms):
        if found > now_ms:
            next_due = found
            break
        if len(passed) >= COUNTED_AT_MOST:
            counted = False
            next_due = plan.next_after(now_ms)
            break
        passed.append(found)
    latest = passed if counted else plan.latest(now_ms, ALL_AT_MOST + 1, due_ms)
    fire = _chosen(latest, now_ms, misfire)
    others = [due for due in passed if due not in set(fire)]
    last_other = next((due for due in reversed(latest) if due not in set(fire)), None)
    skipped_to = max(others[-1], last_other or 0) if others else None
    return Firing(fire, len(others), others[0] if others else None, skipped_to, counted, next_due)


def _chosen(passed: list[int], now_ms: int, misfire: Misfire) -> tuple[int, ...]:
    if misfire == "all":
        return tuple(passed[-ALL_AT_MOST:])
    if misfire == "once":
        return tuple(passed[-1:])
    return tuple(due for due in passed[-ALL_AT_MOST:] if due > now_ms - GRACE_MS)


# -- keys ---------------------------------------------------------------------------------------------


def cron_key(schedule_id: str, due_ms: int | None, now_ms: int) -> str:
    """The dedup key of a run by the clock (ledger E5): by its due time, not by when it is fired. Without one, by the
    second in which it is fired, which its caller warns of."""
    if due_ms is None:
        return f"sched:{schedule_id}:fired:{now_ms // 1000}"
    return f"sched:{schedule_id}:due:{due_ms}"


def manual_key(schedule_id: str, clock_ns: int, sequence: int) -> str:
    """The dedup key of a run by hand: ``sequence`` is another at each call, whatever the clock says."""
    return f"sched:{schedule_id}:manual:{clock_ns}-{sequence}"
