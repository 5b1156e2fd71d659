"""Status, epoch and quota of tenants in the scripts; of parked carriers none is lost (ledger T2, T3)."""

from __future__ import annotations

import random

import pytest

from plaita import Client, jsontext
from plaita.client.tenants import enable as enabling
from plaita.policy.carrier import read_carrier
from plaita.store import carriers, delayed, executions, tenants, upkeep
from plaita.store.call import Refused, Value
from plaita.store.executions import ForeignStart, HandOn
from plaita.store.keys import Keys
from plaita.store.tenants import Park

DAY_MS = 86_400_000


@pytest.fixture
def acme(world):
    """The world as tenant ``acme`` sees it."""
    world.keys = Keys(tenant="acme")
    world.put_flow()
    return world


def status(world, said, epoch=None):
    return world.do(tenants.set_status(world.keys, said, epoch))


def quota(world, number):
    return world.do(tenants.set_quota(world.keys, number))


def park(world, entry, execution_id, consumer=None, /, **fields):
    request = Park(execution_id, consumer or world.consumer, entry.stream, entry.entry_id, fields)
    return world.run(tenants.park(world.keys, request))


def release(world, *only, **named):
    return world.do(tenants.release_parked(world.keys, only, **named))


def parked(world, stream="q"):
    """Execution ids in the order of their list."""
    return world.do(tenants.parked_named(world.keys, stream))[1]


def running(world, execution_id):
    """Started and begun."""
    world.start(execution_id)
    entry = world.take_one()
    begun = world.begin(entry, execution_id, nonce=execution_id)
    assert isinstance(begun, Value)
    return entry, begun.value


def taken(world, *ids):
    """Started under no quota and taken, not begun: {execution id: entry}."""
    for execution_id in ids:
        world.start(execution_id)
    entries = world.take(len(ids)).entries
    return {entry.fields[b"execution_id"].decode(): entry for entry in entries}


# -- disabled -------------------------------------------------------------------------------------


def test_T2_a_disabled_tenant_starts_nothing(acme):
    status(acme, "disabled")
    before = acme.everything()
    request = executions.Start("e", "f", b"{}", b"{}")
    assert acme.run(executions.start(acme.keys, request)) == Refused("tenant_disabled")
    assert acme.everything() == before
    status(acme, "active")
    assert acme.start().status == "pending"


def test_T2_a_start_sent_again_after_its_tenant_was_disabled_was_done(acme):
    first = acme.start(nonce="n")
    status(acme, "disabled")
    assert acme.start(nonce="n") == first


def test_T2_a_disabled_tenant_begins_nothing_and_nothing_changes(acme):
    acme.start()
    entry = acme.take_one()
    status(acme, "disabled")
    before = acme.everything()
    assert acme.begin(entry) == Refused("tenant_disabled")
    assert acme.everything() == before


def test_T2_another_tenant_goes_on(acme):
    status(acme, "disabled")
    acme.keys = Keys(tenant="other")
    acme.put_flow()
    running(acme, "e")


def test_T2_what_was_begun_before_is_begun_when_asked_again(acme):
    entry, begun = acme.running()
    status(acme, "disabled")
    again = acme.begin(entry)
    assert isinstance(again, Value)
    assert again.value.token == begun.token


def test_T2_an_end_that_runs_nothing_is_begun_all_the_same(acme):
    acme.start()
    acme.take_one()
    status(acme, "disabled")
    acme.do(executions.request_cancel(acme.keys, "e", "enough", b"cancel"))
    begun = acme.begin(acme.take_one(), kind="cancel")
    assert isinstance(begun, Value)
    assert begun.value.cancel


