"""User callbacks (ledger F7, DECISIONS 25): who is told of flows and nodes, and how what they raise is kept away.

Owns the public :class:`FlowCallback` and :func:`register_callback`. When which one is told is ``announcing``'s.
Callbacks run where node code runs, in the step's own time; what they raise changes nothing.
"""

from __future__ import annotations

import asyncio
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from plaita.errors import InputError
from plaita.flow.outcome import ErrorInfo, asks_to_stop
from plaita.nodes.base import run_to_end

Kind = Literal[
    "flow_start",
    "flow_end",
    "flow_suspend",
    "flow_resume",
    "node_start",
    "node_end",
    "node_suspend",
    "node_resume",
]
KINDS: tuple[Kind, ...] = (
    "flow_start",
    "flow_end",
    "flow_suspend",
    "flow_resume",
    "node_start",
    "node_end",
    "node_suspend",
    "node_resume",
)
_WITHOUT_EVENT = ("flush", "finalize")

Handler = TypeVar("Handler")
Report = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class CallbackEvent:
    """What a callback is told.

    Always: ``kind`` (``node_start``, …), ``execution_id``, ``flow_id``, ``version``, ``tenant_id``, the node at which
    it happens (``node_id``, ``node_type``, ``node_name``), ``visit``, ``attempt`` (1 for the first, over all retries by
    the queue), ``action`` (``execute``; ``event``, ``timeout`` or ``cancelled`` after a wait; ``timed_out`` when the
    node's process was killed at its limit) and ``at_ms``, epoch milliseconds.

    Where it is known, else None: ``input`` (flow_start), ``event_data`` (the resumes), ``result`` and ``next_node``
    (node_end), ``result`` and ``subscription`` (the suspends), ``output`` (flow_end), ``error`` (the ends). Values are
    copies; all callbacks of one event share them.
    """

    kind: Kind
    execution_id: str
    flow_id: str | None
    version: int | str | None
    tenant_id: str
    node_id: str
    node_type: str
    node_name: str | None
    visit: int
    attempt: int
    action: str
    at_ms: int
    input: Any = None
    event_data: Any = None
    result: Any = None
    output: Any = None
    next_node: str | None = None
    subscription: dict[str, Any] | None = None
    error: ErrorInfo | None = None


class FlowCallback:
    """Base of user callbacks: override what you want to be told.

    Each is called in the process that runs the node, within the step's time limit, at least once: a step that is run
    again is told of again. What is raised is logged with its traceback and changes nothing. Methods may be coroutines.
    """

    def on_flow_start(self, event: CallbackEvent) -> Any:
        """The first node of an execution is about to run; ``event.input`` is the flow's."""

    def on_flow_end(self, event: CallbackEvent) -> Any:
        """The execution has ended with ``event.output``, or with ``event.error`` that no retry will cure. Not called
        where no node runs at the end: a cancelled step, a dead executor, a retry budget that is spent."""

    def on_flow_suspend(self, event: CallbackEvent) -> Any:
        """The execution waits for ``event.subscription``."""

    def on_flow_resume(self, event: CallbackEvent) -> Any:
        """The wait is over: ``event.action`` says how, ``event.event_data`` what came."""

    def on_node_start(self, event: CallbackEvent) -> Any:
        """A node is about to run."""

    def on_node_end(self, event: CallbackEvent) -> Any:
        """A node is done, with ``event.result`` or, also when it will be retried, with ``event.error``."""

    def on_node_suspend(self, event: CallbackEvent) -> Any:
        """A node waits; ``event.result`` is what it has so far."""

    def on_node_resume(self, event: CallbackEvent) -> Any:
        """A node is about to go on after its wait."""

    def flush(self) -> Any:
        """Called after each step: write out what is buffered, for the process may be gone before the next one."""

    def finalize(self) -> Any:
        """Called after ``on_flow_end``, before the last ``flush``."""


