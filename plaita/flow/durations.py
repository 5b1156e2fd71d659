"""Durations as authors write them, in milliseconds (FLOW-FORMAT 2). Pure; reads no clock."""

from __future__ import annotations

import math
import re
from fractions import Fraction

from plaita.flow.nearest import shown

LONGEST_MS = 100 * 366 * 86_400_000
"""A hundred years: what is longer is a slip of the pen, and would overflow timers below us."""

LEGAL_FORMS = "an ISO 8601 duration (PT5S, PT0.3S, P1DT2H) or a number of milliseconds (5000)"
LEGAL_FORMS_IN_SECONDS = "an ISO 8601 duration (PT30M, P1DT2H) or a number of seconds (1800)"

_NUMBER = re.compile(r"[0-9]{1,20}(?:\.[0-9]{1,20})?\Z")
_PART = r"(?:(?P<{0}>[0-9]{{1,15}}(?:[.,][0-9]{{1,15}})?){1})?"
_ISO = re.compile(
    "P"
    + _PART.format("weeks", "W")
    + _PART.format("days", "D")
    + "(?P<time>T"
    + _PART.format("hours", "H")
    + _PART.format("minutes", "M")
    + _PART.format("seconds", "S")
    + r")?\Z"
)
_CALENDAR = re.compile(r"P[^T]*[0-9][YM]")
_UNIT_MS = {"weeks": 604_800_000, "days": 86_400_000, "hours": 3_600_000, "minutes": 60_000, "seconds": 1000}


class DurationError(ValueError):
    """A duration that is neither of the legal forms; the message names both."""


def parse_timeout(value: object) -> int | None:
    """Milliseconds, rounded up to a whole one; None for no limit (absent, null, empty text, zero).

    Raises DurationError for anything else: a negative or endless number, years and months (whose length depends on
    the calendar), a boolean, other text.
    """
    return _parsed(value, 1, LEGAL_FORMS)


def parse_seconds(value: object) -> int | None:
    """As :func:`parse_timeout`, in milliseconds too, but a bare number counts seconds: how long a wait may last
    (FLOW-FORMAT 2.2)."""
    return _parsed(value, 1000, LEGAL_FORMS_IN_SECONDS)


def _parsed(value: object, number_ms: int, forms: str) -> int | None:
    """``number_ms``: the milliseconds that a bare 1 means."""
    if value is None or value == "":
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise DurationError(f"{shown(value)} is no duration; write {forms}")
    exact = _from_text(value, number_ms, forms) if isinstance(value, str) else _from_number(value, forms) * number_ms
    if exact < 0:
        raise DurationError(f"{shown(value)}: a duration cannot be negative; write {forms}")
    if exact > LONGEST_MS:
        raise DurationError(f"{shown(value)} is longer than a hundred years; write {forms}")
    return math.ceil(exact) or None


def _from_number(value: int | float, forms: str) -> Fraction:
    if isinstance(value, float) and not math.isfinite(value):
        raise DurationError(f"{value!r} is no duration; write {forms}")
    return Fraction(value)


def _from_text(text: str, number_ms: int, forms: str) -> Fraction:
    if _NUMBER.match(text):
        return Fraction(text) * number_ms
    match = _ISO.match(text)
    parts = {} if match is None else {unit: match[unit] for unit in _UNIT_MS if match[unit] is not None}
    bare_time_mark = match is not None and match["time"] == "T"
    if not parts or bare_time_mark or _fraction_before_last(list(parts.values())):
        reason = f"{shown(text)} is no duration"
        if _CALENDAR.match(text):
            reason += ": years and months have no fixed length"
        raise DurationError(f"{reason}; write {forms}")
    return sum((Fraction(number.replace(",", ".")) * _UNIT_MS[unit] for unit, number in parts.items()), Fraction(0))


def _fraction_before_last(numbers: list[str]) -> bool:
    """ISO 8601 allows a decimal fraction in the smallest part only."""
    return any("." in number or "," in number for number in numbers[:-1])
