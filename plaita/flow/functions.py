"""The ``$F`` functions by name, with how many arguments each takes.

Owns the table and what registering a function of one's own demands. It does not parse and does not evaluate.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from plaita.flow import functions_data as data
from plaita.flow import functions_logic as logic
from plaita.flow import functions_math as maths
from plaita.flow import functions_text as texts
from plaita.flow import functions_time as times
from plaita.flow import functions_waiting as waiting
from plaita.flow.nearest import Nearest

_PASS_ON = frozenset({"and", "or", "ifelse", "get", "getDictValue", "getListItem"})
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*\Z")


@dataclass(frozen=True, slots=True)
class FunctionSpec:
    """One function. ``most`` is None when it takes any number of arguments; ``timed`` functions get the step's start
    in epoch milliseconds before the author's arguments, ``scoped`` ones the scope; only the author's are counted.
    Functions that only pass on what they were given, or a part of it, do not count as having built it (``builds``
    false)."""

    name: str
    call: Callable[..., Any]
    least: int
    most: int | None
    category: str
    timed: bool = False
    scoped: bool = False
    builds: bool = True
    has_side_effects: bool = False
    description: str = ""

    def arity_fault(self, given: int) -> str | None:
        """What is wrong with that many arguments, or None."""
        if self.least <= given and (self.most is None or given <= self.most):
            return None
        if self.most is None:
            wanted = f"at least {self.least}"
        elif self.least == self.most:
            wanted = str(self.least)
        else:
            wanted = f"{self.least} to {self.most}"
        plural = "" if wanted == "1" else "s"
        return f"$F.{self.name} takes {wanted} argument{plural}, {given} given"


def _group(category: str, *entries: tuple[str, Callable[..., Any], int, int | None]) -> dict[str, FunctionSpec]:
    return {
        name: FunctionSpec(name, call, least, most, category, builds=name not in _PASS_ON)
        for name, call, least, most in entries
    }


_MATH = _group(
    "math",
    ("add", maths.add, 2, 2),
    ("sub", maths.sub, 2, 2),
    ("mul", maths.mul, 2, 2),
    ("div", maths.div, 2, 2),
    ("mod", maths.mod, 2, 2),
    ("pow", maths.power, 2, 2),
    ("abs", maths.absolute, 1, 1),
    ("ceil", maths.ceil, 1, 1),
    ("floor", maths.floor, 1, 1),
    ("round", maths.rounded, 1, 2),
    ("trunc", maths.trunc, 1, 1),
    ("sqrt", maths.sqrt, 1, 1),
)
_STRING = _group(
    "string",
    ("lower", texts.lower, 1, 1),
    ("upper", texts.upper, 1, 1),
    ("capitalize", texts.capitalize, 1, 1),
    ("title", texts.title, 1, 1),
    ("strip", texts.strip, 1, 1),
    ("lstrip", texts.lstrip, 1, 1),
    ("rstrip", texts.rstrip, 1, 1),
    ("replace", texts.replace, 3, 3),
    ("split", texts.split, 2, 2),
    ("join", texts.join, 2, 2),
    ("startswith", texts.startswith, 2, 2),
    ("endswith", texts.endswith, 2, 2),
    ("concat", texts.concat, 0, None),
    ("isDigit", texts.is_digit, 1, 1),
)
_LOGIC = _group(
    "logic",
    ("and", logic.both, 2, 2),
    ("or", logic.either, 0, None),
    ("not", logic.negation, 1, 1),
    ("eq", logic.equal, 2, 2),
    ("ne", logic.not_equal, 2, 2),
    ("gt", logic.greater, 2, 2),
    ("gte", logic.greater_or_equal, 2, 2),
    ("lt", logic.less, 2, 2),
    ("lte", logic.less_or_equal, 2, 2),
    ("in", logic.within, 2, 2),
    ("notIn", logic.not_within, 2, 2),
    ("contains", logic.contains, 2, 2),
    ("notContains", logic.not_contains, 2, 2),
    ("ifelse", logic.ifelse, 3, 3),
)
_ARRAY = _group(
    "array",
    ("len", data.length, 1, 1),
    ("length", data.length, 1, 1),
    ("index", data.index, 2, 2),
    ("slice", data.part, 3, 3),
    ("append", data.append, 2, 2),
    ("extend", data.extend, 2, 2),
    ("insert", data.insert, 3, 3),
    ("remove", data.remove, 2, 2),
    ("reverse", data.reverse, 1, 1),
    ("sort", data.ordered, 1, 3),
    ("getListItem", data.item_at, 2, 2),
    ("addListItem", data.append, 2, 2),
    ("insertListItem", data.insert, 3, 3),
    ("pop", data.without_item_at, 2, 2),
    ("delListItem", data.without_item_at, 2, 2),
    ("setListItem", data.with_item_at, 3, 3),
)
_OBJECT = _group(
    "dict",
    ("keys", data.keys, 1, 1),
    ("values", data.values, 1, 1),
    ("items", data.items, 1, 1),
    ("get", data.get, 2, 3),
    ("getDictValue", data.get, 2, 3),
    ("getDictKeys", data.keys, 1, 1),
    ("getDictValues", data.values, 1, 1),
    ("set", data.with_key, 3, 3),
    ("delete", data.without_key, 2, 2),
    ("clear", data.cleared, 1, 1),
    ("setDictValue", data.with_key, 3, 3),
    ("delDictValue", data.without_key, 2, 2),
    ("clearDict", data.cleared, 1, 1),
)
_JSON = _group("json", ("json_loads", texts.json_loads, 1, 1), ("json_dumps", texts.json_dumps, 1, 1))
_TIME = {
    "now": FunctionSpec("now", times.now, 0, 1, "datetime", timed=True),
    "today": FunctionSpec("today", times.today, 0, 1, "datetime", timed=True),
}
_WAITING = {"callback_url": FunctionSpec("callback_url", waiting.callback_url, 1, 1, "waiting", scoped=True)}

BUILT_IN: dict[str, FunctionSpec] = {**_MATH, **_STRING, **_LOGIC, **_ARRAY, **_OBJECT, **_TIME, **_JSON, **_WAITING}
_registered: dict[str, FunctionSpec] = {}
_changes: list[str] = []


def version() -> int:
    """Counts the changes of the table: compiled expressions are cached by it."""
    return len(_changes)


def find(name: str) -> FunctionSpec | None:
    """The function of that name, registered ones before built-in ones."""
    return _registered.get(name) or BUILT_IN.get(name)


def names() -> list[str]:
    """All names, sorted."""
    return sorted({*BUILT_IN, *_registered})


def hint(wrong: str) -> str:
    """``; did you mean 'upper'?`` or nothing."""
    return Nearest(names(), budget=1).hint(wrong)


def register(
    name: str,
    function: Callable[..., Any],
    category: str = "custom",
    has_side_effects: bool = False,
    description: str = "",
    override: bool = False,
) -> FunctionSpec:
    """Add a function of a plug-in's own for all flows of this process.

    It takes and gives JSON values and must not keep or change its arguments. Its positional parameters are what
    authors may give. Raises ValueError for a name that is taken (unless ``override``) or no name, TypeError for a
    function whose parameters cannot be told or that demands keywords. Flows compiled before keep the function they
    were compiled with.
    """
    if _NAME.match(name) is None:
        raise ValueError(f"{name!r} is no function name; use ASCII letters, digits and _, a letter first")
    if not override and find(name) is not None:
        raise ValueError(f"there is a function {name} already; pass override=True to replace it")
    least, most = _arity(name, function)
    spec = FunctionSpec(
        name, function, least, most, category, has_side_effects=has_side_effects, description=description
    )
    _registered[name] = spec
    _changes.append(name)
    return spec


def unregister(name: str) -> None:
    """Forget a registered function; a built-in one of that name shows again. Unknown names are no fault."""
    if _registered.pop(name, None) is not None:
        _changes.append(name)


def _arity(name: str, function: Callable[..., Any]) -> tuple[int, int | None]:
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError as error:
        raise TypeError(f"the parameters of {name} cannot be told: {error}") from None
    least, most = 0, 0
    unbounded = False
    for parameter in parameters:
        if parameter.kind is parameter.VAR_POSITIONAL:
            unbounded = True
        elif parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            most += 1
            least += parameter.default is parameter.empty
        elif parameter.kind is parameter.KEYWORD_ONLY and parameter.default is parameter.empty:
            raise TypeError(f"{name} demands the keyword {parameter.name}; expressions have none")
    return least, None if unbounded else most
