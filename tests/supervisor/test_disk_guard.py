"""The disk guard's looks: never on the loop, never in the way of a stop, never a reason to stand still (ledger G5)."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable

import pytest

from plaita.policy.disk import GIB, DiskFacts, DiskLine
from plaita.supervisor import disk_guard
from plaita.supervisor.disk_guard import DiskGuard
from plaita.supervisor.gate import Gate

PLENTY, NOTHING = DiskFacts(100 * GIB, 1000, 1000), DiskFacts(0, 1000, 1000)


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - a test waits
        await asyncio.sleep(0.001)


class World:
    """A guard over looks that a test decides, and what it told."""

    def __init__(self, look: Callable[[str], DiskFacts], **given: float) -> None:
        self.gate = Gate(lambda: None)
        self.changes: list[bool] = []
        self.guard = DiskGuard(
            "/somewhere", DiskLine(1.0, 1.0), self.gate, look=look, on_change=self.changes.append, **given
        )

    @property
    def open(self) -> bool:
        return self.gate.conditions["disk"].open


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    lines: list[str] = []
    for level in ("info", "warning"):
        monkeypatch.setattr(disk_guard.logs, level, lambda event, **fields: lines.append(event))
    return lines


def test_G5_shut_below_the_line_and_back_by_itself(told: list[str]) -> None:
    looks = [NOTHING, NOTHING, PLENTY, PLENTY]
    world = World(lambda path: looks.pop(0), poll_s=0.001)

    async def scenario() -> None:
        watching = asyncio.create_task(world.guard.watch())
        await world.guard.looked.wait()
        assert not world.open
        condition = world.gate.conditions["disk"]
        assert condition.limit.startswith("1 GiB")
        assert "opens again at 1.1 GiB" in condition.limit
        assert "/somewhere" in condition.hint
        await until(lambda: world.open)
        watching.cancel()

    asyncio.run(scenario())
    assert world.changes == [False, True]
    assert told.count("disk.gate") == 2


def test_G5_out_of_inodes_is_said(told: list[str]) -> None:
    world = World(lambda path: DiskFacts(100 * GIB, 3, 1000))
    asyncio.run(world.guard.probe())
    assert not world.open
    assert "0.3 % of inodes" in world.gate.conditions["disk"].value
    assert "--min-free-inodes-percent" in world.gate.conditions["disk"].hint
    assert world.guard.block()["free_inodes"] == 3


def test_G5_a_look_that_fails_lets_work_through_and_is_told(told: list[str]) -> None:
    def failing(path: str) -> DiskFacts:
        raise OSError(116, "Stale file handle")

    world = World(lambda path: NOTHING)

    async def scenario() -> None:
        await world.guard.probe()
        assert not world.open
        world.guard._look = failing
        await world.guard.probe()

    asyncio.run(scenario())
    assert world.open
    assert "Stale file handle" in world.gate.conditions["disk"].value
    assert told == ["disk.gate", "disk.probe_failed", "disk.gate"]
    assert world.guard.block()["free_gib"] is None


def test_G5_a_look_that_hangs_stops_neither_the_loop_nor_the_end_of_the_process(told: list[str]) -> None:
    """A network disk whose server is gone: one thread hangs, never a second; its late answer counts."""
    free, begun = threading.Event(), []

    def hanging(path: str) -> DiskFacts:
        begun.append(path)
        free.wait(60)
        return NOTHING

    world = World(hanging, patience_s=0.02, poll_s=0.001)

    async def scenario() -> None:
        watching = asyncio.create_task(world.guard.watch())
        await world.guard.looked.wait()
        assert world.open
        await until(lambda: world.guard._failures >= 5)
        assert len(begun) == 1
        free.set()
        await until(lambda: not world.open)
        watching.cancel()

    asyncio.run(scenario())
    assert told[0] == "disk.probe_failed"
    free.clear()
    world = World(hanging, patience_s=0.02)
    asyncio.run(world.guard.probe())  # comes to its end, with the thread still in there
    assert any(thread.name == "disk probe" and thread.daemon for thread in threading.enumerate())
    free.set()


def test_G5_a_stop_does_not_wait_for_the_next_look() -> None:
    """R: a drain interrupts. An hour between looks, cancelled at once."""
    world = World(lambda path: PLENTY, poll_s=3600)

    async def scenario() -> None:
        watching = asyncio.create_task(world.guard.watch())
        await world.guard.looked.wait()
        watching.cancel()
        await asyncio.wait({watching}, timeout=60)
        assert watching.cancelled()

    before = time.monotonic()
    asyncio.run(scenario())
    assert time.monotonic() - before < 60


def test_G5_off_shuts_nothing_and_still_shows(told: list[str]) -> None:
    gate = Gate(lambda: None)
    guard = DiskGuard("/somewhere", DiskLine(0.0, 1.0), gate, look=lambda path: NOTHING)
    asyncio.run(guard.probe())
    assert gate.conditions["disk"].open
    assert guard.block()["free_gib"] == 0
    assert told == []


def test_G5_the_real_look() -> None:
    found = disk_guard.look("/proc/self")  # a file system without blocks or inodes
    assert (found.free_bytes, found.total_inodes, found.free_inodes_percent) == (0, 0, None)
    assert disk_guard.look("/").free_bytes > 0
