"""What the runner that skips time says to authors: why nothing ends a wait, and what they may have meant. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from plaita.flow.nearest import Nearest, shown
from plaita.policy import event_index
from plaita.testing.trial import Trial, Wait

MOST_EVENTS = 5


@dataclass(frozen=True, slots=True)
class Told:
    """An event that was published. ``order`` tells what came before what at one time; ``data`` is its JSON value."""

    order: int
    event_type: str
    correlation: str | None
    event_id: str
    data: Any


def stuck(trial: Trial, published: Iterable[Told]) -> str:
    """Why an execution that waits goes no further, and what its author can do about it."""
    wait = trial.wait
    assert wait is not None
    text = f"node {wait.node_id!r} waits for {_wanted(trial, wait)}, without a deadline, and nothing is planned"
    lost = [] if wait.service else [f"{_event(one)}: {_why_not(trial, wait, one)}" for one in published]
    if lost:
        more = f"; and {len(lost) - MOST_EVENTS} more" if len(lost) > MOST_EVENTS else ""
        text += f". Published and not for it: {'; '.join(lost[-MOST_EVENTS:])}{more}"
    return f"{text}. Use start(), then {_remedy(wait)}, or plan that with after()"


def instead(named: str, there: Sequence[str]) -> str:
    """``; did you mean 'review'?``, or what there is, for a name that nobody has."""
    return Nearest(there).hint(named) if there else "; nothing of that kind waits"


def _wanted(trial: Trial, wait: Wait) -> str:
    if wait.service == "approval":
        waiting = trial.waiting
        assert waiting is not None
        return f"the approval {waiting.approval_id!r} by {', '.join(waiting.undecided)}"
    if wait.service == "http_callback":
        return "a call to its URL"
    if wait.service == "redis_queue":
        return f"a message of {wait.config['queue_config']['name']!r}"
    about = f" with {_json(wait.event_filter)}" if wait.event_filter else ""
    return f"an event of type {wait.event_type!r}{about} for {wait.correlation!r}"


def _remedy(wait: Wait) -> str:
    if wait.service == "approval":
        return f"approve({wait.node_id!r}, by=...) or reject({wait.node_id!r}, by=...)"
    if wait.service == "http_callback":
        return f"call({wait.node_id!r}, body)"
    if wait.service == "redis_queue":
        return f"message({wait.node_id!r}, message)"
    named = "" if wait.places is not None and len(wait.places.digests) > 1 else f", correlation_id={wait.correlation!r}"
    return f"publish({wait.event_type!r}, data{named})"


def _event(told: Told) -> str:
    return repr(told.event_type) + (f" for {told.correlation!r}" if told.correlation is not None else "")


def _why_not(trial: Trial, wait: Wait, told: Told) -> str:
    """Why an event did not end this wait; the first reason that holds."""
    if told.event_type != wait.event_type:
        return "another type"
    named = wait.places is None or len(wait.places.digests) == 1
    if told.correlation is None and named:
        return f"it has no correlation, and the node says correlationId {wait.correlation!r}"
    if told.correlation not in (None, wait.correlation):
        return "another correlation"
    for path, wanted in (wait.event_filter or {}).items():
        found, value = event_index.value_at(told.data, path)
        if not found:
            return f"its data have nothing at {path!r}"
        if not event_index.matches({path: wanted}, told.data):
            return f"its data have {_json(value)} at {path!r}, {_json(wanted)} is wanted"
    if told.event_id in trial.used_events:
        return "it ended an earlier wait of this execution"
    if told.order < trial.since_order:
        return "it came before the execution was started"
    if told.order < wait.since_order:
        return "it came before the wait began, and without a correlation nobody keeps it"
    return "it is too old"


def _json(value: Any) -> str:
    return shown(value) if isinstance(value, str) else json.dumps(value, ensure_ascii=False)[:60]
