"""Whose event is next (KNOWN-TROUBLE 73)."""

from __future__ import annotations

import random

import pytest

from plaita.policy.event_turns import LANES, Row, Turns, before, lane_of, order_of


def begun(turns: Turns[int]) -> list[tuple[str, int]]:
    """All that may begin now."""
    found = []
    while (turn := turns.begin()) is not None:
        found.append((turn[0][0], turn[1]))
    return found


def test_tenants_take_turns_and_none_has_all_places() -> None:
    turns: Turns[int] = Turns(at_once=4, of_one=3)
    for number in range(6):
        turns.hold("a", ("a", "t", str(number)), number)
    assert begun(turns) == [("a", 0), ("a", 1), ("a", 2)], "one place is for others"
    turns.hold("b", ("b", "t", "x"), 7)
    turns.hold("b", ("b", "t", "y"), 8)
    assert begun(turns) == [("b", 7)]
    turns.end(("a", "t", "0"))
    assert begun(turns) == [("a", 3)]
    turns.end(("a", "t", "1"))
    assert begun(turns) == [("b", 8)]


def test_the_turns_go_round() -> None:
    turns: Turns[int] = Turns(at_once=1, of_one=1)
    for tenant, many in (("a", 4), ("b", 2), ("c", 1)):
        for number in range(many):
            turns.hold(tenant, (tenant, "t", str(number)), number)
    order = []
    while (turn := turns.begin()) is not None:
        order.append(turn[0][0])
        turns.end(turn[0])
    assert "".join(order) == "abcabaa"


def test_a_row_goes_one_after_the_other_and_holds_up_no_other_row() -> None:
    turns: Turns[int] = Turns(at_once=8, of_one=8)
    for number in range(3):
        turns.hold("a", ("a", "t", None), number)
    turns.hold("a", ("a", "t", "x"), 3)
    assert begun(turns) == [("a", 0), ("a", 3)]
    turns.hold("a", ("a", "t", "x"), 4)
    assert begun(turns) == []
    turns.end(("a", "t", None))
    assert begun(turns) == [("a", 1)]


def test_of_a_tenant_so_many_are_held_and_none_is_shut_out() -> None:
    turns: Turns[int] = Turns(at_once=1, of_one=1, held=6, held_of_one=4)
    for tenant in ("a", "b"):
        while turns.takes(tenant):
            turns.hold(tenant, (tenant, "t", None), 0)
    assert turns.takes("c"), "though six are held"
    turns.hold("c", ("c", "t", None), 0)
    assert not turns.takes("c")
    held = [turns.is_low(tenant) for tenant in ("a", "b", "c", "d")]
    assert held == [False, False, False, True]
    for _ in range(5):
        turn = turns.begin()
        assert turn is not None
        turns.end(turn[0])
    assert all(turns.takes(tenant) for tenant in "abc")


def test_however_many_lanes_there_are_only_so_many_events_are_held() -> None:
    turns: Turns[int] = Turns(at_once=1, of_one=1, held=6, held_of_one=4)
    held = 0
    for number in range(100):
        if turns.takes(f"t{number}"):
            turns.hold(f"t{number}", (f"t{number}", "t", None), 0)
            held += 1
    assert held == 24
    turn = turns.begin()
    assert turn is not None
    assert turns.takes("another")


@pytest.mark.parametrize("seed", range(20))
def test_whatever_comes_each_is_begun_once_and_a_row_in_its_order(seed: int) -> None:
    chance = random.Random(seed)
    turns: Turns[int] = Turns(at_once=5, of_one=3, held=30, held_of_one=12)
    held: dict[Row, list[int]] = {}
    done: dict[Row, list[int]] = {}
    working: list[Row] = []
    number = 0
    for _ in range(2000):
        tenant = chance.choice("aaab")
        row: Row = (tenant, chance.choice("tu"), chance.choice([None, "x"]))
        if chance.random() < 0.5 and turns.takes(tenant):
            number += 1
            turns.hold(tenant, row, number)
            held.setdefault(row, []).append(number)
        elif chance.random() < 0.5 and (turn := turns.begin()) is not None:
            assert turn[0] not in working
            working.append(turn[0])
            done.setdefault(turn[0], []).append(turn[1])
        elif working:
            turns.end(working.pop(chance.randrange(len(working))))
        assert len(working) <= 5
        assert sum(one[0] == "a" for one in working) <= 3
    while True:
        while working:
            turns.end(working.pop())
        turn = turns.begin()
        if turn is None:
            break
        working.append(turn[0])
        done.setdefault(turn[0], []).append(turn[1])
    assert done == held


@pytest.mark.parametrize(
    ("log_id", "below"),
    [("5-3", "5-2"), ("5-0", "4-18446744073709551615"), ("0-1", "0-0"), ("0-0", "0-0")],
)
def test_the_id_just_below(log_id: str, below: str) -> None:
    assert before(log_id) == below
    assert order_of(below) <= order_of(log_id)


def test_tenants_share_no_lane_and_their_types_few() -> None:
    lanes = {lane_of(tenant, f"type {number}") for tenant in ("a", "b", "a 1", "") for number in range(100)}
    assert len(lanes) == 4 * LANES
    assert lane_of("a", "\udcff")
