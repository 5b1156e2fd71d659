"""JSON that is exact both ways: what goes in comes out, or a named error says where it would not.

orjson does the work where it is exact. It is not everywhere: it writes NaN as null, refuses integers above
64 bits and reads them as rounded floats. Those values take the slower path through the standard library.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

import orjson

from plaita.errors import PlaitaError

MAX_DEPTH = 256  # each level takes two frames of Python's 1000
_TOO_DEEP = f"nested deeper than {MAX_DEPTH} levels"
MAX_INTEGER_DIGITS = 4300  # Python's own default limit for text <-> int
MOST_STEPS = 10
_LONG_NUMBER = re.compile(rb"[0-9]{19}")


class JSONValueError(ValueError, PlaitaError):
    """A Python value that JSON cannot carry exactly. ``path`` is like ``$.items[3].price``."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason


class JSONTextError(ValueError, PlaitaError):
    """Text that is not JSON, or holds a number or a character no JSON reader keeps exactly."""


Path = str | tuple["Path", str | int]
"""Where a value stands: the name of the root, or (path of its parent, key or index). Only put into words when it is
needed: a long key with many children must not cost its length for each of them."""


def _name(value: object) -> str:
    return type(value).__qualname__


def _worded(path: Path) -> str:
    """``$.items[3].price``; keys are cut to 60 characters, and what is deep to its first 10 steps: nobody reads 256."""
    steps: list[str] = []
    while not isinstance(path, str):
        path, step = path
        steps.append(f"[{step}]" if isinstance(step, int) else "." + (step if len(step) <= 60 else step[:60] + "…"))
    steps.reverse()
    return path + "".join(steps if len(steps) <= MOST_STEPS else [*steps[:MOST_STEPS], "…"])


def _check(value: Any, path: Path, depth: int) -> None:
    kind = type(value)
    if kind is str:
        _check_text(value, path)
    elif kind is bool or value is None:
        return
    elif kind is dict or kind is list:
        _check_container(value, path, depth)
    elif kind is int:
        _check_integer(value, path)
    elif kind is float:
        if not math.isfinite(value):
            raise JSONValueError(_worded(path), f"{value!r} is no JSON number")
    elif isinstance(value, (dict, list, tuple)):
        _check_container(value, path, depth)
    elif isinstance(value, str):
        _check_text(value, path)
    elif isinstance(value, int):
        _check_integer(value, path)
    elif isinstance(value, float):
        _check(float(value), path, depth)
    else:
        reason = f"a {_name(value)} is no JSON value (text, number, true, false, null, list, object)"
        raise JSONValueError(_worded(path), reason)


def _check_text(value: str, path: Path) -> None:
    if value.isascii():
        return
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        reason = "the text holds a lone surrogate, which UTF-8 cannot carry"
        raise JSONValueError(_worded(path), reason) from None


def _check_integer(value: int, path: Path) -> None:
    if value.bit_length() > 14_280 and abs(value) >= 10**MAX_INTEGER_DIGITS:
        raise JSONValueError(_worded(path), f"the integer has more than {MAX_INTEGER_DIGITS} digits")


def _check_container(value: Any, path: Path, depth: int) -> None:
    if depth >= MAX_DEPTH:
        raise JSONValueError(_worded(path), _TOO_DEEP)
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                reason = f"the key {_shown(key)} is a {_name(key)}; JSON keys are texts"
                raise JSONValueError(_worded(path), reason)
            _check_text(key, path)
            _check(item, (path, key), depth + 1)
        return
    for index, item in enumerate(value):
        _check(item, (path, index), depth + 1)


def _shown(value: object) -> str:
    try:
        text = repr(value)
    except Exception as error:  # noqa: BLE001 - a repr of user code may raise anything; it must not hide our own error
        return f"<{_name(value)} whose repr raises {_name(error)}>"
    return text if len(text) <= 60 else text[:60] + "…"


def check(value: Any, path: str = "$", *, within: int = 0) -> None:
    """Raise JSONValueError unless ``value`` is built of dict (text keys), list or tuple, str, int, finite float,
    bool and None (subclasses count as their base): then ``loads(dumps(value))`` gives it back (tuples as lists).
    ``within``: how many levels are to stand around it in the end."""
    try:
        _check(value, path, within)
    except JSONValueError as error:
        if error.reason != _TOO_DEEP:
            raise
        raise JSONValueError(error.path, f"nested deeper than {MAX_DEPTH - within} levels") from None


def dumps(value: Any, path: str = "$") -> bytes:
    """Compact UTF-8 JSON of a checked value. Raises JSONValueError."""
    _check(value, path, 0)
    try:
        return orjson.dumps(value)
    except TypeError:  # orjson.JSONEncodeError: an integer above 64 bits, a tuple subclass, depth above its own limit
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode("utf-8")


def canonical(value: Any) -> bytes:
    """The one text of a value: keys sorted, compact, UTF-8. What hashes are taken over."""
    _check(value, "$", 0)
    return json.dumps(value, ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":")).encode()


def _refuse_constant(text: str) -> Any:
    raise JSONTextError(f"{text} is no JSON number")


def _exact_float(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise JSONTextError(f"the number {text[:40]} is too large for any reader to keep")
    return number


def _exact_int(text: str) -> int:
    if len(text) > MAX_INTEGER_DIGITS:
        raise JSONTextError(f"an integer of {len(text)} digits; at most {MAX_INTEGER_DIGITS} are read")
    return int(text)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in pairs:
        if key in result:
            raise JSONTextError(f"the key {key!r} stands twice in one object")
        result[key] = value
    return result


def loads(text: bytes | str, *, unique_keys: bool = False, within: int | None = None) -> Any:
    """The value of JSON text, integers exact. Raises JSONTextError with line and column where known.

    ``unique_keys`` refuses an object that names a key twice: for definitions and configuration, where a reviewer
    would read the first and the engine the last. ``within``: for text from outside, which may be deeper than ``dumps``
    takes: how many levels are to stand around the value in the end.
    """
    data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    try:
        if not unique_keys and _LONG_NUMBER.search(data) is None:
            value = orjson.loads(data)
            if within is not None:
                check(value, within=within)
            return value
        value = json.loads(
            data.decode("utf-8"),
            parse_constant=_refuse_constant,
            parse_float=_exact_float,
            parse_int=_exact_int,
            object_pairs_hook=_unique if unique_keys else None,
        )
        check(value, within=within or 0)
        return value
    except JSONTextError:
        raise
    except JSONValueError as error:
        raise JSONTextError(str(error)) from None
    except RecursionError:
        raise JSONTextError(f"nested deeper than {MAX_DEPTH} levels") from None
    except UnicodeDecodeError as error:
        raise JSONTextError(f"not UTF-8: byte {error.object[error.start]:#04x} at {error.start}") from None
    except ValueError as error:
        raise JSONTextError(f"not JSON: {error}") from None
