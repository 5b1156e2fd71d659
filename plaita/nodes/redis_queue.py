"""``redis_queue``: waits for a message of a Redis list, stream or channel (FLOW-FORMAT 2.3, DECISIONS 41). Who reads
it is the service ``redis_queue``; the node says which queue it is, and what a message means."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar, Literal

from pydantic import Field

from plaita.errors import NodeOutputError, ResumeError
from plaita.flow.durations import LONGEST_MS
from plaita.flow.expressions import Scope
from plaita.flow.model import Preparation
from plaita.flow.nearest import a_type, shown
from plaita.flow.waiting import Service, Subscription, earlier
from plaita.nodes.base import EventNode, completed, with_service
from plaita.nodes.execution import Execution, copied

MASKED = "***"
MOST_MESSAGES = 1000
MOST_CHARACTERS = 1024


class RedisQueueNode(EventNode):
    """Waits for a message of ``queue_name`` at ``redis_host``:``redis_port`` (an absolute path: a unix socket), which
    the platform must allow. ``queue_type``: of a ``list`` one execution gets each message, the oldest first; a
    ``stream`` is read from the wait's beginning on, and loses nothing by it; a ``pubsub`` channel is heard while it is
    listened to. ``message_format``: ``json`` messages are read, ``text`` and ``raw`` (base64) are taken as they are.

    The result has ``message`` and ``raw_message`` in ``event_data``; with a ``batch_size`` above 1 both are lists. The
    password stands in no result.
    """

    node_type: ClassVar[str] = "redis_queue"
    node_name: ClassVar[str] = "Redis queue"
    _awaited: ClassVar[str] = "message"

    event_type: str | None = "redis_message"
    redis_host: Any = "localhost"
    redis_port: Any = 6379
    redis_db: Any = 0
    redis_password: Any = Field(default=None, repr=False)
    queue_name: Any
    queue_type: Literal["list", "stream", "pubsub"] = "list"
    timeout_seconds: Any = 0
    batch_size: Any = 1
    message_format: Literal["json", "text", "raw"] = "json"

    def prepare(self, preparation: Preparation) -> None:
        """Compile what may be an expression, and judge at once what is none."""
        super().prepare(preparation)
        self._compile(preparation, tuple(_CHECKS))
        self._judge_written(preparation, _CHECKS)

    def execute(self, execution: Execution) -> Any:
        """Begin the wait."""
        scope = execution.scope
        pending = super().execute(execution)
        pending["event_type"] = "redis_message"
        return with_service(
            self,
            pending,
            execution,
            task_id=f"redis_queue_{execution.node_id}_{execution.idempotency_key[:12]}",
            redis_config={
                "host": self._judged("redis_host", scope),
                "port": self._judged("redis_port", scope),
                "db": self._judged("redis_db", scope),
                "password": MASKED if self._judged("redis_password", scope) else None,
            },
            queue_config={
                "name": self._judged("queue_name", scope),
                "type": self.queue_type,
                "message_format": self.message_format,
            },
            listen_config={
                "timeout_seconds": self._judged("timeout_seconds", scope),
                "batch_size": self._judged("batch_size", scope),
            },
        )

    def on_event(self, execution: Execution, event_data: Any) -> Any:
        """The message. Raises ResumeError for one that cannot be read, and for a queue that nobody may read."""
        result = completed(execution.pending, event_data)
        data = result["event_data"]
        if not isinstance(data, dict) or data.get("trigger_type") != "redis_message":
            said = data.get("error_message") if isinstance(data, dict) else None
            raise ResumeError(str(said or f"{shown(data)} is no message of a queue"), node=execution.node_id)
        return result

    def _subscription(self, pending: Any, scope: Scope) -> Subscription:
        wanted = super()._subscription(pending, scope)
        config = copied(pending["service_config"])
        config["redis_config"]["password"] = self._judged("redis_password", scope)
        seconds = config["listen_config"]["timeout_seconds"]
        return replace(
            wanted,
            timeout_ms=earlier(math.ceil(seconds * 1000) or None, wanted.timeout_ms),
            service=Service(self.node_type, config.pop("task_id"), config),
        )

    def _judged(self, field: str, scope: Scope) -> Any:
        return _CHECKS[field](self._evaluated(getattr(self, field), scope))


def _text(field: str) -> Callable[[Any], str]:
    def judged(value: Any) -> str:
        if not isinstance(value, str) or not 0 < len(value) <= MOST_CHARACTERS:
            raise NodeOutputError(f"{field} gives {shown(value)}: 1 to {MOST_CHARACTERS} characters are wanted")
        return value

    return judged


def _host(value: Any) -> str:
    """A URL is a likely mistake, and may hold a password: it is not told again."""
    host = _text("redis_host")(value)
    if "://" in host or "@" in host:
        raise NodeOutputError(
            "redis_host gives a URL or a login: a host's name, its address or the path of a socket is wanted; the "
            "password is redis_password's, the port redis_port's"
        )
    return host


def _whole(field: str, low: int, high: int) -> Callable[[Any], int]:
    def judged(value: Any) -> int:
        number = value
        if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 10:
            number = int(value)
        if isinstance(number, bool) or not isinstance(number, int) or not low <= number <= high:
            raise NodeOutputError(f"{field} gives {shown(value)}: a whole number from {low} to {high} is wanted")
        return number

    return judged


def _seconds(value: Any) -> float:
    value = 0 if value is None else value
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= LONGEST_MS / 1000:
        raise NodeOutputError(f"timeout_seconds gives {shown(value)}: a number of seconds is wanted, 0 for no limit")
    return value


def _password(value: Any) -> str | None:
    """What it is stands in no message: it is a secret, or meant to be one."""
    if value is not None and not isinstance(value, str):
        raise NodeOutputError(f"redis_password gives {a_type(value)}; a text is wanted")
    return value or None


_CHECKS: dict[str, Callable[[Any], Any]] = {
    "redis_host": _host,
    "redis_port": _whole("redis_port", 1, 65535),
    "redis_db": _whole("redis_db", 0, 1_000_000),
    "redis_password": _password,
    "queue_name": _text("queue_name"),
    "timeout_seconds": _seconds,
    "batch_size": _whole("batch_size", 1, MOST_MESSAGES),
}
