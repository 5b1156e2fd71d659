"""Schedules on a real server: put, fired in one call, each due time once by any number of hosts (E5, T2, T3)."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from schedule_world import DAY, HOUR, MINUTE, Clocks, Host

from plaita import jsontext
from plaita.client import schedules as asked
from plaita.client import tenants
from plaita.client.operations import Pause
from plaita.errors import InputError, RefusedError
from plaita.policy.schedule import ALL_AT_MOST
from plaita.services.host import NotServed
from plaita.services.schedules import ScheduleService
from plaita.store import flows, schedules
from plaita.store.call import Answer, Call, Refused, Unavailable, Unknown
from plaita.store.runner_sync import SyncRunner

# -- put and what is shown --------------------------------------------------------------------------


def test_E5_put_makes_a_record_and_its_next_due_time(clocks: Clocks) -> None:
    made = clocks.put(cron="0 6 * * 1-5", tz="Europe/Berlin", params={"n": 912345678901234567, "e": []}, name="Report")
    assert made.pop("created") is True
    assert made == clocks.show()
    assert {name: made[name] for name in ("schedule_id", "name", "flow_id", "version", "cron", "tz", "misfire")} == {
        "schedule_id": "s",
        "name": "Report",
        "flow_id": "f",
        "version": None,
        "cron": "0 6 * * 1-5",
        "tz": "Europe/Berlin",
        "misfire": "once",
    }
    assert (made["params"], made["enabled"], made["status"]) == ({"n": 912345678901234567, "e": []}, True, "running")
    assert (made["last_fired_at"], made["last_enqueue_ok"], made["tenant_id"]) == (None, None, "default")
    due = clocks.due()
    assert due is not None
    assert clocks.now() < due <= clocks.now() + 4 * DAY
    [first, *_] = clocks.perform(asked.preview(clocks.keys, "s", 3))["due"]
    assert first == made["next_run_at"]


def test_E5_put_again_keeps_the_due_time_while_the_times_are_the_same(clocks: Clocks) -> None:
    clocks.put()
    missed = clocks.since(3 * HOUR)
    changed = clocks.put(params={"other": 1}, misfire="all")
    assert changed["created"] is False
    assert clocks.due() == missed
    clocks.put(cron="0 0 1 1 *")
    assert (clocks.due() or 0) > clocks.now()
    created = changed["created_at"]
    assert clocks.show()["created_at"] == created


@pytest.mark.parametrize("score", ["+inf", "-inf", "1e300", "-5", "0"])
def test_43_whatever_due_time_stands_there_it_can_be_looked_at_and_put_anew(clocks: Clocks, score: str) -> None:
    clocks.put()
    clocks.world.raw("ZADD", clocks.keys.schedules_due, score, clocks.keys.schedule_member("s"))
    clocks.show()
    clocks.perform(asked.list_schedules(clocks.keys))
    clocks.perform(asked.preview(clocks.keys, "s"))
    clocks.perform(asked.trigger(clocks.keys, "s"))
    clocks.put()
    clocks.host.look()
    assert clocks.now() < (clocks.due() or 0) <= clocks.now() + MINUTE
    assert "schedule.brought_back" not in clocks.host.events()


@pytest.mark.parametrize(
    ("named", "word"),
    [
        ({"cron": "0 0 31 2 *"}, "day-of-month"),
        ({"cron": "* * * * * *"}, "6 fields"),
        ({"tz": "Europe/Berln"}, "Europe/Berlin"),
        ({"misfire": "often"}, "misfire"),
        ({"params": {"x": "\ud800"}}, "input"),
        ({"params": "x" * 70_000}, "at most 65536"),
        ({"params": {"x": float("nan")}}, "input"),
        ({"params": 2**20000}, "input"),
        ({"name": "x" * 201}, "name"),
        ({"schedule_id": "a b"}, "schedule id"),
        ({"version": ""}, "version"),
    ],
)
def test_E5_what_is_refused_leaves_nothing(clocks: Clocks, named: dict[str, Any], word: str) -> None:
    before = clocks.world.everything()
    with pytest.raises(InputError, match=word):
        clocks.put(**named)
    assert clocks.world.everything() == before


def test_E5_put_wants_its_flow(clocks: Clocks) -> None:
    before = clocks.world.everything()
    with pytest.raises(RefusedError, match="no flow 'nope'"):
        clocks.put(flow="nope")
    with pytest.raises(RefusedError, match=r"no version '9'.*'1'"):
        clocks.put(version="9")
    assert clocks.world.everything() == before


def test_E5_a_change_by_somebody_else_is_read_again(clocks: Clocks) -> None:
    clocks.put()
    [read] = clocks.world.do(schedules.get(clocks.keys, "s")).schedules
    clocks.put(params={"theirs": 1})
    lost = schedules.put(clocks.keys, "s", read.record, None, read, flow_id="f")
    assert clocks.world.run(lost) == Refused("changed")
    assert clocks.show()["params"] == {"theirs": 1}


def test_E5_disable_enable_and_remove(clocks: Clocks) -> None:
    clocks.put()
    clocks.since(HOUR)
    paused = clocks.perform(asked.set_enabled(clocks.keys, "s", False))
    assert (paused["status"], paused["next_run_at"], clocks.due()) == ("paused", None, None)
    clocks.host.look()
    assert clocks.started() == []
    clocks.perform(asked.set_enabled(clocks.keys, "s", True))
    assert (clocks.due() or 0) > clocks.now()  # what was due meanwhile is not run
    clocks.host.look()
    assert clocks.started() == []
    clocks.perform(asked.remove(clocks.keys, "s"))
    assert clocks.world.raw("EXISTS", clocks.keys.schedules, clocks.keys.schedules_due) == 0
    with pytest.raises(RefusedError, match="no schedule 's'"):
        clocks.perform(asked.remove(clocks.keys, "s"))


def test_E5_a_paused_put_has_no_due_time(clocks: Clocks) -> None:
    assert clocks.put(enabled=False)["status"] == "paused"
    assert clocks.due() is None


# -- firing -------------------------------------------------------------------------------------------


def test_E5_a_due_time_starts_one_execution_with_its_key(clocks: Clocks) -> None:
    clocks.put(params={"to": "ann"}, name="Report", cron="*/5 * * * *")
    due = clocks.since(0, step_ms=5 * MINUTE)
    assert clocks.host.look() == 0.0
    [row] = clocks.started()
    assert (row[b"status"], row[b"input"], row[b"dedup_key"]) == (b"pending", b'{"to":"ann"}', b"sched:s:due:%d" % due)
    entry = clocks.world.take_one()
    payload = jsontext.loads(entry.fields[b"payload"])
    assert payload["trigger"] == {"kind": "cron", "schedule_id": "s", "schedule_name": "Report"}
    assert payload["type"] == "start"
    assert entry.fields[b"schema_version"] == b"1"
    begun = clocks.world.begin(entry, row[b"id"].decode()).value
    assert begun.input == b'{"to":"ann"}'
    assert clocks.due() == due + 5 * MINUTE
    shown = clocks.show()
    assert (shown["last_enqueue_ok"], shown["last_execution_id"]) == (True, row[b"id"].decode())
    [told] = clocks.history()
    assert (told["trigger_kind"], told["enqueue"], told["msg_id"], told["version"]) == (
        "cron",
        "ok",
        entry.entry_id,
        "1",
    )
    assert told["dedup_key"] == f"sched:s:due:{due}"
    assert 0.005 <= clocks.host.look() <= 1.0
    assert clocks.host.counted == {"schedules_fired": 1}


@pytest.mark.parametrize(("misfire", "runs"), [("skip", 1), ("once", 1), ("all", 100)])
def test_41_a_long_outage_by_each_policy(clocks: Clocks, misfire: str, runs: int) -> None:
    clocks.put(misfire=misfire)
    first = clocks.since(3 * HOUR)
    clocks.host.look()
    found = clocks.dedup_keys()
    assert len(found) == runs
    last = int(found[-1].rpartition(":")[2])
    assert found == [f"sched:s:due:{last - place * MINUTE}" for place in reversed(range(runs))]
    assert clocks.due() == last + MINUTE
    [skipped] = [one for one in clocks.history()[-1:] if one["enqueue"] == "skipped"] or [None]
    if misfire != "all":  # its hundred fill the history
        assert skipped is not None
        assert skipped["count"] == (last - first) // MINUTE + 1 - runs
    assert clocks.host.counted["schedules_skipped"] == (last - first) // MINUTE + 1 - runs
    assert clocks.host.events().count("schedule.missed") == 1
    assert len(clocks.history()) == (50 if misfire == "all" else 2)
    clocks.host.look()
    assert len(clocks.started()) == runs


def test_41_skip_runs_nothing_of_a_daily_schedule_that_was_missed(clocks: Clocks) -> None:
    clocks.put(cron="* * * * *", misfire="skip")
    record = clocks.world.raw("HGET", clocks.keys.schedules, "s").replace(b"* * * * *", b"0 0 1 1 *")
    clocks.world.raw("HSET", clocks.keys.schedules, "s", record)
    clocks.since(2 * HOUR)
    clocks.host.look()
    assert clocks.started() == []
    assert [one["enqueue"] for one in clocks.history()] == ["skipped"]
    assert (clocks.due() or 0) > clocks.now()


def test_E5_the_write_back_was_lost_and_the_due_time_comes_again(clocks: Clocks) -> None:
    clocks.put()
    due = clocks.since(0)
    clocks.host.look()
    [row] = clocks.started()
    clocks.world.raw("ZADD", clocks.keys.schedules_due, due, clocks.keys.schedule_member("s"))
    clocks.host.look()
    assert [one[b"id"] for one in clocks.started()] == [row[b"id"]]
    told = clocks.history()[0]
    assert (told["enqueue"], told["execution_id"]) == ("duplicate", row[b"id"].decode())
    assert clocks.due() == due + MINUTE


def test_E5_two_hosts_that_read_the_same_due_time_start_it_once(clocks: Clocks) -> None:
    """Both have read, judged and built their call before either sends it."""
    clocks.put(misfire="all")
    clocks.since(5 * MINUTE)
    other = Host(clocks.keys, clocks.host.runner)
    sent: list[Call[Any]] = []

    def keep(call: Call[Any]) -> Answer[Any] | None:
        if call.name != "schedules.fire":
            return None
        sent.append(call)
        return Refused("changed")

    clocks.host.before = other.before = keep
    clocks.host.look()
    other.look()
    assert len(sent) == 2
    first, second = (clocks.world.run(call) for call in sent)
    assert len(first.value) == 6
    assert second == Refused("changed")
    assert len(clocks.started()) == 6
    assert len(clocks.history()) == 6


def test_E5_many_hosts_at_once_start_each_due_time_once(clocks: Clocks) -> None:
    for place in range(30):
        clocks.put(f"s{place}", misfire="all")
        clocks.since(3 * MINUTE, f"s{place}")
    url = clocks.world.server.url

    def look() -> None:
        with SyncRunner(url) as runner:
            host = Host(clocks.keys, runner)
            for _ in range(3):
                host.look()

    threads = [threading.Thread(target=look) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = clocks.dedup_keys()
    assert len(set(found)) == len(found)
    assert len(found) in range(120, 151)  # four due times each, and one more where a minute began meanwhile
    assert len(clocks.world.raw("XRANGE", clocks.keys.queue, "-", "+")) == len(found)


@pytest.mark.parametrize("done", [False, True], ids=["before the server did it", "after the server did it"])
def test_E5_a_host_that_is_lost_while_it_fires(clocks: Clocks, done: bool) -> None:
    clocks.put()
    due = clocks.since(0)
    dead = Host(clocks.keys, clocks.host.runner)

    def lose(call: Call[Any]) -> Answer[Any] | None:
        return Unknown("cut") if call.name == "schedules.fire" else None

    if done:
        dead.after = lose
    else:
        dead.before = lose
    with pytest.raises(NotServed):
        dead.look()
    clocks.host.look()
    assert clocks.dedup_keys() == [f"sched:s:due:{due}"]
    assert [one["enqueue"] for one in clocks.history()] == ["ok"]


def test_E5_a_server_that_takes_no_writes_keeps_the_due_time(clocks: Clocks) -> None:
    for name in ("a", "b"):
        clocks.put(name)
        clocks.since(0, name)
    clocks.host.before = lambda call: Unavailable("OOM") if call.name == "schedules.fire" else None
    with pytest.raises(NotServed):
        clocks.host.look()
    assert clocks.started() == []
    clocks.host.before = None
    clocks.host.look()
    assert len(clocks.started()) == 2


def test_43_a_due_time_that_is_no_time_runs_once_with_a_warning(clocks: Clocks) -> None:
    clocks.put()
    clocks.world.raw("ZADD", clocks.keys.schedules_due, "-inf", clocks.keys.schedule_member("s"))
    before = clocks.now() // 1000
    clocks.host.look()
    [key] = clocks.dedup_keys()
    head, _, second = key.rpartition(":")
    assert head == "sched:s:fired"
    assert before <= int(second) <= clocks.now() // 1000
    assert clocks.host.told[0][:2] == ("warning", "schedule.no_due_time")
    assert (clocks.due() or 0) > clocks.now()


def test_43_due_times_of_a_clock_that_was_far_ahead_are_brought_back(clocks: Clocks) -> None:
    """What had run under the wrong clock, and comes again, is known by its key."""
    clocks.put()
    clocks.put("yearly", cron="0 0 1 1 *")
    clocks.put("daily", cron="0 12 * * *")
    yearly = clocks.due("yearly")
    due = clocks.since(0)
    clocks.host.look()
    for ahead in (clocks.now() + 3650 * DAY, "+inf"):
        for name in ("s", "daily"):
            clocks.world.raw("ZADD", clocks.keys.schedules_due, ahead, clocks.keys.schedule_member(name))
        clocks.world.raw("ZADD", clocks.keys.schedules_due, ahead, "no tenant", ahead, "t\0gone")
        clocks.host.look()
        assert clocks.now() < (clocks.due() or 0) <= clocks.now() + MINUTE
        assert clocks.now() < (clocks.due("daily") or 0) <= clocks.now() + DAY
        assert clocks.due("yearly") == yearly
    assert clocks.host.events().count("schedule.brought_back") == 4
    clocks.world.raw("ZADD", clocks.keys.schedules_due, due, clocks.keys.schedule_member("s"))
    clocks.host.look()
    assert clocks.history()[0]["enqueue"] in ("duplicate", "ok")  # ok where a minute began meanwhile
    assert clocks.dedup_keys().count(f"sched:s:due:{due}") == 1


def test_43_a_service_that_lives_looks_at_them_when_the_clock_goes_back(clocks: Clocks) -> None:
    """Five hours ahead for a while, and right again: what had run does not run again, what had not runs in its time."""
    clocks.put()
    clocks.put("daily", cron="0 12 * * *")
    daily = clocks.due("daily")
    service = ScheduleService(clocks.host)
    ran = clocks.since(0)
    asyncio.run(service.scan_once())
    clocks.world.raw("ZADD", clocks.keys.schedules_due, clocks.now() + 5 * HOUR, clocks.keys.schedule_member("s"))
    asyncio.run(service.scan_once())
    assert "schedule.brought_back" not in clocks.host.events()  # it does not ask each second
    assert service._seen is not None
    service._seen += 5 * HOUR
    asyncio.run(service.scan_once())
    assert clocks.host.events().count("schedule.brought_back") == 1
    assert clocks.now() < (clocks.due() or 0) <= clocks.now() + MINUTE
    assert clocks.due("daily") == daily
    clocks.world.raw("ZADD", clocks.keys.schedules_due, ran, clocks.keys.schedule_member("s"))
    asyncio.run(service.scan_once())
    assert clocks.dedup_keys().count(f"sched:s:due:{ran}") == 1


def test_43_a_small_step_back_is_waited_for(clocks: Clocks) -> None:
    clocks.put()
    service = ScheduleService(clocks.host)
    asyncio.run(service.scan_once())
    ahead = clocks.now() + 4 * MINUTE
    clocks.world.raw("ZADD", clocks.keys.schedules_due, ahead, clocks.keys.schedule_member("s"))
    assert service._seen is not None
    service._seen += 4 * MINUTE
    asyncio.run(service.scan_once())
    assert clocks.due() == ahead
    assert "schedule.brought_back" not in clocks.host.events()


def test_E5_what_was_changed_meanwhile_is_not_fired_as_it_was(clocks: Clocks) -> None:
    clocks.put(params={"old": 1})
    clocks.since(0)

    def change(call: Call[Any]) -> None:
        if call.name == "schedules.fire":
            clocks.host.before = None
            clocks.put(params={"new": 1})

    clocks.host.before = change
    clocks.host.look()
    assert clocks.started() == []
    clocks.host.look()
    assert [row[b"input"] for row in clocks.started()] == [b'{"new":1}']


def test_T2_a_disabled_tenants_schedules_start_nothing_and_go_on_after_it(clocks: Clocks) -> None:
    clocks.put()
    clocks.since(0)
    clocks.perform(tenants.disable(clocks.keys, "default", None))
    clocks.host.look()
    assert clocks.started() == []
    [told] = clocks.history()
    assert (told["enqueue"], told["reason"]) == ("failed", "tenant_disabled")
    assert clocks.show()["last_enqueue_ok"] is False
    assert (clocks.due() or 0) > clocks.now()
    with pytest.raises(RefusedError, match="tenant 'default' is disabled"):
        clocks.perform(asked.trigger(clocks.keys, "s"))
    clocks.perform(tenants.enable(clocks.keys, "default", None, 0))
    clocks.since(0)
    clocks.host.look()
    assert len(clocks.started()) == 1


def test_E5_a_flow_that_is_gone_is_told_and_the_schedule_goes_on(clocks: Clocks) -> None:
    clocks.put()
    clocks.world.do(flows.remove(clocks.keys, "f"))
    clocks.since(0)
    clocks.host.look()
    assert clocks.host.events() == ["schedule.not_started"]
    assert (clocks.history()[0]["reason"], clocks.started()) == ("no_flow", [])
    clocks.world.put_flow()
    clocks.since(0)
    clocks.host.look()
    assert len(clocks.started()) == 1


def test_T3_over_the_quota_a_scheduled_start_is_parked(clocks: Clocks) -> None:
    clocks.perform(tenants.set_quota(clocks.keys, "default", 1))
    clocks.world.start("other")
    clocks.put()
    clocks.since(0)
    clocks.host.look()
    [told] = clocks.history()
    assert (told["enqueue"], told["msg_id"]) == ("ok", "")
    assert clocks.world.raw("LLEN", clocks.keys.parked("q")) == 1


# -- by hand ------------------------------------------------------------------------------------------


def test_E5_a_trigger_is_new_at_every_call_and_swallows_no_due_time(clocks: Clocks, monkeypatch: Any) -> None:
    clocks.put()
    due = clocks.since(0)
    monkeypatch.setattr(asked.time, "time_ns", lambda: 1_796_000_040_123_456_789)  # a clock that stands still
    made = [clocks.perform(asked.trigger(clocks.keys, "s")) for _ in range(3)]
    assert [one["dedup_key"] for one in made] == [
        f"sched:s:manual:1796000040123456789-{number}" for number in (1, 2, 3)
    ]
    assert len({one["execution_id"] for one in made}) == 3
    assert clocks.due() == due
    clocks.host.look()
    assert len(clocks.started()) == 4
    assert [one["trigger_kind"] for one in clocks.history()] == ["cron", "manual", "manual", "manual"]
    payloads = [jsontext.loads(entry.fields[b"payload"]) for entry in clocks.world.take(10).entries]
    assert [one["trigger"]["kind"] for one in payloads] == ["manual"] * 3 + ["cron"]


def test_E5_a_trigger_sent_again_starts_once(clocks: Clocks) -> None:
    clocks.put()
    asking = asked.trigger(clocks.keys, "s")
    answer: Any = None
    lost = False
    try:
        while True:
            step = asking.send(answer)
            answer = None if isinstance(step, Pause) else clocks.world.run(step)
            if isinstance(step, Call) and step.name == "schedules.fire" and not lost:
                lost, answer = True, Unknown("cut")
    except StopIteration as done:
        made = done.value
    assert lost
    [row] = clocks.started()
    assert row[b"id"].decode() == made["execution_id"]
    assert len(clocks.history()) == 1


def test_E5_a_paused_schedule_can_be_triggered(clocks: Clocks) -> None:
    clocks.put(enabled=False)
    clocks.perform(asked.trigger(clocks.keys, "s"))
    assert len(clocks.started()) == 1
    assert clocks.due() is None


# -- what is broken -----------------------------------------------------------------------------------


def test_38_one_bad_schedule_is_put_aside_and_the_others_run(clocks: Clocks) -> None:
    keys = clocks.keys
    bad = {
        "text": b"{",
        "list": b"[]",
        "cron": None,
        "tz": None,
    }
    for name in ("a", "cron", "tz", "z"):
        clocks.put(name)
    for name, word, other in (("cron", b"* * * * *", b"0 0 31 2 *"), ("tz", b"UTC", b"Moon/Base")):
        bad[name] = clocks.world.raw("HGET", keys.schedules, name).replace(word, other)
    for name, record in bad.items():
        clocks.world.raw("HSET", keys.schedules, name, record)
        clocks.world.raw("ZADD", keys.schedules_due, 1, keys.schedule_member(name))
    clocks.world.raw(
        "ZADD", keys.schedules_due, 2, "no tenant", 3, b"\xff\0x", 4, "a b\0x", 5, "t\0no such", 6, "t\0gone"
    )
    for name in ("a", "z"):
        clocks.since(0, name)
    clocks.host.look()
    assert len(clocks.started()) == 2
    assert clocks.world.raw("ZCARD", keys.schedules_due) == 2
    assert clocks.host.counted["schedules_bad"] == 8
    assert clocks.host.events().count("schedule.put_aside") == 4
    shown = {one["schedule_id"]: one for one in clocks.perform(asked.list_schedules(keys))["schedules"]}
    assert {name: one["status"] for name, one in shown.items()} == {
        "a": "running",
        "cron": "aside",
        "list": "aside",
        "text": "aside",
        "tz": "aside",
        "z": "running",
    }
    assert "day-of-month" in shown["cron"]["why"]
    assert "Moon/Base" in shown["tz"]["why"]
    with pytest.raises(RefusedError, match="put it anew"):
        clocks.perform(asked.trigger(keys, "cron"))
    clocks.put("cron")
    assert clocks.show("cron")["status"] == "running"


def test_38_a_history_of_another_type_stops_nothing(clocks: Clocks) -> None:
    clocks.put()
    clocks.since(0)
    clocks.world.raw("SET", clocks.keys.schedule_fires("s"), "x")
    clocks.host.look()
    assert len(clocks.started()) == 1
    assert (clocks.due() or 0) > clocks.now()


def test_38_an_index_of_another_type_is_told_and_the_others_run(clocks: Clocks) -> None:
    theirs = clocks.of("b")
    theirs.world.do(flows.put(theirs.keys, "f", None, "a" * 64, b"{}"))
    theirs.put()
    theirs.since(0)
    clocks.put()
    clocks.since(0)
    clocks.world.raw("SET", theirs.keys.index("pending"), "x")
    clocks.host.look()
    assert len(clocks.started()) == 1
    [told] = theirs.history()
    assert told["enqueue"] == "failed"
    assert "WRONGTYPE" in told["reason"]
    assert (theirs.due() or 0) > clocks.now()


# -- tenants ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tenant", ["a", "租户", "x" * 200])
def test_T4_ids_are_a_tenants_own_and_a_purge_takes_its_due_times(clocks: Clocks, tenant: str) -> None:
    theirs = clocks.of(tenant)
    clocks.world.do(flows.put(theirs.keys, "f", None, "a" * 64, b"{}"))
    for name in ("s", "a:b/索引", "index"):
        theirs.put(name)
        theirs.since(0, name)
    clocks.put("own")
    clocks.host.look()
    assert len(theirs.started()) == 3
    assert clocks.started() == []
    for asking in (asked.get, asked.remove, asked.trigger, asked.history, asked.preview):
        with pytest.raises(RefusedError, match="no schedule 's' for tenant 'default'"):
            clocks.perform(asking(clocks.keys, "s"))
    with pytest.raises(RefusedError, match="no schedule 's'"):
        clocks.perform(asked.set_enabled(clocks.keys, "s", False))
    assert clocks.perform(asked.list_schedules(clocks.keys))["total"] == 1
    clocks.perform(tenants.purge(clocks.keys, tenant, HOUR, force=True))
    assert clocks.world.raw("KEYS", f"{theirs.keys.ns}:schedule*") == []
    assert clocks.world.raw("ZRANGE", clocks.keys.schedules_due, 0, -1) == [b"default\0own"]


def test_the_cap_of_all_fits_one_call(clocks: Clocks) -> None:
    clocks.put(misfire="all", params={"x": "y" * 65_000})
    clocks.since(30 * HOUR)
    clocks.host.look()
    assert len(clocks.started()) == ALL_AT_MOST
