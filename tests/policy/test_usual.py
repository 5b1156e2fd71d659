"""When a running step is named as stuck (DECISIONS 24)."""

from __future__ import annotations

import pytest

from plaita.policy.usual import is_stuck, usual_ms


@pytest.mark.parametrize(
    ("lengths", "usual"),
    [
        ([], None),
        ([5, 5, 5, 5], None),
        ([5, 5, 5, 5, 5], 5),
        ([1, 2, 3, 4, 1_000_000], 3),  # one that hung does not change what is usual
        ([9, 1, 5, 7, 3, 8], 7),
    ],
)
def test_24_the_usual_length_is_the_median_of_enough_lengths(lengths: list[int], usual: int | None) -> None:
    assert usual_ms(lengths) == usual


@pytest.mark.parametrize(
    ("elapsed", "usual", "limit", "stuck"),
    [
        (10_000, 5, None, False),  # the floor
        (10_001, 5, None, True),
        (19_000, 2_000, None, False),
        (20_001, 2_000, None, True),
        (3_600_000, None, None, False),  # nothing is known of it
        (3_600_001, None, None, True),
        (50_000, 5, 60_000, False),  # a limit will end it
        (75_000, 5, 60_000, False),
        (75_001, 5, 60_000, True),  # and has not
    ],
)
def test_24_ten_times_its_usual_length(elapsed: int, usual: int | None, limit: int | None, stuck: bool) -> None:
    assert is_stuck(elapsed, usual=usual, limit_ms=limit, grace_ms=5_000) is stuck
