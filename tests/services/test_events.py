"""The service of events: who waits is woken once, whoever dies, whatever stands in the log (DECISIONS 26-28, E2)."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from event_world import index_keys, publish, waiting
from feed_hosts import until

from plaita import jsontext
from plaita.policy.carrier import Carrier, read_carrier
from plaita.services import events as feed
from plaita.store import carriers, events
from plaita.store.call import Refused, Unknown
from plaita.store.events import Event
from plaita.store.keys import Keys


def woken(world: Any) -> list[str]:
    """Whom there are carriers for, with repeats."""
    found = [
        dict(zip(flat[::2], flat[1::2], strict=True)) for _, flat in world.raw("XRANGE", world.keys.wake, "-", "+")
    ]
    return sorted(fields[b"execution_id"].decode() for fields in found)


def undone(world: Any) -> int:
    """Entries of the log that are not read, or not done with."""
    groups = world.raw("XINFO", "GROUPS", world.keys.event_log)
    if not groups:
        return int(world.raw("XLEN", world.keys.event_log))
    [flat] = groups
    facts = dict(zip(flat[::2], flat[1::2], strict=True))
    return int(facts[b"pending"]) + int(facts[b"lag"] or 0)


def told(host: Any, event: str) -> list[dict[str, Any]]:
    return [fields for name, fields in host.told if name == event]


async def all_done(world: Any, host: Any, read: int) -> None:
    ceiling = 20 + read / 50
    await until(lambda: host.counts["events_read"] >= read and undone(world) == 0, f"end of {read} events", ceiling)


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a dead host left is taken up at once, so that nothing but that is waited for."""
    monkeypatch.setattr(feed, "RECLAIM_EVERY_S", 0.05)
    monkeypatch.setattr(feed, "BLOCK_MS", 20)


def test_an_event_wakes_who_waits_for_it_with_a_carrier_that_any_host_reads(world, feeds) -> None:
    waiting(world, "a", accepts={"n": 1}, timeout_ms=60_000)
    waiting(world, "b", accepts={"n": 2})
    publish(world, data={"n": 1.0}, correlation=None, event_id="x")

    async def test(host: Any) -> None:
        one = host()
        await all_done(world, one, 1)
        assert one.counts["waits_woken"] == 1

    feeds.run(test)
    row = world.row("a")
    assert (row["woken"], row["wake_id"], row["used_events"][8:]) == (b"event", b"x", b":x")
    assert jsontext.loads(row["wake_data"]) == {"event_id": "x", "event_type": "paid", "event_data": {"n": 1.0}}
    entry = world.take_one()
    carrier = read_carrier(entry.fields, queue=world.keys.queue, entry_id=entry.entry_id)
    assert isinstance(carrier, Carrier)
    assert (carrier.execution_id, carrier.resume_type, carrier.wait, carrier.flow_id) == ("a", "event", "1", "f")
    assert carrier.stamps.config_family == "blue", "the wait's own, whoever published"
    # Its age is its entry's: no clock of a host makes it older (DECISIONS 20).
    assert carrier.first_enqueued_ms == int(entry.entry_id.partition("-")[0])


def stats(world: Any) -> dict[str, int]:
    """How often the server carried out each command, also inside scripts."""
    lines = world.raw("INFO", "commandstats").decode().splitlines()
    found = (line.partition(":") for line in lines if line.startswith("cmdstat_"))
    return {name: int(rest.partition("calls=")[2].split(",")[0]) for name, _, rest in found if "info" not in name}


