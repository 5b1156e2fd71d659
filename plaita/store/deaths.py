"""How the last lives of an instance ended, written by its parent after the fact and read by whoever finds what such a
life held (ledger S14). A list an instance, newest first, bounded and with a TTL; the records (JSON) are opaque here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from plaita.store.call import Call, script, text
from plaita.store.keys import Keys

TTL_MS = 7 * 86_400_000
KEPT = 16  # lives an instance: an execution found later than that was lost by one of another host


@dataclass(frozen=True, slots=True)
class LastLife:
    """``incarnation``: the last one that registered, None where none is known. ``record``: its registry entry, None
    once that has run out."""

    incarnation: str | None
    record: bytes | None


def last_life(keys: Keys, instance_id: str) -> Call[LastLife]:
    """The last life of an instance, as the registry remembers it."""
    names = (keys.instance(instance_id), keys.incarnation(instance_id))

    def parse(reply: Sequence[bytes | None]) -> LastLife:
        return LastLife(None if reply[1] is None else text(reply[1]), reply[0])

    return Call("deaths.last_life", None, names, ("MGET", *names), "writer", True, parse)


def record(keys: Keys, instance_id: str, incarnation: str, record: bytes) -> Call[bool]:
    """Write down how this life ended; False when that was done before: the first word stands.

    Refused: ``another`` (the incarnation there) when the instance has begun another life since.
    """
    return Call(
        "deaths.record",
        script("record_death"),
        (keys.incarnation(instance_id), keys.deaths(instance_id)),
        (incarnation, record, KEPT, TTL_MS),
        "writer",
        True,
        lambda reply: reply[0] == 1,
    )


def find(keys: Keys, instance_id: str, incarnation: str) -> Call[bytes | None]:
    """The record of one life, None where nobody wrote one."""
    key = keys.deaths(instance_id)

    def parse(reply: Sequence[bytes]) -> bytes | None:
        parted = (entry.partition(b" ") for entry in reply)
        return next((record for name, _, record in parted if text(name) == incarnation), None)

    return Call("deaths.find", None, (key,), ("LRANGE", key, 0, -1), "writer", True, parse)
