"""What ``status``, ``executors`` and ``explain`` answer: shapes of CONTRACT, built from facts others own. No I/O."""

from __future__ import annotations

from typing import Any

from plaita.clock import boot_ms, iso_utc
from plaita.policy.generations import ADVICE, Fit
from plaita.policy.lifecycle import State
from plaita.policy.slot import Slot
from plaita.store.carriers import LeftToOthers, QueueStats
from plaita.store.keys import Keys
from plaita.supervisor.executor import Executor
from plaita.supervisor.gate import Gate
from plaita.supervisor.tenant_gate import EPOCH_ADVICE, TenantGate
from plaita.unix.processes import rss_kib

_WORDS = {
    Slot.SPAWNING: "starting",
    Slot.IDLE: "idle",
    Slot.BUSY: "busy",
    Slot.ASKED: "stopping",
    Slot.KILLED: "stopping",
    Slot.GONE: "starting",
}


def executor_rows(executors: list[Executor], restarts: list[int]) -> list[dict[str, Any]]:
    """One object a slot. ``step_s`` and ``rss_mib`` are None where there is nothing to measure."""
    now = boot_ms()
    rows = []
    for executor in executors:
        used = rss_kib(executor.pid) if executor.pid is not None and executor.state is not Slot.GONE else None
        working = executor.step_started is not None
        rows.append(
            {
                "slot": executor.slot,
                "pid": executor.pid if executor.state is not Slot.GONE else None,
                "state": "busy" if executor.reserved and executor.state is Slot.IDLE else _WORDS[executor.state],
                "execution_id": executor.execution_id,
                "flow_id": executor.flow_id,
                "node_id": executor.node_id,
                "step_s": round((now - executor.step_started) / 1000, 3) if working and executor.step_started else None,
                "steps_done": executor.steps_done,
                "rss_mib": None if used is None else round(used / 1024, 1),
                "restarts": max(0, restarts[executor.slot]),
            }
        )
    return rows


def queue_block(keys: Keys, stats: QueueStats | None, left: LeftToOthers | None = None) -> dict[str, Any]:
    """The ``queue`` object; counts are None while Redis cannot be asked. ``left``: what is pending for hosts of another
    family or budget."""
    streams = stats.streams if stats is not None else []
    lags = [stream.lag for stream in streams]
    return {
        "name": keys.queue,
        "group": keys.group,
        "stream_length": sum(stream.length for stream in streams) if stats is not None else None,
        "pending": sum(stream.pending for stream in streams) if stats is not None else None,
        "lag": sum(lag for lag in lags if lag is not None) if stats is not None and None not in lags else None,
        "dlq_length": stats.dlq_length if stats is not None else None,
        "delayed": stats.delayed if stats is not None else None,
        "parked": stats.parked if stats is not None else None,
        "other_family": left.other_family if left is not None else None,
        "other_budget": left.other_budget if left is not None else None,
    }


def tenant_rows(tenants: TenantGate, parked: int | None) -> list[dict[str, Any]]:
    """The gates that are of a tenant, not of the host (ledger T2, T3): quota and epoch of the statuses."""
    trouble = tenants.trouble
    expected = tenants.expected_epoch
    found = "" if trouble is None else f"{trouble.why}: {trouble.found or 'none'} in Redis"
    return [
        {
            "gate": "tenant quota",
            "open": not tenants.waiting,
            "since": None,
            "value": f"full for {', '.join(sorted(tenants.waiting)[:5])}" if tenants.waiting else "not full",
            "limit": "",
            "waiting": parked,
            "advice": "they go on as places get free; see `plaita tenant status`" if tenants.waiting else "",
        },
        {
            "gate": "tenant epoch",
            "open": trouble is None,
            "since": None if trouble is None else iso_utc(trouble.since),
            "value": found or ("fits" if expected else "not looked at"),
            "limit": expected,
            "waiting": 0 if trouble is None else trouble.refused,
            "advice": "" if trouble is None else EPOCH_ADVICE.get(trouble.why, ""),
        },
    ]


def tenants_block(tenants: TenantGate, parked: int | None) -> dict[str, Any]:
    """The ``tenants`` object of ``status``: whose carriers are parked, and what is wrong with the epoch (or None)."""
    trouble = tenants.trouble
    return {
        "over_quota": sorted(tenants.waiting)[:50],
        "parked": parked,
        "epoch": None
        if trouble is None
        else {
            "why": trouble.why,
            "expected": tenants.expected_epoch,
            "found": trouble.found or None,
            "since": iso_utc(trouble.since),
            "refused": trouble.refused,
        },
    }


def gate_rows(
    gate: Gate, free: int, size: int, waiting: int | None, generations: dict[str, str], left: LeftToOthers | None
) -> list[dict[str, Any]]:
    """Every gate with state, since when, value and limit, what waits because of it, and what to do."""
    rows = [
        {
            "gate": condition.name,
            "open": condition.open,
            "since": iso_utc(condition.since),
            "value": condition.value,
            "limit": condition.limit,
            "waiting": waiting if not condition.open else 0,
            "advice": "" if condition.open else condition.hint,
        }
        for condition in gate.conditions.values()
    ]
    rows.append(
        {
            "gate": "executors",
            "open": free > 0,
            "since": None,
            "value": f"{free} free",
            "limit": str(size),
            "waiting": waiting if free <= 0 else 0,
            "advice": "" if free > 0 else "all are at work; see `plaita-supervisor executors`, or raise --executors",
        }
    )
    rows.append(
        {
            "gate": "generations",
            "open": True,
            "since": None,
            "value": f"{generations['config_family']} {generations['budget_generation']}",
            "limit": "",
            "waiting": None if left is None else left.other_family + left.other_budget,
            "advice": " ".join(
                ADVICE[fit]
                for fit, count in (
                    (Fit.OTHER_FAMILY, left.other_family if left is not None else 0),
                    (Fit.OTHER_BUDGET, left.other_budget if left is not None else 0),
                )
                if count
            ),
        }
    )
    return rows


def serving(state: State, gate: Gate) -> bool:
    """Whether this supervisor takes work now."""
    return state is State.RUNNING and gate.is_open