@pytest.mark.parametrize("many", [300, pytest.param(10_000, marks=pytest.mark.long)])
def test_publishing_and_waking_cost_the_same_commands_however_many_wait(world, feeds, many: int) -> None:
    """Each waits for its own event and is woken by it, once."""
    costs: list[Any] = []
    made = 0
    carriers_before: list[str] = []

    def done_by_a_host(count: int) -> Any:
        calls: list[Any] = []

        async def test(host: Any) -> None:
            one = host()
            await all_done(world, one, count)
            assert one.counts["waits_woken"] == (count if made else 0)
            calls.append({name: one.calls[name] for name in ("key_sets", "waiters", "wake_many", "event_done")})

        feeds.run(test)
        return calls[0]

    publish(world, "nobody")
    done_by_a_host(1)
    for size in (10, many):
        while made < size:
            waiting(world, f"e{made}", accepts={"n": made} if made % 2 else None)
            made += 1
        world.raw("CONFIG", "RESETSTAT")
        for number in range(size - 6, size):
            publish(world, data={"n": number}, correlation=f"e{number}", event_id=f"x{number}")
        costs.append((stats(world), done_by_a_host(6)))
        carriers_before += woken(world)
        world.raw("XTRIM", world.keys.wake, "MAXLEN", 0)
    assert costs[0] == costs[1]
    assert costs[0][1] == {"key_sets": 6, "waiters": 12, "wake_many": 6, "event_done": 6}, "two key sets are in use"
    for number in (*range(4), *range(10, many - 6)):
        publish(world, data={"n": number}, correlation=f"e{number}", event_id=f"x{number}")
    began = time.perf_counter()
    done_by_a_host(many - 12)
    print(f"\n{many} waits: {(many - 12) / (time.perf_counter() - began):.0f} events a second, commands {costs[0][0]}")
    assert sorted(carriers_before + woken(world)) == sorted(f"e{number}" for number in range(many))
    assert all(world.row(f"e{number}")["wake_id"] == f"x{number}".encode() for number in range(0, many, 37))
    assert index_keys(world) == []


def test_the_same_event_twice_and_two_hosts_at_once(world, feeds) -> None:
    names = [f"e{number}" for number in range(120)]
    for name in names:
        waiting(world, name)
    for number in range(3):
        publish(world, correlation=None, event_id=f"x{number}", named=True)
        publish(world, correlation=None, event_id=f"x{number}", named=True)

    async def test(host: Any) -> None:
        one, two = host(), host(consumer="host2")
        await all_done(world, one, 0)
        for feed_host in (one, two):
            assert told(feed_host, "event.failed") == []
        assert one.counts["waits_woken"] + two.counts["waits_woken"] == 120

    feeds.run(test)
    assert woken(world) == sorted(names)


def test_an_event_that_wakes_thousands_holds_up_no_other(world, feeds) -> None:
    """The large one is stopped in its first page: the other is done all the same, and then the large one goes on."""
    for number in range(30):
        waiting(world, f"e{number}")
    waiting(world, "small", event_type="shipped")
    publish(world, correlation=None)
    publish(world, "shipped", correlation="small")
    gate: list[Any] = []

    async def test(host: Any) -> None:
        one = host()
        one.spoils["wake_many"] = lambda call: None if gate or len(call.args) < 50 else Unknown("not yet")
        await until(lambda: "small" in woken(world), "the small one")
        assert woken(world) == ["small"]
        gate.append("open")
        await all_done(world, one, 2)

    feeds.run(test)
    assert len(woken(world)) == 31


