"""``mock``: gives a fixed value, for flows under construction."""

from __future__ import annotations

from typing import Any, ClassVar

from plaita.nodes.base import Node
from plaita.nodes.execution import Execution


class MockNode(Node):
    """The result is ``value`` exactly as written: no expressions."""

    node_type: ClassVar[str] = "mock"
    node_name: ClassVar[str] = "Mock"

    expression_fields: ClassVar[tuple[str, ...]] = ()

    value: Any = None

    def execute(self, execution: Execution) -> Any:
        """The value."""
        return self.value
