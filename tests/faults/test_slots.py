"""Slots of the pool: none is lost, none waits without a reason."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import Any, cast

import pytest
from hosts import World, until

from plaita.policy.slot import Slot
from plaita.supervisor import births as births_module
from plaita.supervisor.pool import Pool, PoolSettings
from plaita.supervisor.stats import Stats
from plaita.supervisor.template_handle import TemplateHandle


def test_executors_that_leave_after_each_step_are_replaced_at_once(world: World) -> None:
    world.chain("f", {"type": "mock", "id": "a", "value": 1})
    supervisor = world.serving(executors=4, max_steps_per_executor=1)
    executions = [world.start("f") for _ in range(40)]
    assert {world.wait(execution)["status"] for execution in executions} == {"completed"}
    status = supervisor.status()
    assert status is not None
    assert status["counters"]["executor_spawns"] >= 120
    assert status["counters"]["executor_deaths"] == 0
    assert "executor.respawn_delayed" not in supervisor.text()
    assert "executor.spawn_failed" not in supervisor.text()


def test_a_node_that_kills_its_executor_slows_its_slot_down(world: World) -> None:
    """The other side of the above: deaths do count. Each in a flow of its own, so that no breaker comes before."""
    for number in range(10):
        world.chain(f"f{number}", {"type": "t_do", "id": "a", "what": "os_exit", "size": 3})
    supervisor = world.serving(executors=1, preload="trouble", max_deliveries=1)
    executions = [world.start(f"f{number}") for number in range(10)]
    assert {world.wait(execution)["status"] for execution in executions} == {"error"}
    assert "executor.respawn_delayed" in supervisor.text()


class SilentTemplate:
    """Takes requests and never answers; dies when killed, as a process that was stopped does."""

    pid = 0
    can_spawn = True

    def __init__(self) -> None:
        self.asked = 0
        self.killed = 0
        self.pool: Pool | None = None

    def spawn(self, message: Any, fds: list[int]) -> bool:
        self.asked += 1
        return True

    def kill(self) -> None:
        self.killed += 1
        self.can_spawn = False
        assert self.pool is not None
        self.pool.births.template_died(cast(TemplateHandle, self))

    def forget(self, pid: int) -> None:
        raise AssertionError("there was no process")


def test_a_template_that_never_answers_is_killed_and_its_slots_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(births_module, "SPAWN_DEADLINE_S", 0.05)

    async def go() -> None:
        silent = SilentTemplate()
        settings = PoolSettings(size=2, kill_grace_s=1.0, max_steps=None, max_rss_mib=None)
        loop = asyncio.get_running_loop()
        pool = Pool(loop, settings, cast(TemplateHandle, silent), Stats(), lambda: None, lambda: None)
        silent.pool = pool
        pool.start()
        assert silent.asked == 2
        async with asyncio.timeout(5):
            while any(executor.state is not Slot.GONE for executor in pool.executors):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert silent.killed == 1
        second = SilentTemplate()
        second.pool = pool
        pool.births.template = cast(TemplateHandle, second)
        async with asyncio.timeout(5):
            while second.asked < 2:  # noqa: ASYNC110 - each after the wait that a failed spawn costs
                await asyncio.sleep(0.01)
        pool.close()

    asyncio.run(go())


def test_sigterm_from_outside_costs_a_step_and_not_the_execution(world: World) -> None:
    file, enough = world.folder / "lines", world.folder / "enough"
    world.chain("f", {"type": "t_line", "id": "a", "file": str(file), "until": str(enough)})
    supervisor = world.serving(executors=2, preload="trouble", lease_ttl_seconds=600, claim_min_idle_ms=600_000)
    execution = world.start("f")
    until(file.exists, "the step")
    os.kill(supervisor.busy("a")["pid"], signal.SIGTERM)
    until(lambda: len(file.read_text().splitlines()) == 2, "the step begun again")
    enough.touch()
    assert world.wait(execution)["status"] == "completed"
    assert [line.split()[2] for line in file.read_text().splitlines()] == ["1", "2"]


def test_a_node_that_stops_its_own_executor_each_time_ends_in_an_error(world: World) -> None:
    world.chain("f", {"type": "t_stop_self", "id": "a"})
    (world.folder / "stopper.py").write_text(
        "import os, signal, time\nfrom plaita import Node\n\n"
        "class StopSelf(Node):\n    node_type = 't_stop_self'\n\n"
        "    def execute(self, execution):\n        os.kill(os.getpid(), signal.SIGTERM)\n        time.sleep(60)\n"
    )
    world.serving(preload="stopper", max_deliveries=2, environment={"PYTHONPATH": str(world.folder)})
    row = world.run("f")
    assert row["status"] == "error"
    assert row["error"]["exception"] == "ExecutorDiedError"
    assert "SIGTERM" in row["error"]["message"]


def test_more_values_than_an_executor_can_be_given_end_in_a_named_error(world: World) -> None:
    """Found at the step that goes over, not at the next executor that is to be given them all."""
    (world.folder / "hoarder.py").write_text(
        "from plaita import Node\n\n"
        "class Hoard(Node):\n    node_type = 't_hoard'\n    first: int\n\n"
        "    def execute(self, execution):\n        for n in range(12_000):\n"
        "            execution.set_state(f'k{self.first + n}', n)\n"
    )
    world.serving(preload="hoarder", environment={"PYTHONPATH": str(world.folder)})
    world.chain("f", {"type": "t_hoard", "id": "a", "first": 0}, {"type": "t_hoard", "id": "b", "first": 12_000})
    row = world.run("f")
    assert row["status"] == "error"
    assert row["error"]["cause"] == "ContextTooLarge"
    assert "values" in row["error"]["message"]
    assert world.node(row["execution_id"], "a")["status"] == "completed"
