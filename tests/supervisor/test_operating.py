"""What operators do, with supervisors at work: replays, resumes, removed flows, lost streams (D4, D5, S3, S13)."""

from __future__ import annotations

import json
from typing import Any

from hosts import World, until

from plaita.client import Manner, Wanted, operations, upkeep
from plaita.store import carriers
from plaita.store.call import Call

PATIENT = {"lease_ttl_seconds": 600, "claim_min_idle_ms": 600_000, "preload": "waiting"}
ALL = Wanted(everything=True)
AT_ONCE = Manner(rate=0.0)


def letters(world: World) -> list[dict[str, Any]]:
    """All dead letters, the oldest first, whole."""
    return [
        world.client.perform(operations.get_dead_letter(world.keys, one["dlq_id"]))
        for one in reversed(world.client.dead_letters())
    ]


def do(world: World, *words: str | int) -> Any:
    call: Call[Any] = Call("test", None, (), words, "writer", False, lambda reply: reply)
    return world.do(call)


def foreign_start(world: World, flow_id: str, schema_version: int = 1, **said: Any) -> None:
    """A start as another producer leaves it: no id, no fields beside the payload."""
    payload = json.dumps({"type": "start", "flow_id": flow_id, "params": {"n": 7}, "tenant_id": "default", **said})
    fields = [("payload", payload.encode()), ("schema_version", str(schema_version))]
    world.do(carriers.enqueue(world.keys, "q", fields))


def executions(world: World) -> dict[str, Any]:
    return world.client.perform(operations.list_executions(world.keys, None, None, 9))


def completed(world: World, execution_id: str) -> None:
    """A retry is on its way: until a supervisor takes it up, the row is what it was."""
    until(lambda: world.get(execution_id)["status"] == "completed", "the end")


def failing(world: World) -> None:
    world.chain(
        "f", {"type": "t_fail_until", "id": "n", "file": str(world.folder / "fixed"), "log": str(world.folder / "log")}
    )


def calls(world: World) -> int:
    return len((world.folder / "log").read_text().splitlines())


def test_D5_S13_replays_with_the_fault_unfixed_end_at_the_limit_with_one_letter_a_failed_run(world: World) -> None:
    failing(world)
    world.serving(**PATIENT, max_deliveries=1)
    execution = world.start("f")
    assert world.wait(execution)["status"] == "error"
    for failed_runs in (1, 2):
        newest = letters(world)[-1]
        done = world.client.replay_dead_letters(Wanted([newest["dlq_id"]]), AT_ONCE)
        assert (done["entries"][0]["outcome"], done["entries"][0]["enqueued_as"]) == ("replayed", "retry")
        until(lambda wanted=failed_runs + 1: len(letters(world)) == wanted, "the letter of the next failed run")
        assert world.wait(execution)["status"] == "error"
    key = world.keys.of_execution("g1wakeups", execution)
    newest = letters(world)[-1]
    for manner in (AT_ONCE, Manner(force=True, rate=0.0)):
        [entry] = world.client.replay_dead_letters(Wanted([newest["dlq_id"]]), manner)["entries"]
        assert (entry["outcome"], entry["detail"]) == ("g1_wakeups_exhausted", key)
    assert calls(world) == 3
    assert [one.get("replay_count") for one in letters(world)] == [None, "1", "2"]
    assert {one["execution_id"] for one in letters(world)} == {execution}
    assert world.client.resume(execution, "retry")["counter_key"] == key

    do(world, "DEL", key)
    (world.folder / "fixed").touch()
    [entry] = world.client.replay_dead_letters(Wanted([newest["dlq_id"]]), AT_ONCE)["entries"]
    assert entry["outcome"] == "replayed"
    completed(world, execution)
    assert calls(world) == 4
    assert world.client.replay_dead_letters(ALL, AT_ONCE)["outcomes"] == {"already_replayed": 3}
    assert world.get(execution)["status"] == "completed"


def test_D5_a_start_without_an_id_is_one_execution_however_often_it_is_replayed(world: World) -> None:
    world.serving(**PATIENT)
    foreign_start(world, "late")
    until(lambda: letters(world), "the letter")
    [letter] = letters(world)
    assert letter["cause"] == "no_flow"
    wanted = Wanted([letter["dlq_id"]])
    assert world.client.replay_dead_letters(wanted, AT_ONCE)["outcomes"] == {"no_flow": 1}
    assert len(letters(world)) == 1, "reported and kept"
    world.chain("late", {"type": "mock", "id": "m"})
    assert world.client.replay_dead_letters(wanted, AT_ONCE)["outcomes"] == {"replayed": 1}
    [row] = until(
        lambda: world.client.perform(operations.list_executions(world.keys, None, None, 9))["executions"], "it"
    )
    found = world.wait(row["execution_id"])
    assert (found["status"], found["input"]) == ("completed", {"n": 7})
    again = world.client.replay_dead_letters(wanted, Manner(force=True, rate=0.0))
    assert again["outcomes"] == {"already_terminal": 1}
    assert [one["execution_id"] for one in executions(world)["executions"]] == [row["execution_id"]]


