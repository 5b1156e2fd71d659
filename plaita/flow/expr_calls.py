"""Calls of ``$F`` functions: the arguments, the function, then whether its result is one the language carries."""

from __future__ import annotations

import math
from typing import Any

from plaita.errors import ExpressionError
from plaita.flow import functions
from plaita.flow.expr_limits import MAX_VALUE_BYTES, kind, measure
from plaita.flow.expr_run import Node, Run, failure, reason_of
from plaita.flow.functions_math import require_carried


def constant(value: Any) -> Node:
    """The node of a literal."""
    return lambda run: value


def call_node(source: str, spec: functions.FunctionSpec, arguments: tuple[Node, ...]) -> Node:
    """The node of a call whose function and number of arguments are known to be right. It raises ExpressionError."""
    function, timed, scoped, custom = spec.call, spec.timed, spec.scoped, spec is not functions.BUILT_IN.get(spec.name)

    def evaluate(run: Run) -> Any:
        values = [argument(run) for argument in arguments]
        try:
            if timed:
                result = function(run.scope.now_ms, *values)
            else:
                result = function(run.scope, *values) if scoped else function(*values)
            if custom:
                measure(result, MAX_VALUE_BYTES)
            _account(run, spec, values, result)
        except ExpressionError:
            raise
        except Exception as error:  # noqa: BLE001 - a function may be a plug-in's; it is raised again, named
            kinds = ", ".join(kind(value) for value in values[:8]) + (", …" if len(values) > 8 else "")
            # Built-in functions raise for their own checks: a bare ValueError or TypeError as the cause would make the
            # same fault of an author look like different kinds of failure. A plug-in's exception is kept for its owner.
            raise failure(source, f"$F.{spec.name}({kinds})", reason_of(error)) from (error if custom else None)
        return result

    return evaluate


def _account(run: Run, spec: functions.FunctionSpec, arguments: list[Any], result: Any) -> None:
    if isinstance(result, str):
        if spec.builds:
            run.charge(len(result))
    elif isinstance(result, (list, dict)):
        if spec.builds:
            parsed = len(arguments[0]) if arguments and isinstance(arguments[0], str) else 0
            run.charge(max(8 * len(result), parsed))
    elif isinstance(result, float):
        if not math.isfinite(result):
            raise OverflowError("the result is no finite number")
    elif isinstance(result, int):
        require_carried(result)
