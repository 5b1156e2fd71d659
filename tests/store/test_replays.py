"""Ledger D5 on a real server: a letter goes once, says what happened and stays; every try is written down."""

from __future__ import annotations

from typing import Any

import pytest

from plaita import jsontext
from plaita.policy.replay import Outcome, Plan, plan
from plaita.store import executions, flows, replays
from plaita.store.replays import Replayed, Try

DAY_MS = 86_400_000
START = {"type": "start", "flow_id": "f", "execution_id": "e", "tenant_id": "default", "params": {"x": 1}}
RESUME = {"type": "resume", "flow_id": "f", "execution_id": "e", "resume_type": "continue", "tenant_id": "default"}


class Desk:
    """Letters of this test's server, and tries to replay them."""

    def __init__(self, world: Any) -> None:
        self.world = world
        self.keys = world.keys
        self.tries = 0

    def put(self, payload: dict[str, Any] | None = None, **said: Any) -> str:
        letter = {"reason": "r", "payload": START if payload is None else payload, "schema_version": 1} | said
        found = self.world.raw("XADD", self.keys.dead_letters, "*", "payload", jsontext.dumps(letter))
        return found.decode()

    def plan(self, dlq_id: str, tenant: str | None = None) -> Plan:
        [[_, flat]] = self.world.raw("XRANGE", self.keys.dead_letters, dlq_id, dlq_id)
        found = plan(
            dict(zip(flat[::2], flat[1::2], strict=True)),
            dlq_key=self.keys.dead_letters,
            dlq_id=dlq_id,
            tenant=tenant,
            now_ms=int(dlq_id.split("-")[0]),
            max_age_ms=0,
        )
        assert isinstance(found, Plan)
        return found

    def replay(self, dlq_id: str, nonce: str | None = None, **changes: Any) -> Replayed:
        self.tries += 1
        attempt = Try(dlq_id, nonce or f"n{self.tries}", [("by", "tester"), ("reason", "fixed")], **changes)
        made = self.plan(dlq_id)
        return self.world.do(replays.replay(self.keys.for_tenant(made.tenant_id), attempt, made))

    def stream(self, letter: str) -> list[dict[bytes, bytes]]:
        found = self.world.raw("XRANGE", self.keys.stream(letter), "-", "+")
        return [dict(zip(flat[::2], flat[1::2], strict=True)) for _, flat in found]

    def lengths(self) -> tuple[int, int]:
        return (self.world.raw("XLEN", self.keys.queue), self.world.raw("XLEN", self.keys.wake))

    def audit(self) -> list[dict[str, str]]:
        found = self.world.raw("XRANGE", self.keys.replay_audit, "-", "+")
        return [
            {name.decode(): value.decode() for name, value in zip(flat[::2], flat[1::2], strict=True)}
            for _, flat in found
        ]

    def row_in_error(self, execution_id: str = "e") -> None:
        entry, begun = self.world.running(execution_id)
        self.world.finish(begun, entry, execution_id=execution_id, status="error", error=b'{"message":"x"}')


@pytest.fixture
def desk(world: Any) -> Desk:
    return Desk(world)


def test_D5_a_start_comes_back_once_and_the_letter_stays(desk: Desk, world: Any) -> None:
    dlq_id = desk.put()
    done = desk.replay(dlq_id)
    assert (done.outcome, done.enqueued_as, done.status) == (Outcome.REPLAYED, "start", "")
    [carrier] = desk.stream("q")
    assert jsontext.loads(carrier[b"payload"]) == START
    assert (carrier[b"execution_id"], carrier[b"tenant_id"], carrier[b"schema_version"]) == (b"e", b"default", b"1")
    again = desk.replay(dlq_id)
    assert again.outcome is Outcome.ALREADY_REPLAYED
    assert int(again.detail) > 0
    assert desk.lengths() == (1, 0)
    assert world.raw("XLEN", desk.keys.dead_letters) == 1
    assert world.do(replays.replayed_at(desk.keys, dlq_id)) == (int(again.detail), done.message_id)
    assert world.do(replays.replayed_at(desk.keys, "1-1")) is None


