"""What a node waits for: the subscription of a suspending node, judged and bounded (FLOW-FORMAT 2.2, rules 11, 15).

Pure. Which node waits for what is the node's; who keeps the subscription, matches events and wakes is the store's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Protocol

from plaita import jsontext
from plaita.errors import NodeOutputError
from plaita.flow.expressions import Scope
from plaita.flow.nearest import shown, type_name

MAX_NAME_LENGTH = 1024
"""Characters of an event type and of a correlation id: both become parts of keys."""

MAX_FILTER_BYTES = 64 * 1024
"""JSON text of an evaluated filter, which travels in headers and index entries (DECISIONS 16)."""

WakeKind = Literal["event", "timeout", "cancelled"]
WAKE_KINDS: frozenset[str] = frozenset(("event", "timeout", "cancelled"))


@dataclass(frozen=True, slots=True)
class Woken:
    """How a wait ended. ``data`` is the JSON value that came with an event, else None."""

    kind: WakeKind
    data: Any = None


@dataclass(frozen=True, slots=True)
class Service:
    """What somebody else is to do for a wait: ``type`` names the service, ``task_id`` the task among its tasks;
    ``config`` is a JSON object of the service's own."""

    type: str
    task_id: str
    config: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        return {"type": self.type, "task_id": self.task_id, "config": self.config}


@dataclass(frozen=True, slots=True)
class Subscription:
    """What ends a wait.

    ``event_filter`` maps dotted paths to the JSON values that the event's data must have there, None for any event of
    the type. ``correlation_id`` None means the execution's own id. ``timeout_ms``: the wait's limit, None for none.
    ``warnings`` are for the log. ``service``: who else works on it, None for nobody.
    """

    event_type: str
    event_filter: dict[str, Any] | None = None
    correlation_id: str | None = None
    timeout_ms: int | None = None
    warnings: tuple[str, ...] = ()
    service: Service | None = None

    def to_json(self) -> dict[str, Any]:
        """A JSON object of all but the warnings, as it travels and is stored; ``service`` only where there is one."""
        said: dict[str, Any] = {
            "event_type": self.event_type,
            "event_filter": self.event_filter,
            "correlation_id": self.correlation_id,
            "timeout_ms": self.timeout_ms,
        }
        if self.service is not None:
            said["service"] = self.service.to_json()
        return said


class Suspending(Protocol):
    """What the engine asks of a node whose class says ``is_suspending``."""

    def _subscription(self, pending: Any, scope: Scope) -> Subscription:
        """What the node waits for, ``pending`` being its stored result so far. Raises like node code."""
        ...


def event_type_of(value: Any, *, field: str = "event_type") -> str:
    """An event type as it may be stored. Raises NodeOutputError."""
    if not isinstance(value, str) or not value:
        raise NodeOutputError(f"{field} gives {shown(value)}: the name of an event is wanted, a text that is not empty")
    return _name(value, field)


def correlation_of(value: Any, *, field: str = "correlationId") -> str | None:
    """A correlation id as it may be stored; whole numbers become their digits. Raises NodeOutputError, also for null:
    the author asked for a correlation, and a wait without it would be another."""
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str) or not value:
        what = repr(value) if isinstance(value, str) else type_name(value)
        raise NodeOutputError(f"{field} gives {what}; a text that is not empty, or a whole number, is wanted")
    return _name(value, field)


def filter_of(value: dict[str, Any] | None) -> dict[str, Any] | None:
    """An evaluated filter as it may be stored; None if there is none, or an empty one. Raises NodeOutputError."""
    if not value:
        return None
    size = len(jsontext.dumps(value, "event_filter"))
    if size > MAX_FILTER_BYTES:
        raise NodeOutputError(f"event_filter has {size} bytes of JSON text; the limit is {MAX_FILTER_BYTES}")
    return value


def filter_key_fault(key: str) -> str | None:
    """What is wrong with a filter's key, a dotted path of names, or None."""
    if not key:
        return "an empty key is no path into an event's data; write a name or names with dots between them"
    if not all(key.split(".")):
        return f"{shown(key)} is no path: there is a dot too many; write names with one dot between them"
    return None


def earlier(*limits: int | None) -> int | None:
    """The smallest of several limits in milliseconds, None meaning no limit."""
    given = [limit for limit in limits if limit is not None]
    return min(given) if given else None


def _name(value: str, field: str) -> str:
    if len(value) > MAX_NAME_LENGTH:
        raise NodeOutputError(f"{field} has {len(value)} characters; the limit is {MAX_NAME_LENGTH}")
    jsontext.check(value, field)
    return value
