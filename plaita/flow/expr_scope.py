"""What an expression can see: the roots, the step's time, and the parent of a child flow.

Owns the names of the roots and their look-up. It evaluates nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

PREFIX = "$"
ROOTS = (
    "INPUT",
    "NODE",
    "GLOBAL",
    "PARENT",
    "ENV",
    "FLOW_ID",
    "FLOW",
    "LAST_NODE",
    "BRANCH",
    "EXECUTION_ID",
    "EXPRESS_PREFIX",
)
LOOP_ROOTS = ("LOOP-ITEM", "LOOP-INDEX", "LOOP-RESULT")
PREFIXED_SEGMENTS = frozenset({"INPUT", "NODE", "PARENT", "GLOBAL", "ENV"})
"""Inside a path these names mean the key with the prefix: ``$PARENT.INPUT`` is the parent's ``$INPUT``."""


@dataclass(slots=True)
class Scope:
    """The values that one evaluation sees.

    ``roots`` maps root names without prefix (``INPUT``, ``NODE``, ``LOOP-ITEM`` …) to JSON values. ``now_ms`` is the
    start of the step in epoch milliseconds: what ``$F.now()`` tells (FLOW-FORMAT rule 17). ``parent`` is the scope of
    the flow that runs this one as a child; ``parent_fallback`` says that an expression which gives null here is asked
    there again, which is for the node type ``child`` only (rule 6). ``callback_url`` gives the URL of a callback
    node by its id, or raises ValueError; None outside of steps.
    """

    roots: Mapping[str, Any]
    now_ms: int
    parent: Scope | None = None
    parent_fallback: bool = False
    callback_url: Callable[[str], str] | None = None

    def snapshot(self) -> dict[str, Any]:
        """What a child sees as ``$PARENT``: the roots under their prefixed names; values are shared, not copied."""
        seen = {PREFIX + name: value for name, value in self.roots.items() if name != "EXPRESS_PREFIX"}
        seen["EXPRESS_PREFIX"] = PREFIX
        if "$PARENT" not in seen and self.parent is not None:
            seen["$PARENT"] = self.parent.snapshot()
        return seen

    def implied_root(self, name: str) -> tuple[bool, Any]:
        """``(True, value)`` of a root that exists without being in ``roots``, else ``(False, None)``."""
        if name == "PARENT":
            return True, self.parent.snapshot() if self.parent is not None else {}
        if name in ("ENV", "GLOBAL"):
            return True, {}
        if name == "EXPRESS_PREFIX":
            return True, PREFIX
        alias = {"FLOW": "FLOW_ID", "FLOW_ID": "FLOW"}.get(name)
        if alias is not None and alias in self.roots:
            return True, self.roots[alias]
        return False, None
