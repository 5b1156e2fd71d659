"""The supervisor's view of one executor process: its state, its channel, what it holds, what it is doing.

Owns the slot's state (``policy.slot``) and the answer that somebody waits for. Does not spawn, kill or decide:
``pool`` does.
"""

from __future__ import annotations

import asyncio
import signal
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from plaita.ipc.messages import Answer, Need
from plaita.ipc.polled import FrameChannel
from plaita.policy.slot import Slot
from plaita.supervisor.output import OutputReader
from plaita.unix.reaper import Exit

if TYPE_CHECKING:
    from plaita.supervisor.template_handle import TemplateHandle

FLOWS_HELD = 32  # as many parsed flows as an executor keeps (executor/contexts.py); a miss is answered by Need


@dataclass(frozen=True, slots=True)
class Died:
    """The process ended under a step. ``stop_reason`` is why the supervisor had asked it to stop, None if it had
    not."""

    exit: Exit
    stop_reason: str | None
    detail: str = ""

    @property
    def cause(self) -> str:
        """``SIGKILL``, ``exit 3`` or what the supervisor saw before it killed the process itself."""
        return self.detail or describe(self.exit)


def describe(ended: Exit) -> str:
    """``SIGKILL``, ``exit 3``, ``unknown``: the word for death records, dead letters and logs."""
    if ended.signal is not None:
        try:
            return signal.Signals(ended.signal).name
        except ValueError:
            return f"signal {ended.signal}"
    return "unknown" if ended.code is None else f"exit {ended.code}"


@dataclass(slots=True, eq=False)
class Executor:
    """``slot`` is the index in the pool, ``seq`` counts spawns over the whole life of the supervisor."""

    slot: int
    seq: int
    state: Slot = Slot.SPAWNING
    template: TemplateHandle | None = None  # which one was asked to fork it
    pid: int | None = None
    hello_pid: int | None = None  # of a hello that came before the template told the pid
    pidfd: int | None = None
    channel: FrameChannel | None = None
    outputs: list[OutputReader] = field(default_factory=list)
    deadline: asyncio.TimerHandle | None = None  # spawn deadline, later the grace after SIGTERM
    reserved: bool = False  # a carrier has it, between and in steps
    tenant: str | None = None
    holds: tuple[str, str] | None = None  # (execution id, token) whose context it has
    flows: OrderedDict[str, None] = field(default_factory=OrderedDict)
    execution_id: str | None = None
    flow_id: str | None = None
    version: str | None = None
    node_id: str | None = None
    limit_ms: int | None = None  # of the step in hand; None: it may take as long as it takes
    step_started: int | None = None  # boot ms
    run_seq: int = 0
    waiting: asyncio.Future[Answer | Need | Died] | None = None
    stop_reason: str | None = None
    kill_detail: str = ""
    steps_done: int = 0
    temporary: str = ""  # its temporary folder

    @property
    def idle(self) -> bool:
        """It can be given a step. One whose pipe has closed cannot: its end is a moment away, or it lives on and hears
        nothing."""
        return self.state is Slot.IDLE and (self.channel is None or not self.channel.closed)

    @property
    def available(self) -> bool:
        """Idle and nobody's."""
        return self.idle and not self.reserved

    @property
    def node_key(self) -> tuple[str, str, str] | None:
        """(flow id, version, node id) of the step in hand, or of the last one while the carrier stays."""
        if self.flow_id is None or self.version is None or self.node_id is None:
            return None
        return self.flow_id, self.version, self.node_id

    def about(self) -> dict[str, object]:
        """The facts that a log line about it carries."""
        return {"slot": self.slot, "pid": self.pid, "execution_id": self.execution_id, "node_id": self.node_id}

    def cancel_deadline(self) -> None:
        """What it was to do by then is done, or will not be."""
        if self.deadline is not None:
            self.deadline.cancel()
            self.deadline = None

    def has_flow(self, flow_hash: str) -> bool:
        """Whether the process should still have this flow parsed; keeps the same order of use as the process does."""
        known = flow_hash in self.flows
        self.flows[flow_hash] = None
        self.flows.move_to_end(flow_hash)
        while len(self.flows) > FLOWS_HELD:
            self.flows.popitem(last=False)
        return known

    def deliver(self, outcome: Answer | Need | Died) -> None:
        """Give the outcome to whoever waits; without a waiter there is nothing to tell."""
        waiting, self.waiting = self.waiting, None
        if waiting is not None and not waiting.done():
            waiting.set_result(outcome)
