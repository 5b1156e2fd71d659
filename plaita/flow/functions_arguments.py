"""What functions demand of their arguments. Each check returns the argument or raises TypeError with plain words."""

from __future__ import annotations

from typing import Any

from plaita.flow.expr_limits import kind


def number(value: Any) -> int | float:
    if isinstance(value, (int, float)):
        return value
    raise TypeError(f"expects a number, not {kind(value)}")


def whole(value: Any, what: str = "a whole number") -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise TypeError(f"expects {what}, not {kind(value)}")


def text(value: Any) -> str:
    if isinstance(value, str):
        return value
    raise TypeError(f"expects a text, not {kind(value)}")


def array(value: Any) -> list[Any]:
    if isinstance(value, list):
        return value
    if isinstance(value, tuple):
        return list(value)
    raise TypeError(f"expects a list, not {kind(value)}")


def table(value: Any) -> dict[str, Any]:
    if isinstance(value, dict):
        return value
    raise TypeError(f"expects an object, not {kind(value)}")


def position(values: list[Any], index: Any) -> int:
    """The place ``index`` means in ``values``, negative ones counted from the end. Raises IndexError outside."""
    place = whole(index, "a whole number as index")
    if not -len(values) <= place < len(values):
        raise IndexError(f"index {place} is outside a list of {len(values)}")
    return place
