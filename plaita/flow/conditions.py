"""Conditions: comparisons of two values, and groups of them (FLOW-FORMAT 2.5, rule 3).

Owns the operators and their null rules. A condition sees its own context only, never the parent by fallback.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from plaita.errors import ExpressionError, FlowDefinitionError, Problem
from plaita.flow import functions_logic as logic
from plaita.flow.expr_limits import MAX_DEPTH, kind
from plaita.flow.expr_run import reason_of
from plaita.flow.expressions import CompiledValue, Scope, compile_value
from plaita.flow.nearest import Nearest, shown

OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "eq": logic.equal,
    "ne": logic.not_equal,
    "gt": logic.greater,
    "gte": logic.greater_or_equal,
    "lt": logic.less,
    "lte": logic.less_or_equal,
    "in": logic.within,
    "notIn": logic.not_within,
    "contains": logic.contains,
    "notContains": logic.not_contains,
}
RELATIONS = ("and", "or")
_SYMBOLS = {
    "=": "eq",
    "==": "eq",
    "===": "eq",
    "!=": "ne",
    "!==": "ne",
    "<>": "ne",
    ">": "gt",
    ">=": "gte",
    "<": "lt",
    "<=": "lte",
    "equals": "eq",
    "not_in": "notIn",
    "not in": "notIn",
    "not_contains": "notContains",
}
_MAX_PROBLEMS = 100


class CompiledCondition:
    """A condition ready to be asked. ``references`` as in CompiledValue."""

    __slots__ = ("references",)

    def __init__(self, references: frozenset[tuple[str, str | None]]) -> None:
        self.references = references

    def evaluate(self, scope: Scope) -> bool:
        """Whether it holds in that scope. Raises ExpressionError, nothing else."""
        raise NotImplementedError


class _Comparison(CompiledCondition):
    __slots__ = ("_field", "_label", "_operation", "_operator", "_value")

    def __init__(self, field: CompiledValue, operator: str, value: CompiledValue, label: str) -> None:
        super().__init__(field.references | value.references)
        self._label = label
        self._field = field
        self._operator = operator
        self._operation = OPERATORS[operator]
        self._value = value

    def evaluate(self, scope: Scope) -> bool:
        left = self._field.evaluate(scope)
        right = self._value.evaluate(scope)
        if left is None or right is None:
            if self._operator == "eq":
                return left is right
            return self._operator == "ne" and left is not right
        try:
            return self._operation(left, right)
        except Exception as error:  # noqa: BLE001 - values of node code may compare as they like; raised again, named
            sides = f"{kind(left)} {self._operator} {kind(right)}"
            raise ExpressionError(f"condition on {self._label}: {sides}: {reason_of(error)}") from None


class _Group(CompiledCondition):
    __slots__ = ("_all", "_members")

    def __init__(self, relation: str, members: tuple[CompiledCondition, ...]) -> None:
        super().__init__(frozenset().union(*(member.references for member in members)))
        self._all = relation == "and"
        self._members = members

    def evaluate(self, scope: Scope) -> bool:
        if self._all or not self._members:
            return all(member.evaluate(scope) for member in self._members)
        return any(member.evaluate(scope) for member in self._members)


def compile_condition(
    raw: Any, place: str, *, loop_roots: bool = False, warnings: list[Problem] | None = None
) -> CompiledCondition:
    """Compile ``{field, operator, value}`` or ``{relation, conditions}``, nested at most 64 deep.

    An empty group holds. If a side is null, ``eq`` holds when both are, ``ne`` when one is, and every other operator
    does not hold. Raises FlowDefinitionError with every problem and its place; an incomplete condition is one.
    """
    compiler = _Compiler(loop_roots, warnings)
    condition = compiler.compile(raw, place, 0)
    if condition is None:
        raise FlowDefinitionError(compiler.problems)
    return condition


class _Compiler:
    def __init__(self, loop_roots: bool, warnings: list[Problem] | None) -> None:
        self.loop_roots = loop_roots
        self.warnings = warnings
        self.problems: list[Problem] = []

    def refuse(self, place: str, reason: str) -> None:
        self.problems.append(Problem(place, reason))

    def compile(self, raw: Any, place: str, depth: int) -> CompiledCondition | None:
        """The condition, or None after at least one problem was noted here or in a part of it."""
        if depth >= MAX_DEPTH:
            self.refuse(place, f"groups of conditions are nested deeper than {MAX_DEPTH}")
            return None
        if not isinstance(raw, dict):
            self.refuse(
                place,
                f"a condition is an object {{field, operator, value}} or {{relation, conditions}}, not {kind(raw)}",
            )
            return None
        if "conditions" in raw or "relation" in raw:
            return self._group(raw, place, depth)
        return self._comparison(raw, place)

    def _comparison(self, raw: dict[str, Any], place: str) -> CompiledCondition | None:
        missing = [name for name in ("field", "operator", "value") if name not in raw]
        if missing:
            self.refuse(place, f"the condition is incomplete: {' and '.join(missing)} missing")
            return None
        before = len(self.problems)
        self._warn_unknown(raw, place, ("field", "operator", "value"))
        operator = self._operator(raw["operator"], f"{place}.operator")
        field = self._value(raw["field"], f"{place}.field")
        value = self._value(raw["value"], f"{place}.value")
        if operator is None or field is None or value is None or len(self.problems) > before:
            return None
        if self.warnings is not None and field.constant and value.constant:
            self.warnings.append(Problem(place, "the condition compares two constants; data is written $INPUT.name"))
        return _Comparison(field, operator, value, shown(raw["field"]))

    def _operator(self, raw: Any, place: str) -> str | None:
        if isinstance(raw, str) and raw in OPERATORS:
            return raw
        name = raw if isinstance(raw, str) else ""
        meant = _SYMBOLS.get(name)
        hint = f"; did you mean {meant!r}?" if meant else Nearest(OPERATORS, budget=1).hint(name)
        self.refuse(place, f"there is no operator {shown(raw)}{hint}")
        return None

    def _value(self, raw: Any, place: str) -> CompiledValue | None:
        try:
            return compile_value(raw, place, loop_roots=self.loop_roots, parent_fallback=False, warnings=self.warnings)
        except FlowDefinitionError as error:
            self.problems.extend(error.problems)
            return None

    def _group(self, raw: dict[str, Any], place: str, depth: int) -> CompiledCondition | None:
        missing = [name for name in ("relation", "conditions") if name not in raw]
        if missing:
            self.refuse(place, f"the group of conditions is incomplete: {missing[0]} missing")
            return None
        self._warn_unknown(raw, place, ("relation", "conditions"))
        before = len(self.problems)
        relation, members = raw["relation"], raw["conditions"]
        if not isinstance(relation, str) or relation not in RELATIONS:
            self.refuse(f"{place}.relation", f"the relation is 'and' or 'or', not {shown(relation)}")
        if not isinstance(members, list):
            self.refuse(f"{place}.conditions", f"expects a list of conditions, not {kind(members)}")
            return None
        compiled: list[CompiledCondition] = []
        for index, member in enumerate(members):
            condition = self.compile(member, f"{place}.conditions[{index}]", depth + 1)
            if condition is not None:
                compiled.append(condition)
            if len(self.problems) >= _MAX_PROBLEMS:
                break
        return None if len(self.problems) > before else _Group(relation, tuple(compiled))

    def _warn_unknown(self, raw: dict[str, Any], place: str, known: tuple[str, ...]) -> None:
        if self.warnings is None:
            return
        for name in raw:
            if name not in known:
                hint = Nearest(known, budget=1).hint(str(name))
                self.warnings.append(Problem(place, f"the condition has no field {shown(name)}{hint}"))