def test_T2_an_end_that_a_node_has_to_undo_waits_for_the_tenant(acme):
    acme.suspended()
    status(acme, "disabled")
    acme.do(executions.request_cancel(acme.keys, "e", "enough", b"cancel"))
    assert acme.begin(acme.take_one(), kind="cancel") == Refused("tenant_disabled")
    # and is found when the tenant is enabled again, though the row was not woken
    [idle] = acme.do(upkeep.index_rows(acme.keys, ["e"], DAY_MS)).idle
    assert (idle.execution_id, idle.status) == ("e", "suspended")


def test_T2_a_carrier_is_dropped_while_the_tenant_is_disabled_only(acme):
    acme.start()
    entry = acme.take_one()
    drop = carriers.drop_disabled(acme.keys, "e", entry.stream, entry.entry_id)
    assert acme.run(drop) == Refused("changed")
    status(acme, "disabled")
    assert acme.run(drop) == Value(True)
    assert acme.run(drop) == Value(False)
    assert acme.pending() == []
    assert acme.raw("XLEN", acme.keys.queue) == 0
    assert acme.row()["status"] == b"pending"


@pytest.mark.parametrize("kind", ["event", "timeout"])
def test_T2_a_wait_that_ended_while_its_tenant_was_disabled_goes_on_with_its_data_once_it_is_enabled(acme, kind):
    acme.suspended(timeout_ms=60_000)
    status(acme, "disabled")
    if kind == "event":
        acme.wake("ev1")
    else:
        acme.timer_is_due()
        assert acme.do(delayed.promote(acme.keys)).moved == 1
    entry = acme.take_one()
    assert acme.begin(entry, kind=kind, wait="1") == Refused("tenant_disabled")
    assert acme.run(carriers.drop_disabled(acme.keys, "e", entry.stream, entry.entry_id)) == Value(True)
    assert acme.raw("XLEN", acme.keys.wake) == 0
    with Client(acme.server.url) as client:
        assert client.perform(enabling(acme.keys, "acme", None, DAY_MS))["requeued"] == 1
        assert client.perform(enabling(acme.keys, "acme", None, DAY_MS))["requeued"] == 0, "it has one"
    begun = acme.begin(acme.take_one(), nonce="n2", kind="continue").value
    assert (begun.woken, begun.wake_data) == (kind, {"event": b'{"yes":1}', "timeout": b"null"}[kind])


def test_T2_the_carrier_of_one_that_is_held_is_not_dropped(acme):
    entry, _ = acme.running()
    status(acme, "disabled")
    assert acme.run(carriers.drop_disabled(acme.keys, "e", entry.stream, entry.entry_id)) == Refused("changed")
    assert len(acme.pending()) == 1


@pytest.mark.parametrize("key", ["tenant_status", "tenant_quota", "tenant_epoch"])
def test_T2_what_cannot_be_read_is_active_and_has_no_quota(acme, key: str):
    acme.raw("RPUSH", getattr(acme.keys, key), "no", "such", "kind")
    acme.running()
    assert acme.do(tenants.states(acme.keys, ["acme"])).statuses == {"acme": ""}
    [facts] = acme.do(tenants.snapshot(acme.keys, ["acme"])).tenants
    assert (facts.status, facts.quota, facts.running) == ("", "", 1)
    if key == "tenant_epoch":
        acme.start("other")
        refused = acme.begin(acme.take_one(), "other", nonce="n2", expected_epoch="7")
        assert refused == Refused("tenant_epoch", "missing")


# -- epochs ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("written", "why"), [(None, "missing"), ("6", "older"), ("8", "newer")])
def test_T2_an_epoch_that_does_not_fit_begins_nothing_and_costs_nothing(acme, written: str | None, why: str):
    acme.start()
    entry = acme.take_one()
    status(acme, "active", written)
    before = acme.everything()
    assert acme.begin(entry, expected_epoch="7") == Refused("tenant_epoch", why)
    assert acme.everything() == before
    status(acme, "active", "7")
    assert isinstance(acme.begin(entry, expected_epoch="7"), Value)


