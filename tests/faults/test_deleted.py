"""Ledger D1, D2, D3: what was deleted comes back by no road, on no day of the 30 after it, nor on those after.

The server's clock is not touched. A day after the delete is made by what would be there on it: a tombstone and a
generation with the time they would have left (none: gone), and carriers with the times they would have. Each cell of
road x day has an execution of its own; one supervisor meets all of them.

The known limit is here too, by name: a start that brings its own input along, made after the delete, that waits out the
tombstone (``test_D2_the_known_limit``).
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hosts import World, until

from plaita import jsontext
from plaita.client import upkeep
from plaita.client.operations import remove_execution
from plaita.clock import iso_utc, wall_ms
from plaita.errors import ExecutionDeletedError, ExecutionLeaseError, RefusedError
from plaita.policy.carrier import resume_payload, start_payload
from plaita.policy.copies import continue_copy, same_body, wake_carrier
from plaita.policy.dead_letter import envelope
from plaita.storage import RedisExecutionStorage
from plaita.store import delayed, executions, failures, leases
from plaita.store.call import Call, Refused, Value
from plaita.store.executions import (
    Begin,
    Begun,
    Commit,
    DeadLetter,
    Finish,
    ForeignStart,
    HandOn,
    Postpone,
    ResumeRequest,
    Retake,
    Suspend,
    Wake,
)
from plaita.store.failures import CountFailure
from plaita.store.leases import Beat, Renewal
from plaita.testing.server import raw

DAY = 86_400_000
LIMIT = 30 * DAY
BORDER = 30 - 4_000 / DAY  # the tombstone ends while the test looks on
DAYS = (*range(30), BORDER, 30, 31)
FLAGS: dict[str, Any] = {
    "executors": 2, "preload": ["crashing", "waiting"], "lease_ttl_seconds": 600, "claim_min_idle_ms": 1000,
}  # fmt: skip
IDLE = 100_000_000
TOMBSTONE_MS = LIMIT


def ago(days: float) -> int:
    """Epoch ms. A second more than said: a tombstone of just 30 days is there for its last millisecond still."""
    return wall_ms() - int(days * DAY) - 1000


@dataclass
class Sent:
    """A carrier of the past: the time its entry was added, its stream and its fields."""

    at: int
    stream: str
    fields: list[tuple[str, bytes | str]]


@dataclass
class Cell:
    """One execution, deleted so many days ago. ``stays``: its row as a backup brought it back."""

    world: World
    road: str
    day: float
    execution_id: str
    deleted_at: int
    sent: list[Sent] = field(default_factory=list)
    stays: bytes | None = None

    # -- what came before the delete ------------------------------------------------------------

    def lives(self) -> None:
        """Started: a row that is pending. Its carrier is taken away, so that the road alone brings one."""
        call = executions.Start(self.execution_id, "noted", b"{}", b"{}")
        message = self.world.do(executions.start(self.world.keys, call)).message_id
        self.world.do(raw("XDEL", self.world.keys.queue, message))

    def held(self) -> Begun:
        """Begun by a holder who is not a supervisor here."""
        request = Begin(self.execution_id, "elsewhere/1", "n1", 600_000, "w", "1-1", 5)
        return self.world.do(executions.begin(self.world.keys, request))

    def suspended(self) -> None:
        begun = self.held()
        timer = wake_carrier(
            {}, "1-1", "timeout", execution_id=self.execution_id, flow_id="noted", tenant_id="default", wait="1"
        )
        self.world.do(
            executions.suspend(
                self.world.keys,
                Suspend(
                    self.execution_id, begun.token, 1, "a", b"{}", b"{}", "go", "", None, 60 * DAY, timer, "w",
                    "1-1",
                ),
            )
        )  # fmt: skip

    def ended(self, status: Any) -> None:
        begun = self.held()
        end = Finish(self.execution_id, begun.token, 1, status, "w", "1-1", LIMIT, error=b"{}")
        self.world.do(executions.finish(self.world.keys, end))

    # -- the delete ---------------------------------------------------------------------------------

    def deleted(self) -> None:
        call = executions.delete(self.world.keys, self.execution_id, "gone", force=True, tombstone_ttl_ms=TOMBSTONE_MS)
        self.world.do(call)
        self.days_pass()

    def days_pass(self) -> None:
        """Tombstone and generation as they would be on this day."""
        keys, left = self.world.keys, self.deleted_at + TOMBSTONE_MS - wall_ms()
        tombstone, generation = keys.tombstone(self.execution_id), keys.fencegen(self.execution_id)
        if left <= 0:
            self.world.do(raw("DEL", tombstone, generation))
            return
        self.world.do(raw("HSET", tombstone, "default", f"{self.deleted_at} gone"))
        for key in (tombstone, generation):
            self.world.do(raw("PEXPIRE", key, left))

    # -- the road -------------------------------------------------------------------------------------

    def send(self, payload: dict[str, Any] | bytes, stream: str = "q", at: int | None = None, **fields: str) -> None:
        """``at`` None: of the very millisecond of the delete, the youngest that a carrier from before it can be."""
        body = payload if isinstance(payload, bytes) else jsontext.dumps(payload)
        self.sent.append(Sent(self.deleted_at if at is None else at, stream, [("payload", body), *fields.items()]))

    def foreign(self, **said: Any) -> dict[str, Any]:
        return {"type": "start", "flow_id": "noted", "execution_id": self.execution_id, "params": {"x": 1}} | said

    def resume(self, kind: str, **said: Any) -> bytes:
        return resume_payload(
            execution_id=self.execution_id, flow_id="noted", resume_type=kind, tenant_id="default", timestamp="", **said
        )

    def past_fields(self) -> dict[bytes, bytes]:
        return {b"first_enqueued_at": str(self.deleted_at).encode()}

    def delay(self, fields: list[tuple[str, bytes | str]], stream: str) -> None:
        self.world.do(delayed.put(self.world.keys, f"copy {self.execution_id}", 0, fields, stream=stream))

    def restore(self, *names: str, dumps: dict[str, bytes]) -> None:
        for name in names:
            self.world.do(raw("RESTORE", name, 0, dumps[name], "REPLACE"))
        self.stays = self.world.do(raw("DUMP", self.world.keys.row(self.execution_id)))


Road = Callable[[Cell], None]
ROADS: dict[str, Road] = {}


def road(build: Road) -> Road:
    ROADS[build.__name__] = build
    return build


# -- starts ---------------------------------------------------------------------------------------------


@road
def start_of_ours(cell: Cell) -> None:
    cell.lives()
    cell.deleted()
    cell.send(
        start_payload(
            execution_id=cell.execution_id, flow_id="noted", version=None, tenant_id="default",
            timestamp=iso_utc(cell.deleted_at) or "",
        ),
        execution_id=cell.execution_id,
        tenant_id="default",
    )  # fmt: skip


@road
def foreign_start(cell: Cell) -> None:
    cell.lives()
    cell.deleted()
    cell.send(cell.foreign())


@road
def foreign_start_that_ran(cell: Cell) -> None:
    cell.lives()
    cell.ended("completed")
    cell.deleted()
    cell.send(cell.foreign())


@road
def foreign_start_with_a_time_ahead(cell: Cell) -> None:
    cell.lives()
    cell.deleted()
    cell.send(cell.foreign(timestamp=(wall_ms() + DAY) / 1000))


@road
def foreign_start_copied_today(cell: Cell) -> None:
    cell.lives()
    cell.deleted()
    cell.send(cell.foreign(), at=wall_ms(), first_enqueued_at=str(cell.deleted_at))


@road
def foreign_start_sent_again_today_with_its_own_time(cell: Cell) -> None:
    cell.lives()
    cell.deleted()
    cell.send(cell.foreign(timestamp=iso_utc(cell.deleted_at)), at=wall_ms())


@road
def foreign_start_with_a_dedup_key(cell: Cell) -> None:
    cell.lives()
    cell.deleted()
    cell.world.do(raw("SET", cell.world.keys.start_dedup(f"k-{cell.execution_id}"), cell.execution_id))
    cell.send(cell.foreign(dedup_key=f"k-{cell.execution_id}"))


@road
def foreign_start_handed_over(cell: Cell) -> None:
    """A delayed copy, as for a host that it names or a quota: the very payload, its first time with it."""
    cell.lives()
    cell.deleted()
    source = {b"payload": jsontext.dumps(cell.foreign())}
    cell.delay(same_body(source, f"{cell.deleted_at}-0", {}), "q")


@road
def foreign_start_without_an_id(cell: Cell) -> None:
    """Its id comes from the entry's: the same one each time it is delivered."""
    cell.send({"type": "start", "flow_id": "noted", "params": {"x": 1}})


