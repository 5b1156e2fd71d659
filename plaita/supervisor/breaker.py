"""The breaker of this host: which nodes of which flow versions are not run here for now (DECISIONS 38).

Owns a circuit for each node that has killed executors; decides by ``policy.breaker``; tells when one shuts and opens.
Nothing of it is in Redis: each host finds out for itself, and another one may be in order.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any

from plaita.clock import boot_ms, iso_utc, wall_ms
from plaita.policy import breaker as policy
from plaita.policy.breaker import Circuit
from plaita.policy.explain import Gate
from plaita.supervisor import logs
from plaita.supervisor.held import Held
from plaita.supervisor.stats import Stats

NODES_KNOWN = 1024
SHOWN = 20  # rows of ``explain``, which is for people
WAITING_KNOWN = 10_000  # delayed carriers a node that are counted one by one
ADVICE = (
    "its carriers are delayed and not counted; another host may take them. See `plaita-supervisor status` for the last "
    "deaths; mend the node and `plaita-supervisor reload`: it is tried again by itself"
)

NodeKey = tuple[str, str, str, str]  # tenant, flow id, version, node id


@dataclass(slots=True)
class _Node:
    """``since``: shut since, epoch ms. ``waiting``: delayed executions, until when (boot ms)."""

    circuit: Circuit = field(default_factory=Circuit)
    since: int = 0
    last_cause: str = ""
    waiting: OrderedDict[str, int] = field(default_factory=OrderedDict)

    def count_waiting(self, now: int) -> int:
        for execution in [execution for execution, until in self.waiting.items() if until <= now]:
            del self.waiting[execution]
        return len(self.waiting)


def key_of(held: Held) -> NodeKey:
    """The node in hand."""
    return held.tenant_id, held.flow_id, held.version, held.node_id


class Breaker:
    """Asked before each step, told after each."""

    def __init__(self, stats: Stats) -> None:
        self._stats = stats
        self._nodes: OrderedDict[NodeKey, _Node] = OrderedDict()  # the one that killed last is the last

    def delay_ms(self, held: Held) -> int | None:
        """None when the node in hand may run now; else for how long its carrier is to be delayed."""
        node = self._nodes.get(key_of(held))
        if node is None:
            return None
        now, before = boot_ms(), node.circuit
        node.circuit, delay = policy.ask(before, held.execution_id, now)
        if delay is None:
            node.waiting.pop(held.execution_id, None)
            if node.circuit is not before:
                logs.info("breaker.probe", execution_id=held.execution_id, **_names(key_of(held)))
            return None
        self._stats.add("breaker_delayed")
        node.waiting[held.execution_id] = now + delay
        if len(node.waiting) > WAITING_KNOWN:
            node.waiting.popitem(last=False)
        logs.info("breaker.delayed", execution_id=held.execution_id, delay_ms=delay, **_names(key_of(held)))
        return delay

    def died(self, key: NodeKey, execution_id: str, cause: str) -> None:
        """An executor died under this step, and not because it was told to."""
        node = self._nodes.get(key)
        if node is None:
            node = self._nodes[key] = _Node()
            self._forget_some()
        self._nodes.move_to_end(key)
        node.last_cause = cause
        before = node.circuit
        node.circuit = policy.after_death(before, execution_id, boot_ms())
        if node.circuit.until == before.until:
            return
        facts = {"deaths": len(node.circuit.deaths), "executions": node.circuit.carriers, "cause": cause}
        if before.shut:
            logs.warning("breaker.still_open", seconds=policy.SHUT_MS / 1000, **_names(key), **facts)
            return
        node.since = wall_ms()
        self._stats.add("breaker_opened")
        logs.error("breaker.opened", seconds=policy.SHUT_MS / 1000, **_names(key), **facts, advice=ADVICE)

    def lived(self, key: NodeKey, execution_id: str) -> None:
        """The executor answered, or had to be ended for another reason than what the node did to it."""
        node = self._nodes.get(key)
        if node is None:
            return
        before = node.circuit
        node.circuit = policy.after_answer(before, execution_id)
        if before.shut and not node.circuit.shut:
            self._stats.add("breaker_closed")
            logs.info("breaker.closed", **_names(key), shut_s=round((wall_ms() - node.since) / 1000, 1))
            del self._nodes[key]

    def nothing(self, key: NodeKey, execution_id: str) -> None:
        """The step came to no end that says anything of its node."""
        node = self._nodes.get(key)
        if node is not None:
            node.circuit = policy.after_nothing(node.circuit, execution_id, boot_ms())

    def _forget_some(self) -> None:
        now = boot_ms()
        for key in [key for key, node in self._nodes.items() if node.circuit.deaths and node.circuit.idle(now)]:
            del self._nodes[key]
        while len(self._nodes) > NODES_KNOWN:
            self._nodes.popitem(last=False)

    # -- what is shown --------------------------------------------------------------------------------------

    def gates(self) -> list[Gate]:
        """The rows of ``explain``: one for each node that is shut out, or one that says that none is."""
        limit = f"{policy.DEATHS} deaths of {policy.CARRIERS} executions in {policy.WINDOW_MS // 60_000} min"
        rows = []
        now = boot_ms()
        shut = self._shut()
        for (_, flow_id, version, node_id), node in shut[:SHOWN]:
            circuit = node.circuit
            left = round(max(0, (circuit.until or 0) - now) / 1000, 1)
            then = "one tries" if circuit.probe else f"tried again in {left:g} s"
            counts = f"{len(circuit.deaths)} deaths of {circuit.carriers} executions"
            value = f"{flow_id}@{version} node {node_id}: {counts}, the last by {node.last_cause}; {then}"
            rows.append(Gate("breaker", False, node.since, value, limit, node.count_waiting(now), ADVICE))
        if len(shut) > SHOWN:
            waiting = sum(node.count_waiting(now) for _, node in shut[SHOWN:])
            rows.append(Gate("breaker", False, None, f"{len(shut) - SHOWN} more nodes", limit, waiting, ADVICE))
        return rows or [Gate("breaker", True, None, "no node is shut out", limit)]

    def _shut(self) -> list[tuple[NodeKey, _Node]]:
        """The one that killed last comes first."""
        return [(key, node) for key, node in reversed(self._nodes.items()) if node.circuit.shut]

    def blocks(self) -> list[dict[str, Any]]:
        """The ``breakers`` list of ``status``."""
        now = boot_ms()
        return [
            {
                **_names(key),
                "since": iso_utc(node.since),
                "retry_in_s": round(max(0, (node.circuit.until or 0) - now) / 1000, 1),
                "probe": node.circuit.probe,
                "deaths": len(node.circuit.deaths),
                "executions": node.circuit.carriers,
                "cause": node.last_cause,
                "waiting": node.count_waiting(now),
            }
            for key, node in self._shut()
        ]


def _names(key: NodeKey) -> dict[str, str]:
    return dict(zip(("tenant_id", "flow_id", "version", "node_id"), key, strict=True))
