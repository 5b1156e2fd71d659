"""``plaita reindex`` and ``reap`` on a real server (ledger D4, D6): rows, indexes and streams afterwards."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from plaita import AsyncClient, Client
from plaita.store import delayed, upkeep
from plaita.store.call import Call
from plaita.store.embedded import Embedded
from plaita.store.keys import STATUSES, Keys
from plaita.store.runner_sync import SyncRunner

Run = Callable[..., Any]
Do = Callable[..., Any]
HOUR_MS = 3_600_000


class Rows:
    """Executions of the flow ``hello``, put into states."""

    def __init__(self, do: Do, keys: Keys, plaita: Run) -> None:
        self.do, self.keys, self.plaita = do, keys, plaita

    def start(self, execution_id: str, **fields: str) -> None:
        assert self.plaita("start", "hello", "--id", execution_id, "--input", '{"name": "x"}').code == 0
        if fields:
            self.set(execution_id, **fields)

    def set(self, execution_id: str, **fields: str) -> None:
        self.do("HSET", self.keys.row(execution_id), *[word for pair in fields.items() for word in pair])
        if "status" in fields:
            score = self.do("ZSCORE", self.keys.index(), execution_id)
            for status in STATUSES:
                self.do("ZREM", self.keys.index(status), execution_id)
            self.do("ZADD", self.keys.index(fields["status"]), score, execution_id)

    def row(self, execution_id: str) -> dict[str, bytes]:
        flat = self.do("HGETALL", self.keys.row(execution_id))
        return {name.decode(): value for name, value in zip(flat[::2], flat[1::2], strict=True)}

    def members(self, status: str | None = None) -> set[str]:
        return {one.decode() for one in self.do("ZRANGE", self.keys.index(status), 0, -1)}

    def scores(self) -> list[bytes]:
        found: list[bytes] = self.do("ZRANGE", self.keys.index(), 0, -1, "WITHSCORES")
        return found

    def woken(self) -> list[dict[str, Any]]:
        payloads = []
        for _, flat in self.do("XRANGE", self.keys.wake, "-", "+"):
            payloads.append(json.loads(dict(zip(flat[::2], flat[1::2], strict=True))[b"payload"]))
        return payloads

    def lose_streams(self) -> None:
        self.do("DEL", self.keys.queue, self.keys.wake)


@pytest.fixture
def rows(hello: dict[str, Any], plaita: Run, flow_file: Callable[..., str], redis_do: Do, keys: Keys) -> Rows:
    assert plaita("flow", "put", flow_file(hello), "--id", "hello").code == 0
    return Rows(redis_do, keys, plaita)


# -- reindex --------------------------------------------------------------------------------------


def test_D4_lost_indexes_are_rebuilt_as_they_were(rows: Rows, plaita: Run) -> None:
    names = ["a:b", "x-y", "index", "expiry", "日本"]
    for name in names:
        rows.start(name)
    rows.set("a:b", status="completed", ended_at="1764490800000")
    rows.set("index", status="suspended")
    before, statuses = rows.scores(), {status: rows.members(status) for status in STATUSES}
    rows.do("DEL", rows.keys.index(), *[rows.keys.index(status) for status in STATUSES])
    told = plaita("reindex", "--json")
    assert told.code == 0
    assert told.json == {
        "tenant_id": "default",
        "rows": 5,
        "indexed": 5,
        "moved": 5,
        "dropped": 0,
        "ending": 1,
        "deleted": 0,
        "waits": 0,
        "schedules": 0,
        "idle": None,
        "requeued": None,
        "executions": [],
    }
    assert (rows.scores(), {status: rows.members(status) for status in STATUSES}) == (before, statuses)
    again = plaita("reindex", "--json").json
    assert [again[name] for name in ("indexed", "moved", "dropped", "ending")] == [0, 0, 0, 0]


def test_D4_members_without_a_row_and_under_a_wrong_status_go(rows: Rows, plaita: Run) -> None:
    rows.start("e")
    for index in (rows.keys.index(), rows.keys.index("error"), rows.keys.index("pending"), rows.keys.expiry):
        rows.do("ZADD", index, 1, "ghost")
    rows.do("ZADD", rows.keys.index("running"), 1, "e")
    told = plaita("reindex", "--json").json
    assert (told["rows"], told["moved"], told["dropped"]) == (1, 1, 1)
    assert rows.members() == rows.members("pending") == {"e"}
    assert rows.members("running") == rows.members("error") == set()
    assert rows.do("ZCARD", rows.keys.expiry) == 0


def test_D4_D7_what_has_ended_gets_an_end_and_what_has_not_loses_it(
    rows: Rows, plaita: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = int(time.time() * 1000) - HOUR_MS
    rows.start("done", status="completed", ended_at=str(ended))
    rows.start("open")
    rows.do("ZADD", rows.keys.expiry, 5, "open")
    rows.do("PEXPIRE", rows.keys.row("open"), 60_000)
    monkeypatch.setenv("PLAITA_EXECUTION_STATE_TTL_DAYS", "40")
    assert plaita("reindex", "--json").json["ending"] == 2
    assert int(rows.do("ZSCORE", rows.keys.expiry, "done")) == ended + 40 * 24 * HOUR_MS
    assert 0 < rows.do("PTTL", rows.keys.row("done")) <= 41 * 24 * HOUR_MS
    assert rows.do("ZSCORE", rows.keys.expiry, "open") is None
    assert rows.do("PTTL", rows.keys.row("open")) == -1


def test_D4_rows_kept_for_ever_get_no_end(rows: Rows, plaita: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    rows.start("done", status="completed", ended_at="1764490800000")
    monkeypatch.setenv("PLAITA_EXECUTION_STATE_TTL_DAYS", "0")
    assert plaita("reindex", "--json").json["ending"] == 0
    assert rows.do("PTTL", rows.keys.row("done")) == -1


def test_D2_a_deleted_execution_whose_row_came_back_is_in_no_index_and_gets_no_carrier(
    rows: Rows, plaita: Run, redis_do: Do, keys: Keys
) -> None:
    rows.start("e")
    rows.start("other")
    dump = redis_do("DUMP", keys.row("e"))
    assert plaita("rm", "e").code == 0
    redis_do("RESTORE", keys.row("e"), 0, dump)
    for index in (keys.index(), keys.index("pending"), keys.expiry):
        redis_do("ZADD", index, 1, "e")
    rows.lose_streams()
    told = plaita("reindex", "--requeue", "--json").json
    assert (told["rows"], told["deleted"], told["executions"]) == (1, 1, ["other"])
    assert rows.members() == rows.members("pending") == {"other"}
    assert redis_do("ZSCORE", keys.expiry, "e") is None
    # and it goes with its tombstone, else the delete would be undone by waiting
    assert 0 < redis_do("PEXPIRETIME", keys.row("e")) <= redis_do("PEXPIRETIME", keys.tombstone("e"))
    assert "deleted executions" in plaita("reindex").out
    again = plaita("rm", "e", "--json")
    assert (again.code, again.json["existed"]) == (0, True)


def test_D4_one_tenant_at_a_time(
    rows: Rows, plaita: Run, flow_file: Callable[..., str], hello: dict[str, Any], redis_do: Do
) -> None:
    assert plaita("flow", "put", flow_file(hello), "--id", "hello", "--tenant", "t2").code == 0
    assert plaita("start", "hello", "--id", "e", "--tenant", "t2").code == 0
    rows.start("e")
    other = rows.keys.for_tenant("t2")
    redis_do("DEL", rows.keys.index(), other.index())
    assert plaita("reindex", "--json").json["indexed"] == 1
    assert redis_do("EXISTS", other.index()) == 0
    told = plaita("reindex", "--tenant", "t2", "--json").json
    assert (told["tenant_id"], told["indexed"], told["rows"]) == ("t2", 1, 1)


def test_D4_many_rows_in_pages(rows: Rows, plaita: Run, redis_do: Do) -> None:
    count = 3 * upkeep.PAGE
    rows.start("e")
    flat = [word for pair in rows.row("e").items() for word in pair]
    for number in range(count - 1):
        redis_do("HSET", rows.keys.row(f"e{number}"), *flat)
    assert plaita("reindex", "--json").json["rows"] == count
    assert (len(rows.members()), len(rows.members("pending"))) == (count, count)


def test_D4_other_keys_are_left_alone(rows: Rows, plaita: Run, redis_do: Do) -> None:
    rows.start("e")
    redis_do("HSET", f"{rows.keys.ns}:execution:stranger", "colour", "blue")
    redis_do("SET", rows.keys.row("odd"), "x")
    assert plaita("reindex", "--json").json["rows"] == 1
    assert rows.members() == {"e"}
    assert redis_do("PTTL", f"{rows.keys.ns}:execution:stranger") == -1


def test_D4_requeue_gives_a_carrier_to_whom_the_streams_lost(rows: Rows, plaita: Run) -> None:
    rows.start("pending")
    rows.start("running", status="running")
    rows.start("woken", status="suspended", wait="3", woken="event")
    rows.start("waits", status="suspended", wait="3", woken="")
    rows.start("held", status="running")
    rows.do("SET", rows.keys.lease("held"), "v2 h/i 1:a q 1-0")
    rows.start("done", status="completed")
    rows.lose_streams()
    rows.start("fresh")
    assert plaita("reindex", "--json").json["idle"] is None
    told = plaita("reindex", "--requeue", "--json").json
    assert (told["idle"], told["requeued"], sorted(told["executions"])) == (3, 3, ["pending", "running", "woken"])
    carriers = rows.woken()
    assert sorted(one["execution_id"] for one in carriers) == ["pending", "running", "woken"]
    assert {(one["type"], one["resume_type"], one["flow_id"]) for one in carriers} == {("resume", "continue", "hello")}
    again = plaita("reindex", "--requeue", "--json").json
    assert (again["idle"], again["requeued"], len(rows.woken())) == (0, 0, 3)


def test_D4_requeue_sees_delayed_and_foreign_carriers(rows: Rows, plaita: Run, server: Embedded) -> None:
    for name in ("delayed", "foreign", "timer", "other"):
        rows.start(name, status="running")
    rows.lose_streams()
    with SyncRunner(server.url) as runner:
        body = [("payload", b"{}"), ("execution_id", "delayed"), ("tenant_id", "default")]
        runner.do(delayed.put(rows.keys, "m", 60_000, body))
    payload = {"type": "resume", "execution_id": "foreign", "resume_type": "continue", "flow_id": "hello"}
    rows.do("XADD", rows.keys.queue, "*", "payload", json.dumps(payload))
    rows.do("XADD", rows.keys.queue, "*", "payload", json.dumps(payload | {"execution_id": "timer", "tenant_id": "t2"}))
    rows.do("XADD", rows.keys.wake, "*", "payload", b"\xff")
    told = plaita("reindex", "--requeue", "--json").json
    assert sorted(told["executions"]) == ["other", "timer"]


def test_D4_requeue_leaves_alone_what_moved_meanwhile(rows: Rows, server: Embedded) -> None:
    rows.start("e")
    rows.lose_streams()
    with SyncRunner(server.url) as runner:
        [seen] = runner.do(upkeep.index_rows(rows.keys, ["e"], 0)).idle
        rows.set("e", last_update_time="5")
        assert runner.do(upkeep.requeue(rows.keys, seen, b"{}")) is False
        [seen] = runner.do(upkeep.index_rows(rows.keys, ["e"], 0)).idle
        rows.do("SET", rows.keys.lease("e"), "x")
        assert runner.do(upkeep.requeue(rows.keys, seen, b"{}")) is False
        rows.do("DEL", rows.keys.lease("e"))
        rows.do("HSET", rows.keys.tombstone("e"), "default", "1 x")
        assert runner.do(upkeep.requeue(rows.keys, seen, b"{}")) is False
        rows.do("DEL", rows.keys.tombstone("e"))
        assert runner.do(upkeep.requeue(rows.keys, seen, b"{}")) is True
        rows.do("DEL", rows.keys.row("e"))
        assert runner.do(upkeep.requeue(rows.keys, seen, b"{}")) is False
    assert rows.do("XLEN", rows.keys.wake) == 1


# -- reap -----------------------------------------------------------------------------------------


def silent_since(hours: float) -> str:
    return str(int(time.time() * 1000 - hours * HOUR_MS))


def test_D6_what_is_silent_and_held_by_nobody_ends_as_orphaned(rows: Rows, plaita: Run) -> None:
    since = silent_since(3)
    timing = json.dumps({"order": 2, "type": "assignment", "status": "running", "started_at": 5, "ended_at": None})
    rows.start("lost", status="running", last_update_time=since, next_node="greet", retried=":greet:")
    rows.do("HSET", rows.keys.row("lost"), "t:greet", timing)
    rows.do("SET", rows.keys.noderetry("lost", "greet"), 3)
    rows.do("SET", rows.keys.of_execution("g1wakeups", "lost"), 1)
    rows.start("fresh", status="running", last_update_time=silent_since(0.1))
    rows.start("waiting", last_update_time=since)
    rows.start("held", status="running", last_update_time=since)
    rows.do("SET", rows.keys.lease("held"), "v2 h/i 1:a q 1-0")
    told = plaita("reap", "--idle-minutes", "60", "--json")
    assert told.code == 0
    assert told.json["outcomes"] == {"reaped": 1, "leased": 1}
    assert {one["execution_id"]: one["outcome"] for one in told.json["executions"]} == {
        "lost": "reaped",
        "held": "leased",
    }
    shown = plaita("show", "lost", "--json").json
    assert (shown["status"], shown["error"]["code"], shown["error"]["failed_node"]) == ("error", "orphaned", "greet")
    assert [(one["id"], one["status"]) for one in shown["nodes"]] == [("greet", "error")]
    assert shown["nodes"][0]["ended_at"] is not None
    assert (rows.members("error"), rows.members("running")) == ({"lost"}, {"fresh", "held"})
    assert rows.do("EXISTS", rows.keys.noderetry("lost", "greet")) == 0
    assert rows.do("GET", rows.keys.of_execution("g1wakeups", "lost")) == b"1"
    assert rows.do("ZSCORE", rows.keys.expiry, "lost") is not None
    assert rows.do("PTTL", rows.keys.row("lost")) > 0
    assert "retried" not in rows.row("lost")
    assert plaita("show", "fresh", "--json").json["status"] == "running"
    assert plaita("resume", "lost", "--type", "retry", "--json").json["resumed"] is True


def test_D6_a_dry_run_changes_nothing(rows: Rows, plaita: Run) -> None:
    rows.start("lost", status="running", last_update_time=silent_since(3))
    before = rows.row("lost")
    told = plaita("reap", "--idle-minutes", "60", "--dry-run", "--json").json
    assert (told["dry_run"], told["outcomes"]) == (True, {"reaped": 1})
    assert rows.row("lost") == before
    assert "would be reaped" in plaita("reap", "--idle-minutes", "60", "--dry-run").out
    assert plaita("reap", "--idle-minutes", "200", "--json").json["outcomes"] == {}


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        (lambda rows: rows.set("e", last_update_time="7"), "changed"),
        (lambda rows: rows.set("e", commit="1:a|2|commit"), "changed"),
        (lambda rows: rows.set("e", attempts="2"), "changed"),
        (lambda rows: rows.set("e", status="completed"), "changed"),
        (lambda rows: rows.do("DEL", rows.keys.row("e")), "changed"),
        (lambda rows: rows.do("SET", rows.keys.lease("e"), "x"), "leased"),
        (lambda rows: None, "reaped"),
    ],
)
def test_D6_never_when_it_moved_since_it_was_read(
    rows: Rows, server: Embedded, change: Callable[[Rows], Any], wanted: str
) -> None:
    rows.start("e", status="running", last_update_time=silent_since(3))
    with SyncRunner(server.url) as runner:
        _, [seen] = runner.do(upkeep.stale(rows.keys, HOUR_MS))
        change(rows)
        before = rows.do("DUMP", rows.keys.row("e"))
        assert runner.do(upkeep.reap(rows.keys, seen, b'{"at":1}', None, 0)) == wanted
        if wanted != "reaped":
            assert rows.do("DUMP", rows.keys.row("e")) == before
        else:
            assert runner.do(upkeep.reap(rows.keys, seen, b'{"at":1}', None, 0)) == "reaped", "sent again"
            assert runner.do(upkeep.reap(rows.keys, seen, b'{"at":2}', None, 0)) == "changed"


def test_D6_a_late_write_of_what_was_reaped_is_refused(rows: Rows, server: Embedded) -> None:
    from plaita.store import executions
    from plaita.store.call import Refused
    from plaita.store.executions import Begin, Commit

    rows.start("e")
    with SyncRunner(server.url) as runner:
        begun = runner.do(executions.begin(rows.keys, Begin("e", "h/i", "n", 60_000, "q", "1-0", 5)))
        rows.do("DEL", rows.keys.lease("e"))
        rows.set("e", last_update_time=silent_since(3))
        _, [seen] = runner.do(upkeep.stale(rows.keys, HOUR_MS))
        assert runner.do(upkeep.reap(rows.keys, seen, b'{"at":1}', None, 0)) == "reaped"
        late = Commit("e", begun.token, 1, 60_000, begun.lease_value, "a", b"1", b"{}", "b")
        assert runner.run(executions.commit(rows.keys, late)) == Refused("terminal", "error")


def test_bad_usage(rows: Rows, plaita: Run) -> None:
    for words in (("reap",), ("reap", "--idle-minutes", "0"), ("reap", "--idle-minutes", "x")):
        assert plaita(*words).code == 2, words


def test_both_clients_rebuild_and_reap(rows: Rows) -> None:
    rows.start("e", status="running", last_update_time=silent_since(3))
    rows.do("DEL", rows.keys.index())
    with Client() as client:
        assert client.rebuild_execution_index()["indexed"] == 1

    async def work() -> None:
        async with AsyncClient() as client:
            assert (await client.rebuild_execution_index(requeue=True))["requeued"] == 0
            assert (await client.reap(60))["outcomes"] == {"reaped": 1}

    asyncio.run(work())
    assert rows.members("error") == {"e"}


def test_reindex_for_people(rows: Rows, plaita: Run) -> None:
    rows.start("e")
    assert "indexed again" in plaita("reindex").out
    assert "without a carrier" in plaita("reindex", "--requeue").out


def test_D4_a_timer_is_no_carrier(rows: Rows, server: Embedded) -> None:
    rows.start("e", status="running")
    rows.lose_streams()
    call: Call[Any] = Call(
        "test",
        None,
        (),
        ("EVAL", "return redis.call('HSET', KEYS[1], 'wait', cmsgpack.pack({'t', 'row', '3', 'execution_id', 'e'}))", 1,
         rows.keys.delayed_body),
        "writer",
        False,
        lambda reply: reply,
    )  # fmt: skip
    with SyncRunner(server.url) as runner:
        runner.do(call)
        runner.do(upkeep.index_rows(rows.keys, ["e"], 0))
        _, found = runner.do(upkeep.delayed_named(rows.keys))
    assert found == []
