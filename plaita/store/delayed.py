"""Deliveries for later: a sorted set by Redis time and a hash of bodies, moved to the wake stream by any supervisor.

Retry backoff, handover and quota delays all live here, and the timers of waits (DECISIONS 29). A body is the list of
entry fields in MessagePack, packed and read by the scripts alone, byte for byte.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from plaita.store.call import Argument, Call, lane_for, script, text
from plaita.store.keys import Keys


@dataclass(frozen=True, slots=True)
class Promoted:
    """``next_due_in_ms``: until the next record is due (0: more are due now), None when there is none.
    ``bad`` records went to the dead letters, which lost ``trimmed`` old ones for it (-1: cutting them failed)."""

    moved: int
    next_due_in_ms: int | None
    bad: int
    trimmed: int = 0


def put(
    keys: Keys, member: str, due_in_ms: int, fields: Sequence[tuple[str, bytes | str]], *, stream: str = "w"
) -> Call[int]:
    """Deliver ``fields`` to ``stream`` after ``due_in_ms``; the due time by Redis. A member put again is replaced."""
    keys.stream(stream)
    flat: list[Argument] = []
    for name, value in fields:
        flat += (name, value)
    return Call(
        "delayed.put",
        script("delay_put"),
        (keys.delayed, keys.delayed_body),
        (member, due_in_ms, stream, *flat),
        lane_for(*(value for _, value in fields if isinstance(value, bytes))),
        True,
        lambda reply: int(reply[0]),
    )


def promote(keys: Keys, limit: int = 100, dlq_maxlen: int = 1000) -> Call[Promoted]:
    """Move what is due to its stream. A record whose body is missing or unreadable goes to the dead letters.

    A timer whose row waits on it still, and was not woken, wakes it by ``timeout`` (DECISIONS 26) and counts as moved;
    any other timer is dropped and counts as nothing.

    Safe to send again: what was moved is no longer in the set.
    """
    return Call(
        "delayed.promote",
        script("promote"),
        (keys.delayed, keys.delayed_body, keys.wake, keys.queue, keys.dead_letters),
        (limit, dlq_maxlen),
        "writer",
        True,
        lambda reply: Promoted(int(reply[0]), None if reply[1] == -1 else int(reply[1]), int(reply[2]), int(reply[3])),
    )


def cancel(keys: Keys, member: str) -> Call[bool]:
    """Take a record out before it is due; False when it was not there."""
    return Call(
        "delayed.cancel",
        script("delay_cancel"),
        (keys.delayed, keys.delayed_body),
        (member,),
        "writer",
        True,
        lambda reply: text(reply[0]) == "1",
    )
