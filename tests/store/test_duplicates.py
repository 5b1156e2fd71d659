"""Acking what another holder's carrier makes a duplicate: never the last carrier (ledger L5; DECISIONS 3)."""

from __future__ import annotations

import pytest

from plaita.store import carriers
from plaita.store.call import Refused, Value


def another_carrier(world):
    """A second carrier of ``e``, read by host2."""
    fields = [("payload", b"{}"), ("schema_version", "1"), ("execution_id", "e"), ("tenant_id", "default")]
    world.do(carriers.enqueue(world.keys, "w", fields))
    return world.take_one(consumer="host2", holder="host2/x")


def ack(world, entry):
    return world.run(carriers.ack_duplicate(world.keys, "default", "e", entry.stream, entry.entry_id))


def test_L5_a_duplicate_is_acked_while_the_holders_own_carrier_is_there(world):
    entry, _ = world.running()
    duplicate = another_carrier(world)
    assert ack(world, duplicate) == Value(True)
    assert world.pending("w") == []
    assert [found[0].decode() for found in world.pending("q")] == [entry.entry_id]
    assert ack(world, duplicate) == Value(False)  # sent again


def test_L5_the_holders_own_carrier_is_acked_by_nobody_else(world):
    entry, begun = world.running()
    assert ack(world, entry) == Refused("holders_own", begun.lease_value)
    assert len(world.pending()) == 1


def test_L5_an_ack_that_comes_after_the_lease_is_refused(world):
    world.running()
    duplicate = another_carrier(world)
    world.raw("DEL", world.keys.lease("e"))
    assert ack(world, duplicate) == Refused("not_leased")
    assert len(world.pending("w")) == 1


@pytest.mark.parametrize("lost", ["XACK {queue} {group} {id}", "XDEL {queue} {id}", "DEL {queue}"])
def test_L5_the_last_carrier_stays_when_the_holders_is_gone(world, lost: str):
    entry, begun = world.running()
    duplicate = another_carrier(world)
    world.raw(*lost.format(queue=world.keys.queue, group=world.keys.group, id=entry.entry_id).split())
    assert ack(world, duplicate) == Refused("carrier_gone", begun.lease_value)
    assert len(world.pending("w")) == 1


def test_DECISIONS_3_an_old_lease_leaves_it_pending(world):
    world.running()
    duplicate = another_carrier(world)
    world.raw("SET", world.keys.lease("e"), "start:0123456789abcdef")
    assert ack(world, duplicate) == Refused("unreadable", "start:0123456789abcdef")
    assert len(world.pending("w")) == 1


# -- a carrier that begin refused for the row's status ------------------------------------------------------------


def refuse(world, entry, status):
    return world.run(carriers.ack_refused(world.keys, "default", "e", entry.stream, entry.entry_id, status))


def ended(world):
    entry, begun = world.running()
    world.finish(begun, entry, status="error")
    return "error"


def waiting(world):
    world.suspended()
    return "suspended"


def not_begun(world):
    world.start()
    return "pending"


def nothing(world):
    return ""


@pytest.mark.parametrize("walk", [ended, waiting, not_begun, nothing])
def test_L5_what_was_refused_for_a_status_is_acked_while_it_is_that(world, walk):
    status = walk(world)
    entry = another_carrier(world)
    assert refuse(world, entry, status) == Value(True)
    assert world.pending("w") == []
    assert refuse(world, entry, status) == Value(False)


def retried(world):
    world.resume("retry")
    entry = world.take_one(consumer="host3", holder="host3/x")
    world.begin(entry, nonce="n3", kind="retry")


@pytest.mark.parametrize(
    ("walk", "change", "now"),
    [
        (ended, retried, "running"),
        (waiting, lambda w: w.wake(), "suspended"),
        (waiting, lambda w: w.raw("SET", w.keys.cancel("e"), "enough"), "suspended"),
        (not_begun, lambda w: w.raw("HSET", w.keys.row("e"), "status", "running"), "running"),
        (nothing, lambda w: w.raw("SET", w.keys.row("e"), "odd"), ""),
    ],
)
def test_L5_it_stays_when_a_carrier_could_do_something_by_now(world, walk, change, now: str):
    """It may have been begun with by another host, and be the only one left."""
    status = walk(world)
    entry = another_carrier(world)
    change(world)
    before = world.everything()
    assert refuse(world, entry, status) == Refused("changed", now)
    assert world.everything() == before
