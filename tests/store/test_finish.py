"""finish: the end in one call (ledger F3, Q5, Q8; DECISIONS 17)."""

from __future__ import annotations

import pytest

from plaita.store import executions
from plaita.store.call import Refused, Value
from plaita.store.executions import Committed, DeadLetter

DAY = 86_400_000


def ended(world, **changes):
    entry, begun = world.running()
    world.commit(begun, 1, "a", "end")
    answer = world.finish(begun, entry, 2, node_id="end", result=b"3", timing=b"{}", output=b"3", nodes=2, **changes)
    return entry, begun, answer


@pytest.mark.parametrize("status", ["completed", "error", "cancelled"])
def test_finish_settles_everything(world, status: str):
    keys = world.keys
    world.raw("SET", keys.cancel("e"), "why")
    entry, _, answer = ended(world, status=status, error=b'{"code":1}', active_ms_delta=4, cancel_reason="why")
    assert answer == Value(Committed(False, True, "why"))
    row = world.row()
    wanted = {
        "status": status.encode(),
        "r:end": b"3",
        "output": b"3",
        "step": b"2",
        "last_node": b"end",
        "nodes": b"2",
    }
    wanted |= {"error": b'{"code":1}', "cancel_reason": b"why", "active_ms": b"4", "commit": b"1:n1|2|finish"}
    assert {name: row[name] for name in wanted} == wanted
    assert row["ended_at"] == row["last_update_time"]
    assert world.raw("EXISTS", keys.lease("e"), keys.cancel("e")) == 0
    assert world.pending() == []
    assert world.raw("XLEN", keys.queue) == 0
    assert world.raw("ZCARD", keys.index("running")) == 0
    assert world.raw("ZRANGE", keys.index(status), 0, -1) == [b"e"]
    assert entry.entry_id


def test_F3_sent_again_it_is_done(world):
    entry, begun, _ = ended(world)
    before = world.everything()
    answer = world.finish(begun, entry, 2, node_id="end", result=b"3", timing=b"{}", output=b"3", nodes=2)
    assert answer == Value(Committed(True, False))
    assert world.everything() == before


def test_another_verb_at_the_same_step_is_refused(world):
    _, begun, _ = ended(world)
    assert world.commit(begun, 2).reason == "fence"


def test_D7_times_to_live(world):
    keys = world.keys
    ended(world, retention_ms=10 * DAY)
    for key in (keys.row("e"), keys.fence("e"), keys.fencegen("e")):
        assert 10 * DAY < world.raw("PTTL", key) <= 11 * DAY
    due = float(world.raw("ZSCORE", keys.expiry, "e"))
    assert due == int(world.row()["ended_at"]) + 10 * DAY


def test_D7_retention_0_keeps(world):
    ended(world, retention_ms=0)
    assert world.raw("PTTL", world.keys.row("e")) == -1
    assert world.raw("PTTL", world.keys.fencegen("e")) == -1
    assert world.raw("ZCARD", world.keys.expiry) == 0


def counters(world):
    keys = world.keys
    names = [keys.noderetry("e", "a:b"), keys.noderetry("e", None)]
    names += [keys.of_execution(word, "e") for word in ("noderefetch", "nofail", "g1wakeups")]
    return names


@pytest.mark.parametrize(
    ("status", "kept"), [("completed", []), ("cancelled", []), ("error", ["noderefetch", "nofail", "g1wakeups"])]
)
def test_S13_counters_go_except_those_that_a_later_retry_asks(world, status: str, kept: list[str]):
    entry, begun = world.running()
    for name in counters(world):
        world.raw("SET", name, "1")
    world.raw("HSET", world.keys.row("e"), "retried", ":a%3Ab:")
    world.finish(begun, entry, 1, status=status)
    left = [name for name in counters(world) if world.raw("EXISTS", name)]
    assert left == [world.keys.of_execution(word, "e") for word in kept]
    assert all(world.raw("PTTL", name) > 0 for name in left if "noderefetch" not in name)  # that has its own end
    assert "retried" not in world.row()


