"""Trees and texts to closures that give a value for a run. Names are judged here, once, before anything runs.

Owns what an expression means. Values that come out of the data are never compiled: that is what keeps data from being
evaluated (FLOW-FORMAT rule 5). Only objects (``dict``) and lists are looked into, never attributes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from plaita.errors import ExpressionError
from plaita.flow import functions
from plaita.flow.expr_limits import MAX_VALUE_BYTES, kind, measure, megabytes, shortened
from plaita.flow.expr_parser import (
    Call,
    Digits,
    Index,
    Literal,
    Path,
    SyntaxFault,
    Tree,
    parse_embedded,
    parse_expression,
)
from plaita.flow.expr_scope import LOOP_ROOTS, PREFIX, PREFIXED_SEGMENTS, ROOTS, Scope
from plaita.flow.expr_warnings import literal_warnings
from plaita.flow.functions_math import require_carried
from plaita.flow.functions_text import render
from plaita.flow.nearest import Nearest

_CACHED_TEXTS = 8192
_CACHED_LONG_TEXTS = 64
_LONG_TEXT = 4096
_LITERAL_DOLLAR = "for a plain text that begins with $ write {% '$' %} in place of the $"


class Run:
    """One evaluation of one value: what it sees and how much it has built so far."""

    __slots__ = ("built", "roots", "scope")

    def __init__(self, scope: Scope, built: int = 0) -> None:
        self.scope = scope
        self.roots = scope.roots
        self.built = built

    def charge(self, size: int) -> None:
        """Count ``size`` bytes as built. Raises ValueError when the value becomes too large."""
        self.built += size
        if self.built > MAX_VALUE_BYTES:
            raise ValueError(f"functions and templates of one value build more than {megabytes(MAX_VALUE_BYTES)}")


Node = Callable[[Run], Any]


@dataclass(frozen=True, slots=True)
class CompiledText:
    """A text of a flow: ``node`` gives its value, or is None when the text is its own value."""

    node: Node | None
    references: frozenset[tuple[str, str | None]] = frozenset()
    warnings: tuple[str, ...] = ()


@dataclass(slots=True)
class _Compiler:
    source: str
    loop_roots: bool
    references: set[tuple[str, str | None]] = field(default_factory=set)

    def failure(self, part: str, reason: str) -> ExpressionError:
        return _failure(self.source, part, reason)

    def node(self, tree: Tree) -> Node:
        if isinstance(tree, Literal):
            return _constant(tree.value)
        if isinstance(tree, Path):
            return self._path(tree)
        return self._call(tree)

    def _path(self, path: Path) -> Node:
        fault = _root_fault(path.root, self.loop_roots)
        if fault is not None:
            raise self.failure(path.text, fault)
        first = path.steps[0] if path.steps else None
        self.references.add((path.root, first if isinstance(first, str) else getattr(first, "text", None)))
        steps = _prepared(path)
        source, text, root = self.source, path.text, path.root
        if all(type(step) is str for step in steps):
            return _keys_node(source, text, root, tuple(str(step) for step in steps))
        return _steps_node(source, text, root, steps)

    def _call(self, call: Call) -> Node:
        spec = functions.find(call.function)
        if spec is None:
            reason = f"there is no function $F.{shortened(call.function, 60)}{functions.hint(call.function)}"
            raise self.failure(call.text, reason)
        fault = spec.arity_fault(len(call.arguments))
        if fault is not None:
            raise self.failure(call.text, fault)
        return _call_node(self.source, spec, tuple(self.node(argument) for argument in call.arguments))


# -- errors -------------------------------------------------------------------------------------


def _failure(source: str, part: str, reason: str) -> ExpressionError:
    whole, piece = shortened(source), shortened(part)
    inside = f"{piece}: " if piece and piece != whole else ""
    return ExpressionError(f"expression {whole!r}: {inside}{reason}")


def _root_fault(root: str, loop_roots: bool) -> str | None:
    if root in ROOTS or (loop_roots and root in LOOP_ROOTS):
        return None
    shown = shortened(root, 60)
    if root in LOOP_ROOTS:
        return f"${shown} exists only in the condition of a loop or while node"
    known = ["$" + name for name in (*ROOTS, *(LOOP_ROOTS if loop_roots else ()))]
    nearest = Nearest([*known, "$F"], budget=1)
    advice = "" if nearest.find("$" + root) else f"; {_LITERAL_DOLLAR}"
    return f"there is no root ${shown}{Nearest([*known, '$F'], budget=1).hint('$' + root)}{advice}"


def _reason_of(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "the value is nested too deeply"
    text = str(error.args[0]) if error.args and isinstance(error.args[0], str) else str(error)
    return shortened(text, 300) or type(error).__name__


# -- paths --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Either:
    """A key with and without prefix: ``$PARENT.INPUT`` is the key ``$INPUT``, data of one's own may have ``INPUT``."""

    first: str
    second: str


