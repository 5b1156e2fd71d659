"""Deliveries for later (DECISIONS 29; KNOWN-TROUBLE 35, 37, 38)."""

from __future__ import annotations

import pytest

from plaita.store import delayed
from plaita.store.delayed import Promoted

PAYLOADS = [
    b'{"n":912345678901234567,"m":9223372036854775808,"big":1e400,"f":0.1}',
    b'{"empty":[],"object":{},"nested":[[]],"none":null,"nul":"\\u0000"}',
    b"\xff\xfe\x00\x80 no text",
    b"",
    b"x" * 300_000,
]


def promote(world, limit=100) -> Promoted:
    return world.do(delayed.promote(world.keys, limit))


@pytest.mark.parametrize("payload", PAYLOADS, ids=range(len(PAYLOADS)))
def test_bytes_come_back_as_they_were(world, payload: bytes):
    world.do(delayed.put(world.keys, "m", 0, [("payload", payload), ("schema_version", "1"), ("payload", b"twice")]))
    assert promote(world) == Promoted(1, None, 0)
    entry = world.take_one()
    assert entry.stream == "w"
    assert entry.raw == ((b"payload", payload), (b"schema_version", b"1"), (b"payload", b"twice"))
    assert world.raw("EXISTS", world.keys.delayed, world.keys.delayed_body) == 0


def test_what_is_not_due_waits_and_says_how_long(world):
    world.do(delayed.put(world.keys, "later", 90_000, [("payload", b"1")]))
    world.do(delayed.put(world.keys, "sooner", 30_000, [("payload", b"2")]))
    promoted = promote(world)
    assert (promoted.moved, promoted.bad) == (0, 0)
    assert 20_000 < promoted.next_due_in_ms <= 30_000
    assert world.do(delayed.cancel(world.keys, "sooner")) is True
    assert world.do(delayed.cancel(world.keys, "sooner")) is False
    assert promote(world).next_due_in_ms > 60_000


def test_in_order_of_time_and_no_more_than_asked(world):
    for number in (3, 1, 2):
        world.do(delayed.put(world.keys, f"m{number}", -number * 1000, [("payload", str(number))]))
    assert promote(world, 2) == Promoted(2, 0, 0)
    assert [entry.fields[b"payload"] for entry in world.take(5).entries] == [b"3", b"2"]
    assert promote(world) == Promoted(1, None, 0)


def test_a_member_put_again_is_replaced(world):
    world.do(delayed.put(world.keys, "m", 90_000, [("payload", b"old")]))
    world.do(delayed.put(world.keys, "m", 0, [("payload", b"new")]))
    assert promote(world).moved == 1
    assert [entry.fields[b"payload"] for entry in world.take(5).entries] == [b"new"]


def test_to_the_queue_of_starts_when_asked(world):
    world.do(delayed.put(world.keys, "m", 0, [("payload", b"1")], stream="q"))
    promote(world)
    assert world.take_one().stream == "q"
    with pytest.raises(ValueError, match="z"):
        delayed.put(world.keys, "m", 0, [("payload", b"1")], stream="z")


BAD = [b"{not a record", b"", b"\xc1", b"\x93\xa1w", b"\xff" * 20, b'"abc"', b"\x93\xa1w\x01\x02", b"\x92\xa1w\xa1x",
       b"\x93\xa1z\xa1a\xa1b", b"\x91\xa1w", b"\x81\xa1a\xa1b"]  # fmt: skip


def test_a_bad_record_is_set_aside_and_blocks_nobody(world):
    keys = world.keys
    for number in range(len(BAD) + 3):
        world.do(delayed.put(keys, f"m{number:02}", -1, [("payload", str(number))]))
    for number, body in enumerate(BAD):
        world.raw("HSET", keys.delayed_body, f"m{number:02}", body)
    world.raw("HDEL", keys.delayed_body, f"m{len(BAD):02}")
    assert promote(world) == Promoted(2, None, len(BAD) + 1)
    assert promote(world) == Promoted(0, None, 0)
    assert len(world.take(50).entries) == 2
    letters = world.raw("XRANGE", keys.dead_letters, "-", "+")
    found = [dict(zip(flat[::2], flat[1::2], strict=True)) for _, flat in letters]
    assert [letter[b"raw_body"] for letter in found] == [*BAD, b""]
    assert {letter[b"reason"] for letter in found} == {b"delayed_record_unreadable"}
    assert world.raw("EXISTS", keys.delayed, keys.delayed_body) == 0


def test_bodies_of_another_type_are_set_aside_too(world):
    world.do(delayed.put(world.keys, "m", 0, [("payload", b"1")]))
    world.raw("DEL", world.keys.delayed_body)
    world.raw("SET", world.keys.delayed_body, "x")
    assert promote(world) == Promoted(0, None, 1)
    assert promote(world).bad == 0


def test_a_set_of_another_type_is_refused(world):
    world.raw("SET", world.keys.delayed, "x")
    assert world.run(delayed.promote(world.keys)).reason == "wrong_type"
