"""The $F functions: what they refuse, that they change nothing, how little they can build. What they give in the
usual case is in docs/expressions.md, whose examples are run by test_expressions_docs.py."""

from __future__ import annotations

import copy
import json
import time
import tracemalloc
from typing import Any

import pytest

from plaita.errors import ExpressionError, FlowDefinitionError
from plaita.flow import functions
from plaita.flow.expressions import Scope, compile_value, evaluate

NOW_MS = 1_796_026_755_123
LARGEST = 10**4300 - 1


def call(name: str, *arguments: Any, now_ms: int = NOW_MS) -> Any:
    """The function's result for any JSON values, through the language."""
    roots = {"INPUT": {f"a{number}": argument for number, argument in enumerate(arguments)}}
    before = copy.deepcopy(roots)
    text = f"$F.{name}({', '.join(f'$INPUT.a{number}' for number in range(len(arguments)))})"
    try:
        return evaluate(text, Scope(roots, now_ms))
    finally:
        assert roots == before


def refused(name: str, *arguments: Any) -> str:
    with pytest.raises(ExpressionError) as caught:
        call(name, *arguments)
    message = str(caught.value)
    assert f"$F.{name}(" in message
    assert len(message) < 500
    return message


@pytest.mark.parametrize("spec", functions.BUILT_IN.values(), ids=lambda spec: spec.name)
def test_arity_is_checked_when_compiled(spec: functions.FunctionSpec) -> None:
    wrong = [] if spec.least == 0 else [spec.least - 1, 0]
    if spec.most is not None:
        wrong += [spec.most + 1, spec.most + 50]
    for count in wrong:
        with pytest.raises(FlowDefinitionError, match=rf"\$F.{spec.name} takes .*, {count} given"):
            compile_value(f"$F.{spec.name}({'1,' * count})", "p")
    for count in {spec.least, spec.least if spec.most is None else spec.most}:
        compile_value(f"$F.{spec.name}({'1,' * count})", "p")


GROUPS = {
    "math": "add sub mul div mod pow abs ceil floor round trunc sqrt",
    "string": "lower upper capitalize title strip lstrip rstrip replace split join startswith endswith concat isDigit",
    "logic": "and or not eq ne gt gte lt lte in notIn contains notContains ifelse",
    "array": "len length index slice append extend insert remove reverse sort getListItem addListItem insertListItem "
    "pop delListItem setListItem",
    "dict": "keys values items get getDictValue getDictKeys getDictValues set delete clear setDictValue delDictValue "
    "clearDict",
    "datetime": "now today",
    "json": "json_loads json_dumps",
    "waiting": "callback_url",
}


def test_the_table_is_complete() -> None:
    found: dict[str, set[str]] = {}
    for spec in functions.BUILT_IN.values():
        found.setdefault(spec.category, set()).add(spec.name)
    assert found == {group: set(names.split()) for group, names in GROUPS.items()}


