"""take: reclaim and read in one call (ledger Q1, Q2; DECISIONS 3, 4, 6; KNOWN-TROUBLE 1, 13, 25, 26)."""

from __future__ import annotations

import pytest

from plaita.policy.generations import Fit, Stamps, judge
from plaita.store import carriers
from plaita.store.call import Refused, Value

IDLE = 86_400_000


def make_idle(world, *ids: str, stream: str = "q", consumer: str = "dead", idle: int = IDLE) -> None:
    name = world.keys.stream(stream)
    world.raw("XCLAIM", name, world.keys.group, consumer, 0, *ids, "IDLE", idle, "JUSTID")


def add(world, stream: str = "q", **fields: str) -> str:
    words = [word for pair in fields.items() for word in pair] or ["payload", "{}"]
    return world.raw("XADD", world.keys.stream(stream), "*", *words).decode()


def ids(taken) -> list[str]:
    return [entry.entry_id for entry in taken.entries]


def test_Q1_what_was_there_before_the_group_is_delivered(world):
    """First start against a stream that already holds entries."""
    expected = [add(world) for _ in range(5)]
    assert ids(world.take(10)) == expected


@pytest.mark.parametrize("empty", ["DEL", "FLUSHALL"])
def test_Q1_a_group_made_anew_begins_at_the_start(world, empty: str):
    """KNOWN-TROUBLE 13: emptied, five added, and only then noticed."""
    world.running()
    if empty == "DEL":
        world.raw("DEL", world.keys.queue, world.keys.wake)
    else:
        world.server.flush()
    expected = [add(world) for _ in range(5)] + [add(world, "w")]
    assert world.run(carriers.read_blocking(world.keys, "host1", 1)).reason == "no_group"
    assert sorted(ids(world.take(10))) == sorted(expected)


def test_DECISIONS_6_wake_is_read_first(world):
    starts = [add(world) for _ in range(3)]
    wakes = [add(world, "w") for _ in range(2)]
    assert ids(world.take(3)) == [*wakes, starts[0]]
    assert ids(world.take(9)) == starts[1:]


def test_starts_first_keeps_places_for_starts_and_no_more(world):
    starts = [add(world) for _ in range(3)]
    wakes = [add(world, "w") for _ in range(4)]
    assert ids(world.take(4, starts_first=1)) == [starts[0], *wakes[:3]]
    assert ids(world.take(2, starts_first=2)) == starts[1:]
    assert ids(world.take(2, starts_first=2)) == wakes[3:]  # what no start takes is for wake-ups


def test_no_more_than_count_over_reclaim_and_both_streams(world):
    """KNOWN-TROUBLE 65: never more than the free slots."""
    for _ in range(4):
        add(world)
        add(world, "w")
    first = ids(world.take(3))
    make_idle(world, first[0], stream="w")
    assert len(world.take(2).entries) == 2
    assert len(world.take(0).entries) == 0


def test_Q2_idle_entries_are_reclaimed_without_a_delivery(world):
    entry = add(world)
    world.take(1, consumer="dead")
    make_idle(world, entry)
    taken = world.take(5)
    assert [(e.entry_id, e.reclaimed, e.delivered) for e in taken.entries] == [(entry, True, 1)]
    _, consumer, idle, delivered = world.pending()[0]
    assert (consumer, delivered) == (b"host1", 1)
    assert idle < 60_000


def test_Q2_what_is_not_idle_enough_stays(world):
    add(world)
    world.take(1, consumer="other")
    assert ids(world.take(5)) == []
    assert world.pending()[0][1] == b"other"


@pytest.mark.parametrize("tenant", ["default", "", "acme"])
def test_DECISIONS_3_a_live_lease_protects_the_entry(world, tenant: str):
    from plaita.store.keys import Keys

    entry = add(world, execution_id="a:b", tenant_id=tenant)
    world.take(1, consumer="dead")
    make_idle(world, entry)
    keys = Keys(tenant=tenant)
    world.raw("SET", keys.lease("a:b"), "anything at all")
    taken = world.take(5)
    assert (ids(taken), taken.leased) == ([], 1)
    assert world.pending()[0][1] == b"dead"
    world.raw("DEL", keys.lease("a:b"))
    assert ids(world.take(5)) == [entry]


