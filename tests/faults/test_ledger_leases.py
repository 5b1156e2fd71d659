"""Leases between real supervisors, a row of the ledger each (L1-L7; DECISIONS 3, 9, "Not now").

Leases and min-idle of 10 minutes unless a test says otherwise: nothing goes on because one has run out.
"""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import pytest
from fault_load import NODE_FOLDERS
from hosts import SupervisorProcess, World, until

from plaita import jsontext
from plaita.policy.carrier import resume_payload
from plaita.store import carriers
from plaita.testing.server import Server, raw


def serve(world: World, instance: str, **named: Any) -> SupervisorProcess:
    flags = {"preload": "trouble", "lease_ttl_seconds": 600, "claim_min_idle_ms": 600_000, "executors": 1}
    flags |= {"drain_timeout": 0} | named
    return world.serving(instance=instance, **flags)


def long_step(world: World, seconds: float = 600.0) -> str:
    """An execution whose step ``a`` takes so long; each time it runs it adds a line."""
    world.chain("f", {"type": "t_line", "id": "a", "file": str(world.folder / "lines"), "seconds": seconds})
    return world.start("f")


def lines(world: World) -> list[str]:
    file = world.folder / "lines"
    return file.read_text().splitlines() if file.exists() else []


def another_carrier(world: World, execution_id: str, resume_type: str) -> str:
    """A second carrier for an execution that has one; its entry id."""
    payload = resume_payload(
        execution_id=execution_id, flow_id="f", resume_type=resume_type, tenant_id="default", timestamp=""
    )
    fields = [("payload", payload), ("schema_version", "1"), ("execution_id", execution_id), ("tenant_id", "default")]
    return world.do(carriers.enqueue(world.keys, "w", fields))


def pending(world: World, stream: str) -> list[str]:
    found = world.do(raw("XPENDING", world.keys.stream(stream), world.keys.group, "-", "+", 100))
    return [entry[0].decode() for entry in found]


def conflict(supervisor: SupervisorProcess, entry_id: str) -> dict[str, Any]:
    """How this supervisor judged the carrier; waits until it has."""

    def look() -> dict[str, Any] | None:
        for line in supervisor.text().splitlines():
            if "lease.conflict" in line and entry_id in line:
                return {"line": line}
        return None

    return until(look, f"a judgement of {entry_id}:\n{supervisor.text()[-3000:]}")


def test_L1_L5_L6_a_second_carrier_runs_nothing_and_is_acked_with_a_warning(world: World) -> None:
    one = serve(world, "one")
    execution = long_step(world)
    one.busy("a")
    two = serve(world, "two")
    entry_id = another_carrier(world, execution, "continue")
    conflict(two, entry_id)
    until(lambda: entry_id not in pending(world, "w"), "the duplicate's ack")
    assert "resume.no_effect" in two.text()
    assert two.ask("status")["counters"]["lease_conflicts"] == 1
    assert len(pending(world, "q")) == 1  # the holder's own
    assert len(lines(world)) == 1


@pytest.mark.parametrize("resume_type", ["event", "timeout", "cancel"])
def test_L5_what_may_be_the_only_thing_to_wake_somebody_is_never_acked(world: World, resume_type: str) -> None:
    one = serve(world, "one")
    execution = long_step(world)
    one.busy("a")
    two = serve(world, "two")
    entry_id = another_carrier(world, execution, resume_type)
    assert "leave pending" in conflict(two, entry_id)["line"]
    assert pending(world, "w") == [entry_id]


def draining_holder(world: World) -> tuple[SupervisorProcess, str]:
    """An execution held by ``one``, which is draining and stays."""
    one = serve(world, "one", drain_timeout=600)
    execution = long_step(world)
    one.busy("a")
    one.ask("drain")
    one.wait_status(lambda status: status["status"] == "draining", "draining")
    return one, execution


def test_L5_a_holder_that_is_draining_makes_no_duplicate(world: World) -> None:
    one, execution = draining_holder(world)
    two = serve(world, "two")
    entry_id = another_carrier(world, execution, "continue")
    assert "leave pending" in conflict(two, entry_id)["line"]
    assert pending(world, "w") == [entry_id]
    one.kill()


def test_L5_with_holder_liveness_disabled_its_duplicate_is_acked(world: World) -> None:
    one, execution = draining_holder(world)
    two = serve(world, "two", environment={"PLAITA_DISABLE_HOLDER_LIVENESS": "1"})
    assert "PLAITA_DISABLE_HOLDER_LIVENESS: on; this weakens what plaita promises" in two.text()
    entry_id = another_carrier(world, execution, "continue")
    assert "leave pending" not in conflict(two, entry_id)["line"]
    until(lambda: entry_id not in pending(world, "w"), "the duplicate's ack")
    assert len(pending(world, "q")) == 1
    one.kill()


def test_L2_a_save_under_an_old_token_is_refused_and_acks_nothing(world: World) -> None:
    one = serve(world, "one", claim_min_idle_ms=500)
    execution = long_step(world, seconds=1.0)
    one.busy("a")
    world.do(raw("SET", world.keys.fence(execution), "99:another"))
    one.wait_status(lambda status: status["counters"]["refused_writes"] == 1, "the refusal")
    row = world.row(execution)
    assert (row.status, row.control["next_node"], set(row.results)) == ("running", "a", {"start"})
    assert len(pending(world, "q")) == 1
    world.do(raw("DEL", world.keys.lease(execution)))  # as if its time were over
    assert world.wait(execution)["status"] == "completed"
    assert len(lines(world)) == 2


