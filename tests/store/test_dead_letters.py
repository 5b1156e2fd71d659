"""Dead letters on a real server: put there once, only by facts that still hold, bounded, read and emptied."""

from __future__ import annotations

import pytest

from plaita.store import carriers, dead_letters, executions
from plaita.store.call import Refused, Value
from plaita.store.dead_letters import Allowed
from plaita.store.failures import CountFailure, count_failure
from plaita.store.runner_sync import SyncRunner
from plaita.testing.server import Server

LETTER = [("payload", b"\xff"), ("reason", "x")]
COPY = [("payload", b'{"type":"resume"}'), ("execution_id", "e")]


def add(world, stream="q") -> str:
    found: str = world.do(carriers.enqueue(world.keys, stream, [("payload", b"junk")]))
    return found


def letters(world) -> list[bytes]:
    return [entry[0] for entry in world.raw("XRANGE", world.keys.dead_letters, "-", "+")]


def facts(world, execution_id="e"):
    return world.do(dead_letters.guard_facts(world.keys, execution_id))


def bury(world, entry: str, seen=None, copy=(), maxlen: int = 100):
    allowed = None if seen is None else Allowed(world.keys, "e", seen.mark)
    return world.run(dead_letters.bury(world.keys, "q", entry, LETTER, maxlen, allowed=allowed, copy=copy))


def test_Q5_dead_letter_once_and_an_exact_fifo(world):
    for number in range(4):
        world.raw("XADD", world.keys.dead_letters, "*", "n", number)
    old = letters(world)
    entry = add(world)
    world.take(1)
    answer = bury(world, entry, maxlen=3).value
    assert answer.trimmed == 2
    assert letters(world) == [*old[2:], answer.dlq_id.encode()]
    assert world.raw("XRANGE", world.keys.dead_letters, answer.dlq_id, "+")[0][1][:2] == [b"payload", b"\xff"]
    assert (world.raw("XLEN", world.keys.queue), world.pending()) == (0, [])
    again = bury(world, entry, maxlen=3).value
    assert (again.dlq_id, again.trimmed, len(letters(world))) == ("", 0, 3)


def test_Q5_when_trimming_fails_the_letter_is_kept_and_it_is_told(world, plaita_server: Server):
    world.raw("ACL", "SETUSER", "careful", "on", ">secret", "~*", "&*", "+@all", "-xtrim")
    for number in range(4):
        world.raw("XADD", world.keys.dead_letters, "*", "n", number)
    entry = add(world)
    world.take(1)
    url = plaita_server.url.partition("://")
    place = url[2].rpartition("@")[2].partition("?")[0]
    with SyncRunner(f"{url[0]}://careful:secret@{place}") as runner:
        answer = runner.do(dead_letters.bury(world.keys, "q", entry, LETTER, 3))
    assert answer.trimmed == -1
    assert letters(world)[-1].decode() == answer.dlq_id
    assert len(letters(world)) == 5
    assert world.pending() == []


def test_Q4_the_facts(world):
    assert facts(world) == dead_letters.GuardFacts(True, None, None, 0, 0, False, "", facts(world).mark)
    world.start()
    assert (facts(world).status, facts(world).flow_id, facts(world).lost) == ("pending", "f", 0)
    entry = world.take_one()
    begun = world.begin(entry).value
    held = facts(world)
    assert (held.status, held.lease, held.lost) == ("running", begun.lease_value, 1)
    world.do(count_failure(world.keys, CountFailure("e", begun.token, 1, "first")))
    assert facts(world).failures == 1, "the first node is not named by the row yet"
    world.commit(begun, node="first", next_node="b")
    assert (facts(world).failures, facts(world).lost) == (0, 1)
    world.do(count_failure(world.keys, CountFailure("e", begun.token, 2, "b")))
    assert facts(world).failures == 1
    world.raw("DEL", world.keys.lease("e"))
    assert facts(world).lease is None
    world.finish(begun, entry, 2)
    assert facts(world).status == "completed"
    world.do(executions.delete(world.keys, "e", "", force=True, tombstone_ttl_ms=1000))
    assert (facts(world).status, facts(world).tombstoned) == (None, True)


@pytest.mark.parametrize("key", ["row", "lease", "tombstone"])
def test_Q4_another_type_under_a_key_is_unreadable(world, key: str):
    world.raw("RPUSH", getattr(world.keys, key)("e"), "x")
    assert not facts(world).readable


