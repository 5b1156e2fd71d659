"""A flow in this process, without Redis: :class:`Flow`, for tests, scripts and notebooks.

The same parser and engine as the supervisor's executors use. What differs is time: nothing here can kill a node that
does not return, so one that runs over its limit is told by its ``cancel_event``, given up, and its thread left behind.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import os
import threading
import time
from collections.abc import Callable, Generator
from concurrent.futures import Future
from concurrent.futures import wait as wait_for
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plaita import clock, ids, jsontext
from plaita.errors import FlowExecutionException, FlowWaitsError, InputError, NodeTimeoutError
from plaita.flow.context import Context
from plaita.flow.engine import run_step, time_limit
from plaita.flow.model import DEFAULT_LIMITS, BaseNode, FlowDefinition, Limits, NodeTypes, parse_flow
from plaita.flow.outcome import Ended, ErrorInfo, Failed, Outcome, StepStopped, Suspended
from plaita.nodes.announcing import StepCallbacks
from plaita.nodes.base import Node, is_async
from plaita.nodes.callbacks import registered_callbacks
from plaita.nodes.execution import DEFAULT_TENANT, Execution
from plaita.nodes.registry import get_default_registry

_log = logging.getLogger("plaita.local")

# A Ctrl-C that comes just before this thread blocks does not wake it: it is seen when the wait is entered anew.
WAIT_SLICE_S = 0.5

CALLBACK_TIME_S = 1.0
"""How long callbacks may tell of the end of a step whose time is all but up."""


@dataclass(frozen=True, slots=True)
class StepRecord:
    """What one step did. ``status``: ``advanced``, ``completed`` (the flow ended, ``output`` is set), ``suspended``
    (the node waits for what ``subscription`` says, ``result`` is what it has so far) or ``error``."""

    node_id: str
    node_type: str
    status: str
    result: Any = None
    output: Any = None
    next_node: str | None = None
    attempts: int = 0
    warnings: tuple[str, ...] = ()
    error: ErrorInfo | None = None
    subscription: dict[str, Any] | None = None


class Flow:
    """A parsed flow that can be run here, any number of times, from any number of threads."""

    def __init__(self, definition: FlowDefinition) -> None:
        self.definition = definition
        for problem in definition.warnings:
            _log.warning("flow %s: %s", definition.flow_id or "(without id)", problem)

    # -- making one -------------------------------------------------------------------------------

    @classmethod
    def from_string(
        cls, text: str | bytes, *, registry: NodeTypes | None = None, limits: Limits = DEFAULT_LIMITS
    ) -> Flow:
        """A flow from JSON or YAML text. Raises FlowDefinitionError listing all problems."""
        return cls(parse_flow(text, registry if registry is not None else get_default_registry(), limits=limits))

    @classmethod
    def from_dict(
        cls, definition: dict[str, Any], *, registry: NodeTypes | None = None, limits: Limits = DEFAULT_LIMITS
    ) -> Flow:
        """A flow from a dict of JSON values, which is copied. Raises FlowDefinitionError."""
        return cls(parse_flow(definition, registry if registry is not None else get_default_registry(), limits=limits))

    @classmethod
    def from_file(
        cls, path: str | os.PathLike[str], *, registry: NodeTypes | None = None, limits: Limits = DEFAULT_LIMITS
    ) -> Flow:
        """A flow from a JSON or YAML file. Raises FlowDefinitionError, or OSError if it cannot be read."""
        with Path(path).open("rb") as file:
            text = file.read(limits.flow_text + 1)
        return cls.from_string(text, registry=registry, limits=limits)

    # -- running it ---------------------------------------------------------------------------------

    def run(self, /, *args: Any, **kwargs: Any) -> Any:
        """Run to the end and return the flow's output.

        The input is one dict, keyword arguments, or both merged; nothing means ``{}``; anything else is a TypeError.
        Raises the flow error that ended the run (NodeExecutionError, NodeTimeoutError, ErrorResultException … with the
        cause attached), FlowWaitsError at a node that waits for an event, or InputError for an input that is no JSON
        value.
        """
        run = _Run(self.definition, _input_of(args, kwargs))
        outcome = run.to_end()
        return outcome.output

    def debug(self, /, *args: Any, **kwargs: Any) -> Generator[StepRecord, None, Any]:
        """Run step by step: yields a StepRecord after each, then returns the output or raises as :meth:`run` does."""
        return self._debug(_Run(self.definition, _input_of(args, kwargs)))

    def _debug(self, run: _Run) -> Generator[StepRecord, None, Any]:
        while True:
            node_id = run.next_node
            outcome = run.step()
            yield _record(self.definition, node_id, outcome)
            if isinstance(outcome, Ended):
                return outcome.output
            if isinstance(outcome, Failed):
                raise outcome.raised
            if isinstance(outcome, Suspended):
                raise _waits(self.definition, outcome)

    async def arun(self, /, *args: Any, **kwargs: Any) -> Any:
        """Like :meth:`run`, from a running event loop: asynchronous nodes run on that loop, all others in a thread."""
        run = _Run(self.definition, _input_of(args, kwargs), loop=asyncio.get_running_loop())
        task = _InThread(run.to_end)
        task.start()
        try:
            outcome = await asyncio.wrap_future(task.future)
        except asyncio.CancelledError:
            run.stop()
            raise
        return outcome.output


def _input_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    if len(args) > 1 or (args and not isinstance(args[0], dict)):
        given = ", ".join(type(argument).__name__ for argument in args)
        raise TypeError(f"a flow is run with one dict and/or keyword arguments, not with ({given})")
    merged = {**(args[0] if args else {}), **kwargs}
    try:
        copy: dict[str, Any] = jsontext.loads(jsontext.dumps(merged, "input"))
    except jsontext.JSONValueError as error:
        raise InputError(f"the input is no JSON value: {error}") from error
    return copy


def _record(flow: FlowDefinition, node_id: str, outcome: Outcome) -> StepRecord:
    node_type = flow.plans[node_id].type
    if isinstance(outcome, Failed):
        return StepRecord(node_id, node_type, "error", attempts=outcome.attempts, error=outcome.error)
    if isinstance(outcome, Ended):
        return StepRecord(
            node_id,
            node_type,
            "completed",
            result=outcome.result,
            output=outcome.output,
            attempts=outcome.attempts,
            warnings=outcome.warnings,
        )
    if isinstance(outcome, Suspended):
        return StepRecord(
            node_id,
            node_type,
            "suspended",
            result=outcome.result,
            attempts=outcome.attempts,
            warnings=outcome.warnings,
            subscription=outcome.subscription,
        )
    return StepRecord(
        node_id,
        node_type,
        "advanced",
        result=outcome.result,
        next_node=outcome.next_node,
        attempts=outcome.attempts,
        warnings=outcome.warnings,
    )


def _waits(flow: FlowDefinition, outcome: Suspended) -> FlowWaitsError:
    wanted = outcome.subscription
    what = f"an event of type {wanted['event_type']!r}"
    if wanted["correlation_id"] is not None:
        what += f" for {wanted['correlation_id']!r}"
    if wanted["event_filter"] is not None:
        what += f" with {jsontext.dumps(wanted['event_filter']).decode()[:200]}"
    return FlowWaitsError(
        f"{flow.plans[outcome.node_id].label} waits for {what}: only a supervisor can wait (plaita run FILE, or plaita "
        "flow put and plaita start), Flow.run cannot",
        node=outcome.node_id,
        subscription=wanted,
    )


class _Run:
    """One run of a flow: its context, its clock, and the threads it starts."""

    def __init__(
        self, flow: FlowDefinition, flow_input: dict[str, Any], *, loop: asyncio.AbstractEventLoop | None = None
    ) -> None:
        self._flow = flow
        self._loop = loop
        self._context = Context(
            execution_id=ids.new_execution_id(),
            flow_id=flow.flow_id,
            input=flow_input,
            global_context=flow.global_context,
            env={name: os.environ[name] for name in flow.expose_env if name in os.environ},
        )
        self._visits: dict[str, int] = {}
        self._flow_deadline = None if flow.timeout_ms is None else time.monotonic() + flow.timeout_ms / 1000
        self._stopped = threading.Event()
        self._cancel_event = threading.Event()
        self._pending: Future[Any] | None = None
        self.next_node = flow.start

    def to_end(self) -> Ended:
        """All steps. Raises the flow error that ends the run."""
        while True:
            outcome = self.step()
            if isinstance(outcome, Ended):
                return outcome
            if isinstance(outcome, Failed):
                raise outcome.raised
            if isinstance(outcome, Suspended):
                raise _waits(self._flow, outcome)

    def stop(self) -> None:
        """Ask the run to end: from another thread, while a step runs."""
        self._stopped.set()
        self._cancel_event.set()
        pending = self._pending
        if pending is not None:
            pending.cancel()

    def step(self) -> Outcome:
        """The next step."""
        node_id = self.next_node
        visit = self._visits[node_id] = self._visits.get(node_id, 0) + 1
        time_left_ms = None
        if self._flow_deadline is not None:
            time_left_ms = max(0, int((self._flow_deadline - time.monotonic()) * 1000))
        limit_ms, _ = time_limit(self._flow.plans[node_id], time_left_ms)
        deadline = None if limit_ms is None else time.monotonic() + limit_ms / 1000
        call = self._caller(visit, deadline)
        told = self._callbacks(node_id, visit)
        try:
            if told is not None:
                self._tell(told.before, node_id, deadline)
            outcome = run_step(
                self._flow, self._context, node_id, call=call, now_ms=clock.wall_ms(), time_left_ms=time_left_ms
            )
            if told is not None:
                finished = outcome
                until = None if deadline is None else max(deadline, time.monotonic() + CALLBACK_TIME_S)
                self._tell(lambda: told.after(finished), node_id, until)
        except StepStopped as stopped:
            if isinstance(stopped.__cause__, KeyboardInterrupt):
                raise stopped.__cause__ from None
            raise FlowExecutionException("the run was stopped", node=node_id) from stopped
        if not isinstance(outcome, (Ended, Failed, Suspended)):
            self.next_node = outcome.next_node
        for warning in getattr(outcome, "warnings", ()):
            _log.warning("%s", warning)
        return outcome

    def _callbacks(self, node_id: str, visit: int) -> StepCallbacks | None:
        """Who tells users of this step (ledger F7); None when nobody wants to be told."""
        callbacks = registered_callbacks()
        if not callbacks:
            return None
        return StepCallbacks(
            callbacks,
            self._context,
            self._flow.plans[node_id],
            action="execute",
            tenant_id=DEFAULT_TENANT,
            version=self._flow.version,
            visit=visit,
            attempt=1,
            report=_log.error,
            passing=(KeyboardInterrupt,),
        )

    def _tell(self, tell: Callable[[], None], node_id: str, deadline: float | None) -> None:
        """Run callbacks; with a deadline on a thread, which is left behind when they do not return in time."""
        if deadline is None:
            tell()
            return
        task = _InThread(tell)
        task.start()
        wait_for([task.future], max(0.0, deadline - time.monotonic()))
        if task.future.done():
            task.future.result()
        else:
            _log.error("callbacks of node %r did not return within its time; they are left behind", node_id)

    def _caller(self, visit: int, deadline: float | None) -> Callable[[BaseNode], Any]:
        attempt = 0

        def call(node: BaseNode) -> Any:
            nonlocal attempt
            attempt += 1
            if self._stopped.is_set():
                raise StepStopped
            if deadline is not None and time.monotonic() >= deadline:
                raise NodeTimeoutError("no time left for another attempt", node=node.id)
            self._cancel_event = threading.Event()
            execution = Execution(
                node,
                self._context,
                attempt=attempt,
                visit=visit,
                cancel_event=self._cancel_event,
                on_progress=_progress,
            )
            return self._run_code(node, execution, deadline)

        return call

    def _run_code(self, node: BaseNode, execution: Execution, deadline: float | None) -> Any:
        assert isinstance(node, Node)
        on_callers_loop = self._loop is not None and is_async(type(node))
        try:
            if not on_callers_loop and deadline is None:
                return node.execute(execution)
            future = self._begin(node, execution, on_callers_loop)
            self._wait(future, node, execution, deadline)
        except KeyboardInterrupt as interrupt:
            # Ctrl-C of the person at the terminal, who means the program and not the node
            execution.cancel_event.set()
            raise StepStopped from interrupt
        return future.result()

    def _begin(self, node: Node, execution: Execution, on_callers_loop: bool) -> Future[Any]:
        if on_callers_loop:
            assert self._loop is not None
            return asyncio.run_coroutine_threadsafe(node.arun(execution), self._loop)
        task = _InThread(lambda: node.execute(execution))
        task.start()
        return task.future

    def _wait(self, future: Future[Any], node: Node, execution: Execution, deadline: float | None) -> None:
        """Until the code that runs elsewhere is done; on expiry it is told, and given up."""
        self._pending = future
        try:
            while not future.done():
                left = WAIT_SLICE_S if deadline is None else min(WAIT_SLICE_S, deadline - time.monotonic())
                if left <= 0:
                    break
                wait_for([future], left)
        finally:
            self._pending = None
        if self._stopped.is_set():
            raise StepStopped
        if not future.done():
            execution.cancel_event.set()
            future.cancel()
            raise NodeTimeoutError("the node did not return in time", node=node.id)


def _progress(note: str) -> None:
    _log.info("progress: %s", note)


class _InThread:
    """A function on a daemon thread of its own, in a copy of the caller's context variables."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self._function = function
        self.future: Future[Any] = Future()

    def start(self) -> None:
        """Begin. Raises RuntimeError if the system gives no thread."""
        context = contextvars.copy_context()
        threading.Thread(target=lambda: context.run(self._run), name="plaita-node", daemon=True).start()

    def _run(self) -> None:
        if not self.future.set_running_or_notify_cancel():
            return
        try:
            result = self._function()
        except BaseException as error:  # noqa: BLE001 - handed over to who waits for it
            self.future.set_exception(error)
        else:
            self.future.set_result(result)
