"""The bounds of the expression language, and how large a value is (FLOW-FORMAT rule 19).

Owns every number that keeps a short text from building something large, and the measure they are compared with.
Knows nothing of syntax or functions.
"""

from __future__ import annotations

from typing import Any

MAX_EXPRESSION_BYTES = 16 * 1024
"""Longest text of one expression: a whole ``$...`` text, or the inside of one ``{% %}``."""

MAX_DEPTH = 64
"""Deepest nesting of calls in an expression, of lists and objects in a value, of groups in a condition."""

MAX_BUILT_BYTES = 1024 * 1024
"""Largest text or list that one function may build out of small arguments."""

MAX_VALUE_BYTES = 64 * 1024 * 1024
"""All that the functions and templates of one value may build together, however large their arguments are."""

MAX_TEMPLATE_PARTS = 10_000
"""Most ``{% %}`` in one text."""

MAX_EXPONENT = 10_000
MAX_SPLIT_PARTS = 1_000_000
MAX_TIME_FORMAT = 256


def kind(value: Any) -> str:
    """The JSON name of a value's type, for messages: ``null boolean integer number text list object``."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "integer"
    if isinstance(value, float):
        return "number"
    if isinstance(value, str):
        return "text"
    if isinstance(value, (list, tuple)):
        return "list"
    if isinstance(value, dict):
        return "object"
    return type(value).__name__


def measure(value: Any, limit: int) -> int:
    """About the bytes of the value as JSON text; counting stops as soon as it is above ``limit``.

    Objects that occur several times count each time, as they would in text. Raises TypeError for what is no JSON value.
    """
    size = 0
    pending = [value]
    while pending and size <= limit:
        item = pending.pop()
        if item is None or isinstance(item, (bool, float)):
            size += 8
        elif isinstance(item, str):
            size += len(item) + 3
        elif isinstance(item, int):
            size += 2 + item.bit_length() // 3
        elif isinstance(item, (list, tuple)):
            size += 2 + len(item)
            pending.extend(item)
        elif isinstance(item, dict):
            size += 2 + 4 * len(item)
            pending.extend(item.keys())
            pending.extend(item.values())
        else:
            raise TypeError(f"a {kind(item)} is no JSON value")
    return size


def megabytes(size: int) -> str:
    """``1.5 MiB``, for messages."""
    return f"{size / (1024 * 1024):.1f} MiB"


def require_built(size: int, arguments: Any) -> None:
    """Raise ValueError when ``size`` bytes are more than MAX_BUILT_BYTES and than twice the arguments' own size."""
    if size <= MAX_BUILT_BYTES:
        return
    if size > MAX_VALUE_BYTES or size > 2 * measure(arguments, size):
        raise ValueError(
            f"the result would take {megabytes(size)}; at most {megabytes(MAX_BUILT_BYTES)} are built from small values"
        )


def shortened(text: str, length: int = 100) -> str:
    """The text, cut in the middle of nowhere with an ellipsis; control characters shown as escapes."""
    cut = text if len(text) <= length else text[: length - 1] + "…"
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode("ascii") for c in cut)
