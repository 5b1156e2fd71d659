"""One run of a flow in this process: its context, its clock, and the threads it starts."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import wait as wait_for
from typing import Any

from plaita import clock, ids
from plaita.callback_url import CallbackKey
from plaita.errors import FlowExecutionException, NodeTimeoutError
from plaita.flow.callback_urls import CallbackUrls
from plaita.flow.context import Context
from plaita.flow.engine import Action, run_step, time_limit
from plaita.flow.model import BaseNode, FlowDefinition
from plaita.flow.outcome import Advanced, Outcome, StepStopped
from plaita.nodes.announcing import StepCallbacks
from plaita.nodes.base import Node, enter, is_async
from plaita.nodes.callbacks import registered_callbacks
from plaita.nodes.execution import DEFAULT_TENANT, Execution

_log = logging.getLogger("plaita.local")

# A Ctrl-C that comes just before this thread blocks does not wake it: it is seen when the wait is entered anew.
WAIT_SLICE_S = 0.5

CALLBACK_TIME_S = 1.0
"""How long callbacks may tell of the end of a step whose time is all but up."""


class LocalRun:
    """One run of a flow, a step at a time. ``loop``: where coroutines of nodes run, None for a private one each.
    ``now_ms``: the clock that the flow sees, epoch milliseconds. Limits of time are by the true one."""

    def __init__(
        self,
        flow: FlowDefinition,
        flow_input: Any,
        *,
        loop: asyncio.AbstractEventLoop | None = None,
        execution_id: str | None = None,
        now_ms: Callable[[], int] = clock.wall_ms,
        callback_key: CallbackKey | None = None,
    ) -> None:
        self._callback_key = callback_key
        self._flow = flow
        self._loop = loop
        self._now_ms = now_ms
        self._context = Context(
            execution_id=execution_id or ids.new_execution_id(),
            flow_id=flow.flow_id,
            input=flow_input,
            global_context=flow.global_context,
            env={name: os.environ[name] for name in flow.expose_env if name in os.environ},
        )
        self._visits: dict[str, int] = {}
        self._created_ms = now_ms()
        self._active_s = 0.0  # what the steps took: the flow's time is theirs alone (DECISIONS 19)
        self._stopped = threading.Event()
        self._cancel_event = threading.Event()
        self._pending: Future[Any] | None = None
        self.next_node = flow.start

    def stop(self) -> None:
        """Ask the run to end: from another thread, while a step runs."""
        self._stopped.set()
        self._cancel_event.set()
        pending = self._pending
        if pending is not None:
            pending.cancel()

    @property
    def results(self) -> dict[str, Any]:
        """The results of the nodes so far; not to be changed."""
        return self._context.results

    def visits(self, node_id: str) -> int:
        """How often a node was begun."""
        return self._visits.get(node_id, 0)

    def step(self, action: Action = "execute", event: Any = None, *, attempt: int = 1) -> Outcome:
        """The next step; of a node that waits, ``action`` says how the wait has ended. ``attempt`` above 1: the same
        step once more, after so many that failed less one."""
        began = time.monotonic()
        try:
            return self._step(action, event, attempt)
        finally:
            self._active_s += time.monotonic() - began

    def _step(self, action: Action, event: Any, attempt: int) -> Outcome:
        node_id = self.next_node
        if action == "execute" and attempt == 1:
            self._visits[node_id] = self._visits.get(node_id, 0) + 1
        visit = self._visits[node_id]
        self._context.callback_url = CallbackUrls(
            self._flow.plans,
            self._callback_key,
            DEFAULT_TENANT,
            self._context.execution_id,
            lambda other: self._visits.get(other, 0) + (0 if other == node_id and action == "execute" else 1),
        )
        time_left_ms = None
        if self._flow.timeout_ms is not None:
            time_left_ms = max(0, self._flow.timeout_ms - self._spent_ms())
        limit_ms, _ = time_limit(self._flow.plans[node_id], time_left_ms, after_wait=action != "execute")
        deadline = None if limit_ms is None else time.monotonic() + limit_ms / 1000
        call = self._caller(visit, deadline, attempt)
        told = self._callbacks(node_id, visit, action, attempt)
        try:
            if told is not None:
                self._tell(lambda: told.before(event), node_id, deadline)
            outcome = run_step(
                self._flow,
                self._context,
                node_id,
                call=call,
                now_ms=self._now_ms(),
                action=action,
                time_left_ms=time_left_ms,
                event=event,
            )
            if told is not None:
                finished = outcome
                until = None if deadline is None else max(deadline, time.monotonic() + CALLBACK_TIME_S)
                self._tell(lambda: told.after(finished), node_id, until)
        except StepStopped as stopped:
            if isinstance(stopped.__cause__, KeyboardInterrupt):
                raise stopped.__cause__ from None
            raise FlowExecutionException("the run was stopped", node=node_id) from stopped
        if isinstance(outcome, Advanced):
            self.next_node = outcome.next_node
        for warning in getattr(outcome, "warnings", ()):
            _log.warning("%s", warning)
        return outcome

    def _spent_ms(self) -> int:
        """What counts for the flow's timeout."""
        active = int(self._active_s * 1000)
        if not self._flow.timeout_includes_waits:
            return active
        passed = self._now_ms() - self._created_ms
        # By another clock than the true one steps take no time; by that one, set back, they still do.
        return max(active, passed) if self._now_ms is clock.wall_ms else passed

    def _callbacks(self, node_id: str, visit: int, action: Action, attempt: int) -> StepCallbacks | None:
        """Who tells users of this step (ledger F7); None when nobody wants to be told."""
        callbacks = registered_callbacks()
        if not callbacks:
            return None
        return StepCallbacks(
            callbacks,
            self._context,
            self._flow.plans[node_id],
            action=action,
            tenant_id=DEFAULT_TENANT,
            version=self._flow.version,
            visit=visit,
            attempt=attempt,
            report=_log.error,
            passing=(KeyboardInterrupt,),
        )

    def _tell(self, tell: Callable[[], None], node_id: str, deadline: float | None) -> None:
        """Run callbacks; with a deadline on a thread, which is left behind when they do not return in time."""
        if deadline is None:
            tell()
            return
        task = InThread(tell)
        task.start()
        wait_for([task.future], max(0.0, deadline - time.monotonic()))
        if task.future.done():
            task.future.result()
        else:
            _log.error("callbacks of node %r did not return within its time; they are left behind", node_id)

    def _caller(self, visit: int, deadline: float | None, first: int) -> Callable[[BaseNode], Any]:
        attempt = first - 1

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
                callback_key=self._callback_key,
            )
            return self._run_code(node, execution, deadline)

        return call

    def _run_code(self, node: BaseNode, execution: Execution, deadline: float | None) -> Any:
        assert isinstance(node, Node)
        on_callers_loop = self._loop is not None and execution.woken is None and is_async(type(node))
        try:
            if not on_callers_loop and deadline is None:
                return enter(node, execution)
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
        task = InThread(lambda: enter(node, execution))
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


class InThread:
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
