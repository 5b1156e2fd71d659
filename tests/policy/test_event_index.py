"""Which waits an event ends, by digests (DECISIONS 27, 28; FLOW-FORMAT 2.2): digest and ``matches`` always agree."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plaita import jsontext
from plaita.policy import event_index


def finds(event_filter: dict[str, Any] | None, data: Any, *, named: bool = True) -> bool:
    """Whether an event of these data, correlated as the wait is, looks where a wait with this filter stands."""
    places = event_index.places("t", "c", named=named, event_filter=event_filter)
    paths = event_index.paths_of(places.key_set)
    correlation = "c" if named else None
    return event_index.event_digest("t", correlation, paths, data) in places.digests


DEEP: Any = 1
for _ in range(255):
    DEEP = [DEEP]

CASES = [
    # filter, data, fits
    (None, None, True),
    ({}, {"a": 1}, True),
    (None, [1, 2], True),
    ({"a": 1}, {"a": 1, "b": 2}, True),
    ({"a": 1}, {"a": 2}, False),
    ({"a": 1}, {"b": 1}, False),
    ({"a": 1}, None, False),
    ({"a": 1}, [{"a": 1}], False),
    ({"a": None}, {"a": None}, True),
    ({"a": None}, {}, False),
    # numbers: one value, however it is written; true is none of them
    ({"a": 1}, {"a": 1.0}, True),
    ({"a": 1.0}, {"a": 1}, True),
    ({"a": 1}, {"a": True}, False),
    ({"a": 0}, {"a": False}, False),
    ({"a": 0}, {"a": -0.0}, True),
    ({"a": 0}, {"a": None}, False),
    ({"a": "1"}, {"a": 1}, False),
    ({"a": 1.5}, {"a": 1.5}, True),
    ({"a": 1e300}, {"a": int(1e300)}, True),
    ({"a": 2**53 + 1}, {"a": 2**53}, False),
    ({"a": 10**400}, {"a": 10**400}, True),
    ({"a": 10**400}, {"a": 10**400 + 1}, False),
    ({"a": [1, {"b": 2.0}]}, {"a": [1.0, {"b": 2}]}, True),
    # objects and lists are compared whole
    ({"a": {"b": 1, "c": 2}}, {"a": {"c": 2, "b": 1}}, True),
    ({"a": {"b": 1}}, {"a": {"b": 1, "c": 2}}, False),
    ({"a": [1, 2]}, {"a": [2, 1]}, False),
    ({"a": {}}, {"a": []}, False),
    # dotted paths, and keys that have the dots in their name
    ({"a.b": 1}, {"a": {"b": 1}}, True),
    ({"a.b": 1}, {"a.b": 1}, True),
    ({"a.b": 1}, {"a.b": 2, "a": {"b": 1}}, False),
    ({"a.b": 1}, {"a": {"b": {"c": 1}}}, False),
    ({"a.b": 1}, {"a": [1]}, False),
    ({"a.b.c": 1}, {"a": {"b.c": 1}}, False),
    ({"a": 1, "b.c": "x"}, {"b": {"c": "x"}, "a": 1}, True),
    ({"a": 1, "b.c": "x"}, {"a": 1}, False),
    # texts: no folding, no normalising
    ({"ä": "ö"}, {"ä": "ö"}, True),
    ({"a": "é"}, {"a": "e\u0301"}, False),
    ({"a": "\u2028"}, {"a": "\u2028"}, True),
    ({"\n": ""}, {"\n": ""}, True),
    ({"a": DEEP}, {"a": DEEP}, True),
]  # fmt: skip


@pytest.mark.parametrize(("event_filter", "data", "fits"), CASES)
def test_a_filter_fits_and_the_digest_says_the_same(event_filter: Any, data: Any, fits: bool) -> None:
    assert event_index.matches(event_filter, data) is fits
    assert finds(event_filter, data) is fits
    assert finds(event_filter, data, named=False) is fits


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from([0.0, 1.0, -0.0, 1e22, 2.0**60])
    | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b", "a.b"]), inner, max_size=3),
    max_leaves=8,
)
NAMES = st.sampled_from(["a", "b", "a.b", "b.a", "a.b.a"])
DATA = st.dictionaries(NAMES, VALUES, max_size=3) | VALUES


@given(st.dictionaries(NAMES, VALUES, max_size=3), DATA, st.booleans())
@settings(max_examples=400, deadline=None)
def test_the_digest_is_the_waits_exactly_where_the_filter_fits(
    event_filter: dict[str, Any], data: Any, named: bool
) -> None:
    assert finds(event_filter, data, named=named) is event_index.matches(event_filter, data)


@given(DATA, st.sets(NAMES, max_size=3), st.booleans())
@settings(max_examples=300, deadline=None)
def test_what_is_taken_out_of_the_data_is_found_in_it_also_after_a_journey(
    data: Any, paths: set[str], named: bool
) -> None:
    event_filter = {path: event_index.value_at(data, path)[1] for path in paths if event_index.value_at(data, path)[0]}
    back = jsontext.loads(jsontext.dumps(data))
    assert event_index.matches(event_filter, back)
    assert finds(jsontext.loads(jsontext.dumps(event_filter)), back, named=named)


def test_type_and_correlation_are_part_of_the_digest() -> None:
    one = event_index.places("t", "c", named=True, event_filter={"a": 1})
    assert event_index.event_digest("t", "c", ["a"], {"a": 1}) in one.digests
    assert event_index.event_digest("T", "c", ["a"], {"a": 1}) not in one.digests
    assert event_index.event_digest("t", "d", ["a"], {"a": 1}) not in one.digests
    assert event_index.event_digest("t", None, ["a"], {"a": 1}) not in one.digests, "its author gave a correlation"


def test_a_wait_whose_author_gave_no_correlation_is_found_by_both() -> None:
    one = event_index.places("t", "x1", named=False, event_filter=None)
    assert len(one.digests) == 2
    assert event_index.event_digest("t", "x1", [], None) in one.digests
    assert event_index.event_digest("t", None, [], None) in one.digests
    assert event_index.event_digest("t", "x2", [], None) not in one.digests


def test_no_type_and_correlation_read_as_another_pair() -> None:
    pairs = [("t", "c"), ("tc", ""), ("", "tc"), ('t","c', ""), ("t", 'c",[')]
    digests = {event_index.kept_digest(*pair) for pair in pairs}
    assert len(digests) == len(pairs)
    assert event_index.event_digest("t", None, [], None) != event_index.event_digest("t", "null", [], None)


@pytest.mark.parametrize("event_filter", [{}, {"a": 1}, {"b": 1, "a": 2}, {"ä.ö": 1}, {'"': 1, "\n": 2}])
def test_a_key_set_is_read_back_sorted(event_filter: dict[str, Any]) -> None:
    key_set = event_index.key_set_of(event_filter)
    assert event_index.paths_of(key_set) == sorted(event_filter)
    assert key_set == event_index.key_set_of(dict(reversed(event_filter.items())))


@pytest.mark.parametrize("text", ["", "{}", "[1]", "nothing", '["a"'])
def test_what_is_no_key_set_is_an_error(text: str) -> None:
    with pytest.raises(ValueError):
        event_index.paths_of(text)