def test_D5_the_mark_is_the_ledgers_and_lives_seven_days(desk: Desk, world: Any) -> None:
    dlq_id = desk.put()
    desk.replay(dlq_id)
    mark = f"plaita:dlq:replay:plaita:flow:queue:dlq:{dlq_id}"
    assert 6 * DAY_MS < world.raw("PTTL", mark) <= 7 * DAY_MS
    assert desk.keys.replay_audit == "plaita:dlq:replay:audit"


def test_D5_sent_again_after_a_lost_answer_it_is_the_same_replay(desk: Desk) -> None:
    dlq_id = desk.put()
    first, again = desk.replay(dlq_id, "n"), desk.replay(dlq_id, "n")
    assert (again.outcome, again.message_id, again.enqueued_as) == (Outcome.REPLAYED, first.message_id, "start")
    assert desk.lengths() == (1, 0)
    assert len(desk.audit()) == 1


def test_D5_force_goes_past_the_mark_and_meets_the_same_execution(desk: Desk) -> None:
    without = {name: value for name, value in START.items() if name != "execution_id"}
    dlq_id = desk.put(without)
    desk.replay(dlq_id)
    assert desk.replay(dlq_id, force=True).outcome is Outcome.REPLAYED
    first, second = desk.stream("q")
    assert first == second
    assert first[b"execution_id"]


def test_D5_every_try_is_in_the_audit(desk: Desk, world: Any) -> None:
    dlq_id = desk.put()
    desk.replay(dlq_id)
    desk.replay(dlq_id)
    desk.replay(dlq_id, audit_repetition=False)
    world.do(replays.refuse(desk.keys, Try(dlq_id, "x"), Outcome.MALFORMED, "why"))
    world.do(replays.refuse(desk.keys, Try(dlq_id, "x", force=True), Outcome.MALFORMED, "why"))
    world.do(replays.refuse(desk.keys, Try("1-1", "x"), Outcome.MALFORMED, "why"))
    found = desk.audit()
    assert [one["outcome"] for one in found] == [
        "replayed",
        "already_replayed",
        "already_replayed",
        "malformed",
        "no_letter",
    ]
    assert found[0] == {
        "dlq_key": desk.keys.dead_letters,
        "execution_id": "e",
        "tenant_id": "default",
        "flow_id": "f",
        "kind": "start",
        "by": "tester",
        "reason": "fixed",
        "dlq_id": dlq_id,
        "outcome": "replayed",
        "detail": "",
        "status": "",
        "message_id": found[0]["message_id"],
        "forced": "0",
    }
    assert (found[3]["detail"], found[3]["forced"]) == ("why", "1")


def test_D5_a_dry_run_writes_nothing(desk: Desk, world: Any) -> None:
    dlq_id = desk.put()
    before = world.everything()
    done = desk.replay(dlq_id, dry_run=True)
    assert (done.outcome, done.message_id) == (Outcome.REPLAYED, "")
    assert world.everything() == before


def test_D5_a_deleted_execution_stays_deleted(desk: Desk, world: Any) -> None:
    world.start()
    world.do(executions.delete(desk.keys, "e", "gone", force=False, tombstone_ttl_ms=DAY_MS))
    world.raw("XTRIM", desk.keys.queue, "MAXLEN", 0)
    dlq_id = desk.put()
    assert desk.replay(dlq_id).outcome is Outcome.EXECUTION_DELETED
    assert desk.lengths() == (0, 0)
    other = desk.put({**START, "tenant_id": "t2"})
    world.do(flows.put(desk.keys.for_tenant("t2"), "f", None, "b" * 64, b"{}"))
    assert desk.replay(other).outcome is Outcome.REPLAYED, "another tenant's same id passes (D2)"


