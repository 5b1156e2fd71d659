"""``mock``: gives a fixed value, for flows under construction."""

from __future__ import annotations

from typing import Any, ClassVar

from plaita.flow.model import Preparation
from plaita.nodes.base import Node
from plaita.nodes.execution import Execution


class MockNode(Node):
    """The result is ``value`` exactly as written: no expressions."""

    node_type: ClassVar[str] = "mock"
    node_name: ClassVar[str] = "Mock"

    value: Any = None

    def prepare(self, preparation: Preparation) -> None:
        """Nothing to compile."""

    def execute(self, execution: Execution) -> Any:
        """The value."""
        return self.value