def test_an_entry_without_execution_id_is_claimed_for_the_caller_to_judge(world):
    entry = add(world, payload="x")
    world.take(1, consumer="dead")
    make_idle(world, entry)
    assert ids(world.take(5)) == [entry]


def test_C3_another_family_or_budget_is_not_claimed(world):
    """No claim, no delivery, and what is no id is legacy: as ``policy.generations`` rules."""
    stamps = [
        {"config_family": family, "budget_generation": budget}
        for family in ("", "cf1-a", "cf1-b", "cf1-", "cf1-b!", "junk")
        for budget in ("", "bg1-a", "bg1-b", "bg1-\n", "7")
    ]
    entries = {add(world, **named): named for named in stamps}
    ours = Stamps("cf1-a", "bg1-a")
    fits = {entry: judge(Stamps(**named), ours).fit for entry, named in entries.items()}
    world.take(100, consumer="dead")
    make_idle(world, *entries)
    taken = world.take(100, family="cf1-a", budget="bg1-a")
    assert ids(taken) == [entry for entry, fit in fits.items() if fit is Fit.RUNS]
    assert taken.other_family == list(fits.values()).count(Fit.OTHER_FAMILY) == 5
    assert taken.other_budget == list(fits.values()).count(Fit.OTHER_BUDGET) == 5
    left = {row[0].decode(): (row[1], row[3]) for row in world.pending() if row[1] == b"dead"}
    assert left == {entry: (b"dead", 1) for entry, fit in fits.items() if fit is not Fit.RUNS}


def test_ghosts_are_acked_and_counted_once(world):
    """KNOWN-TROUBLE 25."""
    entries = [add(world) for _ in range(3)]
    world.take(3, consumer="dead")
    make_idle(world, *entries)
    world.raw("XDEL", world.keys.queue, entries[1])
    taken = world.take(5)
    assert (ids(taken), taken.ghosts) == ([entries[0], entries[2]], 1)
    assert world.take(5).ghosts == 0
    assert len(world.pending()) == 2


def test_odd_bodies_come_through(world):
    """KNOWN-TROUBLE 25: a field written twice, bytes that are no text, an empty payload."""
    name = world.keys.queue
    world.raw("XADD", name, "*", "payload", b"\xff\xfe\x00", "x", "1", "x", "2")
    world.raw("XADD", name, "*", b"\xff", b"")
    first, second = world.take(5).entries
    assert first.raw == ((b"payload", b"\xff\xfe\x00"), (b"x", b"1"), (b"x", b"2"))
    assert first.fields[b"x"] == b"2"
    assert second.fields == {b"\xff": b""}


def test_all_of_a_thousand_are_found_past_what_cannot_be_claimed(world):
    """KNOWN-TROUBLE 26: the first 25 are ghosts, the next 175 leased; pages of 64, ten at a time."""
    entries = [add(world, execution_id=f"x{number}") for number in range(1000)]
    world.take(1000, consumer="dead")
    make_idle(world, *entries)
    world.raw("XDEL", world.keys.queue, *entries[:25])
    for number in range(25, 200):
        world.raw("SET", world.keys.lease(f"x{number}"), "live")
    found, ghosts, cursors, rounds = [], 0, (carriers.START, carriers.START), 0
    while True:
        taken = world.take(10, cursors=cursors)
        found += ids(taken)
        ghosts += taken.ghosts
        cursors = taken.cursors
        rounds += 1
        if not taken.more_pending:
            break
    assert found == entries[200:]
    assert ghosts == 25
    assert rounds <= 90


def test_a_wrong_type_under_a_stream_is_an_error_not_a_loop(world):
    world.raw("SET", world.keys.queue, "x")
    assert world.run(carriers.take(world.keys, carriers.Take("c", 1, 1, "h/i"))).reason == "wrong_type"


