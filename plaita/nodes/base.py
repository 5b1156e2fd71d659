"""What authors of node types subclass: :class:`Node` and :class:`EventNode`.

Owns how a node's code is entered: ``execute`` if the class has one, else ``arun`` on a private event loop; and
:func:`enter`, which picks the method that a step asks for.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, ClassVar

from pydantic import Field, StrictInt, field_validator

from plaita.errors import NodeOutputError, ResumeError
from plaita.flow import expressions
from plaita.flow.durations import parse_seconds, parse_timeout
from plaita.flow.expressions import Scope, is_expression
from plaita.flow.model import BaseNode, Preparation
from plaita.flow.nearest import shown
from plaita.flow.waiting import (
    Subscription,
    Woken,
    correlation_of,
    earlier,
    event_type_of,
    filter_key_fault,
    filter_of,
)
from plaita.nodes.execution import Execution, copied


class Node(BaseNode):
    """Base of all node types.

    Subclass it, set ``node_type`` (the ``type`` in flows) and ``node_name``, declare pydantic fields (each is accepted
    in snake_case and camelCase), and define ``execute(self, execution)`` or ``async def arun(self, execution)``. What
    it returns must be a JSON value of at most 8 MiB of text; what it raises goes through the node's handlers. A node
    with ``branching = True`` returns the id of its successor: the ``next`` of one of its ``branches``, or its own
    ``next``.
    """

    def execute(self, execution: Execution) -> Any:
        """Run the node and return its result. This default runs ``arun`` to its end."""
        return run_to_end(self.arun(execution))

    async def arun(self, execution: Execution) -> Any:
        """The node as a coroutine, for node types that are asynchronous."""
        raise NotImplementedError(f"node type {self.node_type!r} defines neither execute nor arun")


class EventNode(Node):
    """Base of node types that wait for an event.

    A wait has two halves, in two steps that may run on two hosts with days between them:

    * ``execute`` runs when the wait begins. What it returns, a JSON value, is the *pending* result: it stands at
      ``$NODE.<id>`` meanwhile.
    * When the wait ends, one of ``on_event``, ``on_timeout`` and ``on_cancel`` runs. ``execution.pending`` gives it
      what ``execute`` returned; attributes set on the node are gone by then. What it returns replaces the pending
      result, and the flow goes on. Retries, ``errorHandler`` and ``timeoutHandler`` apply to both halves alike.

    What is waited for stands in the fields; a pending object with ``event_type`` (and ``event_filter``) of its own
    overrules them. ``event_type``: the name of the event; an expression that gives no text counts as written.
    ``event_filter``: dotted paths into the event's data, and the values (expressions are evaluated when the wait
    begins) that must stand there. ``correlation_id``: which events of that type, by their correlation; without it
    those for this execution's id. ``subscription_timeout``: how long at most, in seconds or ISO 8601; the node's
    ``timeout`` bounds the wait too, and the earlier of both ends it (DECISIONS 19, 27).

    Subclasses set ``node_type`` and override what differs. Each method may be a coroutine function.
    """

    is_suspending: ClassVar[bool] = True
    _awaited: ClassVar[str] = ""  # what comes, where it is no event, in the words of a user

    event_type: str | None = None
    event_filter: dict[str, Any] = Field(default_factory=dict)
    correlation_id: StrictInt | str | None = None
    subscription_timeout: Any = None

    @field_validator("event_type", "correlation_id")
    @classmethod
    def _not_empty(cls, value: Any) -> Any:
        if value == "":
            raise ValueError("the text is empty; leave the field out, or write a name or an expression")
        return value

    @field_validator("event_filter")
    @classmethod
    def _legal_paths(cls, value: dict[str, Any]) -> dict[str, Any]:
        for key in value or ():
            fault = filter_key_fault(key)
            if fault is not None:
                raise ValueError(fault)
        return value

    @field_validator("subscription_timeout")
    @classmethod
    def _legal_duration(cls, value: Any) -> Any:
        parse_seconds(value)
        return value

    def prepare(self, preparation: Preparation) -> None:
        """Compile the expressions of the wait, besides those of every node."""
        super().prepare(preparation)
        self._compile(preparation, ("event_type", "event_filter", "correlation_id"))
        checks: dict[str, Callable[[Any], object]] = {
            "event_type": lambda raw: raw is None or event_type_of(raw),
            "event_filter": filter_of,
            "correlation_id": lambda raw: raw is None or correlation_of(raw, field="correlation_id"),
        }
        self._judge_written(preparation, checks)

    def _judge_written(self, preparation: Preparation, checks: Mapping[str, Callable[[Any], object]]) -> None:
        """Refuse now what a check raises NodeOutputError for, of those fields that hold no expression: what depends on
        the input is judged by the same check when the node runs."""
        for name, check in checks.items():
            raw = getattr(self, name)
            if _has_expression(raw):
                continue
            try:
                check(raw)
            except NodeOutputError as error:
                preparation.problem(name, str(error))

    def execute(self, execution: Execution) -> Any:
        """Begin the wait; the pending result.

        By default an object: ``event_type`` and ``event_filter`` as evaluated, ``status: "pending"``, ``event_id``
        (``event_<node>_<epoch ms>``), ``is_async: true``, ``subscription_id`` (the same over all attempts).
        """
        if type(self).arun is not Node.arun:
            return run_to_end(self.arun(execution))
        return {
            "event_type": self._event_type(execution.scope),
            "event_filter": execution.evaluate(self.event_filter),
            "is_async": True,
            "event_id": f"event_{self.id}_{execution.scope.now_ms}",
            "status": "pending",
            "subscription_id": f"sub_{execution.idempotency_key[:32]}",
        }

    def on_event(self, execution: Execution, event_data: Any) -> Any:
        """The node's result once the event came; ``event_data`` is a JSON value of the node's own, null if the event
        had none. Raise ResumeError (or anything) for data that does not fit: the node has failed then (ledger S7).

        By default the pending object with ``status: "completed"`` and ``event_data``; data in the form ``{event_id,
        event_type, event_data, subscription_id}`` is unwrapped, so that the publisher's fields always stand one level
        down (rule 11).
        """
        return completed(execution.pending, event_data)

    def on_timeout(self, execution: Execution) -> Any:
        """The node's result when no event came in time; by default a timeout error, for the ``timeoutHandler``."""
        pending = execution.pending
        waited_for = pending.get("event_type") if isinstance(pending, dict) else None
        raise TimeoutError(f"no {self._awaited or f'event of type {waited_for or self.event_type!r}'} came in time")

    def on_cancel(self, execution: Execution) -> None:
        """Undo what ``execute`` began: the execution was cancelled while it waited, or before what ended its wait was
        handed on. Called at least once if an executor can be had; what it raises is logged, what it returns and stores
        is dropped (ledger S8)."""

    def _subscription(self, pending: Any, scope: Scope) -> Subscription:
        """What is waited for, ``pending`` being what ``execute`` returned, as it is stored. The engine calls it right
        after ``execute``, as a part of it. Raises NodeOutputError, ExpressionError."""
        given = pending if isinstance(pending, dict) else {}
        event_type = given.get("event_type")
        if not isinstance(event_type, str) or not event_type:
            event_type = self._event_type(scope)
        event_filter = given.get("event_filter")
        if not isinstance(event_filter, dict):
            event_filter = self._evaluated(self.event_filter, scope)
        correlation = self.correlation_id
        if correlation is not None:
            correlation = correlation_of(self._evaluated(correlation, scope))
        warnings = self._empty_values(event_filter)
        if event_type == self.event_type and is_expression(event_type):
            warnings += (f"event_type {event_type!r} gives no text: the wait is for an event of just that name",)
        return Subscription(
            event_type_of(event_type),
            filter_of(event_filter),
            correlation,
            earlier(parse_seconds(self.subscription_timeout), parse_timeout(self.timeout)),
            warnings,
        )

    def _empty_values(self, evaluated: dict[str, Any] | None) -> tuple[str, ...]:
        """A slip in a path gives null, and a wait for null may last for ever."""
        return tuple(
            f"event_filter: {shown(raw)} at {shown(path)} gives nothing: only an event with null there ends the wait"
            for path, raw in (self.event_filter or {}).items()
            if is_expression(raw) and (evaluated or {}).get(path, raw) is None
        )

    def _event_type(self, scope: Scope) -> Any:
        value = self._evaluated(self.event_type, scope)
        return value if isinstance(value, str) and value else self.event_type

    def _evaluated(self, raw: Any, scope: Scope) -> Any:
        compiled = self._compiled_of(raw)
        return expressions.evaluate(raw, scope) if compiled is None else compiled.evaluate(scope)


