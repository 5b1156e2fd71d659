"""Whether a tenant may begin anything now: its status, the epoch of the statuses, and its quota (ledger T2, T3). Pure.

The statuses in Redis are written by one deployment, which says which one by its epoch. A host that expects another
epoch does not know whether what it reads is meant for it, so it judges by none of them.

The Lua twin is ``scripts/lib/tenant_gate.lua``; a table test holds them together.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

DEFAULT_TENANT = "default"
DISABLED = "disabled"
STATUSES = ("active", DISABLED)

_DIGITS = re.compile(r"[0-9]+")


class Verdict(Enum):
    ACTIVE = "active"
    DISABLED = "tenant_disabled"  # its carriers are dropped
    EPOCH = "tenant_epoch"  # its carriers are left to others, at no cost


@dataclass(frozen=True, slots=True)
class Ruling:
    """``why``, of EPOCH only: ``missing``, ``older`` or ``newer``, of the epoch in Redis beside the expected one."""

    verdict: Verdict
    why: str = ""


def judge(tenant: str, status: str | None, epoch: str | None, expected_epoch: str | None, *, strict: bool) -> Ruling:
    """``status`` and ``epoch`` as they stand in Redis, None where missing or unreadable: such a status is active (T2).

    Without ``expected_epoch``, or not ``strict``, no epoch is looked at. The default tenant is open under any.
    """
    if tenant not in ("", DEFAULT_TENANT):
        why = epoch_trouble(epoch, expected_epoch, strict=strict)
        if why:
            return Ruling(Verdict.EPOCH, why)
    return Ruling(Verdict.DISABLED if status == DISABLED else Verdict.ACTIVE)


def epoch_trouble(epoch: str | None, expected: str | None, *, strict: bool) -> str:
    """How the epoch in Redis differs from the expected one: ``missing``, ``older``, ``newer``, or '' where it fits."""
    if not strict or not expected:
        return ""
    if not epoch:
        return "missing"
    there, ours = _order(epoch, expected)
    if there == ours:
        return ""
    return "older" if there < ours else "newer"


def _order(left: str, right: str) -> tuple[tuple[int, bytes], tuple[int, bytes]]:
    """What sorts like the epochs: as whole numbers where both are digits only, else as text, by its UTF-8."""
    if _DIGITS.fullmatch(left) and _DIGITS.fullmatch(right):
        numbers = left.lstrip("0"), right.lstrip("0")  # compared by length first: they may be of any size
        return (len(numbers[0]), numbers[0].encode()), (len(numbers[1]), numbers[1].encode())
    return (0, left.encode("utf-8", "surrogateescape")), (0, right.encode("utf-8", "surrogateescape"))


def quota_of(text: str | None) -> int | None:
    """How many executions may run at a time; None for no limit: missing, 0, or nothing that can be read."""
    return int(text) or None if text is not None and _DIGITS.fullmatch(text) else None
