"""Arithmetic of ``$F``. Integers stay exact; nothing is computed before its size is known to be bounded.

Only numbers are numbers here: ``mod`` and ``mul`` of texts would be formatting and repetition, so texts are let in
by name where the language has them (``add`` joins, ``mul`` repeats) and refused elsewhere.
"""

from __future__ import annotations

import math
from typing import Any

from plaita.flow.expr_limits import MAX_BUILT_BYTES, MAX_EXPONENT, kind, measure, megabytes, require_built
from plaita.flow.functions_arguments import number, whole
from plaita.jsontext import MAX_INTEGER_DIGITS

_MAX_BITS = 14_285
_LARGEST = 10**MAX_INTEGER_DIGITS


def require_carried(value: int) -> int:
    """The integer, unless JSON text does not carry it (4300 digits): then OverflowError."""
    if value.bit_length() >= _MAX_BITS and abs(value) >= _LARGEST:
        raise OverflowError(f"the result has more than {MAX_INTEGER_DIGITS} digits")
    return value


def add(a: Any, b: Any) -> Any:
    if isinstance(a, str) and isinstance(b, str):
        require_built(len(a) + len(b), (a, b))
        return a + b
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return [*a, *b]
    if isinstance(a, (int, float)) and isinstance(b, (int, float)):
        return a + b
    raise TypeError(f"adds two numbers, two texts or two lists, not {kind(a)} and {kind(b)}")


def sub(a: Any, b: Any) -> Any:
    return number(a) - number(b)


def mul(a: Any, b: Any) -> Any:
    if isinstance(a, (int, float)) and isinstance(b, (int, float)):
        return a * b
    if isinstance(a, (str, list, tuple)):
        return _repeat(a, whole(b, "a whole number of repetitions"))
    if isinstance(b, (str, list, tuple)):
        return _repeat(b, whole(a, "a whole number of repetitions"))
    raise TypeError(f"multiplies two numbers, or repeats a text or list, not {kind(a)} and {kind(b)}")


def _repeat(value: str | list[Any] | tuple[Any, ...], times: int) -> Any:
    if times <= 0 or not value:
        return value[:0]
    size = len(value) * times if isinstance(value, str) else measure(value, MAX_BUILT_BYTES) * times
    if size > MAX_BUILT_BYTES:
        raise ValueError(f"the repetition would take more than {megabytes(MAX_BUILT_BYTES)}")
    return value * times if isinstance(value, str) else list(value) * times


def div(a: Any, b: Any) -> Any:
    return number(a) / number(b)


def mod(a: Any, b: Any) -> Any:
    return number(a) % number(b)


def power(a: Any, b: Any) -> Any:
    base, exponent = number(a), number(b)
    if isinstance(exponent, int):
        if abs(exponent) > MAX_EXPONENT:
            raise ValueError(f"the exponent is outside -{MAX_EXPONENT} to {MAX_EXPONENT}")
        if isinstance(base, int) and exponent > 0 and (abs(base).bit_length() - 1) * exponent > _MAX_BITS:
            raise OverflowError(f"the result has more than {MAX_INTEGER_DIGITS} digits")
    result: Any = base**exponent
    if isinstance(result, complex):
        raise ValueError("a negative number has no such power among the real numbers")
    return result


def absolute(a: Any) -> Any:
    return abs(number(a))


def ceil(a: Any) -> int:
    return math.ceil(number(a))


def floor(a: Any) -> int:
    return math.floor(number(a))


def trunc(a: Any) -> int:
    return math.trunc(number(a))


def sqrt(a: Any) -> float:
    return math.sqrt(number(a))


def rounded(a: Any, digits: Any = None) -> Any:
    """Half to even, as Python rounds. Without ``digits`` (or null) the result is an integer."""
    value = number(a)
    if digits is None:
        return round(value)
    places = whole(digits, "a whole number of digits")
    if abs(places) > MAX_INTEGER_DIGITS:
        raise ValueError(f"rounds to at most {MAX_INTEGER_DIGITS} digits")
    return round(value, places)