def test_T2_the_default_tenant_begins_under_any_epoch(world):
    world.start()
    assert isinstance(world.begin(world.take_one(), expected_epoch="7"), Value)


def test_T2_a_status_of_another_deployment_drops_nothing(acme):
    acme.start()
    status(acme, "disabled", "6")
    assert acme.begin(acme.take_one(), expected_epoch="7") == Refused("tenant_epoch", "older")


def test_T2_a_status_without_an_epoch_leaves_the_one_there(acme):
    assert status(acme, "active", "7") == ""
    assert status(acme, "disabled") == "active"
    assert acme.do(tenants.states(acme.keys, ["acme", "x"])) == tenants.States("7", {"acme": "disabled", "x": ""})


# -- quota ----------------------------------------------------------------------------------------


def test_T3_over_quota_nothing_begins_and_nothing_changes(acme):
    quota(acme, 1)
    entries = taken(acme, "a")
    acme.begin(entries["a"], "a")
    quota(acme, 0)
    entry = taken(acme, "b")["b"]
    quota(acme, 1)
    before = acme.everything()
    assert acme.begin(entry, "b", nonce="n2") == Refused("quota", "1/1")
    assert acme.everything() == before


def test_T3_what_runs_already_passes(acme):
    entry, begun = acme.running()
    quota(acme, 1)
    handed = HandOn("e", begun.token, entry.stream, entry.entry_id, acme.consumer)
    acme.do(executions.hand_on(acme.keys, handed))
    entry = acme.take_one(consumer="host2", min_idle_ms=1000)
    assert isinstance(acme.begin(entry, holder="host2/first", nonce="n2"), Value)
    assert acme.raw("ZCARD", acme.keys.index("running")) == 1


def test_T3_a_cancel_needs_no_place(acme):
    running(acme, "a")
    acme.start("b")
    acme.take_one()
    quota(acme, 1)
    acme.do(executions.request_cancel(acme.keys, "b", "enough", b"cancel"))
    begun = acme.begin(acme.take_one(), "b", nonce="n2", kind="cancel")
    assert isinstance(begun, Value)


def test_T3_a_woken_one_needs_a_place(acme):
    acme.suspended()
    running(acme, "a")
    quota(acme, 1)
    acme.wake()
    assert acme.begin(acme.take_one(), nonce="n2", kind="event") == Refused("quota", "1/1")


def test_T3_a_retry_needs_a_place(acme):
    entry, begun = acme.running()
    acme.finish(begun, entry, status="error")
    running(acme, "a")
    quota(acme, 1)
    acme.resume("retry")
    assert acme.begin(acme.take_one(), nonce="n2", kind="retry") == Refused("quota", "1/1")
    assert acme.row()["status"] == b"error"


def test_T3_quotas_are_of_one_tenant(acme):
    quota(acme, 1)
    running(acme, "a")
    acme.keys = Keys(tenant="other")
    acme.put_flow()
    running(acme, "b")


# -- parking --------------------------------------------------------------------------------------


def test_T3_a_flood_never_enters_the_stream(acme):
    quota(acme, 2)
    started = [acme.start(f"e{n}") for n in range(5)]
    assert [bool(one.message_id) for one in started] == [True, True, False, False, False]
    assert {one.status for one in started} == {"pending"}
    assert acme.raw("XLEN", acme.keys.queue) == 2
    assert parked(acme) == ["e2", "e3", "e4"]
    stats = acme.do(carriers.stats(acme.keys))
    assert (stats.parked, stats.delayed) == (3, 0)
    [facts] = acme.do(tenants.snapshot(acme.keys)).tenants
    assert facts == tenants.Facts("acme", "", "2", 5, 0, 0, 3)


def test_T3_a_parked_start_sent_again_is_the_same(acme):
    quota(acme, 1)
    acme.start("a")
    first = acme.start("b", nonce="n")
    before = acme.everything()
    assert acme.start("b", nonce="n") == first
    assert first.message_id == ""
    assert acme.everything() == before


