"""Which queues a bridge may read, and what their messages mean (DECISIONS 41, FLOW-FORMAT 2.3). Pure."""

from __future__ import annotations

import base64
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from plaita import jsontext
from plaita.policy.event_index import DATA_STANDS_IN

STANDS_IN = DATA_STANDS_IN + 2
"""Levels around a message: those around an event's data, and the message's place in that."""
MAX_MESSAGE_BYTES = 4 * 1024 * 1024
"""Of all messages of a wait together."""

KEEP_LEFTOVERS_MS = 30 * 86_400_000
"""How long it is tried to clear up after a wait that is over, on a server that cannot be reached."""

MAX_TOLD_BYTES = 7 * 1024 * 1024
"""Of both forms of them as JSON text: they must fit into a node's result, or they would be used and then refused."""


@dataclass(frozen=True, slots=True)
class Target:
    """A server as a node names it: ``host`` is a name, an address, or the absolute path of a unix socket."""

    host: str
    port: int
    db: int
    password: str | None = field(default=None, repr=False)

    @property
    def place(self) -> str:
        """As ``PLAITA_REDIS_NODE_TARGETS`` spells it; for people too."""
        if self.host.startswith("/"):
            return self.host
        host = self.host.strip("[]").lower()
        return f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"

    @property
    def shown(self) -> str:
        """With its database, for people."""
        return f"{self.place}/{self.db}"

    @property
    def url(self) -> str:
        """Holds the password."""
        login = f":{quote(self.password, safe='')}@" if self.password else ""
        if self.host.startswith("/"):
            return f"unix://{login}{quote(self.host)}?db={self.db}"
        return f"redis://{login}{_quoted_host(self.place)}/{self.db}"


def _quoted_host(place: str) -> str:
    host, _, port = place.rpartition(":")
    return place if host.startswith("[") else f"{quote(host, safe='')}:{port}"


@dataclass(frozen=True, slots=True)
class Queue:
    """What one wait listens to. ``kind``: list, stream or pubsub; ``form``: json, text or raw."""

    target: Target
    name: str
    kind: str
    form: str
    batch: int


