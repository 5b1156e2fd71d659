"""Numbers and moments as the screens of ``status`` and ``explain`` write them; what is not known is ``?`` or ``-``."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from plaita.cli.lines import one_line
from plaita.cli.status_view import seconds

RECENT_MS = 12 * 3_600_000  # what is older is told with its date


def count(values: Mapping[str, Any], name: str) -> str:
    """A number of the answer; ``?`` where it is not known."""
    value = values.get(name)
    return "?" if value is None else one_line(value)


def gib(value: Any) -> str:
    """``5.0 GiB``."""
    return f"{value:.1f} GiB" if isinstance(value, int | float) else "?"


def mib(value: Any) -> str:
    """MiB, whole."""
    return f"{value:.0f}" if isinstance(value, int | float) else "-"


def short(value: Any) -> str:
    """``16.3M``."""
    if not isinstance(value, int | float):
        return "?"
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= limit:
            return f"{value / limit:.1f}{unit}"
    return str(value)


def _moment(text: Any) -> datetime | None:
    """Of ISO 8601; None for what is none."""
    try:
        return datetime.fromisoformat(str(text))
    except ValueError:
        return None


def age(text: Any, now_ms: int) -> str:
    """How long ago."""
    moment = _moment(text)
    return "-" if moment is None else seconds(max(0.0, now_ms / 1000 - moment.timestamp()))


def since(text: Any, now_ms: int) -> str:
    """``10:15:03 UTC (4 min)``, with the date where it is long ago."""
    moment = _moment(text)
    if moment is None:
        return "?"
    then_ms = int(moment.timestamp() * 1000)
    return f"{clock(then_ms) if now_ms - then_ms < RECENT_MS else time(then_ms)} ({age(text, now_ms)})"


def time(ms: int) -> str:
    """With its date."""
    return datetime.fromtimestamp(ms / 1000, tz=UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def clock(now_ms: int) -> str:
    """The time of day."""
    return datetime.fromtimestamp(now_ms / 1000, tz=UTC).strftime("%H:%M:%S UTC")
