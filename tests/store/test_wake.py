"""wake, timers and their races: each wait is woken once, whoever comes first (DECISIONS 26; ledger S6, S8)."""

from __future__ import annotations

import itertools

import pytest

from plaita.store import delayed, executions
from plaita.store.call import Refused, Value
from plaita.store.executions import Woken


def carriers_of(world) -> list[dict[bytes, bytes]]:
    return [dict(zip(flat[::2], flat[1::2], strict=True)) for _, flat in world.raw("XRANGE", world.keys.wake, "-", "+")]


def test_the_row_is_marked_the_carrier_sent_the_timer_gone(world):
    world.suspended(timeout_ms=60_000)
    assert world.wake(fields={"flow_id": "f"}) == Value(Woken("suspended", True, ""))
    row = world.row()
    assert (row["status"], row["woken"], row["wake_data"], row["wake_id"]) == (
        b"suspended", b"event", b'{"yes":1}', b"ev1",
    )  # fmt: skip
    assert carriers_of(world) == [
        {
            b"payload": b"event", b"schema_version": b"1", b"execution_id": b"e", b"tenant_id": b"default",
            b"flow_id": b"f", b"wait": b"1",
        }
    ]  # fmt: skip
    assert world.raw("EXISTS", world.keys.delayed, world.keys.delayed_body) == 0


def test_the_same_event_again_is_the_same_wake(world):
    world.suspended()
    world.wake()
    before = world.everything()
    assert world.wake() == Value(Woken("suspended", True, ""))
    assert world.everything() == before
    world.begin(world.take_one(), nonce="n2", kind="event")
    before = world.everything()
    assert world.wake() == Value(Woken("running", True, ""))
    assert world.everything() == before


def test_the_same_call_again_wakes_no_second_wait(world):
    """Its first answer was lost, and what it woke has gone on meanwhile: to the next wait, and to its end."""
    world.suspended()
    world.wake(nonce="one")
    entry = world.take_one()
    begun = world.begin(entry, nonce="n2", kind="event").value
    world.commit(begun, 2)
    world.suspend(begun, entry, 3)
    before = world.everything()
    assert world.wake(nonce="one") == Value(Woken("suspended", True, ""))
    assert world.everything() == before
    assert world.wake("ev2", nonce="two").value.woken is True
    entry = world.take_one()
    begun = world.begin(entry, nonce="n3", kind="event").value
    world.finish(begun, entry, 4)
    assert world.wake("ev2", nonce="two") == Value(Woken("completed", True, ""))
    assert world.wake("ev2", nonce="three") == Value(Woken("completed", False, "terminal")), "another call (S3)"


def test_another_event_comes_too_late(world):
    world.suspended()
    world.wake()
    before = world.everything()
    assert world.wake("ev2") == Value(Woken("suspended", False, "already_woken"))
    assert world.wake("", kind="timeout", wait="1") == Value(Woken("suspended", False, "already_woken"))
    assert world.everything() == before


def test_without_an_id_only_the_wait_tells_the_same_from_another(world):
    world.suspended()
    assert world.wake("", wait="1").value.woken is True
    assert world.wake("", wait="1").value.woken is True
    assert world.wake("").value == Woken("suspended", False, "already_woken")
    assert len(carriers_of(world)) == 1


def test_an_event_for_an_earlier_wait_is_stale(world):
    entry, begun = world.running()
    world.commit(begun)
    world.suspend(begun, entry, 2)
    before = world.everything()
    assert world.wake(wait="1") == Value(Woken("suspended", False, "stale_wait"))
    assert world.everything() == before
    assert world.wake(wait="2").value.woken is True


@pytest.mark.parametrize("status", ["completed", "error", "cancelled"])
def test_what_has_ended_is_not_woken(world, status: str):
    entry, begun = world.running()
    world.finish(begun, entry, status=status)
    before = world.everything()
    assert world.wake() == Value(Woken(status, False, "terminal"))
    assert world.everything() == before


def test_what_does_not_wait_is_not_woken(world):
    world.start()
    before = world.everything()
    assert world.wake() == Value(Woken("pending", False, "not_waiting"))
    assert world.everything() == before
    world.running("e2")
    world.raw("RENAME", world.keys.row("e2"), world.keys.row("e"))
    before = world.everything()
    assert world.wake() == Value(Woken("running", False, "not_waiting"))
    assert world.everything() == before


def test_no_row_tombstoned_wrong_type(world):
    assert world.wake() == Refused("no_row")
    world.raw("SET", world.keys.row("e"), "x")
    assert world.wake() == Refused("wrong_type", "string")
    world.raw("DEL", world.keys.row("e"))
    world.suspended()
    world.raw("HSET", world.keys.tombstone("e"), "default", "1 why")
    before = world.everything()
    assert world.wake() == Refused("tombstoned", "1 why"), "a row that a backup brought back stays deleted"
    assert world.everything() == before


def test_a_node_that_fails_later_ends_the_wait_only_once(world):
    """A retry resumes with the same event; the same event once more changes nothing."""
    world.suspended()
    world.wake()
    entry = world.take_one()
    begun = world.begin(entry, nonce="n2", kind="event").value
    world.finish(begun, entry, 2, status="error")
    assert world.wake().value == Woken("error", False, "terminal")
    world.resume("retry")
    again = world.begin(world.take_one(), nonce="n3", kind="retry").value
    assert (again.wait, again.woken, again.wake_data) == ("1", "event", b'{"yes":1}')
    assert world.wake().value == Woken("running", True, "")