@pytest.mark.parametrize(
    ("payload", "wanted", "detail"),
    [
        ({**START, "flow_id": "none"}, Outcome.NO_FLOW, ""),
        ({**START, "version": "9"}, Outcome.NO_VERSION, "1"),
        ({**START, "input_in_row": True}, Outcome.NO_ROW, ""),
        (RESUME, Outcome.NO_ROW, ""),
        ({**RESUME, "resume_type": "cancel"}, Outcome.NO_ROW, ""),
    ],
)
def test_D5_what_cannot_run_is_reported_and_kept(
    desk: Desk, world: Any, payload: dict[str, Any], wanted: Outcome, detail: str
) -> None:
    dlq_id = desk.put(payload)
    done = desk.replay(dlq_id)
    assert (done.outcome, done.detail) == (wanted, detail)
    assert desk.lengths() == (0, 0)
    assert world.raw("EXISTS", desk.keys.replay_mark(dlq_id)) == 0, "it can be replayed once it is put right"
    if wanted is Outcome.NO_FLOW:
        world.put_flow("none")
        assert desk.replay(dlq_id).outcome is Outcome.REPLAYED


def test_D5_the_definition_it_began_with_is_gone(desk: Desk, world: Any) -> None:
    world.start()
    [hash_] = world.raw("HMGET", desk.keys.row("e"), "flow_hash")
    world.raw("DEL", desk.keys.flow_body(hash_.decode()))
    done = desk.replay(desk.put(RESUME))
    assert (done.outcome, done.detail, done.status) == (Outcome.DEFINITION_GONE, hash_.decode(), "pending")


def test_D5_an_id_of_another_flow_or_a_foreign_key(desk: Desk, world: Any) -> None:
    world.put_flow("g")
    world.start()
    assert desk.replay(desk.put({**START, "flow_id": "g"})).outcome is Outcome.ID_TAKEN
    world.raw("SET", desk.keys.row("odd"), "x")
    assert desk.replay(desk.put({**START, "execution_id": "odd"})).outcome is Outcome.WRONG_TYPE
    assert world.raw("GET", desk.keys.row("odd")) == b"x"


@pytest.mark.parametrize(
    ("payload", "wanted"),
    [
        (START, Outcome.REPLAYED),
        (RESUME, Outcome.REPLAYED),
        ({**RESUME, "resume_type": "cancel"}, Outcome.REPLAYED),
        ({**RESUME, "resume_type": "event"}, Outcome.NOT_WAITING),
    ],
)
def test_D5_an_execution_that_has_not_begun(desk: Desk, world: Any, payload: dict[str, Any], wanted: Outcome) -> None:
    world.start()
    done = desk.replay(desk.put(payload))
    assert (done.outcome, done.status) == (wanted, "pending")


@pytest.mark.parametrize(
    ("payload", "wanted"),
    [
        (START, Outcome.HELD),
        (RESUME, Outcome.HELD),
        ({**RESUME, "resume_type": "cancel"}, Outcome.REPLAYED),
        ({**RESUME, "resume_type": "event"}, Outcome.REPLAYED),
    ],
)
def test_D5_an_execution_that_is_run_at_this_moment(
    desk: Desk, world: Any, payload: dict[str, Any], wanted: Outcome
) -> None:
    _, begun = world.running()
    done = desk.replay(desk.put(payload))
    assert (done.outcome, done.status) == (wanted, "running")
    if wanted is Outcome.HELD:
        assert done.detail == begun.lease_value
        world.raw("DEL", desk.keys.lease("e"))
        assert desk.replay(desk.put(payload)).outcome is Outcome.REPLAYED


@pytest.mark.parametrize("status", ["completed", "cancelled"])
def test_D5_what_has_ended_well_stays_so(desk: Desk, world: Any, status: str) -> None:
    entry, begun = world.running()
    world.finish(begun, entry, status=status)
    before = world.row()
    for payload in (START, RESUME, {**RESUME, "resume_type": "event"}):
        done = desk.replay(desk.put(payload))
        assert (done.outcome, done.status) == (Outcome.ALREADY_TERMINAL, status)
    assert (world.row(), desk.lengths()) == (before, (0, 0))


@pytest.mark.parametrize(
    "payload", [START, RESUME, {**RESUME, "resume_type": "event", "wait": "3"}, {**RESUME, "resume_type": "retry"}]
)
def test_D5_S13_what_ended_in_error_is_woken_by_a_retry(desk: Desk, world: Any, payload: dict[str, Any]) -> None:
    desk.row_in_error()
    before = world.row()
    done = desk.replay(desk.put(payload))
    assert (done.outcome, done.enqueued_as, done.status) == (Outcome.REPLAYED, "retry", "error")
    [carrier] = desk.stream("w")
    found = jsontext.loads(carrier[b"payload"])
    assert (found["type"], found["resume_type"], found["execution_id"]) == ("resume", "retry", "e")
    assert (world.row(), desk.lengths()) == (before, (0, 1)), "begin wakes it, not the replay"