def test_T3_parking_takes_the_carrier_out_of_the_stream_once(acme):
    running(acme, "a")
    entry = taken(acme, "b")["b"]
    quota(acme, 1)
    assert park(acme, entry, "b") == Value(True)
    assert parked(acme) == ["b"]
    assert [one[0] for one in acme.pending()] != [entry.entry_id.encode()]
    before = acme.everything()
    assert park(acme, entry, "b") == Value(False)
    assert acme.everything() == before
    assert acme.row("b")["status"] == b"pending"
    assert b"attempts" not in acme.row("b")


def test_T3_what_has_a_place_by_now_is_not_parked(acme):
    entry, begun = running(acme, "a")
    other = taken(acme, "b")["b"]
    quota(acme, 1)
    acme.finish(begun, entry, execution_id="a")
    before = acme.everything()
    assert park(acme, other, "b") == Refused("changed", "pending")
    assert acme.everything() == before


def test_T3_what_another_host_took_is_not_parked(acme):
    running(acme, "a")
    entry = taken(acme, "b")["b"]
    quota(acme, 1)
    before = acme.everything()
    assert park(acme, entry, "b", "host2") == Refused("changed", "host1")
    assert acme.everything() == before


def test_T3_the_carrier_of_one_that_runs_is_not_parked(acme):
    """It would wait for a place that it has itself."""
    entry, _ = acme.running()
    quota(acme, 1)
    assert park(acme, entry, "e") == Refused("changed", "running")
    acme.raw("DEL", acme.keys.lease("e"))
    assert park(acme, entry, "e") == Refused("changed", "running")
    assert len(acme.pending()) == 1


def test_T3_a_carrier_comes_back_as_it_was_with_its_id_and_its_age(acme):
    running(acme, "a")
    payload = jsontext.dumps({"type": "start", "flow_id": "f", "tenant_id": "acme", "params": {"x": 1}})
    foreign = [("payload", payload), ("schema_version", "1"), ("config_family", "cf1-x")]
    acme.do(carriers.enqueue(acme.keys, "q", foreign))
    entry = acme.take_one()
    carrier = read_carrier(entry.fields, queue=acme.keys.queue, entry_id=entry.entry_id)
    quota(acme, 1)
    start = ForeignStart("f", "latest", b"{}", None, None)
    refused = acme.begin(entry, carrier.execution_id, nonce="n2", foreign=start)
    assert refused == Refused("quota", "1/1")
    fields = {"execution_id": carrier.execution_id, "first_enqueued_at": str(carrier.first_enqueued_ms)}
    assert park(acme, entry, carrier.execution_id, **fields) == Value(True)
    quota(acme, 0)
    assert release(acme).moved == 1
    back = acme.take_one()
    assert back.entry_id != entry.entry_id
    assert {name: back.fields[name] for name in entry.fields} == entry.fields
    again = read_carrier(back.fields, queue=acme.keys.queue, entry_id=back.entry_id)
    assert again == carrier


def test_T3_a_carrier_keeps_the_fields_that_it_has(acme):
    running(acme, "a")
    entry = taken(acme, "b")["b"]
    quota(acme, 1)
    park(acme, entry, "b", execution_id="another", first_enqueued_at="1")
    quota(acme, 0)
    release(acme)
    back = acme.take_one().fields
    assert (back[b"execution_id"], back[b"first_enqueued_at"]) == (b"b", b"1")


def test_T3_a_parked_start_keeps_its_age(acme):
    quota(acme, 1)
    acme.start("a")
    acme.start("b")
    quota(acme, 0)
    release(acme)
    back = acme.take(2).entries[1].fields
    assert back[b"first_enqueued_at"] == acme.row("b")["first_enqueued_at"]


# -- release --------------------------------------------------------------------------------------


