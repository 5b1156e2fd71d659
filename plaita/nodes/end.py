"""``end``: where a flow ends, with a result, with none, or with the author's error."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import ConfigDict, PrivateAttr

from plaita.errors import CODE_GENERIC, FlowResultError
from plaita.flow.expressions import CompiledValue
from plaita.flow.model import Part, Preparation
from plaita.flow.nearest import shown
from plaita.nodes.base import Node
from plaita.nodes.execution import Execution

RESULT_TYPES = ("success", "nop", "error")


class EndError(Part):
    """What an end of result type ``error`` reports; both are taken as they stand."""

    special_names: ClassVar[Mapping[str, str]] = {"error_code": "code", "error_message": "message"}

    code: int | str = CODE_GENERIC
    message: str = "the flow ended with an error"


class EndNode(Node):
    """``success``: the flow's output is ``output``, evaluated. ``nop``: it is null. ``error``: the execution ends in
    error with ``error.code`` and ``error.message``."""

    model_config = ConfigDict(extra="allow")
    node_type: ClassVar[str] = "end"
    node_name: ClassVar[str] = "End"
    ends_flow: ClassVar[bool] = True

    result_type: str = "success"
    error: EndError | None = None

    _output: CompiledValue = PrivateAttr()

    def prepare(self, preparation: Preparation) -> None:
        """Compile ``output``; an unknown result type means ``success``."""
        super().prepare(preparation)
        compiled = self._compiled_of(self.output)
        assert compiled is not None  # output is one of the expression fields
        self._output = compiled
        if self.result_type not in RESULT_TYPES:
            reason = f"unknown result type {shown(self.result_type)}, taken as 'success'; there is "
            preparation.warn("resultType", reason + ", ".join(RESULT_TYPES))
        if self.result_type == "error" and self.error is None:
            preparation.warn("error", "not given: the error has no code and message of its own")

    def execute(self, execution: Execution) -> Any:
        """The flow's output, or FlowResultError."""
        if self.result_type == "error":
            error = self.error or EndError()
            raise FlowResultError(error.code, error.message)
        return None if self.result_type == "nop" else self._output.evaluate(execution.scope)