@pytest.mark.parametrize(
    ("counter", "limit", "wanted"),
    [("g1wakeups", 2, Outcome.WAKEUPS_EXHAUSTED), ("nofail", 12, Outcome.FAILURES_EXHAUSTED)],
)
def test_S13_the_limits_hold_for_replays_too(desk: Desk, world: Any, counter: str, limit: int, wanted: Outcome) -> None:
    desk.row_in_error()
    key = desk.keys.of_execution(counter, "e")
    world.raw("SET", key, limit)
    dlq_id = desk.put()
    done = desk.replay(dlq_id)
    assert (done.outcome, done.detail, desk.lengths()) == (wanted, key, (0, 0))
    assert desk.replay(dlq_id, force=True).outcome is wanted, "force is for the mark only"
    world.raw("SET", key, limit - 1)
    assert desk.replay(dlq_id).outcome is Outcome.REPLAYED


def test_D5_a_cancel_of_what_ended_in_error(desk: Desk) -> None:
    desk.row_in_error()
    assert desk.replay(desk.put({**RESUME, "resume_type": "cancel"})).outcome is Outcome.ALREADY_TERMINAL


@pytest.mark.parametrize(
    ("row", "payload", "wanted"),
    [
        ({}, RESUME, Outcome.ALREADY_SUSPENDED),
        ({}, START, Outcome.ALREADY_SUSPENDED),
        ({"woken": "event"}, RESUME, Outcome.REPLAYED),
        ({}, {**RESUME, "resume_type": "cancel"}, Outcome.REPLAYED),
        ({}, {**RESUME, "resume_type": "event"}, Outcome.REPLAYED),
        ({}, {**RESUME, "resume_type": "event", "wait": "3"}, Outcome.REPLAYED),
        ({}, {**RESUME, "resume_type": "event", "wait": "2"}, Outcome.STALE_WAIT),
        ({"woken": "timeout"}, {**RESUME, "resume_type": "event", "wait": "3"}, Outcome.ALREADY_WOKEN),
    ],
)
def test_D5_an_execution_that_waits(
    desk: Desk, world: Any, row: dict[str, str], payload: dict[str, Any], wanted: Outcome
) -> None:
    world.start()
    changes = {"status": "suspended", "wait": "3", "woken": ""} | row
    world.raw("HSET", desk.keys.row("e"), *[word for pair in changes.items() for word in pair])
    before = world.row()
    done = desk.replay(desk.put(payload))
    assert (done.outcome, done.status) == (wanted, "suspended")
    assert world.row() == before


def test_S4_a_cancel_that_was_asked_for_needs_its_carrier(desk: Desk, world: Any) -> None:
    world.start()
    world.raw("HSET", desk.keys.row("e"), "status", "suspended", "wait", "3")
    world.raw("SET", desk.keys.cancel("e"), "stop")
    assert desk.replay(desk.put(RESUME)).outcome is Outcome.REPLAYED


def test_D5_letters_come_oldest_first_up_to_a_last_one(desk: Desk, world: Any) -> None:
    wanted = [desk.put() for _ in range(5)]
    page = world.do(replays.oldest(desk.keys, 2, None, wanted[3]))
    assert ([one.dlq_id for one in page.letters], page.more, page.total) == (wanted[:2], True, 5)
    rest = world.do(replays.oldest(desk.keys, 9, wanted[1], wanted[3]))
    assert ([one.dlq_id for one in rest.letters], rest.more) == (wanted[2:4], False)


def test_D5_another_dead_letter_stream_has_marks_of_its_own(desk: Desk, world: Any) -> None:
    from dataclasses import replace

    other = replace(desk.keys, dlq="other")
    assert desk.keys.replay_mark("1-1") != other.replay_mark("1-1")
