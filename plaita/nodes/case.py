"""``case``: compares one value with several. The result is the id of the node that follows.

No match without a default is not judged here but by the engine (ledger F4).
"""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import PrivateAttr

from plaita.flow.conditions import CompiledCondition
from plaita.flow.model import Part, Preparation
from plaita.nodes.base import Node
from plaita.nodes.execution import Execution

NO_DEFAULT = "default"


class Case(Part):
    """Leads to the node ``id`` when ``target`` equals ``value``."""

    id: str
    value: Any
    name: str | None = None


class CaseNode(Node):
    """The first case whose ``value`` equals ``target`` (both evaluated, compared as ``eq`` does), else ``default``."""

    node_type: ClassVar[str] = "case"
    node_name: ClassVar[str] = "Case"
    branching: ClassVar[bool] = True

    target: Any
    cases: list[Case]
    default: str | None = None

    _ways: list[tuple[CompiledCondition, str]] = PrivateAttr(default_factory=list)

    def prepare(self, preparation: Preparation) -> None:
        """Compile ``target`` and the values."""
        preparation.value(self.target, "target")
        for index, case in enumerate(self.cases):
            preparation.value(case.value, f"cases[{index}].value")
        # both sides were checked at their own places; the comparisons below can add no new fault
        quiet = preparation.silent()
        for index, case in enumerate(self.cases):
            comparison = {"field": self.target, "operator": "eq", "value": case.value}
            self._ways.append((quiet.condition(comparison, f"cases[{index}]"), case.id))
        if self.default is None and self.error_handler.strategy != "continue":
            preparation.warn("default", "not given: an execution that matches no case ends in error")

    def execute(self, execution: Execution) -> str:
        """The id of the case that matched, or the default."""
        for condition, target in self._ways:
            if condition.evaluate(execution.scope):
                return target
        return NO_DEFAULT if self.default is None else self.default
