"""A whole execution at once, for ``plaita.storage``: read with its fence, written under it (ledger L2).

The way of a carrier (begin, commit, finish) writes step by step and does not come through here. Both stand under the
same fence, so that neither overwrites what the other has done since.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from plaita import ids
from plaita.store import rows
from plaita.store.call import Argument, Call, lane_for, script, text
from plaita.store.keys import DEFAULT_TENANT, STATUSES, Keys
from plaita.store.rows import Row
from plaita.store.steps import RETENTION_NET_MS

NOTHING_READ = "-"  # the fence of one who has read nothing


@dataclass(frozen=True, slots=True)
class LoadedRow:
    """``fence``: the token that last had the execution, empty where none ever had. ``indexed_again``: the row stood in
    no index until now."""

    row: Row
    fence: str
    indexed_again: bool


def load(keys: Keys, execution_id: str) -> Call[LoadedRow | None]:
    """The row with all results and its fence; None without a row. Refused: ``tombstoned``, ``wrong_type``."""
    read = rows.load(keys, execution_id, results=True).parse

    def parse(reply: Sequence[Any]) -> LoadedRow | None:
        if not reply:
            return None
        row = read(reply[:3])
        return None if row is None else LoadedRow(row, text(reply[3]), reply[4] == 1)

    return Call(
        "states.load",
        script("load_state"),
        (
            keys.row(execution_id),
            keys.lease(execution_id),
            keys.cancel(execution_id),
            keys.fence(execution_id),
            keys.tombstone(execution_id),
            keys.index(),
        ),
        (execution_id, keys.tenant or DEFAULT_TENANT, keys.ns),
        "bulk",
        True,
        parse,
    )


@dataclass(frozen=True, slots=True)
class Save:
    """``fields``: what the row is to hold, ``r:``, ``s:`` and ``t:`` fields complete; ``drop``: names it must not.
    ``token``: of who holds the execution. Without one, ``fence`` is what was read, NOTHING_READ by who read nothing.
    Times in epoch ms; ``retention_ms`` 0 keeps a terminal row for ever."""

    execution_id: str
    status: str
    fields: Mapping[str, bytes | str]
    drop: Sequence[str] = ()
    token: str | None = None
    fence: str = NOTHING_READ
    started_at_ms: int | None = None
    ended_at_ms: int | None = None
    retention_ms: int = 0
    nonce: str = field(default_factory=ids.new_nonce)


def save(keys: Keys, request: Save) -> Call[str]:
    """Write the row whole; the fence it stands under from then on. The same request sent again answers the same.

    Refused: ``wrong_type``, ``tombstoned``, ``leased`` (lease value), ``fence`` (the one there), ``terminal`` (status:
    what has ended stays so), ``no_row`` (with a token).
    """
    if request.status not in STATUSES:
        raise ValueError(f"{request.status!r} is no status; {', '.join(STATUSES)} are")
    execution_id = request.execution_id
    words: list[Argument] = []
    for name, value in request.fields.items():
        words += (name, value)
    times = [
        "" if moment is None or moment < 0 else str(moment) for moment in (request.started_at_ms, request.ended_at_ms)
    ]
    retention = request.retention_ms
    return Call(
        "states.save",
        script("save_state"),
        (
            keys.row(execution_id),
            keys.lease(execution_id),
            keys.fence(execution_id),
            keys.fencegen(execution_id),
            keys.tombstone(execution_id),
            keys.index(),
            keys.expiry,
            keys.index(request.status),
        ),
        (
            execution_id,
            keys.tenant or DEFAULT_TENANT,
            keys.ns,
            request.token or "",
            request.fence,
            request.nonce,
            request.status,
            retention,
            retention + RETENTION_NET_MS if retention else 0,
            *times,
            len(request.drop),
            *request.drop,
            *words,
        ),
        lane_for(*(value for value in request.fields.values() if isinstance(value, bytes))),
        True,
        lambda reply: text(reply[0]),
    )
