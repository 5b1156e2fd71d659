"""The expression language: grammar, paths, null rules, templates, parents, limits."""

from __future__ import annotations

from typing import Any

import pytest

from plaita.errors import ExpressionError, FlowDefinitionError, Problem
from plaita.flow import expr_limits
from plaita.flow.expressions import Scope, compile_value, evaluate, is_expression

NOW_MS = 1_796_026_755_123
DATA: dict[str, Any] = {
    "s": "text",
    "n": 3,
    "none": None,
    "list": [10, 20, {"k": "v"}],
    "obj": {"0": "zero", "a": {"b": [1, [2, 3]]}},
    "a-b": "dash",
    "$x": "dollar",
    "x$": "late dollar",
    "1st": "first",
    "007": "bond",
    "名": "name",
    "INPUT": "own",
}


def scope(**roots: Any) -> Scope:
    return Scope({"INPUT": DATA, "NODE": {}, "GLOBAL": {"g": 1}, "FLOW_ID": "f", **roots}, NOW_MS)


def value_of(text: Any, where: Scope | None = None) -> Any:
    where = where or scope()
    compiled = compile_value(text, "place").evaluate(where)
    assert evaluate(text, where) == compiled
    return compiled


def refusal(text: Any, **options: Any) -> str:
    with pytest.raises(FlowDefinitionError) as caught:
        compile_value(text, "nodes[1].output", **options)
    (problem,) = caught.value.problems
    assert problem.place == "nodes[1].output"
    with pytest.raises(ExpressionError):
        evaluate(text, scope())
    return problem.reason


def failure(text: Any, where: Scope | None = None) -> str:
    compiled = compile_value(text, "place")
    with pytest.raises(ExpressionError) as caught:
        compiled.evaluate(where or scope())
    return str(caught.value)


@pytest.mark.parametrize(
    "value", [None, True, False, 0, 1.5, 2**80, "", "plain", [], {}, [1, "a"], {"k": {"l": [None]}}]
)
def test_other_values_stay_as_they_are(value: Any) -> None:
    result = value_of(value)
    assert result == value
    assert type(result) is type(value)
    assert compile_value(value, "p").constant


def test_only_values_of_objects_are_evaluated() -> None:
    assert value_of({"$INPUT.n": "$INPUT.n", "l": ["$INPUT.s", {"m": "{% $INPUT.n %}"}]}) == {
        "$INPUT.n": 3,
        "l": ["text", {"m": "3"}],
    }


