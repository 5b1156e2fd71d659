"""Descriptors and memory stay flat, however many steps were run and executors were replaced.

The long version runs ``PLAITA_TEST_STEPS`` steps (100,000 where nothing is said) and replaces an executor each hundred.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from hosts import SupervisorProcess, World, until

from plaita.store import executions
from plaita.testing.server import raw

STEPS = int(os.environ.get("PLAITA_TEST_STEPS", "100000"))
A_FLOW = 50  # steps
MIB = 1024.0


def _rss_mib(pid: int) -> float:
    text = Path(f"/proc/{pid}/status").read_text("ascii")
    return int(next(line.split()[1] for line in text.splitlines() if line.startswith("VmRSS"))) / MIB


def _descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def _redis_mib(world: World) -> float:
    text: Any = world.do(raw("INFO", "memory"))
    line = next(line for line in text.decode().splitlines() if line.startswith("used_memory:"))
    return int(line.split(":")[1]) / MIB / MIB


def _work(world: World, steps: int) -> None:
    """So many steps in executions of ``A_FLOW`` steps each, which are removed again."""
    left = steps // A_FLOW
    while left:
        batch = [world.start("f") for _ in range(min(left, 40))]
        for execution in batch:
            assert world.wait(execution, 600)["status"] == "completed"
            world.do(executions.delete(world.keys, execution, "test", force=False, tombstone_ttl_ms=60_000))
        left -= len(batch)


def _look(world: World, supervisor: SupervisorProcess, *gone: int) -> dict[str, float]:
    """Once nothing is being born or buried; ``gone`` are pids that were killed, and may not have been missed yet."""

    def settled(status: dict[str, Any]) -> bool:
        rows = status["executors"]
        return len(rows) == 2 and all(row["state"] == "idle" and row["pid"] not in (None, *gone) for row in rows)

    status = supervisor.wait_status(settled, "all idle")
    template = status["template"]["pid"]
    return {
        "supervisor_fds": _descriptors(supervisor.pid),
        "template_fds": _descriptors(template),
        "supervisor_mib": _rss_mib(supervisor.pid),
        "template_mib": _rss_mib(template),
        "executor_mib": max(_rss_mib(row["pid"]) for row in status["executors"]),
        "redis_mib": _redis_mib(world),
    }


@pytest.mark.parametrize(
    ("steps", "max_steps"),
    [
        (1_500, 30),
        pytest.param(STEPS, 100, marks=pytest.mark.long),
        pytest.param(STEPS // 2, 0, marks=pytest.mark.long),  # the same executors all the way
    ],
)
def test_descriptors_and_memory_are_flat_over_steps_and_respawns(world: World, steps: int, max_steps: int) -> None:
    nodes = [{"type": "mock", "id": f"n{number}", "value": {"text": "x" * 100}} for number in range(A_FLOW - 2)]
    world.chain("f", *nodes)
    supervisor = world.serving(executors=2, max_steps_per_executor=max_steps)
    _work(world, max(500, steps // 10))  # caches fill, allocators find their size
    full = supervisor.wait_status(lambda s: all(row["state"] == "idle" for row in s["executors"]), "all idle")
    killed = [row["pid"] for row in full["executors"]]
    for pid in killed:
        os.kill(pid, signal.SIGKILL)  # deaths, not retirements alone
    before, counters = _look(world, supervisor, *killed), supervisor.ask("status")["counters"]
    _work(world, steps)
    after, later = _look(world, supervisor), supervisor.ask("status")["counters"]
    figures = {name: (round(before[name], 1), round(after[name], 1)) for name in before}
    done = {name: later[name] - counters[name] for name in ("steps", "executor_spawns", "finished")}
    print(f"\n{done} {figures}")
    assert done["steps"] >= steps * 0.95
    assert done["executor_spawns"] >= (steps // max_steps * 0.9 if max_steps else 0)
    template = supervisor.ask("status")["template"]["pid"]
    for name, pid in (("supervisor_fds", supervisor.pid), ("template_fds", template)):
        until(lambda name=name, pid=pid: _descriptors(pid) <= before[name], f"{name}: {figures}")
    assert after["supervisor_mib"] - before["supervisor_mib"] < 6, figures
    assert after["template_mib"] - before["template_mib"] < 3, figures
    assert after["executor_mib"] - before["executor_mib"] < 6, figures
    # What a removed execution leaves: a tombstone, and its id in no index.
    assert after["redis_mib"] - before["redis_mib"] < 2 + done["finished"] * 1024 / MIB / MIB, figures
    assert supervisor.stop() == 0
