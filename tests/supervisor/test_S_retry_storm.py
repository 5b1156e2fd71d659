"""Very many executions that fail and are tried again, with two executors: those that are well do not wait for them
(ledger S10, DECISIONS 6)."""

from __future__ import annotations

import statistics
import time
from collections import Counter

import pytest
from carriers_by_hand import PATIENT, bring_back, counters, hold_back, nothing_left
from hosts import World, until

STORM, WELL = 60, 10


def put_flows(world: World) -> None:
    """``ill``: ``a``, then ``n``, which fails four times and then succeeds. ``well``: ``n`` alone, which does not."""
    file = str(world.folder / "lines")
    world.chain(
        "ill",
        {"type": "mock", "id": "a", "value": 1},
        {"type": "t_noted", "id": "n", "file": file, "fails": 4},
    )
    world.chain("well", {"type": "t_noted", "id": "n", "file": file})


def ran(world: World) -> list[str]:
    """The executions in the order in which their node ``n`` was run."""
    return [line.split()[0] for line in (world.folder / "lines").read_text().splitlines()]


def all_is_well(world: World, ill: list[str], well: list[str]) -> None:
    """Each was tried as often as it had to be, and nothing is left of it."""
    for execution in ill + well:
        assert world.wait(execution)["status"] == "completed"
    assert Counter(ran(world)) == dict.fromkeys(ill, 5) | dict.fromkeys(well, 1)
    assert all(counters(world, execution) == {} for execution in ill)
    nothing_left(world)
    assert world.stats().dlq_length == 0


def test_S10_a_retry_storm_holds_up_nobody(world: World) -> None:
    put_flows(world)
    supervisor = world.serving(**PATIENT, executors=2)
    ill = [world.start("ill") for _ in range(STORM)]
    hold_back(world, *ill)  # for centuries: what ends meanwhile has waited for none of them
    supervisor.wait_status(lambda s: all(row["state"] == "idle" for row in s["executors"]), "idle executors")
    well = [world.start("well") for _ in range(WELL)]
    for execution in well:
        assert world.wait(execution)["status"] == "completed"
    assert world.stats().delayed == STORM

    # All of them due at once, before the next starts: these get their turns all the same.
    supervisor.ask("pause")
    bring_back(world)
    until(lambda: world.stats().streams[1].length == STORM, "all copies in the stream")
    later = [world.start("well") for _ in range(WELL)]
    before = len(ran(world))
    supervisor.ask("resume")
    for execution in later:
        assert world.wait(execution)["status"] == "completed"
    order = ran(world)[before:]
    places = [order.index(execution) + 1 for execution in later]
    # Every fourth place; two run side by side, and may write their lines in another order.
    assert all(place <= 4 * number + 6 for number, place in enumerate(places, 1)), places

    def over() -> bool:
        bring_back(world)
        return world.stats().delayed == 0 and all(one.length == 0 for one in world.stats().streams)

    until(over, "the end of the storm")
    all_is_well(world, ill, well + later)


@pytest.mark.long
def test_S10_a_retry_storm_of_a_thousand(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """With the real waits, 15 s for each. Prints how long an execution that is well takes before and in the storm."""
    put_flows(world)
    world.serving(**PATIENT, executors=2)
    well: list[str] = []

    def timed() -> float:
        began = time.perf_counter()
        well.append(world.start("well"))
        world.wait(well[-1])
        return (time.perf_counter() - began) * 1000

    alone = [timed() for _ in range(100)]
    began = time.perf_counter()
    ill = [world.start("ill") for _ in range(1000)]
    # What is started now stands behind a thousand starts, which is no wait of a retry.
    until(lambda: world.stats().streams[0].length == 0, "the first try of each", seconds=300)
    tried = time.perf_counter() - began
    in_storm = []
    while world.stats().delayed or any(one.length for one in world.stats().streams):
        in_storm.append(timed())
    took = time.perf_counter() - began
    all_is_well(world, ill, well)

    def told(times: list[float]) -> str:
        ordered = sorted(times)
        at = {f"p{percent}": ordered[len(ordered) * percent // 100] for percent in (50, 95, 99)}
        words = " ".join(f"{name} {value:.1f} ms" for name, value in at.items())
        return f"{words}, max {ordered[-1]:.1f} ms, mean {statistics.fmean(ordered):.1f} ms (n={len(ordered)})"

    with capsys.disabled():
        print("\nretry storm: 1000 executions that fail four times, 2 executors:", end=" ")
        print(f"all tried once after {tried:.1f} s, over after {took:.1f} s")
        print(f"  one that is well, alone:        {told(alone)}")
        print(f"  one that is well, in the storm: {told(in_storm)}")