def test_what_the_author_wrote_is_fresh_each_time() -> None:
    for written in ({"a": [1]}, {"a": [1], "b": "$INPUT.n"}):
        compiled = compile_value(written, "p")
        compiled.evaluate(scope())["a"].append(2)
        assert compiled.evaluate(scope())["a"] == [1]
        assert written["a"] == [1]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("$INPUT", DATA),
        ("$INPUT.n", 3),
        ("$INPUT.n  ", 3),
        ("$INPUT.list[0]", 10),
        ("$INPUT.list[+1]", 20),
        ("$INPUT.list[-1].k", "v"),
        ("$INPUT.list.1", 20),
        ("$INPUT.list.01", 20),
        ("$INPUT.obj.0", "zero"),
        ("$INPUT.obj.a.b[1][0]", 2),
        ("$INPUT.obj.a.b.1.1", 3),
        ("$INPUT.007", "bond"),
        ("$INPUT.a-b", "dash"),
        ("$INPUT.$x", "dollar"),
        ("$INPUT.x$", "late dollar"),
        ("$INPUT.1st", "first"),
        ("$INPUT.名", "name"),
        ("$INPUT.INPUT", "own"),
        ("$INPUT.s[0]", "t"),
        ("$GLOBAL.g", 1),
        ("$FLOW_ID", "f"),
        ("$FLOW", "f"),
        ("$ENV", {}),
        ("$ENV.HOME", None),
        ("$PARENT", {}),
        ("$PARENT.INPUT.x", None),
        ("$EXPRESS_PREFIX", "$"),
        # rule 4: a missing key gives null, and null has only null keys
        ("$INPUT.nope", None),
        ("$INPUT.nope.deep.er", None),
        ("$INPUT.none.x", None),
        ("$INPUT.s.upper", None),
        ("$INPUT.list.append", None),
        ("$INPUT.n.real", None),
        ("$INPUT.obj.7", None),
        ("$NODE.not-run.x", None),
    ],
)
def test_paths(text: str, value: Any) -> None:
    assert value_of(text) == value


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("$INPUT.list[3]", "index 3 is outside a list of length 3"),
        ("$INPUT.list[-4]", "index -4 is outside"),
        ("$INPUT.list.3", "index 3 is outside"),
        ("$INPUT.none[0]", "null has no index 0"),
        ("$INPUT.nope[0]", "null has no index 0"),
        ("$INPUT.n[0]", "integer has no index 0"),
        ("$INPUT.obj[0]", "written .0"),
        ("$BRANCH", "there is $FLOW_ID, $GLOBAL, $INPUT, $NODE"),
    ],
)
def test_bad_indexes_and_missing_roots_are_named_errors(text: str, reason: str) -> None:
    message = failure(text)
    assert reason in message
    assert text in message


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("$", "a name must follow $"),
        ("$$", "no root $$"),
        ("$5", "{% '$' %}"),
        ("$ 5", "{% '$' %}"),
        ("$5.00 off", "no root $5"),
        ("$input.x", "did you mean '$INPUT'?"),
        ("$INPT.x", "did you mean '$INPUT'?"),
        ("$f.upper('a')", "did you mean '$F'?"),
        ("$INPUT.", "must follow the dot"),
        ("$INPUT..a", "must follow the dot"),
        ("$INPUT.a b", "'b' follows the end"),
        ("$INPUT.a + 1", "there are no operators"),
        ("$INPUT[x]", "whole number"),
        ("$INPUT['x']", "whole number"),
        ("$INPUT[1.5]", "whole number"),
        ("$INPUT[]", "whole number"),
        ("$INPUT[9999999999999999999]", "larger than any list"),
        ("$INPUT.a()", "only functions are called"),
        ("$INPUT %}", "'%' is not allowed"),
        ("$F", "$F is no value"),
        ("$F.upper", "needs its arguments"),
        ("$F.1()", "name of a function"),
        ("$F.upper(", "ends where a value is expected"),
        ("$F.upper('a'", "no closing )"),
        ("$F.upper('a", "no closing '"),
        ("$F.upper('a').x", "$F.get(call, 'key')"),
        ("$F.split('a', 'b')[0]", "$F.getListItem(call, index)"),
        ("$F.upper('a' 'b')", "where , or ) is expected"),
        ("$F.upper(,)", "',' is not the beginning"),
        ("$F.concat('a',,'b')", "',' is not the beginning"),
        ("$F.len([1])", "lists, objects and parentheses"),
        ("$F.len({})", "lists, objects and parentheses"),
        ("$F.len((1))", "lists, objects and parentheses"),
        ("$F.add(1 + 1, 1)", "there are no operators"),
        ("$F.upper(name)", "write 'name' for a text"),
        ("$F.upper(upper('a'))", "written $F.upper(...)"),
        ("$F.abs(1e999)", "too large"),
        ("$F.abs(" + "9" * 4301 + ")", "4301 characters"),
        ("$F.uper('a')", "did you mean 'upper'?"),
        ("$F.UPPER('a')", "did you mean 'upper'?"),
        ("$F.upper()", "takes 1 argument, 0 given"),
        ("$F.add(1)", "takes 2 arguments, 1 given"),
        ("$F.round(1, 2, 3)", "takes 1 to 2 arguments, 3 given"),
        ("$LOOP-ITEM", "only in the condition of a loop"),
        ("a {% %} b", "holds no expression"),
        ("a {% if x %} b", "write 'if' for a text"),
        ("a {% $INPUT.a | upper %} b", "there are no operators"),
        ("a {% $INPUT.a , 1 %} b", "',' follows the end"),
        ("a {% 'x %} b", "no closing '"),
        # KNOWN-TROUBLE 74: nothing but data, functions of the table and literals
        ("$().__class__", "a name must follow $"),
        ("{% ().__class__.__bases__ %}", "lists, objects and parentheses"),
        ("{% str.mro() %}", "is no value"),
        ("{% print.__reduce__() %}", "is no value"),
        ("{% lambda: 1 %}", "is no value"),
        ("{% [x for x in (1,)] %}", "lists, objects and parentheses"),
        ("{% (x := 1) %}", "lists, objects and parentheses"),
        ("{% f'{1}' %}", "is no value"),
        ("{% `x` %}", "is not the beginning"),
        ("$F.__import__('os')", "name of a function"),
        ("$F.getattr('a', '__class__')", "no function $F.getattr"),
        ("$F.eval('1')", "no function $F.eval"),
        ("$F.upper.__globals__", "needs its arguments"),
        # KNOWN-TROUBLE 76
        ("{% 9**9**9 %}", "there are no operators"),
        ("{% 'a'*10**10 %}", "there are no operators"),
        ("{% 1<<10**10 %}", "there are no operators"),
        ("{% range(10**12) %}", "written $F.range(...)"),
    ],
)
def test_what_is_no_expression_is_refused_when_compiled(text: str, reason: str) -> None:
    message = refusal(text)
    assert reason in message
    assert len(message) < 600