# -- adopting ---------------------------------------------------------------------------------------------


def test_a_new_process_adopts_what_its_name_holds(world):
    """A restart under the same instance id: the lease of the earlier incarnation is dead, whatever its TTL."""
    entry, begun = world.running()
    taken = world.take(5, holder="host1/second", adopt=True)
    assert ids(taken) == [entry.entry_id]
    assert world.raw("EXISTS", world.keys.lease("e")) == 0
    again = world.begin(entry, nonce="n2", holder="host1/second").value
    assert again.control["lost"] == "2"
    assert world.commit(begun).reason == "fence"


def test_adopting_leaves_the_live_alone(world):
    """Its own running work, and that of another instance whose entry went to this consumer name."""
    mine, _ = world.running("mine")
    world.start("theirs")
    theirs = world.take_one()
    world.begin(theirs, "theirs", nonce="n2", holder="host2/x")
    taken = world.take(5, adopt=True)
    assert (ids(taken), taken.leased) == ([], 2)
    assert mine.entry_id != theirs.entry_id


def test_adopting_skips_what_is_in_hand(world):
    first, second = add(world), add(world)
    world.take(2)
    assert ids(world.take(5, adopt=True, in_hand=[f"q {first}"])) == [second]


def test_adopting_does_not_touch_other_consumers(world):
    entry = add(world)
    world.take(1, consumer="other")
    make_idle(world, entry, consumer="other")
    assert ids(world.take(5, adopt=True)) == []
    assert ids(world.take(5)) == [entry]


def test_adopting_many_hands_out_each_once(world):
    """By cursor and in pages smaller than the room: fresh entries only after all that was held."""
    held = [add(world) for _ in range(20)]
    world.take(20)
    fresh = [add(world) for _ in range(3)]
    found, cursors, more = [], (carriers.START, carriers.START), True
    while more:
        taken = world.take(10, adopt=True, page=5, cursors=cursors, holder="host1/second")
        found += ids(taken)
        cursors, more = taken.cursors, taken.more_pending
    assert sorted(found) == sorted(set(found))
    assert found == held + fresh


# -- one carrier --------------------------------------------------------------------------------------------


def test_blocking_read(world):
    world.take(1)
    assert world.run(carriers.read_blocking(world.keys, "host1", 1)) == Value([])
    entry = add(world, "w")
    (found,) = world.do(carriers.read_blocking(world.keys, "host1", 1000))
    assert (found.stream, found.entry_id, found.fields) == ("w", entry, {b"payload": b"{}"})


def test_blocking_read_of_0_does_not_wait_for_ever(world):
    world.take(1)
    assert world.do(carriers.read_blocking(world.keys, "host1", 0)) == []


def test_release_makes_claimable_and_takes_nothing_from_others(world):
    entry = add(world)
    world.take(1)
    assert world.do(carriers.release(world.keys, "host1", "q", entry)) is True
    assert ids(world.take(1, consumer="host2", min_idle_ms=600_000)) == [entry]
    assert world.do(carriers.release(world.keys, "host1", "q", entry)) is False
    _, consumer, idle, delivered = world.pending()[0]
    assert (consumer, delivered) == (b"host2", 1)
    assert idle < 60_000


def test_Q8_ack_and_delete_are_one(world):
    entry = add(world)
    world.take(1)
    assert world.do(carriers.ack(world.keys, "q", entry)) is True
    assert (world.raw("XLEN", world.keys.queue), world.pending()) == (0, [])
    assert world.do(carriers.ack(world.keys, "q", entry)) is False


def test_enqueue_keeps_bytes(world):
    odd = b"\x00\xff" + b'{"n":912345678901234567}'
    entry = world.do(carriers.enqueue(world.keys, "w", [("payload", odd), ("text", "é")]))
    (found,) = world.take(1).entries
    assert (found.entry_id, found.fields) == (entry, {b"payload": odd, b"text": "é".encode()})


