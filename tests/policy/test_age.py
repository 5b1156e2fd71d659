"""Ledger D3: how old a carrier is."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plaita.policy.age import (
    LATEST_MS,
    Ruling,
    Verdict,
    entry_ms,
    first_enqueued_ms,
    judge,
    timestamp_ms,
    too_old_after_ms,
)

DAY = 86_400_000
NOW = 1_700_000_000_000


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        ("2023-11-14T22:13:20Z", NOW),
        ("2023-11-14T22:13:20", NOW),
        ("2023-11-15T00:13:20.000+02:00", NOW),
        (b"2023-11-14T22:13:20Z", NOW),
        (NOW, NOW),
        (NOW / 1000, NOW),
        (str(NOW), NOW),
        ("1700000000.0", NOW),
        ("1796051941006", 1_796_051_941_006),  # digits that can be read as a date of the year 1796
        (b"1796051941", 1_796_051_941_000),
        (None, None),
        ("", None),
        ("soon", None),
        (True, None),
        ([], None),
        (float("nan"), None),
        (float("inf"), None),
        ("nan", None),
        (-5, None),
        (0, None),
        (10**30, None),
        ("9999-12-31T23:59:59-14:00", None),
        ("0001-01-01T00:00:00+14:00", None),
        (b"\xff\xfe", None),
    ],
)
def test_D3_times_of_producers(value: Any, wanted: int | None):
    assert timestamp_ms(value) == wanted


@given(st.integers(100_000_000_000, LATEST_MS))
def test_D3_milliseconds_as_text_are_those_milliseconds(ms: int):
    assert timestamp_ms(str(ms)) == timestamp_ms(str(ms).encode()) == ms


@pytest.mark.parametrize(
    ("entry_id", "wanted"),
    [("5-0", 5), (f"{NOW}-17", NOW), ("0-1", None), (f"{LATEST_MS + 1}-0", None), ("x", None), ("5", None)],
)
def test_D3_times_of_entries(entry_id: str, wanted: int | None):
    assert entry_ms(entry_id) == wanted


@pytest.mark.parametrize(
    ("times", "wanted"),
    [
        ((f"{NOW}-0", None, None), NOW),
        ((f"{NOW}-0", NOW - DAY), NOW - DAY),
        ((f"{NOW}-0", NOW + DAY), NOW),
        ((f"{NOW}-0", "soon", NOW - DAY), NOW - DAY),
        (("0-1", NOW), NOW),
        (("0-1", "soon"), None),
    ],
)
def test_D3_the_earliest_counts(times: tuple[Any, ...], wanted: int | None):
    assert first_enqueued_ms(*times) == wanted


@pytest.mark.parametrize(
    ("first", "limit", "wanted"),
    [
        (NOW - DAY, DAY, Ruling(Verdict.RUNS, DAY)),
        (NOW - DAY - 1, DAY, Ruling(Verdict.TOO_OLD, DAY + 1)),
        (NOW + DAY, DAY, Ruling(Verdict.RUNS, 0)),
        (None, DAY, Ruling(Verdict.UNKNOWN)),
        (None, 0, Ruling(Verdict.RUNS, None)),
        (1, 0, Ruling(Verdict.RUNS, NOW - 1)),
    ],
)
def test_D3_the_limit(first: int | None, limit: int, wanted: Ruling):
    assert judge(first, NOW, limit) == wanted


@pytest.mark.parametrize(
    ("first", "limit", "last"), [(1000, 50, 1050), (1000, 0, None), (None, 50, None), (None, 0, None)]
)
def test_D3_the_last_moment_is_the_one_that_the_judgement_has(first: int | None, limit: int, last: int | None) -> None:
    assert too_old_after_ms(first, limit) == last
    if last is not None:
        assert judge(first, last, limit).verdict is Verdict.RUNS
        assert judge(first, last + 1, limit).verdict is Verdict.TOO_OLD