def test_T3_as_many_come_back_as_there_are_places_the_first_first(acme):
    quota(acme, 3)
    for n in range(8):
        acme.start(f"e{n}")
    assert release(acme).moved == 0  # three are on their way
    entries = acme.take(8).entries
    begun = [acme.begin(entry, f"e{n}", nonce=f"n{n}").value for n, entry in enumerate(entries)]
    assert len(begun) == 3
    assert release(acme) == tenants.Released(0, ["acme"], False, 0, 0)
    for n in (0, 1):
        acme.finish(begun[n], entries[n], execution_id=f"e{n}")
    assert release(acme).moved == 2
    assert parked(acme) == ["e5", "e6", "e7"]
    assert [entry.fields[b"execution_id"] for entry in acme.take(8).entries] == [b"e3", b"e4"]


def test_T3_two_releasers_bring_no_more_back_than_one(acme):
    quota(acme, 2)
    entry, begun = running(acme, "a")
    for n in range(4):
        acme.start(f"e{n}")
    acme.finish(begun, entry, execution_id="a")
    assert [release(acme).moved, release(acme, "acme").moved, release(acme).moved] == [1, 0, 0]
    back = acme.take(8).entries
    assert [one.fields[b"execution_id"] for one in back] == [b"e0", b"e1"]
    acme.begin(back[0], "e0", nonce="n0")
    assert release(acme).moved == 0  # one runs, one is on its way still
    acme.begin(back[1], "e1", nonce="n1")
    assert release(acme).moved == 0


def test_T3_what_came_back_and_went_elsewhere_takes_no_place(acme):
    """A carrier that was brought back and acked (deleted, too old, dropped) is forgotten."""
    quota(acme, 1)
    acme.start("a")
    for n in range(3):
        acme.start(f"e{n}")
    entry = acme.take_one()
    acme.do(executions.delete(acme.keys, "a", "test", force=True, tombstone_ttl_ms=DAY_MS))
    acme.do(carriers.ack(acme.keys, "q", entry.entry_id))
    assert release(acme).moved == 1
    back = acme.take_one()
    assert release(acme).moved == 0
    acme.do(carriers.ack(acme.keys, "q", back.entry_id))
    assert release(acme).moved == 1


def test_T3_resumes_come_back_before_starts(acme):
    acme.suspended()
    running(acme, "a")
    quota(acme, 1)
    acme.start("b")
    assert parked(acme) == ["b"]
    acme.wake()
    entry = acme.take_one()
    assert entry.stream == "w"
    assert park(acme, entry, "e") == Value(True)
    quota(acme, 2)
    assert release(acme).moved == 1
    assert acme.take_one().stream == "w"
    assert parked(acme) == ["b"]


def test_T3_one_that_waited_before_does_not_go_behind_the_others(acme):
    """A resume takes the place that a start was brought back for."""
    acme.suspended()
    entry, begun = running(acme, "a")
    quota(acme, 1)
    for name in "bcd":
        acme.start(name)
    acme.finish(begun, entry, execution_id="a")
    release(acme)
    back = acme.take_one()
    acme.wake()
    resumed = acme.take_one()
    assert isinstance(acme.begin(resumed, nonce="n2", kind="event"), Value)
    assert acme.begin(back, "b", nonce="n3") == Refused("quota", "1/1")
    assert park(acme, back, "b") == Value(True)
    assert parked(acme) == ["b", "c", "d"]


@pytest.mark.parametrize(("to", "moved"), [(4, 3), (1, 0), (0, 5)])
def test_T3_a_quota_that_is_raised_lowered_or_removed(acme, to: int, moved: int):
    quota(acme, 1)
    running(acme, "a")
    for n in range(5):
        acme.start(f"e{n}")
    quota(acme, to)
    assert release(acme).moved == moved
    assert parked(acme) == [f"e{n}" for n in range(moved, 5)]
    assert release(acme).moved == 0


