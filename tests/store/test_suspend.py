"""suspend: the row waits, its carrier is done with, and its timer stands, all at once (ledger F3, S8; DECISIONS 26)."""

from __future__ import annotations

import pytest

from plaita.store import delayed, executions
from plaita.store.call import Refused, Value
from plaita.store.executions import Suspended

WAIT_FIELDS = (
    "wait", "wait_type", "wait_correlation", "wait_filter", "wait_since", "wait_deadline",
    "woken", "wake_data", "wake_id",
)  # fmt: skip


def test_the_row_waits_and_nothing_else_is_left(world):
    entry, begun = world.running()
    answer = world.suspend(
        begun, entry, event_filter=b'{"a":1}', correlation="order 7", state={"k": b"2"}, nodes=3, active_ms_delta=5
    )
    assert answer == Value(Suspended(False, None))
    row = world.row()
    wanted = {
        "status": b"suspended",
        "next_node": b"w",
        "last_node": b"w",
        "step": b"1",
        "lost": b"0",
        "lost_node": b"w",
    }
    wanted |= {"wait": b"1", "wait_type": b"approval", "wait_correlation": b"order 7", "wait_filter": b'{"a":1}'}
    wanted |= {"wait_deadline": b"", "woken": b"", "wake_data": b"", "wake_id": b"", "active_ms": b"5", "nodes": b"3"}
    wanted |= {"r:w": b'{"status":"pending"}', "t:w": b'{"status":"waiting"}', "s:k": b"2"}
    assert {name: row[name] for name in wanted} == wanted
    assert row["wait_since"] == row["last_update_time"]
    assert world.raw("EXISTS", world.keys.lease("e")) == 0
    assert (world.pending(), world.raw("XLEN", world.keys.queue), world.raw("XLEN", world.keys.wake)) == ([], 0, 0)
    assert world.raw("ZRANGE", world.keys.index("suspended"), 0, -1) == [b"e"]
    assert world.raw("ZCARD", world.keys.index("running")) == 0
    assert world.raw("ZCARD", world.keys.delayed) == 0, "without a timeout there is no timer"


def test_the_correlation_is_the_execution_unless_the_node_names_another(world):
    world.suspended()
    assert world.row()["wait_correlation"] == b"e"


def test_a_row_shows_what_it_waits_for(world):
    world.suspended(event_filter=b'{"a":1}')
    row = world.do(executions.load(world.keys, "e"))
    assert (row.wait_filter, row.wake_data) == (b'{"a":1}', None)
    assert (row.control["wait"], row.control["wait_type"], row.control["woken"]) == ("1", "approval", "")
    world.wake()
    row = world.do(executions.load(world.keys, "e", results=True))
    assert (row.wake_data, row.control["woken"], row.control["wake_id"]) == (b'{"yes":1}', "event", "ev1")
    listed = world.do(executions.list_executions(world.keys, "suspended")).rows
    assert (listed[0]["wait_type"], listed[0]["woken"]) == ("approval", "event")


def test_a_timeout_has_a_timer_with_a_time_of_redis(world):
    entry, begun = world.running()
    deadline = world.suspend(begun, entry, timeout_ms=60_000).value.deadline_ms
    assert deadline == int(world.row()["wait_since"]) + 60_000 == int(world.row()["wait_deadline"])
    assert world.raw("ZRANGE", world.keys.delayed, 0, -1, "WITHSCORES") == [b"wait plaita e 1", str(deadline).encode()]
    assert world.raw("HKEYS", world.keys.delayed_body) == [b"wait plaita e 1"]


def test_F3_sent_again_it_is_done(world):
    entry, begun = world.running()
    first = world.suspend(begun, entry, timeout_ms=60_000).value
    before = world.everything()
    assert world.suspend(begun, entry, timeout_ms=60_000) == Value(Suspended(True, first.deadline_ms))
    assert world.everything() == before


def test_sent_again_when_it_was_woken_and_has_gone_on(world):
    entry, begun = world.suspended(timeout_ms=60_000)
    world.wake()
    again = world.begin(world.take_one(), nonce="n2", kind="event").value
    before = world.everything()
    assert world.suspend(begun, entry, timeout_ms=60_000).value.done_before is True
    assert world.everything() == before
    world.commit(again, 2, "w", "b")
    before = world.everything()
    assert world.suspend(begun, entry, timeout_ms=60_000).reason == "fence"
    assert world.everything() == before


