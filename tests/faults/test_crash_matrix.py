"""A supervisor killed at each named point of a task's way (issue 3). ``make crash-matrix`` prints the whole of it."""

from __future__ import annotations

import os

import pytest
from crash_matrix import all_cells, one_cell_a_point, table, try_cells
from crash_trial import Cell, continue_carrier, try_cell
from hosts import World

from plaita.store import carriers
from plaita.supervisor.crash_points import UNDER_QUOTA, VARIABLE, Point
from plaita.testing.server import Server, raw


@pytest.mark.parametrize("cell", one_cell_a_point(), ids=lambda cell: cell.name)
def test_a_supervisor_killed_at_this_point_loses_nothing(plaita_server_process: Server, cell: Cell) -> None:
    wrong = try_cell(plaita_server_process.url, cell)
    assert not wrong, wrong


def test_the_small_matrix_has_every_point() -> None:
    assert {cell.point for cell in one_cell_a_point()} >= set(Point) - UNDER_QUOTA  # those: test_T3_quota.py


@pytest.mark.long
def test_the_whole_crash_matrix(plaita_server_process: Server) -> None:
    results = try_cells(plaita_server_process.url, all_cells())
    wrong = [f"{cell.name}: {text}" for cell, text in results.items() if text]
    assert not wrong, table(results) + "\n" + "\n".join(wrong)


@pytest.mark.parametrize("given", ["nowhere", "taken:0", "taken:x"])
def test_what_is_no_point_is_refused_at_start(world: World, given: str) -> None:
    supervisor = world.supervisor(environment={VARIABLE: given})
    assert supervisor.wait_exit() == os.EX_CONFIG
    assert VARIABLE in supervisor.text()


def test_a_crash_point_is_told_of_at_start(world: World) -> None:
    supervisor = world.supervisor(environment={VARIABLE: "taken:99"}).wait_serving()
    assert "crash_point.armed" in supervisor.text()
    assert "crash_point.armed" not in world.supervisor(instance="two").wait_serving().text()


def test_what_an_earlier_life_left_and_nobody_can_settle_is_looked_at_once(world: World) -> None:
    """Adopting takes up what is pending however short it has been idle: what stays pending must not be taken again."""
    world.chain("f", {"type": "mock", "id": "a", "value": 1})
    world.do(raw("SET", world.keys.row("odd"), "not a row"))
    world.do(carriers.enqueue(world.keys, "w", continue_carrier("odd")))
    flags = {"executors": 1, "lease_ttl_seconds": 600, "claim_min_idle_ms": 600_000}
    world.supervisor(environment={VARIABLE: Point.TAKEN}, **flags).wait_exit()
    second = world.serving(**flags)
    for _ in range(3):
        assert world.run("f")["status"] == "completed"
    status = second.status()
    assert status is not None
    assert status["counters"]["reclaimed"] <= 2
    assert world.do(raw("GET", world.keys.row("odd"))) == b"not a row"