def test_attributes_of_objects_are_never_read() -> None:
    class Trap:
        secret = "secret"

        def get(self, key: str) -> str:
            return "secret"

        def __getitem__(self, key: Any) -> str:
            return "secret"

    assert evaluate("$INPUT.secret", Scope({"INPUT": Trap()}, 0)) is None
    with pytest.raises(ExpressionError):
        evaluate("$INPUT[0]", Scope({"INPUT": Trap()}, 0))
    with pytest.raises(ExpressionError, match="Trap is no JSON value"):
        evaluate("{% $INPUT %}", Scope({"INPUT": Trap()}, 0))
    for text in ("$INPUT.__class__.__mro__", "$INPUT.n.__class__", "$INPUT.s.__class__", "$INPUT.list.__class__"):
        assert value_of(text) is None


def test_loop_roots_by_parameter() -> None:
    compiled = compile_value(["$LOOP-ITEM.x", "$LOOP-INDEX", "$LOOP-RESULT"], "p", loop_roots=True)
    roots = {"LOOP-ITEM": {"x": 1}, "LOOP-INDEX": 0, "LOOP-RESULT": None}
    assert compiled.evaluate(scope(**roots)) == [1, 0, None]
    assert evaluate("$LOOP-INDEX", scope(**roots)) == 0
    with pytest.raises(ExpressionError, match=r"\$LOOP-ITEM does not exist here"):
        compiled.evaluate(scope())


# -- templates ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{% $INPUT.n %}", "3"),
        ("{%$INPUT.n%}", "3"),
        ("{%\n  $INPUT.n\n%}", "3"),
        ("a{% $INPUT.s %}b{% $INPUT.n %}c", "atextb3c"),
        ("{% $INPUT.none %}/{% $INPUT.nope %}", "None/None"),
        ("{% true %}{% False %}", "TrueFalse"),
        ("{% $INPUT.list %}", "[10, 20, {'k': 'v'}]"),
        ("{% 1.0 %} {% -3 %} {% 'a' %} {% \"it's\" %}", "1.0 -3 a it's"),
        ("{% '%}' %}{% '{%' %}", "%}{%"),
        ("{% $F.join($F.split('a b', ' '), \", \",) %}", "a, b"),
        ("{% '$' %}5", "$5"),
        ("not closed {% $INPUT.n", "not closed {% $INPUT.n"),
        ("%} {% $INPUT.n %}", "%} 3"),
        ("{{ $INPUT.n }}", "{{ $INPUT.n }}"),
        ("${INPUT.n}", "${INPUT.n}"),
        ("${x} {% $INPUT.n %}", "${x} 3"),
        (" $INPUT.n", " $INPUT.n"),
        ("F.upper($INPUT.s)", "F.upper($INPUT.s)"),
    ],
)
def test_templates(text: str, value: str) -> None:
    assert value_of(text) == value


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("{{ x }}", "{{ }} is plain text"),
        ("x }} y", "{{ }} is plain text"),
        ("${new Date()}", "${ } is plain text"),
        ("a ${x} {% $INPUT.n %}", "${ } is plain text"),
        ("{% open", "{% without %}"),
        ("Hi $INPUT.name", "$INPUT inside a text"),
        (" $F.upper('a')", "$F inside a text"),
        ("upper($name)", "a call inside a text"),
    ],
)
def test_text_that_looks_like_an_expression_warns(text: str, word: str) -> None:
    warnings: list[Problem] = []
    compile_value({"a": [text]}, "nodes[0].output", warnings=warnings)
    (problem,) = warnings
    assert problem.place == "nodes[0].output.a[0]"
    assert word in problem.reason


@pytest.mark.parametrize("text", ["plain", "$INPUT.n", "a {% $INPUT.n %}", "costs $5", "a {b} c", "f(x) $y", "100%"])
def test_other_texts_do_not_warn(text: str) -> None:
    warnings: list[Problem] = []
    compile_value(text, "p", warnings=warnings)
    assert warnings == []


