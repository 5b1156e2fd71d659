"""What every node has (FLOW-FORMAT 1.4, 1.5), and how a node prepares its expressions when it is parsed.

Owns :class:`BaseNode`, its handlers, and :class:`Preparation`. Runs nothing: ``plaita.nodes`` adds ``execute``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Literal, Protocol

from pydantic import ConfigDict, Field, PrivateAttr, field_validator

from plaita.errors import FlowDefinitionError, Problem
from plaita.flow.conditions import CompiledCondition, compile_condition
from plaita.flow.durations import parse_timeout
from plaita.flow.expressions import CompiledValue, compile_value
from plaita.flow.fields import Part, legal_id
from plaita.flow.nearest import Nearest, shown

STRATEGIES = ("abort", "continue", "continue-with")
Strategy = Literal["abort", "continue", "continue-with"]


_FIELD = re.compile(r"\w+")
_NOTHING = compile_value(None, "")
ALWAYS = compile_condition({"relation": "and", "conditions": []}, "")
"""The condition that always holds."""


class ErrorHandler(Part):
    """What to do when a node runs out of time.

    ``strategy``: ``abort`` (the execution ends in error), ``continue`` (the result is null), ``continue-with`` (the
    result is ``default_value``, taken as it stands: no expressions). ``code`` and ``message`` are None unless the
    author set them.
    """

    special_names: ClassVar[Mapping[str, str]] = {
        "error_code": "code",
        "errorCode": "code",
        "error_message": "message",
        "errorMessage": "message",
    }

    strategy: Strategy = "abort"
    default_value: Any = None
    code: int | str | None = None
    message: str | None = None

    @field_validator("strategy", mode="before")
    @classmethod
    def _known_strategy(cls, value: Any) -> Any:
        if value == "continue_with":
            return "continue-with"
        if value not in STRATEGIES:
            hint = Nearest(STRATEGIES).hint(value) if isinstance(value, str) else ""
            if value == "retry":
                hint = "; for retries set retryTimes"
            raise ValueError(f"unknown strategy {shown(value)}{hint}")
        return value


class RecoverableErrorHandler(ErrorHandler):
    """What to do when a node fails. ``retry_times`` more attempts come first, at once, within one time budget."""

    retry_times: int = 0


class Preparation:
    """Given to :meth:`BaseNode.prepare`: compiles what the author wrote and collects what is wrong with it.

    Every method takes ``field``, the place within the node (``branches[0].condition``). After a problem a method
    returns a value that must not be used; the flow is refused then anyway. ``spelled``: how the author spelt fields
    that he did not call by their Python name.
    """

    def __init__(
        self, place: str, problems: list[Problem], warnings: list[Problem], spelled: Mapping[str, str] | None = None
    ) -> None:
        self._place = place
        self._problems = problems
        self._warnings = warnings
        self._spelled = spelled or {}
        self.node_references: list[tuple[str, str]] = []
        """(place, node id) of every ``$NODE.<id>`` that was compiled."""
        self.callback_references: list[tuple[str, str | None]] = []
        """(place, node id) of every ``$F.callback_url('<id>')`` that was compiled; None for a literal
        that is no text."""

    def value(self, raw: Any, field: str) -> CompiledValue:
        """Compile a value that may hold expressions."""
        place = self._at(field)
        try:
            compiled = compile_value(raw, place, warnings=self._warnings)
        except FlowDefinitionError as error:
            self._problems.extend(error.problems)
            return _NOTHING
        self._note(place, compiled.references)
        return compiled

    def condition(self, raw: Any, field: str) -> CompiledCondition:
        """Compile a condition or a group of conditions."""
        place = self._at(field)
        try:
            compiled = compile_condition(raw, place, warnings=self._warnings)
        except FlowDefinitionError as error:
            self._problems.extend(error.problems)
            return ALWAYS
        self._note(place, compiled.references)
        return compiled

    def _note(self, place: str, references: frozenset[tuple[str, str | None]]) -> None:
        for root, key in references:
            if root == "NODE" and key is not None:
                self.node_references.append((place, key))
            elif root == "F.callback_url":
                self.callback_references.append((place, key))

    def silent(self) -> Preparation:
        """Another preparation of the same place whose findings are dropped: for compiling what was checked before."""
        return Preparation(self._place, [], [], self._spelled)

    def problem(self, field: str, reason: str) -> None:
        """Refuse the flow: ``field`` is wrong for ``reason``."""
        self._problems.append(Problem(self._at(field), reason))

    def warn(self, field: str, reason: str) -> None:
        """Tell the author something that is no fault."""
        self._warnings.append(Problem(self._at(field), reason))

    def _at(self, field: str) -> str:
        if not field:
            return self._place
        name = _FIELD.match(field)
        spelt = self._spelled.get(name[0]) if name is not None else None
        return f"{self._place}.{field if name is None or spelt is None else spelt + field[name.end() :]}"


class BaseNode(Part):
    """The fields that all node types share.

    Authors of node types name their fields as they like, so this class has few public names besides fields.

    Class attributes: ``node_type`` (the ``type`` in JSON), ``node_name`` (for people), ``branching`` (``execute``
    returns the id of the successor), ``ends_flow`` (the result is the flow's output), ``is_suspending`` (``execute``
    begins a wait: subclasses of ``EventNode``), ``expression_fields`` (fields checked and compiled when the flow is
    parsed).
    """

    node_type: ClassVar[str] = ""
    node_name: ClassVar[str] = ""
    branching: ClassVar[bool] = False
    ends_flow: ClassVar[bool] = False
    is_suspending: ClassVar[bool] = False
    async_node: ClassVar[bool] = False
    expression_fields: ClassVar[tuple[str, ...]] = ("output",)
    tolerated_names: ClassVar[frozenset[str]] = frozenset({"type"})

    id: str
    name: str | None = None
    desc: str | None = None
    output: Any = None
    next: str | None = None
    timeout: Any = None
    timeout_handler: ErrorHandler = Field(default_factory=ErrorHandler)
    error_handler: RecoverableErrorHandler = Field(default_factory=RecoverableErrorHandler)

    source_line: int | None = None

    _compiled: dict[int, tuple[Any, CompiledValue]] = PrivateAttr(default_factory=dict)

    @field_validator("id")
    @classmethod
    def _legal_id(cls, value: str) -> str:
        return legal_id(value)

    @field_validator("timeout")
    @classmethod
    def _legal_timeout(cls, value: Any) -> Any:
        parse_timeout(value)
        return value

    def prepare(self, preparation: Preparation) -> None:
        """Called once, when the flow is parsed: compile expressions, report what is wrong. Overriders call super."""
        self._compile(preparation, self.expression_fields)

    def _compile(self, preparation: Preparation, names: Iterable[str]) -> None:
        """For :meth:`prepare`: these fields may hold expressions too."""
        for name in names:
            raw = getattr(self, name, None)
            self._compiled[id(raw)] = (raw, preparation.value(raw, name))

    def _compiled_of(self, raw: Any) -> CompiledValue | None:
        """What :meth:`prepare` made of this very object, or None if it was not one of the expression fields."""
        entry = self._compiled.get(id(raw))
        return entry[1] if entry is not None and entry[0] is raw else None


class OpaqueNode(BaseNode):
    """A node whose type is known elsewhere only: its common fields are checked, its own are left alone."""

    model_config = ConfigDict(extra="allow")


class NodeTypes(Protocol):
    """Where node classes come from. ``plaita.nodes.registry.NodeRegistry`` is one."""

    def get(self, node_type: str) -> type[BaseNode] | None:
        """The class of a type, or None."""
        ...

    def names(self) -> list[str]:
        """All types it has."""
        ...
