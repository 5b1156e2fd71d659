"""What comes to executions from outside under the runner that skips time: HTTP calls, and messages of queues. As the
services judge and word them, without a network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from plaita import jsontext
from plaita.callback_url import CallbackKey, execution_key
from plaita.nodes.execution import DEFAULT_NAMESPACE, DEFAULT_TENANT
from plaita.policy import bridges, callbacks
from plaita.policy.bridges import Asked, Message
from plaita.policy.callbacks import Reply, Request

SECRET = "of the runner that skips time"  # URLs of tests lead nowhere
BASE_URL = "https://flows.example"


def callback_key(execution_id: str) -> CallbackKey:
    """What makes the URLs of an execution."""
    return CallbackKey(execution_key(SECRET, DEFAULT_NAMESPACE, DEFAULT_TENANT, execution_id), BASE_URL)


def request_of(path: str, body: Any, method: str, headers: Mapping[str, str], query: Mapping[str, str]) -> Request:
    """``body``: bytes and text as they are, any other value as JSON."""
    named = {name.lower(): value for name, value in headers.items()}
    raw = b"" if body is None else body.encode() if isinstance(body, str) else body
    if not isinstance(raw, bytes):
        raw = jsontext.dumps(raw, "body")
        named.setdefault("content-type", "application/json")
    return Request(method.upper(), path, named, dict(query), raw)


def answered(config: Mapping[str, Any], request: Request, now_ms: int) -> tuple[Reply, dict[str, Any] | None]:
    """The answer to a call, and what the node is told of it where it ends the wait."""
    refused = callbacks.refusal(config, request)
    if refused is not None:
        return refused, None
    return callbacks.success(config), callbacks.event_data(config, DEFAULT_TENANT, request, now_ms)


def heard(config: Mapping[str, Any], messages: Sequence[Any], now_ms: int) -> dict[str, Any]:
    """What the node is told of messages: bytes and text as they are; an object is an entry's fields where the queue is
    a stream; any other value is JSON."""
    asked = Asked(DEFAULT_TENANT, config["execution_id"], config["flow_id"], config["node_id"])
    queue = bridges.queue_of(config)
    return bridges.told(asked, queue, [_message(one, queue.kind) for one in messages], now_ms).data


def _message(value: Any, kind: str) -> Message:
    if isinstance(value, Mapping) and kind == "stream":
        return {str(name).encode(): _bytes(field) for name, field in value.items()}
    return _bytes(value)


def _bytes(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    return value.encode() if isinstance(value, str) else jsontext.dumps(value, "message")
