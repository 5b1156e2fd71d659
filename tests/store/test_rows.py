"""Reading, listing, cancelling, deleting (ledger D1, D2, S8; DECISIONS 13, 16)."""

from __future__ import annotations

import pytest

from plaita.store import executions, flows
from plaita.store.call import Refused, Value
from plaita.store.keys import Keys


def cancel(world, execution_id="e", reason="because"):
    payload = b'{"type":"resume","resume_type":"cancel"}'
    return world.run(executions.request_cancel(world.keys, execution_id, reason, payload, {"config_family": "cf1-a"}))


def delete(world, execution_id="e", force=False, ttl=60_000, reason="why"):
    call = executions.delete(world.keys, execution_id, reason, force=force, tombstone_ttl_ms=ttl)
    return world.run(call)


def test_load(world):
    assert world.do(executions.load(world.keys, "e")) is None
    _, begun = world.running()
    world.commit(begun, result=b"\xff1", state={"k": b"2"}, next_timing=b"{2}")
    row = world.do(executions.load(world.keys, "e"))
    assert (row.status, row.holder, row.lease) == ("running", "host1/first", begun.lease_value)
    assert (row.input, row.output, row.error, row.cancel_reason) == (b'{"x":1}', None, None, None)
    assert row.timings == {"a": b'{"order":1}', "b": b"{2}"}
    assert (row.results, row.state) == ({}, {})
    whole = world.do(executions.load(world.keys, "e", results=True))
    assert (whole.results, whole.state, whole.control) == ({"a": b"\xff1"}, {"k": b"2"}, row.control)


@pytest.mark.parametrize("lost", [None, "pending"])
@pytest.mark.parametrize("results", [False, True])
def test_D4_a_row_that_an_index_lost_is_indexed_again_when_it_is_read(world, lost, results):
    world.start("e")
    world.start("other")
    score = world.raw("ZSCORE", world.keys.index(), "e")
    world.raw("ZREM", world.keys.index(lost), "e")
    assert world.do(executions.load(world.keys, "e", results=results)).indexed_again is True
    assert world.raw("ZSCORE", world.keys.index(), "e") == score
    assert world.raw("ZSCORE", world.keys.index("pending"), "e") == score
    assert world.raw("ZCARD", world.keys.index()) == world.raw("ZCARD", world.keys.index("pending")) == 2
    assert world.do(executions.load(world.keys, "e")).indexed_again is False


def test_D4_a_server_that_takes_no_writes_is_still_read(world):
    world.start("e")
    world.raw("ZREM", world.keys.index(), "e")
    world.raw("CONFIG", "SET", "maxmemory", "1")
    try:
        row = world.do(executions.load(world.keys, "e"))
        assert (row.status, row.indexed_again) == ("pending", False)
    finally:
        world.raw("CONFIG", "SET", "maxmemory", "0")
    assert world.do(executions.load(world.keys, "e")).indexed_again is True


def test_another_type_at_the_key_is_named(world):
    world.raw("SET", world.keys.row("e"), "x")
    assert world.run(executions.load(world.keys, "e")) == Refused("wrong_type", "string")


def test_results_by_name(world):
    _, begun = world.running()
    world.commit(begun, result=b"1", state={"k": b"2"})
    found = world.do(executions.results(world.keys, "e", ["a", "none"], ["k", "none"]))
    assert found == ({"a": b"1"}, {"k": b"2"})
    with pytest.raises(ValueError, match="no nodes"):
        executions.results(world.keys, "e", [])


def test_status_of(world):
    world.running()
    assert world.do(executions.status_of(world.keys, ["e", "none"])) == ["running", None]
    assert world.do(executions.status_of(world.keys, [])) == []