# -- resumes --------------------------------------------------------------------------------------------


def resumes(kind: str, today: bool) -> Road:
    def build(cell: Cell) -> None:
        cell.lives()
        if kind in ("event", "timeout"):
            cell.suspended()
        if kind == "retry":
            cell.ended("error")
        cell.deleted()
        said = {"wait": "1", "data": {"a": 1}} if kind in ("event", "timeout") else {}
        cell.send(cell.resume(kind, **said), "w", at=wall_ms() if today else None)

    return build


for _kind in ("continue", "retry", "event", "timeout", "cancel"):
    ROADS[_kind] = resumes(_kind, today=False)
    ROADS[f"{_kind}_of_today"] = resumes(_kind, today=True)


@road
def cancel_with_its_flag(cell: Cell) -> None:
    cell.lives()
    cell.deleted()
    cell.world.do(raw("SET", cell.world.keys.cancel(cell.execution_id), "stop"))
    cell.send(cell.resume("cancel"), "w")


@road
def delayed_retry(cell: Cell) -> None:
    cell.lives()
    cell.deleted()
    cell.delay(
        continue_copy(
            cell.past_fields(), f"{cell.deleted_at}-0", execution_id=cell.execution_id, flow_id="noted",
            tenant_id="default",
        ),
        "w",
    )  # fmt: skip