def test_Q4_facts_of_another_tenant_are_others(world):
    world.start()
    other = world.keys.for_tenant("other")
    assert world.do(dead_letters.guard_facts(other, "e")).status is None


def test_Q4_letter_copy_and_ack_are_one_call_and_once(world):
    world.start()
    world.take(1)
    entry = add(world)
    world.take(1)
    seen = facts(world)
    first = bury(world, entry, seen, COPY).value
    assert world.raw("XRANGE", world.keys.wake, "-", "+") == [
        [first.copy_id.encode(), [b"payload", b'{"type":"resume"}', b"execution_id", b"e"]]
    ]
    assert [row[0].decode() for row in world.pending()] != [entry]
    assert bury(world, entry, seen, COPY) == Value(dead_letters.Buried("", 0, ""))
    assert (world.raw("XLEN", world.keys.wake), len(letters(world))) == (1, 1)
    (copy,) = [found for found in world.take(5).entries if found.stream == "w"]
    assert copy.delivered == 1


def change_by_begin(world):
    world.begin(world.take_one())


def change_by_delete(world):
    world.do(executions.delete(world.keys, "e", "", force=True, tombstone_ttl_ms=1000))


def change_by_cancelled_row(world):
    world.raw("HSET", world.keys.row("e"), "status", "suspended")


@pytest.mark.parametrize("change", [change_by_begin, change_by_delete, change_by_cancelled_row])
def test_Q4_nothing_is_done_by_facts_that_have_changed(world, change):
    world.start()
    entry = world.do(carriers.enqueue(world.keys, "w", [("payload", b"junk")]))
    world.raw("XGROUP", "CREATE", world.keys.wake, world.keys.group, "0")
    world.raw("XREADGROUP", "GROUP", world.keys.group, "x", "STREAMS", world.keys.wake, ">")
    seen = facts(world)
    change(world)
    allowed = Allowed(world.keys, "e", seen.mark)
    call = dead_letters.bury(world.keys, "w", entry, LETTER, 5, allowed=allowed, copy=COPY)
    assert world.run(call) == Refused("changed")
    assert (letters(world), len(world.pending("w"))) == ([], 1)
    assert world.raw("XLEN", world.keys.wake) == 1
    again = dead_letters.bury(world.keys, "w", entry, LETTER, 5, allowed=Allowed(world.keys, "e", facts(world).mark))
    assert world.do(again).dlq_id


def test_dead_letters_of_the_wrong_type_lose_nothing(world):
    world.raw("SET", world.keys.dead_letters, "x")
    entry = add(world)
    world.take(1)
    assert bury(world, entry).reason == "wrong_type"
    assert len(world.pending()) == 1


def test_pages_newest_first(world):
    assert world.do(dead_letters.page(world.keys, 5)) == dead_letters.LetterPage([], False, 0)
    made = [world.raw("XADD", world.keys.dead_letters, "*", "n", number).decode() for number in range(5)]
    first = world.do(dead_letters.page(world.keys, 2))
    assert [letter.dlq_id for letter in first.letters] == [made[4], made[3]]
    assert (first.more, first.total) == (True, 5)
    rest = world.do(dead_letters.page(world.keys, 5, made[3]))
    assert [letter.fields[b"n"] for letter in rest.letters] == [b"2", b"1", b"0"]
    assert not rest.more


def test_a_page_of_large_letters_is_short(world):
    for _ in range(3):
        world.raw("XADD", world.keys.dead_letters, "*", "payload", b"x" * (3 * 1024 * 1024))
    page = world.do(dead_letters.page(world.keys, 3))
    assert (len(page.letters), page.more, page.total) == (1, True, 3)


def test_get_and_purge(world):
    made = world.raw("XADD", world.keys.dead_letters, "*", "n", 1).decode()
    world.raw("XADD", world.keys.dead_letters, "*", "n", 2)
    assert world.do(dead_letters.get(world.keys, made)).fields == {b"n": b"1"}
    assert world.do(dead_letters.get(world.keys, "1-1")) is None
    assert world.do(dead_letters.purge(world.keys)) == 2
    assert world.do(dead_letters.purge(world.keys)) == 0
    assert world.do(dead_letters.get(world.keys, made)) is None
    assert world.raw("XADD", world.keys.dead_letters, "*", "n", 3).decode() > made
