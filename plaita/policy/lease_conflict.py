"""What to do with a carrier whose execution somebody holds (ledger L5, DECISIONS 1 and 3)."""

from __future__ import annotations

from enum import Enum


class Verdict(Enum):
    ACK_DUPLICATE = "ack"  # the holder lives and has a carrier of its own: this one is a duplicate
    LEAVE_PENDING = "leave pending"  # reclaimed when the lease is over, or the only thing that can wake somebody


def judge(
    *,
    resume_type: str | None,
    registry: bool,
    lease_readable: bool,
    is_holders_carrier: bool,
    holder_incarnation_registered: bool,
    holder_status: str | None,
    ask_liveness: bool = True,
) -> Verdict:
    """First match decides.

    ``ask_liveness`` is False under PLAITA_DISABLE_HOLDER_LIVENESS: a duplicate is acked whatever its holder is said to
    be, and with it perhaps the quickest way back of an execution whose holder is dead.

    ``resume_type`` is None for a start. ``registry`` is False when this supervisor runs without one.
    ``lease_readable`` is False for an old format. ``is_holders_carrier``: the lease was taken with this very entry,
    which only its holder may ack. ``holder_incarnation_registered``: the registry knows the lease's instance in the
    incarnation that took it; ``holder_status`` is the status it is registered with.
    """
    if resume_type in ("event", "timeout", "cancel"):
        return Verdict.LEAVE_PENDING
    if not lease_readable or is_holders_carrier:
        return Verdict.LEAVE_PENDING
    if not ask_liveness:
        return Verdict.ACK_DUPLICATE
    if not registry:
        return Verdict.LEAVE_PENDING
    if not holder_incarnation_registered or holder_status != "running":
        return Verdict.LEAVE_PENDING
    return Verdict.ACK_DUPLICATE
