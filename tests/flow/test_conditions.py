"""Conditions: operators, null rules, groups, and what is refused when compiled."""

from __future__ import annotations

from typing import Any

import pytest

from plaita.errors import ExpressionError, FlowDefinitionError, Problem
from plaita.flow.conditions import OPERATORS, compile_condition
from plaita.flow.expressions import Scope

SCOPE = Scope({"INPUT": {"n": 5, "s": "abc", "l": [1, 2], "none": None, "o": {"k": 1}}, "NODE": {}}, 0)


def comparison(field: Any, operator: Any, value: Any) -> dict[str, Any]:
    return {"field": field, "operator": operator, "value": value}


TRUE = comparison(1, "eq", 1)
FALSE = comparison(1, "eq", 2)
FAILS = comparison(1, "lt", "a")


def holds(raw: Any, scope: Scope = SCOPE) -> bool:
    result = compile_condition(raw, "c").evaluate(scope)
    assert isinstance(result, bool)
    return result


def problems(raw: Any) -> list[tuple[str, str]]:
    with pytest.raises(FlowDefinitionError) as caught:
        compile_condition(raw, "nodes[2].condition")
    return [(p.place.removeprefix("nodes[2].condition"), p.reason) for p in caught.value.problems]


@pytest.mark.parametrize(
    ("field", "operator", "value", "result"),
    [
        ("$INPUT.n", "eq", 5, True),
        ("$INPUT.n", "eq", 5.0, True),
        ("$INPUT.n", "eq", "5", False),
        ("$INPUT.o", "eq", {"k": 1}, True),
        ("$INPUT.o", "eq", {"k": "$INPUT.o.k"}, True),
        ("$INPUT.n", "ne", 6, True),
        ("$INPUT.n", "gt", 4, True),
        ("$INPUT.n", "gt", 5, False),
        ("$INPUT.n", "gte", 5, True),
        ("$INPUT.n", "lt", 5, False),
        ("$INPUT.n", "lte", 5, True),
        ("$INPUT.s", "lt", "abd", True),
        (1, "in", "$INPUT.l", True),
        ("k", "in", "$INPUT.o", True),
        ("b", "in", "$INPUT.s", True),
        (3, "notIn", "$INPUT.l", True),
        ("$INPUT.l", "contains", 2, True),
        ("$INPUT.s", "contains", "bc", True),
        ("$INPUT.l", "notContains", 2, False),
        ("{% $INPUT.n %}", "eq", "5", True),
        ("$F.add($INPUT.n, 1)", "eq", "$F.len('123456')", True),
    ],
)
def test_operators(field: Any, operator: str, value: Any, result: bool) -> None:
    assert holds(comparison(field, operator, value)) is result


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("$INPUT.none", 1),
        (1, "$INPUT.none"),
        (None, [1]),
        ("$INPUT.gone", "$INPUT.none"),
        (None, None),
        ("$NODE.x.y", "a"),
    ],
)
def test_null_rules(operator: str, left: Any, right: Any) -> None:
    both = right in (None, "$INPUT.none") and left in (None, "$INPUT.gone")
    wanted = {"eq": both, "ne": not both}.get(operator, False)
    assert holds(comparison(left, operator, right)) is wanted


@pytest.mark.parametrize(
    ("raw", "result"),
    [
        ({"relation": "and", "conditions": []}, True),
        ({"relation": "or", "conditions": []}, True),
        ({"relation": "and", "conditions": [TRUE, TRUE]}, True),
        ({"relation": "and", "conditions": [TRUE, FALSE]}, False),
        ({"relation": "or", "conditions": [FALSE, TRUE]}, True),
        ({"relation": "or", "conditions": [FALSE, FALSE]}, False),
        ({"relation": "or", "conditions": [FALSE, {"relation": "and", "conditions": [TRUE, TRUE]}]}, True),
        ({"relation": "and", "conditions": [TRUE, {"relation": "or", "conditions": []}]}, True),
        # in order, and no further than needed
        ({"relation": "and", "conditions": [FALSE, FAILS]}, False),
        ({"relation": "or", "conditions": [TRUE, FAILS]}, True),
    ],
)
def test_groups(raw: Any, result: bool) -> None:
    assert holds(raw) is result


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (comparison("$INPUT.n", "lt", "a"), "condition on '$INPUT.n': integer lt text: cannot order integer and text"),
        (comparison("$INPUT.o", "gt", {}), "cannot order object and object"),
        (comparison(1, "in", 5), "not in integer"),
        (comparison(1, "notIn", 5), "not in integer"),
        (comparison(5, "contains", 1), "not in integer"),
        (comparison("$INPUT.l[7]", "eq", 1), "index 7 is outside"),
        (comparison("$BRANCH", "eq", 1), "$BRANCH does not exist here"),
        ({"relation": "and", "conditions": [TRUE, FAILS]}, "cannot order"),
    ],
)
def test_errors_when_asked(raw: Any, reason: str) -> None:
    condition = compile_condition(raw, "c")
    with pytest.raises(ExpressionError) as caught:
        condition.evaluate(SCOPE)
    assert reason in str(caught.value)