@pytest.mark.parametrize(
    ("name", "arguments", "result"),
    [
        ("add", (2**70, 1), 2**70 + 1),
        ("add", ([1], [2]), [1, 2]),
        ("sub", (0, 2**64), -(2**64)),
        ("mul", (2**40, 2**40), 2**80),
        ("mul", (3, "ab"), "ababab"),
        ("mul", ([1, 2], 2), [1, 2, 1, 2]),
        ("mul", ("a", -1), ""),
        ("mul", ("a", -(2**70)), ""),
        ("mul", ("", 2**70), ""),
        ("mul", ([], 2**70), []),
        ("div", (6, 3), 2.0),
        ("mod", (-7, 3), 2),
        ("pow", (2, -1), 0.5),
        ("pow", (0, 0), 1),
        ("pow", (1, 10_000), 1),
        ("pow", (10, 4299), 10**4299),
        ("abs", (-(2**70),), 2**70),
        ("ceil", (1e300,), int(1e300)),
        ("round", (0.5,), 0),
        ("round", (1.5,), 2),
        ("round", (1234, -2), 1200),
        ("round", (2.5, None), 2),
        ("round", (2**70 + 1, -4300), 0),
        ("strip", ("\t a\n",), "a"),
        ("replace", ("aaa", "a", ""), ""),
        ("replace", ("ab", "", "-"), "-a-b-"),
        ("split", (" a  b ", None), ["a", "b"]),
        ("split", ("", ","), [""]),
        ("join", ([], ","), ""),
        ("concat", (), ""),
        ("concat", ({"a": [None, True]}, 1.5), "{'a': [None, True]}1.5"),
        ("isDigit", ("",), False),
        ("and", (0, "x"), 0),
        ("or", (), False),
        ("or", (0, [], ""), False),
        ("eq", ({"a": [1]}, {"a": [1]}), True),
        ("ne", (None, None), False),
        ("lt", ([1, 2], [1, 3]), True),
        ("in", ("k", {"k": 1}), True),
        ("in", (1, {"k": 1}), False),
        ("in", ([], {"k": 1}), False),
        ("in", (None, [None]), True),
        ("contains", ("text", "ex"), True),
        ("ifelse", ([], 1, 2), 2),
        ("len", ({},), 0),
        ("index", ([[1], [2]], [2]), 1),
        ("slice", ("hello", 1, -1), "ell"),
        ("slice", ([1, 2], None, None), [1, 2]),
        ("slice", ([1, 2], 2**70, None), []),
        ("append", ([1], [2]), [1, [2]]),
        ("insert", ([1, 2], 2**70, 3), [1, 2, 3]),
        ("insert", ([1, 2], -(2**70), 3), [3, 1, 2]),
        ("remove", ([1, 2, 1], 1), [2, 1]),
        ("sort", (["b", "a"],), ["a", "b"]),
        ("sort", ([[2, "x"], [1, "y"]], 0), [[1, "y"], [2, "x"]]),
        ("sort", ([{"k": 1, "n": 1}, {"k": 1, "n": 2}], "k", True), [{"k": 1, "n": 1}, {"k": 1, "n": 2}]),
        ("pop", ([1, 2, 3], -1), [1, 2]),
        ("setListItem", ([1, 2], -1, None), [1, None]),
        ("items", ({},), []),
        ("get", ({"a": None}, "a", 5), None),
        ("get", (None, "a", 5), 5),
        ("get", (None, "a"), None),
        ("set", ({}, "a.b", 1), {"a.b": 1}),
        ("clear", ({"a": 1},), {}),
        ("json_loads", ("[1, 36893488147419103232, 1.5, null]",), [1, 2**65, 1.5, None]),
        ("json_dumps", ({"é": 2**65},), '{"\\u00e9": 36893488147419103232}'),
    ],
)
def test_results(name: str, arguments: tuple[Any, ...], result: Any) -> None:
    given = call(name, *arguments)
    assert json.dumps(given) == json.dumps(result)


