"""Ledger D2, D7: how long finished rows and tombstones are kept, as a table."""

from __future__ import annotations

import pytest

from plaita.policy.retention import DAY_MS, retention_ms, tombstone_ttl_ms

DAY_S = DAY_MS // 1000


@pytest.mark.parametrize(
    ("tombstone_s", "state_days", "age_s", "wanted_days"),
    [
        (30 * DAY_S, 30.0, 30 * DAY_S, 30),
        (60 * DAY_S, 30.0, 30 * DAY_S, 60),
        (1, 30.0, 10 * DAY_S, 30),
        (1, 10.0, 30 * DAY_S, 30),
        (1, 90.0, 30 * DAY_S, 90),
        (30 * DAY_S, 0.0, 30 * DAY_S, 30),
        (2 * DAY_S, 0.0, 0, 2),
        (2 * DAY_S, 3.5, 0, 3.5),
    ],
)
def test_D2_a_tombstone_outlives_rows_and_carriers_and_is_never_for_ever(
    tombstone_s: int, state_days: float, age_s: int, wanted_days: float
):
    found = tombstone_ttl_ms(tombstone_s, state_days, age_s)
    assert found == wanted_days * DAY_MS
    assert found > 0


@pytest.mark.parametrize(
    ("state_days", "age_s", "wanted_days"),
    [(30.0, 30 * DAY_S, 30), (1.0, 30 * DAY_S, 30), (90.0, 30 * DAY_S, 90), (0.0, 30 * DAY_S, 0), (0.5, 0, 0.5)],
)
def test_D7_rows_are_kept_at_least_as_long_as_carriers_may_be_old(state_days: float, age_s: int, wanted_days: float):
    assert retention_ms(state_days, age_s) == wanted_days * DAY_MS
