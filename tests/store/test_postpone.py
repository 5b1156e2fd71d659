"""postpone and hand_on: letting go without losing the carrier (ledger S10, S11, L7; DECISIONS 5, 7, 8)."""

from __future__ import annotations

import pytest

from plaita.store import delayed, executions, failures
from plaita.store.call import Refused, Value
from plaita.store.executions import HandOn, Postpone, Postponed
from plaita.store.failures import Counted, CountFailure


def postpone(world, begun, entry, step=1, **changes):
    given = {
        "delay_ms": 0,
        "copy_id": f"{entry.entry_id}/1",
        "copy_fields": [("payload", b"\x00\xff912345678901234567"), ("execution_id", "e"), ("tenant_id", "default")],
        "lower_lost": True,
        "node_id": "a",
        "timing": b'{"status":"error"}',
        "error": b'{"message":"no"}',
        "active_ms_delta": 3,
    } | changes
    request = Postpone("e", token=begun.token, step=step, stream=entry.stream, entry_id=entry.entry_id, **given)
    return world.run(executions.postpone(world.keys, request))


def hand_on(world, begun, entry, **changes):
    given = {"consumer": world.consumer, "token": begun.token} | changes
    request = HandOn("e", stream=entry.stream, entry_id=entry.entry_id, **given)
    return world.run(executions.hand_on(world.keys, request))


def test_S10_release_ack_and_copy_are_one(world):
    entry, begun = world.running()
    assert postpone(world, begun, entry, death=b"{}") == Value(Postponed(False))
    row = world.row()
    wanted = {"status": b"running", "lost": b"0", "last_error": b'{"message":"no"}', "t:a": b'{"status":"error"}'}
    wanted |= {"active_ms": b"3", "death": b"{}"}
    assert {name: row[name] for name in wanted} == wanted
    assert "step" not in row
    assert world.raw("EXISTS", world.keys.lease("e")) == 0
    assert world.pending() == []
    assert world.raw("XLEN", world.keys.queue) == 0
    assert world.do(delayed.promote(world.keys)).moved == 1
    copy = world.take_one()
    assert copy.stream == "w"
    assert copy.fields[b"payload"] == b"\x00\xff912345678901234567"
    assert world.begin(copy, nonce="n2").value.control["lost"] == "1"


def test_sent_again_it_is_done(world):
    entry, begun = world.running()
    postpone(world, begun, entry)
    before = world.everything()
    assert postpone(world, begun, entry) == Value(Postponed(True))
    assert world.everything() == before


def test_sent_again_after_the_copy_ran_it_is_refused(world):
    entry, begun = world.running()
    postpone(world, begun, entry)
    world.do(delayed.promote(world.keys))
    world.commit(world.begin(world.take_one(), nonce="n2").value)
    before = world.everything()
    assert postpone(world, begun, entry).reason == "fence"
    assert world.everything() == before


def test_S11_consecutive_failures_of_one_node_and_of_all(world):
    entry, begun = world.running()
    expected = [("a", 1, 1), ("a", 2, 2), ("b", 1, 3), ("a", 3, 4)]
    for number, (node, of_node, of_all) in enumerate(expected):
        counted = failures.count_failure(world.keys, CountFailure("e", begun.token, 1, node))
        assert world.do(counted) == Counted(of_node, of_all)
        postpone(world, begun, entry, node_id=node)
        world.do(delayed.promote(world.keys))
        entry = world.take_one()
        begun = world.begin(entry, nonce=f"x{number}").value
    assert begun.control["retried"] == ":a:b:"
    assert 0 < world.raw("PTTL", world.keys.noderetry("e", "a")) <= 7 * 86_400_000
    world.finish(begun, entry)
    assert world.raw("KEYS", "*noderetry*") == []


def test_a_death_counts_no_failure_and_stays_lost(world):
    entry, begun = world.running()
    postpone(world, begun, entry, lower_lost=False)
    assert world.raw("KEYS", "*nodere*") == []
    world.do(delayed.promote(world.keys))
    assert world.begin(world.take_one(), nonce="n2").value.control["lost"] == "2"


