"""Calls to the servers whose queues executions wait for (DECISIONS 41): nothing of plaita's own stands there but, of a
list, the messages that a wait has taken, beside the list they came from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from plaita.store.call import Call, pairs, script, text

CLOSED_MS = 86_400_000  # longer than any host sleeps that believes it still reads for a wait
Message = bytes | dict[bytes, bytes]


def processing(queue: str, digest: str) -> str:
    """A list beside the queue: what a wait has taken, until it is known that it was woken by it."""
    return f"{queue}:processing:{digest}"


def aside(queue: str) -> str:
    """A list beside the queue: messages that nobody could read."""
    return f"{queue}:bad"


def take(queue: str, digest: str, count: int) -> Call[list[Message]]:
    """Messages for a wait, the oldest first; the same again until ``settle``. Refused: ``closed``, ``wrong_type``."""
    mine = processing(queue, digest)
    names = (queue, mine, f"{mine}:closed")
    return Call("queues.take", script("queue_take"), names, (count,), "writer", True, lambda reply: list(reply[0]))


def settle(queue: str, digest: str, becomes: str) -> Call[int]:
    """What becomes of the messages of a wait that is over: ``used``, ``back`` or ``bad``; how many there were."""
    mine = processing(queue, digest)
    return Call(
        "queues.settle",
        script("queue_settle"),
        (queue, mine, f"{mine}:closed", aside(queue)),
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


def read(stream: str, after: str, count: int) -> Call[list[Message]]:
    """The next entries of a stream. Refused: ``wrong_type``."""

    def parse(reply: Sequence[Any] | None) -> list[Message]:
        return [dict(pairs(fields)) for _, found in reply or () for _, fields in found]

    words = ("XREAD", "COUNT", count, "STREAMS", stream, after)
    return Call("queues.read", None, (stream,), words, "writer", True, parse)
