"""When a node that kills executors is shut out, and when it is let in again (DECISIONS 38): stories, step by step."""

from __future__ import annotations

import pytest

from plaita.policy import breaker
from plaita.policy.breaker import Circuit

MIN = 60_000
SPREAD = breaker.SHUT_MS // 10

# (what, carrier, at ms, whether it is shut afterwards and, for "ask", whether the step may begin)
Event = tuple[str, str, int] | tuple[str, str, int, bool]

FIVE_OF_THREE: list[Event] = [("dies", name, 1) for name in ("a", "a", "b", "b", "c")]
STORIES: dict[str, tuple[list[Event], bool]] = {
    "five deaths under three carriers": (FIVE_OF_THREE, True),
    "four are too few": (FIVE_OF_THREE[1:], False),
    "of two carriers: their own budgets see to them": ([("dies", name, 1) for name in "ababababab"], False),
    "a third comes in": ([*[("dies", name, 1) for name in "ababab"], ("dies", "c", 2)], True),
    "not within ten minutes": ([("dies", name, at * 3 * MIN) for at, name in enumerate("abcab")], False),
    "just within": ([("dies", name, at * 2 * MIN) for at, name in enumerate("abcab")], True),
    "the first is ten minutes old": ([("dies", "a", 0), *[("dies", name, 10 * MIN) for name in "bcab"]], False),
    "answers in between do not count": ([*FIVE_OF_THREE[:4], ("answers", "d", 1), ("dies", "c", 1)], True),
    "shut: nobody may": ([*FIVE_OF_THREE, ("ask", "d", 2, False), ("ask", "a", MIN, False)], True),
    "after a minute one may": ([*FIVE_OF_THREE, ("ask", "d", MIN + 1, True), ("ask", "e", MIN + 1, False)], True),
    "the one may ask again, as after a lost executor": (
        [*FIVE_OF_THREE, ("ask", "d", MIN + 1, True), ("ask", "d", MIN + 2, True)],
        True,
    ),
    "its answer opens": (
        [*FIVE_OF_THREE, ("ask", "d", MIN + 1, True), ("answers", "d", MIN + 2), ("ask", "e", MIN + 2, True)],
        False,
    ),
    "another's answer does not": (
        [*FIVE_OF_THREE, ("ask", "d", MIN + 1, True), ("answers", "e", MIN + 2), ("ask", "f", MIN + 2, False)],
        True,
    ),
    "its death shuts for another minute": (
        [
            *FIVE_OF_THREE,
            ("ask", "d", MIN + 1, True),
            ("dies", "d", MIN + 5),
            ("ask", "d", 2 * MIN + 4, False),
            ("ask", "e", 2 * MIN + 5, True),
        ],
        True,
    ),
    "a death from before does not": ([*FIVE_OF_THREE, ("dies", "d", 50_000), ("ask", "e", MIN + 1, True)], True),
    "no end of the probe: another tries at once": (
        [*FIVE_OF_THREE, ("ask", "d", MIN + 1, True), ("nothing", "d", MIN + 2), ("ask", "e", MIN + 2, True)],
        True,
    ),
    "another's end that says nothing changes nothing": (
        [*FIVE_OF_THREE, ("ask", "d", MIN + 1, True), ("nothing", "e", MIN + 2), ("ask", "e", MIN + 2, False)],
        True,
    ),
    "a probe that hangs keeps the others out for a minute": (
        [*FIVE_OF_THREE, ("ask", "d", MIN + 1, True), ("ask", "e", 2 * MIN, False), ("ask", "e", 2 * MIN + 1, True)],
        True,
    ),
    "opened, it takes five again": (
        [*FIVE_OF_THREE, ("ask", "d", MIN + 1, True), ("answers", "d", MIN + 2), ("dies", "e", MIN + 3)],
        False,
    ),
}


@pytest.mark.parametrize("story", STORIES)
def test_38_stories(story: str) -> None:
    events, shut = STORIES[story]
    circuit = Circuit()
    for what, carrier, at, *may in events:
        if what == "dies":
            circuit = breaker.after_death(circuit, carrier, at)
        elif what == "answers":
            circuit = breaker.after_answer(circuit, carrier)
        elif what == "nothing":
            circuit = breaker.after_nothing(circuit, carrier, at)
        else:
            circuit, delay = breaker.ask(circuit, carrier, at)
            assert [delay is None] == may, (what, carrier, at)
    assert circuit.shut is shut


def _shut() -> Circuit:
    circuit = Circuit()
    for name in "aabbc":
        circuit = breaker.after_death(circuit, name, 0)
    return circuit


def test_38_delays_reach_past_the_minute_and_are_spread() -> None:
    delays = {breaker.ask(_shut(), f"e{number}", 20_000)[1] for number in range(200)}
    assert all(delay is not None and 40_000 <= delay < 40_000 + SPREAD for delay in delays)
    assert len(delays) > 150


def test_38_while_one_tries_the_others_come_back_sooner() -> None:
    circuit, _ = breaker.ask(_shut(), "p", 60_000)
    _, delay = breaker.ask(circuit, "q", 60_001)
    assert delay is not None
    assert SPREAD <= delay < 2 * SPREAD


def test_what_is_remembered_is_bounded_and_ages() -> None:
    circuit = Circuit()
    for number in range(1_000):
        circuit = breaker.after_death(circuit, f"e{number % 2}", number)
    assert len(circuit.deaths) == breaker.REMEMBERED
    assert not circuit.idle(1_000)
    assert circuit.idle(1_000 + breaker.WINDOW_MS)
    assert not _shut().idle(10 * breaker.WINDOW_MS)
