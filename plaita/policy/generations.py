"""Whether a carrier is for hosts like this one: config family and budget generation compared (ledger C3).

The same at a first delivery and at a reclaim; ``store/scripts/take.lua`` leaves what names other ones unclaimed by the
same rule, and a test holds the two together.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import Any

_FAMILY = re.compile(r"cf1-[0-9A-Za-z]+")
_BUDGET = re.compile(r"bg1-[0-9A-Za-z]+")


class Fit(Enum):
    RUNS = "runs"
    OTHER_FAMILY = "config.family_mismatch"
    OTHER_BUDGET = "config.budget_stale"


ADVICE = {
    Fit.OTHER_FAMILY: "it is left for supervisors of its family; compare --queue-name, --consumer-group, --dlq-key and "
    "--key-prefix of its producer with ours",
    Fit.OTHER_BUDGET: "it is left for supervisors with the budget it was made under; drain those before the last of "
    "them is stopped, or run one with the old values until it is done",
}
"""What an operator does about a carrier that is left alone."""


@dataclass(frozen=True, slots=True)
class Stamps:
    """What a carrier says, or what a host is. Empty or None: says nothing, or a host that asks for nothing."""

    config_family: Any = None
    budget_generation: Any = None


@dataclass(frozen=True, slots=True)
class Ruling:
    """``malformed`` names the stamps that are no ids: a warning, and otherwise as if they were not there."""

    fit: Fit
    malformed: tuple[str, ...] = ()


def judge(carrier: Stamps, ours: Stamps) -> Ruling:
    """First match decides: another family, another budget, else it runs. What is missing on either side is legacy and
    always runs."""
    malformed = []
    family = _readable(carrier.config_family, _FAMILY)
    if family is None:
        malformed.append("config_family")
    budget = _readable(carrier.budget_generation, _BUDGET)
    if budget is None:
        malformed.append("budget_generation")
    fit = Fit.RUNS
    if family and ours.config_family and family != ours.config_family:
        fit = Fit.OTHER_FAMILY
    elif budget and ours.budget_generation and budget != ours.budget_generation:
        fit = Fit.OTHER_BUDGET
    return Ruling(fit, tuple(malformed))


def _readable(value: Any, form: re.Pattern[str]) -> str | None:
    """The id, empty where there is none, None where it is no id."""
    if value is None or value == "":
        return ""
    return value if isinstance(value, str) and form.fullmatch(value) else None
