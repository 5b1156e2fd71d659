"""A flow in this process, without Redis: :class:`Flow`, for tests, scripts and notebooks.

The same parser and engine as the supervisor's executors use. What differs is time: nothing here can kill a node that
does not return, so one that runs over its limit is told by its ``cancel_event``, given up, and its thread left behind.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plaita import jsontext
from plaita.errors import FlowWaitsError, InputError
from plaita.flow.model import DEFAULT_LIMITS, FlowDefinition, Limits, NodeTypes, parse_flow
from plaita.flow.outcome import Ended, ErrorInfo, Failed, Outcome, Suspended
from plaita.local.run import InThread, LocalRun
from plaita.nodes.registry import get_default_registry

_log = logging.getLogger("plaita.local")


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
        run = LocalRun(self.definition, input_of(args, kwargs))
        return _to_end(self.definition, run).output

    def debug(self, /, *args: Any, **kwargs: Any) -> Generator[StepRecord, None, Any]:
        """Run step by step: yields a StepRecord after each, then returns the output or raises as :meth:`run` does."""
        return self._debug(LocalRun(self.definition, input_of(args, kwargs)))

    def _debug(self, run: LocalRun) -> Generator[StepRecord, None, Any]:
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
        run = LocalRun(self.definition, input_of(args, kwargs), loop=asyncio.get_running_loop())
        task = InThread(lambda: _to_end(self.definition, run))
        task.start()
        try:
            outcome = await asyncio.wrap_future(task.future)
        except asyncio.CancelledError:
            run.stop()
            raise
        return outcome.output


def _to_end(flow: FlowDefinition, run: LocalRun) -> Ended:
    """All steps. Raises the flow error that ends the run."""
    while True:
        outcome = run.step()
        if isinstance(outcome, Ended):
            return outcome
        if isinstance(outcome, Failed):
            raise outcome.raised
        if isinstance(outcome, Suspended):
            raise _waits(flow, outcome)


def input_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
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
        f"{flow.plans[outcome.node_id].label} waits for {what}: only a supervisor can wait (plaita flow put and plaita "
        "start), Flow.run cannot; in a test plaita.testing.TimeSkippingRunner lets its time pass",
        node=outcome.node_id,
        subscription=wanted,
    )
