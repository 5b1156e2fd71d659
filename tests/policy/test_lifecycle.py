"""The supervisor's machine: total, and true to DECISIONS 32 and ledger G1, R6."""

from __future__ import annotations

from itertools import product

import pytest

from plaita.policy.lifecycle import TABLE, Action, Event, State, Step, Wish, transition


def test_every_cell_is_written_and_every_wish_is_answered() -> None:
    assert set(TABLE) == set(product(State, Event))
    for cell in TABLE.values():
        assert isinstance(cell, Step) or set(cell) == set(Wish)


@pytest.mark.parametrize(("state", "wish", "event"), list(product(State, Wish, Event)))
def test_every_transition_answers(state: State, wish: Wish, event: Event) -> None:
    following, wanted, actions = transition(state, wish, event)
    assert following in State
    assert wanted in Wish
    assert all(action in Action for action in actions)
    if state is State.STOPPED:
        assert following is State.STOPPED
    if state is State.STOPPING:
        assert following in (State.STOPPING, State.STOPPED)


@pytest.mark.parametrize(("state", "wish", "event"), list(product(State, Wish, Event)))
def test_the_gate_opens_exactly_on_the_way_into_running(state: State, wish: Wish, event: Event) -> None:
    following, _, actions = transition(state, wish, event)
    entered = following is State.RUNNING and state is not State.RUNNING
    assert (Action.OPEN_GATE in actions) == entered
    left = state is State.RUNNING and following is not State.RUNNING
    if left:
        assert Action.CLOSE_GATE in actions
        assert Action.ANNOUNCE in actions


@pytest.mark.parametrize("wish", list(Wish))
def test_G1_nothing_leads_back_from_a_stop(wish: Wish) -> None:
    for state in (State.STOPPING, State.STOPPED):
        for event in Event:
            assert transition(state, wish, event)[0] in (State.STOPPING, State.STOPPED)


def _walk(*events: Event) -> tuple[State, Wish, list[Action]]:
    state, wish, performed = State.STARTING, Wish.NONE, []
    for event in events:
        state, wish, actions = transition(state, wish, event)
        performed += actions
    return state, wish, performed


@pytest.mark.parametrize(
    ("events", "state"),
    [
        ((Event.READY,), State.RUNNING),
        ((Event.DRAIN_ASKED, Event.READY), State.DRAINING),  # G1: a drain before it stays draining
        ((Event.DRAIN_ASKED, Event.DRAIN_UNDONE, Event.READY), State.RUNNING),
        ((Event.READY, Event.DRAIN_ASKED, Event.IDLE), State.DRAINING),  # a drain command stays
        ((Event.READY, Event.DRAIN_ASKED, Event.DRAIN_UNDONE), State.RUNNING),
        ((Event.READY, Event.STOP_ASKED), State.DRAINING),
        ((Event.READY, Event.STOP_ASKED, Event.DRAIN_UNDONE), State.DRAINING),  # undrain is refused
        ((Event.READY, Event.STOP_ASKED, Event.IDLE), State.STOPPING),
        ((Event.READY, Event.DRAIN_ASKED, Event.STOP_ASKED, Event.IDLE), State.STOPPING),
        ((Event.READY, Event.STOP_ASKED, Event.IDLE, Event.IDLE), State.STOPPED),
        ((Event.STOP_ASKED,), State.DRAINING),  # SIGTERM during the start
        ((Event.STOP_ASKED, Event.IDLE), State.STOPPING),
        ((Event.STOP_ASKED, Event.READY), State.DRAINING),
        ((Event.FATAL, Event.IDLE), State.STOPPING),
        ((Event.READY, Event.FATAL, Event.IDLE), State.STOPPING),
    ],
)
def test_walks(events: tuple[Event, ...], state: State) -> None:
    assert _walk(*events)[0] is state


def test_undrain_after_a_stop_is_refused() -> None:
    assert Action.REFUSE in _walk(Event.READY, Event.STOP_ASKED, Event.DRAIN_UNDONE)[2]


def test_r2_a_drain_during_the_start_has_its_time_too() -> None:
    """Work is taken before there is an entry in the registry (G3)."""
    assert Action.START_DEADLINE in _walk(Event.DRAIN_ASKED)[2]
    assert _walk(Event.DRAIN_ASKED, Event.DEADLINE)[2][-1] is Action.KILL_ALL
    assert Action.CANCEL_DEADLINE in _walk(Event.DRAIN_ASKED, Event.DRAIN_UNDONE)[2]
    assert Action.KILL_ALL not in _walk(Event.DRAIN_ASKED, Event.DRAIN_UNDONE, Event.DEADLINE)[2]


def test_r2_the_deadline_and_a_second_signal_kill() -> None:
    assert Action.KILL_ALL in _walk(Event.READY, Event.STOP_ASKED, Event.DEADLINE)[2]
    assert Action.KILL_ALL in _walk(Event.READY, Event.STOP_ASKED, Event.FORCED)[2]
    assert Action.KILL_ALL not in _walk(Event.READY, Event.STOP_ASKED, Event.IDLE)[2]
