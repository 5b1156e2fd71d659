"""After a failover, by table; and whether a node lives, by table (DECISIONS 11, ledger L4)."""

from __future__ import annotations

from itertools import product

import pytest

from plaita.policy import failover, liveness
from plaita.policy.failover import Verdict
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


@pytest.mark.parametrize(
    ("known", "seen", "must"),
    [("", "", False), ("", "a", False), ("a", "", False), ("a", "a", False), ("a", "b", True)],
)
def test_DECISIONS_11_another_replication_id_is_looked_into(known: str, seen: str, must: bool) -> None:
    assert failover.must_check(known, seen) is must


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
