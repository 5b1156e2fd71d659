"""begin and retake: who gets the lease, and what that says and counts (ledger L1, L2, S14; DECISIONS 2, 7, 8)."""

from __future__ import annotations

import pytest

from plaita.store import executions
from plaita.store.call import Refused, Value
from plaita.store.executions import ForeignStart, Retake
from plaita.store.leases import Lease, parse_lease


def retake(world, begun, entry, nonce="n2", death=b'{"signal":9}', **changes):
    given = {"holder": world.holder, "lease_ttl_ms": 600_000, "max_lost": 5, "old_token": begun.token} | changes
    request = Retake("e", nonce=nonce, stream=entry.stream, entry_id=entry.entry_id, death=death, **given)
    return world.run(executions.retake(world.keys, request))


def test_begin_takes_lease_and_token(world):
    entry, begun = world.running()
    assert begun.token == "1:n1"
    assert begun.generation == 1
    assert world.raw("GET", world.keys.fence("e")) == b"1:n1"
    assert world.raw("GET", world.keys.lease("e")).decode() == begun.lease_value
    assert parse_lease(begun.lease_value) == Lease("host1/first", "1:n1", "q", entry.entry_id)
    assert 0 < world.raw("PTTL", world.keys.lease("e")) <= 600_000
    assert world.raw("PTTL", world.keys.fencegen("e")) == -1
    assert (begun.control["status"], begun.control["attempts"], begun.control["lost"]) == ("running", "1", "1")
    assert begun.input == b'{"x":1}'
    assert world.raw("ZRANGE", world.keys.index("running"), 0, -1) == [b"e"]
    assert world.raw("ZCARD", world.keys.index("pending")) == 0


def test_the_same_begin_again_changes_nothing(world):
    world.start()
    entry = world.take_one()
    first = world.begin(entry).value
    before = world.everything()
    again = world.begin(entry).value
    assert {**_fields(again), "server_now_ms": 0} == {**_fields(first), "server_now_ms": 0}
    assert world.everything() == before


def _fields(begun):
    return {name: getattr(begun, name) for name in begun.__slots__}


def test_L1_another_nonce_or_holder_is_refused(world):
    entry, begun = world.running()
    before = world.everything()
    assert world.begin(entry, nonce="n2") == Refused("leased", begun.lease_value)
    assert world.begin(entry, holder="host1/second") == Refused("leased", begun.lease_value)
    assert world.everything() == before


@pytest.mark.parametrize("status", ["completed", "error", "cancelled"])
def test_a_terminal_row_is_not_begun(world, status: str):
    entry, begun = world.running()
    world.finish(begun, entry, status=status)
    assert world.begin(entry, nonce="n2") == Refused("terminal", status)


def test_no_row_suspended_tombstoned_wrong_type(world):
    world.start()
    entry = world.take_one()
    assert world.begin(entry, "none") == Refused("no_row")
    world.raw("HSET", world.keys.row("e"), "status", "suspended")
    assert world.begin(entry) == Refused("suspended")
    world.raw("HSET", world.keys.tombstone("e"), "default", "1 why")
    assert world.begin(entry) == Refused("tombstoned", "1 why"), "a row that a backup brought back stays deleted"
    world.raw("SET", world.keys.row("odd"), "x")
    assert world.begin(entry, "odd") == Refused("wrong_type", "string")


def test_DECISIONS_15_a_foreign_start_gets_its_row(world):
    entry_id = world.raw("XADD", world.keys.queue, "*", "payload", "{}").decode()
    entry = world.take_one()
    assert entry.entry_id == entry_id
    begun = world.begin(entry, "new", foreign=ForeignStart("f", "latest", b'{"y":2}')).value
    assert (begun.input, begun.control["flow_id"], begun.control["version"]) == (b'{"y":2}', "f", "1")
    assert world.raw("ZRANGE", world.keys.index(), 0, -1) == [b"new"]


def test_a_foreign_start_of_a_flow_that_is_not_there(world):
    world.raw("XADD", world.keys.queue, "*", "payload", "{}")
    entry = world.take_one()
    before = world.everything()
    assert world.begin(entry, "new", foreign=ForeignStart("none", "latest", b"1")) == Refused("no_flow")
    assert world.begin(entry, "new", foreign=ForeignStart("f", "9", b"1")) == Refused("no_version", "1")
    assert world.everything() == before


def test_F8_a_foreign_start_for_the_id_of_another_flow(world):
    world.start()
    entry = world.take_one()
    assert world.begin(entry, foreign=ForeignStart("other", "latest", b"1")) == Refused("flow_conflict", "f")
    begun = world.begin(entry, foreign=ForeignStart("f", "latest", b"other input")).value
    assert begun.input == b'{"x":1}', "the row's input stands"


def test_S14_lost_counts_hand_outs_of_the_same_step(world):
    entry, begun = world.running()
    for expected in (2, 3, 4, 5, 6):
        world.raw("DEL", world.keys.lease("e"))
        begun = world.begin(entry, nonce=f"x{expected}").value
        assert begun.control["lost"] == str(expected)
        assert begun.lost_exhausted is (expected > 5)


