"""What is due is moved whatever the sleep before was for, and whatever became of the connection (KNOWN-TROUBLE 37)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
from carriers_by_hand import raw
from hosts import World

from plaita.store import delayed
from plaita.store.runner_async import AsyncRunner
from plaita.supervisor.housekeeping import Housekeeping
from plaita.supervisor.stats import Stats

FAR_MS = 600_000  # nothing here lasts so long: what runs was not slept for


class Quiet:
    """A tenant gate that has nothing to release."""

    async def beat(self) -> None:
        await asyncio.Event().wait()


@asynccontextmanager
async def housekeeping(world: World) -> AsyncIterator[None]:
    """Of one host, which has seen what is delayed and sleeps."""
    runner = AsyncRunner(world.url)
    house = Housekeeping(runner, world.keys, Stats(), 100, cast(Any, Quiet()), None)
    house.start()
    try:
        await asyncio.sleep(0.1)
        yield
    finally:
        await house.stop()
        await runner.close()


def put(world: World, name: str, due_in_ms: int) -> None:
    world.do(delayed.put(world.keys, name, due_in_ms, [("payload", name)]))


async def moved(world: World, names: list[str]) -> None:
    deadline = asyncio.get_running_loop().time() + 60
    while True:
        found = raw(world, "XRANGE", world.keys.wake, "-", "+")
        if [dict(zip(flat[::2], flat[1::2], strict=True))[b"payload"].decode() for _, flat in found] == names:
            return
        assert asyncio.get_running_loop().time() < deadline, found
        await asyncio.sleep(0.02)


def cut_all(world: World) -> None:
    """Every connection but ours, as a server that was away."""
    raw(world, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")


def nothing(world: World) -> None:
    return None


@pytest.mark.parametrize("between", [nothing, cut_all], ids=["", "the connection is lost"])
def test_37_one_that_comes_earlier_than_the_one_slept_for(world: World, between: Callable[[World], None]) -> None:
    async def go() -> None:
        put(world, "far", FAR_MS)
        async with housekeeping(world):
            between(world)
            put(world, "near", 50)
            await moved(world, ["near"])

    asyncio.run(go())


def test_37_the_earliest_is_taken_away_and_the_next_one_comes(world: World) -> None:
    async def go() -> None:
        put(world, "first", 1500)
        put(world, "second", 2000)
        async with housekeeping(world):
            assert world.do(delayed.cancel(world.keys, "first"))
            cut_all(world)
            await moved(world, ["second"])

    asyncio.run(go())


def test_37_after_an_outage_what_was_due_meanwhile_is_moved_though_nothing_new_comes(world: World) -> None:
    async def go() -> None:
        put(world, "due", 700)
        async with housekeeping(world):
            for _ in range(20):  # as long as it is due, and longer
                cut_all(world)
                await asyncio.sleep(0.05)
            await moved(world, ["due"])

    asyncio.run(go())
