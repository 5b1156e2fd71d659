"""Calls to the servers whose queues executions wait for (DECISIONS 41): nothing of plaita's own stands there but, of a
list, the messages that a wait has taken, beside the list they came from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from plaita.store.call import Call, pairs, script, text

CLOSED_MS = 86_400_000  # longer than any host sleeps that believes it still reads for a wait
Message = bytes | dict[bytes, bytes]


def processing(queue: str, digest: str) -> str:
    """A list beside the queue: what a wait has taken, until it is known that it was woken by it."""
    return f"{queue}:processing:{digest}"


def closed(queue: str, digest: str) -> str:
    """A mark that the wait is over: whoever still reads for it takes nothing."""
    return f"{processing(queue, digest)}:closed"


def aside(queue: str) -> str:
    """A list beside the queue: messages that nobody could read."""
    return f"{queue}:bad"


@dataclass(frozen=True, slots=True)
class Read:
    """``size``: of the messages, bytes. Where one alone has more than may be answered, it is not all there."""

    messages: list[Message]
    size: int


def take(queue: str, digest: str, count: int, most_bytes: int) -> Call[Read]:
    """Messages for a wait, the oldest first, ``most_bytes`` together; the same again until ``settle``. Refused:
    ``closed``, ``wrong_type``."""
    mine = processing(queue, digest)
    names = (queue, mine, closed(queue, digest))
    return Call(
        "queues.take",
        script("queue_take"),
        names,
        (count, most_bytes),
        "writer",
        True,
        lambda reply: Read(list(reply[0]), int(reply[1])),
    )


def reopen(queue: str, digest: str) -> Call[int]:
    """The wait is not over: plaita's own server came back to where it was before that (a failover, a backup)."""
    name = closed(queue, digest)
    return Call("queues.reopen", None, (name,), ("DEL", name), "writer", True, int)


def settle(queue: str, digest: str, becomes: str) -> Call[int]:
    """What becomes of the messages of a wait that is over: ``used 2`` or ``bad 1`` of the first ones (of all without a
    number), the others go back; or ``back``. How many there were."""
    mine = processing(queue, digest)
    return Call(
        "queues.settle",
        script("queue_settle"),
        (queue, mine, closed(queue, digest), aside(queue)),
        (becomes, CLOSED_MS),
        "writer",
        True,
        lambda reply: int(reply[0]),
    )


def position(stream: str) -> Call[tuple[int, str]]:
    """The time of a stream's server, epoch ms, and its last entry, '' for none. Refused: ``wrong_type``."""

    def parse(reply: Sequence[Any]) -> tuple[int, str]:
        return int(reply[0]), text(reply[1])

    return Call("queues.position", script("queue_position"), (stream,), (), "writer", True, parse)


def read(stream: str, after: str, count: int, most_bytes: int) -> Call[Read]:
    """The next entries of a stream, ``most_bytes`` together. Refused: ``wrong_type``."""

    def parse(reply: Sequence[Any]) -> Read:
        return Read([dict(pairs(entry)) for entry in reply[0]], int(reply[1]))

    return Call("queues.read", script("queue_read"), (stream,), (after, count, most_bytes), "writer", True, parse)
