"""What follows a step that did not succeed: again at once, again later, or the end (ledger S9-S12, DECISIONS 7, 8,
24)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

NODE_RETRY_TOTAL_MAX = 100  # ledger S12
RETRY_BASE_MS = 1_000
RETRY_CAP_MS = 30_000
DEATH_CAP_MS = 30_000


class Next(Enum):
    AGAIN = "again at once, by this supervisor"
    LATER = "a delayed copy"
    END = "terminal error"


@dataclass(frozen=True, slots=True)
class Verdict:
    """``delay_ms`` counts for LATER; ``dead_letter`` says whether the carrier also goes to the DLQ."""

    next: Next
    delay_ms: int = 0
    dead_letter: bool = False
    reason: str = ""


def _doubling(count: int, base: int, cap: int) -> int:
    """base, 2 base, 4 base ... for counts 1, 2, 3 ..., never above ``cap``, for any count."""
    if count < 1:
        return 0
    return min(cap, base << min(count - 1, 32))


def after_failure(*, retryable: bool, node_failures: int, total_retries: int, max_deliveries: int) -> Verdict:
    """A node raised. ``node_failures`` counts this one and those before it in a row (S11); ``total_retries`` counts all
    retries of the execution, this one included if it is granted (S12)."""
    if not retryable:
        return Verdict(Next.END, reason="not retryable")
    if node_failures >= max_deliveries:
        return Verdict(Next.END, dead_letter=True, reason=f"the node failed {node_failures} times in a row")
    if total_retries > NODE_RETRY_TOTAL_MAX:
        return Verdict(Next.END, dead_letter=True, reason=f"{NODE_RETRY_TOTAL_MAX} retries of one execution")
    return Verdict(Next.LATER, delay_ms=_doubling(node_failures, RETRY_BASE_MS, RETRY_CAP_MS))


def after_death(*, lost: int, max_deliveries: int) -> Verdict:
    """An executor died under a step. ``lost`` counts lost steps of this node in a row, this one included. The wait is
    0, 1, 2, 4 s (DECISIONS 8)."""
    if lost >= max_deliveries:
        return Verdict(Next.END, dead_letter=True, reason=f"{lost} lost steps in a row of one node")
    if lost <= 1:
        return Verdict(Next.AGAIN)
    return Verdict(Next.LATER, delay_ms=_doubling(lost - 1, RETRY_BASE_MS, DEATH_CAP_MS))
