"""Lease arithmetic (DECISIONS 9)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plaita.policy.lease import MIN_TTL_MS, may_start_step, times


@pytest.mark.parametrize(
    ("ttl", "horizon", "kill_at", "ask_at", "renew_at"),
    [
        (5_000, 6_000, 5_700, 5_200, 2_667),
        (6_000, 7_000, 6_700, 6_100, 3_000),
        (120_000, 121_000, 115_000, 103_000, 41_000),
    ],
)
def test_table(ttl: int, horizon: int, kill_at: int, ask_at: int, renew_at: int) -> None:
    found = times(1_000, ttl)
    assert (found.horizon, found.kill_at, found.ask_at, found.renew_at) == (horizon, kill_at, ask_at, renew_at)


@given(st.integers(0, 10**15), st.integers(MIN_TTL_MS, 86_400_000))
def test_a_step_is_asked_then_killed_before_redis_may_let_the_lease_go(sent_at: int, ttl: int) -> None:
    found = times(sent_at, ttl)
    assert sent_at < found.renew_at < found.ask_at < found.kill_at < found.horizon
    assert found.horizon == sent_at + ttl
    assert may_start_step(found.ask_at - 1, found)
    assert not may_start_step(found.ask_at, found)
