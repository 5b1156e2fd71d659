"""Schedules on real supervisors: each due time once, whoever is there and whoever dies (ledger E5, KNOWN-TROUBLE 41).

A due time is put in the past, as if its moment had come; nobody waits for a minute to be over.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from typing import Any

from carriers_by_hand import raw
from hosts import World, until

from plaita.store.call import Call

MINUTE = 60_000
PLAIN: dict[str, Any] = {"executors": 2, "lease_ttl_seconds": 600, "claim_min_idle_ms": 600_000}


def put(world: World, names: list[str], minutes: int, **named: Any) -> None:
    """Schedules of each minute, at whose due times nobody looked since so many minutes ago."""
    world.chain("f", {"type": "assignment", "id": "a", "output": {"n": "{% $INPUT.n %}"}})
    [seconds, _] = world.do(Call("test.time", None, (), ("TIME",), "writer", True, lambda reply: reply))
    since = (int(seconds) // 60 - minutes) * MINUTE
    for name in names:
        world.client.put_schedule(name, "f", "* * * * *", input={"n": name}, **named)
        raw(world, "ZADD", world.keys.schedules_due, "XX", since, world.keys.schedule_member(name))


def rows(world: World) -> list[tuple[str, str]]:
    """(execution, dedup key) of all that was started."""
    found = [one.decode() for one in raw(world, "ZRANGE", world.keys.index(), 0, -1)]
    return [(one, (raw(world, "HGET", world.keys.row(one), "dedup_key") or b"").decode()) for one in found]


def nothing_due(world: World) -> bool:
    due: list[bytes] = raw(world, "ZRANGE", world.keys.schedules_due, 0, 0, "WITHSCORES")
    [seconds, _] = world.do(Call("test.time", None, (), ("TIME",), "writer", True, lambda reply: reply))
    return float(due[1]) > int(seconds) * 1000


def check_each_once(world: World, names: list[str], minutes: int) -> None:
    """Each due time of each schedule was started once."""
    keys = Counter(key for _, key in rows(world))
    assert set(keys.values()) == {1}
    for name in names:
        dues = sorted(int(key.rpartition(":")[2]) for key in keys if key.startswith(f"sched:{name}:due:"))
        assert len(dues) >= minutes + 1
        assert dues == list(range(dues[0], dues[-1] + 1, MINUTE))
    told = {raw(world, "LLEN", world.keys.schedule_fires(name)) for name in names}
    assert min(told) >= minutes + 1


def test_E5_two_supervisors_fire_each_due_time_once(world: World) -> None:
    names = [f"s{place}" for place in range(8)]
    one = world.supervisor(instance="one", **PLAIN)
    two = world.supervisor(instance="two", **PLAIN)
    one.wait_serving()
    two.wait_serving()
    put(world, names, 3, misfire="all")
    until(lambda: nothing_due(world), "all is fired")
    check_each_once(world, names, 3)
    for execution, _ in rows(world):
        assert world.wait(execution)["status"] == "completed"


def test_E5_a_supervisor_killed_while_it_fires_leaves_the_rest_to_another(world: World) -> None:
    names = [f"s{place:03}" for place in range(150)]
    put(world, names, 1, misfire="all")
    first = world.supervisor(instance="one", **PLAIN)
    until(lambda: raw(world, "ZCARD", world.keys.index()), "the first is fired")
    os.kill(first.pid, signal.SIGKILL)
    world.serving(instance="two", **PLAIN)
    until(lambda: nothing_due(world), "all is fired")
    check_each_once(world, names, 1)


def test_41_no_supervisor_for_three_hours_is_one_run_by_default(world: World) -> None:
    put(world, ["late"], 180)
    put(world, ["skipped"], 180, misfire="skip")
    put(world, ["other"], 0)
    supervisor = world.serving(**PLAIN)
    until(lambda: nothing_due(world), "all is fired")
    keys = [key.partition(":due:")[0] for _, key in rows(world)]
    assert set(keys) == {"sched:late", "sched:skipped", "sched:other"}
    assert len(keys) in range(3, 7)  # a minute may begin meanwhile
    status = supervisor.status()
    assert status is not None
    counters = status["counters"]
    assert counters["schedules_fired"] == len(keys)
    assert counters["schedules_skipped"] in range(358, 361)


def test_E1_without_services_nothing_is_fired_and_the_next_host_does_it(world: World) -> None:
    put(world, ["s"], 0)
    member = world.keys.schedule_member("s")
    due = raw(world, "ZSCORE", world.keys.schedules_due, member)
    without = world.serving("--no-services", instance="one", **PLAIN)
    assert world.run("f", {"n": 1})["status"] == "completed"
    assert without.stop() == 0
    assert raw(world, "ZSCORE", world.keys.schedules_due, member) == due
    world.serving(instance="two", **PLAIN)
    until(lambda: raw(world, "LLEN", world.keys.schedule_fires("s")), "it is fired")


def test_E5_due_times_that_were_lost_come_back_when_a_supervisor_starts(world: World) -> None:
    put(world, ["a", "b"], 0)
    raw(world, "DEL", world.keys.schedules_due)
    supervisor = world.serving(**PLAIN)
    until(lambda: raw(world, "ZCARD", world.keys.schedules_due) == 2, "both are back")
    supervisor.wait_status(lambda s: s["counters"]["schedules_put_back"] == 2, "and told")
    assert {one["status"] for one in world.client.schedules()} == {"running"}
    assert supervisor.text().count("event=schedule.put_back") == 2
