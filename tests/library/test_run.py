"""``run``, ``request_drain`` and ``stop``: the queue, the drain, what is left behind (ledger R7, G2)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from library_world import Gate, World, until

from plaita.errors import RefusedError
from plaita.store import registry


def status(world: World, worker_id: str) -> str:
    found = world.do(registry.get(world.keys, worker_id))
    return "" if found is None else str(json.loads(found.record)["status"])


def test_it_takes_from_the_queue_until_it_is_stopped(world: World) -> None:
    world.put("f", {"type": "assignment", "id": "m", "output": "$INPUT.n"})
    worker = world.worker()
    came = world.background(worker.run)
    started = [world.client.start("f", {"n": number}).execution_id for number in range(10)]
    assert {row["status"] for row in world.client.wait_all(started, timeout=60)} == {"completed"}
    assert status(world, worker.instance_id) == "running"
    assert not came
    worker.stop()
    until(lambda: came, "the end of run")
    assert came == {"answer": None}
    assert status(world, worker.instance_id) in ("stopped", "")
    assert world.lengths() == (0, 0, 0)
    assert world.raw("XINFO", "CONSUMERS", world.keys.queue, "g") == []
    for call in (worker.run, lambda: worker.start_flow("f")):
        with pytest.raises(RefusedError, match="stopped"):
            call()


def test_G3_without_an_entry_it_works_and_gets_one_when_redis_takes_it(world: World) -> None:
    world.put("f", {"type": "assignment", "id": "m", "output": 1})
    worker = world.worker()
    key = world.keys.instance(worker.instance_id)
    world.raw("LPUSH", key, "not a record")
    world.background(worker.run)
    started = world.client.start("f").execution_id
    assert world.client.wait(started, timeout=60)["status"] == "completed"
    world.raw("DEL", key)
    until(lambda: status(world, worker.instance_id) == "running", "an entry")
    worker.stop()
    until(lambda: status(world, worker.instance_id) in ("stopped", ""), "its end")


def test_waits_timers_and_retries_go_through_the_queue_too(world: World) -> None:
    handler = {"strategy": "continue-with", "defaultValue": "late"}
    wait = {"type": "t_waits", "id": "w", "subscription_timeout": 0.2, "timeoutHandler": handler}
    world.put("f", wait, {"type": "t_fails", "id": "x", "name_of": world.keys.prefix})
    world.running()
    row = world.client.wait(world.client.start("f").execution_id, timeout=60)
    assert (row["output"]["w"], row["output"]["x"]) == ("late", 2)


def test_R7_running_work_is_waited_for_before_leases_and_registry_go(world: World) -> None:
    name = world.gate("f")
    worker = world.worker()
    came = world.background(worker.run)
    execution = world.client.start("f").execution_id
    assert Gate.running[name].wait(60)
    stopping = world.background(worker.stop, True)
    until(lambda: status(world, worker.instance_id) == "draining", "draining in the registry")
    assert world.row(execution).lease is not None
    assert not came
    assert not stopping
    Gate.go_on[name].set()
    until(lambda: came and stopping, "the end")
    assert came == stopping == {"answer": None}
    row = world.row(execution)
    assert (row.status, row.control["last_node"], row.lease) == ("running", "gate", None)
    assert row.control["lost"] == "0"  # handed on after its step, which costs nothing (DECISIONS 5, 7)
    assert status(world, worker.instance_id) in ("stopped", "")
    world.running()
    assert world.client.wait(execution, timeout=60)["status"] == "completed"


def test_R7_the_wait_is_bounded_and_what_does_not_end_is_given_up_and_handed_on(world: World) -> None:
    name = world.gate("f", heeds=False)
    worker = world.worker(drain_timeout=1)
    came = world.background(worker.run)
    execution = world.client.start("f").execution_id
    assert Gate.running[name].wait(60)
    worker.stop()
    until(lambda: came, "the end of run")
    assert not Gate.left[name].is_set()
    row = world.row(execution)
    assert (row.status, row.control["last_node"], row.lease) == ("running", "start", None)
    Gate.go_on[name].set()
    assert Gate.left[name].wait(60)
    assert world.row(execution) == row  # what the thread came to is nobody's
    world.running()
    assert world.client.wait(execution, timeout=60)["status"] == "completed"


def test_without_waiting_a_step_is_told_at_once(world: World) -> None:
    name = world.gate("f")
    worker = world.worker()
    came = world.background(worker.run, wait_for_inflight=False)
    execution = world.client.start("f").execution_id
    assert Gate.running[name].wait(60)
    worker.stop(wait=False)
    until(lambda: came, "the end of run")
    assert Gate.left[name].wait(60)
    assert world.row(execution).status == "running"


def test_a_drain_ends_run_and_takes_nothing_more(world: World) -> None:
    name = world.gate("f")
    worker = world.worker(concurrency=1)
    came = world.background(worker.run)
    first = world.client.start("f").execution_id
    assert Gate.running[name].wait(60)
    second = world.client.start("f").execution_id
    worker.request_drain()
    until(lambda: status(world, worker.instance_id) == "draining", "draining in the registry")
    with pytest.raises(RefusedError, match=r"draining|stopped"):
        worker.start_flow("f")
    Gate.go_on[name].set()
    until(lambda: came, "the end of run")
    assert world.row(first).control["last_node"] == "gate"
    assert world.row(second).status == "pending"
    assert world.lengths()[0] == 2


def test_a_drained_direct_call_answers_what_it_came_to(world: World) -> None:
    name = world.gate("f")
    worker = world.worker()
    came = world.background(worker.start_flow, "f", execution_id="e")
    assert Gate.running[name].wait(60)
    worker.request_drain()
    Gate.go_on[name].set()
    until(lambda: came, "the answer")
    assert (came["answer"]["status"], came["answer"]["last_node_id"]) == ("running", "gate")
    worker.stop()
    assert world.worker().resume_flow("e")["status"] == "completed"


def test_a_stop_answers_calls_that_are_under_way(world: World) -> None:
    name = world.gate("f", heeds=False)
    worker = world.worker(drain_timeout=1)
    came = world.background(worker.start_flow, "f", execution_id="e")
    assert Gate.running[name].wait(60)
    worker.stop()
    until(lambda: came, "the answer")
    assert came["answer"]["status"] == "running"


def test_a_stop_before_anything_was_done_is_fine(world: World) -> None:
    worker = world.worker()
    worker.stop()
    worker.stop()
    worker.request_drain()
    with pytest.raises(RefusedError, match="stopped"):
        worker.run()


def test_two_workers_share_a_queue(world: World) -> None:
    world.put("f", {"type": "mock", "id": "m"})
    for _ in range(2):
        world.running(concurrency=2)
    started = [world.client.start("f").execution_id for _ in range(40)]
    rows = world.client.wait_all(started, timeout=60)
    assert {row["status"] for row in rows} == {"completed"}
    assert {row["attempts"] for row in rows} == {1}


def test_beside_another_that_takes_from_the_queue_a_direct_call_runs_once_and_is_answered(world: World) -> None:
    """Its carrier is in the queue all the while, so that others go on with it if this process dies; one of the two
    runs it, here or there."""
    name = world.gate("f")
    other = world.running(claim_min_idle_ms=1000)
    until(lambda: status(world, other.instance_id) == "running", "the other")
    worker = world.worker()
    came = world.background(worker.start_flow, "f", execution_id="e")
    assert Gate.running[name].wait(60)
    until(lambda: other.stats["broadcast"] + other.stats["lease_conflicts"] > 0, "the other has met the carrier")
    lease = world.row("e").lease or ""
    assert any(f" {one.instance_id}/" in lease for one in (worker, other))
    Gate.go_on[name].set()
    until(lambda: came, "the answer")
    assert came["answer"]["status"] == "completed"
    assert world.row("e").control["attempts"] == "1"
    until(lambda: world.lengths() == (0, 0, 0), "nothing is left in the queue")


HOLDS = """
import sys
sys.path.insert(0, sys.argv[1])
from library_world import Gate, types
from plaita.server import FlowWorker
from plaita.storage import RedisExecutionStorage, RedisFlowStorage
url, prefix, queue, name = sys.argv[2:]
Gate.prepare_gate(name)
storages = RedisExecutionStorage(url, key_prefix=prefix), RedisFlowStorage(url, key_prefix=prefix)
settings = {"queue_name": queue, "consumer_group": "g", "lease_ttl_seconds": 5}
FlowWorker(*storages, registry=types(), **settings).start_flow("f", execution_id="e")
"""


def test_when_the_process_of_a_direct_call_dies_others_go_on_from_its_checkpoint(world: World) -> None:
    name = world.gate("f")
    arguments = [str(Path(__file__).parent), world.url, world.keys.prefix, world.keys.queue, name]
    process = subprocess.Popen([sys.executable, "-c", HOLDS, *arguments])
    until(lambda: world.executions.list_executions({"status": "running"}), "the execution")
    until(lambda: world.row("e").control.get("last_node") == "start", "its first step")
    process.kill()
    process.wait()
    Gate.go_on[name].set()
    world.running(claim_min_idle_ms=1000, lease_ttl_seconds=5)
    assert world.client.wait("e", timeout=60)["status"] == "completed"
    row = world.row("e")
    assert (row.control["attempts"], row.results["gate"]) == ("2", b"2")
    until(lambda: world.lengths() == (0, 0, 0), "nothing is left in the queue")
