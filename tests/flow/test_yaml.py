"""YAML definitions: read by the rules of JSON, and never a way around a limit."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plaita.errors import FlowDefinitionError
from plaita.flow import yamltext
from plaita.flow.model import FlowDefinition


def test_a_flow_in_yaml(parse: Callable[..., FlowDefinition]) -> None:
    parsed = parse(
        """
        # greets
        flow_id: hello
        timeout: PT5S
        nodes:
          - {type: start, id: s, next: g}
          - type: assignment
            id: g
            output:
              text: "hello {% $INPUT.name %}"
              yes: no
            next: e
          - {type: end, id: e, output: $NODE.g}
        """
    )
    assert parsed.raw["nodes"][1]["output"] == {"text": "hello {% $INPUT.name %}", "yes": "no"}
    assert parsed.timeout_ms == 5000


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a: 1", {"a": 1}),
        ("a: 2026-01-01", {"a": "2026-01-01"}),
        ("a: 1.5e3", {"a": 1500.0}),
        ("a: 1_000", {"a": "1_000"}),
        ("a: 0x1F", {"a": 31}),
        ("a: 0o17", {"a": 15}),
        ("a: 123456789012345678901234567890", {"a": 123456789012345678901234567890}),
        ("a: ~\nb:\nc: null", {"a": None, "b": None, "c": None}),
        ("a: 'true'\nb: true\nc: yes", {"a": "true", "b": True, "c": "yes"}),
        ("a: !!str 5", {"a": "5"}),
        ("a: |\n  two\n  lines\n", {"a": "two\nlines\n"}),
        ("a: &x [1, 2]\nb: *x", {"a": [1, 2], "b": [1, 2]}),
        ("- 1\n- [2, {a: 3}]", [1, [2, {"a": 3}]]),
        ("", None),
    ],
)
def test_scalars_and_structures(text: str, value: Any) -> None:
    assert yamltext.loads(text) == value


BILLION = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 10)
)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a: 1\na: 2", "line 2 column 1: the key 'a' stands twice"),
        ("a: {b: 1, 'b': 2}", "stands twice"),
        ("1: x", "a key that is no text"),
        ("? [a]\n: x", "a key that is no text"),
        ("a: .nan", ".nan is no JSON number"),
        ("a: -.inf", "is no JSON number"),
        ("a: 1e999", "too large"),
        ("a: !!python/object/apply:os.system ['true']", "means nothing here"),
        ("a: !!timestamp 2026-01-01", "means nothing here"),
        ("a: !!binary aGk=", "means nothing here"),
        ("a: &x\n  <<: {b: 1}", "merge keys"),
        ("a: *nowhere", "line 1 column 4: the alias *nowhere has no finished anchor"),
        ("a: &x [*x]", "has no finished anchor"),
        ("a: 1\n---\nb: 2", "a second document"),
        ("a: [1", "not YAML"),
        ("a: \x07", "not YAML"),
        (BILLION, "more than 1000000 values"),
        ("[" * 100_000, "nest"),
        ("[" * 600 + "]" * 600, "nested deeper"),
        ("- " * 100_000 + "x", "nested deeper"),
    ],
)
def test_what_json_cannot_express_is_refused_with_its_line(text: str, reason: str) -> None:
    with pytest.raises(yamltext.YAMLTextError) as caught:
        yamltext.loads(text)
    assert reason in str(caught.value)
    assert len(str(caught.value)) < 400


def test_refused_yaml_is_a_definition_error(parse: Callable[..., FlowDefinition]) -> None:
    for text in (BILLION, "nodes: [\n", "nodes: &x [*x]", "- " * 5000):
        with pytest.raises(FlowDefinitionError):
            parse(text)


TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs", "Co", "Cn", "Zl", "Zp"]), max_size=8)


@settings(max_examples=150, deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
        max_leaves=10,
    )
)
def test_json_text_read_as_yaml_is_the_same_value(value: Any) -> None:
    text = json.dumps(value, ensure_ascii=False)
    assert repr(yamltext.loads(text)) == repr(value)


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=100))
def test_any_text_is_read_or_refused(text: str) -> None:
    message = ""
    try:
        yamltext.loads(text)
    except yamltext.YAMLTextError as error:
        message = str(error)
    assert len(message) < 500
