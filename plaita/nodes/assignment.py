"""``assignment``: gives a value made of expressions, checked against a declared type."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import Field, PrivateAttr, field_validator, model_validator

from plaita.errors import OutputValidationError
from plaita.flow.expressions import CompiledValue
from plaita.flow.model import Part, Preparation, Property
from plaita.nodes.base import Node
from plaita.nodes.execution import Execution


class UpstreamItem(Part):
    """The value to take when the node before was ``upstream``. Its value stands in ``output`` or in ``value``."""

    upstream: str | None = None
    output: Any = None
    value: Any = None

    @model_validator(mode="after")
    def _one_value(self) -> UpstreamItem:
        if "output" not in self.model_fields_set and "value" not in self.model_fields_set:
            raise ValueError("needs the field 'output' (or 'value')")
        return self

    @property
    def field(self) -> str:
        """The name of the field that holds the value."""
        return "output" if "output" in self.model_fields_set else "value"


class AssignmentNode(Node):
    """The result is ``output``, evaluated. With ``upstreamOutput``: its only item; of several the one whose
    ``upstream`` is the node before, or the empty list when none is. A result that is not of ``outputType`` is an
    OutputValidationError."""

    node_type: ClassVar[str] = "assignment"
    node_name: ClassVar[str] = "Assignment"

    output_type: Property | None = None
    upstream_output: list[UpstreamItem] = Field(default_factory=list)

    _output: CompiledValue = PrivateAttr()
    _upstream: list[tuple[str | None, CompiledValue]] = PrivateAttr(default_factory=list)

    @field_validator("output_type", mode="before")
    @classmethod
    def _declaration(cls, value: Any) -> Any:
        return Property.from_json(value) if isinstance(value, str) else value

    def prepare(self, preparation: Preparation) -> None:
        """Compile ``output`` and the upstream items."""
        super().prepare(preparation)
        compiled = self._compiled_of(self.output)
        assert compiled is not None  # output is one of the expression fields
        self._output = compiled
        for index, item in enumerate(self.upstream_output):
            raw = item.output if item.field == "output" else item.value
            compiled = preparation.value(raw, f"upstreamOutput[{index}].{item.field}")
            self._upstream.append((item.upstream, compiled))
        if self.output_type is not None:
            for place, reason in self.output_type.unknown_types("outputType"):
                preparation.warn(place, reason)

    def execute(self, execution: Execution) -> Any:
        """Evaluate, check, return."""
        result = self._value(execution)
        if self.output_type is not None:
            mismatch = self.output_type.mismatch(result, "$")
            if mismatch is not None:
                raise OutputValidationError(f"the result does not fit outputType: {mismatch}")
        return result

    def _value(self, execution: Execution) -> Any:
        if not self._upstream:
            return self._output.evaluate(execution.scope)
        if len(self._upstream) == 1:
            return self._upstream[0][1].evaluate(execution.scope)
        last_node = execution.scope.roots.get("LAST_NODE")
        for upstream, compiled in self._upstream:
            if upstream == last_node:
                return compiled.evaluate(execution.scope)
        return []
