"""Where a carrier that names a host, or a path of a host, may run (ledger G4, DECISIONS 12): a wish with an end, not a
promise. Pure.

A host that is not the one named, or has no such path, puts the same body back for a while, so that another one meets
it. The while grows each time that a host meets it again, not with the number of hosts: among many, the right one is met
as soon as among few. It is bounded by time; then anybody may run it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

FIRST_DELAY_MS = 250
LONGEST_DELAY_MS = 5_000
MET_AT_MOST = 32  # hosts that a copy names
COUNT_FIELD, SINCE_FIELD = "handovers", "handover_since"  # of the copy's entry, beside the body
ROUNDS_FIELD, MET_FIELD = "handover_rounds", "handover_met"
FIELDS = frozenset({COUNT_FIELD, SINCE_FIELD, ROUNDS_FIELD, MET_FIELD})


class Verdict(Enum):
    RUN_HERE = "run here"
    HAND_OVER = "hand over"
    BROADCAST = "target gone or not running: for anybody"
    EXHAUSTED = "not met in time by a host that it is for: for anybody"
    KEEP = "Redis unreadable: the carrier stays as it is"


@dataclass(frozen=True, slots=True)
class Handover:
    """``count``: how often it was handed over; ``since_ms``: when for the first time, by Redis; None before that.
    ``rounds``: how often a host met it again; ``met``: the hosts that have met it since the last such time."""

    count: int = 0
    since_ms: int | None = None
    rounds: int = 0
    met: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Target:
    """``readable``: whether the registry answered. ``status`` of its entry, None without one."""

    readable: bool
    status: str | None = None


@dataclass(frozen=True, slots=True)
class Ruling:
    """``delay_ms`` and ``handover`` (what the copy says) are those of a HAND_OVER."""

    verdict: Verdict
    delay_ms: int = 0
    handover: Handover = Handover()


def is_for(target: str | None, instance_id: str) -> bool:
    """Whether this instance may run it without looking any further."""
    return not target or target == instance_id


def judge(
    *, ours: bool, target: Target, instance_id: str, handover: Handover, now_ms: int | None, patience_ms: int
) -> Ruling:
    """``ours``: ``is_for`` of this instance. ``now_ms``: by Redis, None where it cannot be read."""
    if ours:
        return Ruling(Verdict.RUN_HERE)
    if not target.readable or now_ms is None:
        return Ruling(Verdict.KEEP)
    if target.status != "running":
        return Ruling(Verdict.BROADCAST)
    return _in_time(instance_id, handover, now_ms, patience_ms)


def judge_path(*, missing: bool, instance_id: str, handover: Handover, now_ms: int | None, patience_ms: int) -> Ruling:
    """Of a carrier for whoever has a path. ``missing``: it is not on this host, for certain."""
    if not missing:
        return Ruling(Verdict.RUN_HERE)
    if now_ms is None:
        return Ruling(Verdict.KEEP)
    return _in_time(instance_id, handover, now_ms, patience_ms)


def _in_time(instance_id: str, handover: Handover, now_ms: int, patience_ms: int) -> Ruling:
    since = now_ms if handover.since_ms is None else min(handover.since_ms, now_ms)  # a clock went back: anew
    if now_ms - since >= patience_ms:
        return Ruling(Verdict.EXHAUSTED)
    rounds, met = handover.rounds, handover.met
    if instance_id in met or len(met) >= MET_AT_MOST:
        rounds, met = rounds + 1, ()
    delay_ms = min(LONGEST_DELAY_MS, FIRST_DELAY_MS * 2 ** min(rounds, 16))
    return Ruling(Verdict.HAND_OVER, delay_ms, Handover(handover.count + 1, since, rounds, (*met, instance_id)))


def handover_of(fields: Mapping[bytes, bytes]) -> Handover:
    """What a carrier's entry says of its handovers; nothing where that cannot be read."""
    met = fields.get(MET_FIELD.encode(), b"").decode("utf-8", "replace")
    try:
        return Handover(
            max(0, int(fields[COUNT_FIELD.encode()])),
            int(fields[SINCE_FIELD.encode()]),
            max(0, int(fields.get(ROUNDS_FIELD.encode(), b"0"))),
            tuple(met.split(",")) if met else (),
        )
    except (KeyError, ValueError):
        return Handover()


def fields_of(handover: Handover) -> dict[str, str]:
    """As ``handover_of`` reads it; instance ids hold no comma."""
    return {
        COUNT_FIELD: str(handover.count),
        SINCE_FIELD: str(handover.since_ms),
        ROUNDS_FIELD: str(handover.rounds),
        MET_FIELD: ",".join(handover.met),
    }
