"""Hosts whose wall clocks are wrong and jump: nothing is stolen, nothing waits for ever (KNOWN-TROUBLE 43, 44)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from carriers_by_hand import raw
from hosts import NODES, World, until

from plaita.client import schedules
from plaita.store.call import Call

HOUR, TEN_YEARS = 3600, 10 * 365 * 86_400
WRONG = Path(__file__).parent / "wrong_clock"


class Clock:
    """The clock of one host, set by the test while the host runs."""

    def __init__(self, file: Path, seconds: int = 0) -> None:
        self._file = file
        self.set(seconds)

    def set(self, seconds: int) -> None:
        new = self._file.with_suffix(".new")
        new.write_text(str(seconds), encoding="ascii")
        os.replace(new, self._file)

    @property
    def environment(self) -> dict[str, str]:
        return {"PYTHONPATH": f"{WRONG}:{NODES}", "WRONG_CLOCK": str(self._file)}


def test_43_44_no_lease_is_stolen_by_a_clock(world: World) -> None:
    """The shortest lease, and a step longer than that; the other host, years ahead, claims whatever lies idle for a
    tenth of a second. Only the server's clock and each host's own boot clock count."""
    lines, enough = world.folder / "lines", world.folder / "enough"
    step = {"type": "t_line", "file": str(lines)}
    world.chain("f", {**step, "id": "a", "seconds": 5.5, "until": str(enough)}, {**step, "id": "b"})
    world.chain("short", {**step, "id": "s"})
    settings: dict[str, Any] = {"lease_ttl_seconds": 5, "claim_min_idle_ms": 100, "preload": "trouble"}
    clock = Clock(world.folder / "one.clock")
    one = world.serving(environment=clock.environment, **settings)
    held = world.start("f")
    one.busy("a")
    ahead = Clock(world.folder / "two.clock", TEN_YEARS)
    two = world.serving(instance="two", environment=ahead.environment, **settings)
    assert two.status()["drain"]["since"] is None
    since = two.status()["redis"]["since"]
    assert int(since[:4]) >= 2035, "the clock is wrong indeed"
    for seconds in (-HOUR, HOUR, TEN_YEARS, -HOUR):
        clock.set(seconds)
        assert world.wait(world.start("short"))["status"] == "completed"  # its carrier is no 10 years old for anybody
        assert world.get(held)["status"] == "running"
    assert {row["instance_id"]: row["state"] for row in world.client.instances()["instances"]} == {
        "one": "alive",
        "two": "alive",
    }
    enough.touch()
    assert world.wait(held)["status"] == "completed"
    ran = [line.split()[1:3] for line in lines.read_text().splitlines() if line.startswith(held)]
    assert ran == [["a", "1"], ["b", "1"]]
    for supervisor in (one, two):
        counters = supervisor.status()["counters"]
        assert counters["reclaimed"] == 0
        assert counters.get("lease_lost", 0) == 0
    executions = [world.start("short") for _ in range(6)]
    assert {world.wait(execution)["status"] for execution in executions} == {"completed"}
    until(lambda: world.stats().delayed == 0, "nothing is left")
    check_schedules(world)
    assert [one.stop(), two.stop()] == [0, 0]


def check_schedules(world: World) -> None:
    """Both hosts look at them, an hour behind and years ahead: due times are those of the server."""
    world.client.put_schedule("s", "short", "* * * * *", misfire="all")
    now: int = world.do(Call("test.time", None, (), ("TIME",), "writer", True, lambda reply: int(reply[0])))
    first = (now // 60 - 2) * 60_000
    raw(world, "ZADD", world.keys.schedules_due, "XX", first, world.keys.schedule_member("s"))
    until(lambda: raw(world, "LLEN", world.keys.schedule_fires("s")) >= 3, "three due times have passed")
    fires = world.client.perform(schedules.history(world.keys, "s"))["fires"]
    assert {one["enqueue"] for one in fires} == {"ok"}
    wanted = [f"sched:s:due:{first + place * 60_000}" for place in reversed(range(len(fires)))]
    assert [one["dedup_key"] for one in fires] == wanted
    assert {world.wait(one["execution_id"])["status"] for one in fires} == {"completed"}
    assert float(raw(world, "ZSCORE", world.keys.schedules_due, world.keys.schedule_member("s"))) <= (now + 120) * 1000
