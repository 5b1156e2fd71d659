"""Nobody waits for ever while others come in without a pause: starts beside wake-ups, what lies idle beside both."""

from __future__ import annotations

import threading
from pathlib import Path

from hosts import World, until

from plaita import jsontext
from plaita.policy.carrier import resume_payload, routing_fields
from plaita.store import carriers
from plaita.store.call import Call
from plaita.store.carriers import Take

PATIENT = {"lease_ttl_seconds": 600, "claim_min_idle_ms": 600_000, "preload": "trouble"}
WAKES, STARTS = 24, 6


def ran(file: Path) -> list[str]:
    """The executions in the order in which their node was run."""
    return [line.split()[0] for line in file.read_text().splitlines()]


def as_wakes(world: World, executions: list[str]) -> None:
    """What is to start these goes on from now on as wake-ups, as retry copies are."""
    world.do(
        Call("test.del", None, (world.keys.queue,), ("DEL", world.keys.queue), "writer", True, lambda reply: reply)
    )
    for execution in executions:
        payload = resume_payload(
            execution_id=execution, flow_id="f", resume_type="continue", tenant_id="default", timestamp=""
        )
        fields = routing_fields(execution_id=execution, tenant_id="default", flow_id="f")
        world.do(carriers.enqueue(world.keys, "w", [("payload", payload), *fields.items()]))


def test_starts_have_their_turn_beside_a_backlog_of_wake_ups(world: World) -> None:
    file = world.folder / "lines"
    world.chain("f", {"type": "t_line", "id": "n", "file": str(file)})
    wakes = [world.start("f") for _ in range(WAKES)]
    as_wakes(world, wakes)
    starts = [world.start("f") for _ in range(STARTS)]
    world.serving(**PATIENT, executors=1)
    for execution in wakes + starts:
        assert world.wait(execution)["status"] == "completed"
    order = ran(file)
    places = [order.index(execution) + 1 for execution in starts]
    assert places == [4 * (number + 1) for number in range(STARTS)]  # the rest of the places are wake-ups
    assert [one for one in order if one in set(wakes)] == wakes


def test_Q2_what_lies_idle_is_reclaimed_while_new_work_never_stops(world: World) -> None:
    file = world.folder / "lines"
    world.chain("f", {"type": "t_line", "id": "n", "file": str(file)})
    abandoned = world.start("f")
    taken = world.do(carriers.take(world.keys, Take("gone", 1, 600_000, "gone/0")))
    assert world.do(carriers.release(world.keys, "gone", "q", taken.entries[0].entry_id))
    enough = threading.Event()

    def keep_coming() -> None:
        while not enough.wait(0.02):
            world.start("f")

    coming = threading.Thread(target=keep_coming)
    coming.start()
    world.serving(**PATIENT)
    try:
        until(lambda: file.exists() and abandoned in ran(file), "what was abandoned")
    finally:
        enough.set()
        coming.join()
    assert world.wait(abandoned)["status"] == "completed"
    assert jsontext.loads(world.row(abandoned).results["n"]) == 1