@road
def timer_of_a_wait_of_60_days(cell: Cell) -> None:
    """A timer that came back with a backup of the delayed records; its age would start when it is due."""
    keys = cell.world.keys
    cell.lives()
    cell.suspended()
    member = f"wait {keys.ns} {cell.execution_id} 1"
    body = cell.world.do(raw("HGET", keys.delayed_body, member))
    cell.deleted()
    assert cell.world.do(raw("ZSCORE", keys.delayed, member)) is None
    cell.world.do(raw("HSET", keys.delayed_body, member, body))
    cell.world.do(raw("ZADD", keys.delayed, 1, member))


# -- dead letters -----------------------------------------------------------------------------------------


@road
def malformed_carrier(cell: Cell) -> None:
    """It goes to the dead letters, and the guard gives no recovery copy."""
    cell.lives()
    cell.deleted()
    cell.send({"type": "resume", "execution_id": cell.execution_id, "resume_type": "nonsense"}, "w")


@road
def carrier_of_a_newer_schema(cell: Cell) -> None:
    cell.lives()
    cell.deleted()
    cell.send(cell.foreign(), schema_version="99")


@road
def recovery_copy(cell: Cell) -> None:
    """Made by the guard just before the delete."""
    cell.lives()
    cell.deleted()
    copy = continue_copy(
        cell.past_fields(), f"{cell.deleted_at}-0", execution_id=cell.execution_id, flow_id="noted", tenant_id="default"
    )
    cell.sent.append(Sent(wall_ms(), "w", copy))


def replayed(force: bool) -> Road:
    def build(cell: Cell) -> None:
        from plaita.client.replaying import Manner, Wanted

        keys = cell.world.keys
        cell.lives()
        cell.deleted()
        source = {b"payload": jsontext.dumps(cell.foreign())}
        letter = envelope(
            reason="why", cause="no_flow", source_stream=keys.queue, source_id=f"{cell.deleted_at}-0", fields=source,
            schema_version=1, dead_lettered_at_ms=wall_ms(), attempts=1, execution_id=cell.execution_id,
            tenant_id="default",
        )  # fmt: skip
        words = [word for pair in letter for word in pair]
        dlq_id = cell.world.do(raw("XADD", keys.dead_letters, "*", *words)).decode()
        answer = cell.world.client.replay_dead_letters(Wanted([dlq_id]), Manner(force=force))
        [(outcome, _)] = answer["outcomes"].items()
        expected = {"execution_deleted"}
        if cell.day >= BORDER:
            expected |= {"replayed"} if force else {"too_old"}
        if cell.day >= 30:
            expected -= {"execution_deleted"}
        assert outcome in expected, (cell.day, outcome)

    return build


