"""Carriers that kill what runs them (ledger S14, Q4; DECISIONS 7, 8): given up after their budget, nobody else harmed.

Lease and min-idle are ten minutes: whatever goes on has been handed on, not waited for (DECISIONS 44).
"""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest
from hosts import SupervisorProcess, World, until

from plaita.policy.dead_letter import read
from plaita.testing.server import raw

FLAGS = {"lease_ttl_seconds": 600, "claim_min_idle_ms": 600_000, "preload": "crashing", "max_deliveries": 3}


def poison(world: World, victim: str, **fields: Any) -> None:
    world.chain(
        "poison",
        {"type": "t_noted", "id": "a", "file": str(world.folder / "lines")},
        {"type": "t_poison", "id": "b", "file": str(world.folder / "lines"), "victim": victim, **fields},
    )


def starts(world: World, execution: str, node: str) -> list[str]:
    """The attempt number of each run."""
    file = world.folder / "lines"
    words = [line.split() for line in file.read_text().splitlines()] if file.exists() else []
    return [attempt for ran, name, attempt, _ in words if (ran, name) == (execution, node)]


def letters(world: World) -> list[dict[str, Any]]:
    entries = world.do(raw("XRANGE", world.keys.dead_letters, "-", "+"))
    return [read(dict(zip(flat[::2], flat[1::2], strict=True))) for _, flat in entries]


def nothing_left(world: World) -> None:
    def settled() -> bool:
        stats = world.stats()
        return all(s.length == s.pending == 0 for s in stats.streams) and stats.delayed == 0

    until(settled, "an empty queue")


def good(world: World) -> None:
    step = {"type": "t_noted", "file": str(world.folder / "lines")}
    world.chain("good", {**step, "id": "a"}, {**step, "id": "b"})


def test_S14_a_step_that_kills_its_executor_is_given_up_after_three_starts(world: World) -> None:
    poison(world, "self")
    good(world)
    supervisor = world.serving(executors=2, **FLAGS)
    bad = world.start("poison")
    others = [world.start("good") for _ in range(12)]
    assert {world.wait(other)["status"] for other in others} == {"completed"}
    row = world.wait(bad)
    assert row["status"] == "error"
    assert starts(world, bad, "b") == ["1", "2", "3"]
    assert starts(world, bad, "a") == ["1"]
    death = row["error"]["death"]
    assert (death["signal"], death["node"], death["attempt"]) == (signal.SIGKILL, "b", 3)
    [letter] = letters(world)
    assert (letter["execution_id"], letter["node_id"], letter["cause"]) == (bad, "b", death["cause"])
    assert (letter["signal"], "SIGKILL" in letter["cause"]) == (signal.SIGKILL, True)
    nothing_left(world)
    # nobody else noticed: each step once, and no other letter
    assert all(starts(world, other, node) == ["1"] for other in others for node in ("a", "b"))
    status = supervisor.wait_serving().status()
    assert status is not None
    assert (status["counters"]["executor_deaths"], status["counters"]["dead_lettered"]) == (3, 1)


@pytest.mark.parametrize(
    "told", [True, pytest.param(False, marks=pytest.mark.long)], ids=["told by systemd", "told by nobody"]
)
def test_S14_a_step_that_kills_its_supervisor_is_given_up_after_three_starts(world: World, told: bool) -> None:
    gate = world.folder / "gate"
    poison(world, "supervisor", gate=str(gate))
    good(world)
    bad = world.start("poison")
    lives: list[SupervisorProcess] = []
    others = []
    while len(lives) < 4:  # as systemd does: after each death its word on it, then the next life
        others.append(world.start("good"))
        lives.append(world.supervisor(executors=2, **FLAGS))
        if len(lives) < 4:
            # What was in flight at each of the deaths would be taken for poison too (DECISIONS 7).
            assert world.wait(others[-1])["status"] == "completed"
            gate.with_name(f"gate.{len(lives)}").touch()
            assert lives[-1].wait_exit() == -signal.SIGKILL
            if told:
                lives[-1].record_exit()
    row = world.wait(bad)
    assert row["status"] == "error"
    assert starts(world, bad, "b") == ["1", "2", "3"]
    assert starts(world, bad, "a") == ["1"]
    death = row["error"]["death"]
    how = ("supervisor died: SIGKILL", signal.SIGKILL) if told else ("supervisor died", None)
    assert (death["cause"], death["signal"]) == how
    assert (death["node"], death["attempt"], "nobody recorded" in death.get("note", "")) == ("b", 3, not told)
    assert death["holder"].startswith("one/")
    [letter] = letters(world)
    assert (letter["execution_id"], letter["node_id"]) == (bad, "b")
    assert (letter["cause"], letter["signal"], row["error"]["cause"]) == (*how, how[0])
    assert {world.wait(other)["status"] for other in others} == {"completed"}
    nothing_left(world)
    assert lives[-1].stop() == 0


