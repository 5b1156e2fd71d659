"""Publishing events (DECISIONS 27): one call, whoever waits is woken by a supervisor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from plaita import ids
from plaita.client.operations import Operation, ask, carried, encode_event_data
from plaita.errors import InputError
from plaita.flow.waiting import MAX_NAME_LENGTH
from plaita.store import events
from plaita.store.keys import DEFAULT_TENANT, Keys, check_tenant


@dataclass(frozen=True, slots=True)
class PublishedEvent:
    """``duplicate``: an event with this id was published in the last 7 days; nothing was done. ``message_id``: its
    place in the event log."""

    event_id: str
    event_type: str
    correlation_id: str | None
    tenant_id: str
    message_id: str
    duplicate: bool


def publish(
    keys: Keys,
    event_type: str,
    data: Any = None,
    *,
    correlation_id: str | None = None,
    event_id: str | None = None,
    source: str = "",
) -> Operation[PublishedEvent]:
    """Publish an event of a type.

    With ``correlation_id`` it goes to the waits of that correlation (an execution's id, unless its node gave another),
    and is kept 7 days for those that have yet to begin. Without, it reaches whoever waits for the type at this moment
    and gave no correlation of their own. ``event_id``: the same id is the same event. ``data``: at most 64 KiB of JSON.

    Raises InputError.
    """
    check_tenant(keys.tenant)
    named = event_id is not None
    event = events.Event(
        event_id=ids.check_id(event_id, "event id") if named else ids.new_execution_id(),
        event_type=_name(event_type, "event type"),
        data=encode_event_data(data),
        correlation=None if correlation_id is None else _name(correlation_id, "correlation id"),
        source=_source(source),
        named=named,
    )
    published = yield from ask(events.publish(keys, event))
    tenant = keys.tenant or DEFAULT_TENANT
    return PublishedEvent(
        event.event_id, event.event_type, event.correlation, tenant, published.log_id, published.before and named
    )


def _name(value: object, what: str) -> str:
    if not isinstance(value, str) or not value:
        raise InputError(f"{what}: {value!r} is no name; a text that is not empty is wanted")
    if len(value) > MAX_NAME_LENGTH:
        raise InputError(f"{what}: it has {len(value)} characters; the limit is {MAX_NAME_LENGTH}")
    return carried(value, what)


def _source(value: object) -> str:
    if not isinstance(value, str) or len(value) > MAX_NAME_LENGTH:
        raise InputError(f"source: a text of at most {MAX_NAME_LENGTH} characters is wanted")
    return carried(value, "source")