def test_S14_progress_starts_the_count_anew(world):
    entry, begun = world.running()
    world.raw("DEL", world.keys.lease("e"))
    begun = world.begin(entry, nonce="n2").value
    world.commit(begun)
    assert world.row()["lost"] == b"1"
    world.raw("DEL", world.keys.lease("e"))
    assert world.begin(entry, nonce="n3").value.control["lost"] == "2"


def test_begin_tells_names_and_sizes_of_results_not_the_results(world):
    entry, begun = world.running()
    world.commit(begun, 1, "a", "b", result=b"x" * 5000, state={"k": b"12345"}, next_timing=b'{"order":2}')
    world.raw("DEL", world.keys.lease("e"))
    again = world.begin(entry, nonce="n2").value
    assert again.result_sizes == {"a": 5000}
    assert again.state_sizes == {"k": 5}
    assert again.timings == {"a": b'{"order":1}', "b": b'{"order":2}'}
    assert not any(name.startswith(("r:", "s:", "t:")) for name in again.control)


def test_a_row_of_thousands_of_nodes_is_begun_and_loaded(world):
    """More fields than Lua can unpack at once."""
    entry, _ = world.running()
    words = [word for i in range(9000) for word in (f"r:{i}", "1", f"t:{i}", "{}")]
    for at in range(0, len(words), 8000):
        world.raw("HSET", world.keys.row("e"), *words[at : at + 8000])
    world.raw("DEL", world.keys.lease("e"))
    begun = world.begin(entry, nonce="n2").value
    assert len(begun.result_sizes) == len(begun.timings) == 9000
    assert len(world.do(executions.load(world.keys, "e")).timings) == 9000


def test_cancel_is_told(world):
    world.start()
    entry = world.take_one()
    world.do(executions.request_cancel(world.keys, "e", "because", b"{}"))
    begun = world.begin(entry).value
    assert (begun.cancel, begun.cancel_reason) == (True, "because")


# -- retake ---------------------------------------------------------------------------------------------


def test_retake_gives_a_new_token_and_ends_the_old(world):
    entry, begun = world.running()
    again = retake(world, begun, entry, active_ms_delta=7).value
    assert (again.token, again.generation) == ("2:n2", 2)
    row = world.row()
    assert (row["lost"], row["death"], row["active_ms"], row["attempts"]) == (b"2", b'{"signal":9}', b"7", b"1")
    assert world.commit(begun) == Refused("fence", "2:n2")
    assert isinstance(world.commit(again), Value)


def test_the_same_retake_again_changes_nothing(world):
    entry, begun = world.running()
    first = retake(world, begun, entry).value
    before = world.everything()
    assert retake(world, begun, entry).value.token == first.token
    assert world.everything() == before


def test_retake_is_refused_to_who_has_lost_the_lease(world):
    entry, begun = world.running()
    world.raw("DEL", world.keys.lease("e"))
    other = world.begin(entry, nonce="n9", holder="host2/x").value
    assert retake(world, begun, entry) == Refused("lease_lost", other.lease_value)
    world.finish(other, entry)
    assert retake(world, begun, entry) == Refused("terminal", "completed")
    world.raw("DEL", world.keys.row("e"))
    assert retake(world, begun, entry) == Refused("no_row")


def test_retake_takes_an_expired_lease_back_while_the_fence_is_its_own(world):
    entry, begun = world.running()
    world.raw("DEL", world.keys.lease("e"))
    again = retake(world, begun, entry).value
    assert world.raw("GET", world.keys.lease("e")).decode() == again.lease_value
    assert isinstance(world.commit(again), Value)


def test_retake_is_refused_when_fence_or_generation_are_no_longer_its_own(world):
    """A lease that a backup brought back is not enough."""
    for key, other in ((world.keys.fence("e"), "9:x"), (world.keys.fencegen("e"), "9")):
        world.server.flush()
        world.put_flow()
        entry, begun = world.running()
        world.raw("SET", key, other)
        before = world.everything()
        assert retake(world, begun, entry).reason == "lease_lost"
        assert world.everything() == before


def test_S14_losses_of_another_node_do_not_count(world):
    entry, _ = world.running()
    world.raw("HSET", world.keys.row("e"), "lost", 4, "lost_node", "earlier", "next_node", "now")
    world.raw("DEL", world.keys.lease("e"))
    begun = world.begin(entry, nonce="n2").value
    assert (begun.control["lost"], begun.control["lost_node"]) == ("1", "now")


def test_retake_says_when_the_budget_is_spent(world):
    entry, begun = world.running()
    for number in range(2, 7):
        begun = retake(world, begun, entry, nonce=f"x{number}").value
    assert begun.lost_exhausted is True


def test_S14_the_row_names_who_was_last_given_the_step(world):
    """One that may only end it does not count: the life that lost the step is asked about."""
    world.start()
    entry = world.take_one()
    world.begin(entry, holder="host1/a", nonce="n1", max_lost=1)
    world.raw("DEL", world.keys.lease("e"))
    for holder, nonce in (("host2/b", "n2"), ("host3/c", "n3")):
        begun = world.begin(entry, holder=holder, nonce=nonce, max_lost=1).value
        assert (begun.lost_exhausted, begun.control["last_holder"]) == (True, "host1/a")
        world.raw("DEL", world.keys.lease("e"))
    assert world.begin(entry, holder="host4/d", nonce="n4", max_lost=9).value.control["last_holder"] == "host4/d"
