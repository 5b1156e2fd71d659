"""What to do with a carrier whose execution somebody holds (ledger L5, DECISIONS 1 and 3)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Verdict(Enum):
    ACK_DUPLICATE = "ack"  # the holder lives and has a carrier of its own: this one is a duplicate
    LEAVE_PENDING = "leave pending"  # reclaimed when the lease is over, or the only thing that can wake somebody


@dataclass(frozen=True, slots=True)
class Lease:
    """A lease value taken apart. ``instance`` and ``incarnation`` name the holder, the rest its carrier."""

    instance: str
    incarnation: str
    token: str
    stream: str
    entry_id: str


def parse_lease(value: str) -> Lease | None:
    """The parts of ``v2 <instance>/<incarnation> <token> <stream> <entry id>``; None for another format."""
    parts = value.split(" ")
    if len(parts) != 5 or parts[0] != "v2" or "/" not in parts[1]:
        return None
    instance, _, incarnation = parts[1].rpartition("/")
    return Lease(instance, incarnation, parts[2], parts[3], parts[4])


def judge(
    *,
    resume_type: str | None,
    lease: Lease | None,
    stream: str,
    entry_id: str,
    holder_status: str | None,
    holder_incarnation: str | None,
    registry: bool,
) -> Verdict:
    """First match decides.

    ``resume_type`` is None for a start. ``holder_status`` and ``holder_incarnation`` are what the registry says of the
    lease's instance, None when it says nothing. ``registry`` is False when this supervisor runs without one.
    """
    if resume_type in ("event", "timeout", "cancel"):
        return Verdict.LEAVE_PENDING
    if not registry or lease is None:
        return Verdict.LEAVE_PENDING
    if (lease.stream, lease.entry_id) == (stream, entry_id):
        return Verdict.LEAVE_PENDING
    if holder_incarnation != lease.incarnation or holder_status != "running":
        return Verdict.LEAVE_PENDING
    return Verdict.ACK_DUPLICATE
