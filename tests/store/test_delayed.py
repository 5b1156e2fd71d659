"""Deliveries for later (DECISIONS 29; KNOWN-TROUBLE 35, 37, 38)."""

from __future__ import annotations

import pytest

from plaita.store import delayed
from plaita.store.call import Value
from plaita.store.delayed import Promoted
from plaita.store.executions import Woken

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


@pytest.mark.parametrize("score", ["+inf", "1e300"])
def test_92_a_time_that_never_comes_is_a_long_sleep_and_no_loop(world, score: str):
    world.do(delayed.put(world.keys, "never", 0, [("payload", b"1")]))
    world.raw("ZADD", world.keys.delayed, score, "never")
    assert promote(world) == Promoted(0, 2**53, 0)


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


def test_38_of_ten_that_are_due_the_bad_ones_stop_none_of_the_others(world):
    """The fifth is no record, the sixth the timer of a row that is of another type, the seventh the timer of no row."""
    keys = world.keys
    world.raw("SET", keys.row("odd"), "x")
    for number in range(10):
        world.do(delayed.put(keys, f"m{number}", -1, [("payload", str(number))]))
    world.raw("HSET", keys.delayed_body, "m4", b"{corrupt")
    for number, row in ((5, "odd"), (6, "none")):
        words = [b"t", keys.row(row).encode(), b"1", b"payload", b"{}"]
        world.raw("HSET", keys.delayed_body, f"m{number}", b"\x95" + b"".join(b"\xd9%c%s" % (len(w), w) for w in words))
    assert promote(world) == Promoted(7, None, 1)
    assert promote(world) == Promoted(0, None, 0)
    assert [entry.fields[b"payload"] for entry in world.take(50).entries] == [b"%d" % n for n in (0, 1, 2, 3, 7, 8, 9)]
    assert world.raw("XLEN", keys.dead_letters) == 1
    assert world.raw("EXISTS", keys.delayed, keys.delayed_body) == 0


def test_38_where_the_dead_letters_take_nothing_a_bad_record_waits_and_the_others_go(world):
    keys = world.keys
    for name in ("bad", "good"):
        world.do(delayed.put(keys, name, -1, [("payload", name)]))
    world.raw("HSET", keys.delayed_body, "bad", b"{corrupt")
    world.raw("SET", keys.dead_letters, "x")
    promoted = promote(world)
    assert (promoted.moved, promoted.bad) == (1, 1)
    assert promoted.next_due_in_ms > 50_000
    assert world.raw("HGET", keys.delayed_body, "bad") == b"{corrupt"
    world.raw("DEL", keys.dead_letters)
    world.raw("ZADD", keys.delayed, 1, "bad")
    assert promote(world) == Promoted(0, None, 1)
    assert world.raw("XLEN", keys.dead_letters) == 1


def test_38_where_the_stream_takes_nothing_no_timer_is_lost(world):
    world.suspended(timeout_ms=1)
    world.timer_is_due()
    world.raw("DEL", world.keys.wake)
    world.raw("SET", world.keys.wake, "x")
    assert not isinstance(world.run(delayed.promote(world.keys)), Value)
    assert world.wake() != Value(Woken("suspended", True, ""))
    assert world.row()["woken"] == b""
    world.raw("DEL", world.keys.wake)
    assert promote(world) == Promoted(1, None, 0)
    assert world.row()["woken"] == b"timeout"
    assert world.raw("XLEN", world.keys.wake) == 1
