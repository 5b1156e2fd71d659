"""Bytes: large inputs within bounded memory, payloads exact on every way, and nothing that grows with work done."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fault_load import NODE_FOLDERS, Load, judge, residue
from hosts import SupervisorProcess, World, until

from plaita.testing.server import Server, raw

MIB = 1024 * 1024


def _peak_mib(supervisor: SupervisorProcess) -> int:
    with open(f"/proc/{supervisor.pid}/status", encoding="ascii") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmHWM")) // 1024


@pytest.mark.parametrize(
    ("count", "size"),
    [(12, MIB), pytest.param(200, MIB, marks=pytest.mark.long), pytest.param(5, 20 * MIB, marks=pytest.mark.long)],
)
def test_large_inputs_are_read_as_executors_are_free(world: World, count: int, size: int) -> None:
    """KNOWN-TROUBLE 65: the supervisor holds what its pool of 4 works on, and no more, however much waits."""
    world.chain("f", {"type": "f_size", "id": "a"})
    blob = "x" * size
    executions = [world.start("f", {"blob": blob, "n": n}) for n in range(count)]
    supervisor = world.serving(executors=4, preload="faulty", environment={"PYTHONPATH": NODE_FOLDERS})
    idle = _peak_mib(supervisor)
    for execution in executions:
        row = world.wait(execution)
        assert row["status"] == "completed"
        assert row["output"]["a"] == size
    judge(supervisor, supervisor.pid, lines=60)
    # input and its copy on the way out, for each of four; fragmentation and buffers beside
    assert _peak_mib(supervisor) - idle < 60 + 4 * 4 * size // MIB


EXACT = {
    "long": 912345678901234567,
    "longer": 2**63 - 1,
    "tenth": 0.1,
    "list": [],
    "object": {},
    "lists": [[]],
    "nothing": None,
    "nul": "\u0000",
    "text": "ünïcödé \u2028 😀",
}


def test_a_payload_is_the_same_after_retries_deaths_and_hand_ons(world: World) -> None:
    """KNOWN-TROUBLE 35: through the delayed copy, the wake stream and the row, no script reads it as JSON."""
    mark = world.folder / "mark"
    world.chain(
        "f",
        {"type": "assignment", "id": "before", "output": "$INPUT"},
        {"type": "f_fails_once", "id": "fails", "file": f"{mark}-1"},
        {"type": "f_dies_once", "id": "dies", "file": f"{mark}-2"},
        {"type": "assignment", "id": "after", "output": "$NODE.before"},
    )
    supervisor = world.serving(executors=1, preload="faulty", environment={"PYTHONPATH": NODE_FOLDERS})
    row = world.run("f", EXACT)
    assert row["status"] == "completed"
    for node in ("before", "after"):
        assert json.dumps(row["output"][node]) == json.dumps(EXACT)
    stored = world.row(row["execution_id"])
    assert json.loads(stored.input) == EXACT  # type: ignore[arg-type]
    counters = supervisor.status()["counters"]  # type: ignore[index]
    assert (counters["node_retries"], counters["executor_deaths"]) == (1, 1)


@pytest.mark.parametrize("count", [150, pytest.param(2000, marks=pytest.mark.long)])
def test_nothing_grows_but_rows(world: World, plaita_server_process: Server, count: int) -> None:
    """KNOWN-TROUBLE 22: streams are empty after the work, and what a finished execution leaves does not grow."""
    world.chain("f", {"type": "mock", "id": "a", "value": 1})
    supervisor = world.serving(executors=4)

    def work(number: int) -> None:
        for execution in [world.start("f") for _ in range(number)]:
            assert world.wait(execution, 120)["status"] == "completed"

    work(20)
    keys, bytes_before = _keys(world), _memory(world)
    work(count)
    assert _keys(world) - keys <= 3 * count, "a row and its fence"
    assert (_memory(world) - bytes_before) / count < 4096
    until(lambda: [stream.length for stream in world.stats().streams] == [0, 0], "empty streams")
    assert residue(world) == []
    judge(supervisor, supervisor.pid, lines=30)


def _keys(world: World) -> int:
    found: Any = world.do(raw("KEYS", f"{world.keys.prefix}*"))
    return len(found)


def _memory(world: World) -> int:
    text = world.do(raw("INFO", "memory")).decode()
    return int(next(line for line in text.splitlines() if line.startswith("used_memory:")).split(":")[1])


@pytest.mark.long
def test_the_memory_of_a_supervisor_does_not_grow_with_work_done(world: World, plaita_server_process: Server) -> None:
    supervisor = world.serving(executors=2, preload="trouble")
    load = Load(world, plaita_server_process)
    load.start(200)
    load.wait(120)
    before = _peak_mib(supervisor)
    load.start(2000)
    load.wait(300)
    load.clean()
    assert _peak_mib(supervisor) - before < 16
