"""The sizes a flow may have (FLOW-FORMAT 19). Owns the defaults; every limit is a named error where it is met."""

from __future__ import annotations

from dataclasses import dataclass

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Limits:
    """All sizes are bytes of UTF-8 JSON text, except ``nodes`` and ``depth``, which count.

    ``depth`` is how deep objects and lists may stand in one another in a definition. The limits of a single
    expression are constants of :mod:`plaita.flow.expressions`, because compiled expressions are shared.
    """

    flow_text: int = 4 * MIB
    nodes: int = 10_000
    depth: int = 64
    node_output: int = 8 * MIB
    context: int = 64 * MIB


DEFAULT_LIMITS = Limits()
