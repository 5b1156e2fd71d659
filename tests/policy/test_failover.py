"""After a failover, by table; and whether a node lives, by table (DECISIONS 11, ledger L4)."""

from __future__ import annotations

from itertools import product

import pytest

from plaita.policy import failover, liveness
from plaita.policy.failover import Change, Known, Verdict
from plaita.policy.liveness import Liveness


def test_DECISIONS_11_only_all_equal_is_kept() -> None:
    fences = {"3:a": True, "2:a": False, "3:b": False, "": False}
    generations = {"3": True, "2": False, "": False}
    lease_tokens = {None: True, "3:a": True, "3:b": False, "": False}
    for (fence, one), (generation, two), (lease_token, three) in product(
        fences.items(), generations.items(), lease_tokens.items()
    ):
        found = failover.judge(token="3:a", fence=fence, generation=generation, lease_token=lease_token)
        assert (found is Verdict.KEEP) == (one and two and three), (fence, generation, lease_token)


OLD = Known("a", "run1", 900)


@pytest.mark.parametrize(
    ("known", "seen", "since_s", "found"),
    [
        (None, Known("a", "run1", 1), 0.0, Change.SAME),  # the first look
        (Known("", "run1", 9), Known("a", "run1", 9), 1.0, Change.SAME),
        (OLD, Known("", "run2", 0), 1.0, Change.SAME),
        (OLD, Known("a", "run1", 910), 10.0, Change.SAME),
        (
            OLD,
            Known("a", "run2", 0),
            10.0,
            Change.SAME,
        ),  # started again as the replica of one that has the same history
        (OLD, Known("b", "run2", 0), 0.4, Change.RESTARTED),
        (OLD, Known("b", "run2", 5, "a"), 9.5, Change.ANOTHER),  # a replica of it, young, and promoted
        (OLD, Known("b", "run2", 5, "c"), 9.5, Change.RESTARTED),
        (OLD, Known("b", "run2", 9), 9.5, Change.RESTARTED),
        (OLD, Known("b", "run2", 1), 0.2, Change.RESTARTED),  # whole seconds: 10.9 to 11.1 is one of them
        (OLD, Known("b", "run2", 10), 9.5, Change.RESTARTED),
        (OLD, Known("b", "run2", 11), 10.0, Change.ANOTHER),  # it was there before the other went: a replica
        (OLD, Known("b", "run2", 11), 9.5, Change.ANOTHER),
        (OLD, Known("b", "run2", 5000), 9.5, Change.ANOTHER),
        (OLD, Known("b", "run1", 910), 10.0, Change.ANOTHER),  # one process: it was a replica meanwhile
        (OLD, Known("b", "run1", 0), 10.0, Change.ANOTHER),
    ],
)
def test_DECISIONS_11_a_restart_is_told_from_another_server(
    known: Known | None, seen: Known, since_s: float, found: Change
) -> None:
    assert failover.change(known, seen, since_s) is found


def test_L4_never_by_an_open_node_alone() -> None:
    for status, open_node, age, leased, registered in product(
        ["pending", "running", "suspended", "completed", "error", "cancelled"],
        [True, False],
        [-5_000, 0, 30_000, 30_001, None],
        [True, False],
        [True, False],
    ):
        found = liveness.judge(
            status=status,
            open_node=open_node,
            last_update_ms=None if age is None else 1_000_000 - age,
            now_ms=1_000_000,
            heartbeat_ms=10_000,
            leased=leased,
            holder_registered=registered,
        )
        if status != "running" or not open_node:
            assert found is Liveness.IDLE
        elif age is not None and age <= 30_000 and (leased or registered):
            assert found is Liveness.RUNS
        else:
            assert found is Liveness.SILENT
