"""Quota and status of the tenant in library mode: the same dispatch, so the same ends (ledger T2, T3)."""

from __future__ import annotations

import pytest
from library_world import Gate, World, until

from plaita.client import upkeep
from plaita.errors import RefusedError
from plaita.store import executions, tenants

DAY_MS = 86_400_000


def parked(world: World) -> int:
    [facts] = world.do(tenants.snapshot(world.keys, [world.keys.tenant])).tenants
    return facts.parked


def statuses(world: World, ids: list[str]) -> list[str | None]:
    return world.do(executions.status_of(world.keys, ids))


def test_T3_over_quota_an_execution_waits_and_a_direct_call_with_it(world: World) -> None:
    name = world.gate("gated")
    world.put("f", {"type": "assignment", "id": "m", "output": "$INPUT.n"})
    world.do(tenants.set_quota(world.keys, 1))
    worker = world.running()
    first = world.client.start("gated").execution_id
    assert Gate.running[name].wait(60)
    started = [world.client.start("f", {"n": number}).execution_id for number in range(3)]
    called = world.background(worker.start_flow, "f", {"n": 4})
    until(lambda: parked(world) == 4, "all wait")
    assert statuses(world, started) == ["pending"] * 3
    assert not called
    Gate.go_on[name].set()
    assert {row["status"] for row in world.client.wait_all([first, *started], timeout=60)} == {"completed"}
    until(lambda: called, "the direct call")
    assert called["answer"]["status"] == "completed"
    until(lambda: parked(world) == 0 and world.lengths() == (0, 0, 0), "an empty queue")


def test_T2_a_disabled_tenant_is_refused_and_what_runs_is_let_go(world: World) -> None:
    name = world.gate("gated")
    worker = world.running()
    called = world.background(worker.start_flow, "gated", execution_id="e")
    assert Gate.running[name].wait(60)
    world.do(tenants.set_status(world.keys, "disabled"))
    with pytest.raises(RefusedError) as refused:
        worker.start_flow("gated")
    assert refused.value.reason == "tenant_disabled"
    held = worker._host._keeper.held  # type: ignore[union-attr]
    until(lambda: all(one.tenant_shut for one in held), "the worker saw it")
    Gate.go_on[name].set()
    until(lambda: called, "the direct call")
    assert called["error"].reason == "tenant_disabled"
    row = world.row("e")
    assert (row.status, row.lease, "gate" in row.results, "m" in row.results) == ("running", None, True, False)
    assert world.lengths() == (0, 0, 0)
    world.do(tenants.set_status(world.keys, "active"))
    assert world.client.perform(upkeep.reindex(world.keys, DAY_MS, requeue=True))["requeued"] == 1
    assert world.client.wait("e", timeout=60)["status"] == "completed"
