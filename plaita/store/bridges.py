"""What a bridge between an execution that waits and a queue on another server keeps in plaita's own (DECISIONS 41).

A wait is read for by one host at a time (a lock with a short life). Before a host takes the first message it leaves a
record of the wait; the wake says in the same call what becomes of the messages; and the record goes when that is done
on the queue's server (``store.queues``). So a host may die between any two of these: another one finds the record, and
does the rest.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from plaita import ids, jsontext
from plaita.store.call import Argument, Call, Lane, script, text
from plaita.store.events import WORK
from plaita.store.keys import DEFAULT_TENANT, Keys

LOCK_MS = 15_000
PAGE = 100
_FIELDS = 10
FIRST = ("", "")  # before the first page


@dataclass(frozen=True, slots=True)
class Wait:
    """One wait of one execution. ``digest`` names it, ``since`` is epoch ms as text. ``config``: the JSON text of the
    node's configuration, with its password. ``position``: where a stream is read from, '' before that is known."""

    digest: str
    tenant: str
    task_id: str
    execution_id: str
    wait: str
    since: str
    config: bytes = field(repr=False)
    flow_id: str
    node_id: str
    position: str = ""

    def record(self, position: str) -> bytes:
        """As it stands in the hash: four lines that Lua reads, and the rest as JSON text."""
        head = "\n".join((self.tenant, self.execution_id, self.wait, self.since))
        rest = [self.task_id, self.config.decode(), self.flow_id, self.node_id, position]
        return head.encode() + b"\n" + jsontext.dumps(rest)

    @classmethod
    def of_record(cls, digest: str, record: bytes) -> Wait:
        """What ``record`` gave."""
        tenant, execution_id, wait, since, rest = record.split(b"\n", 4)
        task_id, config, flow_id, node_id, position = jsontext.loads(rest)
        head = (text(tenant), task_id, text(execution_id), text(wait), text(since))
        return cls(digest, *head, config.encode(), flow_id, node_id, position)


@dataclass(frozen=True, slots=True)
class Taken:
    """A page. ``count``: tasks on it, whoever's; ``last``: where the next one goes on; ``held``: digests of those that
    this host had; ``taken``: those it has now, and whether a host had begun with it before. ``now``: server time, epoch
    ms."""

    count: int
    last: tuple[str, str]
    now: int
    held: list[str]
    taken: list[tuple[Wait, bool]]


def take(
    keys: Keys,
    task_type: str,
    holder: str,
    room: int,
    *,
    after: tuple[str, str] = FIRST,
    left_alone: Collection[str] = (),
    lock_ms: int = LOCK_MS,
) -> Call[Taken]:
    """Renew what this host holds on a page of all tenants' tasks, and take at most ``room`` that nobody holds.
    ``after``: ``last`` of the page before. ``left_alone``: digests that this host does not take now.

    A call that was sent again shows what it took as ``held``.
    """

    def parse(reply: Sequence[Any]) -> Taken:
        flat = reply[5]
        taken = []
        for at in range(0, len(flat), _FIELDS):
            digest, begun, tenant, task, execution, wait, since, config, flow_id, node_id = flat[at : at + _FIELDS]
            names = (text(digest), text(tenant), text(task), text(execution), text(wait), text(since))
            taken.append((Wait(*names, config, text(flow_id), text(node_id)), int(begun) == 1))
        last = text(reply[1]), text(reply[2])
        return Taken(int(reply[0]), last, int(reply[3]), [text(digest) for digest in reply[4]], taken)

    return Call(
        "bridges.take",
        script("bridge_take"),
        (keys.tasks_of_all(task_type), keys.bridges),
        (keys.prefix, task_type, *after, PAGE, keys.bridge_lock(""), holder, lock_ms, room, *left_alone),
        WORK,
        True,
        parse,
    )


@dataclass(frozen=True, slots=True)
class Leftover:
    """A wait that is over. ``becomes``: what is left to do with its messages, as ``queues.settle`` takes it.
    ``since``: when a host first saw that it is over, epoch ms by the server."""

    wait: Wait
    becomes: str
    since: int


@dataclass(frozen=True, slots=True)
class Left:
    """``unreadable``: digests of records that nobody can read. ``cursor`` "0": the last page."""

    cursor: str
    now: int
    waits: list[Leftover]
    unreadable: list[str]