def test_stats(world):
    empty = world.do(carriers.stats(world.keys))
    assert [(s.length, s.pending, s.lag) for s in empty.streams] == [(0, 0, 0), (0, 0, 0)]
    assert empty.oldest_pending_ms is None
    for _ in range(3):
        add(world)
    add(world, "w")
    world.take(2)
    found = world.do(carriers.stats(world.keys))
    assert [(s.name, s.length, s.pending, s.lag) for s in found.streams] == [
        (world.keys.queue, 3, 1, 2),
        (world.keys.wake, 1, 1, 0),
    ]
    assert 0 <= found.oldest_pending_ms < 60_000


def test_stats_count_what_is_pending_for_nobody(world):
    for _ in range(3):
        add(world)
    add(world, "w")
    taken = world.take(3).entries
    assert world.do(carriers.stats(world.keys, 60_000)).claimable == 0
    for entry in taken[:2]:
        world.do(carriers.release(world.keys, "host1", entry.stream, entry.entry_id))
    found = world.do(carriers.stats(world.keys, 60_000))
    assert (found.claimable, sum(stream.pending for stream in found.streams)) == (2, 3)
    assert world.do(carriers.stats(world.keys)).claimable == 0, "not asked for"


def test_stats_of_a_stream_nobody_reads(world):
    add(world)
    assert world.do(carriers.stats(world.keys)).streams[0].lag == 1


def test_Q8_residue_is_swept_and_nothing_else(world):
    """Acked by a worker that was killed before it deleted; among pending and undelivered ones."""
    entries = [add(world) for _ in range(40)]
    world.take(30)
    world.raw("XACK", world.keys.queue, world.keys.group, *entries[5:25])
    removed, cursors, done = 0, (carriers.START, carriers.START), False
    rounds = 0
    while not done:
        swept = world.do(carriers.sweep_residue(world.keys, 16, cursors))
        removed, cursors, done = removed + swept.removed, swept.cursors, swept.done
        rounds += 1
        assert rounds < 10
    assert removed == 20
    left = [entry[0].decode() for entry in world.raw("XRANGE", world.keys.queue, "-", "+")]
    assert left == entries[:5] + entries[25:]


def test_a_consumers_name_goes_only_when_nothing_is_pending(world):
    """KNOWN-TROUBLE 29."""
    entry = add(world)
    world.take(1)
    assert world.do(carriers.leave(world.keys, "host1")) == 1
    assert len(world.pending()) == 1
    world.do(carriers.ack(world.keys, "q", entry))
    assert world.do(carriers.leave(world.keys, "host1")) == 0
    assert world.raw("XINFO", "CONSUMERS", world.keys.queue, world.keys.group) == []


def test_leaving_without_any_group(world):
    assert world.run(carriers.leave(world.keys, "nobody")) == Value(0)


def test_what_take_does_not_know(world):
    world.take(1)
    world.raw("XGROUP", "DESTROY", world.keys.queue, world.keys.group)
    answer = world.run(carriers.read_blocking(world.keys, "host1", 1))
    assert isinstance(answer, Refused)
    assert answer.reason == "no_group"


def test_names_of_long_gone_consumers_go(world):
    """KNOWN-TROUBLE 29: neither the living, nor who holds something, nor who was heard of a moment ago."""
    entry = add(world)
    for consumer in ("holds", "gone", "lives"):
        world.take(1, consumer=consumer)

    def names() -> list[str]:
        found = world.raw("XINFO", "CONSUMERS", world.keys.queue, world.keys.group)
        return sorted(row[1].decode() for row in found)

    everybody = names()
    assert set(everybody) <= {"gone", "holds", "lives"}
    assert world.do(carriers.sweep_consumers(world.keys, 600_000, ["lives"])) == 0
    assert names() == everybody
    world.do(carriers.sweep_consumers(world.keys, 0, ["lives"]))
    assert names() == [name for name in everybody if name != "gone"]
    assert [row[0].decode() for row in world.pending()] == [entry]


def test_sweeping_consumers_without_any_group(world):
    assert world.run(carriers.sweep_consumers(world.keys, 0, [])) == Value(0)
