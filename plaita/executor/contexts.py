"""What an executor remembers between steps: parsed flows by hash, and the context of the last execution.

A memory, never the truth: whatever is not held is asked for (Need), and anything in doubt is not held.
"""

from __future__ import annotations

import dataclasses
import os
from collections import OrderedDict
from dataclasses import dataclass

from plaita import jsontext
from plaita.flow.context import Context
from plaita.flow.model import FlowDefinition, NodeTypes, parse_flow
from plaita.ipc.messages import Run, Step, Wanted

FLOWS_HELD = 32


@dataclass(slots=True)
class Held:
    """An execution as it stands after the step of ``run``."""

    run: Run
    context: Context


class Contexts:
    """Not for several threads."""

    def __init__(self, registry: NodeTypes, flows_held: int = FLOWS_HELD) -> None:
        self._registry = registry
        self._limit = flows_held
        self._flows: OrderedDict[str, FlowDefinition] = OrderedDict()
        self._held: Held | None = None

    def completed(self, step: Step) -> Run | None:
        """The Run a Step stands for; None when another execution, or none, is held."""
        held = self._held
        if held is None or held.run.execution_id != step.execution_id:
            return None
        return step.after(held.run)

    def missing(self, run: Run) -> list[Wanted]:
        """What must be sent before this step can run."""
        what: list[Wanted] = []
        if run.definition is None and run.flow_hash not in self._flows:
            what.append("definition")
        if not run.fresh and not self._continues(run):
            what.append("context")
        return what

    def _continues(self, run: Run) -> bool:
        held = self._held
        return (
            held is not None
            and held.run.execution_id == run.execution_id
            and held.run.flow_hash == run.flow_hash
            and held.run.step + 1 == run.step
        )

    def flow(self, run: Run) -> FlowDefinition:
        """The parsed flow of a step that misses nothing. Raises FlowDefinitionError."""
        flow = self._flows.get(run.flow_hash)
        if flow is None:
            assert run.definition is not None
            flow = parse_flow(run.definition, self._registry)
            self._flows[run.flow_hash] = flow
            if len(self._flows) > self._limit:
                self._flows.popitem(last=False)
        else:
            self._flows.move_to_end(run.flow_hash)
        return flow

    def context(self, run: Run, flow: FlowDefinition) -> Context:
        """The context of a step that misses nothing, with what the message adds. Raises JSONTextError.

        It is not held while the step runs: only ``keep`` makes it the one to go on from.
        """
        held, self._held = self._held, None
        if run.fresh or held is None:
            context = Context(
                execution_id=run.execution_id,
                flow_id=run.flow_id,
                input={} if run.input is None else jsontext.loads(run.input),
                global_context=flow.global_context,
                env={name: os.environ[name] for name in flow.expose_env if name in os.environ},
            )
        else:
            context = held.context
        context.last_node = run.last_node
        context.branch = run.branch
        for node_id, text in run.results.items():
            context.load_result(node_id, text)
        for key, text in run.state.items():
            context.load_state(key, text)
        return context

    def keep(self, run: Run, context: Context) -> None:
        """The step succeeded: the execution can go on here without its context being sent again."""
        if run.fresh or run.event is not None:
            # Its blobs are in the context now; what is kept is only what the next Step leaves out.
            run = dataclasses.replace(run, fresh=False, definition=None, input=None, results={}, state={}, event=None)
        self._held = Held(run, context)
