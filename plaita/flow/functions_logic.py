"""Comparison and choice of ``$F``. All arguments are evaluated before a function sees them, ``ifelse`` included."""

from __future__ import annotations

from typing import Any

from plaita.flow.expr_limits import kind


def both(a: Any, b: Any) -> Any:
    return a and b


def either(*values: Any) -> Any:
    """The first value that counts as true, else false."""
    for value in values:
        if value:
            return value
    return False


def negation(a: Any) -> bool:
    return not a


def equal(a: Any, b: Any) -> bool:
    return bool(a == b)


def not_equal(a: Any, b: Any) -> bool:
    return bool(a != b)


def greater(a: Any, b: Any) -> bool:
    _require_comparable(a, b)
    return bool(a > b)


def greater_or_equal(a: Any, b: Any) -> bool:
    _require_comparable(a, b)
    return bool(a >= b)


def less(a: Any, b: Any) -> bool:
    _require_comparable(a, b)
    return bool(a < b)


def less_or_equal(a: Any, b: Any) -> bool:
    _require_comparable(a, b)
    return bool(a <= b)


def _require_comparable(a: Any, b: Any) -> None:
    numbers = isinstance(a, (int, float)) and isinstance(b, (int, float))
    if numbers or (isinstance(a, str) and isinstance(b, str)) or (isinstance(a, list) and isinstance(b, list)):
        return
    raise TypeError(f"cannot order {kind(a)} and {kind(b)}")


def within(a: Any, b: Any) -> bool:
    """``a`` is an item of the list, a key of the object or a part of the text ``b``."""
    if isinstance(b, str):
        if not isinstance(a, str):
            raise TypeError(f"looks for a text in a text, not for {kind(a)}")
        return a in b
    if isinstance(b, dict):
        return isinstance(a, str) and a in b
    if isinstance(b, (list, tuple)):
        return a in b
    raise TypeError(f"looks in a list, an object or a text, not in {kind(b)}")


def not_within(a: Any, b: Any) -> bool:
    return not within(a, b)


def contains(a: Any, b: Any) -> bool:
    return within(b, a)


def not_contains(a: Any, b: Any) -> bool:
    return not within(b, a)


def ifelse(condition: Any, a: Any, b: Any) -> Any:
    return a if condition else b