def test_S8_cancel_ends_a_poison_step_that_is_running(world: World) -> None:
    poison(world, "self", seconds=30)
    supervisor = world.serving(**FLAGS)
    bad = world.start("poison")
    supervisor.busy("b")
    world.client.cancel(bad, reason="harmful")
    row = world.wait(bad)
    assert (row["status"], starts(world, bad, "b")) == ("cancelled", ["1"])
    assert letters(world) == []


def test_S8_cancel_ends_a_poison_step_that_waits_for_its_next_start(world: World) -> None:
    poison(world, "self")
    world.serving(**FLAGS)
    bad = world.start("poison")
    until(lambda: world.stats().delayed == 1, "the delayed copy after the second death")
    [(member, _)] = _delayed(world)
    world.do(raw("ZADD", world.keys.delayed, "XX", 2**52, member))  # not before the cancel has had its way
    world.client.cancel(bad)
    assert world.wait(bad)["status"] == "cancelled"
    assert starts(world, bad, "b") == ["1", "2"]
    world.do(raw("ZADD", world.keys.delayed, "XX", 0, member))  # the copy comes too late, and is acked
    nothing_left(world)
    assert world.get(bad)["status"] == "cancelled"
    assert starts(world, bad, "b") == ["1", "2"]
    assert letters(world) == []


def _delayed(world: World) -> list[tuple[bytes, bytes]]:
    flat = world.do(raw("ZRANGE", world.keys.delayed, 0, -1, "WITHSCORES"))
    return list(zip(flat[::2], flat[1::2], strict=True))


def test_S8_a_cancel_and_a_death_at_once_end_in_cancelled(world: World) -> None:
    poison(world, "self", seconds=30)
    supervisor = world.serving(**FLAGS)
    bad = world.start("poison")
    victim = supervisor.busy("b")
    until(lambda: starts(world, bad, "b"), "its code runs")
    world.client.cancel(bad)
    os.kill(victim["pid"], signal.SIGKILL)
    assert world.wait(bad)["status"] == "cancelled"
    assert len(starts(world, bad, "b")) == 1
    assert letters(world) == []


@pytest.mark.parametrize("restarts", [5])
def test_R3_restarts_under_a_long_step_cost_no_budget(world: World, restarts: int) -> None:
    gate = world.folder / "gate"
    world.chain("f", {"type": "t_gated", "id": "a", "file": str(world.folder / "lines"), "gate": str(gate)})
    execution = world.start("f")
    for life in range(restarts):
        supervisor = world.serving(drain_timeout=0.2, kill_grace=0.2, **{**FLAGS, "max_deliveries": 2})
        until(lambda life=life: len(starts(world, execution, "a")) == life + 1, f"start {life + 1}")
        supervisor.busy("a")
        assert supervisor.stop() == 75  # a drain that had to kill
        assert world.row(execution).control["lost"] == "0"
    gate.with_name("gate.1").touch()
    world.serving(**{**FLAGS, "max_deliveries": 2})
    assert world.wait(execution)["status"] == "completed"
    assert starts(world, execution, "a") == ["1"] * (restarts + 1)
    assert letters(world) == []


@pytest.mark.parametrize("seconds", [6, pytest.param(60, marks=pytest.mark.long)])
def test_L3_a_step_longer_than_min_idle_runs_once_and_is_delivered_once(world: World, seconds: int) -> None:
    world.chain("f", {"type": "t_noted", "id": "a", "file": str(world.folder / "lines"), "seconds": seconds})
    flags = {**FLAGS, "claim_min_idle_ms": 1000, "lease_ttl_seconds": 5}
    for instance in ("one", "two"):
        world.serving(instance=instance, executors=1, **flags)
    execution = world.start("f")
    until(lambda: starts(world, execution, "a"), "the step")
    seen: set[tuple[bytes, int]] = set()

    def over() -> bool:
        pending = world.do(raw("XPENDING", world.keys.queue, world.keys.group, "-", "+", 10))
        seen.update((consumer, delivered) for _, consumer, _, delivered in pending)
        return world.get(execution)["status"] == "completed"

    until(over, "the end", seconds + 60)
    [(_, delivered)] = seen  # one consumer, all the time
    assert delivered == 1
    assert starts(world, execution, "a") == ["1"]
    assert world.get(execution)["attempts"] == 1
    nothing_left(world)
