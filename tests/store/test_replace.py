"""carriers.replace: one carrier in the place of another, never none and never two (ledger S6, S10, G4)."""

from __future__ import annotations

import pytest

from plaita.store import carriers, delayed

FIELDS = [("payload", b"\x00\xff"), ("execution_id", "e")]


def replace(world, entry, to="w", **changes):
    return world.do(carriers.replace(world.keys, entry.stream, entry.entry_id, to, FIELDS, **changes))


@pytest.mark.parametrize("to", ["w", "q"])
def test_the_new_one_stands_there_and_the_old_is_settled(world, to: str):
    world.start()
    entry = world.take_one()
    assert replace(world, entry, to) is True
    assert world.pending() == []
    found = world.take_one()
    assert (found.stream, found.fields) == (to, {b"payload": b"\x00\xff", b"execution_id": b"e"})
    assert world.raw("XLEN", world.keys.queue) + world.raw("XLEN", world.keys.wake) == 1


def test_sent_again_it_adds_no_second(world):
    world.start()
    entry = world.take_one()
    replace(world, entry)
    before = world.everything()
    assert replace(world, entry) is False
    assert world.everything() == before


def test_a_delayed_one_waits_its_time(world):
    world.start()
    entry = world.take_one()
    assert replace(world, entry, delay_ms=60_000, member="copy") is True
    assert (world.pending(), world.raw("XLEN", world.keys.queue), world.raw("XLEN", world.keys.wake)) == ([], 0, 0)
    assert 50_000 < world.do(delayed.promote(world.keys)).next_due_in_ms <= 60_000
    world.raw("ZADD", world.keys.delayed, 1, "copy")
    assert world.do(delayed.promote(world.keys)).moved == 1
    assert world.take_one().fields[b"payload"] == b"\x00\xff"


def test_of_what_was_deleted_nothing_is_made_and_nothing_stays_pending(world):
    world.start()
    entry = world.take_one()
    world.raw("XDEL", world.keys.queue, entry.entry_id)
    assert replace(world, entry) is False
    assert (world.pending(), world.raw("XLEN", world.keys.wake)) == ([], 0)


def test_a_delay_needs_a_name(world):
    with pytest.raises(ValueError, match="member"):
        carriers.replace(world.keys, "q", "1-1", "w", FIELDS, delay_ms=1)