ROADS["dlq_replay"] = replayed(force=False)
ROADS["dlq_replay_forced"] = replayed(force=True)


# -- dedup hits, and keys out of a backup -------------------------------------------------------------------


@road
def dedup_hit_of_its_key(cell: Cell) -> None:
    """Another start has its dedup key, whose claim is still there: that one begins anew, the deleted one does not."""
    cell.lives()
    cell.deleted()
    cell.world.do(raw("SET", cell.world.keys.start_dedup(f"k-{cell.execution_id}"), cell.execution_id))
    other = cell.foreign(execution_id=f"other.{cell.execution_id}", dedup_key=f"k-{cell.execution_id}")
    cell.send(other, at=wall_ms())


def restored(stage: str, kind: str, indexed: bool) -> Road:
    def build(cell: Cell) -> None:
        keys = cell.world.keys
        cell.lives()
        if stage == "suspended":
            cell.suspended()
        elif stage == "running":
            cell.held()
        elif stage == "error":
            cell.ended("error")
        names = [keys.row(cell.execution_id)]
        dumps = {name: cell.world.do(raw("DUMP", name)) for name in names}
        cell.deleted()
        cell.restore(*names, dumps=dumps)
        if indexed:
            cell.world.do(raw("ZADD", keys.index(), cell.deleted_at, cell.execution_id))
            cell.world.do(raw("ZADD", keys.index(stage), cell.deleted_at, cell.execution_id))
        cell.send(cell.resume(kind) if kind != "start" else cell.foreign(), "w" if kind != "start" else "q")

    return build


for _stage, _of in (
    ("pending", "start"), ("pending", "continue"), ("running", "continue"), ("running", "cancel"),
    ("suspended", "event"), ("suspended", "timeout"), ("error", "retry"), ("error", "start"),
):  # fmt: skip
    ROADS[f"restored_{_stage}_row_and_{_of}"] = restored(_stage, _of, indexed=False)
ROADS["restored_suspended_row_with_its_index_and_event"] = restored("suspended", "event", indexed=True)


# -- all of them -----------------------------------------------------------------------------------------------


def add_all(world: World, sent: list[Sent]) -> list[str]:
    """The entries of the past, the oldest first, as a stream must have them."""
    world.do(raw("DEL", world.keys.queue, world.keys.wake))
    added = []
    for number, one in enumerate(sorted(sent, key=lambda one: one.at)):
        words = [word for pair in one.fields for word in pair]
        name = world.keys.stream(one.stream)
        added.append((id(one), world.do(raw("XADD", name, f"{one.at}-{number}", *words)).decode()))
    found = dict(added)
    for letter in "qw":
        world.do(raw("XGROUP", "CREATE", world.keys.stream(letter), world.keys.group, "0", "MKSTREAM"))
    return [found[id(one)] for one in sent]


def deliver_to_the_dead(world: World) -> None:
    """All of them were delivered to somebody who is gone since."""
    for letter in "qw":
        name, group = world.keys.stream(letter), world.keys.group
        reply = world.do(raw("XREADGROUP", "GROUP", group, "dead", "COUNT", 100_000, "STREAMS", name, ">"))
        entries = [entry[0] for entry in reply[0][1]]
        for entry in entries:
            world.do(raw("XCLAIM", name, group, "dead", 0, entry, "IDLE", IDLE, "JUSTID"))


def quiet(world: World) -> bool:
    stats = world.stats()
    due = world.do(raw("ZRANGEBYSCORE", world.keys.delayed, "-inf", wall_ms()))
    return all(one.length == one.pending == 0 for one in stats.streams) and not due


def lines(world: World) -> Counter[str]:
    file = world.folder / "lines"
    return Counter(line.split()[0] for line in file.read_text().splitlines()) if file.exists() else Counter()


