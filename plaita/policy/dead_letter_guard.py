"""The one guard before a carrier goes to the dead letters: from what is known of its execution to what is done (Q4).

Every way that ends in a dead letter asks here: a malformed payload, a schema that is too new, a start of a flow that
does not exist, a spent budget. Pure: ``supervisor.dead_letters`` reads the facts and does what is ruled.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

TERMINAL = frozenset({"completed", "error", "cancelled"})


class Lease(Enum):
    """Who holds the execution's lease."""

    NOBODY = "nobody"
    OURS = "ours"  # taken with this very carrier
    ANOTHER = "another"


class Verdict(Enum):
    KEEP = "not acked: it stays pending and is judged again"
    LET_GO = "dead letter and ack"
    LET_GO_WITH_COPY = "dead letter, ack, and one recovery copy that continues the execution"
    END = "the execution ends in error; dead letter and ack with that end"


@dataclass(frozen=True, slots=True)
class Facts:
    """``readable`` is False when row or lease could not be read, whatever the reason. ``known``: the carrier names an
    execution. ``status`` is None without a row. ``budget_spent``: the node to run next has failed, or was lost, as
    often as it may. ``tombstoned``: the execution was deleted (D2). ``schema_rejected``: the carrier is for a newer
    build (Q6)."""

    known: bool
    readable: bool = True
    status: str | None = None
    lease: Lease = Lease.NOBODY
    budget_spent: bool = False
    tombstoned: bool = False
    schema_rejected: bool = False


UNREADABLE = Facts(known=True, readable=False)
UNKNOWN_EXECUTION = Facts(known=False)


def judge(facts: Facts) -> Verdict:
    """First match decides.

    What cannot be read is not given up. What has no execution left to save is. What somebody holds is in work, and his.
    A carrier of a newer schema changes nothing of its execution, which a newer build can still move. A deleted
    execution is not brought back. Else a carrier is the last of its execution for all we know, so the execution gets
    another one, unless its budget says that it has had enough.
    """
    if not facts.readable:
        return Verdict.KEEP
    if not facts.known or facts.status is None or facts.status in TERMINAL:
        return Verdict.LET_GO
    if facts.lease is Lease.ANOTHER:
        return Verdict.KEEP
    if facts.schema_rejected or facts.tombstoned:
        return Verdict.LET_GO
    if facts.budget_spent:
        return Verdict.END
    return Verdict.KEEP if facts.lease is Lease.OURS else Verdict.LET_GO_WITH_COPY
