"""What to do with a carrier whose execution cannot be begun: one function from the refusal to a named end.

The lease conflict has a module of its own (``lease_conflict``), since it needs facts about the holder.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum


class Settle(Enum):
    ACK = "ack"  # nothing is left to do: the execution is over, or deleted
    POISON = "poison ack"  # it can never be done; acked, counted, logged
    DEAD_LETTER = "dead letter"  # it cannot be done now or here, and somebody must look
    LEAVE_PENDING = "leave pending"
    TENANT = "as its tenant's gate does"  # dropped, left to others or parked (ledger T2, T3)


@dataclass(frozen=True, slots=True)
class Ruling:
    """``while_status``: the status of the row for which an ack is right; by another one, this carrier may have become
    the only one. None: whatever the row says."""

    settle: Settle
    explanation: str
    while_status: str | None = None


_RULINGS: dict[str, Ruling] = {
    "terminal": Ruling(Settle.ACK, "the execution is over; its state is unchanged"),
    "suspended": Ruling(
        Settle.ACK, "the execution waits for an event, which a start, continue or retry is not", "suspended"
    ),
    "stale_wait": Ruling(
        Settle.POISON, "ResumeProtocolError: the execution waits for something else by now", "suspended"
    ),
    # Whatever the row says by now: judged again after the start, it would end a wait that it was not meant for.
    "no_checkpoint": Ruling(Settle.POISON, "ResumeProtocolError: the execution has not begun, so nothing waits"),
    "g1_wakeups_exhausted": Ruling(
        Settle.ACK, "it was woken from error as often as it may; the named key must be deleted to allow more", "error"
    ),
    "deterministic_failure_exhausted": Ruling(
        Settle.ACK, "it failed in a row as often as it may in ways that no retry changes; see the named key", "error"
    ),
    "tombstoned": Ruling(Settle.ACK, "the execution was deleted"),
    "too_old": Ruling(Settle.ACK, "a start older than the age limit begins nothing"),
    "no_row": Ruling(Settle.POISON, "the execution has no row: deleted, expired, or never here"),
    "flow_conflict": Ruling(Settle.POISON, "the execution id belongs to another flow; its row is untouched"),
    "tenant_disabled": Ruling(Settle.TENANT, "its tenant is disabled: the carrier is dropped"),
    "tenant_epoch": Ruling(Settle.TENANT, "the statuses of tenants are of another deployment: it stays pending"),
    "quota": Ruling(Settle.TENANT, "as many executions of its tenant run as may: it is parked"),
    "wrong_type": Ruling(Settle.DEAD_LETTER, "the key of the row holds another type of value; it is left as it is"),
    "no_flow": Ruling(Settle.DEAD_LETTER, "no such flow is stored"),
    "no_version": Ruling(Settle.DEAD_LETTER, "the flow has no such version"),
}


def rule(reason: str, detail: str = "") -> Ruling:
    """The ruling for a refusal of ``begin``; an unknown reason is left pending, since nothing is known. ``detail`` of
    ``terminal`` is the status."""
    ruling = _RULINGS.get(reason)
    if ruling is None:
        return Ruling(Settle.LEAVE_PENDING, f"refused for a reason this build does not know: {reason}")
    return replace(ruling, while_status=detail) if reason == "terminal" else ruling
