"""Due times that were lost come back, by a host's own look and by ``reindex`` (ledger D4, E5; KNOWN-TROUBLE 41)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from schedule_world import DAY, HOUR, MINUTE, Clocks, Host

from plaita.client import schedules as asked
from plaita.client import upkeep
from plaita.errors import RefusedError
from plaita.services.schedules import ScheduleService
from plaita.services.schedules_again import EVERY_S
from plaita.store import flows, schedules
from plaita.store.keys import Keys


def lose(clocks: Clocks, *names: str) -> None:
    for name in names:
        assert clocks.world.raw("ZREM", clocks.keys.schedules_due, clocks.keys.schedule_member(name)) == 1


def its_turn(clocks: Clocks) -> None:
    """As if nobody had looked for a minute."""
    clocks.world.raw("DEL", clocks.keys.schedules_turn)


def reindex(clocks: Clocks) -> int:
    done: dict[str, Any] = clocks.perform(upkeep.reindex(clocks.keys, 30 * DAY))
    return int(done["schedules"])


def by_reindex(clocks: Clocks) -> None:
    assert reindex(clocks) >= 1
    assert reindex(clocks) == 0


def by_a_look(clocks: Clocks) -> None:
    its_turn(clocks)
    clocks.host.look()
    assert "schedule.put_back" in clocks.host.events()


MENDED = pytest.mark.parametrize("mend", [by_reindex, by_a_look])


@MENDED
def test_E5_a_schedule_without_its_due_time_fires_again(clocks: Clocks, mend: Any) -> None:
    clocks.put()
    clocks.put("other", cron="0 0 1 1 *")
    clocks.host.look()
    due = clocks.due("other")
    lose(clocks, "s")
    assert clocks.show()["status"] == "aside"
    assert "reindex" in clocks.show()["why"]
    mend(clocks)
    shown = clocks.show()
    assert (shown["status"], "why" in shown) == ("running", False)
    assert clocks.due("other") == due
    fired = clocks.since(0)
    clocks.host.look()
    assert f"sched:s:due:{fired}" in clocks.dedup_keys()


@MENDED
@pytest.mark.parametrize(("misfire", "runs"), [("once", 1), ("all", 3), ("skip", 1)])
def test_41_what_passed_meanwhile_is_missed_as_after_an_outage(
    clocks: Clocks, mend: Any, misfire: str, runs: int
) -> None:
    clocks.put(misfire=misfire)
    last = clocks.since(3 * MINUTE)
    record = clocks.world.raw("HGET", clocks.keys.schedules, "s")
    old = record.replace(b'"updated_at":%d' % _updated(clocks), b'"updated_at":1')
    clocks.world.raw("HSET", clocks.keys.schedules, "s", old)
    fired = b'{"fired_at":%d,"trigger_kind":"cron","due_at":%d,"enqueue":"ok"}' % (last, last)
    clocks.world.raw("LPUSH", clocks.keys.schedule_fires("s"), fired)
    lose(clocks, "s")
    mend(clocks)
    clocks.host.look()
    found = clocks.dedup_keys()
    assert len(found) in (runs, runs + (misfire == "all"))  # a minute may begin meanwhile
    assert f"sched:s:due:{last}" not in found
    assert (clocks.due() or 0) > clocks.now()


def _updated(clocks: Clocks) -> int:
    [stored] = clocks.world.do(schedules.get(clocks.keys, "s")).schedules
    return int(stored.record.partition(b'"updated_at":')[2].partition(b",")[0])


def test_E5_the_whole_due_set_is_lost(clocks: Clocks) -> None:
    theirs = clocks.of("b")
    clocks.world.do(flows.put(theirs.keys, "f", None, "a" * 64, b"{}"))
    for name in ("s", "t"):
        clocks.put(name)
        theirs.put(name)
    clocks.put("paused", enabled=False)
    clocks.world.raw("DEL", clocks.keys.schedules_due)
    its_turn(clocks)
    clocks.host.look()
    assert clocks.world.raw("ZCARD", clocks.keys.schedules_due) == 4
    assert clocks.host.counted["schedules_put_back"] == 4
    assert clocks.due("paused") is None


def test_E5_reindex_is_of_one_tenant_and_of_one_queue(clocks: Clocks) -> None:
    theirs = clocks.of("b")
    clocks.world.do(flows.put(theirs.keys, "f", None, "a" * 64, b"{}"))
    clocks.put()
    theirs.put()
    clocks.world.raw("DEL", clocks.keys.schedules_due)
    elsewhere = Clocks(clocks.world, Host(Keys(prefix=clocks.keys.prefix, queue="other:queue"), clocks.host.runner))
    assert reindex(elsewhere) == 0
    assert reindex(clocks) == 1
    assert theirs.due() is None
    assert reindex(theirs) == 1


def test_E5_a_due_time_on_another_queue_than_its_schedules_fires_nothing(clocks: Clocks) -> None:
    """Two queues share a prefix, and so the schedules of a tenant: one fires, that on which it was put last."""
    elsewhere = Clocks(clocks.world, Host(Keys(prefix=clocks.keys.prefix, queue="other:queue"), clocks.host.runner))
    clocks.put()
    assert elsewhere.show()["status"] == "aside"
    assert repr(clocks.keys.queue) in elsewhere.show()["why"]
    for asking in (asked.trigger(elsewhere.keys, "s"), asked.set_enabled(elsewhere.keys, "s", False)):
        with pytest.raises(RefusedError, match="it is of the queue"):
            elsewhere.perform(asking)
    elsewhere.put()
    clocks.since(0)
    clocks.host.look()
    assert clocks.started() == []
    assert clocks.due() is None
    assert clocks.host.events() == ["schedule.taken_out"]
    elsewhere.since(0)
    elsewhere.host.look()
    assert len(clocks.started()) == 1
    its_turn(clocks)
    clocks.host.look()
    assert clocks.due() is None


def test_E5_a_paused_schedule_does_not_fire_whatever_due_time_was_written_back(clocks: Clocks) -> None:
    clocks.put()
    clocks.perform(asked.set_enabled(clocks.keys, "s", False))
    clocks.world.raw("ZADD", clocks.keys.schedules_due, 1, clocks.keys.schedule_member("s"))
    clocks.host.look()
    assert (clocks.started(), clocks.due(), clocks.history()) == ([], None, [])
    assert clocks.show()["status"] == "paused"


def test_38_what_was_put_aside_comes_back_when_a_person_asks_and_its_record_is_right(clocks: Clocks) -> None:
    clocks.put()
    record = clocks.world.raw("HGET", clocks.keys.schedules, "s")
    clocks.since(0)
    clocks.world.raw("HSET", clocks.keys.schedules, "s", record.replace(b'"UTC"', b'"Moon/Base"'))
    clocks.host.look()
    assert clocks.due() is None
    assert reindex(clocks) == 0
    clocks.world.raw("HSET", clocks.keys.schedules, "s", record)  # as on a host that knows the zone
    its_turn(clocks)
    clocks.host.look()
    assert clocks.due() is None
    assert reindex(clocks) == 1
    assert clocks.show()["status"] == "running"


def test_E5_one_host_looks_in_a_minute_and_one_bad_tenant_stops_no_other(clocks: Clocks) -> None:
    bad = clocks.of("bad")
    clocks.world.raw("SADD", clocks.keys.schedules_tenants, "bad", "a:b", b"\xff")
    clocks.world.raw("SET", bad.keys.schedules, "x")
    clocks.put()
    clocks.host.look()
    assert 0 <= clocks.now() - int(clocks.world.raw("GET", clocks.keys.schedules_turn)) < EVERY_S * 1000
    assert clocks.host.events().count("schedule.not_looked") == 3
    lose(clocks, "s")
    clocks.host.look()  # another service, and it is not its turn
    assert clocks.due() is None
    its_turn(clocks)
    clocks.host.look()
    assert clocks.due() is not None
    clocks.world.raw("DEL", clocks.keys.schedules_tenants)
    clocks.world.raw("SET", clocks.keys.schedules_tenants, "x")
    its_turn(clocks)
    clocks.since(0)
    assert clocks.host.look() == 0.0, "what is due is fired whatever that look came to"
    assert clocks.started()


@pytest.mark.parametrize(
    ("ago_ms", "its"), [(0, False), (58_000, False), (60_000, True), (-10_000, True), (-3650 * DAY, True)]
)
def test_43_whose_turn_it_is_whatever_the_clock_was_before(clocks: Clocks, ago_ms: int, its: bool) -> None:
    clocks.world.raw("SET", clocks.keys.schedules_turn, clocks.now() - ago_ms)
    assert clocks.world.do(schedules.turn(clocks.keys, 59_000)) is its
    assert clocks.world.do(schedules.turn(clocks.keys, 59_000)) is False


def test_E5_a_look_and_a_change_at_the_same_time(clocks: Clocks) -> None:
    clocks.put()
    lose(clocks, "s")

    def pause(call: Any) -> None:
        if call.name == "schedules.put":
            clocks.host.before = None
            clocks.perform(asked.set_enabled(clocks.keys, "s", False))

    clocks.host.before = pause
    its_turn(clocks)
    clocks.host.look()
    assert clocks.due() is None
    assert clocks.host.events() == []


def test_E5_tenants_are_known_while_they_have_schedules(clocks: Clocks) -> None:
    names = clocks.keys.schedules_tenants
    clocks.put("a")
    clocks.put("b")
    clocks.perform(asked.remove(clocks.keys, "a"))
    assert clocks.world.raw("SMEMBERS", names) == [b"default"]
    clocks.world.raw("DEL", names)
    clocks.since(HOUR, "b")
    clocks.host.look()
    assert clocks.world.raw("SMEMBERS", names) == [b"default"], "what fires says whose it is"
    clocks.perform(asked.remove(clocks.keys, "b"))
    assert clocks.world.raw("EXISTS", names) == 0


async def _looked(service: ScheduleService) -> None:
    await service.scan_once()
    await service.scan_once()


def test_E5_a_service_looks_once_in_its_minute(clocks: Clocks) -> None:
    asked_for: list[str] = []
    clocks.host.before = lambda call: asked_for.append(call.name)
    asyncio.run(_looked(ScheduleService(clocks.host)))
    assert asked_for.count("schedules.turn") == 1
