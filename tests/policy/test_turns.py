"""Whose turn it is when wake-ups and starts both wait (DECISIONS 6, docs/decisions/0006)."""

from __future__ import annotations

import random

import pytest

from plaita.policy.turns import WAKES_A_START, owed_after, starts_first


@pytest.mark.parametrize(
    ("owed", "places", "expected"), [(0, 1, 0), (2, 1, 0), (3, 1, 1), (3, 0, 0), (8, 8, 2), (100, 2, 2)]
)
def test_places_kept_for_starts(owed: int, places: int, expected: int) -> None:
    assert starts_first(owed, places) == expected


@pytest.mark.parametrize(
    ("owed", "reserved", "wakes", "starts", "expected"),
    [
        (0, 0, 1, 0, 1),
        (3, 1, 0, 1, 0),
        (3, 1, 0, 0, 0),  # no start waits
        (8, 2, 6, 2, 8),
        (2, 0, 0, 5, 0),
        (9, 3, 5, 2, 0),
    ],
)
def test_what_is_owed_after_a_round(owed: int, reserved: int, wakes: int, starts: int, expected: int) -> None:
    assert owed_after(owed, reserved=reserved, wakes=wakes, starts=starts) == expected


def test_with_both_waiting_starts_get_every_fourth_place_however_many_are_free() -> None:
    chance = random.Random(7)
    owed = wakes = starts = 0
    for _ in range(5_000):
        places = chance.choice((1, 1, 1, 2, 8))
        kept = starts_first(owed, places)
        owed = owed_after(owed, reserved=kept, wakes=places - kept, starts=kept)
        wakes, starts = wakes + places - kept, starts + kept
        assert starts * WAKES_A_START <= wakes  # an approval never waits behind a backlog of starts
        assert wakes - starts * WAKES_A_START < 2 * 8 * WAKES_A_START  # nor a start behind one of retries
