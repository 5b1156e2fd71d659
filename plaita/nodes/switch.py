"""``switch``: the first of several conditions that holds. The result is the id of the node that follows.

No match and no default is not judged here but by the engine (ledger F4).
"""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import PrivateAttr

from plaita.flow.conditions import CompiledCondition
from plaita.flow.model import Part, Preparation, Property
from plaita.nodes.base import Node
from plaita.nodes.execution import Execution


class SwitchBranch(Part):
    """One way: taken when ``condition`` holds, or as the default. It leads to ``next``, else to the node ``name``."""

    name: str | None = None
    condition: Any = None
    priority: float = 0
    label: str | None = None
    desc: str | None = None
    next: str | None = None
    is_default: bool = False

    @property
    def target(self) -> str | None:
        """The id this branch leads to."""
        return self.next or self.name


class SwitchNode(Node):
    """Branches are tried by ``priority``, the highest first, ties in the order written; then the first default."""

    node_type: ClassVar[str] = "switch"
    node_name: ClassVar[str] = "Switch"
    branching: ClassVar[bool] = True

    branches: list[SwitchBranch]
    output_type: Property | None = None

    _ways: list[tuple[CompiledCondition, str | None]] = PrivateAttr(default_factory=list)
    _default: str | None = PrivateAttr(default=None)

    def prepare(self, preparation: Preparation) -> None:
        """Compile the conditions and put the branches in the order they are tried."""
        compiled: list[tuple[float, CompiledCondition, str | None]] = []
        for index, branch in enumerate(self.branches):
            place = f"branches[{index}]"
            if not branch.target:
                preparation.problem(place, "needs a next (or a name that is the id of a node)")
            if branch.condition is not None:
                condition = preparation.condition(branch.condition, f"{place}.condition")
                compiled.append((branch.priority, condition, branch.target))
            elif not branch.is_default:
                preparation.problem(f"{place}.condition", "required, because the branch is not the default")
        compiled.sort(key=lambda entry: -entry[0])
        self._ways = [(condition, target) for _, condition, target in compiled]
        defaults = [branch.target for branch in self.branches if branch.is_default]
        self._default = defaults[0] if defaults else None
        if not self.branches:
            preparation.warn("branches", "empty: no branch can match")

    def execute(self, execution: Execution) -> str | None:
        """The id of the branch taken, or None."""
        for condition, target in self._ways:
            if condition.evaluate(execution.scope):
                return target
        return self._default
