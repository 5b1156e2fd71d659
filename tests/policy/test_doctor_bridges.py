"""What ``doctor`` says of queues on other servers (DECISIONS 41)."""

from __future__ import annotations

from plaita.policy.doctor.bridges import BridgeFacts, judge


def test_E1_nothing_is_said_where_nothing_waits() -> None:
    assert judge(BridgeFacts(0)) == []


def test_E1_waits_that_all_are_read_for_are_fine() -> None:
    [found] = judge(BridgeFacts(2))
    assert (found.severity.value, found.value) == ("ok", "2 waits for queues, all read for")


def test_E1_waits_that_nobody_reads_for_and_leftovers_are_warned_of_each_by_itself() -> None:
    unread, left = judge(BridgeFacts(3, 1, 600.0, {"q:1/0": 2, "q:2/0": 5}, 86_400.0, more=True))
    assert (unread.check, unread.severity.value) == ("queue.bridges", "warning")
    assert unread.value.startswith("1 of 3 waits for queues that no host reads for, the oldest waits for 10 min")
    assert (left.check, left.severity.value) == ("queue.bridges_left", "warning")
    assert left.value.startswith("7 waits or more over with messages left")
    assert left.value.endswith("q:2/0 5, q:1/0 2")
    assert "after 30 days" in left.why
