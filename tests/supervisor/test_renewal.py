"""A reload takes one executor at a time: whose turn it is."""

from __future__ import annotations

from plaita.policy.slot import Slot
from plaita.supervisor.executor import Executor
from plaita.supervisor.renewal import Renewal


def _idle(slot: int, seq: int) -> Executor:
    return Executor(slot=slot, seq=seq, state=Slot.IDLE)


def test_one_leaves_and_the_next_only_when_a_new_one_stands_in_its_place() -> None:
    renewal = Renewal()
    first, second = _idle(0, 1), _idle(1, 2)
    assert not renewal.leaves(first)  # nothing is old before the first reload
    renewal.begin(3)
    assert renewal.leaves(first)
    assert not renewal.leaves(second)
    renewal.stands(_idle(1, 3))  # another slot's: it died meanwhile and was replaced
    assert not renewal.leaves(second)
    renewal.stands(_idle(0, 4))
    assert renewal.leaves(second)


def test_one_that_is_at_a_step_stays_until_it_is_over() -> None:
    renewal = Renewal()
    renewal.begin(3)
    busy = Executor(slot=0, seq=1, state=Slot.BUSY)
    assert not renewal.leaves(busy)
    assert renewal.leaves(_idle(1, 2))


def test_a_second_reload_waits_for_the_place_that_is_open() -> None:
    renewal = Renewal()
    renewal.begin(3)
    assert renewal.leaves(_idle(0, 1))
    renewal.begin(4)
    between = _idle(0, 3)  # forked by the template that was overtaken
    renewal.stands(between)
    assert not renewal.leaves(_idle(1, 2))
    assert renewal.leaves(between)
    renewal.stands(_idle(0, 4))
    assert renewal.leaves(_idle(1, 2))
