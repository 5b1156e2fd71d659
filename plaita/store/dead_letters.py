"""The dead letters: putting a carrier there by the guard's leave (ledger Q4, Q5), and reading and emptying them.

Nothing here judges: ``policy.dead_letter_guard`` does, from what ``guard_facts`` answers; ``bury`` then does it only
while those facts are still the same. What stands in a dead letter is ``policy.dead_letter``'s.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from plaita.store.call import Argument, Call, lane_for, pairs, script, text
from plaita.store.keys import DEFAULT_TENANT, Keys

NEWEST = "+"
PAGE_BYTES = 4 * 1024 * 1024  # DECISIONS 16: what one call may make the server read

FieldList = Sequence[tuple[str, bytes | str]]


# -- the guard --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class GuardFacts:
    """An execution as the guard sees it. ``readable`` False: a key holds another type; nothing else is meant then.

    ``status`` and ``lease`` (its value) are None where there is none. ``lost`` and ``failures``: of the node to run
    next, in a row. ``mark`` stands for all of it.
    """

    readable: bool
    status: str | None
    lease: str | None
    lost: int
    failures: int
    tombstoned: bool
    flow_id: str
    mark: bytes


def guard_facts(keys: Keys, execution_id: str) -> Call[GuardFacts]:
    """Row, lease, budgets and tombstone as of one moment."""

    def parse(reply: Sequence[Any]) -> GuardFacts:
        readable, status, lease, lost, failures, tombstoned, flow_id = (text(fact) for fact in reply[0])
        return GuardFacts(
            readable == "1",
            status or None,
            lease or None,
            int(lost),
            int(failures),
            tombstoned == "1",
            flow_id,
            reply[1],
        )

    return Call(
        "dead_letters.guard_facts",
        script("guard_facts"),
        _guarded(keys, execution_id),
        (keys.tenant or DEFAULT_TENANT,),
        "writer",
        True,
        parse,
    )


def _guarded(keys: Keys, execution_id: str) -> tuple[str, ...]:
    return (
        keys.row(execution_id),
        keys.lease(execution_id),
        keys.tombstone(execution_id),
        keys.noderetry(execution_id, None),
    )


@dataclass(frozen=True, slots=True)
class Allowed:
    """The facts by which the guard let the carrier go: ``keys`` of the execution's tenant, ``mark`` of GuardFacts."""

    keys: Keys
    execution_id: str
    mark: bytes


@dataclass(frozen=True, slots=True)
class Buried:
    """``dlq_id`` is empty when the entry was gone already (the call was sent before). ``trimmed``: oldest ones lost; -1
    when cutting them failed. ``copy_id``: of the recovery copy in the wake stream, or empty."""

    dlq_id: str
    trimmed: int
    copy_id: str = ""


def bury(
    keys: Keys,
    stream: str,
    entry_id: str,
    letter: FieldList,
    maxlen: int,
    *,
    allowed: Allowed | None = None,
    copy: FieldList = (),
) -> Call[Buried]:
    """Dead letter, recovery copy, ack and delete in one call, only if the entry is still there (ledger Q4, Q5).

    ``allowed`` None: of a carrier that names no execution. Refused: ``changed``: read the facts again and judge anew.
    """
    words: list[Argument] = []
    for name, value in letter:
        words += (name, value)
    copied: list[Argument] = []
    for name, value in copy:
        copied += (name, value)
    bodies = [value for _, value in (*letter, *copy) if isinstance(value, bytes)]
    guarded = _guarded(allowed.keys, allowed.execution_id) if allowed else ()
    return Call(
        "dead_letters.bury",
        script("dead_letter"),
        (keys.stream(stream), keys.dead_letters, keys.wake, *guarded),
        (
            keys.group,
            entry_id,
            maxlen,
            (allowed.keys.tenant if allowed else "") or DEFAULT_TENANT,
            allowed.mark if allowed else b"",
            len(words),
            *words,
            *copied,
        ),
        lane_for(*bodies),
        True,
        lambda reply: Buried(text(reply[0]), int(reply[1]), text(reply[2])),
    )


# -- reading and emptying ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Letter:
    """One entry as it stands."""

    dlq_id: str
    fields: dict[bytes, bytes]


@dataclass(frozen=True, slots=True)
class LetterPage:
    """``more``: others are left in this direction; go on behind the last id. ``total``: of all."""

    letters: list[Letter]
    more: bool
    total: int


def page(keys: Keys, limit: int, older_than: str | None = None) -> Call[LetterPage]:
    """At most ``limit`` letters, the newest first, fewer where they are large together (PAGE_BYTES)."""
    return Call(
        "dead_letters.page",
        script("dlq_page"),
        (keys.dead_letters,),
        ("XREVRANGE", NEWEST if older_than is None else f"({older_than}", "-", limit, PAGE_BYTES),
        "bulk",
        True,
        parse_page,
    )


def parse_page(reply: Sequence[Any]) -> LetterPage:
    """The answer of ``dlq_page.lua``."""
    return LetterPage([_letter(one) for one in reply[0]], reply[1] == 1, int(reply[2]))


def _letter(reply: Sequence[Any]) -> Letter:
    return Letter(text(reply[0]), dict(pairs(reply[1] or ())))


def get(keys: Keys, dlq_id: str) -> Call[Letter | None]:
    """One letter; None when it is not there (never was, or was lost to the limit)."""
    return Call(
        "dead_letters.get",
        None,
        (keys.dead_letters,),
        ("XRANGE", keys.dead_letters, dlq_id, dlq_id),
        "bulk",
        True,
        lambda reply: _letter(reply[0]) if reply else None,
    )


def purge(keys: Keys) -> Call[int]:
    """Take all letters away; how many. The stream stays, so that no id is given twice (D5 marks replays by id)."""
    return Call(
        "dead_letters.purge",
        None,
        (keys.dead_letters,),
        ("XTRIM", keys.dead_letters, "MAXLEN", "=", 0),
        "writer",
        True,
        int,
    )
