"""Ledger Q4: every combination of facts, each row of the table in words."""

from __future__ import annotations

import itertools

import pytest

from plaita.policy.dead_letter_guard import UNKNOWN_EXECUTION, UNREADABLE, Facts, Lease, Verdict, judge

STATUSES = (None, "pending", "running", "suspended", "completed", "error", "cancelled")
EVERY = [
    Facts(known, readable, status, lease, spent, tombstoned, rejected)
    for known, readable, status, lease, spent, tombstoned, rejected in itertools.product(
        (True, False), (True, False), STATUSES, Lease, (True, False), (True, False), (True, False)
    )
]


def ledger(facts: Facts) -> Verdict:
    """The ledger's sentence, step by step, in another form than the code."""
    alive = facts.known and facts.status in ("pending", "running", "suspended")
    rows = [
        (not facts.readable, Verdict.KEEP),
        (not alive, Verdict.LET_GO),
        (facts.lease is Lease.ANOTHER, Verdict.KEEP),
        (facts.schema_rejected, Verdict.LET_GO),
        (facts.tombstoned, Verdict.LET_GO),
        (facts.budget_spent, Verdict.END),
        (facts.lease is Lease.NOBODY, Verdict.LET_GO_WITH_COPY),
        (True, Verdict.KEEP),
    ]
    return next(verdict for applies, verdict in rows if applies)


def test_Q4_the_whole_table():
    assert len(EVERY) == 2 * 2 * 7 * 3 * 2 * 2 * 2
    wrong = [(facts, judge(facts)) for facts in EVERY if judge(facts) is not ledger(facts)]
    assert wrong == []


@pytest.mark.parametrize("facts", [facts for facts in EVERY if not facts.readable])
def test_Q4_what_cannot_be_read_is_never_given_up(facts: Facts):
    assert judge(facts) is Verdict.KEEP


def test_Q4_a_lease_of_another_keeps_whatever_else_is_true():
    kept = [
        f for f in EVERY if f.known and f.lease is Lease.ANOTHER and f.status in ("pending", "running", "suspended")
    ]
    assert kept
    assert {judge(facts) for facts in kept} == {Verdict.KEEP}


def test_Q4_a_copy_only_for_a_living_execution_that_nobody_holds():
    for facts in EVERY:
        if judge(facts) is Verdict.LET_GO_WITH_COPY:
            assert (facts.readable, facts.known, facts.lease) == (True, True, Lease.NOBODY)
            assert facts.status in ("pending", "running", "suspended")
            assert not any((facts.tombstoned, facts.schema_rejected, facts.budget_spent))


def test_Q6_a_schema_rejection_neither_copies_nor_ends():
    verdicts = {judge(facts) for facts in EVERY if facts.schema_rejected}
    assert verdicts == {Verdict.KEEP, Verdict.LET_GO}


def test_D2_nothing_is_copied_or_ended_for_a_tombstone():
    verdicts = {judge(facts) for facts in EVERY if facts.tombstoned}
    assert verdicts == {Verdict.KEEP, Verdict.LET_GO}


def test_the_two_names():
    assert judge(UNREADABLE) is Verdict.KEEP
    assert judge(UNKNOWN_EXECUTION) is Verdict.LET_GO
