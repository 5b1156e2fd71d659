"""Finding the carrier of one execution, for a program that wants to run it itself (library mode).

A queue is read in order; this looks among its newest entries only, for one that was added a moment ago.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from plaita.store.call import Call, pairs, script, text
from plaita.store.carriers import Entry
from plaita.store.keys import DEFAULT_TENANT, Keys

LOOK_AT = 512  # entries of each stream


def carrier_of(keys: Keys, execution_id: str) -> Call[Entry | None]:
    """The newest entry that names the execution in its fields, wake stream first; None where none of the newest does.
    It is not taken: whoever begins with it has it by the lease."""

    def parse(reply: Sequence[Any]) -> Entry | None:
        return Entry(text(reply[0]), text(reply[1]), tuple(pairs(reply[2]))) if reply else None

    return Call(
        "carriers.carrier_of",
        script("carrier_of"),
        (keys.wake, keys.queue),
        (execution_id, keys.tenant or DEFAULT_TENANT, LOOK_AT),
        "writer",
        True,
        parse,
    )
