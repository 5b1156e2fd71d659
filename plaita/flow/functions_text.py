"""Texts of ``$F``, and the one way a value becomes text. Results are measured before they are built."""

from __future__ import annotations

import json
from typing import Any

from plaita import jsontext
from plaita.flow.expr_limits import MAX_SPLIT_PARTS, MAX_VALUE_BYTES, kind, measure, megabytes, require_built
from plaita.flow.functions_arguments import array, text


def render(value: Any) -> str:
    """The text of a value inside a template or ``concat``: texts as they are, the rest as Python writes it
    (``None``, ``True``, ``1.5``, ``{'a': [1]}``). Raises ValueError when too large, TypeError for no JSON value."""
    if isinstance(value, str):
        return value
    if value is None or isinstance(value, (bool, float)):
        return str(value)
    if measure(value, MAX_VALUE_BYTES) > MAX_VALUE_BYTES:
        raise ValueError(f"the text of the {kind(value)} would take more than {megabytes(MAX_VALUE_BYTES)}")
    return str(value)


def lower(s: Any) -> str:
    return text(s).lower()


def upper(s: Any) -> str:
    return text(s).upper()


def capitalize(s: Any) -> str:
    return text(s).capitalize()


def title(s: Any) -> str:
    return text(s).title()


def strip(s: Any) -> str:
    return text(s).strip()


def lstrip(s: Any) -> str:
    return text(s).lstrip()


def rstrip(s: Any) -> str:
    return text(s).rstrip()


def replace(s: Any, old: Any, new: Any) -> str:
    source, searched, put = text(s), text(old), text(new)
    growth = len(put) - len(searched)
    if growth > 0:
        require_built(len(source) + source.count(searched) * growth, (source, searched, put))
    return source.replace(searched, put)


def split(s: Any, separator: Any) -> list[str]:
    """Parts between separators; null as separator means runs of white space."""
    source = text(s)
    parts = source.split(None if separator is None else text(separator), MAX_SPLIT_PARTS)
    if len(parts) > MAX_SPLIT_PARTS:
        raise ValueError(f"splits into more than {MAX_SPLIT_PARTS} parts")
    return parts


def join(values: Any, separator: Any) -> str:
    items, between = array(values), text(separator)
    size = 0
    for item in items:
        if not isinstance(item, str):
            raise TypeError(f"joins texts; the list holds {kind(item)}")
        size += len(item)
    require_built(size + len(between) * max(0, len(items) - 1), (items, between))
    return between.join(items)


def startswith(s: Any, prefix: Any) -> bool:
    return text(s).startswith(text(prefix))


def endswith(s: Any, suffix: Any) -> bool:
    return text(s).endswith(text(suffix))


def concat(*values: Any) -> str:
    parts: list[str] = []
    size = 0
    for value in values:
        part = render(value)
        size += len(part)
        if size > MAX_VALUE_BYTES:
            raise ValueError(f"the result would take more than {megabytes(MAX_VALUE_BYTES)}")
        parts.append(part)
    return "".join(parts)


def is_digit(s: Any) -> bool:
    return text(s).isdigit()


def json_loads(s: Any) -> Any:
    """The value of JSON text, integers exact. NaN and infinities are refused."""
    return jsontext.loads(text(s))


def json_dumps(value: Any) -> str:
    """JSON text, other letters than ASCII as escapes, with a blank after ``,`` and ``:`` as Python writes it."""
    if measure(value, MAX_VALUE_BYTES // 6) > MAX_VALUE_BYTES // 6:
        raise ValueError(f"the JSON text would take more than {megabytes(MAX_VALUE_BYTES // 6)}")
    jsontext.check(value)
    return json.dumps(value, ensure_ascii=True, allow_nan=False)
