"""Reading for a diagnosis: bounded, beside running work, and without a write, not even of an index that is wrong.

``LookingRunner`` connects to servers that serve nobody, so that they can be asked why.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from plaita.store.bridges import Wait
from plaita.store.call import Answer, Argument, Call, Refused, Value, script, text
from plaita.store.dead_letters import PAGE_BYTES
from plaita.store.endpoint import Endpoint
from plaita.store.keys import Keys
from plaita.store.runner_sync import SyncRunner
from plaita.store.wire import GreetingError

ROWS_A_PAGE = 500
INSTANCES = 1000
CONSUMERS = 1000
STAMPS = 500
PARKED_TENANTS = 200
BRIDGES = 500


class LookingRunner(SyncRunner):
    """Takes a replica too, and a server that loads, is held by a script, or forbids PING: only the login must be good,
    and the database must exist. Behind sentinels it wants the primary as everybody does."""

    def _greeted(self, endpoint: Endpoint, answers: Sequence[Answer[Any]]) -> str:
        try:
            return super()._greeted(endpoint, answers)
        except GreetingError:
            first, *others = answers
            if self._sentinels is not None:
                raise  # another sentinel may name one that serves
            if not isinstance(first, Value) or any(isinstance(one, Refused) for one in others):
                raise
            if not isinstance(first.value, list) or b"sentinel" in first.value:
                raise
            return ""


# -- the server -----------------------------------------------------------------------------------


def info(keys: Keys) -> Call[dict[str, str]]:
    """Every field of INFO."""

    def parse(reply: bytes) -> dict[str, str]:
        lines = (line.partition(":") for line in text(reply).splitlines() if not line.startswith("#"))
        return {name: value for name, colon, value in lines if colon}

    return Call("looking.info", None, (), ("INFO",), "writer", True, parse)


def setting(keys: Keys, name: str) -> Call[str | None]:
    """One setting of the server; None where it has none of that name."""

    def parse(reply: Sequence[bytes]) -> str | None:
        return text(reply[1]) if len(reply) > 1 else None

    return Call("looking.setting", None, (), ("CONFIG", "GET", name), "writer", True, parse)


def time_ms(keys: Keys) -> Call[float]:
    """The server's clock, epoch ms with its parts."""
    return Call(
        "looking.time_ms", None, (), ("TIME",), "writer", True, lambda reply: int(reply[0]) * 1e3 + int(reply[1]) / 1e3
    )


def user(keys: Keys) -> Call[str]:
    """Who we are to the server."""
    return Call("looking.user", None, (), ("ACL", "WHOAMI"), "writer", True, text)


# -- the registry ---------------------------------------------------------------------------------


def instance_names(keys: Keys) -> Call[list[str]]:
    """The ids of the last INSTANCES that have registered, the newest first, and one more where there are more."""
    command = ("ZREVRANGE", keys.instances, 0, INSTANCES)
    return Call("looking.instance_names", None, (), command, "writer", True, lambda reply: [text(one) for one in reply])


def records(keys: Keys, names: Sequence[str]) -> Call[list[tuple[bytes | None, str]]]:
    """Record (None where it has run out) and incarnation of each."""
    words = [keys.instance(name) for name in names] + [keys.incarnation(name) for name in names]

    def parse(reply: Sequence[bytes | None]) -> list[tuple[bytes | None, str]]:
        return [(reply[i], text(reply[len(names) + i])) for i in range(len(names))]

    return Call("looking.records", None, (), ("MGET", *words), "bulk", True, parse)


# -- the queue ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Stream:
    """``lag`` None: the server cannot tell. ``oldest``: (entry id, consumer, idle ms) of the first pending entry.
    ``unread``: id of the first entry that nobody read, '' for none. ``consumers``: (name, pending, idle ms)."""

    kind: str
    length: int
    group: bool
    pending: int
    lag: int | None
    oldest: tuple[str, str, int] | None
    unread: str
    consumers: list[tuple[str, int, int]]
    now_ms: int


def stream(keys: Keys, letter: str) -> Call[Stream]:
    """``q`` or ``w`` as of one moment."""
    return _stream(keys, keys.stream(letter))


def event_log(keys: Keys) -> Call[Stream]:
    """The log of events as of one moment."""
    return _stream(keys, keys.event_log)


def _stream(keys: Keys, name: str) -> Call[Stream]:

    def parse(reply: Sequence[Any]) -> Stream:
        oldest = (text(reply[5][0]), text(reply[5][1]), int(reply[5][2])) if reply[5] else None
        consumers = [(text(name), int(pending), int(idle)) for name, pending, idle in reply[7]]
        lag = None if reply[4] == -1 else int(reply[4])
        return Stream(
            text(reply[0]),
            int(reply[1]),
            reply[2] == 1,
            int(reply[3]),
            lag,
            oldest,
            text(reply[6]),
            consumers,
            int(reply[8]),
        )

    arguments = (keys.group, CONSUMERS)
    return Call("looking.stream", script("look_stream"), (name,), arguments, "writer", True, parse)