@pytest.mark.parametrize(
    ("name", "arguments", "reason"),
    [
        ("add", (1, "a"), "not integer and text"),
        ("add", ("a", None), "not text and null"),
        ("add", (1e308, 1e308), "no finite number"),
        ("sub", ("a", "b"), "expects a number, not text"),
        ("mul", ("a", 1.5), "whole number of repetitions"),
        ("mul", ("a", True), "whole number of repetitions"),
        ("mul", ({}, 2), "not object and integer"),
        ("mul", (1e308, 10), "no finite number"),
        ("div", (1, 0), "division by zero"),
        ("div", (LARGEST, 3), "too large"),
        ("mod", (1, 0), "zero"),
        ("mod", ("%d", 5), "expects a number, not text"),
        ("mod", ("%999999999d", 5), "expects a number, not text"),
        ("pow", (0, -1), "negative power"),
        ("pow", (-8, 0.5), "real numbers"),
        ("pow", (10.0, 400), "too large"),
        ("pow", (2, 10_001), "exponent"),
        ("pow", (2.0, 10_001), "exponent"),
        ("pow", (10, 4300), "4300 digits"),
        ("pow", (LARGEST, 10_000), "4300 digits"),
        ("mul", (LARGEST, LARGEST), "4300 digits"),
        ("add", (LARGEST, 1), "4300 digits"),
        ("sqrt", (-1,), "math domain"),
        ("sqrt", (LARGEST,), "too large"),
        ("abs", ("1",), "expects a number, not text"),
        ("round", (1.5, 10**9), "rounds to at most"),
        ("round", (5, -(10**9)), "rounds to at most"),
        ("round", (1.5, 1.0), "whole number"),
        ("upper", (None,), "expects a text, not null"),
        ("upper", (5,), "expects a text, not integer"),
        ("join", ([1], ","), "the list holds integer"),
        ("join", ("abc", ","), "expects a list, not text"),
        ("split", ("a", ""), "empty separator"),
        ("startswith", ("a", ["a"]), "expects a text, not list"),
        ("gt", (1, "a"), "cannot order integer and text"),
        ("lt", (None, 1), "cannot order null and integer"),
        ("lte", ({}, {}), "cannot order object and object"),
        ("gte", ([1], ["a"]), "not supported"),
        ("in", (1, "1"), "not for integer"),
        ("in", (1, None), "not in null"),
        ("contains", (5, 5), "not in integer"),
        ("len", (5,), "not integer"),
        ("index", ([], 1), "does not hold"),
        ("slice", ([1], "a", 2), "whole number"),
        ("slice", ([1], True, 2), "whole number"),
        ("insert", ([1], "0", 2), "whole number"),
        ("remove", ([1], 2), "does not hold"),
        ("sort", ([1, "a"],), "not supported"),
        ("sort", ([1], "k"), "expects an object"),
        ("sort", ([[1]], 1), "index 1 is outside"),
        ("getListItem", ([], 0), "index 0 is outside a list of 0"),
        ("getListItem", ([1], -2), "index -2 is outside"),
        ("pop", ([1], 1), "index 1 is outside"),
        ("setListItem", ([1], 1, 2), "index 1 is outside"),
        ("append", (None, 1), "expects a list, not null"),
        ("extend", ([1], "ab"), "expects a list, not text"),
        ("keys", ([],), "expects an object, not list"),
        ("get", ([1], 0), "expects an object, not list"),
        ("get", ({}, 0), "expects a text, not integer"),
        ("set", ({}, 1, 2), "expects a text, not integer"),
        ("delete", ({}, "a"), "no such key"),
        ("clear", ("a",), "expects an object"),
        ("json_loads", ("{",), "not JSON"),
        ("json_loads", ("NaN",), "JSON"),
        ("json_loads", ("1" * 5000,), "digits"),
        ("json_loads", ("[" * 100_000,), "$F.json_loads"),
        ("json_loads", (5,), "expects a text"),
        ("now", ("%Q",), "%Q is no part"),
        ("now", ("%",), "is no part"),
        ("now", ("%s",), "%s is no part"),
        ("now", ("%999999999Y",), "%9 is no part"),
        ("now", ("%-d",), "%- is no part"),
        ("now", ("%Y" * 200,), "at most 256"),
        ("today", (5,), "expects a text"),
    ],
)
def test_refusals_name_function_types_and_reason(name: str, arguments: tuple[Any, ...], reason: str) -> None:
    assert reason in refused(name, *arguments)


def test_time_is_the_steps_own_and_utc() -> None:
    assert call("now", now_ms=0) == "1970-01-01 00:00:00+00:00"
    assert call("now", "%f", now_ms=1_123) == "123000"
    assert call("today", "%Y年%m月%d日 %% %A") == "2026年11月30日 % Monday"
    with pytest.raises(ExpressionError):
        call("now", now_ms=10**18)


@pytest.mark.parametrize("letter", "%ABDFGHIMRSTUVWXYZabcdefjmpuwxyz")
def test_every_documented_time_letter(letter: str) -> None:
    assert call("now", f"<%{letter}>") not in ("", f"<%{letter}>")


# -- KNOWN-TROUBLE 76: small text, large result ---------------------------------------------------

ONE_MIB = 1024 * 1024
BOMBS = [
    "$F.pow(9, $F.pow(9, 9))",
    "$F.pow($F.pow(9, 4000), 4000)",
    "$F.mul('a', 10000000000)",
    "$F.mul($F.split('0', ','), 1000000000)",
    "$F.mul($F.mul($F.mul('aaaaaaaaaa', 100000), 100000), 100000)",
    "$F.mul($F.split($F.mul('a', 1000000), ','), 100)",
    "$F.mul($F.mul($F.split($F.mul('a', 1000), 'b'), 1000), 1000)",
    "$F.replace($F.mul('a', 1000000), 'a', $F.mul('b', 1000000))",
    "$F.replace($F.mul('a', 1000000), '', $F.mul('b', 1000000))",
    "$F.join($F.split($F.mul('a,', 500000), ','), $F.mul('b', 1000000))",
    "$F.round(5, -1000000000)",
    "$F.mod('%1000000000d', 5)",
    "$F.now('%1000000000Y')",
    "$F.concat(" + "$F.mul('a', 1000000)," * 700 + ")",
    "$F.or(" + "$F.and(0, $F.mul('a', 1000000))," * 400 + ")",
    "$F.json_loads($F.mul('[', 1000000))",
]