def left(keys: Keys, cursor: str = "0") -> Call[Left]:
    """Waits that are over, with something left to do on the queue's server. No lock: what is left to do may be done by
    several hosts at once (``queues.settle``)."""

    def parse(reply: Sequence[Any]) -> Left:
        flat, waits = reply[2], []
        unreadable = [text(digest) for digest in reply[3]]
        for at in range(0, len(flat), 4):
            digest, record, ended, since = flat[at : at + 4]
            try:
                wait = Wait.of_record(text(digest), record)
            except (ValueError, TypeError, AttributeError):
                unreadable.append(text(digest))
            else:
                waits.append(Leftover(wait, text(ended) or "back", int(since)))
        return Left(text(reply[0]), int(reply[1]), waits, unreadable)

    return Call("bridges.left", script("bridge_left"), (keys.bridges,), (keys.prefix, cursor, PAGE), WORK, True, parse)


def still(keys: Keys, wait: Wait, holder: str) -> Call[bool]:
    """Whether the execution still waits, and this host reads for it."""
    own = keys.for_tenant(wait.tenant)
    names = (own.row(wait.execution_id), own.tombstone(wait.execution_id), keys.bridge_lock(wait.digest))
    words = (wait.tenant or DEFAULT_TENANT, wait.execution_id, own.ns, wait.wait, wait.since, holder)
    return Call("bridges.still", script("bridge_still"), names, words, WORK, True, lambda reply: int(reply[0]) == 1)


def begin(keys: Keys, wait: Wait, position: str) -> Call[Wait]:
    """Leave a record of the wait; the one that stands, an earlier host's where there was one."""
    return Call(
        "bridges.begin",
        script("bridge_begin"),
        (keys.bridges,),
        (wait.digest, wait.record(position)),
        WORK,
        True,
        lambda reply: Wait.of_record(wait.digest, reply[0]),
    )


@dataclass(frozen=True, slots=True)
class Ending:
    """``becomes``: of the messages, as ``queues.settle`` takes it. ``data``: as ``events.told`` makes it. ``fields``:
    of the carrier. ``nonce`` makes a resend recognisable."""

    wait: Wait
    becomes: str
    data: bytes
    event_id: str
    fields: Sequence[tuple[str, bytes | str]]
    nonce: str = field(default_factory=ids.new_nonce)


def wake(keys: Keys, ending: Ending) -> Call[bool]:
    """End the wait; False where it was over."""
    wait = ending.wait
    own = keys.for_tenant(wait.tenant)
    carrier: list[Argument] = [word for pair in ending.fields for word in pair]
    return Call(
        "bridges.wake",
        script("bridge_wake"),
        (
            own.row(wait.execution_id),
            own.tombstone(wait.execution_id),
            own.wake,
            own.delayed,
            own.delayed_body,
            own.bridges,
        ),
        (
            wait.tenant or DEFAULT_TENANT,
            wait.execution_id,
            own.ns,
            wait.wait,
            wait.since,
            wait.digest,
            ending.becomes,
            ending.data,
            ending.event_id,
            ending.nonce,
            *carrier,
        ),
        WORK,
        True,
        lambda reply: reply[0] == 1,
    )


def done(keys: Keys, digest: str, holder: str) -> Call[bool]:
    """Nothing is left to do for the wait."""
    names = (keys.bridges, keys.bridge_lock(digest))
    return Call("bridges.done", script("bridge_done"), names, (digest, holder), WORK, True, lambda reply: True)


def release(keys: Keys, digests: Sequence[str], holder: str) -> Call[int]:
    """Others may take these waits at once; how many were this host's."""
    names = [keys.bridge_lock(digest) for digest in digests]
    return Call("bridges.release", script("bridge_release"), names, (holder,), WORK, True, lambda reply: int(reply[0]))


def server_run(lane: Lane = WORK) -> Call[str]:
    """What no two servers that run have in common: to know one again by whatever name it was reached."""

    def parse(reply: bytes) -> str:
        for line in text(reply).splitlines():
            name, _, value = line.partition(":")
            if name == "run_id" and value:
                return value
        raise ValueError("no run_id")

    return Call("bridges.server_run", None, (), ("INFO", "server"), lane, True, parse)
