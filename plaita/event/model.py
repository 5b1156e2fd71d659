"""Events and subscriptions as a program sees them, and what can go wrong with them (REFERENCE 5.8)."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from types import NoneType
from typing import Any, Self

from plaita import ids, jsontext
from plaita.errors import InputError, PlaitaError
from plaita.policy import event_index


class EventTimeoutError(PlaitaError, TimeoutError):
    """No event that was waited for came in time."""


class TimeoutCallbackError(PlaitaError):
    """Some timeout callbacks failed; the others were called all the same (ledger E4). ``failures``: (subscription id,
    callback, exception) of each."""

    def __init__(self, failures: list[tuple[str, Callable[..., Any], Exception]]) -> None:
        lines = [f"{subscription_id}: {type(error).__name__}: {error}" for subscription_id, _, error in failures]
        super().__init__(f"{len(failures)} timeout callbacks failed: " + "; ".join(lines))
        self.failures = failures


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened. ``data`` is a JSON value; ``timestamp`` in epoch seconds, of an event that was read when
    Redis took it in. ``correlation_id``: whom it is for, None for whoever waits at that moment."""

    event_type: str
    data: Any = field(default_factory=dict)
    event_id: str = field(default_factory=ids.new_execution_id)
    timestamp: float = field(default_factory=time.time)
    source: str = ""
    correlation_id: str | None = None

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def event_of(said: Event | str | Mapping[str, Any]) -> Event:
    """An event as ``publish`` takes it: an Event, a type alone, or a mapping with ``event_type`` whose other members
    are the data. Raises InputError."""
    if isinstance(said, Event):
        return said
    if isinstance(said, str):
        return Event(said)
    if not isinstance(said, Mapping):
        raise InputError(f"event: a {type(said).__name__} is none; an Event, an event type or a dict is wanted")
    if "event_type" not in said:
        raise InputError("event: this dict has no event_type")
    return Event(said["event_type"], {name: value for name, value in said.items() if name != "event_type"})


_KINDS: dict[str, tuple[type, ...]] = {
    "event_type": (str,),
    "filter_condition": (dict, NoneType),
    "correlation_id": (str, NoneType),
    "subscription_id": (str,),
    "created_at": (int, float),
    "timeout": (int, float, NoneType),
    "processed_events": (list,),
    "tenant_id": (str,),
}


@dataclass(slots=True)
class EventSubscription:
    """What a program, not a flow's node, waits for on behalf of an execution.

    ``filter_condition`` maps names or dotted paths to values that the event's data must have. ``correlation_id`` None
    takes events of any. ``timeout``: seconds after ``created_at``, None for none. The execution is ``correlation_id``,
    or the subscription's own id where that is None. ``processed_events``: ids, the last hundred.
    """

    event_type: str
    filter_condition: dict[str, Any] | None = None
    correlation_id: str | None = None
    flow_id: str | None = None
    node_id: str | None = None
    subscription_id: str = field(default_factory=ids.new_execution_id)
    created_at: float = field(default_factory=time.time)
    timeout: float | None = None
    processed_events: list[str] = field(default_factory=list)
    tenant_id: str = "default"

    @property
    def execution_id(self) -> str:
        return self.correlation_id or self.subscription_id

    def matches_event(self, event: Event, context: Mapping[str, Any] | None = None) -> bool:
        """Whether it is waited for: the very type, the correlation where one is set, ``$FLOW_ID`` and ``$LAST_NODE`` of
        ``context`` where that is given and a flow or node is set, and each filter value. No wildcards."""
        if event.event_type != self.event_type:
            return False
        if self.correlation_id is not None and event.correlation_id != self.correlation_id:
            return False
        for wanted, name in ((self.flow_id, "$FLOW_ID"), (self.node_id, "$LAST_NODE")):
            if context is not None and wanted is not None and context.get(name) != wanted:
                return False
        return event_index.matches(self.filter_condition, event.data)

    def is_overdue(self, now: float) -> bool:
        return self.timeout is not None and now - self.created_at > self.timeout

    def to_json(self) -> bytes:
        return jsontext.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: bytes) -> Self:
        """Raises ValueError for what ``to_json`` cannot have written."""
        said = jsontext.loads(text)
        if not isinstance(said, dict):
            raise ValueError("a subscription is an object")
        try:
            found = cls(**said)
        except TypeError as error:
            raise ValueError(str(error)) from None
        for name, kinds in _KINDS.items():
            if not isinstance(getattr(found, name), kinds):
                raise ValueError(f"{name}: {getattr(found, name)!r}")
        return found


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often a handler that raises is called again, and after how many seconds."""

    max_retries: int = 3
    initial_delay: float = 1.0
    factor: float = 2.0
    max_delay: float = 60.0

    def delay(self, failures: int) -> float:
        """Seconds to wait after so many failures, from 1 on."""
        return min(self.max_delay, self.initial_delay * self.factor ** min(failures - 1, 64))