_Step = str | Index | Digits | _Either


def _prepared(path: Path) -> tuple[_Step, ...]:
    steps: list[_Step] = []
    in_context = path.root == "PARENT"
    for step in path.steps:
        if not isinstance(step, str):
            steps.append(step)
            in_context = False
            continue
        bare = step.removeprefix(PREFIX)
        if step in PREFIXED_SEGMENTS or (in_context and bare in ROOTS):
            steps.append(_Either(PREFIX + bare, bare))
        else:
            steps.append(step)
        in_context = in_context and bare == "PARENT"
    return tuple(steps)


def _root_value(run: Run, root: str, source: str, text: str) -> Any:
    try:
        return run.roots[root]
    except KeyError:
        implied, value = run.scope.implied_root(root)
        if implied:
            return value
        there = ", ".join("$" + name for name in sorted(run.roots))
        raise _failure(source, text, f"${root} does not exist here; there is {there or 'nothing'}") from None


def _keys_node(source: str, text: str, root: str, keys: tuple[str, ...]) -> Node:
    def evaluate(run: Run) -> Any:
        value = run.roots[root] if root in run.roots else _root_value(run, root, source, text)
        for key in keys:
            if not isinstance(value, dict):
                return None
            value = value.get(key)
        return value

    return evaluate


def _steps_node(source: str, text: str, root: str, steps: tuple[_Step, ...]) -> Node:
    def evaluate(run: Run) -> Any:
        value = _root_value(run, root, source, text)
        try:
            for step in steps:
                value = _stepped(value, step)
        except (LookupError, TypeError) as error:
            raise _failure(source, text, _reason_of(error)) from None
        return value

    return evaluate


def _stepped(value: Any, step: _Step) -> Any:
    if isinstance(step, str):
        return value.get(step) if isinstance(value, dict) else None
    if isinstance(step, _Either):
        if not isinstance(value, dict):
            return None
        return value[step.first] if step.first in value else value.get(step.second)
    if isinstance(value, dict):
        if isinstance(step, Digits):
            return value.get(step.text)
        raise TypeError(f"[{step.number}] is for lists; the key of an object is written .{step.number}")
    if not isinstance(value, (list, tuple, str)):
        raise TypeError(f"{kind(value)} has no index {step.number}")
    if not -len(value) <= step.number < len(value):
        raise IndexError(f"index {step.number} is outside a {kind(value)} of length {len(value)}")
    return value[step.number]


# -- calls --------------------------------------------------------------------------------------


def _constant(value: Any) -> Node:
    return lambda run: value


def _call_node(source: str, spec: functions.FunctionSpec, arguments: tuple[Node, ...]) -> Node:
    function, timed, custom = spec.call, spec.timed, spec.name not in functions.BUILT_IN

    def evaluate(run: Run) -> Any:
        values = [argument(run) for argument in arguments]
        try:
            result = function(run.scope.now_ms, *values) if timed else function(*values)
            if custom:
                measure(result, MAX_VALUE_BYTES)
            _account(run, result)
        except ExpressionError:
            raise
        except Exception as error:
            kinds = ", ".join(kind(value) for value in values[:8]) + (", …" if len(values) > 8 else "")
            raise _failure(source, f"$F.{spec.name}({kinds})", _reason_of(error)) from error
        return result

    return evaluate


