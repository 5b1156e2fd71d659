"""Trees and texts to closures that give a value for a run. Names are judged here, once, before anything runs.

Owns what an expression means. Values that come out of the data are never compiled: that is what keeps data from being
evaluated (FLOW-FORMAT rule 5). Only objects (``dict``) and lists are looked into, never attributes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from plaita.errors import ExpressionError
from plaita.flow import functions
from plaita.flow.expr_calls import call_node, constant
from plaita.flow.expr_limits import MAX_TEMPLATE_PARTS, kind, shortened
from plaita.flow.expr_parser import (
    Call,
    Literal,
    Path,
    SyntaxFault,
    Tree,
    leading_name,
    parse_embedded,
    parse_expression,
)
from plaita.flow.expr_paths import LITERAL_DOLLAR, path_node, root_fault
from plaita.flow.expr_run import Node, Run, failure, reason_of
from plaita.flow.expr_warnings import literal_warnings
from plaita.flow.functions_text import render

_CACHED_TEXTS = 8192
_CACHED_LONG_TEXTS = 64
_LONG_TEXT = 4096
_VERY_LONG_TEXT = 256 * 1024


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
        return failure(self.source, part, reason)

    def node(self, tree: Tree) -> Node:
        if isinstance(tree, Literal):
            return constant(tree.value)
        if isinstance(tree, Path):
            return self._path(tree)
        return self._call(tree)

    def _path(self, path: Path) -> Node:
        fault = root_fault(path.root, self.loop_roots)
        if fault is not None:
            raise self.failure(path.text, fault)
        first = path.steps[0] if path.steps else None
        self.references.add((path.root, first if isinstance(first, str) else getattr(first, "text", None)))
        return path_node(self.source, path)

    def _call(self, call: Call) -> Node:
        spec = functions.find(call.function)
        if spec is None:
            reason = f"there is no function $F.{shortened(call.function, 60)}{functions.hint(call.function)}"
            raise self.failure(call.text, reason)
        fault = spec.arity_fault(len(call.arguments))
        if fault is not None:
            raise self.failure(call.text, fault)
        if spec.scoped and isinstance(call.arguments[0], Literal):
            node_id = call.arguments[0].value
            self.references.add((f"F.{spec.name}", node_id if isinstance(node_id, str) else None))
        return call_node(self.source, spec, tuple(self.node(argument) for argument in call.arguments))


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
    position = found = 0
    while True:
        opening = text.find("{%", position)
        if opening < 0 or text.find("%}", opening) < 0:
            break
        found += 1
        if found > MAX_TEMPLATE_PARTS:
            raise compiler.failure("", f"the text holds more than {MAX_TEMPLATE_PARTS} expressions in {{% %}}")
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
                raise failure(source, "", f"no text can be made of the {kind(value)}: {reason_of(error)}") from None
            written.append(piece)
        return "".join(written)

    return evaluate


def _syntax_failure(text: str, fault: SyntaxFault, loop_roots: bool) -> ExpressionError:
    root = leading_name(text)
    if root is not None and root != "F":  # "$5 off": that there is no root $5 says more than where the grammar ends
        reason = root_fault(root, loop_roots)
        if reason is not None:
            return failure(text, "", reason)
    hint = f"; {LITERAL_DOLLAR}" if text.startswith("$") and fault.position <= 1 else ""
    around = text if text.startswith("$") or len(text) <= 100 else "…" + text[max(0, fault.position - 40) :]
    return failure(around, "", f"{fault.reason} (character {fault.position + 1}){hint}")


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
        raise _syntax_failure(text, fault, loop_roots) from None
    return CompiledText(node, frozenset(compiler.references), tuple(dict.fromkeys(warnings)))


@lru_cache(maxsize=_CACHED_TEXTS)
def _cached(text: str, loop_roots: bool, fallback: bool, version: int) -> CompiledText:
    return _compile_text(text, loop_roots, fallback)


@lru_cache(maxsize=_CACHED_LONG_TEXTS)
def _cached_long(text: str, loop_roots: bool, fallback: bool, version: int) -> CompiledText:
    return _compile_text(text, loop_roots, fallback)


_PLAIN = CompiledText(None)


def compile_text(text: str, *, loop_roots: bool, fallback: bool) -> CompiledText:
    """The compiled form of a text that a flow's author wrote. Raises ExpressionError. Equal texts share it, very
    long ones excepted."""
    if "$" not in text and "{" not in text and "}" not in text:
        return _PLAIN
    if len(text) > _VERY_LONG_TEXT:
        return _compile_text(text, loop_roots, fallback)
    cached = _cached if len(text) <= _LONG_TEXT else _cached_long
    return cached(text, loop_roots, fallback, functions.version())
