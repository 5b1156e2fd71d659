"""The doctor's checks of schedules, as a table; borders included."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from plaita.policy.doctor import Finding, Severity, worst
from plaita.policy.doctor.registry import Instance, RegistryFacts, read_record
from plaita.policy.doctor.schedules import ScheduleFacts, judge

ONE = Instance("h1", status="running", queue="q")
NONE = replace(ONE, instance_id="h2", services=False)
KNOWN = RegistryFacts(instances=(ONE,), queue="q")
LATE: dict[str, Any] = {"due": 3, "overdue": 1, "overdue_s": 31.0}


def severity(found: Sequence[Finding], check: str) -> str | None:
    mine = [one for one in found if one.check == check]
    assert all(one.why and one.action for one in mine if one.severity in (Severity.WARNING, Severity.ERROR)), mine
    return worst(mine).value if mine else None


TABLE = [
    ("schedules.due", {"due": 3}, "ok"),
    ("schedules.due", {}, "ok"),
    ("schedules.due", LATE, "error"),
    ("schedules.due", LATE | {"registry": RegistryFacts(readable=False)}, "error"),
    ("schedules.due", {"readable": False}, "note"),
    ("schedules.lost", {}, None),
    ("schedules.lost", {"lost": ("s",)}, "error"),
    ("schedules.aside", {}, None),
    ("schedules.aside", {"aside": ("s",)}, "warning"),
    ("schedules.elsewhere", {}, None),
    ("schedules.elsewhere", {"elsewhere": ("s",)}, "note"),
    ("schedules.looked_at", {}, None),
    ("schedules.looked_at", {"complete": False}, "note"),
]


@pytest.mark.parametrize(("check", "changes", "wanted"), TABLE)
def test_E5_schedules(check: str, changes: dict[str, Any], wanted: str | None) -> None:
    assert severity(judge(replace(ScheduleFacts(KNOWN), **changes)), check) == wanted


@pytest.mark.parametrize(
    ("instances", "why", "action"),
    [
        ((), "no supervisor runs", "systemctl start"),
        ((replace(ONE, status="draining"),), "no supervisor runs", "systemctl start"),
        ((replace(ONE, queue="other"),), "no supervisor runs", "systemctl start"),
        ((NONE,), "(h2) have --no-services", "without --no-services"),
        ((NONE, ONE), "refuses what they write", "the log of h1"),
    ],
)
def test_E1_who_should_have_fired_what_is_overdue(instances: Any, why: str, action: str) -> None:
    facts = replace(ScheduleFacts(RegistryFacts(instances=instances, queue="q")), **LATE)
    [found] = [one for one in judge(facts) if one.check == "schedules.due"]
    assert found.value == "1 of 3 overdue, the oldest by 31 s"
    assert why in found.why
    assert action in found.action


def test_actions_name_the_tenant() -> None:
    told = judge(ScheduleFacts(KNOWN, lost=("s",), aside=("t",), complete=False, tenant="acme"))
    assert [one.check for one in told if "--tenant acme" in one.action] == [
        "schedules.lost",
        "schedules.aside",
        "schedules.looked_at",
    ]


@pytest.mark.parametrize(("config", "services"), [({"services": False}, False), ({"services": True}, True), ({}, True)])
def test_a_record_says_whether_its_host_runs_services(config: dict[str, Any], services: bool) -> None:
    assert read_record("h", "i", {"config": config}, None).services is services
