"""One step in an executor: what is needed, the node's run, the answer.

Owns the call of node code and what surrounds it: stop signal, callbacks, progress notes, a node that forked and came
back twice.
The engine decides what the outcome is; the supervisor decides what becomes of the execution.
"""

from __future__ import annotations

import dataclasses
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, cast

from plaita import clock, jsontext
from plaita.errors import CODE_GENERIC, FlowDefinitionError, FlowErrorType, FrameError, NodeTimeoutError
from plaita.executor.contexts import Contexts
from plaita.executor.hygiene import Hygiene
from plaita.executor.stopping import StopSignal
from plaita.flow.callback_urls import CallbackUrls
from plaita.flow.context import Context
from plaita.flow.engine import run_step, time_limit
from plaita.flow.model import BaseNode, FlowDefinition
from plaita.flow.outcome import Advanced, Ended, ErrorInfo, Failed, Outcome, StepStopped
from plaita.ipc.blocking import FrameConnection
from plaita.ipc.messages import PROGRESS_NOTE_LIMIT, Answer, Need, Progress, Run, Step
from plaita.jsontext import JSONTextError
from plaita.nodes.announcing import StepCallbacks
from plaita.nodes.base import Node, enter
from plaita.nodes.builtin import PURE_NODES
from plaita.nodes.callbacks import Callbacks, registered_callbacks, report_to_stderr
from plaita.nodes.execution import Execution
from plaita.tenancy import carried, tenant_context
from plaita.unix.title import set_title

PROGRESS_INTERVAL_S = 0.05
CALLBACK_TIME_S = 1.0
"""How long callbacks may tell of the end of a node that was killed at its limit."""
_RETIRE_STOPPED = "stopped"