@pytest.mark.parametrize(("correlated", "tenant"), [(True, "flood"), (False, "flood"), (False, "default")])
def test_trouble_73_a_flood_of_one_tenant_holds_up_no_other(world, feeds, correlated: bool, tenant: str) -> None:
    """The flood stands still altogether: another tenant's event, or the same one's of another type, is done all the
    same. Then each of the flood is done once, and those of one row in their order, though most of them were passed over
    first."""
    flood = Keys(tenant=tenant)
    for number in range(300):
        event = Event(f"x{number}", "flood", b"1", f"c{number}" if correlated else None)
        world.do(events.publish(flood, event))
    waiting(world, "small")
    publish(world, correlation="small")

    async def test(host: Any) -> None:
        one = host()
        gate, served = asyncio.Event(), one.run

        async def run(call: Any) -> Any:
            if call.name == "events.key_sets" and "flood" in call.keys[0]:
                await gate.wait()
            return await served(call)

        one.run = run
        await until(lambda: "small" in woken(world), "the small one")
        assert one.counts["events_read"] < 150
        assert one.counts["events_put_off"] > 200
        [said] = told(one, "event.put_off")
        assert (said["tenant_id"], said["event_type"]) == (tenant, "flood")
        gate.set()
        await until(lambda: undone(world) == 0, "the end")
        done = [said["event_id"] for said in told(one, "event.done") if said["event_id"].startswith("x")]
        assert len(done) == 300
        if correlated:
            done.sort(key=lambda event_id: int(event_id[1:]))
        assert done == [f"x{number}" for number in range(300)]

    feeds.run(test)


def test_events_of_one_type_and_correlation_go_in_their_order(world, feeds) -> None:
    waiting(world, "e")
    for number in range(8):
        publish(world, data=number, event_id=f"x{number}")
    began: list[str] = []

    async def test(host: Any) -> None:
        one = host()
        slow = [Unknown("again"), Unknown("again")]
        one.spoils["key_sets"] = lambda call: slow.pop() if slow else None
        one.spoils["wake_many"] = lambda call: began.append(call.args[-1])
        await all_done(world, one, 8)

    feeds.run(test)
    assert world.row("e")["wake_id"] == b"x0"
    assert len(began) == 1


CALLS = 7  # key sets; two pages of one, a page of the other, each looked up and woken but for where nobody is; done