# -- timers --------------------------------------------------------------------------------------------------------


def test_a_timer_wakes_by_timeout(world):
    world.suspended(timeout_ms=60_000)
    assert world.do(delayed.promote(world.keys)).moved == 0
    world.timer_is_due()
    assert world.do(delayed.promote(world.keys)).moved == 1
    row = world.row()
    assert (row["woken"], row["wake_data"], row["wake_id"]) == (b"timeout", b"null", b"")
    entry = world.take_one()
    assert (entry.fields[b"payload"], entry.fields[b"wait"]) == (b"timer", b"1")
    begun = world.begin(entry, nonce="n2", kind="timeout", wait="1").value
    assert (begun.woken, begun.wake_data) == ("timeout", b"null")
    assert world.raw("EXISTS", world.keys.delayed, world.keys.delayed_body) == 0


def test_a_timer_of_the_past_is_dropped_and_counts_as_nothing(world):
    """It stands for a wait that is over: neither moved nor bad."""
    world.suspended(timeout_ms=60_000)
    kept = world.raw("HGET", world.keys.delayed_body, "wait plaita e 1")
    for spoil in (
        lambda: world.wake(),
        lambda: world.raw("HSET", world.keys.row("e"), "wait", "7"),
        lambda: world.raw("HSET", world.keys.row("e"), "wait", "1", "status", "running"),
        lambda: world.raw("HSET", world.keys.row("e"), "status", "cancelled"),
        lambda: world.raw("DEL", world.keys.row("e")),
        lambda: world.raw("SET", world.keys.row("e"), "odd"),
    ):
        spoil()
        world.raw("HSET", world.keys.delayed_body, "wait plaita e 1", kept)
        world.raw("ZADD", world.keys.delayed, 1, "wait plaita e 1")
        row, sent = world.raw("DUMP", world.keys.row("e")), len(carriers_of(world))
        promoted = world.do(delayed.promote(world.keys))
        assert (promoted.moved, promoted.bad) == (0, 0)
        assert world.raw("DUMP", world.keys.row("e")) == row
        assert len(carriers_of(world)) == sent
        assert world.raw("EXISTS", world.keys.delayed, world.keys.delayed_body) == 0


def test_a_timer_that_cannot_be_read_is_a_dead_letter(world):
    world.suspended(timeout_ms=60_000)
    world.raw("HSET", world.keys.delayed_body, "wait plaita e 1", b"\x93\xa1t\xa1a\xa1b")  # no field at all
    world.timer_is_due()
    promoted = world.do(delayed.promote(world.keys))
    assert (promoted.moved, promoted.bad) == (0, 1)
    assert world.row()["woken"] == b""


# -- who comes first ------------------------------------------------------------------------------------------------

ENDS = {
    "event": lambda w: w.wake("ev1"),
    "other": lambda w: w.wake("ev2"),
    "timer": lambda w: (w.timer_is_due(), w.do(delayed.promote(w.keys))),
    "timeout": lambda w: w.wake("", kind="timeout", wait="1"),
    "cancel": lambda w: w.do(executions.request_cancel(w.keys, "e", "enough", b"cancel")),
}


@pytest.mark.parametrize("order", list(itertools.permutations(ENDS, 3)), ids="-".join)
def test_S8_whatever_the_order_a_wait_is_woken_once(world, order: tuple[str, ...]):
    world.suspended(timeout_ms=60_000)
    for what in order:
        ENDS[what](world)
        ENDS[what](world)
    first = order[0]
    row = world.row()
    assert row["woken"] == {"event": b"event", "other": b"event", "cancel": b""}.get(first, b"timeout")
    assert row["wake_id"] == {"event": b"ev1", "other": b"ev2"}.get(first, b"")
    wakes = [fields for fields in carriers_of(world) if b"wait" in fields]
    assert len(wakes) == (int("timer" in order) if first == "cancel" else 1), "a timer brings the cancel on its way too"
    cancels = [fields for fields in carriers_of(world) if fields[b"payload"] == b"cancel"]
    assert bool(cancels) is ("cancel" in order)
    begun = world.begin(world.take_one(), nonce="n2", kind="event").value
    assert (begun.cancel, begun.woken) == ("cancel" in order, row["woken"].decode())


@pytest.mark.parametrize("what", ["event", "timer", "timeout"])
def test_what_comes_before_the_suspend_wakes_nothing(world, what: str):
    """An event that is early is nobody's yet; the wait that follows is whole."""
    entry, begun = world.running()
    ENDS[what](world)
    assert isinstance(world.suspend(begun, entry, timeout_ms=60_000), Value)
    assert (world.row()["woken"], carriers_of(world)) == (b"", [])
    ENDS[what](world)
    assert len(carriers_of(world)) == 1


def test_S8_a_cancel_of_a_suspended_one_has_a_carrier_whatever_lease_there_is(world):
    """A lease over a suspended row came back with a backup: nobody who holds it reads the flag."""
    world.suspended()
    world.raw("SET", world.keys.lease("e"), "v2 host1/first 1:n1 q 1-1")
    world.do(executions.request_cancel(world.keys, "e", "enough", b"cancel"))
    assert [fields[b"payload"] for fields in carriers_of(world)] == [b"cancel"]