def store_flow(world: World) -> None:
    world.chain("noted", {"type": "t_noted", "id": "a", "file": str(world.folder / "lines")})


def build(world: World, name: str, day: float) -> Cell:
    execution_id = f"{name}.{day:.5f}".replace("_", "-")
    cell = Cell(world, name, day, execution_id, ago(day))
    ROADS[name](cell)
    return cell


def is_back(cell: Cell, ran: Counter[str]) -> bool:
    keys = cell.world.keys
    row = cell.world.do(raw("DUMP", keys.row(cell.execution_id)))
    if ran[cell.execution_id] or row not in (cell.stays, None):  # what a backup brought back may be gone again
        return True
    others = cell.world.do(raw("EXISTS", keys.lease(cell.execution_id), keys.fence(cell.execution_id)))
    indexed = cell.world.do(raw("ZSCORE", keys.index("running"), cell.execution_id))
    return bool(others) or (indexed is not None and cell.stays is None)


@pytest.mark.parametrize("redelivered", [False, True])
def test_D2_a_deleted_execution_does_not_come_back_by_any_road_on_any_day(world: World, redelivered: bool) -> None:
    store_flow(world)
    cells = [build(world, name, day) for name in ROADS for day in DAYS]
    sent = [one for cell in cells for one in cell.sent]
    replays = world.do(raw("XRANGE", world.keys.queue, "-", "+"))  # what forced replays have enqueued
    for _, flat in replays:
        pairs = list(zip([word.decode() for word in flat[::2]], flat[1::2], strict=True))
        sent.append(Sent(wall_ms(), "q", pairs))
    ids = add_all(world, sent)
    for cell in cells:
        if cell.road == "foreign_start_without_an_id":
            entry_id = ids[next(at for at, one in enumerate(sent) if one is cell.sent[0])]
            cell.execution_id = str(uuid.uuid5(uuid.NAMESPACE_OID, f"{world.keys.queue}:{entry_id}"))
            cell.lives()
            cell.deleted()
    if redelivered:
        deliver_to_the_dead(world)
    supervisor = world.serving(**FLAGS)
    until(lambda: quiet(world), "a quiet queue", 120)
    ran = lines(world)
    back = {}
    for cell in cells:
        if is_back(cell, ran):
            back.setdefault(cell.road, []).append(cell.day)
    assert back == {}
    # the dedup key of a deleted execution is free for another
    others = {f"other.{cell.execution_id}" for cell in cells if cell.road == "dedup_hit_of_its_key"}
    assert set(ran) == others
    status = supervisor.wait_status(lambda s: s["counters"]["finished"] >= len(others), "the ends are counted")
    counters = status["counters"]
    assert counters["finished"] == len(others)
    # no recovery copy, no retry, nothing else was made of them
    assert counters["delayed_promoted"] == sum(
        cell.road in ("foreign_start_handed_over", "delayed_retry") for cell in cells
    )
    letters = world.stats().dlq_length
    assert letters == sum(cell.road in ("dlq_replay", "dlq_replay_forced", "malformed_carrier",
                                        "carrier_of_a_newer_schema") for cell in cells)  # fmt: skip


# -- who held it, and comes late ----------------------------------------------------------------------------------


