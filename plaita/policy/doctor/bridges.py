"""Queues on other servers: does somebody read for those that wait, and what have waits that are over left there
(DECISIONS 41)?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from plaita.policy.bridges import KEEP_LEFTOVERS_MS
from plaita.policy.doctor.finding import Finding, fine, plural, sample, span, warning

GRACE_MS = 120_000
"""A wait may be without a reader, and a record without its end, for so long."""


@dataclass(frozen=True, slots=True)
class BridgeFacts:
    """``waits``: all there are; ``unread``: of the oldest, those that no host reads for, for ``unread_s`` at the most.
    ``left``: waits that are over and have something left to do, by server and queue, the oldest for ``left_s``;
    complete unless ``more``."""

    waits: int
    unread: int = 0
    unread_s: float = 0.0
    left: Mapping[str, int] = field(default_factory=dict)
    left_s: float = 0.0
    more: bool = False


def judge(facts: BridgeFacts) -> list[Finding]:
    """Nothing is said where nothing waits and nothing is left."""
    found = []
    if facts.unread:
        found.append(
            warning(
                "queue.bridges",
                f"{facts.unread} of {plural(facts.waits, 'wait')} for queues that no host reads for, the oldest waits "
                f"for {span(facts.unread_s)}",
                "each read for by a host",
                "no host runs services, none may connect to that server, or none reaches it",
                "plaita-supervisor status on each host (services, queue.target_away in the log); "
                "PLAITA_REDIS_NODE_TARGETS",
            )
        )
    elif facts.waits:
        found.append(fine("queue.bridges", f"{plural(facts.waits, 'wait')} for queues, all read for"))
    if facts.left:
        shown = [f"{place} {count}" for place, count in sorted(facts.left.items(), key=lambda one: -one[1])]
        found.append(
            warning(
                "queue.bridges_left",
                f"{plural(sum(facts.left.values()), 'wait')}{' or more' if facts.more else ''} over with messages left "
                f"on servers that nobody reaches, for {span(facts.left_s)}: {sample(shown)}",
                "0",
                f"lists QUEUE:processing:ID there hold messages; after {KEEP_LEFTOVERS_MS // 86_400_000} days they are "
                "given up, and lie there until a person puts them back",
                "bring that server back, and keep it in PLAITA_REDIS_NODE_TARGETS; docs/waiting.md, Queues",
            )
        )
    return found
