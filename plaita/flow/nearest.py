"""The nearest right name for a wrong one, for messages. Bounded: a definition of 10,000 slips costs no minutes."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from itertools import islice

_MAX_CANDIDATES = 2000
_MAX_LENGTH = 100
_MAX_LISTED = 12


def shown(value: object, limit: int = 60) -> str:
    """``value`` for a message: its JSON-like repr, cut to ``limit`` characters."""
    text = repr(value) if isinstance(value, (str, int, float, bool, type(None))) else a_type(value)
    return text if len(text) <= limit else text[: limit - 1] + "…"


def a_type(value: object) -> str:
    """``a list``, ``an object``."""
    name = type_name(value)
    return f"an {name}" if name[:1] in "aeiou" else f"a {name}"


def type_name(value: object) -> str:
    """The JSON name of a value's type, as an author of JSON or YAML knows it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, (int, float)):
        return "number"
    if isinstance(value, str):
        return "text"
    if isinstance(value, dict):
        return "object"
    if isinstance(value, (list, tuple)):
        return "list"
    return type(value).__name__


class Nearest:
    """Suggests from a set of right names. ``budget`` suggestions are searched for, later ones are left out."""

    def __init__(self, names: Iterable[str], budget: int = 50) -> None:
        self._names = list(islice(names, _MAX_CANDIDATES))
        self._lowered = {name.lower(): name for name in self._names}
        self._budget = budget

    def find(self, wrong: str) -> str | None:
        """The one name nearest to ``wrong``, or None."""
        same = self._lowered.get(wrong.lower())
        if same is not None:
            return same
        if self._budget <= 0 or len(wrong) > _MAX_LENGTH:
            return None
        self._budget -= 1
        lowered = [name for name in self._lowered if len(name) <= _MAX_LENGTH]
        found = difflib.get_close_matches(wrong.lower(), lowered, n=1, cutoff=0.6)
        return self._lowered[found[0]] if found else None

    def hint(self, wrong: str) -> str:
        """``; did you mean 'end'?``, or what there is, or nothing."""
        near = self.find(wrong)
        if near is not None:
            return f"; did you mean {near!r}?"
        if 0 < len(self._names) <= _MAX_LISTED:
            return "; there is " + ", ".join(repr(name) for name in self._names)
        return ""