def test_T3_many_come_back_in_pages(acme):
    quota(acme, 1)
    count = tenants.RELEASED_AT_ONCE + 5
    for n in range(count + 1):
        acme.start(f"e{n}")
    quota(acme, 0)
    assert release(acme) == tenants.Released(tenants.RELEASED_AT_ONCE, ["acme"], True, 0, 0)
    assert release(acme) == tenants.Released(5, [], False, 0, 0)
    release(acme)
    assert acme.raw("KEYS", "*parked*") == []
    assert acme.raw("XLEN", acme.keys.queue) == count + 1


def test_T2_nothing_comes_back_of_a_disabled_tenant_or_under_another_epoch(acme):
    quota(acme, 1)
    acme.start("a")
    acme.start("b")
    quota(acme, 0)
    status(acme, "disabled", "7")
    assert release(acme) == tenants.Released(0, ["acme"], False, 0, 0)
    status(acme, "active", "8")
    assert release(acme, expected_epoch="7") == tenants.Released(0, ["acme"], False, 0, 0)
    assert release(acme, expected_epoch="8").moved == 1


def test_T3_a_parked_record_that_cannot_be_read_is_set_aside(acme):
    quota(acme, 1)
    for name in "abc":
        acme.start(name)
    acme.raw("LPUSH", acme.keys.parked("q"), b"\xc1nonsense")
    quota(acme, 0)
    assert release(acme) == tenants.Released(2, [], False, 1, 0)
    [(_, fields)] = acme.raw("XRANGE", acme.keys.dead_letters, "-", "+")
    letter = dict(zip(fields[::2], fields[1::2], strict=True))
    assert letter[b"reason"] == b"parked_record_unreadable"
    assert letter[b"raw_body"] == b"\xc1nonsense"


def test_T3_a_deleted_parked_one_comes_back_and_is_found_deleted(acme):
    quota(acme, 1)
    acme.start("a")
    acme.start("b")
    acme.do(executions.delete(acme.keys, "b", "test", force=False, tombstone_ttl_ms=DAY_MS))
    quota(acme, 0)
    release(acme)
    entries = acme.take(2).entries
    assert acme.begin(entries[1], "b", nonce="n2").reason == "tombstoned"


def test_T3_a_cancelled_parked_one_ends_at_once(acme):
    running(acme, "a")
    quota(acme, 1)
    acme.start("b")
    acme.do(executions.request_cancel(acme.keys, "b", "enough", b"cancel"))
    entry = acme.take_one()
    begun = acme.begin(entry, "b", nonce="n2", kind="cancel").value
    acme.finish(begun, entry, execution_id="b", status="cancelled")
    quota(acme, 0)
    release(acme)
    assert acme.begin(acme.take_one(), "b", nonce="n3") == Refused("terminal", "cancelled")


def test_T3_an_awkward_tenant_has_its_own_lists(world):
    for name in ("a%b", "a{b}", "q", "out", "ü"):
        world.keys = Keys(tenant=name)
        world.put_flow()
        quota(world, 1)
        world.start("x")
        world.start("y")
    found = world.do(tenants.snapshot(world.keys)).tenants
    assert [(one.tenant, one.pending, one.parked) for one in found] == [
        (name, 2, 1) for name in sorted(("a%b", "a{b}", "q", "out", "ü"))
    ]
    assert world.do(carriers.stats(world.keys)).parked == 5
    for one in found:
        world.do(tenants.set_quota(Keys(tenant=one.tenant), 0))
    assert release(world).moved == 5
    assert {entry.fields[b"tenant_id"].decode() for entry in world.take(20).entries} == {o.tenant for o in found}


def test_tenants_with_executions_are_found_by_their_keys(world):
    for name in ("default", "a%b", "acme"):
        world.keys = Keys(tenant=name)
        world.put_flow()
        world.start(f"of {name}")
    found, cursor = set(), "0"
    while True:
        cursor, page = world.do(tenants.scan(world.keys, cursor))
        found |= set(page)
        if cursor == "0":
            break
    assert found == {"default", "a%b", "acme"}