VERBS: dict[str, Callable[[Cell, Begun], Call[Any]]] = {
    "commit": lambda c, b: executions.commit(
        c.world.keys, Commit(c.execution_id, b.token, 1, 600_000, b.lease_value, "a", b"1", b"{}", "end")
    ),
    "suspend": lambda c, b: executions.suspend(
        c.world.keys,
        Suspend(c.execution_id, b.token, 1, "a", b"{}", b"{}", "go", "", None, 1, [("payload", b"{}")], "w", "1-1"),
    ),
    "finish": lambda c, b: executions.finish(
        c.world.keys, Finish(c.execution_id, b.token, 1, "completed", "w", "1-1", LIMIT)
    ),
    "finish in error with a dead letter": lambda c, b: executions.finish(
        c.world.keys,
        Finish(c.execution_id, b.token, 1, "error", "w", "1-1", LIMIT, dead_letter=DeadLetter([("a", b"b")], 10)),
    ),
    "postpone": lambda c, b: executions.postpone(
        c.world.keys, Postpone(c.execution_id, b.token, 1, 0, "copy", [("payload", b"{}")], "w", "1-1", True)
    ),
    "hand on": lambda c, b: executions.hand_on(c.world.keys, HandOn(c.execution_id, b.token, "w", "1-1", "elsewhere")),
    "retake": lambda c, b: executions.retake(
        c.world.keys, Retake(c.execution_id, b.token, "elsewhere/1", "n2", 600_000, "w", "1-1", b"{}", 5)
    ),
    "count a failure": lambda c, b: failures.count_failure(c.world.keys, CountFailure(c.execution_id, b.token, 1, "a")),
    "begin again": lambda c, b: executions.begin(
        c.world.keys, Begin(c.execution_id, "elsewhere/1", "n1", 600_000, "w", "1-1", 5)
    ),
    "begin a start of its own input again": lambda c, b: executions.begin(
        c.world.keys,
        Begin(
            c.execution_id, "elsewhere/1", "n1", 600_000, "w", "1-1", 5,
            foreign=ForeignStart("noted", "latest", b"1", None, c.deleted_at + LIMIT),
        ),
    ),
    "renew": lambda c, b: leases.renew(
        c.world.keys, "elsewhere",
        [Renewal("default", c.execution_id, b.lease_value, "w", "1-1", Beat(1, "a", b"{}"))], 600_000,
    ),
    "cancel was seen": lambda c, b: leases.note_signalled(c.world.keys, [("default", c.execution_id, b.token)]),
    "continue": lambda c, b: executions.request_resume(c.world.keys, ResumeRequest(c.execution_id, "continue", b"{}")),
    "retry": lambda c, b: executions.request_resume(c.world.keys, ResumeRequest(c.execution_id, "retry", b"{}")),
    "event": lambda c, b: executions.wake(c.world.keys, Wake(c.execution_id, "event", b"1", "ev", b"{}")),
    "cancel": lambda c, b: executions.request_cancel(c.world.keys, c.execution_id, "why", b"{}"),
}  # fmt: skip


def everything(world: World) -> dict[bytes, bytes]:
    found = world.do(raw("KEYS", f"{world.keys.prefix}*"))
    return {key: dump for key in found if (dump := world.do(raw("DUMP", key))) is not None}


def held_and_deleted(world: World, name: str, day: float, restore: tuple[str, ...] = ()) -> tuple[Cell, Begun]:
    cell = Cell(world, name, day, f"{name}.{day:.5f}", ago(day))
    cell.lives()
    begun = cell.held()
    dumps = {key: world.do(raw("DUMP", key)) for key in keys_of(cell)}
    cell.deleted()
    for word in restore:
        key = keys_of(cell)[("row", "lease", "fence").index(word)]
        world.do(raw("RESTORE", key, 0, dumps[key]))
    return cell, begun


def keys_of(cell: Cell) -> list[str]:
    keys = cell.world.keys
    return [keys.row(cell.execution_id), keys.lease(cell.execution_id), keys.fence(cell.execution_id)]


NO_RIGHT = [(), ("lease",), ("fence",), ("lease", "fence")]
OF_A_BACKUP = [("row",), ("row", "lease"), ("row", "fence"), ("row", "lease", "fence")]


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("restore", NO_RIGHT, ids="+".join)
def test_D1_a_late_hand_brings_nothing_back_on_any_day(world: World, verb: str, restore: tuple[str, ...]) -> None:
    store_flow(world)
    for day in (0, 1, 15, 29, 30, 31):
        unchanged_by(world, verb, day, restore)


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("restore", OF_A_BACKUP, ids="+".join)
def test_D1_nor_over_what_a_backup_brought_back(world: World, verb: str, restore: tuple[str, ...]) -> None:
    """As long as the tombstone stands; the generation stands beside it and is nobody's."""
    store_flow(world)
    for day in (0, 15, 29):
        unchanged_by(world, verb, day, restore)


