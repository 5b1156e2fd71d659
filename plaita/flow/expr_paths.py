"""Paths: from a root through the keys of objects and the indexes of lists, and through nothing else.

A missing key gives null and null has only null keys; a missing root or a bad index is an error (FLOW-FORMAT rule 4).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from plaita.flow.expr_limits import kind, shortened
from plaita.flow.expr_parser import Digits, Index, Path
from plaita.flow.expr_run import Node, Run, failure, reason_of
from plaita.flow.expr_scope import LOOP_ROOTS, PREFIX, PREFIXED_SEGMENTS, ROOTS
from plaita.flow.nearest import Nearest

LITERAL_DOLLAR = "for a plain text that begins with $ write {% '$' %} in place of the $"


def root_fault(root: str, loop_roots: bool) -> str | None:
    """Why there is no such root in the language, with the nearest right name; None when there is."""
    if root in ROOTS or (loop_roots and root in LOOP_ROOTS):
        return None
    shown = shortened(root, 60)
    if root in LOOP_ROOTS:
        return f"${shown} exists only in the condition of a loop or while node"
    known = ["$" + name for name in (*ROOTS, *(LOOP_ROOTS if loop_roots else ()))]
    nearest = Nearest([*known, "$F"], budget=1)
    advice = "" if nearest.find("$" + root) else f"; {LITERAL_DOLLAR}"
    return f"there is no root ${shown}{Nearest([*known, '$F'], budget=1).hint('$' + root)}{advice}"


def path_node(source: str, path: Path) -> Node:
    """The node of a path whose root is known to exist in the language. It raises ExpressionError."""
    steps = _prepared(path)
    if all(type(step) is str for step in steps):
        return _keys_node(source, path.text, path.root, tuple(str(step) for step in steps))
    return _steps_node(source, path.text, path.root, steps)


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
        raise failure(source, text, f"${root} does not exist here; there is {there or 'nothing'}") from None


def _keys_node(source: str, text: str, root: str, keys: tuple[str, ...]) -> Node:
    def evaluate(run: Run) -> Any:
        try:
            value = run.roots[root]
        except KeyError:
            value = _root_value(run, root, source, text)
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
            raise failure(source, text, reason_of(error)) from None
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