def queue_of(config: Mapping[str, Any]) -> Queue:
    """Of a node's ``service_config``. Raises ValueError for what is none."""
    try:
        redis, queue, listen = config["redis_config"], config["queue_config"], config["listen_config"]
        target = Target(str(redis["host"]), int(redis["port"]), int(redis["db"]), redis.get("password"))
        return Queue(
            target, str(queue["name"]), str(queue["type"]), str(queue["message_format"]), int(listen["batch_size"])
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ValueError(f"no configuration of a queue ({type(error).__name__})") from None


def target_refusal(target: Target, allowed: Collection[str]) -> str | None:
    """Why no bridge may connect there; None where one may."""
    if target.place in allowed:
        return None
    listed = f"it lists {', '.join(sorted(allowed))}" if allowed else "it is empty, which allows none"
    return f"redis_host: {target.place} is not in PLAITA_REDIS_NODE_TARGETS; {listed}"


def name_refusal(name: str, namespace: str) -> str | None:
    """Why a queue with this name may not be read where plaita's own data is; None where it may."""
    own = f"{namespace}:userqueue:"
    if name.startswith(own) and len(name) > len(own):
        return None
    return f"queue_name: {name!r} is on plaita's own server, where only names that begin with {own} may be read"


def stream_position(now_ms: int, last: str, age_ms: int) -> str:
    """The id after which a wait reads that is ``age_ms`` old, so that it misses nothing that was added meanwhile.

    ``now_ms``, by the stream's server, was read before the age was, so the place is never too late. Where an author's
    own ids are no times it is the last entry, ``last`` ('' for none).
    """
    began = now_ms - age_ms - 2  # both ends of an age are whole milliseconds
    if last and int(last.partition("-")[0]) < began:
        return last
    return f"{max(0, began)}-0"


# -- messages -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Asked:
    """Whose wait it is, for what every event of a service tells."""

    tenant: str
    execution_id: str
    flow_id: str | None
    node_id: str


@dataclass(frozen=True, slots=True)
class Told:
    """The event's data, and whether it is an error: then the messages are put aside, not used. ``count``: of how many
    messages, the first ones, it is; the others are for other waits."""

    data: dict[str, Any]
    bad: bool
    count: int = 1

    @property
    def becomes(self) -> str:
        """Of the messages on their server, for ``store.queues.settle``."""
        return f"{'bad' if self.bad else 'used'} {self.count}"


Message = bytes | Mapping[bytes, bytes]
"""Of a list and a channel its bytes, of a stream the fields of its entry."""


def told(asked: Asked, queue: Queue, messages: Sequence[Message], now_ms: int, *, size: int | None = None) -> Told:
    """What the node is told of these messages: as many of the first ones as can be read and fit. ``size``: what the
    first has in bytes where it is not all here."""
    read: list[Any] = []
    bare: list[Any] = []
    bytes_ = written = 0
    for message in messages:
        bytes_ += size if size is not None and not read else size_of(message)
        try:
            if bytes_ > MAX_MESSAGE_BYTES:
                begins = f", which begins {_head(message)}" if isinstance(message, bytes) else ""
                raise ValueError(f"{bytes_} bytes of one message{begins}; at most {MAX_MESSAGE_BYTES} are taken")
            forms = _read(message, queue.form), _bare(message)
            written += len(jsontext.dumps(forms))
            if written > MAX_TOLD_BYTES:
                why = f"a message of {bytes_} bytes has {written} in the node's result"
                raise ValueError(f"{why}; at most {MAX_TOLD_BYTES} fit in")
        except ValueError as error:
            if not read:
                return told_error(asked, queue, str(error), now_ms)
            break
        read.append(forms[0])
        bare.append(forms[1])
    data = {
        **_common(asked, queue, now_ms),
        "trigger_type": "redis_message",
        "success": True,
        "message": read if queue.batch > 1 else read[0],
        "raw_message": bare if queue.batch > 1 else bare[0],
    }
    return Told(data, False, len(read))


def told_error(asked: Asked, queue: Queue, why: str, now_ms: int) -> Told:
    """What the node is told where there is no message for it, or none that can be read."""
    message = f"queue {queue.name!r}: {why}"
    data = {
        **_common(asked, queue, now_ms),
        "trigger_type": "redis_error",
        "success": False,
        "error_message": message,
    }
    return Told(data, True)


def _common(asked: Asked, queue: Queue, now_ms: int) -> dict[str, Any]:
    return {
        "node_id": asked.node_id,
        "execution_id": asked.execution_id,
        "flow_id": asked.flow_id,
        "tenant_id": asked.tenant,
        "timestamp": now_ms,
        "queue_type": queue.kind,
        "queue_name": queue.name,
    }


def size_of(message: Message) -> int:
    """Bytes."""
    if isinstance(message, bytes):
        return len(message)
    return sum(len(name) + len(value) for name, value in message.items())


def _read(message: Message, form: str) -> Any:
    """Raises ValueError."""
    if not isinstance(message, bytes):
        return {_text(name): _lenient(value, form) for name, value in message.items()}
    if form == "raw":
        return base64.b64encode(message).decode("ascii")
    text = _text(message)
    if form == "text":
        return text
    try:
        return jsontext.loads(message, within=STANDS_IN)
    except jsontext.JSONTextError as error:
        shown = text if len(text) <= 200 else text[:200] + "…"
        raise ValueError(f"a message is no JSON ({error}): {shown!r}; message_format text or raw takes any") from None


def _lenient(value: bytes, form: str) -> Any:
    """Of a stream's field: programs write names and numbers there as they are, so what is no JSON is its text."""
    if form == "raw":
        return base64.b64encode(value).decode("ascii")
    if form == "json":
        try:
            return jsontext.loads(value, within=STANDS_IN)
        except jsontext.JSONTextError:
            pass
    return _text(value)


def _text(value: bytes) -> str:
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        raise ValueError("a message is no UTF-8 text; message_format raw takes any bytes") from None


def _head(message: bytes) -> str:
    text = message[:200].decode("utf-8", "replace")
    return f"{text + '…'!r}"


def _bare(message: Message) -> Any:
    """As it came: text, or base64 of what is no text."""
    if not isinstance(message, bytes):
        return {_bare(name): _bare(value) for name, value in message.items()}
    try:
        return message.decode("utf-8")
    except UnicodeDecodeError:
        return base64.b64encode(message).decode("ascii")
