"""The slot machine: total; one answer or one exit for each step; only the reaped are replaced."""

from __future__ import annotations

from itertools import product

import pytest

from plaita.policy.slot import TABLE, Slot, SlotAction, SlotEvent, transition


def test_every_cell_is_written() -> None:
    assert set(TABLE) == set(product(Slot, SlotEvent))


@pytest.mark.parametrize(("state", "event"), list(product(Slot, SlotEvent)))
def test_only_a_reaped_process_is_replaced(state: Slot, event: SlotEvent) -> None:
    following, actions = transition(state, event)
    replaced = SlotAction.REPLACE in actions
    assert replaced == (event is SlotEvent.EXITED and state is not Slot.GONE)
    if replaced:
        assert following is Slot.GONE


@pytest.mark.parametrize("state", [Slot.BUSY, Slot.ASKED, Slot.KILLED])
def test_whoever_waits_hears_of_an_exit(state: Slot) -> None:
    assert SlotAction.REPORT_EXIT in transition(state, SlotEvent.EXITED)[1]


@pytest.mark.parametrize("state", [Slot.SPAWNING, Slot.ASKED, Slot.KILLED, Slot.BUSY, Slot.GONE])
def test_a_step_is_given_to_an_idle_executor_only(state: Slot) -> None:
    assert transition(state, SlotEvent.ASSIGN)[1] == (SlotAction.FAULT,)


def test_what_a_killed_executor_says_does_not_count() -> None:
    for event in (SlotEvent.ANSWER, SlotEvent.HELLO):
        assert transition(Slot.KILLED, event) == (Slot.KILLED, ())


@pytest.mark.parametrize("state", list(Slot))
def test_an_answer_counts_only_where_a_step_is_out(state: Slot) -> None:
    delivers = SlotAction.DELIVER in transition(state, SlotEvent.ANSWER)[1]
    assert delivers == (state in (Slot.BUSY, Slot.ASKED))


def test_asked_then_killed_after_the_grace() -> None:
    assert transition(Slot.BUSY, SlotEvent.STOP) == (Slot.ASKED, (SlotAction.ASK,))
    assert transition(Slot.ASKED, SlotEvent.GRACE_OVER) == (Slot.KILLED, (SlotAction.KILL,))
    assert transition(Slot.BUSY, SlotEvent.GRACE_OVER) == (Slot.BUSY, ())
