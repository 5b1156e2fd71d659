"""Type declarations of inputs and results (FLOW-FORMAT 1.2): reading them, and matching values against them.

A declaration checks; it never converts, and its default is never applied to a value.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from typing import Any, ClassVar

from pydantic import Field, field_validator, model_validator

from plaita import jsontext
from plaita.flow.fields import Part, respell
from plaita.flow.nearest import Nearest, a_type, shown, type_name

_SYNONYMS = {"map": "object", "decimal": "number", "boolean": "bool"}
TYPES = ("any", "array", "object", "string", "integer", "float", "bool", "number")
_WANTED = {
    "string": "a text that is not empty",
    "integer": "a whole number",
    "float": "a number",
    "number": "a number",
    "bool": "true or false",
    "array": "a list",
    "object": "an object",
}


class Property(Part):
    """One declared type. ``children`` are the fields of an object, or the items of a list by position."""

    special_names: ClassVar[Mapping[str, str]] = {
        "type": "data_type",
        "title": "label",
        "default": "default_value",
        "items": "item_type",
        "properties": "children",
        "required": "is_required",
        "description": "desc",
    }

    data_type: str
    name: str | None = None
    label: str | None = None
    desc: str | None = None
    is_required: bool = False
    default_value: Any = None
    item_type: Property | None = None
    children: list[Property] = Field(default_factory=list)

    @model_validator(mode="before")
    @classmethod
    def _from_schema(cls, data: Any) -> Any:
        """Takes the JSON-Schema way too: ``properties`` as a mapping of names, ``required`` as a list of names."""
        if not isinstance(data, Mapping):
            return data
        fields = respell(cls, data)
        required = fields.get("is_required")
        if isinstance(required, list):
            fields["is_required"] = False
        children = fields.get("children")
        if isinstance(children, Mapping):
            children = [{"name": name, **_as_mapping(child)} for name, child in children.items()]
        if isinstance(required, list) and isinstance(children, list):
            children = [_marked(child, required) for child in children]
        if children is not None:
            fields["children"] = children
        return fields

    @field_validator("data_type")
    @classmethod
    def _plain_type(cls, value: str) -> str:
        return _SYNONYMS.get(value, value)

    @classmethod
    def from_json(cls, data: Any) -> Property:
        """A declaration from an object, or from JSON text of one. Raises ValueError (pydantic's included)."""
        if isinstance(data, str):
            data = jsontext.loads(data, unique_keys=True)
        return cls.model_validate(data)

    def matches(self, value: Any) -> bool:
        """Whether ``value`` is of this type."""
        return self.mismatch(value) is None

    def mismatch(self, value: Any, place: str = "$") -> str | None:
        """None if ``value`` is of this type, else where it is not and what is wanted there."""
        if value is None:
            return f"{place}: required, but there is no value" if self.is_required else None
        if not _is_of(self.data_type, value):
            if self.data_type not in TYPES:
                return f"{place}: no value is of the unknown type {self.data_type!r}"
            return f"{place}: {_WANTED[self.data_type]} is wanted, this is {_described(value)}"
        if self.data_type == "array":
            return self._mismatched_item(value, place)
        if self.data_type == "object":
            found = (
                child.mismatch(value.get(child.name), f"{place}.{child.name}")
                for child in self.children
                if child.name is not None
            )
            return _first(found)
        return None

    def _mismatched_item(self, value: list[Any], place: str) -> str | None:
        if self.item_type is not None:
            item_type = self.item_type
            return _first(item_type.mismatch(item, f"{place}[{index}]") for index, item in enumerate(value))
        if not self.children:
            return None
        if len(value) != len(self.children):
            return f"{place}: {len(self.children)} items are wanted, there are {len(value)}"
        pairs = zip(self.children, value, strict=True)
        return _first(child.mismatch(item, f"{place}[{index}]") for index, (child, item) in enumerate(pairs))

    def unknown_types(self, place: str) -> Iterator[tuple[str, str]]:
        """(place, reason) of each type name in this declaration that no value can match."""
        if self.data_type not in TYPES:
            hint = Nearest([*TYPES, *_SYNONYMS]).hint(self.data_type)
            yield place, f"{shown(self.data_type)} is no type, so no value will match{hint}"
        if self.item_type is not None:
            yield from self.item_type.unknown_types(f"{place}.items")
        for index, child in enumerate(self.children):
            yield from child.unknown_types(f"{place}.{(child.name or str(index))[:60]}")


def _as_mapping(child: Any) -> Mapping[str, Any]:
    if not isinstance(child, Mapping):
        raise ValueError(f"a property is declared by an object, not by {a_type(child)}")
    return child


def _marked(child: Any, required: list[Any]) -> Any:
    if isinstance(child, Mapping) and child.get("name") in required:
        return {**respell(Property, child), "is_required": True}
    return child


def _first(found: Iterable[str | None]) -> str | None:
    return next((each for each in found if each is not None), None)


def _described(value: Any) -> str:
    if isinstance(value, (dict, list)):
        return f"an {type_name(value)}" if isinstance(value, dict) else "a list"
    return f"the {type_name(value)} {shown(value, 40)}"


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, Decimal)) and not isinstance(value, bool)


def _is_of(data_type: str, value: Any) -> bool:
    match data_type:
        case "any":
            return True
        case "string":
            return isinstance(value, str) and value != ""
        case "integer":
            return isinstance(value, int) and not isinstance(value, bool)
        case "float" | "number":
            return _is_number(value)
        case "bool":
            return isinstance(value, bool)
        case "array":
            return isinstance(value, (list, tuple))
        case "object":
            return isinstance(value, dict)
    return False
