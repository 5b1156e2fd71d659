"""Who is alive: one record (JSON, opaque here) an instance, with a TTL, beside the incarnation that wrote it.

A record is another's as long as the incarnation differs (DECISIONS 1); the scripts compare it without reading JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from plaita.store.call import Call, script, text
from plaita.store.keys import Keys

T = TypeVar("T")

INCARNATION_TTL_MS = 86_400_000  # a supervisor that hung is killed long after its record has run out


@dataclass(frozen=True, slots=True)
class Instance:
    instance_id: str
    incarnation: str
    record: bytes


@dataclass(frozen=True, slots=True)
class Member:
    """An instance that is registered, or died within a day: then ``record`` is empty. ``beat_ms``: its last heartbeat,
    by the server's clock as all times here."""

    instance_id: str
    incarnation: str
    record: bytes
    beat_ms: int


@dataclass(frozen=True, slots=True)
class Members:
    """All of them by id, as they were at ``now_ms``."""

    now_ms: int
    members: list[Member]


def register(
    keys: Keys, instance_id: str, incarnation: str, record: bytes, ttl_ms: int, expected_incarnation: str | None = None
) -> Call[bool]:
    """Claim the id. Refused: ``taken`` (the record there), unless it is ours or of ``expected_incarnation``."""
    return Call(
        "registry.register",
        script("register"),
        _names(keys, instance_id),
        (instance_id, incarnation, record, ttl_ms, expected_incarnation or "", INCARNATION_TTL_MS),
        "keeper",
        True,
        lambda reply: True,
    )


def heartbeat(keys: Keys, instance_id: str, incarnation: str, record: bytes, ttl_ms: int) -> Call[bool]:
    """Renew our record, or write it anew where it has run out. Refused: ``taken`` (the record there)."""
    return Call(
        "registry.heartbeat",
        script("register"),
        _names(keys, instance_id),
        (instance_id, incarnation, record, ttl_ms, "", INCARNATION_TTL_MS),
        "keeper",
        True,
        lambda reply: True,
    )


def unregister(
    keys: Keys, instance_id: str, incarnation: str, record: bytes | None = None, mark_ttl_ms: int = 5000
) -> Call[bool]:
    """Take our record away; with ``record``, leave that (a ``stopped`` mark) for ``mark_ttl_ms`` (ledger G2).
    False when the id is another's by now."""
    return Call(
        "registry.unregister",
        script("unregister"),
        _names(keys, instance_id),
        (instance_id, incarnation, record or b"", mark_ttl_ms),
        "keeper",
        True,
        lambda reply: reply[0] == 1,
    )


def get(keys: Keys, instance_id: str) -> Call[Instance | None]:
    """The record of an instance that is registered now, else None."""
    record_key, incarnation_key, _ = _names(keys, instance_id)

    def parse(reply: Sequence[Any]) -> Instance | None:
        return None if reply[0] is None else Instance(instance_id, text(reply[1]), reply[0])

    return Call(
        "registry.get",
        None,
        (record_key, incarnation_key),
        ("MGET", record_key, incarnation_key),
        "writer",
        True,
        parse,
    )


def list_instances(keys: Keys) -> Call[list[Instance]]:
    """All registered instances, by id."""

    def parse(reply: Sequence[Any]) -> list[Instance]:
        return [Instance(one.instance_id, one.incarnation, one.record) for one in _members(reply).members if one.record]

    return _listed(keys, "registry.list_instances", parse)


def list_members(keys: Keys) -> Call[Members]:
    """All registered instances, and those that died without leaving."""
    return _listed(keys, "registry.list_members", _members)


def _listed(keys: Keys, name: str, parse: Callable[[Sequence[Any]], T]) -> Call[T]:
    return Call(name, script("list_instances"), (keys.instances,), (keys.prefix,), "writer", True, parse)


def _members(reply: Sequence[Any]) -> Members:
    now, *rows = reply
    found = [Member(text(name), text(incarnation), record, int(beat)) for name, incarnation, record, beat in rows]
    return Members(int(now), sorted(found, key=lambda one: one.instance_id))


def _names(keys: Keys, instance_id: str) -> tuple[str, str, str]:
    return keys.instance(instance_id), keys.incarnation(instance_id), keys.instances
