"""How the fields of flows, nodes and their parts may be spelled: snake_case and camelCase, plus a few old names.

Owns :class:`Part`, the base of everything that is read from a definition. One rule for all (FLOW-FORMAT 1, 1.3): a
field is known by its Python name, that name in camelCase, its pydantic alias if it has one, and the special names its
class lists. Unknown keys are never an error; :func:`unknown_fields` finds them for a warning.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from types import UnionType
from typing import Any, ClassVar, Union, get_args, get_origin

from pydantic import AliasChoices, BaseModel, ConfigDict, model_validator

from plaita.errors import InputError
from plaita.flow.nearest import Nearest
from plaita.ids import check_id


def legal_id(value: str) -> str:
    """``check_id`` for validators: the id in NFC, or ValueError with the reason."""
    try:
        return check_id(value, "id")
    except InputError as error:
        raise ValueError(str(error).removeprefix("id: ")) from None


def camel(name: str) -> str:
    """``else_next`` -> ``elseNext``."""
    head, *rest = name.split("_")
    return head + "".join(word[:1].upper() + word[1:] for word in rest)


class Part(BaseModel):
    """A piece of a definition. ``special_names`` maps further accepted spellings to field names."""

    model_config = ConfigDict(extra="ignore", populate_by_name=True, protected_namespaces=())

    special_names: ClassVar[Mapping[str, str]] = {}
    tolerated_names: ClassVar[frozenset[str]] = frozenset()

    @model_validator(mode="before")
    @classmethod
    def _respell(cls, data: Any) -> Any:
        return respell(cls, data) if isinstance(data, dict) else data


@lru_cache(maxsize=1024)
def spellings(cls: type[BaseModel]) -> dict[str, str]:
    """Every accepted spelling of every field of ``cls`` -> the field's name, the strongest spelling first."""
    table: dict[str, str] = {name: name for name in cls.model_fields}
    for name, field in cls.model_fields.items():
        for alias in (field.alias, field.validation_alias):
            choices = alias.choices if isinstance(alias, AliasChoices) else [alias]
            for choice in choices:
                if isinstance(choice, str):
                    table.setdefault(choice, name)
        table.setdefault(camel(name), name)
    if issubclass(cls, Part):
        for spelling, name in cls.special_names.items():
            if name in cls.model_fields:
                table.setdefault(spelling, name)
    return table


@lru_cache(maxsize=1024)
def fields_without_null(cls: type[BaseModel]) -> frozenset[str]:
    """Optional fields of ``cls`` whose type has no null."""
    return frozenset(
        name
        for name, field in cls.model_fields.items()
        if not field.is_required() and not _accepts_null(field.annotation)
    )


def _accepts_null(annotation: Any) -> bool:
    if annotation is Any or annotation is None or annotation is type(None):
        return True
    return get_origin(annotation) in (Union, UnionType) and any(map(_accepts_null, get_args(annotation)))


def respell(cls: type[BaseModel], data: Mapping[Any, Any]) -> dict[Any, Any]:
    """``data`` with field names in place of other spellings. Of several spellings of one field the first of
    :func:`spellings` that is not null wins. A null for a field that cannot be null means its default."""
    table = spellings(cls)
    never_null = fields_without_null(cls)
    result: dict[Any, Any] = {}
    given: dict[str, list[str]] = {}
    for key, value in data.items():
        name = table.get(key) if isinstance(key, str) else None
        if name is None:
            result[key] = value
        elif value is not None or name not in never_null:
            given.setdefault(name, []).append(key)
    for name, keys in given.items():
        result[name] = data[keys[0]] if len(keys) == 1 else _first_value(table, data, keys)
    return result


def _first_value(table: Mapping[str, str], data: Mapping[Any, Any], keys: list[str]) -> Any:
    values = [data[spelling] for spelling in table if spelling in keys]
    return next((value for value in values if value is not None), None)


def nested_part(annotation: Any) -> type[Part] | None:
    """The Part class inside ``Part``, ``Part | None``, ``list[Part]`` and so on; None if there is none."""
    if isinstance(annotation, type) and issubclass(annotation, Part):
        return annotation
    if get_origin(annotation) in (list, Union, UnionType):
        for argument in get_args(annotation):
            found = nested_part(argument)
            if found is not None:
                return found
    return None


def unknown_fields(cls: type[BaseModel], data: Any, place: str) -> Iterator[tuple[str, str]]:
    """(place, reason) of each key that no field of ``cls`` or of its parts takes, or that another spelling overrules.
    Keys that begin with ``_`` or ``x-`` are the author's own."""
    if not isinstance(data, Mapping):
        return
    table = spellings(cls)
    tolerated = cls.tolerated_names if issubclass(cls, Part) else frozenset()
    extras_allowed = cls.model_config.get("extra") == "allow"
    names = Nearest(table)
    given: dict[str, list[str]] = {}
    for key, value in data.items():
        name = table.get(key) if isinstance(key, str) else None
        where = f"{place}.{key}" if place else str(key)
        if name is not None:
            given.setdefault(name, []).append(key)
            yield from _unknown_inside(cls, name, value, where)
        elif not extras_allowed and key not in tolerated and not str(key).startswith(("_", "x-")):
            near = names.find(str(key))
            yield where, "unknown field, ignored" + (f"; did you mean {near!r}?" if near else "")
    yield from _overruled(table, data, given, place)


def _overruled(
    table: Mapping[str, str], data: Mapping[Any, Any], given: Mapping[str, list[str]], place: str
) -> Iterator[tuple[str, str]]:
    """A field in two spellings with two values: one of them has no effect, which its author should know."""
    for keys in given.values():
        if len(keys) < 2:
            continue
        value = _first_value(table, data, keys)
        counts = next(spelling for spelling in table if spelling in keys and data[spelling] == value)
        for key in keys:
            if data[key] is not None and data[key] != value:
                yield f"{place}.{key}" if place else key, f"has no effect: {counts!r} is given too, and counts"


def _unknown_inside(cls: type[BaseModel], name: str, value: Any, place: str) -> Iterator[tuple[str, str]]:
    part = nested_part(cls.model_fields[name].annotation)
    if part is None:
        return
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from unknown_fields(part, item, f"{place}[{index}]")
    elif isinstance(value, Mapping) and get_origin(cls.model_fields[name].annotation) is list:
        for key, item in value.items():  # children by name, as JSON Schema has them
            yield from unknown_fields(part, item, f"{place}.{key}")
    else:
        yield from unknown_fields(part, value, place)
