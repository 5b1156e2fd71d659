"""Properties of the language for texts and data that nobody thought of."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from plaita.errors import ExpressionError
from plaita.flow import functions
from plaita.flow.expr_scope import ROOTS
from plaita.flow.expressions import Scope, compile_value, evaluate, is_expression

SETTINGS = settings(max_examples=300, deadline=None, derandomize=True)

KEYS = st.sampled_from(["a", "b", "0", "k-1", "$z", "INPUT", "名"])
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-5, 5),
    st.integers(),
    st.just(10**4299),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=8),
    st.sampled_from(["$INPUT.a", "{% $INPUT.a %}", "$F.now()", "%999999d", "1", ""]),
)
JSON = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(KEYS, inner, max_size=4)),
    max_leaves=8,
)
ROOT_VALUES = st.fixed_dictionaries(
    {"INPUT": JSON, "NODE": st.dictionaries(KEYS, JSON, max_size=3), "FLOW_ID": st.just("f")}
)

NUMBERS = st.one_of(st.integers(-10_001, 10_001), st.integers(), st.floats(allow_nan=False, allow_infinity=False)).map(
    repr
)
WORDS = st.sampled_from(["true", "False", "null", "None"])
QUOTED = st.text(st.characters(blacklist_characters="'", blacklist_categories=["Cs"]), max_size=6).map(
    lambda t: f"'{t}'"
)
STEPS = st.one_of(
    KEYS.map(lambda k: "." + k), st.integers(-3, 3).map(lambda n: f"[{n}]"), st.integers(0, 3).map(lambda n: f".{n}")
)
PATHS = st.builds(lambda root, steps: "$" + root + "".join(steps), st.sampled_from(ROOTS), st.lists(STEPS, max_size=4))
NAMES = sorted(functions.BUILT_IN)


@st.composite
def calls(draw: st.DrawFn, arguments: st.SearchStrategy[str]) -> str:
    spec = functions.BUILT_IN[draw(st.sampled_from(NAMES))]
    most = spec.least + 2 if spec.most is None else spec.most
    given_arguments = draw(st.lists(arguments, min_size=spec.least, max_size=most))
    return f"$F.{spec.name}({', '.join(given_arguments)})"


VALUES = st.recursive(st.one_of(NUMBERS, WORDS, QUOTED, PATHS), calls, max_leaves=6)
EXPRESSIONS = st.one_of(PATHS, calls(VALUES))
SOUP = st.lists(
    st.sampled_from(
        [
            "$",
            "$F.",
            "add(",
            "upper(",
            ")",
            ",",
            ".",
            "[",
            "]",
            "0",
            "-1",
            "'",
            '"',
            "{%",
            "%}",
            "{{",
            " ",
            "$INPUT",
            "a",
            "名",
            "\n",
            "\ud800",
        ]
    ),
    max_size=14,
).map("".join)


def outcome(value: Any, scope: Scope) -> Any:
    """The value, or ExpressionError itself when one was raised; another exception is a failure of the test."""
    try:
        return evaluate(value, scope)
    except ExpressionError as error:
        message = str(error)
    assert len(message.encode("utf-8")) < 1000
    return ExpressionError


@SETTINGS
@given(EXPRESSIONS, ROOT_VALUES, st.integers(-(10**15), 10**15))
def test_right_expressions_give_json_or_an_expression_error(text: str, roots: dict[str, Any], now_ms: int) -> None:
    before = json.dumps(roots)
    compiled = compile_value(text, "p")  # right ones compile, whatever the data will be
    result = outcome(text, Scope(roots, now_ms))
    assert json.dumps(roots) == before  # functions change copies
    if result is not ExpressionError:
        json.dumps(result, allow_nan=False)
        again = compiled.evaluate(Scope(roots, now_ms))
        assert json.dumps(again) == json.dumps(result)


@SETTINGS
@given(st.one_of(SOUP, st.text(max_size=30)), ROOT_VALUES)
def test_any_text_gives_a_value_or_an_expression_error(text: str, roots: dict[str, Any]) -> None:
    result = outcome(text, Scope(roots, 0))
    if not is_expression(text):
        assert result == text


@SETTINGS
@given(st.one_of(SOUP, st.text(max_size=30)), st.text(max_size=5), st.text(max_size=5))
def test_text_from_data_comes_out_as_it_went_in(data: str, left: str, right: str) -> None:
    scope = Scope({"INPUT": {"v": data, "l": [{"v": data}]}}, 0)
    assert evaluate("$INPUT.v", scope) == data
    assert evaluate("$INPUT.l[0].v", scope) == data
    assert evaluate("$F.concat($INPUT.v)", scope) == data
    assert evaluate({"k": ["$INPUT.l"]}, scope) == {"k": [[{"v": data}]]}
    if not any(mark in left + right for mark in "${}%"):
        assert evaluate(left + "{% $INPUT.v %}" + right, scope) == left + data + right


@SETTINGS
@given(JSON)
def test_values_without_expressions_are_their_own_value(value: Any) -> None:
    text = json.dumps(value)
    if "$" in text or "{%" in text:
        return
    compiled = compile_value(value, "p")
    assert compiled.constant
    assert compiled.evaluate(Scope({}, 0)) == value


@SETTINGS
@given(st.one_of(st.text(st.characters(blacklist_characters="'"), max_size=12), st.just("$"), st.just("{% x %}")))
def test_every_text_can_be_written(text: str) -> None:
    assert evaluate("{% '" + text + "' %}", Scope({}, 0)) == text


@SETTINGS
@given(JSON)
def test_json_text_and_back(value: Any) -> None:
    scope = Scope({"INPUT": value}, 0)
    assert evaluate("$F.json_loads($F.json_dumps($INPUT))", scope) == value