class StepRunner:
    """Runs steps one after the other, in one thread. ``title``: of the process; None where that is not ours.
    ``callbacks``: who is told of the steps (ledger F7), by default what this process has registered."""

    def __init__(
        self,
        connection: FrameConnection,
        contexts: Contexts,
        stop: StopSignal,
        hygiene: Hygiene,
        title: str | None,
        *,
        callbacks: Callbacks | None = None,
    ) -> None:
        self._connection = connection
        self._contexts = contexts
        self._stop = stop
        self._hygiene = hygiene
        self._title = title
        self._callbacks = registered_callbacks() if callbacks is None else callbacks
        self._pid = os.getpid()
        self._foreign = False  # code that is not the engine's ran in this step

    def run(self, message: Run | Step) -> bool:
        """Run the step and answer. False when this executor must not be used again."""
        run = message if isinstance(message, Run) else self._contexts.completed(message)
        if run is None:
            self._connection.send(Need(message.seq, ["context"]).to_frame())
            return True
        missing = self._contexts.missing(run)
        if missing:
            self._connection.send(Need(run.seq, missing).to_frame())
            return True
        if self._title is not None:
            set_title(f"{self._title}  {run.execution_id} node={run.node_id}")
        started_ms = clock.wall_ms()
        with tenant_context(run.tenant_id):  # what node code hands on to its threads and processes (ledger T1)
            answer = self._perform(run, started_ms)
        if os.getpid() != self._pid:
            os._exit(0)  # a fork that node code made and let return: the step and its answer are its parent's
        # The engine's own nodes only evaluate expressions: there is nothing that they could leave behind.
        retire = (self._hygiene.after_step() if self._foreign else None) or _memory_failure(answer)
        if self._stop.asked:
            retire = _RETIRE_STOPPED
        try:
            self._send(answer if retire is None else dataclasses.replace(answer, retire=retire))
        except OSError:
            if retire is not None:  # the likely cause: node code closed or replaced the socket
                print(f"plaita executor: node {run.node_id} spoiled this process: {retire}", file=sys.stderr)
            raise
        self.rest()
        return retire is None

    def rest(self) -> None:
        """``ps`` shows no step that is over."""
        if self._title is not None:
            set_title(f"{self._title}  idle")

    def _perform(self, run: Run, started_ms: int) -> Answer:
        try:
            flow = self._contexts.flow(run)
            context = self._contexts.context(run, flow)
            event = None if run.event is None else jsontext.loads(run.event)
            context.callback_url = CallbackUrls(
                flow.plans, run.callback, run.tenant_id, run.execution_id, run.visit_to_wait
            )
        except (FlowDefinitionError, JSONTextError) as error:
            return _refused(run, started_ms, error)
        attempts = Attempts(self, run, flow, context)
        self._stop.raised = False
        self._foreign = False
        self._stop.begin(attempts.cancel_event)
        told = self._teller(run, flow, context)
        outcome: Outcome | None = None
        try:
            if told is not None:
                self._armed(lambda: told.before(event))
            outcome = run_step(
                flow,
                context,
                run.node_id,
                call=attempts.call,
                now_ms=started_ms,
                action=run.action,
                time_left_ms=run.time_left_ms,
                event=event,
            )
            if told is not None:
                self._tell_after(told, run, outcome)
        except StepStopped:
            outcome = None
        finally:
            self._stop.end()
            attempts.over = True
        ended_ms = clock.wall_ms()
        if outcome is None or self._stop.raised:
            # Also when node code swallowed the request and returned something: what it returned is not whole.
            return Answer(run.seq, "stopped", run.node_id, started_ms, ended_ms, attempts=max(1, attempts.made))
        if not isinstance(outcome, Failed) and run.action != "cancelled":
            self._contexts.keep(run, context)
        return _answer(run, outcome, started_ms, ended_ms)

    def _teller(self, run: Run, flow: FlowDefinition, context: Context) -> StepCallbacks | None:
        """Who tells users of this step; None, the usual case, when nobody wants to be told."""
        plan = flow.plans.get(run.node_id) if self._callbacks else None
        if plan is None:
            return None
        self._foreign = True
        return StepCallbacks(
            self._callbacks,
            context,
            plan,
            action=run.action,
            tenant_id=run.tenant_id,
            version=run.version,
            visit=run.visit,
            attempt=run.attempt,
        )

    def _tell_after(self, told: StepCallbacks, run: Run, outcome: Outcome) -> None:
        if run.action != "timed_out":
            self._armed(lambda: told.after(outcome), even_if_asked=True)
            return
        # The step's time was up before this one began, so the supervisor sets it no limit. One that hangs here is left
        # behind, and the executor is replaced for its thread.
        thread = threading.Thread(target=carried(told.after), args=(outcome,), name="plaita-callbacks", daemon=True)
        thread.start()
        thread.join(CALLBACK_TIME_S)
        if thread.is_alive():
            report_to_stderr(f"callbacks of node {run.node_id} did not return in {CALLBACK_TIME_S} s: left behind")

    def _armed(self, tell: Callable[[], None], *, even_if_asked: bool = False) -> None:
        """Run callbacks as node code is run: stopped by the signal. ``even_if_asked``: one that came just before does
        not keep a step that is done from being told of; if they hang then, the supervisor kills."""
        if even_if_asked and self._stop.asked:
            tell()
            return
        try:
            self._stop.arm()
            tell()
        finally:
            self._stop.disarm()

    def _send(self, answer: Answer) -> None:
        try:
            self._connection.send(answer.to_frame())
        except FrameError as error:
            reason = f"what the node left cannot be sent: {error}"
            self._connection.send(
                Answer(
                    answer.seq,
                    "failed",
                    answer.node_id,
                    answer.started_ms,
                    answer.ended_ms,
                    attempts=answer.attempts,
                    error=_error(answer.node_id, reason, "NodeExecutionError", "NodeOutputError").to_json(),
                    retire=answer.retire or "answer not sendable",
                ).to_frame()
            )

    def progress(self, seq: int, note: str) -> None:
        """Send a progress note for the step ``seq``. Not to be interrupted: half a frame would end the connection."""
        if os.getpid() != self._pid:
            return
        text = note[:PROGRESS_NOTE_LIMIT].encode("utf-8", "backslashreplace").decode()
        if threading.current_thread() is not threading.main_thread():
            self._connection.send(Progress(seq, text).to_frame())
            return
        self._stop.disarm()
        self._connection.send(Progress(seq, text).to_frame())
        self._stop.arm()


