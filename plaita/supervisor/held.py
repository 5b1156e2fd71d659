"""A carrier this supervisor holds: what is known of its execution between ``begin`` and the call that lets it go.

Plain data with small derivations, no I/O. Changed only on the loop, never across an ``await`` in between.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from plaita.flow.outline import Outline
from plaita.ipc.messages import Action
from plaita.policy import lease
from plaita.store.keys import Keys

if TYPE_CHECKING:
    from plaita.supervisor.executor import Executor


@dataclass(slots=True)
class NodeTiming:
    """What the row says of a node that was handed out before: its place in the order of first starts, its attempts
    (failed ones, while it is ``open``) and visits."""

    order: int
    attempts: int
    visit: int
    started_at: int
    open: bool  # the visit has not ended: handed out and lost, or failed and to be tried again
    waiting: bool = False  # its wait has begun, and nobody has gone on from it


@dataclass(slots=True, eq=False)
class Held:
    """``stream`` is ``q`` or ``w``. Times in boot-clock ms unless a name says otherwise."""

    keys: Keys
    execution_id: str
    tenant_id: str
    flow_id: str
    version: str
    flow_hash: str
    stream: str
    entry_id: str
    holder: str
    token: str
    lease: lease.Times
    node_id: str
    outline: Outline
    step: int
    lost: int
    active_ms: int
    last_node: str | None = None
    branch: str | None = None
    timings: dict[str, NodeTiming] = field(default_factory=dict)
    executor: Executor | None = None
    fields: Mapping[bytes, bytes] = field(default_factory=dict)  # of the carrier: what a copy of it inherits
    input: bytes = b"{}"
    result_sizes: dict[str, int] = field(default_factory=dict)  # bytes by node: what a fresh executor must be given
    state_sizes: dict[str, int] = field(default_factory=dict)
    unsaved_ms: int = 0  # active time of attempts that were not committed, saved with the next write
    running: bool = False  # node code is being run under the lease right now
    killed: bool = False  # its process was sent SIGKILL because of the lease
    step_started: int = 0
    step_began_at: int = 0  # the same in epoch ms, taken once: every heartbeat of a step says the same
    lease_lost: bool = False
    settling: bool = False  # the call that lets it go is under way: a renewal finds no lease, rightly
    wait: str = ""  # the id of the wait that the node in hand is in
    woken: str = ""  # what ended that wait: "event" or "timeout"; '' as long as nothing has
    wake_data: bytes | None = None  # what the event brought, JSON text
    # Of a wait that a cancel forestalled: pending result and state, which stand nowhere else, for its ``on_cancel``.
    forestalled: tuple[dict[str, bytes], dict[str, bytes]] | None = None
    cancel: str | None = None  # the reason, once somebody asked
    tenant_shut: bool = False  # its tenant may begin nothing now: it is let go after the step (ledger T2)
    abandoned: asyncio.Event = field(default_factory=asyncio.Event)  # the supervisor leaves: stop resending

    @property
    def lease_value(self) -> str:
        """The value of the lease key (DECISIONS 1); ``policy.lease_conflict.parse_lease`` reads it."""
        return f"v2 {self.holder} {self.token} {self.stream} {self.entry_id}"

    @property
    def action(self) -> Action:
        """How the node in hand is entered: a wait that is over is resumed, all else is executed."""
        if self.woken == "event":
            return "event"
        return "timeout" if self.woken == "timeout" else "execute"

    @property
    def waiting(self) -> bool:
        """The node in hand is in a wait that nothing has ended."""
        return bool(self.wait) and not self.woken

    @property
    def undone_by_cancel(self) -> bool:
        """A cancel tells the node in hand: it waits, or what ended its wait was never handed to its code. No half of it
        would run any more else, and what the first one began stayed begun."""
        timing = self.timings.get(self.node_id)
        return self.waiting or (bool(self.wait) and not self.step_started and timing is not None and timing.waiting)

    @property
    def attempt(self) -> int:
        """Which begin of this node's step this is, from 1: failed attempts of this visit, lost steps, and this one."""
        timing = self.timings.get(self.node_id)
        failed = timing.attempts if timing is not None and timing.open else 0
        return failed + max(1, self.lost)

    @property
    def visit(self) -> int:
        """How often the flow has come to this node, from 1 (DECISIONS 22)."""
        return self.visit_of(self.node_id)

    def visit_of(self, node_id: str) -> int:
        """The visit of a node that is under way, else the one that would be its next."""
        timing = self.timings.get(node_id)
        if timing is None:
            return 1
        return timing.visit if timing.open else timing.visit + 1

    @property
    def order(self) -> int:
        """The node's place in the order of first starts, from 0."""
        timing = self.timings.get(self.node_id)
        return len(self.timings) if timing is None else timing.order
