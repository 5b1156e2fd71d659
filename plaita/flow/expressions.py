"""Expressions: what a flow's author wrote becomes a compiled value, which gives a JSON value for a scope.

The way in to the language (FLOW-FORMAT 3); the grammar is in ``expr_parser``, the meaning in ``expr_compile``, the
functions in ``functions``. Pure: no clock, no I/O, no attributes of Python objects. What authors read is
``docs/expressions.md``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from plaita.errors import ExpressionError, FlowDefinitionError, Problem
from plaita.flow.expr_compile import compile_text
from plaita.flow.expr_limits import MAX_DEPTH, MAX_EXPRESSION_BYTES, shortened
from plaita.flow.expr_run import Node, Run
from plaita.flow.expr_scope import LOOP_ROOTS, ROOTS, Scope

__all__ = [
    "LOOP_ROOTS",
    "MAX_DEPTH",
    "MAX_EXPRESSION_BYTES",
    "ROOTS",
    "CompiledValue",
    "Scope",
    "compile_value",
    "evaluate",
    "is_expression",
]

_MAX_PROBLEMS = 100
_MAX_WARNINGS = 1000
_SCALARS = (str, int, float, bool, type(None))


class CompiledValue:
    """A value of a flow, ready to be evaluated any number of times, by any number of threads.

    ``constant`` is true when no scope can change the value. ``references`` holds the roots it reads, each with the key
    that follows or None: ``("NODE", "fetch")`` for ``$NODE.fetch.data``; and ``("F.callback_url", "paid")`` for its
    literal argument, with None for one that is no text.
    """

    __slots__ = ("_node", "constant", "references")

    def __init__(self, node: Node, constant: bool, references: frozenset[tuple[str, str | None]]) -> None:
        self._node = node
        self.constant = constant
        self.references = references

    def evaluate(self, scope: Scope) -> Any:
        """The JSON value in that scope. Raises ExpressionError, nothing else.

        Lists and objects that the author wrote are fresh each time. What a path finds is the scope's own value, not a
        copy: whoever changes it changes the scope.
        """
        return self._node(Run(scope))


class _Constant(CompiledValue):
    """A text, number, boolean or null: no run is needed."""

    __slots__ = ("_value",)

    def __init__(self, value: Any) -> None:
        super().__init__(lambda run: value, True, frozenset())
        self._value = value

    def evaluate(self, scope: Scope) -> Any:
        return self._value


def is_expression(text: object) -> bool:
    """Whether a text has a part that is evaluated: it starts with ``$`` (not ``${``) or has a closed ``{% %}``."""
    if not isinstance(text, str):
        return False
    if text.startswith("$") and not text.startswith("${"):
        return True
    opening = text.find("{%")
    return opening >= 0 and text.find("%}", opening) >= 0


def compile_value(
    value: Any,
    place: str,
    *,
    loop_roots: bool = False,
    parent_fallback: bool = True,
    warnings: list[Problem] | None = None,
) -> CompiledValue:
    """Compile any JSON value an author wrote; expressions are in its texts, never in its keys.

    ``place`` names the value in problems (``nodes[3].output``). ``loop_roots`` lets ``$LOOP-ITEM`` and its kin in.
    ``parent_fallback=False`` compiles a value that never asks the parent, whatever the scope says (conditions). To
    ``warnings`` is added what stays literal but looks like an expression (FLOW-FORMAT rule 18). Raises
    FlowDefinitionError with all problems found (the first 100).
    """
    builder = _Builder(loop_roots, parent_fallback, warnings)
    node = builder.build(value, place, 0)
    if builder.problems:
        raise FlowDefinitionError(builder.problems)
    if node is not None:
        return CompiledValue(node, False, frozenset(builder.references))
    if isinstance(value, _SCALARS):
        return _Constant(value)
    return CompiledValue(_copier(value), True, frozenset())


class _Builder:
    def __init__(self, loop_roots: bool, fallback: bool, warnings: list[Problem] | None) -> None:
        self.loop_roots = loop_roots
        self.fallback = fallback
        self.warnings = warnings
        self.problems: list[Problem] = []
        self.references: set[tuple[str, str | None]] = set()

    def build(self, value: Any, place: str, depth: int) -> Node | None:
        """The node of a value, or None when it is constant."""
        if isinstance(value, str):
            return self._text(value, place)
        if not isinstance(value, (list, tuple, dict)) or len(self.problems) >= _MAX_PROBLEMS:
            return None
        if depth >= MAX_DEPTH:
            self.problems.append(
                Problem(shortened(place, 200), f"lists and objects are nested deeper than {MAX_DEPTH}")
            )
            return None
        if isinstance(value, dict):
            return self._object(value, place, depth)
        children = [self.build(item, f"{place}[{index}]", depth + 1) for index, item in enumerate(value)]
        if not any(children):
            return None
        nodes = [child or _copier(item) for child, item in zip(children, value, strict=True)]
        return lambda run: [node(run) for node in nodes]

    def _object(self, value: dict[str, Any], place: str, depth: int) -> Node | None:
        children = {key: self.build(item, _under(place, key), depth + 1) for key, item in value.items()}
        if not any(children.values()):
            return None
        nodes = [(key, child or _copier(value[key])) for key, child in children.items()]
        return lambda run: {key: node(run) for key, node in nodes}

    def _text(self, text: str, place: str) -> Node | None:
        if len(self.problems) >= _MAX_PROBLEMS:
            return None
        try:
            compiled = compile_text(text, loop_roots=self.loop_roots, fallback=self.fallback)
        except ExpressionError as error:
            self.problems.append(Problem(place, str(error)))
            return None
        if self.warnings is not None and len(self.warnings) < _MAX_WARNINGS:
            self.warnings.extend(Problem(place, reason) for reason in compiled.warnings)
        self.references |= compiled.references
        return compiled.node


def _under(place: str, key: object) -> str:
    name = shortened(str(key), 60)
    return f"{place}.{name}" if place else name


def _copier(value: Any) -> Callable[[Run], Any]:
    if isinstance(value, (list, tuple, dict)):
        return lambda run: _copied(value)
    return lambda run: value


def _copied(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copied(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_copied(item) for item in value]
    return value


def evaluate(value: Any, scope: Scope) -> Any:
    """Evaluate a value that was not compiled before: for node code that holds a field of its author's flow.

    Never call it with data: texts in ``value`` are taken as written by the author. Compiled texts are kept in a bounded
    cache. Raises ExpressionError, nothing else.
    """
    return _evaluated(value, Run(scope), 0)


def _evaluated(value: Any, run: Run, depth: int) -> Any:
    if isinstance(value, str):
        node = compile_text(value, loop_roots=True, fallback=True).node
        return value if node is None else node(run)
    if not isinstance(value, (list, tuple, dict)):
        return value
    if depth >= MAX_DEPTH:
        raise ExpressionError(f"lists and objects are nested deeper than {MAX_DEPTH}")
    if isinstance(value, dict):
        return {key: _evaluated(item, run, depth + 1) for key, item in value.items()}
    return [_evaluated(item, run, depth + 1) for item in value]
