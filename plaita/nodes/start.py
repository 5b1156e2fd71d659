"""``start``: where a flow begins. Does nothing."""

from __future__ import annotations

from typing import ClassVar

from plaita.flow.model import Preparation
from plaita.nodes.base import Node
from plaita.nodes.execution import Execution


class StartNode(Node):
    """The result is null."""

    node_type: ClassVar[str] = "start"
    node_name: ClassVar[str] = "Start"

    def prepare(self, preparation: Preparation) -> None:
        """Nothing to compile: ``output`` has no meaning here."""

    def execute(self, execution: Execution) -> None:
        """Do nothing."""
        return None