def _has_expression(raw: Any) -> bool:
    if isinstance(raw, dict):
        return any(_has_expression(item) for item in raw.values())
    if isinstance(raw, list):
        return any(_has_expression(item) for item in raw)
    return is_expression(raw)


_EVENT_FORM = frozenset(("event_id", "event_type", "event_data"))
_EVENT_FORMS = (_EVENT_FORM, _EVENT_FORM | {"subscription_id"})


def completed(pending: Any, data: Any) -> dict[str, Any]:
    """The result of a wait that an event ended (FLOW-FORMAT 2.2, rule 11): the pending object, ``status``,
    ``event_data``, and the event's own ``event_id`` where it is told."""
    result = dict(pending) if isinstance(pending, dict) else {}
    if isinstance(data, dict) and data.keys() in _EVENT_FORMS:
        if isinstance(data["event_id"], str) and data["event_id"]:
            result["event_id"] = data["event_id"]
        data = data["event_data"]
    return {**result, "status": "completed", "event_data": data}


def with_service(node: Node, pending: dict[str, Any], execution: Execution, **config: Any) -> dict[str, Any]:
    """``pending`` of a node that a service works on, with the ``service_config`` that it shows (FLOW-FORMAT 2.3):
    whose it is, what it waits for, and ``config``."""
    pending["node_subtype"] = node.node_type
    pending["service_config"] = {
        "type": node.node_type,
        "node_id": execution.node_id,
        "execution_id": execution.execution_id,
        "flow_id": execution.flow_id,
        "event_type": pending["event_type"],
        "event_filter": pending["event_filter"],
        **config,
    }
    return pending


