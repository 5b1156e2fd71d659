"""``$F.callback_url``: where a call ends a wait that is still to come (DECISIONS 30)."""

from __future__ import annotations

from typing import Any

from plaita.flow.expr_scope import Scope
from plaita.flow.functions_arguments import text


def callback_url(scope: Scope, node: Any) -> str:
    """The URL of the next wait of an ``http_callback`` node of this execution."""
    name = text(node)
    if scope.callback_url is None:
        raise ValueError("only a step of an execution has URLs")
    return scope.callback_url(name)