def test_Q6_D5_a_newer_schema_stays_a_letter(world: World) -> None:
    world.chain("f", {"type": "mock", "id": "m"})
    world.serving(**PATIENT)
    foreign_start(world, "f", schema_version=99)
    until(lambda: letters(world), "the letter")
    done = world.client.replay_dead_letters(ALL, AT_ONCE)
    assert (done["outcomes"], done["replayed"]) == ({"schema_too_new": 1}, 0)
    assert [one.length for one in world.stats().streams] == [0, 0]
    assert executions(world)["total"] == 0


def test_S3_retry_and_event_by_the_client(world: World) -> None:
    failing(world)
    world.chain("w", {"type": "t_wait", "id": "w", "file": str(world.folder / "entries")})
    world.serving(**PATIENT, max_deliveries=1)
    failed, waits = world.start("f"), world.start("w")
    assert world.wait(failed)["status"] == "error"
    (world.folder / "fixed").touch()
    assert world.client.resume(failed, "retry")["resumed"] is True
    completed(world, failed)
    assert world.client.resume(failed, "retry")["already_terminal"] is True

    until(lambda: world.get(waits)["status"] == "suspended", "the wait")
    waiting = world.get(waits)["waiting"]
    assert (waiting["event_type"], waiting["node_id"], waiting["deadline"]) == ("go", "w", None)
    assert world.client.resume(waits, "continue")["already_suspended"] is True
    assert world.client.resume(waits, "event", {"paid": True})["resumed"] is True
    done = world.wait(waits)
    assert (done["status"], done["output"]["w"]["event_data"]) == ("completed", {"paid": True})
    assert done["waiting"] is None


def test_S8_a_wait_that_is_cancelled_is_stopped_with_its_reason(world: World) -> None:
    world.chain("w", {"type": "t_wait", "id": "w", "file": str(world.folder / "entries")})
    world.serving(**PATIENT)
    execution = world.start("w")
    until(lambda: world.get(execution)["status"] == "suspended", "the wait")
    assert world.client.cancel(execution, "not needed")["cancel"] == "requested"
    found = world.wait(execution)
    assert found["status"] == "cancelled"
    assert (found["cancel"]["state"], found["cancel"]["reason"]) == ("stopped", "not needed")


def test_D14_a_removed_flow_is_finished_by_all_that_wait_in_it(world: World) -> None:
    world.chain("w", {"type": "t_wait", "id": "w", "file": str(world.folder / "entries")}, {"type": "mock", "id": "m"})
    world.serving(**PATIENT)
    waiting = [world.start("w") for _ in range(3)]
    for execution in waiting:
        until(lambda one=execution: world.get(one)["status"] == "suspended", "the wait")
    assert world.client.perform(operations.remove_flow(world.keys, "w")) == {
        "flow_id": "w",
        "versions_removed": 1,
        "executions_going_on": 3,
    }
    for execution in waiting:
        assert world.client.resume(execution, "event")["resumed"] is True
    assert [one["status"] for one in world.client.wait_all(waiting, 60)] == ["completed"] * 3


def test_D4_what_the_streams_lost_goes_on_after_reindex_requeue(world: World) -> None:
    world.chain("f", {"type": "mock", "id": "m"})
    started = [world.start("f", {"n": n}) for n in range(5)]
    do(world, "DEL", world.keys.queue, world.keys.wake)
    do(world, "DEL", world.keys.index())
    done = world.client.perform(upkeep.reindex(world.keys, 0, requeue=True))
    assert (done["indexed"], done["requeued"], sorted(done["executions"])) == (5, 5, sorted(started))
    world.serving(**PATIENT)
    found = world.client.wait_all(started, 60)
    assert [(one["status"], one["input"]) for one in found] == [("completed", {"n": n}) for n in range(5)]
    assert world.client.perform(upkeep.reindex(world.keys, 0, requeue=True))["requeued"] == 0


def test_D6_reap_leaves_alone_what_a_supervisor_runs(world: World) -> None:
    world.chain("s", {"type": "t_wait", "id": "w", "file": str(world.folder / "entries"), "hang": "execute"})
    supervisor = world.serving(**PATIENT)
    execution = world.start("s")
    supervisor.busy("w")  # the step before it is saved: nothing writes the time until the next heartbeat
    do(world, "HSET", world.keys.row(execution), "last_update_time", "1764490800000")
    found = world.client.perform(upkeep.reap(world.keys, 1, 0))
    assert (found["outcomes"], world.get(execution)["status"]) == ({"leased": 1}, "running")