def test_Q5_a_dead_letter_with_the_end(world):
    keys = world.keys
    for number in range(3):
        world.raw("XADD", keys.dead_letters, "*", "n", number)
    letter = DeadLetter([("payload", b"\xff\x00"), ("reason", "lost")], 2)
    _, _, answer = ended(world, status="error", dead_letter=letter)
    assert answer.value.dlq_trimmed == 2
    found = world.raw("XRANGE", keys.dead_letters, "-", "+")
    assert len(found) == 2
    assert found[-1] == [answer.value.dlq_id.encode(), [b"payload", b"\xff\x00", b"reason", b"lost"]]


def test_a_failed_node_is_no_committed_step(world):
    entry, begun = world.running()
    world.finish(begun, entry, 1, status="error", node_id="a", timing=b'{"status":"error"}', error=b"{}")
    row = world.row()
    assert row["t:a"] == b'{"status":"error"}'
    assert "step" not in row
    assert "last_node" not in row


@pytest.mark.parametrize(
    ("spoil", "refused"),
    [
        (lambda w: w.raw("DEL", w.keys.row("e")), Refused("no_row")),
        (lambda w: w.raw("HSET", w.keys.row("e"), "status", "cancelled"), Refused("terminal", "cancelled")),
        (lambda w: w.raw("SET", w.keys.fence("e"), "2:x"), Refused("fence", "2:x")),
        (lambda w: w.raw("SET", w.keys.fencegen("e"), "2"), Refused("fence", "1:n1")),
        (
            lambda w: w.raw("SET", w.keys.lease("e"), "v2 h/i 1:other q 1-1"),
            Refused("lease_lost", "v2 h/i 1:other q 1-1"),
        ),
        (lambda w: w.raw("HSET", w.keys.row("e"), "step", 4), Refused("stale_step", "4")),
    ],
)
def test_refusals_ack_and_change_nothing(world, spoil, refused):
    """Refused after Unknown acts on nothing: no ack, no dead letter (DECISIONS 2)."""
    entry, begun = world.running()
    spoil(world)
    before = world.everything()
    letter = DeadLetter([("payload", b"x")], 10)
    assert world.finish(begun, entry, 1, status="error", dead_letter=letter) == refused
    assert world.everything() == before
    assert len(world.pending()) == 1


def test_a_status_that_is_no_end(world):
    entry, begun = world.running()
    with pytest.raises(ValueError, match="running"):
        world.finish(begun, entry, status="running")


def test_an_expired_lease_does_not_hinder_its_own_token(world):
    entry, begun = world.running()
    world.raw("DEL", world.keys.lease("e"))
    assert isinstance(world.finish(begun, entry), Value)


def test_the_wrong_type_under_the_dead_letters_leaves_the_row(world):
    entry, begun = world.running()
    world.raw("SET", world.keys.dead_letters, "x")
    before = world.everything()
    answer = world.finish(begun, entry, status="error", dead_letter=DeadLetter([("payload", b"x")], 10))
    assert answer.reason == "wrong_type"
    assert world.everything() == before


# -- afterwards -----------------------------------------------------------------------------------------


def test_D7_expired_rows_go_with_all_that_is_theirs(world):
    keys = world.keys
    for number in range(5):
        world.start(f"x{number}")
        entry = world.take_one()
        begun = world.begin(entry, f"x{number}").value
        world.finish(begun, entry, execution_id=f"x{number}", status="error" if number else "completed")
    for number in range(4):
        world.raw("ZADD", keys.expiry, 1, f"x{number}")
    world.raw("HSET", keys.row("x3"), "status", "running")
    assert world.do(executions.expire_terminal(keys, 2)) == 2
    assert world.do(executions.expire_terminal(keys, 2)) == 1, "x3 was woken again and stays"
    assert world.raw("ZRANGE", keys.expiry, 0, -1) == [b"x4"]
    assert sorted(world.raw("ZRANGE", keys.index(), 0, -1)) == [b"x3", b"x4"]
    assert world.raw("KEYS", "*x0*") == world.raw("KEYS", "*x1*") == []
    assert world.raw("ZCARD", keys.index("completed")) == 0