def _account(run: Run, result: Any) -> None:
    if isinstance(result, str):
        run.charge(len(result))
    elif isinstance(result, (list, dict)):
        run.charge(8 * len(result))
    elif isinstance(result, float):
        if not math.isfinite(result):
            raise OverflowError("the result is no finite number")
    elif isinstance(result, int):
        require_carried(result)


# -- texts --------------------------------------------------------------------------------------


def _with_parent(node: Node) -> Node:
    """Ask the parent when the child's answer is null, as far up as the scopes say (FLOW-FORMAT rule 6)."""

    def evaluate(run: Run) -> Any:
        value = node(run)
        if value is not None or not run.scope.parent_fallback:
            return value
        scope = run.scope
        while scope.parent_fallback and scope.parent is not None:
            scope = scope.parent
            upper = Run(scope, run.built)
            try:
                value = node(upper)
            except ExpressionError:
                return None  # the child's null stands: the parent cannot answer, and the child did not ask it by name
            run.built = upper.built
            if value is not None:
                return value
        return None

    return evaluate


def _template(text: str, compiler: _Compiler, fallback: bool, warnings: list[str]) -> Node | None:
    parts: list[str | Node] = []
    position = 0
    while True:
        opening = text.find("{%", position)
        if opening < 0 or text.find("%}", opening) < 0:
            break
        tree, end = parse_embedded(text, opening + 2)
        compiler.source = text[opening:end]
        node = compiler.node(tree)
        if opening > position:
            parts.append(text[position:opening])
        parts.append(_with_parent(node) if fallback else node)
        position = end
    warnings.extend(reason for part in parts if isinstance(part, str) for reason in literal_warnings(part))
    warnings.extend(literal_warnings(text[position:]))
    if not parts:
        return None
    if position < len(text):
        parts.append(text[position:])
    return _template_node(text, tuple(parts))


def _template_node(source: str, parts: tuple[str | Node, ...]) -> Node:
    def evaluate(run: Run) -> str:
        written: list[str] = []
        for part in parts:
            if isinstance(part, str):
                written.append(part)
                continue
            value = part(run)
            try:
                piece = render(value)
                run.charge(len(piece))
            except (ValueError, TypeError, RecursionError) as error:
                raise _failure(source, "", f"no text can be made of the {kind(value)}: {_reason_of(error)}") from error
            written.append(piece)
        return "".join(written)

    return evaluate


def _syntax_failure(text: str, fault: SyntaxFault) -> ExpressionError:
    hint = f"; {_LITERAL_DOLLAR}" if text.startswith("$") and fault.position <= 1 else ""
    around = text if text.startswith("$") or len(text) <= 100 else "…" + text[max(0, fault.position - 40) :]
    return _failure(around, "", f"{fault.reason} (character {fault.position + 1}){hint}")


def _compile_text(text: str, loop_roots: bool, fallback: bool) -> CompiledText:
    compiler = _Compiler(text, loop_roots)
    warnings: list[str] = []
    try:
        if text.startswith("$") and not text.startswith("${"):
            node: Node | None = compiler.node(parse_expression(text))
            if fallback and node is not None:
                node = _with_parent(node)
        else:
            node = _template(text, compiler, fallback, warnings)
    except SyntaxFault as fault:
        raise _syntax_failure(text, fault) from None
    return CompiledText(node, frozenset(compiler.references), tuple(dict.fromkeys(warnings)))


@lru_cache(maxsize=_CACHED_TEXTS)
def _cached(text: str, loop_roots: bool, fallback: bool, version: int) -> CompiledText:
    return _compile_text(text, loop_roots, fallback)


@lru_cache(maxsize=_CACHED_LONG_TEXTS)
def _cached_long(text: str, loop_roots: bool, fallback: bool, version: int) -> CompiledText:
    return _compile_text(text, loop_roots, fallback)


_PLAIN = CompiledText(None)


def compile_text(text: str, *, loop_roots: bool, fallback: bool) -> CompiledText:
    """The compiled form of a text that a flow's author wrote. Raises ExpressionError. Cached: equal texts share it."""
    if "$" not in text and "{" not in text and "}" not in text:
        return _PLAIN
    cached = _cached if len(text) <= _LONG_TEXT else _cached_long
    return cached(text, loop_roots, fallback, functions.version())
