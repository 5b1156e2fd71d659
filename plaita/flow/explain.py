"""pydantic's validation errors in the words of a flow's author: his own spelling of the place, his own types."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from plaita.flow.failure import clean_text
from plaita.flow.fields import Part, nested_part, spellings
from plaita.flow.nearest import Nearest, shown, type_name

_WANTED = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "list_type": "a list",
    "dict_type": "an object",
    "model_type": "an object",
    "model_attributes_type": "an object",
}


MAX_FAULTS = 500
"""A list of half a million wrong items is explained by its first ones."""


def joined(place: str, inner: str) -> str:
    """``nodes[0]`` and ``next`` -> ``nodes[0].next``."""
    if not place or not inner:
        return place or inner
    return place + inner if inner.startswith("[") else f"{place}.{inner}"


def explained(cls: type[BaseModel], data: Any, faults: Sequence[ErrorDetails]) -> list[tuple[str, str]]:
    """(place, reason) of pydantic's ``faults``. The alternatives of one field (a number or text) become one reason."""
    wanted: dict[str, list[str]] = {}
    reasons: dict[str, list[str]] = {}
    inputs: dict[str, Any] = {}
    for each in faults[:MAX_FAULTS]:
        place = _place(cls, data, each["loc"])
        inputs[place] = each["input"]
        if each["type"] in _WANTED:
            wanted.setdefault(place, []).append(_WANTED[each["type"]])
        else:
            reason = _missing(cls, each) if each["type"] == "missing" else _reason(each)
            reasons.setdefault(place, []).append(reason)
    for place, kinds in wanted.items():
        alternatives = " or ".join(dict.fromkeys(kinds))
        value = inputs[place]
        plain = isinstance(value, (str, int, float)) and not isinstance(value, bool)
        this = f"{type_name(value)} {shown(value)}" if plain or isinstance(value, bool) else type_name(value)
        reasons.setdefault(place, []).append(f"{alternatives} is wanted, not {this}")
    return [(place, reason) for place, listed in reasons.items() for reason in dict.fromkeys(listed)]


def _reason(fault: ErrorDetails) -> str:
    kind, message = fault["type"], fault["msg"]
    if kind == "value_error":
        return clean_text(message.removeprefix("Value error, "))
    if kind == "literal_error":
        return clean_text(f"{message.removeprefix('Input should be ')} is wanted, not {shown(fault['input'])}")
    return clean_text(message)


def _missing(cls: type[BaseModel], fault: ErrorDetails) -> str:
    """With the key that may be meant for it: the warning about that one is not seen where a flow is refused."""
    text = "required field is missing"
    data, table = fault["input"], spellings(cls)
    if len(fault["loc"]) == 1 and isinstance(data, Mapping):
        names = Nearest([spelling for spelling, name in table.items() if name == fault["loc"][0]])
        for key in data:
            near = names.find(key) if isinstance(key, str) and key not in table else None
            if near is not None:
                return f"{text}; {shown(key)} is no field, did you mean {near!r}?"
    return text


def _place(cls: type[BaseModel], data: Any, location: tuple[int | str, ...]) -> str:
    """The location in the author's spelling. pydantic's labels of alternatives (``int``, ``str``) are left out."""
    place = ""
    model: type[Part] | type[BaseModel] | None = cls
    for step in location:
        if isinstance(step, int):
            place += f"[{step}]"
            data = data[step] if isinstance(data, list) and -len(data) <= step < len(data) else None
            continue
        if model is not None and step in model.model_fields:
            spelled = next(_spelled(model, step, data), step)
            model = nested_part(model.model_fields[step].annotation)
        elif isinstance(data, Mapping) and step in data:
            spelled, model = step, None
        else:
            continue
        place = joined(place, spelled)
        data = data.get(spelled) if isinstance(data, Mapping) else None
    return place


def _spelled(model: type[BaseModel], name: str, data: Any) -> Iterator[str]:
    if isinstance(data, Mapping):
        table = spellings(model)
        yield from (key for key in data if isinstance(key, str) and table.get(key) == name)
