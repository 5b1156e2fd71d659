"""FLOW-FORMAT 1.2: type declarations and what they match."""

from __future__ import annotations

from typing import Any

import pytest

from plaita.flow.properties import Property

NAMED = {"dataType": "object", "children": [{"name": "age", "dataType": "integer", "isRequired": True}]}


@pytest.mark.parametrize(
    ("data_type", "matching", "other"),
    [
        ("any", [1, "x", [], {}, True], []),
        ("string", ["x", " "], ["", 1, [], {}]),
        ("integer", [0, -3, 2**80], [1.0, True, "1"]),
        ("float", [1.5, 2], [True, "1.5"]),
        ("number", [1.5, 2], [False, "2"]),
        ("bool", [True, False], [0, 1, "true"]),
        ("boolean", [True], [1]),
        ("array", [[], [1, "x"]], [{}, "x"]),
        ("object", [{}, {"a": 1}], [[], "x"]),
        ("map", [{}], [[]]),
        ("decimal", [1, 1.5], ["1"]),
        ("colour", [], ["red", 1, {}, []]),
    ],
)
def test_types(data_type: str, matching: list[Any], other: list[Any]) -> None:
    declared = Property.from_json({"dataType": data_type})
    assert [value for value in matching if not declared.matches(value)] == []
    assert [value for value in other if declared.matches(value)] == []


def test_null_matches_only_what_is_not_required() -> None:
    assert Property.from_json({"type": "string"}).matches(None)
    assert not Property.from_json({"type": "string", "required": True}).matches(None)
    assert not Property.from_json({"type": "string", "isRequired": True}).matches(None)


@pytest.mark.parametrize(
    "declared",
    [
        NAMED,
        {"data_type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"]},
        {"type": "object", "properties": {"age": {"type": "integer", "required": True}}},
    ],
)
def test_objects_match_each_declared_child(declared: dict[str, Any]) -> None:
    wanted = Property.from_json(declared)
    assert wanted.matches({"age": 3, "more": "x"})
    assert wanted.mismatch({}) == "$.age: required, but there is no value"
    assert wanted.mismatch({"age": "3"}) == "$.age: a whole number is wanted, this is the text '3'"


def test_lists_match_by_item_type_or_by_position() -> None:
    numbers = Property.from_json({"type": "array", "items": {"type": "integer"}})
    assert numbers.matches([1, 2])
    assert numbers.mismatch([1, "x"], "$NODE.a") == "$NODE.a[1]: a whole number is wanted, this is the text 'x'"
    pair = Property.from_json({"type": "array", "children": [{"type": "integer"}, {"type": "string"}]})
    assert pair.matches([1, "x"])
    assert pair.mismatch([1]) == "$: 2 items are wanted, there are 1"


def test_a_declaration_may_be_json_text() -> None:
    assert Property.from_json('{"dataType": "integer"}').matches(3)
    with pytest.raises(ValueError, match="twice"):
        Property.from_json('{"dataType": "integer", "dataType": "string"}')


def test_unknown_types_are_named_with_the_nearest_right_one() -> None:
    declared = Property.from_json({"type": "object", "properties": {"n": {"type": "intger"}}})
    ((place, reason),) = list(declared.unknown_types("inputType"))
    assert place == "inputType.n"
    assert "'intger'" in reason
    assert "'integer'" in reason


def test_a_default_is_never_applied() -> None:
    declared = Property.from_json({"type": "object", "properties": {"n": {"type": "integer", "default": 3}}})
    value: dict[str, Any] = {}
    assert declared.matches(value)
    assert value == {}