def test_the_copy_waits_its_time(world):
    entry, begun = world.running()
    postpone(world, begun, entry, delay_ms=60_000)
    promoted = world.do(delayed.promote(world.keys))
    assert promoted.moved == 0
    assert 50_000 < promoted.next_due_in_ms <= 60_000


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda w: w.raw("SET", w.keys.fence("e"), "2:x"), "fence"),
        (lambda w: w.raw("SET", w.keys.lease("e"), "v2 h/i 9:o q 1-1"), "lease_lost"),
        (lambda w: w.raw("HSET", w.keys.row("e"), "status", "cancelled"), "terminal"),
        (lambda w: w.raw("DEL", w.keys.row("e")), "no_row"),
    ],
)
def test_refused_it_makes_no_copy_and_acks_nothing(world, spoil, reason: str):
    entry, begun = world.running()
    spoil(world)
    before = world.everything()
    assert postpone(world, begun, entry).reason == reason
    assert world.everything() == before


# -- hand on ----------------------------------------------------------------------------------------------


def test_DECISIONS_5_handed_on_it_is_claimable_at_once_and_costs_no_delivery(world):
    """With a min-idle of ten minutes only the hand-on itself can make the claim possible."""
    entry, begun = world.running()
    assert hand_on(world, begun, entry, active_ms_delta=9) == Value(True)
    row = world.row()
    assert (row["lost"], row["active_ms"], row["status"]) == (b"0", b"9", b"running")
    taken = world.take(1, consumer="host2", holder="host2/x", min_idle_ms=600_000)
    assert [(e.entry_id, e.reclaimed, e.delivered) for e in taken.entries] == [(entry.entry_id, True, 1)]
    assert world.pending()[0][1] == b"host2"
    assert world.begin(taken.entries[0], nonce="n2", holder="host2/x").value.control["lost"] == "1"


def test_handed_on_twice_it_is_refused_and_takes_nothing_away(world):
    entry, begun = world.running()
    hand_on(world, begun, entry)
    world.take(1, consumer="host2", holder="host2/x")
    before = world.pending()[0][1]
    assert hand_on(world, begun, entry) == Refused("lease_lost", "")
    assert world.pending()[0][1] == before


def test_another_holders_lease_is_not_released(world):
    entry, begun = world.running()
    world.raw("DEL", world.keys.lease("e"))
    other = world.begin(entry, nonce="n2", holder="host2/x").value
    before = world.everything()
    assert hand_on(world, begun, entry) == Refused("lease_lost", other.lease_value)
    assert world.everything() == before


def test_an_entry_that_is_pending_for_another_stays_with_it(world):
    entry, begun = world.running()
    world.raw("XCLAIM", world.keys.queue, world.keys.group, "host2", 0, entry.entry_id, "JUSTID")
    assert hand_on(world, begun, entry) == Value(False)
    assert world.pending()[0][1] == b"host2"
    assert world.raw("EXISTS", world.keys.lease("e")) == 0


def test_many_hand_ons_cost_no_budget(world):
    """Five restarts in a row: neither deliveries nor lost steps go up."""
    entry, begun = world.running()
    for number in range(5):
        assert hand_on(world, begun, entry).value is True
        entry = world.take_one()
        begun = world.begin(entry, nonce=f"x{number}").value
    assert begun.control["lost"] == "1"
    assert entry.delivered == 1
    assert begun.control["attempts"] == "6"


def test_after_a_flush_there_is_nothing_to_hand_on(world):
    entry, begun = world.running()
    world.server.flush()
    assert hand_on(world, begun, entry) == Refused("lease_lost", "")
    assert world.everything() == {}


def test_L2_a_lease_that_came_back_with_a_backup_gives_no_right_to_the_row(world):
    entry, begun = world.running()
    world.raw("DEL", world.keys.lease("e"))
    other = world.begin(entry, nonce="n2", holder="host2/x").value
    world.raw("SET", world.keys.lease("e"), begun.lease_value)
    before = world.row()
    assert hand_on(world, begun, entry, active_ms_delta=9) == Value(True)  # frees the lease: nobody could commit by it
    assert world.row() == before
    assert world.raw("GET", world.keys.fence("e")).decode() == other.token