def enter(node: Node, execution: Execution) -> Any:
    """Run the code that the step under way asks for, ``execute`` or the end of a wait. Raises what it raises."""
    woken = execution.woken
    return node.execute(execution) if woken is None else _resume(node, execution, woken)


def _resume(node: Node, execution: Execution, woken: Woken) -> Any:
    if not isinstance(node, EventNode):
        raise ResumeError(f"node type {node.node_type!r} is no EventNode: it cannot go on from an event", node=node.id)
    result: Any
    if woken.kind == "event":
        result = node.on_event(execution, copied(woken.data))
    elif woken.kind == "timeout":
        result = node.on_timeout(execution)
    else:
        result = node.on_cancel(execution)  # type: ignore[func-returns-value]  # a coroutine, if it is that kind
    return run_to_end(result) if asyncio.iscoroutine(result) else result


def is_async(cls: type[Node]) -> bool:
    """Whether the code of a node type is its ``arun``."""
    return cls.execute is Node.execute and cls.arun is not Node.arun


def run_to_end(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine on an event loop of its own and return its result; whatever it raises is raised.

    Where a loop already runs in this thread (a flow run inside an async program), the private loop gets a thread of its
    own, and this one waits for it.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(coroutine)
    outcome: list[Any] = []
    failure: list[BaseException] = []

    def run() -> None:
        try:
            outcome.append(asyncio.run(coroutine))
        except BaseException as error:  # noqa: BLE001 - handed to the thread that waits, which raises it
            failure.append(error)

    thread = threading.Thread(target=run, name="plaita-arun", daemon=True)
    thread.start()
    thread.join()
    if failure:
        raise failure[0]
    return outcome[0]
