"""The exit code that a life ends with (DECISIONS 31)."""

from __future__ import annotations

import pytest

from plaita.supervisor.life import EXIT_BUG, EXIT_CONFIGURATION, EXIT_KILLED_WORK, Drain, Life


@pytest.mark.parametrize(
    ("reasons", "code"),
    [
        ([], 0),
        ([EXIT_KILLED_WORK], 75),
        ([EXIT_BUG, EXIT_KILLED_WORK], 70),  # the kills that a bug leads to do not hide it
        ([EXIT_KILLED_WORK, EXIT_BUG], 70),
        ([EXIT_CONFIGURATION, EXIT_KILLED_WORK], 78),  # systemd must not start it again
    ],
)
def test_the_worst_reason_is_told(reasons: list[int], code: int) -> None:
    life = Life(Drain())
    for reason in reasons:
        life.ends_with(reason)
    assert life.exit_code == code


def test_a_receipt_counts_from_the_begin_of_the_drain() -> None:
    drain = Drain(before={"finished": 5, "handed_on": 0, "killed": 2}, left=1)
    assert drain.receipt({"finished": 7, "handed_on": 3, "killed": 2, "steps": 9}) == {
        "finished": 2,
        "handed_on": 3,
        "killed": 0,
        "left": 1,
    }
