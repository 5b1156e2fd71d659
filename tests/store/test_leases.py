"""Renewal, lease values, cancel flags (ledger L3; DECISIONS 1, 3, 13)."""

from __future__ import annotations

import pytest

from plaita.store import carriers, executions, flows, leases
from plaita.store.call import Value
from plaita.store.keys import Keys
from plaita.store.leases import Beat, Lease, Ownership, Renewal, parse_lease


def renewal(entry, begun, execution_id="e", tenant="default"):
    return Renewal(tenant, execution_id, begun.lease_value, entry.stream, entry.entry_id)


def renew(world, *renewals, ttl=600_000):
    return world.do(leases.renew(world.keys, world.consumer, renewals, ttl))


def test_L3_all_leases_in_one_call(world):
    pairs = []
    for name in ("x1", "x2", "x3"):
        world.start(name)
        entry = world.take_one()
        pairs.append((entry, world.begin(entry, name).value, name))
    world.raw("PEXPIRE", world.keys.lease("x1"), 1000)
    world.raw("DEL", world.keys.lease("x2"))
    world.raw("SET", world.keys.lease("x3"), "another's")
    assert renew(world, *(renewal(*pair) for pair in pairs)) == ["ok", "lost", "lost"]
    assert world.raw("PTTL", world.keys.lease("x1")) > 1000
    assert world.raw("EXISTS", world.keys.lease("x2")) == 0
    assert world.raw("GET", world.keys.lease("x3")) == b"another's"


def test_DECISIONS_3_renewal_resets_the_idle_time_and_costs_no_delivery(world):
    entry, begun = world.running()
    world.raw("XCLAIM", world.keys.queue, world.keys.group, "host1", 0, entry.entry_id, "IDLE", 99_000, "JUSTID")
    assert renew(world, renewal(entry, begun)) == ["ok"]
    (_, consumer, idle, delivered) = world.pending()[0]
    assert (consumer, delivered) == (b"host1", 1)
    assert idle < 60_000


def test_a_lost_lease_leaves_the_entry_to_who_has_it(world):
    entry, begun = world.running()
    world.raw("XCLAIM", world.keys.queue, world.keys.group, "host2", 0, entry.entry_id, "IDLE", 99_000, "JUSTID")
    world.raw("DEL", world.keys.lease("e"))
    assert renew(world, renewal(entry, begun)) == ["lost"]
    assert world.pending()[0][1] == b"host2"


@pytest.mark.parametrize("spoil", ["XGROUP DESTROY {queue} {group}", "DEL {queue}", "SET {queue} x"])
def test_a_stream_that_is_gone_does_not_cost_the_lease(world, spoil: str):
    entry, begun = world.running()
    if spoil.startswith("SET"):
        world.raw("DEL", world.keys.queue)
    world.raw(*spoil.format(queue=world.keys.queue, group=world.keys.group).split())
    assert renew(world, renewal(entry, begun)) == ["ok"]


def test_tenants_side_by_side(world):
    acme = Keys(tenant="acme")
    world.do(flows.put(acme, "f", None, "a" * 64, b"{}"))
    entry, begun = world.running()
    world.do(executions.start(acme, executions.Start("e", "f", input=b"1", payload=b"{}")))
    other = world.take_one()
    request = executions.Begin("e", world.holder, "n9", 600_000, other.stream, other.entry_id, 5)
    theirs = world.do(executions.begin(acme, request))
    assert renew(world, renewal(entry, begun), renewal(other, theirs, tenant="acme")) == ["ok", "ok"]
    world.do(executions.request_cancel(acme, "e", "stop", b"{}"))
    asked = [("default", "e"), ("acme", "e")]
    assert world.run(leases.cancel_flags(world.keys, asked)) == Value([None, "stop"])


def test_DECISIONS_13_that_a_step_was_told_to_stop_stands_in_its_row_once(world):
    _, begun = world.running()
    triples = [("default", "e", begun.token), ("acme", "e", begun.token), ("default", "gone", "1:x")]
    assert world.do(leases.note_signalled(world.keys, triples)) == 1
    first = world.row()["cancel_signalled_at"]
    world.raw("HSET", world.keys.row("e"), "cancel_signalled_at", "17")
    assert (int(first) > 0, world.do(leases.note_signalled(world.keys, triples))) == (True, 1)
    assert world.row()["cancel_signalled_at"] == b"17"


@pytest.mark.parametrize("spoil", ["token", "over", "suspended"])
def test_DECISIONS_13_what_does_not_run_under_the_token_is_told_nothing(world, spoil: str):
    entry, begun = world.running()
    token = begun.token
    if spoil == "token":
        token = "1:other"
    elif spoil == "over":
        world.finish(begun, entry, 1)
    else:
        world.raw("HSET", world.keys.row("e"), "status", "suspended")
    before = world.everything()
    assert world.do(leases.note_signalled(world.keys, [("default", "e", token)])) == 0
    assert world.everything() == before


@pytest.mark.parametrize("status", ["completed", "error", "cancelled"])
def test_DECISIONS_13_a_signal_that_came_too_late_is_forgotten(world, status: str):
    entry, begun = world.running()
    world.do(leases.note_signalled(world.keys, [("default", "e", begun.token)]))
    world.finish(begun, entry, 1, status=status)
    assert ("cancel_signalled_at" in world.row()) == (status == "cancelled")


