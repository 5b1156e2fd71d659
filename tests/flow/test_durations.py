"""FLOW-FORMAT 2: what a timeout may be."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plaita.flow.durations import DurationError, parse_seconds, parse_timeout


@pytest.mark.parametrize(
    ("value", "milliseconds"),
    [
        (None, None),
        ("", None),
        (0, None),
        ("0", None),
        ("PT0S", None),
        (1, 1),
        (5000, 5000),
        (0.2, 1),
        (1500.5, 1501),
        ("5000", 5000),
        ("007", 7),
        ("1500.5", 1501),
        ("PT5S", 5000),
        ("PT0.3S", 300),
        ("PT0,3S", 300),
        ("PT0.0001S", 1),
        ("PT1M", 60_000),
        ("PT1H30M", 5_400_000),
        ("P1D", 86_400_000),
        ("P1DT2H", 93_600_000),
        ("P2W", 1_209_600_000),
        ("PT1.5H", 5_400_000),
    ],
)
def test_rule_2_legal_durations(value: object, milliseconds: int | None) -> None:
    assert parse_timeout(value) == milliseconds


@pytest.mark.parametrize(
    "value",
    [
        True,
        False,
        -1,
        "-5",
        "5s",
        "5 seconds",
        "PT",
        "P",
        "P1DT",
        "T5S",
        "pt5s",
        "PT5",
        "PT5S ",
        " 5000",
        "٣٣",
        "1e3",
        "PT1.5M30S",
        "PT5S5S",
        "PT-5S",
        math.nan,
        math.inf,
        1e30,
        2**80,
        "9" * 30,
        "9" * 5_000,
        [],
        {"seconds": 5},
        b"5000",
    ],
)
def test_rule_2_bad_durations_name_both_forms(value: object) -> None:
    with pytest.raises(DurationError) as caught:
        parse_timeout(value)
    assert "ISO 8601" in str(caught.value)
    assert "milliseconds" in str(caught.value)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("value", ["P1Y", "P3M", "P1Y2M"])
def test_rule_2_years_and_months_are_refused_with_their_reason(value: str) -> None:
    with pytest.raises(DurationError, match="no fixed length"):
        parse_timeout(value)


@given(st.integers(min_value=1, max_value=10**12))
def test_rule_2_number_and_text_agree(value: int) -> None:
    assert parse_timeout(value) == parse_timeout(str(value)) == value


@given(st.text(max_size=30))
def test_rule_2_any_text_is_judged_without_another_exception(text: str) -> None:
    try:
        result = parse_timeout(text)
    except DurationError:
        return
    assert result is None or result > 0


@pytest.mark.parametrize(
    ("value", "milliseconds"),
    [(None, None), ("", None), (0, None), (1, 1000), (0.25, 250), ("90", 90_000), ("PT5S", 5000), ("P1D", 86_400_000)],
)
def test_a_bare_number_of_a_wait_counts_seconds(value: object, milliseconds: int | None) -> None:
    assert parse_seconds(value) == milliseconds


@pytest.mark.parametrize("value", [True, -1, "soon", "P1Y", math.inf, 1e12, [], "1 h"])
def test_a_bad_length_of_a_wait_names_both_forms(value: object) -> None:
    with pytest.raises(DurationError, match=r"ISO 8601 duration .* a number of seconds \(1800\)"):
        parse_seconds(value)