def stamps(keys: Keys, letter: str) -> Call[list[tuple[str, str, int]]]:
    """(config family, budget generation, how many) of the oldest STAMPS pending carriers of a stream."""

    def parse(reply: Sequence[Any]) -> list[tuple[str, str, int]]:
        return [(text(family), text(budget), int(count)) for family, budget, count in reply]

    arguments = (keys.group, STAMPS, PAGE_BYTES)
    return Call("looking.stamps", script("look_stamps"), (keys.stream(letter),), arguments, "bulk", True, parse)


@dataclass(frozen=True, slots=True)
class Bridges:
    """``unread``: of the oldest BRIDGES waits for queues, those that no host reads for; ``unread_since``: epoch ms,
    None for none. ``left``: (wait that is over, since, what becomes of its messages) with something left to do on its
    queue's server; no wait: one that cannot be read."""

    now_ms: int
    waits: int
    unread: int
    unread_since: int | None
    left: list[tuple[Wait | None, int, str]]
    more: bool


def bridges(keys: Keys, grace_ms: int) -> Call[Bridges]:
    """What is so for longer than ``grace_ms``."""

    def parse(reply: Sequence[Any]) -> Bridges:
        left = []
        for at in range(0, len(reply[4]), 3):
            record, since, becomes = reply[4][at : at + 3]
            try:
                wait: Wait | None = Wait.of_record("", record)
            except (ValueError, TypeError, AttributeError):
                wait = None
            left.append((wait, int(since), text(becomes)))
        oldest = int(reply[3]) if reply[3] else None
        return Bridges(int(reply[0]), int(reply[1]), int(reply[2]), oldest, left, reply[5] == 1)

    task_type = "redis_queue"
    return Call(
        "looking.bridges",
        script("look_bridges"),
        (keys.tasks_of_all(task_type), keys.bridges),
        (keys.prefix, task_type, keys.bridge_lock(""), BRIDGES, BRIDGES, grace_ms),
        "bulk",
        True,
        parse,
    )


@dataclass(frozen=True, slots=True)
class Aside:
    """``overdue_ms``: since the first delayed delivery was due, 0 where none is. ``parked``: of the first
    PARKED_TENANTS tenants that have any. ``statuses``: tenants with a status; ``epoch``: of those, '' for none.
    ``scheduled`` schedules have a due time, which is overdue of ``late``, of the first since ``late_ms``."""

    delayed: int
    overdue: int
    overdue_ms: int
    parked: dict[str, int]
    statuses: int
    epoch: str
    scheduled: int = 0
    late: int = 0
    late_ms: int = 0


def aside(keys: Keys, overdue_from_ms: int) -> Call[Aside]:
    """What lies beside the streams; ``overdue`` and ``late`` count what was due so long ago."""

    def since(said: bytes) -> int:
        return int(min(max(0.0, float(said)), 2.0**53)) if said else 0

    def parse(reply: Sequence[Any]) -> Aside:
        parked = {text(tenant): int(count) for tenant, count in reply[3]}
        delayed = (int(reply[0]), int(reply[1]), since(reply[2]))
        scheduled = (int(reply[6]), int(reply[7]), since(reply[8]))
        return Aside(*delayed, parked, int(reply[4]), text(reply[5]), *scheduled)

    names = (keys.delayed, keys.parked_tenants, keys.tenant_status, keys.tenant_epoch, keys.schedules_due)
    arguments = (overdue_from_ms, PARKED_TENANTS)
    return Call("looking.aside", script("look_aside"), names, arguments, "writer", True, parse)


# -- executions -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Row:
    """``timing``: the JSON record of the node to run next, b'' without one. ``lease``: its value, '' for none.
    ``woken``: its wait is over or a cancel is asked for. ``due_in_ms``: until the deadline of its wait, None without.
    ``timer``: the delayed delivery of that deadline is there (True where there is no deadline)."""

    execution_id: str
    status: str
    quiet_ms: int
    node: str
    timing: bytes
    lease: str
    woken: bool
    due_in_ms: int | None
    timer: bool


@dataclass(frozen=True, slots=True)
class Page:
    """``cursor`` "0": the last page. ``there``: how many the index has."""

    cursor: str
    there: int
    rows: list[Row]


def rows(keys: Keys, status: str, cursor: str = "0", count: int = ROWS_A_PAGE) -> Call[Page]:
    """A page of one status; one may come twice."""
    return _rows(keys, status, cursor, count, ())


def these_rows(keys: Keys, execution_ids: Sequence[str]) -> Call[Page]:
    """These, as they are now."""
    return _rows(keys, "running", "", 0, execution_ids)


def _rows(keys: Keys, status: str, cursor: str, count: int, execution_ids: Sequence[str]) -> Call[Page]:
    def parse(reply: Sequence[Any]) -> Page:
        return Page(text(reply[0]), int(reply[1]), [_row(one) for one in reply[2]])

    arguments: list[Argument] = [keys.ns, cursor, count, *execution_ids]
    names = (keys.index(status), keys.delayed)
    return Call("looking.rows", script("look_rows"), names, arguments, "bulk", True, parse)


def _row(reply: Sequence[Any]) -> Row:
    return Row(
        execution_id=text(reply[0]),
        status=text(reply[1]),
        quiet_ms=int(reply[2]),
        node=text(reply[3]),
        timing=reply[4],
        lease=text(reply[5]),
        woken=bool(reply[6]) or reply[7] == 1,
        due_in_ms=int(reply[8]) if reply[8] else None,
        timer=reply[9] == 1,
    )
