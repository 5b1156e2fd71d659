"""``event``: waits until somebody publishes an event, resumes the execution, or the time is up (FLOW-FORMAT 2.2)."""

from __future__ import annotations

from typing import ClassVar

from plaita.nodes.base import EventNode


class EventWaitNode(EventNode):
    """The result is ``{event_type, event_filter, is_async, event_id, status, subscription_id}``, with ``event_data``
    once the event came; ``status`` is then ``completed``. All of it is :class:`EventNode`'s: only ``event_type`` is
    needed here."""

    node_type: ClassVar[str] = "event"
    node_name: ClassVar[str] = "Event"

    event_type: str
