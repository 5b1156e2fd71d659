"""``if``: one condition, two ways. The result is the id of the node that follows.

A way that leads nowhere is not judged here but by the engine (ledger F4).
"""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import PrivateAttr

from plaita.flow.conditions import CompiledCondition
from plaita.flow.model import Preparation
from plaita.nodes.base import Node
from plaita.nodes.execution import Execution


class IfNode(Node):
    """``next`` when ``condition`` holds, else ``else_next``; without a condition always ``else_next``. A way that is
    not given is called ``true`` or ``false``, as in the public engine, and names no node."""

    node_type: ClassVar[str] = "if"
    node_name: ClassVar[str] = "If"
    branching: ClassVar[bool] = True

    condition: Any = None
    else_next: str | None = None

    _condition: CompiledCondition | None = PrivateAttr(default=None)

    def prepare(self, preparation: Preparation) -> None:
        """Compile the condition."""
        if self.condition is not None:
            self._condition = preparation.condition(self.condition, "condition")
        else:
            preparation.warn("condition", "not given: this node always goes to else_next")
        for field, target in (("next", self.next), ("else_next", self.else_next)):
            if target is None and self.error_handler.strategy != "continue":
                preparation.warn(field, "not given: an execution that takes this way ends in error")

    def execute(self, execution: Execution) -> str:
        """The id of the way taken."""
        if self._condition is not None and self._condition.evaluate(execution.scope):
            return "true" if self.next is None else self.next
        return "false" if self.else_next is None else self.else_next