def unchanged_by(world: World, verb: str, day: float, restore: tuple[str, ...]) -> None:
    cell, begun = held_and_deleted(world, "late", day, restore)
    before = everything(world)
    answer = world.runner.run(VERBS[verb](cell, begun))
    if verb == "hand on" and "lease" in restore:  # it lets go of its own lease, and of nothing else
        assert before.pop(world.keys.lease(cell.execution_id).encode()) is not None
        assert isinstance(answer, Value)
    elif verb == "cancel was seen":
        assert answer == Value(0)
    elif verb == "renew":
        assert answer in (Value(["lost"]), Value(["fenced"]))
    else:
        assert isinstance(answer, Refused), (day, answer)
    assert everything(world) == before, day


def test_D1_a_start_sent_again_is_refused_while_the_tombstone_stands(world: World) -> None:
    store_flow(world)
    for day in range(30):
        cell = Cell(world, "again", day, f"again.{day}", wall_ms() - day * DAY)
        request = executions.Start(cell.execution_id, "noted", b"{}", b"{}")
        world.do(executions.start(world.keys, request))
        cell.deleted()
        answer = world.runner.run(executions.start(world.keys, request))
        assert isinstance(answer, Refused)
        assert answer.reason == "tombstoned"
        assert world.do(raw("EXISTS", world.keys.row(cell.execution_id))) == 0


# -- by hand, and by a program of one's own -------------------------------------------------------------------------


def test_D2_a_start_under_its_id_by_hand_is_refused_for_30_days(world: World) -> None:
    """After them the id is like any that was never used: what begins is another execution, by somebody's wish."""
    store_flow(world)
    for day in DAYS:
        cell = build_only(world, "by-hand", day)
        cell.deleted()
        if day >= BORDER:
            continue
        with pytest.raises(RefusedError) as refused:
            world.client.start("noted", {}, execution_id=cell.execution_id)
        assert refused.value.reason == "tombstoned", day
        assert world.do(raw("EXISTS", world.keys.row(cell.execution_id))) == 0


def build_only(world: World, name: str, day: float) -> Cell:
    cell = Cell(world, name, day, f"{name}.{day:.5f}", ago(day))
    cell.lives()
    return cell


@pytest.mark.parametrize("held", [False, True])
def test_D1_D2_a_program_that_read_it_before_saves_nothing(world: World, held: bool) -> None:
    store_flow(world)
    storage = RedisExecutionStorage(world.url, key_prefix=world.keys.prefix)
    try:
        for day in DAYS:
            cell = build_only(world, "saved", day)
            token = cell.held().token if held else None
            state = storage.load_execution_state(cell.execution_id)
            assert state is not None
            if not held:
                storage.save_execution_state(cell.execution_id, state)  # the last that it saved
            cell.deleted()
            before = everything(world)
            with pytest.raises((ExecutionDeletedError, ExecutionLeaseError)):
                storage.save_execution_state(cell.execution_id, state, token=token)
            assert everything(world) == before, day
    finally:
        storage.close()


@pytest.mark.parametrize("requeue", [False, True])
@pytest.mark.parametrize("stage", ["pending", "running"])
def test_D2_reindex_and_reap_bring_nothing_back(world: World, requeue: bool, stage: str) -> None:
    store_flow(world)
    cells = []
    for day in range(30):
        cell = build_only(world, "again", day)
        if stage == "running":
            cell.held()
        row = world.keys.row(cell.execution_id)
        dump = world.do(raw("DUMP", row))
        cell.deleted()
        cell.restore(row, dumps={row: dump})
        for index in (world.keys.index(), world.keys.index(stage)):
            world.do(raw("ZADD", index, cell.deleted_at, cell.execution_id))
        cells.append(cell)
    if stage == "running":  # as it stands in the index a restored row may be found by `reap`, and is dead either way
        world.client.perform(upkeep.reap(world.keys, 0.0000001, LIMIT))
    answer = world.client.perform(upkeep.reindex(world.keys, LIMIT, requeue=requeue))
    assert (answer["rows"], answer["deleted"], answer["executions"]) == (0, len(cells), [])
    assert world.do(raw("ZCARD", world.keys.index())) == world.do(raw("ZCARD", world.keys.expiry)) == 0
    assert not any(one.length for one in world.stats().streams)
    for cell in cells:
        for kind in ("continue", "retry"):
            request = ResumeRequest(cell.execution_id, kind, b"{}")
            answered = world.runner.run(executions.request_resume(world.keys, request))
            assert isinstance(answered, Refused)
            assert answered.reason == "tombstoned"
        ends = world.do(raw("PEXPIRETIME", world.keys.row(cell.execution_id)))
        assert 0 < ends <= world.do(raw("PEXPIRETIME", world.keys.tombstone(cell.execution_id)))