@pytest.mark.parametrize("sent", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("dies_at", range(1, CALLS + 1))
def test_a_host_that_dies_anywhere_leaves_the_rest_to_another(world, feeds, dies_at: int, sent: bool) -> None:
    """An event that two key sets find, of which one fills more than a page."""
    names = [f"e{number}" for number in range(130)]
    for name in names:
        waiting(world, name)
    waiting(world, "filtered", accepts={"a": 1}, timeout_ms=60_000)
    publish(world, data={"a": 1}, correlation=None, event_id="x")

    async def test(host: Any) -> None:
        one = host(dies_at=dies_at, sent=sent)
        await asyncio.wait_for(one.dead.wait(), 20)
        host(consumer="host2")
        await until(lambda: undone(world) == 0, "the end")

    feeds.run(test)
    assert woken(world) == sorted([*names, "filtered"])
    assert index_keys(world) == []
    assert {world.row(name)["wake_id"] for name in (*names, "filtered")} == {b"x"}


@pytest.mark.parametrize("freezes_at", range(1, CALLS + 1))
def test_a_host_that_was_frozen_anywhere_wakes_nobody_again(world, feeds, freezes_at: int) -> None:
    names = [f"e{number}" for number in range(130)]
    for name in names:
        waiting(world, name)
    waiting(world, "filtered", accepts={"a": 1}, timeout_ms=60_000)
    publish(world, data={"a": 1}, correlation=None, event_id="x")

    async def test(host: Any) -> None:
        one = host(freezes_at=freezes_at)
        await asyncio.wait_for(one.dead.wait(), 20)
        host(consumer="host2")
        await until(lambda: undone(world) == 0, "the end")
        one.thawed.set()
        await until(lambda: "event_done" in one.work, "the late host")
        publish(world, "more")
        await until(lambda: undone(world) == 0, "one more event")

    feeds.run(test)
    assert woken(world) == sorted([*names, "filtered"])


def test_what_a_host_was_at_is_taken_up_at_once_in_its_next_life(world, feeds, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "RECLAIM_IDLE_MS", 600_000)
    for number in range(40):
        waiting(world, f"e{number}")
        publish(world, correlation=f"e{number}")

    async def test(host: Any) -> None:
        one = host(dies_at=20, min_idle_ms=600_000)
        await asyncio.wait_for(one.dead.wait(), 20)
        assert undone(world) > 30
        host(min_idle_ms=600_000)
        await until(lambda: undone(world) == 0, "the end")

    feeds.run(test)
    assert len(woken(world)) == len(set(woken(world))) == 40


@pytest.mark.parametrize("lost", ["group", "log", "everything"])
def test_a_group_or_log_that_is_lost_is_made_anew(world, feeds, lost: str) -> None:
    async def test(host: Any) -> None:
        one = host()
        await until(lambda: world.raw("EXISTS", world.keys.event_log), "the log")
        match lost:
            case "group":
                world.raw("XGROUP", "DESTROY", world.keys.event_log, world.keys.group)
            case "log":
                world.raw("DEL", world.keys.event_log)
            case _:
                world.raw("FLUSHALL")
                world.put_flow()
        waiting(world)
        publish(world)
        await until(lambda: woken(world) == ["e"], "the wake-up")
        await until(lambda: one.counts["events_read"] and undone(world) == 0, "the end")

    feeds.run(test)


BAD = [
    {"event_id": "x", "event_type": "paid", "tenant_id": "", "data": "{"},
    {"event_id": "x", "event_type": "paid", "tenant_id": "a:b", "data": "1"},
    {"event_id": "", "event_type": "paid", "tenant_id": "", "data": "1"},
    {"event_id": "x", "tenant_id": "", "data": "1"},
    {"event_id": "x", "event_type": b"\xff", "tenant_id": "", "data": "1"},
    {"event_id": "x", "event_type": "paid", "tenant_id": "", "data": "[" * 250 + "]" * 250},
    {"what": "ever"},
]


def test_entries_that_are_no_events_are_told_of_and_done_with(world, feeds) -> None:
    for fields in BAD:
        words = [word for pair in fields.items() for word in pair]
        world.raw("XADD", world.keys.event_log, "*", *words)
    waiting(world)
    publish(world)

    async def test(host: Any) -> None:
        one = host()
        await all_done(world, one, len(BAD) + 1)
        assert one.counts["events_bad"] == len(BAD) == len(told(one, "event.unreadable"))

    feeds.run(test)
    assert woken(world) == ["e"]


def test_a_key_set_that_cannot_be_read_costs_only_itself(world, feeds) -> None:
    waiting(world)
    world.raw("HSET", world.keys.event_key_sets("paid"), "nothing", "x")
    publish(world)

    async def test(host: Any) -> None:
        one = host()
        await all_done(world, one, 1)
        assert len(told(one, "event.key_set_unreadable")) == 1

    feeds.run(test)
    assert woken(world) == ["e"]


def test_data_as_deep_as_json_may_be_is_no_trouble(world, feeds) -> None:
    deep: Any = 10**30
    for _ in range(238):
        deep = [deep]
    waiting(world, accepts={"a": deep})
    publish(world, data={"a": deep})

    async def test(host: Any) -> None:
        await all_done(world, host(), 1)

    feeds.run(test)
    assert woken(world) == ["e"]


def test_an_event_we_stumble_over_is_tried_again_and_given_up_in_the_end(
    world, feeds, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It must not hold up others, nor for ever keep the log from being trimmed."""
    right = feed.event_index.event_digest

    def stumbles(event_type: str, *rest: Any) -> Any:
        if event_type == "bad":
            raise RuntimeError("a bug")
        return right(event_type, *rest)

    monkeypatch.setattr(feed.event_index, "event_digest", stumbles)
    waiting(world, "a", event_type="bad")
    waiting(world, "b")
    publish(world, "bad", correlation="a")
    publish(world, correlation="b")

    async def test(host: Any) -> None:
        one = host()
        await all_done(world, one, 2)
        assert one.counts["events_failed"] == feed.GIVE_UP_AFTER == len(told(one, "event.failed"))
        assert len(told(one, "event.given_up")) == 1

    feeds.run(test)
    assert woken(world) == ["b"]
    assert world.row("a")["woken"] == b""


def test_what_redis_refuses_is_given_up_in_the_end_and_an_outage_is_not(world, feeds) -> None:
    waiting(world)
    world.raw("SET", world.keys.event_key_sets("odd"), "a text")
    publish(world, "odd")
    publish(world)

    async def test(host: Any) -> None:
        one = host()
        one.spoils["wake_many"] = lambda call: Unknown("lost") if one.calls["wake_many"] < 30 else None
        await all_done(world, one, 2)
        [given_up] = told(one, "event.given_up")
        assert given_up["failures"] == feed.GIVE_UP_AFTER
        assert len(told(one, "event.left")) > 2

    feeds.run(test)
    assert woken(world) == ["e"]


def test_after_an_outage_a_host_goes_on_itself_with_what_it_was_at(
    world, feeds, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody could take it from it for ten minutes."""
    monkeypatch.setattr(feed, "RECLAIM_IDLE_MS", 600_000)
    monkeypatch.setattr(feed, "LEFT_AGAIN_S", 0.05)
    names = [f"e{number}" for number in range(30)]
    for name in names:
        waiting(world, name)
        publish(world, correlation=name)

    async def test(host: Any) -> None:
        one = host(min_idle_ms=600_000)
        for name in ("key_sets", "wake_many", "event_done"):
            one.spoils[name] = lambda call, name=name: Unknown("lost") if one.calls[name] < 40 else None
        await until(lambda: one.counts["events_read"] and undone(world) == 0, "the end")
        assert told(one, "event.left")

    feeds.run(test)
    assert woken(world) == sorted(names)


def test_refusals_and_outages_of_reading_are_waited_for(world, feeds) -> None:
    waiting(world)
    publish(world)

    async def test(host: Any) -> None:
        one = host()
        one.spoils["read_log"] = lambda call: Refused("odd") if one.calls["read_log"] < 4 else None
        one.spoils["reclaim"] = lambda call: Unknown("lost")
        await all_done(world, one, 1)

    feeds.run(test)
    assert woken(world) == ["e"]


def test_events_of_another_tenant_wake_nobody_here(world, feeds) -> None:
    waiting(world)
    world.do(events.publish(Keys(tenant="t2"), Event("x", "paid", b"1", None)))
    world.do(events.publish(Keys(tenant="t2"), Event("y", "paid", b"1", "e")))

    async def test(host: Any) -> None:
        await all_done(world, host(), 2)

    feeds.run(test)
    assert woken(world) == []


def test_the_log_of_what_is_done_is_trimmed_by_the_service(world, feeds, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "TRIM_EVERY_S", 0.02)
    monkeypatch.setattr(feed, "LOG_LONG", 3)
    monkeypatch.setattr(feed, "LONG_LOG_KEPT_MS", 0)
    for _ in range(3):
        publish(world, correlation=None)

    async def test(host: Any) -> None:
        one = host()
        await all_done(world, one, 3)
        assert world.raw("XLEN", world.keys.event_log) == 3, "an hour old is what goes, unless the log is long"
        publish(world, correlation=None)
        await until(lambda: world.raw("XLEN", world.keys.event_log) <= 1, "a short log")

    feeds.run(test)


def test_a_host_that_leaves_takes_its_name_along_where_nothing_is_pending(world, feeds) -> None:
    publish(world)

    async def test(host: Any) -> None:
        await all_done(world, host(consumer="gone"), 1)

    feeds.run(test)
    assert len(world.raw("XINFO", "CONSUMERS", world.keys.event_log, world.keys.group)) == 1
    assert world.do(carriers.leave(world.keys, "gone")) == 0
    assert world.raw("XINFO", "CONSUMERS", world.keys.event_log, world.keys.group) == []
