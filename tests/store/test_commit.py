"""commit: one step saved, by its token and its number only (ledger F9, L2; DECISIONS 2, 9; KNOWN-TROUBLE 2)."""

from __future__ import annotations

import pytest

from plaita.store import executions
from plaita.store.call import Refused, Value
from plaita.store.executions import Committed


def test_commit_writes_the_step(world):
    _, begun = world.running()
    answer = world.commit(
        begun, result=b"[1]", branch="yes", next_timing=b'{"order":2}', active_ms_delta=5, state={"k": b"1"}, nodes=2
    )
    assert answer == Value(Committed(False, False))
    row = world.row()
    wanted = {
        "r:a": b"[1]", "t:a": b'{"order":1}', "t:b": b'{"order":2}', "s:k": b"1", "last_node": b"a", "next_node": b"b",
        "branch": b"yes", "step": b"1", "commit": b"1:n1|1|commit", "active_ms": b"5", "lost": b"1", "lost_node": b"b",
        "nodes": b"2", "status": b"running",
    }  # fmt: skip
    assert {name: row[name] for name in wanted} == wanted
    world.commit(begun, 2, "b", "c", active_ms_delta=3)
    row = world.row()
    assert (row["active_ms"], row["branch"], row["step"], row["r:a"]) == (b"8", b"", b"2", b"[1]")


def test_sent_again_it_is_done_and_writes_nothing(world):
    _, begun = world.running()
    world.commit(begun, active_ms_delta=5)
    before = world.everything()
    assert world.commit(begun, active_ms_delta=5) == Value(Committed(True, False))
    assert world.everything() == before


@pytest.mark.parametrize("step", [0, 1, 4, 7])
def test_a_late_copy_of_an_older_commit_does_not_rewind(world, step: int):
    """What a connection given up long ago still delivers must not bring back an older step."""
    _, begun = world.running()
    world.commit(begun, 1, "a", "b")
    world.commit(begun, 2, "b", "c")
    before = world.everything()
    assert world.commit(begun, step, "a", "b") == Refused("stale_step", "2")
    assert world.everything() == before


def test_L2_an_older_token_is_refused(world):
    """Also when the same consumer took the second attempt (KNOWN-TROUBLE 2)."""
    entry, begun = world.running()
    world.raw("DEL", world.keys.lease("e"))
    second = world.begin(entry, nonce="n2").value
    before = world.everything()
    assert world.commit(begun) == Refused("fence", second.token)
    assert world.everything() == before
    assert world.commit(second).value.done_before is False


def test_L2_a_generation_that_repeats_after_a_flush_is_no_way_in(world):
    """Both tokens have generation 1; the random half tells them apart (DECISIONS 2)."""
    _, first = world.running()
    world.server.flush()
    world.put_flow()
    world.start()
    second = world.begin(world.take_one(), nonce="n2").value
    assert (first.generation, second.generation) == (1, 1)
    assert world.commit(first) == Refused("fence", "1:n2")
    assert world.commit(second).value.done_before is False


def test_after_a_flush_nothing_is_invented(world):
    _, begun = world.running()
    world.server.flush()
    assert world.commit(begun) == Refused("no_row")
    assert world.everything() == {}


def test_L2_a_backup_of_row_and_fence_gives_no_right(world):
    """fencegen is ahead of what was brought back."""
    entry, begun = world.running()
    row, fence = world.raw("DUMP", world.keys.row("e")), world.raw("DUMP", world.keys.fence("e"))
    world.raw("DEL", world.keys.lease("e"))
    world.begin(entry, nonce="n2")
    world.raw("DEL", world.keys.lease("e"))
    world.raw("RESTORE", world.keys.row("e"), 0, row, "REPLACE")
    world.raw("RESTORE", world.keys.fence("e"), 0, fence, "REPLACE")
    assert world.commit(begun).reason == "fence"


def test_L2_a_backup_of_fencegen_gives_no_right(world):
    entry, begun = world.running()
    generation = world.raw("DUMP", world.keys.fencegen("e"))
    world.raw("DEL", world.keys.lease("e"))
    second = world.begin(entry, nonce="n2").value
    world.raw("RESTORE", world.keys.fencegen("e"), 0, generation, "REPLACE")
    assert world.commit(begun).reason == "fence"
    assert world.commit(second).reason == "fence", "neither: its generation is no longer the newest"


def test_DECISIONS_9_an_expired_lease_is_taken_back_by_its_own_token(world):
    _, begun = world.running()
    world.raw("DEL", world.keys.lease("e"))
    assert world.commit(begun).value.done_before is False
    assert world.raw("GET", world.keys.lease("e")).decode() == begun.lease_value
    assert 0 < world.raw("PTTL", world.keys.lease("e")) <= 600_000


def test_another_lease_is_not_overwritten(world):
    _, begun = world.running()
    world.raw("SET", world.keys.lease("e"), "start:0123456789abcdef")
    before = world.everything()
    assert world.commit(begun) == Refused("lease_lost", "start:0123456789abcdef")
    assert world.everything() == before


