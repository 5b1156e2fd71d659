"""``start``: where a flow begins. Does nothing."""

from __future__ import annotations

from typing import ClassVar

from plaita.nodes.base import Node
from plaita.nodes.execution import Execution


class StartNode(Node):
    """The result is null."""

    node_type: ClassVar[str] = "start"
    node_name: ClassVar[str] = "Start"
    expression_fields: ClassVar[tuple[str, ...]] = ()

    def execute(self, execution: Execution) -> None:
        """Do nothing."""
        return None