def test_S8_a_cancel_that_is_asked_for_forbids_the_wait(world):
    entry, begun = world.running()
    world.do(executions.request_cancel(world.keys, "e", "enough", b"{}"))
    before = world.everything()
    assert world.suspend(begun, entry, timeout_ms=1000) == Refused("cancel", "enough")
    assert world.everything() == before
    assert isinstance(world.finish(begun, entry, status="cancelled"), Value), "the holder ends it"


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda w: w.raw("SET", w.keys.fence("e"), "2:x"), "fence"),
        (lambda w: w.raw("DEL", w.keys.fencegen("e")), "fence"),
        (lambda w: w.raw("SET", w.keys.lease("e"), "v2 h/i 9:o q 1-1"), "lease_lost"),
        (lambda w: w.raw("HSET", w.keys.row("e"), "step", "1"), "stale_step"),
        (lambda w: w.raw("HSET", w.keys.row("e"), "status", "cancelled"), "terminal"),
        (lambda w: w.raw("HSET", w.keys.row("e"), "status", "pending"), "not_running"),
        (lambda w: w.raw("DEL", w.keys.row("e")), "no_row"),
    ],
)
def test_refused_it_writes_no_wait_and_acks_nothing(world, spoil, reason: str):
    entry, begun = world.running()
    spoil(world)
    before = world.everything()
    assert world.suspend(begun, entry, timeout_ms=1000).reason == reason
    assert world.everything() == before


def test_L2_after_it_the_holder_writes_no_more(world):
    entry, begun = world.suspended()
    before = world.everything()
    assert world.commit(begun, 2) == Refused("not_running", "suspended")
    assert world.finish(begun, entry, 2) == Refused("not_running", "suspended")
    assert world.everything() == before


def test_S11_the_node_that_waits_has_not_failed(world):
    """Its counter goes with the suspend, and so does the count of deterministic failures, as with any step done."""
    entry, begun = world.running()
    world.raw("HSET", world.keys.row("e"), "retried", ":a:w:")
    for key in (world.keys.noderetry("e", "a"), world.keys.noderetry("e", "w"), world.keys.of_execution("nofail", "e")):
        world.raw("SET", key, 3)
    world.suspend(begun, entry)
    assert world.row()["retried"] == b":a:"
    assert world.raw("EXISTS", world.keys.noderetry("e", "w"), world.keys.of_execution("nofail", "e")) == 0
    assert world.raw("EXISTS", world.keys.noderetry("e", "a")) == 1


# -- what becomes of the wait when its node is done ---------------------------------------------------------------


def woken(world):
    world.suspended(timeout_ms=60_000, event_filter=b"{}")
    world.wake()
    entry = world.take_one()
    return entry, world.begin(entry, nonce="n2", kind="event").value


def test_a_commit_clears_the_wait(world):
    _, begun = woken(world)
    world.commit(begun, 2, "w", "b")
    assert {world.row()[name] for name in WAIT_FIELDS} == {b""}
    assert world.wake().value.reason == "not_waiting"


def test_a_commit_without_a_wait_writes_nothing_of_one(world):
    _, begun = world.running()
    world.commit(begun)
    assert not set(WAIT_FIELDS) & set(world.row())


@pytest.mark.parametrize("status", ["completed", "cancelled"])
def test_an_end_clears_the_wait(world, status: str):
    entry, begun = woken(world)
    world.finish(begun, entry, 2, status=status)
    assert {world.row()[name] for name in WAIT_FIELDS} == {b""}


def test_S3_an_error_keeps_what_woke_it_for_the_retry(world):
    entry, begun = woken(world)
    world.finish(begun, entry, 2, status="error")
    row = world.row()
    assert (row["wait"], row["woken"], row["wake_data"], row["wake_id"]) == (b"1", b"event", b'{"yes":1}', b"ev1")


def test_an_error_while_nothing_woke_it_leaves_no_wait(world):
    """Else its retry would be taken for a cancelled wait."""
    world.suspended()
    world.raw("XADD", world.keys.wake, "*", "execution_id", "e")
    entry = world.take_one()
    begun = world.begin(entry, nonce="n2", kind="cancel").value
    world.finish(begun, entry, 2, status="error")
    assert {world.row()[name] for name in WAIT_FIELDS} == {b""}


# -- the timer goes with the row (ledger D1, DECISIONS 17) ------------------------------------------------------------


def test_D1_a_delete_takes_the_timer_too(world):
    world.suspended(timeout_ms=60_000)
    world.raw("SET", world.keys.of_execution("affinityhandover", "e"), 2)
    world.do(executions.delete(world.keys, "e", "gone", force=False, tombstone_ttl_ms=600_000))
    left = {key.decode() for key in world.raw("KEYS", "*") if b"flow" not in key}
    assert left == {world.keys.fencegen("e"), world.keys.tombstone("e")}


def test_D1_only_the_timer_of_its_own_execution(world):
    world.suspended(timeout_ms=60_000)
    world.do(delayed.put(world.keys, "another", 60_000, [("payload", b"x")]))
    world.do(executions.delete(world.keys, "e", "gone", force=False, tombstone_ttl_ms=600_000))
    assert world.raw("ZRANGE", world.keys.delayed, 0, -1) == [b"another"]


def test_DECISIONS_17_expiry_takes_the_timer_too(world):
    """A terminal row has none; one that a backup left behind goes with it all the same."""
    world.suspended(timeout_ms=60_000)
    world.raw("HSET", world.keys.row("e"), "status", "error")
    world.raw("ZADD", world.keys.expiry, 1, "e")
    assert world.do(executions.expire_terminal(world.keys)) == 1
    assert world.raw("EXISTS", world.keys.row("e"), world.keys.delayed, world.keys.delayed_body) == 0
