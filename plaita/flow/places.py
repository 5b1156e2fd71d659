"""Places inside a definition (``nodes[3].output.a``), put into words only when one is needed.

A walk over a definition must not build a text for each value it passes: under a key of a megabyte that would cost a
megabyte for each child.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

Place = str | tuple["Place", str | int]
"""The words for a root, or (place of the parent, key or index)."""

_KEY_SHOWN = 60


def worded(place: Place) -> str:
    """``nodes[3].output.a``; keys are cut to 60 characters."""
    steps: list[str] = []
    while not isinstance(place, str):
        place, step = place
        if isinstance(step, int):
            steps.append(f"[{step}]")
        else:
            steps.append("." + (step if len(step) <= _KEY_SHOWN else step[:_KEY_SHOWN] + "…"))
    words = place + "".join(reversed(steps))
    return words if place else words.removeprefix(".")


def children(value: Any, place: Place) -> Iterator[tuple[Any, Place]]:
    """The values directly inside an object or list, with their places."""
    if isinstance(value, dict):
        for key, child in value.items():
            yield child, (place, key)
    elif isinstance(value, list):
        for index, child in enumerate(value):
            yield child, (place, index)


def texts(value: Any, place: Place) -> Iterator[tuple[Place, str]]:
    """Every text inside a JSON value, keys left out. Iterative, so of any depth."""
    pending: list[Iterator[tuple[Any, Place]]] = [iter([(value, place)])]
    while pending:
        for item, where in pending[-1]:
            if isinstance(item, str):
                yield where, item
            elif isinstance(item, (dict, list)):
                pending.append(children(item, where))
                break
        else:
            pending.pop()


def deeper_than(value: Any, depth: int) -> Place | None:
    """A place where ``value`` nests deeper than ``depth`` objects and lists, or None. Iterative."""
    pending: list[Iterator[tuple[Any, Place]]] = [iter([(value, "")])]
    while pending:
        for item, where in pending[-1]:
            if isinstance(item, (dict, list)):
                if len(pending) > depth:
                    return where
                pending.append(children(item, where))
                break
        else:
            pending.pop()
    return None
