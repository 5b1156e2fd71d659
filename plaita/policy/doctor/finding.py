"""One finding: how bad, what was seen, what would be right, why it matters, and what to do now."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum

SAMPLE = 5  # ids named in one finding


class Severity(Enum):
    OK = "ok"
    NOTE = "note"  # worth knowing; nothing has to be done
    WARNING = "warning"  # it will hurt, or already costs something
    ERROR = "error"  # work is lost, stands still, or will

    @property
    def rank(self) -> int:
        return _ORDER.index(self)


_ORDER = (Severity.OK, Severity.NOTE, Severity.WARNING, Severity.ERROR)


@dataclass(frozen=True, slots=True)
class Finding:
    """``check`` is a stable word. ``value`` is what was seen, ``wanted`` what would be right, both short; ``why`` a
    sentence; ``action`` the next thing to do, a command where there is one. The last two are empty when it is ok."""

    check: str
    severity: Severity
    value: str
    wanted: str = ""
    why: str = ""
    action: str = ""

    def as_dict(self) -> dict[str, str]:
        return {
            "check": self.check,
            "severity": self.severity.value,
            "value": self.value,
            "wanted": self.wanted,
            "why": self.why,
            "action": self.action,
        }


def fine(check: str, value: str, wanted: str = "") -> Finding:
    return Finding(check, Severity.OK, value, wanted)


def note(check: str, value: str, wanted: str, why: str, action: str = "") -> Finding:
    return Finding(check, Severity.NOTE, value, wanted, why, action)


def warning(check: str, value: str, wanted: str, why: str, action: str) -> Finding:
    return Finding(check, Severity.WARNING, value, wanted, why, action)


def error(check: str, value: str, wanted: str, why: str, action: str) -> Finding:
    return Finding(check, Severity.ERROR, value, wanted, why, action)


def not_allowed(check: str, what: str, action: str) -> Finding:
    """This user may not look: no fault by itself."""
    return note(
        check, "not allowed to look", "", f"this Redis user may not use {what}, so this was not checked", action
    )


def worst(findings: Iterable[Finding]) -> Severity:
    """The gravest of all; ok for none."""
    return max((finding.severity for finding in findings), key=lambda severity: severity.rank, default=Severity.OK)


def ordered(findings: Iterable[Finding]) -> list[Finding]:
    """The gravest first, else as they came."""
    return sorted(findings, key=lambda finding: -finding.severity.rank)


def sample(names: Sequence[str], total: int | None = None) -> str:
    """The first few names, and how many more there are."""
    shown = ", ".join(names[:SAMPLE])
    left = (len(names) if total is None else total) - min(len(names), SAMPLE)
    return f"{shown} and {left} more" if left > 0 else shown


def plural(count: int, one: str, many: str = "") -> str:
    """``1 carrier``, ``2 carriers``."""
    return f"{count} {one if count == 1 else many or one + 's'}"


def size(count: float) -> str:
    """Bytes for people."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1024 or unit == "GiB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    raise AssertionError("unreachable: the last unit returns")


def span(seconds: float) -> str:
    """A length of time for people: the largest unit that fits, whole where it is long."""
    for unit, length in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.3g} s"


def epoch_s(said: object) -> float | None:
    """A moment in ISO 8601 with its zone, in seconds since 1970; None for what is none."""
    try:
        moment = datetime.fromisoformat(said) if isinstance(said, str) else None
    except ValueError:
        return None
    return moment.timestamp() if moment is not None and moment.tzinfo is not None else None