@pytest.mark.long
def test_L3_leases_are_renewed_while_a_step_outlasts_them(world: World) -> None:
    one = serve(world, "one", lease_ttl_seconds=5, claim_min_idle_ms=500)
    two = serve(world, "two", lease_ttl_seconds=5, claim_min_idle_ms=500)
    execution = long_step(world, seconds=8.0)
    assert world.wait(execution)["status"] == "completed"
    assert len(lines(world)) == 1
    for supervisor in (one, two):
        assert supervisor.ask("status")["counters"]["leases_lost"] == 0


def test_L3_with_the_watchdog_disabled_a_step_outlives_its_lease(world: World) -> None:
    one = serve(world, "one", lease_ttl_seconds=5, environment={"PLAITA_DISABLE_LEASE_WATCHDOG": "1"})
    assert "PLAITA_DISABLE_LEASE_WATCHDOG: on; this weakens what plaita promises" in one.text()
    execution = long_step(world, seconds=9.0)
    pid = one.busy("a")["pid"]
    until(lambda: world.row(execution).lease is None, "the lease's end")
    assert one.busy("a")["pid"] == pid
    assert world.wait(execution)["status"] == "completed"  # nobody took it, so the save took the lease back
    assert len(lines(world)) == 1


@pytest.mark.long
def test_L3_with_the_watchdog_disabled_what_another_has_taken_is_not_overwritten(world: World) -> None:
    one = serve(world, "one", lease_ttl_seconds=5, environment={"PLAITA_DISABLE_LEASE_WATCHDOG": "1"})
    execution = long_step(world, seconds=9.0)
    one.busy("a")
    until(lambda: world.row(execution).lease is None, "the lease's end")
    two = serve(world, "two", claim_min_idle_ms=500)
    two.busy("a")
    assert world.wait(execution)["status"] == "completed"
    assert world.get(execution)["holder"] is None
    assert len(lines(world)) == 2
    assert one.ask("status")["counters"]["refused_writes"] == 1


def test_L4_a_long_first_step_is_named_before_anything_is_committed(world: World) -> None:
    step = {"type": "t_line", "id": "a", "file": str(world.folder / "lines"), "seconds": 600, "next": "end"}
    world.put("f", [step, {"type": "end", "id": "end"}])
    serve(world, "one", lease_ttl_seconds=5)
    execution = world.start("f")

    def running() -> dict[str, Any] | None:
        found = [node for node in world.get(execution)["nodes"] if node["id"] == "a"]
        return found[0] if found else None

    node = until(running, "the node in show")
    assert (node["status"], node["ended_at"], node["type"]) == ("running", None, "t_line")
    assert node["started_at"] is not None
    assert world.row(execution).control.get("step") is None
    seen: set[str] = set()

    def beats() -> bool:
        seen.add(world.get(execution)["last_update_time"])
        return len(seen) >= 3

    until(beats, "a heartbeat with each renewal")
    assert world.node(execution, "a") == node


def test_L4_failed_attempts_are_still_counted_after_a_heartbeat(world: World) -> None:
    """The record of an open node is written over by the heartbeat of its next attempt."""
    one = serve(world, "one", lease_ttl_seconds=5, preload="lapsing", environment={"PYTHONPATH": NODE_FOLDERS})
    file = world.folder / "lines"
    world.chain("f", {"type": "f_once_then_long", "id": "a", "file": str(file), "seconds": 600})
    execution = world.start("f")

    def beaten() -> bool:
        node = world.node(execution, "a") if len(lines(world)) == 2 else {}
        return (node.get("status"), node.get("attempts")) == ("running", 2)

    until(beaten, "the heartbeat of the second attempt")
    timing = jsontext.loads(world.row(execution).timings["a"])
    assert timing["failures"] == 1
    os.kill(one.busy("a")["pid"], 9)
    until(lambda: len(lines(world)) == 3, "the third attempt")
    assert [line.split()[2] for line in lines(world)] == ["1", "2", "3"]


def test_DECISIONS_9_an_answer_finished_in_an_outage_longer_than_the_lease_is_committed_once_it_is_over(
    own_server: Server, own_world: World
) -> None:
    world = own_world
    one = serve(world, "one", lease_ttl_seconds=5)
    line = {"type": "t_line", "file": str(world.folder / "lines")}
    enough = world.folder / "enough"
    world.chain("f", {**line, "id": "a", "until": str(enough)}, {**line, "id": "b"})
    execution = world.start("f")
    one.busy("a")
    os.kill(own_server.pid, signal.SIGSTOP)
    enough.touch()
    until(lambda: not any(row["node_id"] == "a" and row["step_s"] is not None for row in one.executors()), "a's end")
    time.sleep(6)  # longer than the lease: its end is what this is about
    os.kill(own_server.pid, signal.SIGCONT)
    assert world.wait(execution)["status"] == "completed"
    assert [text.split()[1:3] for text in lines(world)] == [["a", "1"], ["b", "1"]]
    assert world.row(execution).control["attempts"] == "1"  # it was never handed out again
    assert one.ask("status")["counters"]["answers_resent"] > 0


def test_L7_a_dead_executors_step_is_run_again_at_once(world: World) -> None:
    one = serve(world, "one", executors=2)
    execution = long_step(world)
    until(lambda: len(lines(world)) == 1, "the step")
    os.kill(one.busy("a")["pid"], 9)
    until(lambda: len(lines(world)) == 2, "the step again, long before lease or min-idle")
    assert world.row(execution).control["lost"] == "2"