class Callbacks:
    """The callbacks of one place. False when there are none. Safe to change while others are told: each step uses the
    methods that there were when it began to tell."""

    def __init__(self, handlers: tuple[object, ...] | list[object] = ()) -> None:
        self._handlers: list[tuple[object, object]] = []
        self._methods: dict[str, tuple[tuple[str, Callable[..., Any]], ...]] = {}
        for handler in handlers:
            self.add(handler)

    def __bool__(self) -> bool:
        return bool(self._methods)

    @property
    def handlers(self) -> tuple[object, ...]:
        """Those that are told, in their order."""
        return tuple(instance for _, instance in self._handlers)

    def add(self, handler: object) -> None:
        """Tell ``handler``, an object with any of the methods of :class:`FlowCallback`, or a class that gives one when
        called without arguments; once, however often it is added. Raises InputError for anything else."""
        if any(given is handler for given, _ in self._handlers):
            return
        instance = handler() if isinstance(handler, type) else handler
        if not _methods(instance):
            wanted = ", ".join(f"on_{kind}" for kind in KINDS)
            raise InputError(f"{_name(instance)} is no callback: it defines none of {wanted}")
        self._handlers.append((handler, instance))
        self._collect()

    def remove(self, handler: object) -> bool:
        """Tell it no more. False if it was not told."""
        kept = [pair for pair in self._handlers if pair[0] is not handler]
        removed = len(kept) < len(self._handlers)
        self._handlers = kept
        self._collect()
        return removed

    def _collect(self) -> None:
        methods: dict[str, list[tuple[str, Callable[..., Any]]]] = {}
        for _, instance in self._handlers:
            for name, method in _methods(instance).items():
                methods.setdefault(name, []).append((f"{_name(instance)}.{name}", method))
        self._methods = {name: tuple(listed) for name, listed in methods.items()}

    def listens(self, kind: Kind) -> bool:
        """Whether anybody is told of this kind."""
        return f"on_{kind}" in self._methods

    def tell(self, event: CallbackEvent, report: Report, passing: tuple[type[BaseException], ...] = ()) -> None:
        """Call everybody. What they raise goes to ``report`` as text, but for a request to stop the step (StepStopped)
        and ``passing``, which are raised at once."""
        where = f"execution {event.execution_id}, node {event.node_id}"
        for name, method in self._methods.get(f"on_{event.kind}", ()):
            _call(name, method, (event,), where, report, passing)

    def end_step(
        self, report: Report, passing: tuple[type[BaseException], ...] = (), *, flow_ended: bool = False
    ) -> None:
        """Call ``finalize`` if the flow ended, then ``flush``."""
        for method_name in ("finalize", "flush") if flow_ended else ("flush",):
            for name, method in self._methods.get(method_name, ()):
                _call(name, method, (), "at the end of a step", report, passing)


def _methods(instance: object) -> dict[str, Callable[..., Any]]:
    """What ``instance`` does itself: methods that are only inherited from FlowCallback do nothing, and cost nothing."""
    found: dict[str, Callable[..., Any]] = {}
    for name in (*(f"on_{kind}" for kind in KINDS), *_WITHOUT_EVENT):
        method = getattr(instance, name, None)
        inherited = getattr(FlowCallback, name)
        if callable(method) and getattr(method, "__func__", None) is not inherited:
            found[name] = method
    return found if any(name.startswith("on_") for name in found) else {}


def _name(instance: object) -> str:
    cls = type(instance)
    return f"{cls.__module__}.{cls.__qualname__}"


def _call(
    name: str,
    method: Callable[..., Any],
    arguments: tuple[Any, ...],
    where: str,
    report: Report,
    passing: tuple[type[BaseException], ...],
) -> None:
    try:
        result = method(*arguments)
        if asyncio.iscoroutine(result):
            run_to_end(result)
    except passing:
        raise
    except BaseException as error:  # ledger F7: sys.exit too is no failure of the step
        if asks_to_stop(error):
            raise
        report(f"callback {name} failed ({where}):\n{''.join(traceback.format_exception(error)).rstrip()}")


def report_to_stderr(text: str) -> None:
    """Write ``text`` to stderr, if there is one: node code may have closed it."""
    try:
        print(text, file=sys.stderr, flush=True)
    except (OSError, ValueError, AttributeError):
        return


_registered = Callbacks()


def registered_callbacks() -> Callbacks:
    """Those of this process: what :func:`register_callback` has added."""
    return _registered


def register_callback(handler: Handler) -> Handler:
    """Have ``handler`` told of every step that runs in this process; usable as a class decorator.

    ``handler`` is a :class:`FlowCallback`, any object with some of its methods, or a class of such objects that needs
    no arguments. Call it while a preloaded module (``--preload``, entry points) is imported, or in its
    ``register_all()``: every executor has it then. Raises InputError for what has none of the methods.
    """
    _registered.add(handler)
    return handler


def unregister_callback(handler: object) -> bool:
    """Undo :func:`register_callback`. False if ``handler`` was not registered."""
    return _registered.remove(handler)
