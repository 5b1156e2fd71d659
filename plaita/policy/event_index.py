"""Which waits an event ends, by digests instead of comparisons (DECISIONS 27, 28, FLOW-FORMAT 2.2). Pure.

A wait stands in the index under a digest of its event type, its correlation and the values that its filter demands. An
event looks under the digests it would have for each set of filter keys that waits of its type use: so a publish costs
the same however many wait.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from plaita import jsontext

DIGEST_CHARACTERS = 40
DATA_STANDS_IN = 16
"""Levels around an event's data, at most: of a carrier, a result, a context."""


@dataclass(frozen=True, slots=True)
class Places:
    """Where a wait stands: ``key_set`` names what its filter looks at; it has one digest for events of its correlation,
    and one for uncorrelated events unless its author gave a correlation."""

    key_set: str
    digests: tuple[str, ...]


def places(event_type: str, correlation: str, *, named: bool, event_filter: Mapping[str, Any] | None) -> Places:
    """Where to index a wait. ``correlation`` is the execution's id where the author gave none (``named`` False)."""
    wanted = event_filter or {}
    pairs = [(path, wanted[path]) for path in sorted(wanted)]
    correlated = _digest(event_type, correlation, pairs)
    digests = (correlated,) if named else (correlated, _digest(event_type, None, pairs))
    return Places(key_set_of(wanted), digests)


def key_set_of(event_filter: Mapping[str, Any]) -> str:
    """The paths of a filter as one text: JSON of the sorted list."""
    return jsontext.canonical(sorted(event_filter)).decode()


def paths_of(key_set: str) -> list[str]:
    """The paths of a key set as it is stored. Raises ValueError for what ``key_set_of`` cannot have written."""
    paths = jsontext.loads(key_set)
    if not isinstance(paths, list) or not all(isinstance(path, str) for path in paths):
        raise ValueError(f"{key_set[:80]!r} is no list of paths")
    return paths


def event_digest(event_type: str, correlation: str | None, paths: Sequence[str], data: Any) -> str | None:
    """Where the waits stand that look at ``paths`` and that this event ends; None where it lacks one of them."""
    pairs = []
    for path in paths:
        found, value = value_at(data, path)
        if not found:
            return None
        pairs.append((path, value))
    return _digest(event_type, correlation, pairs)


def kept_digest(event_type: str, correlation: str) -> str:
    """Under what events of this type and correlation are kept for who does not wait yet."""
    return _digest(event_type, correlation, [])


def matches(event_filter: Mapping[str, Any] | None, data: Any) -> bool:
    """Whether an event's data fits a filter: at each path the very JSON value."""
    for path, wanted in (event_filter or {}).items():
        found, value = value_at(data, path)
        if not found or jsontext.canonical(comparable(value)) != jsontext.canonical(comparable(wanted)):
            return False
    return True


def value_at(data: Any, path: str) -> tuple[bool, Any]:
    """Whether there is something at a dotted path, and what. A key that is the whole path, dots and all, goes first."""
    if isinstance(data, dict) and path in data:
        return True, data[path]
    here = data
    for name in path.split("."):
        if not isinstance(here, dict) or name not in here:
            return False, None
        here = here[name]
    return True, here


def comparable(value: Any) -> Any:
    """A value whose text is the same for all equal JSON values: 1.0 and 1 are one number, true is none."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {name: comparable(item) for name, item in value.items()}
    if isinstance(value, list):
        return [comparable(item) for item in value]
    return value


def _digest(event_type: str, correlation: str | None, pairs: Sequence[tuple[str, Any]]) -> str:
    # Each value by a digest of its own: so it may be nested as deep as JSON may be.
    values = [[path, hashlib.sha256(jsontext.canonical(comparable(value))).hexdigest()] for path, value in pairs]
    return hashlib.sha256(jsontext.canonical([event_type, correlation, values])).hexdigest()[:DIGEST_CHARACTERS]