@pytest.mark.parametrize("looks", ["$INPUT.n", "{% $INPUT.n %}", "$F.upper('a')", "$5", "{% bad", "{% $F.x( %}"])
def test_data_is_never_evaluated(looks: str) -> None:
    where = Scope({"INPUT": {"v": looks, "l": [looks], "n": 3}, "NODE": {"a": {"v": looks}}}, NOW_MS)
    assert value_of("$INPUT.v", where) == looks
    assert value_of("$INPUT.l[0]", where) == looks
    assert value_of("$NODE.a.v.deeper", where) is None
    assert value_of("<{% $INPUT.v %}>", where) == f"<{looks}>"
    assert value_of("$F.concat($INPUT.v, '')", where) == looks
    assert value_of({"a": "$NODE.a"}, where) == {"a": {"v": looks}}


def test_is_expression() -> None:
    assert all(map(is_expression, ["$INPUT", "$5", "a {% 1 %}"]))
    assert not any(map(is_expression, ["a", "a $INPUT", "${x}", "{{x}}", "%} {%", "", None, 5, ["$INPUT"]]))


def test_all_problems_with_their_places() -> None:
    with pytest.raises(FlowDefinitionError) as caught:
        compile_value({"a": "$X", "b": [1, "$F.no()", {"a b": "$INPUT."}], "ok": "$INPUT"}, "nodes[3].output")
    assert [p.place for p in caught.value.problems] == [
        "nodes[3].output.a",
        "nodes[3].output.b[1]",
        "nodes[3].output.b[2].a b",
    ]


def test_references_name_what_is_read() -> None:
    compiled = compile_value(["$NODE.a.b", "{% $F.add($ENV.X, $INPUT) %}", "$NODE.7[0]", "$INPUT[0]"], "p")
    assert compiled.references == {("NODE", "a"), ("ENV", "X"), ("INPUT", None), ("NODE", "7")}
    assert not compiled.constant


# -- parents ------------------------------------------------------------------------------------


def child(fallback: bool, **own: Any) -> Scope:
    grand = Scope({"INPUT": {"top": "grand", "both": 0}, "NODE": {}, "FLOW_ID": "g"}, 0)
    parent = Scope({"INPUT": {"mid": "parent", "both": 1}, "NODE": {"x": 5}, "FLOW_ID": "p"}, 0, grand, True)
    return Scope({"INPUT": own, "FLOW_ID": "c"}, 0, parent, fallback)


def test_parent_by_name() -> None:
    for where in (child(False), child(True)):
        assert value_of("$PARENT.INPUT.mid", where) == "parent"
        assert value_of("$PARENT.$INPUT.mid", where) == "parent"
        assert value_of("$PARENT.NODE.x", where) == 5
        assert value_of("$PARENT.FLOW_ID", where) == "p"
        assert value_of("$PARENT.PARENT.INPUT.top", where) == "grand"
        assert value_of("$PARENT.PARENT.PARENT.INPUT.top", where) is None
    snapshot = {"PARENT": {"$INPUT": {"x": 1}, "NODE": {"y": 2}}}
    assert value_of("$PARENT.INPUT.x", scope(**snapshot)) == 1
    assert value_of("$PARENT.NODE.y", scope(**snapshot)) == 2


def test_parent_by_fallback_only_where_the_scope_says_so() -> None:
    assert value_of("$INPUT.mid", child(True)) == "parent"
    assert value_of("$INPUT.top", child(True)) == "grand"
    assert value_of("$INPUT.both", child(True)) == 1
    assert value_of("$INPUT.both", child(True, both="mine")) == "mine"
    assert value_of("<{% $INPUT.mid %}>", child(True)) == "<parent>"
    assert value_of("$INPUT.nowhere", child(True)) is None
    assert value_of("$F.concat($INPUT.mid)", child(True)) == "None"  # the whole expression is asked, not its parts
    for text in ("$INPUT.mid", "$INPUT.top"):
        assert value_of(text, child(False)) is None
        assert compile_value(text, "p", parent_fallback=False).evaluate(child(True)) is None


def test_a_parent_that_cannot_answer_leaves_null() -> None:
    parent = Scope({"INPUT": {"l": []}, "NODE": {}}, 0)
    where = Scope({"INPUT": {"l": [None]}, "NODE": {}, "BRANCH": None}, 0, parent, True)
    assert value_of("$INPUT.l[0]", where) is None
    assert value_of("$BRANCH", where) is None


# -- limits -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "$F.abs(" * 100_000,
        "{% " + "$F.abs(" * 100_000 + " %}",
        "$F.abs(" * 65 + "1" + ")" * 65,
        "{% " + "$F.abs(" * 65 + "1" + ")" * 65 + " %}",
        "$INPUT" + ".a" * 100_000,
        "$INPUT." + "名" * 6000,
        "$F.concat(" + "1," * 100_000 + ")",
        "{% $F.concat(" + "1," * 100_000 + ") %}",
        "{% '" + "x" * 20_000 + "' %}",
        "{%1%}" * 10_001,
        "{% " * 100_000 + "%}",
        "(" * 100_000 + "{% " + "(" * 100_000 + " %}",
    ],
    ids=lambda text: text[:12],
)
def test_long_and_deep_texts_are_refused(text: str) -> None:
    assert len(refusal(text)) < 600