def test_DECISIONS_1_a_lease_is_dropped_only_while_it_is_the_one_that_was_seen(world):
    _, begun = world.running()
    before = world.everything()
    assert world.do(leases.drop(world.keys, "e", begun.lease_value + "1")) is False
    assert world.everything() == before
    assert world.do(leases.drop(world.keys, "e", begun.lease_value)) is True
    assert world.raw("EXISTS", world.keys.lease("e")) == 0
    assert world.do(leases.drop(world.keys, "e", begun.lease_value)) is False


@pytest.mark.parametrize("now", ["the same", "another", "none"])
def test_L5_what_met_a_lease_may_be_had_once_that_is_gone(world, now: str):
    entry, begun = world.running()
    world.do(carriers.enqueue(world.keys, "w", [("payload", b"{}")]))
    met = world.take_one()
    if now == "another":
        world.raw("SET", world.keys.lease("e"), "v2 h/i 2:x q 1-1")
    elif now == "none":
        world.finish(begun, entry, 1)
    call = carriers.release_if_let_go(world.keys, "default", "e", begun.lease_value, "host1", "w", met.entry_id)
    assert world.do(call) is (now != "the same")
    assert (met.entry_id in [e.entry_id for e in world.take(5, consumer="other").entries]) == (now != "the same")


def test_no_renewals_is_an_empty_answer(world):
    assert renew(world) == []


@pytest.mark.parametrize("value", ["", "start:0123456789abcdef", "v1 a/b 1:x q 1-1", "v2 a/b 1:x z 1-1",
                                   "v2 ab 1:x q 1-1", "v2 a/b 1:x q", "v2 a/b 1:x q 1-1 more", "x:3"])  # fmt: skip
def test_DECISIONS_3_values_of_another_form_have_no_readable_holder(value: str):
    assert parse_lease(value) is None


def test_a_lease_value_both_ways():
    lease = Lease("a/b.c/0f", "12:ab", "w", "5-1")
    assert parse_lease(lease.value()) == lease
    assert (lease.instance_id, lease.incarnation) == ("a/b.c", "0f")


# -- the progress heartbeat (ledger L4) ----------------------------------------------------------------


def beat(world, entry, begun, step=1, node="a", timing=b'{"ended_at":null,"started_at":5}', tenant="default"):
    said = Renewal(tenant, "e", begun.lease_value, entry.stream, entry.entry_id, Beat(step, node, timing))
    return renew(world, said)


def test_L4_the_running_node_and_the_time_are_merged_and_nothing_else(world):
    entry, begun = world.running()
    world.raw("HSET", world.keys.row("e"), "last_update_time", "1")
    before = world.row()
    assert beat(world, entry, begun) == ["ok"]
    after = world.row()
    assert after.pop("t:a") == b'{"ended_at":null,"started_at":5}'
    assert int(after.pop("last_update_time")) > 1
    before.pop("last_update_time")
    assert after == before


def test_L4_between_steps_a_renewal_writes_no_row(world):
    entry, begun = world.running()
    before = world.row()
    assert renew(world, renewal(entry, begun)) == ["ok"]
    assert world.row() == before


def test_L4_never_over_an_advance(world):
    entry, begun = world.running()
    world.commit(begun, timing=b'{"ended_at":7}')
    before = world.row()
    assert beat(world, entry, begun) == ["ok"]  # built before the commit, arrives after it
    assert world.row() == before


def test_L4_never_over_an_end(world):
    entry, begun = world.running()
    world.finish(begun, entry)
    world.raw("SET", world.keys.lease("e"), begun.lease_value)  # as a backup would
    before = world.row()
    beat(world, entry, begun)
    assert world.row() == before


@pytest.mark.parametrize("spoil", ["SET {fence} 9:x", "DEL {fence}", "SET {fencegen} 9", "DEL {fencegen}"])
def test_L4_an_old_generation_is_refused_and_not_renewed(world, spoil: str):
    entry, begun = world.running()
    world.raw("PEXPIRE", world.keys.lease("e"), 1000)
    world.raw(*spoil.format(fence=world.keys.fence("e"), fencegen=world.keys.fencegen("e")).split())
    before = world.row()
    assert beat(world, entry, begun) == ["fenced"]
    assert world.row() == before
    assert world.raw("PTTL", world.keys.lease("e")) <= 1000


def test_L4_it_knows_the_tenant(world):
    acme = Keys(tenant="acme")
    world.do(flows.put(acme, "f", None, "a" * 64, b"{}"))
    world.running()
    world.do(executions.start(acme, executions.Start("e", "f", input=b"1", payload=b"{}")))
    other = world.take_one()
    request = executions.Begin("e", world.holder, "n9", 600_000, other.stream, other.entry_id, 5)
    theirs = world.do(executions.begin(acme, request))
    before = world.row()
    assert beat(world, other, theirs, tenant="acme") == ["ok"]
    assert world.row() == before
    assert world.raw("HGET", acme.row("e"), "t:a") is not None


# -- after a failover (DECISIONS 11) ----------------------------------------------------------------------


def test_DECISIONS_11_what_redis_says_of_all_held_tokens_in_one_call(world):
    _, begun = world.running()
    asked = [("default", "e"), ("acme", "e"), ("default", "gone")]
    found = world.do(leases.held_tokens(world.keys, asked))
    assert found == [Ownership(begun.token, "1", begun.lease_value), Ownership("", "", ""), Ownership("", "", "")]
