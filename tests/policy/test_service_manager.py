"""What systemd is told: one line a state, and time enough for what may still come."""

from __future__ import annotations

import pytest

from plaita.policy.lifecycle import State, Wish
from plaita.policy.service_manager import LEAVE_MS, UNKNOWN_MS, Facts, Work, extension_ms, status_line

DRAINING = Facts(
    State.DRAINING,
    Wish.STOP,
    left=2,
    oldest=Work("order-17", "charge", 41.6),
    spent_s=12.2,
    timeout_s=30.0,
    drain_left_ms=23_000,
)


def _with(facts: Facts, **fields: object) -> Facts:
    values = {name: getattr(facts, name) for name in Facts.__slots__}
    return Facts(**{**values, **fields})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("facts", "line"),
    [
        (Facts(State.STARTING, Wish.NONE), "starting"),
        (
            Facts(State.STARTING, Wish.NONE, missing=["Redis (refused)", "the template"]),
            "starting: waits for Redis (refused) and the template",
        ),
        (Facts(State.RUNNING, Wish.NONE, answer="3 of 8 busy"), "3 of 8 busy"),
        (
            Facts(State.RUNNING, Wish.NONE, answer="3 of 8 busy", reload="the new template starts"),
            "reloading: the new template starts",
        ),
        (DRAINING, "draining: 2 steps left, oldest order-17 at charge since 42 s, 12 s of 30 s"),
        (_with(DRAINING, left=1, oldest=None), "draining: 1 step left, 12 s of 30 s"),
        (
            _with(DRAINING, killing=True),
            "draining: kills 2 steps, oldest order-17 at charge since 42 s, 12 s of 30 s",
        ),
        (_with(DRAINING, left=0), "drained"),
        (_with(DRAINING, left=0, wish=Wish.DRAIN), "drained; waits for undrain or a stop"),
        (Facts(State.STOPPING, Wish.STOP), "stopping"),
    ],
)
def test_one_line_says_what_it_does(facts: Facts, line: str) -> None:
    assert status_line(facts) == line


@pytest.mark.parametrize(
    ("facts", "milliseconds"),
    [
        (Facts(State.STARTING, Wish.NONE), UNKNOWN_MS),
        (Facts(State.RUNNING, Wish.NONE), None),
        (Facts(State.RUNNING, Wish.NONE, reload="the new template starts"), UNKNOWN_MS),
        (DRAINING, 23_000 + LEAVE_MS),
        (_with(DRAINING, wish=Wish.DRAIN), 23_000 + LEAVE_MS),
        (_with(DRAINING, left=0), LEAVE_MS),
        (Facts(State.STOPPING, Wish.STOP), LEAVE_MS),
    ],
)
def test_it_asks_for_no_less_than_what_may_come(facts: Facts, milliseconds: int | None) -> None:
    assert extension_ms(facts) == milliseconds