def test_depth_and_length_that_are_allowed() -> None:
    assert value_of("$F.abs(" * 64 + "-1" + ")" * 64) == 1
    assert value_of("{%1%}" * 10_000) == "1" * 10_000
    long_text = "x" * 300_000
    assert value_of(long_text + "{% $INPUT.n %}") == long_text + "3"
    literal = "'" + "x" * (expr_limits.MAX_EXPRESSION_BYTES - len("$F.len('')")) + "'"
    assert value_of(f"$F.len({literal})") == len(literal) - 2


def nested(depth: int, leaf: Any, as_object: bool = False) -> Any:
    value = leaf
    for _ in range(depth):
        value = {"k": value} if as_object else [value]
    return value


@pytest.mark.parametrize("as_object", [True, False])
@pytest.mark.parametrize("depth", [65, 100_000])
def test_deep_values_are_refused(depth: int, as_object: bool) -> None:
    value = nested(depth, "$INPUT.n", as_object)
    with pytest.raises(FlowDefinitionError, match="deeper than 64"):
        compile_value(value, "p")
    with pytest.raises(ExpressionError, match="deeper than 64"):
        evaluate(value, scope())


def test_values_as_deep_as_allowed() -> None:
    assert value_of(nested(64, "$INPUT.n")) == nested(64, 3)


def test_problems_are_bounded() -> None:
    with pytest.raises(FlowDefinitionError) as caught:
        compile_value([f"$F.f{number}()" for number in range(5000)], "p")
    assert len(caught.value.problems) == 100


def test_messages_stay_short_whatever_the_data() -> None:
    big = Scope({"INPUT": {"t": "x" * 1_000_000, "l": list(range(100_000)), "o": {"k" * 100_000: 1}}}, 0)
    for text in (
        "$F.abs($INPUT.t)",
        "$F.index($INPUT.l, $INPUT.t)",
        "$F.delete($INPUT.o, $INPUT.t)",
        "$INPUT.l[-100001]",
    ):
        assert len(failure(text, big)) < 400
    assert len(refusal("$INPUT." + "x" * 10_000 + "!")) < 600
    assert len(refusal("$F." + "x" * 10_000 + "()")) < 600
    assert len(refusal("$" + "X" * 10_000)) < 700


def test_templates_of_large_data_are_bounded() -> None:
    where = Scope({"INPUT": {"t": "x" * (8 * 1024 * 1024), "l": ["x" * (1024 * 1024)] * 100}}, 0)
    assert "more than 64.0 MiB" in failure("{% $INPUT.t %}" * 9, where)
    assert "more than 64.0 MiB" in failure(["{% $INPUT.t %}"] * 9, where)
    assert "would take more than 64.0 MiB" in failure("{% $INPUT.l %}", where)
    assert len(value_of("{% $INPUT.t %}{% $INPUT.t %}", where)) == 16 * 1024 * 1024


def test_passing_large_data_on_is_free() -> None:
    where = Scope({"INPUT": {"t": "x" * (8 * 1024 * 1024)}}, 0)
    text = "$F.len($F.get($INPUT, 't'))"
    assert value_of([text] * 20, where) == [8 * 1024 * 1024] * 20


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {1, 2}, object(), b"bytes"])
def test_values_of_node_code_that_are_no_json(value: Any) -> None:
    where = Scope({"INPUT": {"v": value, "d": {"v": value}}}, 0)
    assert evaluate("$INPUT.v", where) is value  # handed on as it is; the engine judges results
    for text in ("$F.json_dumps($INPUT.d)", "$F.abs($INPUT.v)", "$F.upper($INPUT.v)"):
        with pytest.raises(ExpressionError):
            evaluate(text, where)


def test_text_with_lone_surrogates_and_nul() -> None:
    odd = "\ud800\x00\ufeff"
    where = Scope({"INPUT": {"t": odd}}, 0)
    assert evaluate("{% $INPUT.t %}", where) == odd
    with pytest.raises(ExpressionError, match="lone surrogate"):
        evaluate("$F.json_dumps($INPUT.t)", where)
    message = refusal(f"$INPUT.{odd}")
    message.encode("utf-8")
    assert "\x00" not in message
