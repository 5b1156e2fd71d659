"""What ``status``, ``executors`` and ``explain`` answer: shapes of CONTRACT, built from facts others own. No I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from plaita.clock import boot_ms, iso_utc, wall_ms
from plaita.policy import explain
from plaita.policy.doctor.finding import epoch_s
from plaita.policy.slot import Slot
from plaita.store.carriers import LeftToOthers, QueueStats
from plaita.store.keys import Keys
from plaita.supervisor.executor import Executor
from plaita.supervisor.gate import Gate
from plaita.supervisor.tenant_gate import EPOCH_ADVICE, TenantGate
from plaita.supervisor.usual import UsualLengths
from plaita.unix.processes import rss_kib

SERVICE_ADVICE = "it is begun again by itself; its traceback is in the log (service.failed)"
TARGET_ADVICE = "bring that server back, or end what waits for it; see docs/waiting.md, Queues"

SHOWN = 5  # servers that are away, each with a row of its own

_WORDS = {
    Slot.SPAWNING: "starting",
    Slot.IDLE: "idle",
    Slot.BUSY: "busy",
    Slot.ASKED: "stopping",
    Slot.KILLED: "stopping",
    Slot.GONE: "starting",
}


def executor_rows(
    executors: list[Executor], restarts: list[int], lengths: UsualLengths, stuck: set[int]
) -> list[dict[str, Any]]:
    """One object a slot. ``step_s``, ``usual_s``, ``timeout_s`` and ``rss_mib`` are None where there is nothing to
    measure, ``since`` where no step runs. ``stuck``: the slots whose step takes far longer than it does."""
    now, wall = boot_ms(), wall_ms()
    rows = []
    for executor in executors:
        used = rss_kib(executor.pid) if executor.pid is not None and executor.state is not Slot.GONE else None
        started, key = executor.step_started, executor.node_key
        usual = None if key is None or started is None else lengths.usual_ms(key)
        rows.append(
            {
                "slot": executor.slot,
                "pid": executor.pid if executor.state is not Slot.GONE else None,
                "state": "busy" if executor.reserved and executor.state is Slot.IDLE else _WORDS[executor.state],
                "execution_id": executor.execution_id,
                "flow_id": executor.flow_id,
                "node_id": executor.node_id,
                "step_s": None if started is None else round((now - started) / 1000, 3),
                "since": None if started is None else iso_utc(wall - (now - started)),
                "usual_s": None if usual is None else round(usual / 1000, 3),
                "timeout_s": None if executor.limit_ms is None else round(executor.limit_ms / 1000, 3),
                "stuck": executor.slot in stuck,
                "steps_done": executor.steps_done,
                "rss_mib": None if used is None else round(used / 1024, 1),
                "restarts": max(0, restarts[executor.slot]),
            }
        )
    return rows


def queue_block(keys: Keys, stats: QueueStats | None, left: LeftToOthers | None = None) -> dict[str, Any]:
    """The ``queue`` object; counts are None while Redis cannot be asked. ``left``: what is pending for hosts of another
    family or budget, or that do not deny its repository."""
    streams = stats.streams if stats is not None else []
    lags = [stream.lag for stream in streams]
    oldest = None if stats is None else stats.oldest_pending_ms
    return {
        "name": keys.queue,
        "group": keys.group,
        "stream_length": sum(stream.length for stream in streams) if stats is not None else None,
        "pending": sum(stream.pending for stream in streams) if stats is not None else None,
        "lag": sum(lag for lag in lags if lag is not None) if stats is not None and None not in lags else None,
        "dlq_length": stats.dlq_length if stats is not None else None,
        "delayed": stats.delayed if stats is not None else None,
        "parked": stats.parked if stats is not None else None,
        "claimable": stats.claimable if stats is not None else None,
        "oldest_pending_s": None if oldest is None else round(oldest / 1000, 3),
        "other_family": left.other_family if left is not None else None,
        "other_budget": left.other_budget if left is not None else None,
        "denied_repo": left.denied_repo if left is not None else None,
    }


def service_gates(services: Sequence[Mapping[str, Any]]) -> list[explain.Gate]:
    """What the services of a host are at (ledger E1): those that fail, and servers of queues that it does not reach.
    They keep no carrier away; what waits for them does."""
    rows = [
        explain.Gate("services", False, _epoch_ms(one["since"]), _failure(one), advice=SERVICE_ADVICE)
        for one in services
        if one["state"] == "failed"
    ]
    names = ", ".join(str(one["service"]) for one in services)
    rows = rows or [explain.Gate("services", True, value=names or "none on this host")]
    targets = [target for one in services for target in one.get("targets", ())]
    away = sorted((one for one in targets if one["away_since"] is not None), key=lambda one: str(one["away_since"]))
    for one in away[:SHOWN]:
        since = _epoch_ms(one["away_since"])
        rows.append(explain.Gate("queue server", False, since, _absence(one), advice=TARGET_ADVICE))
    if len(away) > SHOWN:
        value = f"{len(away) - SHOWN} more; see `plaita-supervisor status`"
        rows.append(explain.Gate("queue server", False, None, value, advice=TARGET_ADVICE))
    if targets and not away:
        rows.append(explain.Gate("queue server", True, value=f"{len(targets)} reached"))
    return rows


def _failure(service: Mapping[str, Any]) -> str:
    return f"{service['service']}: failed, {service['failures']} times by now; {service['error']}"


def _absence(target: Mapping[str, Any]) -> str:
    words = f"{target['target']}: {target['waits']} {'waits' if target['waits'] == 1 else 'wait'} for its queues"
    if target["left"]:
        words += f", {target['left']} {'is' if target['left'] == 1 else 'are'} over with messages left there"
    return f"{words}; {target['error']}"


def _epoch_ms(iso: object) -> int:
    return int((epoch_s(iso) or 0) * 1000)


def tenant_gates(tenants: TenantGate, parked: int | None) -> list[explain.Gate]:
    """The gates that are of a tenant, not of the host (ledger T2, T3): quota and epoch of the statuses."""
    trouble = tenants.trouble
    expected = tenants.expected_epoch
    found = "" if trouble is None else f"{trouble.why}: {trouble.found or 'none'} in Redis"
    full = sorted(tenants.waiting)
    more = f" and {len(full) - 5} more" if len(full) > 5 else ""
    return [
        explain.Gate(
            "tenant quota",
            not full,
            value=f"full for {', '.join(full[:5])}{more}" if full else "not full",
            waiting=parked,
            advice="they go on as places get free; see `plaita tenant status`",
        ),
        explain.Gate(
            "tenant epoch",
            trouble is None,
            since=None if trouble is None else trouble.since,
            value=found or ("fits" if expected else "not looked at"),
            limit=expected,
            waiting=0 if trouble is None else trouble.refused,
            advice="" if trouble is None else EPOCH_ADVICE.get(trouble.why, ""),
        ),
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


def host_gates(gate: Gate) -> list[explain.Gate]:
    """The conditions of the host, with the advice for when they are shut."""
    return [
        explain.Gate(one.name, one.open, one.since, one.value, one.limit, advice=one.hint)
        for one in gate.conditions.values()
    ]


def unclaimed(stats: QueueStats | None, left: LeftToOthers | None) -> int | None:
    """Carriers that no host works on and this one could take: not read yet, or pending for nobody; None when nobody can
    say. A stream that cannot tell its lag (Redis loses it when entries are deleted before they were read) still tells
    it so: acked entries are deleted."""
    if stats is None:
        return None
    unread = sum(
        stream.lag if stream.lag is not None else max(0, stream.length - stream.pending) for stream in stats.streams
    )
    others = 0 if left is None else left.other_family + left.other_budget
    return unread + max(0, stats.claimable - others)


def verdict_block(found: explain.Explanation) -> dict[str, Any]:
    """What ``status`` and ``explain`` both say: whether work is taken, and why or why not in one line."""
    return {
        "serving": found.serving,
        "verdict": found.verdict.value,
        "answer": found.answer,
        "reasons": list(found.reasons),
    }


def gate_row(gate: explain.Gate) -> dict[str, Any]:
    """The object of CONTRACT's ``gates``."""
    return {
        "gate": gate.name,
        "open": gate.open,
        "since": iso_utc(gate.since),
        "value": gate.value,
        "limit": gate.limit,
        "waiting": gate.waiting,
        "advice": gate.advice,
    }
