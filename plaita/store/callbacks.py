"""HTTP calls that came before the execution waited for them: kept until it does (DECISIONS 27, 30)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from plaita.store.call import Call, script, text
from plaita.store.events import WORK
from plaita.store.keys import Keys

MOST_KEPT = 10_000  # of the platform: at most 64 KiB and some headers each
PAGE = 50


def keep(keys: Keys, name: str, record: bytes, execution_id: str, status: str, step: str) -> Call[bool]:
    """Keep a call under the name of its place; False where one is kept already. ``keys`` are the tenant's; ``status``
    and ``step`` ('' for none): where its execution was seen. Refused: ``full``; ``moved``: it is there no more."""
    return Call(
        "callbacks.keep",
        script("callback_keep"),
        (keys.early_callbacks, keys.row(execution_id)),
        (name, record, MOST_KEPT, status, step),
        "writer",
        True,
        lambda reply: reply[0] == 1,
    )


@dataclass(frozen=True, slots=True)
class Kept:
    """``cursor`` "0": the last page. ``records``: name and record of each."""

    cursor: str
    records: list[tuple[str, bytes]]


def kept(keys: Keys, cursor: str = "0") -> Call[Kept]:
    """Some of the calls that are kept."""

    def parse(reply: Sequence[Any]) -> Kept:
        flat = reply[1]
        return Kept(text(reply[0]), [(text(flat[at]), flat[at + 1]) for at in range(0, len(flat), 2)])

    words = ("HSCAN", keys.early_callbacks, cursor, "COUNT", PAGE)
    return Call("callbacks.kept", None, (keys.early_callbacks,), words, WORK, True, parse)


def drop(keys: Keys, name: str) -> Call[bool]:
    """Nobody will want it."""
    words = ("HDEL", keys.early_callbacks, name)
    return Call("callbacks.drop", None, (keys.early_callbacks,), words, WORK, True, lambda reply: reply == 1)
