"""Ledger C3: whether a carrier is for hosts like this one."""

from __future__ import annotations

import itertools

import pytest

from plaita.policy.generations import Fit, Ruling, Stamps, judge

OURS = Stamps("cf1-aa", "bg1-aa")
FAMILIES = {None: "legacy", "": "legacy", "cf1-aa": "same", "cf1-bb": "other", "cf1-": "bad", 7: "bad", "x": "bad"}
BUDGETS = {None: "legacy", "": "legacy", "bg1-aa": "same", "bg1-bb": "other", "BG1-AA": "bad", "cf1-aa": "bad"}


def test_C3_the_whole_table():
    for (family, kind), (budget, budget_kind) in itertools.product(FAMILIES.items(), BUDGETS.items()):
        ruling = judge(Stamps(family, budget), OURS)
        wanted = Fit.OTHER_FAMILY if kind == "other" else Fit.OTHER_BUDGET if budget_kind == "other" else Fit.RUNS
        bad = (("config_family",) if kind == "bad" else ()) + (("budget_generation",) if budget_kind == "bad" else ())
        assert ruling == Ruling(wanted, bad), (family, budget)


@pytest.mark.parametrize("carrier", [Stamps("cf1-bb", "bg1-bb"), Stamps("cf1-bb"), Stamps(None, "bg1-bb")])
def test_C3_a_host_that_asks_for_nothing_runs_all(carrier: Stamps):
    assert judge(carrier, Stamps()).fit is Fit.RUNS
    assert judge(carrier, Stamps("", "")).fit is Fit.RUNS


def test_C3_the_events_are_spelled_as_in_the_ledger():
    assert Fit.OTHER_FAMILY.value == "config.family_mismatch"
    assert Fit.OTHER_BUDGET.value == "config.budget_stale"
