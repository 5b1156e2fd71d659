"""After a failover: is what this supervisor holds still its own (DECISIONS 11)? Pure.

A replica that became the primary may lack the last writes of the old one, so that a token given out there is not known
here, or an older holder's is back. What differs is not ours any more: killed and dropped, nothing written about it.
"""

from __future__ import annotations

from enum import Enum


class Verdict(Enum):
    KEEP = "keep"
    DROP = "kill and drop"


def must_check(known: str, seen: str) -> bool:
    """Another replication id than the one known: another server answers, or it has lost its history. An empty id (a
    server that names none, or none seen yet) says nothing."""
    return bool(known) and bool(seen) and known != seen


def judge(*, token: str, fence: str, generation: str, lease_token: str | None) -> Verdict:
    """``token`` is what we hold, the rest what Redis says now; ``lease_token`` is None when there is no lease, which is
    no loss: a commit takes it back while the fence is ours (DECISIONS 9)."""
    if fence != token or generation != token.partition(":")[0]:
        return Verdict.DROP
    if lease_token is not None and lease_token != token:
        return Verdict.DROP
    return Verdict.KEEP