@pytest.mark.parametrize("missing", ["field", "operator", "value"])
def test_an_incomplete_condition_is_refused(missing: str) -> None:
    raw = comparison("$INPUT.n", "eq", None)
    del raw[missing]
    assert problems(raw) == [("", f"the condition is incomplete: {missing} missing")]


@pytest.mark.parametrize(
    ("raw", "place", "reason"),
    [
        (None, "", "not null"),
        (True, "", "not boolean"),
        ("$INPUT.n", "", "not text"),
        ([TRUE], "", "not list"),
        ({}, "", "field and operator and value missing"),
        (comparison(1, "==", 1), ".operator", "did you mean 'eq'?"),
        (comparison(1, "notin", 1), ".operator", "did you mean 'notIn'?"),
        (comparison(1, "not_in", 1), ".operator", "did you mean 'notIn'?"),
        (comparison(1, "GT", 1), ".operator", "did you mean 'gt'?"),
        (comparison(1, "matches", 1), ".operator", "no operator 'matches'"),
        (comparison(1, None, 1), ".operator", "no operator None"),
        (comparison(1, {"a": 1}, 1), ".operator", "no operator an object"),
        (comparison("$X", "eq", 1), ".field", "no root $X"),
        (comparison(1, "eq", ["$F.no()"]), ".value[0]", "no function $F.no"),
        (comparison("$LOOP-ITEM", "eq", 1), ".field", "only in the condition of a loop"),
        ({"relation": "xor", "conditions": []}, ".relation", "'and' or 'or'"),
        ({"relation": "AND", "conditions": []}, ".relation", "'and' or 'or'"),
        ({"conditions": []}, "", "relation missing"),
        ({"relation": "and"}, "", "conditions missing"),
        ({"relation": "and", "conditions": TRUE}, ".conditions", "not object"),
        ({"relation": "and", "conditions": [TRUE, {"field": 1}]}, ".conditions[1]", "operator and value missing"),
    ],
)
def test_bad_conditions_are_refused_with_place_and_reason(raw: Any, place: str, reason: str) -> None:
    ((found, why),) = problems(raw)
    assert found == place
    assert reason in why


def test_all_problems_are_told() -> None:
    raw = {"relation": "no", "conditions": [comparison("$X", "~", "$Y"), TRUE, 5]}
    assert [place for place, _ in problems(raw)] == [
        ".relation",
        ".conditions[0].operator",
        ".conditions[0].field",
        ".conditions[0].value",
        ".conditions[2]",
    ]


def nested(depth: int) -> dict[str, Any]:
    raw: dict[str, Any] = TRUE
    for _ in range(depth):
        raw = {"relation": "and", "conditions": [raw]}
    return raw


def test_depth() -> None:
    assert holds(nested(63))
    for depth in (64, 100_000):
        ((_, reason),) = problems(nested(depth))
        assert "deeper than 64" in reason


def test_problems_are_bounded() -> None:
    assert len(problems({"relation": "and", "conditions": [{}] * 5000})) == 100


def test_loop_roots_by_parameter() -> None:
    raw = comparison("$LOOP-INDEX", "lt", 3)
    condition = compile_condition(raw, "c", loop_roots=True)
    assert [condition.evaluate(Scope({"LOOP-INDEX": n}, 0)) for n in (2, 3)] == [True, False]


def test_a_condition_never_asks_the_parent() -> None:
    parent = Scope({"INPUT": {"x": 1}}, 0)
    child = Scope({"INPUT": {}}, 0, parent, True)
    assert holds(comparison("$INPUT.x", "eq", None), child)
    assert holds(comparison("$PARENT.INPUT.x", "eq", 1), child)


def test_data_in_a_condition_is_never_evaluated() -> None:
    scope = Scope({"INPUT": {"v": "$INPUT.w", "w": "secret"}}, 0)
    assert not holds(comparison("$INPUT.v", "eq", "secret"), scope)
    assert holds(comparison("$INPUT.v", "eq", "{% '$' %}INPUT.w"), scope)


def test_warnings() -> None:
    warnings: list[Problem] = []
    raw = {
        "relation": "and",
        "label": "x",
        "conditions": [{**comparison("$INPUT.n", "eq", "{{x}}"), "opertor": 1}, comparison("age", "gt", 18)],
    }
    compile_condition(raw, "c", warnings=warnings)
    assert [w.place for w in warnings] == ["c", "c.conditions[0]", "c.conditions[0].value", "c.conditions[1]"]
    assert "did you mean 'operator'?" in warnings[1].reason
    assert "two constants" in warnings[3].reason


def test_references() -> None:
    raw = {"relation": "or", "conditions": [comparison("$NODE.a.x", "eq", "$ENV.K"), comparison("$INPUT.n", "eq", 1)]}
    assert compile_condition(raw, "c").references == {("NODE", "a"), ("ENV", "K"), ("INPUT", "n")}