def doubled(inner: str, times: int) -> str:
    """Text joined to itself over and over: the only way to double is to write it twice, so it stays small."""
    return inner if times == 0 else f"$F.add({doubled(inner, times - 1)},{doubled(inner, times - 1)})"


@pytest.mark.parametrize("text", [*BOMBS, doubled("$F.mul('a',999999)", 8)], ids=lambda text: text[:40])
def test_bombs_fail_small(text: str) -> None:
    compiled = compile_value(text, "p")
    tracemalloc.start()
    try:
        with pytest.raises(ExpressionError):
            compiled.evaluate(Scope({}, NOW_MS))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 150 * ONE_MIB


def test_bombs_cost_little_processor_time() -> None:
    began = time.process_time()
    for text in BOMBS:
        with pytest.raises(ExpressionError):
            evaluate(text, Scope({}, NOW_MS))
    assert time.process_time() - began < 5  # of this process, so that a busy machine does not matter


def test_large_data_may_be_worked_with() -> None:
    paragraphs = ["x" * 1000] * 3000
    text = call("join", paragraphs, "\n")
    assert len(text) == 3000 * 1001 - 1
    assert call("split", text, "\n") == paragraphs
    assert len(call("replace", text, "\n", "\r\n")) == len(text) + 2999
    assert len(call("concat", text, text)) == 2 * len(text)
    assert len(call("add", text, text)) == 2 * len(text)
    assert call("join", ["a"] * 500_000, ", ").count(",") == 499_999
    assert call("mul", "a", ONE_MIB) == "a" * ONE_MIB
    assert "1.0 MiB" in refused("mul", "a", ONE_MIB + 1)


def test_results_never_share_what_they_change() -> None:
    values = [1, [2], 3]
    for name, arguments in (
        ("append", (values, 4)),
        ("pop", (values, 0)),
        ("setListItem", (values, 0, 9)),
        ("insert", (values, 0, 9)),
        ("remove", (values, 3)),
        ("reverse", (values,)),
        ("extend", (values, [5])),
        ("slice", (values, None, None)),
    ):
        result = call(name, *arguments)
        result.append("changed")
        assert values == [1, [2], 3], name


# -- functions of one's own ---------------------------------------------------------------------


@pytest.fixture
def registered() -> Any:
    names: list[str] = []

    def register(name: str, function: Any, **options: Any) -> None:
        functions.register(name, function, **options)
        names.append(name)

    yield register
    for name in names:
        functions.unregister(name)


def test_a_registered_function_is_like_the_others(registered: Any) -> None:
    text = "$F.half($INPUT.n)"
    scope = Scope({"INPUT": {"n": 8, "s": "x"}}, 0)
    with pytest.raises(ExpressionError, match="no function"):
        evaluate(text, scope)
    registered("half", lambda value, digits=0: value / 2)
    assert evaluate(text, scope) == 4.0
    assert "half" in functions.names()
    with pytest.raises(ExpressionError, match="takes 1 to 2 arguments, 3 given"):
        evaluate("$F.half(1, 2, 3)", scope)
    with pytest.raises(ExpressionError, match=r"\$F\.half\(text\)") as caught:
        evaluate("$F.half($INPUT.s)", scope)
    assert isinstance(caught.value.__cause__, TypeError)
    functions.unregister("half")
    with pytest.raises(ExpressionError, match="no function"):
        evaluate(text, scope)


def test_names_that_are_taken_or_wrong(registered: Any) -> None:
    with pytest.raises(ValueError, match="already"):
        functions.register("upper", lambda text: text)
    for name in ("", "1a", "a-b", "a.b", "名", "a\n"):
        with pytest.raises(ValueError, match="no function name"):
            functions.register(name, lambda: None)
    with pytest.raises(TypeError, match="keyword"):
        functions.register("keyed", lambda *, key: key)
    registered("upper", lambda text: "mine", override=True)
    assert evaluate("$F.upper('a')", Scope({}, 0)) == "mine"
    functions.unregister("upper")
    assert evaluate("$F.upper('a')", Scope({}, 0)) == "A"


def test_a_registered_function_must_give_json(registered: Any) -> None:
    registered("strange", lambda *values: {1, 2})
    with pytest.raises(ExpressionError, match="set is no JSON value"):
        evaluate("$F.strange(1, 2, 3)", Scope({}, 0))