@pytest.mark.parametrize("status", ["completed", "error", "cancelled"])
def test_a_terminal_row_is_left_alone(world, status: str):
    _, begun = world.running()
    world.raw("HSET", world.keys.row("e"), "status", status)
    before = world.everything()
    assert world.commit(begun) == Refused("terminal", status)
    assert world.everything() == before


def test_DECISIONS_13_a_commit_tells_of_a_cancel(world):
    _, begun = world.running()
    world.do(executions.request_cancel(world.keys, "e", "why", b"{}"))
    assert world.commit(begun) == Value(Committed(False, True, "why"))
    assert world.commit(begun) == Value(Committed(True, True, "why"))


def test_S11_success_clears_this_nodes_counter_only(world):
    keys = world.keys
    _, begun = world.running()
    for node in ("a", "ab", "x:y"):
        world.raw("SET", keys.noderetry("e", node), "3")
    world.raw("SET", keys.of_execution("nofail", "e"), "4")
    world.raw("HSET", keys.row("e"), "retried", ":ab:a:x%3Ay:")
    world.commit(begun, 1, "a", "x:y")
    assert world.raw("EXISTS", keys.noderetry("e", "a"), keys.of_execution("nofail", "e")) == 0
    assert world.raw("EXISTS", keys.noderetry("e", "ab"), keys.noderetry("e", "x:y")) == 2
    assert world.row()["retried"] == b":ab:x%3Ay:"
    world.commit(begun, 2, "x:y", "ab")
    world.commit(begun, 3, "ab", "z")
    assert world.raw("EXISTS", keys.noderetry("e", "ab"), keys.noderetry("e", "x:y")) == 0
    assert world.row()["retried"] == b":"


def test_a_row_of_another_type(world):
    _, begun = world.running()
    world.raw("DEL", world.keys.row("e"))
    world.raw("SET", world.keys.row("e"), "x")
    assert world.commit(begun).reason == "wrong_type"
    assert world.raw("GET", world.keys.row("e")) == b"x"


def test_F9_bytes_written_per_step_do_not_grow(world):
    """Counted in the append-only file over 200 steps."""
    _, begun = world.running()

    def written() -> int:
        facts = world.raw("INFO", "persistence").decode()
        return int(facts.split("aof_current_size:")[1].split("\r\n")[0])

    sizes = []
    # With everysec a write may be put off while the disk is busy, and would be counted with the next step's.
    world.raw("CONFIG", "SET", "appendfsync", "always")
    try:
        for step in range(1, 201):
            before = written()
            world.commit(begun, step, f"n{step:03}", f"n{step + 1:03}", result=b"x" * 100)
            sizes.append(written() - before)
    finally:
        world.raw("CONFIG", "SET", "appendfsync", "everysec")
    assert min(sizes) > 0
    assert max(sizes[150:]) - max(sizes[:10]) <= 8, "a few digits of the step number and no more"


def test_DECISIONS_9_a_commit_says_whether_it_took_the_lease_back(world):
    _, begun = world.running()
    assert world.commit(begun).value.lease_taken is False
    world.raw("DEL", world.keys.lease("e"))
    taken = world.commit(begun, step=2, node="b", next_node="c").value
    assert (taken.lease_taken, taken.done_before) == (True, False)
    again = world.commit(begun, step=2, node="b", next_node="c").value
    assert (again.lease_taken, again.done_before) == (False, True)


def test_L2_a_row_that_came_back_as_pending_is_not_written_but_begun_anew(world):
    world.start()
    dump = world.raw("DUMP", world.keys.row("e"))
    entry = world.take_one()
    begun = world.begin(entry).value
    world.raw("RESTORE", world.keys.row("e"), 0, dump, "REPLACE")
    assert world.commit(begun) == Refused("not_running", "pending")
    assert world.finish(begun, entry) == Refused("not_running", "pending")
    again = world.begin(entry).value  # sent again: the lease is ours, the row is made running
    assert (again.token, again.control["status"], again.control["lost"]) == ("2:n1", "running", "1")
    assert isinstance(world.commit(again), Value)


@pytest.mark.parametrize("keys", [1_990, 2_010, 15_000])
def test_a_step_may_set_more_fields_than_lua_can_unpack(world, keys: int):
    entry, begun = world.running()
    state = {f"k{n}": str(n).encode() for n in range(keys)}
    assert world.commit(begun, state=state).value.done_before is False
    assert sum(1 for name in world.row() if name.startswith("s:")) == keys
    assert world.row()[f"s:k{keys - 1}"] == str(keys - 1).encode()
    more = {f"m{n}": b"1" for n in range(keys)}
    assert world.finish(begun, entry, step=2, state=more).value.done_before is False
    assert sum(1 for name in world.row() if name.startswith("s:")) == 2 * keys
