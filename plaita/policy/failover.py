"""After a failover: is what this supervisor holds still its own (DECISIONS 11)? Pure.

A replica that became the primary may lack the last writes of the old one, so that a token given out there is not known
here, or an older holder's is back. What differs is not ours any more: killed and dropped, nothing written about it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


@dataclass(frozen=True, slots=True)
class Known:
    """What a server said of itself. ``up_s``: seconds since its process began, as the difference of two whole ones: up
    to one too many. ``before``: the replication id of the primary that it followed until it was promoted."""

    replication_id: str
    run_id: str
    up_s: int
    before: str = ""


class Change(Enum):
    SAME = "the same server"
    RESTARTED = "the same server, started again"
    ANOTHER = "another server, or another history"


class Verdict(Enum):
    KEEP = "keep"
    DROP = "kill and drop"


def change(known: Known | None, seen: Known, since_s: float) -> Change:
    """What another replication id than the known one means: a server takes a new one when it starts and when it is
    promoted. ``since_s``: how long ago the known one was last seen.

    Whatever it is, all that is held must be checked: a restarted server has lost what it had not saved. But where
    nothing was lost, a process that began after the other was last seen is no failover: a replica that is promoted was
    there before, and names the primary that it followed. An empty id (a server that names none, or none seen yet) says
    nothing.
    """
    if known is None or not known.replication_id or not seen.replication_id:
        return Change.SAME
    if known.replication_id == seen.replication_id:
        return Change.SAME
    if seen.before == known.replication_id or known.run_id == seen.run_id or seen.up_s - 1 >= since_s:
        return Change.ANOTHER  # of one process: it was a replica in between
    return Change.RESTARTED


def judge(*, token: str, fence: str, generation: str, lease_token: str | None) -> Verdict:
    """``token`` is what we hold, the rest what Redis says now; ``lease_token`` is None when there is no lease, which is
    no loss: a commit takes it back while the fence is ours (DECISIONS 9)."""
    if fence != token or generation != token.partition(":")[0]:
        return Verdict.DROP
    if lease_token is not None and lease_token != token:
        return Verdict.DROP
    return Verdict.KEEP
