"""One evaluation while it goes on: what it sees, what it has built, and how its faults are told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from plaita.errors import ExpressionError
from plaita.flow.expr_limits import MAX_VALUE_BYTES, megabytes, shortened
from plaita.flow.expr_scope import Scope


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


def failure(source: str, part: str, reason: str) -> ExpressionError:
    """The error of an expression (``source``) at one part of it, both cut short for the message."""
    whole, piece = shortened(source), shortened(part)
    inside = f"{piece}: " if piece and piece != whole else ""
    return ExpressionError(f"expression {whole!r}: {inside}{reason}")


def reason_of(error: Exception) -> str:
    """What an exception of a function or a look-up says, in plain words and short."""
    if isinstance(error, RecursionError):
        return "the value is nested too deeply"
    if isinstance(error, OverflowError) and len(error.args) > 1:  # the C library's, with an errno
        return "the result is too large"
    text = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
    return shortened(text, 300) or type(error).__name__