# -- under the hands of a supervisor ----------------------------------------------------------------------------------


def test_D1_a_step_that_runs_while_its_execution_is_deleted_saves_nothing_and_ends(world: World) -> None:
    lines_, gate = str(world.folder / "lines"), world.folder / "gate"
    world.chain("gated", {"type": "t_gated", "id": "a", "file": lines_, "gate": str(gate)})
    supervisor = world.serving(**FLAGS)
    execution = world.start("gated")
    supervisor.busy("a")
    with pytest.raises(RefusedError) as refused:
        world.client.perform(remove_execution(world.keys, execution, "", force=False))
    assert refused.value.reason == "running"
    world.client.perform(remove_execution(world.keys, execution, "", force=True))
    Path(f"{gate}.1").touch()
    supervisor.wait_status(lambda s: all(one["state"] == "idle" for one in s["executors"]), "idle executors")
    until(lambda: quiet(world), "a quiet queue")
    left = {key.decode() for key in everything(world) if execution in key.decode()}
    assert left == {world.keys.tombstone(execution), world.keys.fencegen(execution)}
    assert lines(world)[execution] == 1


# -- what is not promised ---------------------------------------------------------------------------------------------


def test_D2_the_known_limit(world: World) -> None:
    """A start that brings its own input along, made AFTER the delete: dropped as long as the tombstone stands; once it
    has waited that out, and is itself young enough, it begins an execution of that id anew, from its own input. So does
    a start that is enqueued after the 30 days. Nothing of the deleted one comes back. A resume never makes a row."""
    store_flow(world)
    cells = {}
    for made, met in ((5, 29), (5, 31), (31, 31)):
        cell = Cell(world, "limit", met, f"limit.{made}.{met}", wall_ms() - met * DAY)
        cell.lives()
        cell.ended("completed")
        cell.deleted()
        cell.send(cell.foreign(params={"made": made}), at=cell.deleted_at + made * DAY)
        cells[made, met] = cell
        resumed = Cell(world, "limit", met, f"resumed.{made}.{met}", wall_ms() - met * DAY)
        resumed.lives()
        resumed.deleted()
        resumed.send(resumed.resume("continue"), "w", at=resumed.deleted_at + made * DAY)
        cells[-made, met] = resumed
    add_all(world, [one for cell in cells.values() for one in cell.sent])
    world.serving(**FLAGS)
    until(lambda: quiet(world), "a quiet queue")
    assert set(lines(world)) == {cells[5, 31].execution_id, cells[31, 31].execution_id}
    anew = world.wait(cells[5, 31].execution_id)
    assert (anew["status"], anew["input"]) == ("completed", {"made": 5})
    for made, met in ((5, 29), (-5, 29), (-5, 31), (-31, 31)):
        assert world.do(raw("EXISTS", world.keys.row(cells[made, met].execution_id))) == 0


# -- the end of a row is no delete, and must not be less than one (ledger D7, DECISIONS 17) ---------------------------


def test_D7_a_finished_row_is_kept_as_long_as_its_start_could_come_again(world: World) -> None:
    """However short rows are said to live: without its row, a start that is delivered again would begin anew."""
    store_flow(world)
    world.serving(**FLAGS, environment={"PLAITA_EXECUTION_STATE_TTL_DAYS": "1"})
    execution = world.start("noted")
    assert world.wait(execution)["status"] == "completed"
    ends = float(world.do(raw("ZSCORE", world.keys.expiry, execution)))
    assert ends > wall_ms() + LIMIT - DAY / 24
    assert world.do(raw("PTTL", world.keys.row(execution))) > LIMIT