def test_listing(world):
    world.put_flow("g")
    for number in range(7):
        world.start(f"x{number}", flow_id="g" if number % 2 else "f")
    entry = world.take_one()
    world.begin(entry, "x0")
    keys = world.keys

    def listed(**changes):
        page = world.do(executions.list_executions(keys, **changes))
        return [row["execution_id"] for row in page.rows], page.total, page.complete

    newest = [f"x{number}" for number in reversed(range(7))]
    assert listed() == (newest, 7, True)
    assert listed(limit=2, offset=1) == (newest[1:3], 7, True)
    assert listed(status="running") == (["x0"], 1, True)
    assert listed(status="pending", limit=1) == (["x6"], 6, True)
    assert listed(flow="g") == (["x5", "x3", "x1"], 3, True)
    assert listed(flow="g", limit=1, offset=1) == (["x3"], 3, True)
    assert listed(flow="none") == ([], 0, True)
    assert listed(limit=0) == ([], 7, True)
    with pytest.raises(ValueError, match="weird"):
        listed(status="weird")


def test_a_listing_does_not_trip_over_an_expired_row(world):
    world.start("x1")
    world.start("x2")
    world.raw("DEL", world.keys.row("x1"))
    assert [row["execution_id"] for row in world.do(executions.list_executions(world.keys)).rows] == ["x2"]


# -- cancel -------------------------------------------------------------------------------------------------


def test_S8_cancel_of_a_waiting_execution_sends_a_carrier(world):
    world.start()
    world.take_one()
    assert cancel(world) == Value("pending")
    assert world.raw("GET", world.keys.cancel("e")) == b"because"
    carrier = world.take_one()
    assert carrier.stream == "w"
    assert carrier.fields[b"execution_id"] == b"e"
    assert carrier.fields[b"config_family"] == b"cf1-a"


def test_D2_cancel_of_a_deleted_one_says_so(world):
    world.start()
    world.do(executions.delete(world.keys, "e", "gone", force=False, tombstone_ttl_ms=60_000))
    answer = cancel(world)
    assert isinstance(answer, Refused)
    assert answer.reason == "tombstoned"
    assert world.raw("XLEN", world.keys.wake) == 0


def test_S8_cancel_of_a_running_one_leaves_it_to_the_holder(world):
    world.running()
    assert cancel(world) == Value("running")
    assert world.raw("XLEN", world.keys.wake) == 0
    assert world.do(executions.load(world.keys, "e")).cancel_reason == "because"


@pytest.mark.parametrize("status", ["completed", "error", "cancelled"])
def test_S8_cancel_of_a_terminal_one_changes_nothing(world, status: str):
    entry, begun = world.running()
    world.finish(begun, entry, status=status)
    before = world.everything()
    assert cancel(world) == Value(status)
    assert world.everything() == before


def test_cancel_of_nothing(world):
    assert cancel(world) == Refused("no_row")


# -- delete -------------------------------------------------------------------------------------------------


def test_D1_delete_takes_all_but_the_generation(world):
    keys = world.keys
    entry, begun = world.running()
    for name in [
        keys.noderetry("e", "a:b"),
        *(keys.of_execution(w, "e") for w in ("nofail", "g1wakeups", "noderefetch")),
    ]:
        world.raw("SET", name, "1")
    world.raw("HSET", keys.row("e"), "retried", ":a%3Ab:")
    world.finish(begun, entry, status="error")
    assert delete(world, ttl=50_000).value.existed is True
    assert sorted(world.raw("KEYS", "plaita:exec*")) == sorted(
        name.encode() for name in (keys.fencegen("e"), keys.tombstone("e"))
    )
    assert 0 < world.raw("PTTL", keys.fencegen("e")) <= 50_000
    assert 0 < world.raw("PTTL", keys.tombstone("e")) <= 50_000


def test_D1_a_late_save_brings_nothing_back(world):
    entry, begun = world.running()
    assert delete(world) == Refused("running", "running")
    assert delete(world, force=True).value.existed is True
    before = world.everything()
    assert world.commit(begun) == Refused("no_row")
    assert world.finish(begun, entry) == Refused("no_row")
    assert world.begin(entry, nonce="n2").reason == "tombstoned"
    assert world.everything() == before


