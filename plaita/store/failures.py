"""Counting the failures of a node, before it is decided what follows (ledger S11, S12)."""

from __future__ import annotations

from dataclasses import dataclass

from plaita import ids
from plaita.store.call import Call, script
from plaita.store.keys import Keys

COUNTER_TTL_MS = 7 * 86_400_000  # sliding: of all counters of sections S11 to S13


@dataclass(frozen=True, slots=True)
class CountFailure:
    """The node of step ``step`` (the row's ``step`` + 1) raised under ``token``."""

    execution_id: str
    token: str
    step: int
    node_id: str


@dataclass(frozen=True, slots=True)
class Counted:
    """``node_failures``: of this node in a row, this one included. ``total``: of all nodes of the execution."""

    node_failures: int
    total: int


def count_failure(keys: Keys, failure: CountFailure) -> Call[Counted]:
    """Raise both counters, once for a (token, step) however often it is sent.

    Refused: ``no_row``, ``terminal`` (status), ``fence``, ``stale_step``, ``lease_lost``, as for a commit.
    """
    execution_id = failure.execution_id
    return Call(
        "failures.count_failure",
        script("count_failure"),
        (
            keys.row(execution_id),
            keys.fence(execution_id),
            keys.fencegen(execution_id),
            keys.lease(execution_id),
            keys.cancel(execution_id),
            keys.of_execution("nofail", execution_id),
            keys.noderetry(execution_id, failure.node_id),
            keys.of_execution("noderefetch", execution_id),
        ),
        (failure.token, failure.step, COUNTER_TTL_MS, ids.key_part(failure.node_id)),
        "writer",
        True,
        lambda reply: Counted(int(reply[0]), int(reply[1])),
    )