class Attempts:
    """The calls of one step's node code: several when the node is retried in place."""

    def __init__(self, runner: StepRunner, run: Run, flow: FlowDefinition, context: Context) -> None:
        self._runner = runner
        self._stop = runner._stop
        self._run = run
        self._flow = flow
        self._context = context
        self._began = time.monotonic()
        self._next_note = 0.0
        self.cancel_event = threading.Event()
        self.made = 0
        self.over = False

    def call(self, node: BaseNode) -> Any:
        """Run node code. Raises what it raises, StepStopped, or NodeTimeoutError before an attempt that is too late."""
        self.made += 1
        if type(node) not in PURE_NODES:
            self._runner._foreign = True
        if self.made > 1:
            self._check_time(node)
        run = self._run
        execution = Execution(
            node,
            self._context,
            tenant_id=run.tenant_id,
            namespace=run.namespace,
            attempt=run.attempt + self.made - 1,
            visit=run.visit,
            cancel_event=self.cancel_event,
            on_progress=self._progress,
            callback_key=run.callback,
        )
        try:
            self._stop.arm()
            return enter(cast(Node, node), execution)
        finally:
            self._stop.disarm()

    def _check_time(self, node: BaseNode) -> None:
        after_wait = self._run.action != "execute"
        limit_ms, _ = time_limit(self._flow.plans[node.id], self._run.time_left_ms, after_wait=after_wait)
        if limit_ms is not None and (time.monotonic() - self._began) * 1000 >= limit_ms:
            raise NodeTimeoutError(f"the node used up its {limit_ms} ms before attempt {self.made}", node=node.id)

    def _progress(self, note: str) -> None:
        now = time.monotonic()
        if self.over or now < self._next_note:
            return
        self._next_note = now + PROGRESS_INTERVAL_S
        self._runner.progress(self._run.seq, note)


def _answer(run: Run, outcome: Outcome, started_ms: int, ended_ms: int) -> Answer:
    if isinstance(outcome, Failed):
        return Answer(
            run.seq,
            "failed",
            outcome.node_id,
            started_ms,
            ended_ms,
            attempts=outcome.attempts,
            error=outcome.error.to_json(),
        )
    for warning in outcome.warnings:
        print(f"warning: node {outcome.node_id}: {warning}", file=sys.stderr)
    if isinstance(outcome, Advanced):
        return Answer(
            run.seq,
            "advanced",
            outcome.node_id,
            started_ms,
            ended_ms,
            next_node=outcome.next_node,
            branch=outcome.branch,
            attempts=outcome.attempts,
            result=outcome.result_json,
            state=outcome.state_json,
        )
    if isinstance(outcome, Ended):
        return Answer(
            run.seq,
            "ended",
            outcome.node_id,
            started_ms,
            ended_ms,
            attempts=outcome.attempts,
            result=outcome.result_json,
            output=outcome.output_json,
            state=outcome.state_json,
        )
    return Answer(
        run.seq,
        "suspended",
        outcome.node_id,
        started_ms,
        ended_ms,
        attempts=outcome.attempts,
        result=outcome.result_json,
        state=outcome.state_json,
        subscription=outcome.subscription,
    )


def _error(node_id: str, message: str, exception: str, cause: str) -> ErrorInfo:
    return ErrorInfo(
        code=CODE_GENERIC,
        message=message[:4096],
        error_type=FlowErrorType.FLOW_ERROR.value,
        node=node_id,
        failed_node=node_id,
        exception=exception,
        cause=cause,
        retryable=False,
    )


def _refused(run: Run, started_ms: int, error: Exception) -> Answer:
    """The stored flow or context cannot be read here: no retry would change that."""
    name = type(error).__name__
    message = f"the step cannot begin: {error}"
    return Answer(
        run.seq,
        "failed",
        run.node_id,
        started_ms,
        clock.wall_ms(),
        error=_error(run.node_id, message, "FlowExecutionException", name).to_json(),
    )


def _memory_failure(answer: Answer) -> str | None:
    """A node that ran into the memory limit leaves a heap that the next one should not inherit."""
    error = answer.error
    return "memory limit" if error is not None and error.get("cause") == "MemoryError" else None