def test_D2_a_second_delete_keeps_the_first_time_and_only_lengthens(world):
    world.start()
    first = delete(world, ttl=50_000).value
    again = delete(world, ttl=90_000, reason="other").value
    assert (again.existed, again.deleted_at_ms) == (False, first.deleted_at_ms)
    assert world.raw("HGET", world.keys.tombstone("e"), "default").endswith(b" why")
    assert world.raw("PTTL", world.keys.tombstone("e")) > 50_000
    delete(world, ttl=1000)
    assert world.raw("PTTL", world.keys.tombstone("e")) > 50_000


def test_D2_tombstones_of_two_tenants_stand_side_by_side(world):
    acme = Keys(tenant="acme")
    world.do(flows.put(acme, "f", None, "a" * 64, b"{}"))
    world.start()
    world.do(executions.start(acme, executions.Start("e", "f", input=b"1", payload=b"{}")))
    delete(world)
    assert world.do(executions.load(acme, "e")).status == "pending"
    world.do(executions.delete(acme, "e", "theirs", force=False, tombstone_ttl_ms=1000))
    assert sorted(world.raw("HKEYS", world.keys.tombstone("e"))) == [b"acme", b"default"]


def test_delete_of_nothing(world):
    assert delete(world) == Refused("no_row")
    assert world.raw("EXISTS", world.keys.tombstone("e")) == 0


def test_D2_delete_releases_its_own_dedup_claim_only(world):
    world.start("e", dedup_key="mine")
    world.start("other", dedup_key="theirs")
    world.raw("HSET", world.keys.row("other"), "dedup_key", "mine")
    delete(world, "other")
    assert world.raw("GET", world.keys.start_dedup("mine")) == b"e"
    delete(world, "e")
    assert world.raw("EXISTS", world.keys.start_dedup("mine")) == 0


# -- a row that a backup brought back (ledger D2) -----------------------------------------------------------


@pytest.fixture
def brought_back(world):
    """Deleted with its row as it was running, which then came back alone."""
    world.running()
    dump = world.raw("DUMP", world.keys.row("e"))
    assert isinstance(delete(world, force=True), Value)
    world.raw("RESTORE", world.keys.row("e"), 0, dump)
    return world.everything()


def test_D2_a_row_out_of_a_backup_is_not_read_nor_indexed(world, brought_back):
    for results in (False, True):
        answer = world.run(executions.load(world.keys, "e", results=results))
        assert isinstance(answer, Refused)
        assert answer.reason == "tombstoned"
    assert world.everything() == brought_back


def test_D2_a_row_out_of_a_backup_takes_no_cancel(world, brought_back):
    answer = cancel(world)
    assert isinstance(answer, Refused)
    assert answer.reason == "tombstoned"
    assert world.everything() == brought_back


def test_D2_a_row_out_of_a_backup_is_deleted_again_as_of_the_first_time(world, brought_back):
    first = world.raw("HGET", world.keys.tombstone("e"), "default")
    again = delete(world, force=True, reason="again").value
    assert again.existed
    assert world.raw("HGET", world.keys.tombstone("e"), "default") == first
    assert first.startswith(str(again.deleted_at_ms).encode())
    assert world.raw("EXISTS", world.keys.row("e")) == 0


def test_D2_a_row_out_of_a_backup_lives_for_another_tenant_of_its_id_only(world, brought_back):
    acme = Keys(tenant="acme")
    world.do(flows.put(acme, "f", None, "a" * 64, b"{}"))
    world.do(executions.start(acme, executions.Start("e", "f", input=b"1", payload=b"{}")))
    assert world.do(executions.load(acme, "e")).status == "pending"


def test_D2_a_row_out_of_a_backup_goes_with_the_tombstone_once_a_carrier_has_met_it(world, brought_back):
    world.raw("XADD", world.keys.queue, "*", "payload", "{}", "execution_id", "e")
    assert world.begin(world.take(100).entries[-1]).reason == "tombstoned"
    ends = world.raw("PEXPIRETIME", world.keys.row("e"))
    assert 0 < ends <= world.raw("PEXPIRETIME", world.keys.tombstone("e"))