# -- none is lost ---------------------------------------------------------------------------------


class Walk:
    """Hosts that act on carriers at random and may be dead between any two calls."""

    def __init__(self, world, seed: int) -> None:
        self.world, self.random = world, random.Random(seed)
        self.limit = 0  # 0: none
        self.allowed = 10**6  # how many may run by now: a quota that is lowered ends nothing
        self.names: list[str] = []
        self.held: dict[str, tuple] = {}  # begun, in a host's hands
        self.taken: list = []  # read and not begun

    def step(self) -> None:
        getattr(self, self.random.choice(["start", "start", "take", "take", "begin", "begin", "begin", "end",
                                          "let_go", "release", "release", "change_quota", "die"]))()  # fmt: skip

    def start(self) -> None:
        name = f"e{len(self.names)}"
        self.names.append(name)
        self.world.start(name)

    def take(self) -> None:
        self.taken += self.world.take(3, min_idle_ms=0).entries  # what lay with the dead comes along

    def begin(self) -> None:
        if not self.taken:
            return
        entry = self.taken.pop(self.random.randrange(len(self.taken)))
        name = entry.fields[b"execution_id"].decode()
        answer = self.world.begin(entry, name, nonce=f"n{self.random.random()}", holder="host1/first")
        if isinstance(answer, Value):
            self.held[name] = (entry, answer.value)
            self.allowed = max(self.allowed, self.limit or 10**6)
        elif answer.reason == "quota" and self.random.random() < 0.8:  # else: killed in between
            park(self.world, entry, name)
        elif answer.reason == "terminal":
            self.world.do(carriers.ack(self.world.keys, entry.stream, entry.entry_id))

    def end(self) -> None:
        if self.held:
            name = self.random.choice(sorted(self.held))
            entry, begun = self.held.pop(name)
            answer = self.world.finish(begun, entry, execution_id=name)
            assert isinstance(answer, Value)

    def let_go(self) -> None:
        """The holder dies, or drains: the row runs, nobody has it."""
        if self.held:
            name = self.random.choice(sorted(self.held))
            self.held.pop(name)
            self.world.raw("DEL", self.world.keys.lease(name))

    def release(self) -> None:
        release(self.world)

    def change_quota(self) -> None:
        self.limit = self.random.choice([0, 1, 2, 3])
        quota(self.world, self.limit)

    def die(self) -> None:
        self.taken.clear()

    def check(self) -> None:
        world = self.world
        carried = set(parked(world))
        for stream in (world.keys.queue, world.keys.wake):
            for _, flat in world.raw("XRANGE", stream, "-", "+"):
                carried.add(dict(zip(flat[::2], flat[1::2], strict=True))[b"execution_id"].decode())
        open_ones = {name for name in self.names if world.row(name)["status"] in (b"pending", b"running")}
        assert open_ones <= carried, "an execution that should move has no carrier"


@pytest.mark.parametrize("seed", range(12))
def test_T3_no_carrier_is_lost_whatever_dies_and_the_quota_holds(acme, seed: int):
    walk = Walk(acme, seed)
    before = 0
    for _ in range(160):
        walk.step()
        now = acme.raw("ZCARD", acme.keys.index("running"))
        assert now <= before or not walk.limit or now <= walk.limit
        before = now
        walk.check()
    quota(acme, 2)
    for _ in range(500):  # and all come to their end
        walk.release()
        walk.take()
        while walk.taken:
            walk.begin()
        while walk.held:
            walk.end()
        if all(acme.row(name)["status"] == b"completed" for name in walk.names):
            break
    assert all(acme.row(name)["status"] == b"completed" for name in walk.names)
    while walk.taken or acme.raw("XLEN", acme.keys.queue):
        walk.take()
        walk.begin()
    assert parked(acme) == []
