"""Executions that wait, on real supervisors: suspended in one call, woken once, resumed by whoever is there.

Lease and min-idle are ten minutes in most of these: what finishes at all was not waited for (DECISIONS 44).
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hosts import World, until

from plaita import jsontext
from plaita.ids import new_nonce
from plaita.policy.carrier import resume_payload, routing_fields
from plaita.store import carriers, delayed, executions
from plaita.store.call import Call
from plaita.store.executions import Wake

PATIENT = {"lease_ttl_seconds": 600, "claim_min_idle_ms": 600_000, "preload": "waiting"}


def entries(path: Path) -> Counter[str]:
    """How often each entry of the waiting node was called."""
    return Counter(line.split()[0] for line in path.read_text().splitlines()) if path.exists() else Counter()


def waiting_flow(world: World, flow_id: str = "f", **fields: Any) -> Path:
    file = world.folder / "entries"
    world.chain(flow_id, {"type": "t_wait", "id": "w", "file": str(file), **fields}, {"type": "mock", "id": "m"})
    return file


def suspended(world: World, execution_id: str) -> executions.Row:
    until(lambda: world.get(execution_id)["status"] == "suspended", "the wait")
    return world.row(execution_id)


def wake(world: World, execution_id: str, data: Any = None, kind: str = "event") -> executions.Woken:
    request = Wake(
        execution_id=execution_id,
        kind=kind,
        data=jsontext.dumps(data),
        event_id=new_nonce(),
        payload=resume_payload(
            execution_id=execution_id, flow_id="f", resume_type=kind, tenant_id="default", timestamp=""
        ),
        fields=routing_fields(execution_id=execution_id, tenant_id="default", flow_id="f"),
    )
    return world.do(executions.wake(world.keys, request))


def send(world: World, execution_id: str, kind: str, **said: Any) -> None:
    """A carrier of another producer, as it would stand in the stream."""
    payload = resume_payload(
        execution_id=execution_id, flow_id="f", resume_type=kind, tenant_id="default", timestamp="", **said
    )
    world.do(carriers.enqueue(world.keys, "w", [("payload", payload), ("schema_version", "1")]))


def settled(world: World) -> None:
    """Nothing is in the streams, pending or to come."""
    until(lambda: all(one.length == 0 for one in world.stats().streams), "empty streams")


def test_suspend_leaves_row_and_timer_and_nothing_else(world: World) -> None:
    waiting_flow(world, subscriptionTimeout=3600)
    supervisor = world.serving(**PATIENT)
    execution = world.start("f")
    row = suspended(world, execution)
    assert (row.lease, row.control["next_node"], row.control["wait_type"]) == (None, "w", "go")
    assert row.control["wait_correlation"] == execution
    assert jsontext.loads(row.results["w"])["status"] == "pending"
    stats = world.stats()
    assert [(one.length, one.pending) for one in stats.streams] == [(0, 0), (0, 0)]
    assert stats.delayed == 1
    status = supervisor.wait_status(lambda s: all(e["state"] == "idle" for e in s["executors"]), "idle executors")
    assert status["counters"]["suspended"] == 1
    [node] = [one for one in world.get(execution)["nodes"] if one["id"] == "w"]
    assert (node["status"], node["ended_at"]) == ("waiting", None)


def test_S3_an_event_resumes_it_once_with_its_data(world: World) -> None:
    file = waiting_flow(world, subscriptionTimeout=3600)
    world.serving(**PATIENT)
    execution = world.start("f")
    suspended(world, execution)
    first, second = wake(world, execution, {"a": 1}), wake(world, execution, {"a": 2})
    assert (first.woken, second.woken) == (True, False)
    assert second.reason in ("already_woken", "not_waiting", "terminal")  # by how far it is already
    row = world.wait(execution)
    assert row["status"] == "completed"
    result = row["output"]["w"]
    assert (result["status"], result["event_data"]) == ("completed", {"a": 1})
    assert entries(file) == {"execute": 1, "on_event": 1}
    assert world.stats().delayed == 0
    assert wake(world, execution).reason == "terminal"
    control = world.row(execution).control
    assert not any(control.get(name) for name in ("wait", "woken", "wait_deadline"))


def test_S3_a_carrier_of_another_producer_brings_its_data_along(world: World) -> None:
    file = waiting_flow(world)
    world.serving(**PATIENT)
    execution = world.start("f")
    suspended(world, execution)
    event = {"event_id": "e1", "event_type": "go", "event_data": {"a": 1}, "subscription_id": execution}
    send(world, execution, "event", data=event)
    send(world, execution, "event", data={**event, "event_id": "e2", "event_data": {"a": 2}})
    row = world.wait(execution)
    result = row["output"]["w"]
    assert (result["event_data"], result["event_id"]) == ({"a": 1}, "e1")
    settled(world)
    assert entries(file) == {"execute": 1, "on_event": 1}


def test_a_wait_that_nothing_ends_times_out_by_its_own_handler(world: World) -> None:
    file = waiting_flow(
        world, subscriptionTimeout=0.2, timeoutHandler={"strategy": "continue-with", "defaultValue": "late"}
    )
    world.serving(**PATIENT)
    row = world.run("f")
    assert (row["status"], row["output"]["w"]) == ("completed", "late")
    assert entries(file) == {"execute": 1, "on_timeout": 1}


def test_a_wait_that_times_out_without_a_handler_is_an_error(world: World) -> None:
    waiting_flow(world, timeout=200)
    world.serving(**PATIENT)
    row = world.run("f")
    assert (row["status"], row["error"]["code"], row["error"]["failed_node"]) == ("error", -1, "w")


@pytest.mark.parametrize("kind", ["continue", "retry"])
def test_S4_continue_and_retry_leave_a_wait_as_it_is(world: World, kind: str) -> None:
    file = waiting_flow(world)
    world.serving(**PATIENT)
    execution = world.start("f")
    before = suspended(world, execution)
    send(world, execution, kind)
    settled(world)
    after = world.row(execution)
    assert (after.control, after.results, after.lease) == (before.control, before.results, None)
    assert entries(file) == {"execute": 1}


@pytest.mark.parametrize("kind", ["continue", "retry", "cancel"])
def test_S4_with_a_cancel_flag_it_ends_cancelled_with_its_checkpoint(world: World, kind: str) -> None:
    file = waiting_flow(world, subscriptionTimeout=3600)
    world.serving(**PATIENT)
    execution = world.start("f")
    before = suspended(world, execution)
    if kind == "cancel":
        assert world.client.cancel(execution, "no longer needed")["status"] == "suspended"
    else:
        flag(world, execution, "no longer needed")
        send(world, execution, kind)
    row = world.wait(execution)
    assert (row["status"], row["error"]["code"]) == ("cancelled", -4)
    assert world.row(execution).results == before.results
    assert entries(file) == {"execute": 1, "on_cancel": 1}
    assert world.stats().delayed == 0
    settled(world)


def flag(world: World, execution_id: str, reason: str) -> None:
    """The cancel flag alone, as another program may set it."""
    key = world.keys.cancel(execution_id)
    world.do(Call("test.set", None, (key,), ("SET", key, reason), "writer", True, lambda reply: reply))


def test_cancel_of_a_wait_whose_undoing_hangs_or_dies_ends_it_all_the_same(world: World) -> None:
    file = waiting_flow(world, hang="on_cancel")
    world.serving(**PATIENT, kill_grace=1)
    execution = world.start("f")
    suspended(world, execution)
    world.client.cancel(execution)
    assert world.wait(execution)["status"] == "cancelled"
    assert entries(file) == {"execute": 1, "on_cancel": 1}


def test_S6_a_late_event_of_a_wait_that_is_over_goes_on_from_the_checkpoint(world: World) -> None:
    file = waiting_flow(world)
    lines, enough = world.folder / "lines", world.folder / "enough"
    world.chain(
        "f",
        {"type": "t_wait", "id": "w", "file": str(file)},
        {"type": "t_line", "id": "slow", "file": str(lines), "until": str(enough)},
    )
    first = world.serving(**{**PATIENT, "preload": ["waiting", "trouble"]})
    execution = world.start("f")
    suspended(world, execution)
    wake(world, execution, 1)
    first.busy("slow")
    send(world, execution, "event", data={"again": True})  # while it is held: kept pending, L5
    enough.touch()
    row = world.wait(execution)
    assert row["status"] == "completed"
    assert row["output"]["w"]["event_data"] == 1
    assert entries(file) == {"execute": 1, "on_event": 1}
    first.stop()
    second = world.serving(**{**PATIENT, "preload": ["waiting", "trouble"]})
    settled(world)
    assert second.status() is not None


def test_S6_an_event_for_a_running_execution_nobody_holds_continues_it(world: World) -> None:
    file, log = world.folder / "there", world.folder / "log"
    world.chain("f", {"type": "t_fail_until", "id": "n", "file": str(file), "log": str(log)})
    supervisor = world.serving(**PATIENT, max_deliveries=50)
    execution = world.start("f")
    # After four failures its copy is 8 s away: what runs before that came by the event.
    until(lambda: len(log.read_text().splitlines()) >= 4 if log.exists() else False, "four failures")
    until(lambda: world.row(execution).lease is None, "the wait for the next try")
    file.touch()
    send(world, execution, "event", data={"too": "late"})
    assert world.wait(execution)["status"] == "completed"
    status = supervisor.status()
    assert status is not None
    assert status["counters"]["resumes_normalised"] == 1


def test_S7_an_event_for_another_wait_or_before_the_start_changes_nothing(world: World) -> None:
    file = waiting_flow(world)
    pending = world.start("f")
    send(world, pending, "event", data=1)
    world.serving(**PATIENT)
    before = suspended(world, pending)
    send(world, pending, "event", data=1, wait="99")
    settled(world)
    assert world.row(pending).control == before.control
    assert entries(file) == {"execute": 1}


def test_S7_a_resume_that_fails_is_retried_with_the_same_data(world: World) -> None:
    file = waiting_flow(world, fail=2)
    world.serving(**PATIENT)
    execution = world.start("f")
    suspended(world, execution)
    wake(world, execution, {"a": 1})
    row = world.wait(execution)
    assert (row["status"], row["output"]["w"]["event_data"]) == ("completed", {"a": 1})
    assert entries(file) == {"execute": 1, "on_event": 3}


def test_S3_a_resume_that_failed_for_good_is_retried_with_the_same_data_and_key(world: World) -> None:
    """A retry is one more attempt of the same visit: whoever is called knows it again (DECISIONS 22)."""
    file = waiting_flow(world, fail=1)
    world.serving(**PATIENT, max_deliveries=1)
    execution = world.start("f")
    suspended(world, execution)
    wake(world, execution, {"a": 1})
    assert world.wait(execution)["status"] == "error"
    assert world.client.resume(execution, "retry")["resumed"]
    until(lambda: world.get(execution)["status"] == "completed", "the end of the retry")
    assert world.get(execution)["output"]["w"]["event_data"] == {"a": 1}
    lines = [line.split() for line in file.read_text().splitlines()]
    assert [(entry, attempt) for entry, _, attempt, _ in lines] == [
        ("execute", "1"),
        ("on_event", "1"),
        ("on_event", "2"),
    ]
    assert len({key for *_, key in lines}) == 1
    assert world.node(execution, "w")["attempts"] == 2


def test_an_executor_that_dies_in_a_resume_costs_only_that_attempt(world: World) -> None:
    file = waiting_flow(world, die=1)
    world.serving(**PATIENT)
    execution = world.start("f")
    suspended(world, execution)
    wake(world, execution, {"a": 1})
    row = world.wait(execution)
    assert (row["status"], row["output"]["w"]["event_data"]) == ("completed", {"a": 1})
    assert entries(file) == {"execute": 1, "on_event": 2}


def test_a_supervisor_killed_in_a_resume_leaves_it_to_its_next_life(world: World) -> None:
    file = waiting_flow(world, hang="on_event")
    first = world.serving(**PATIENT)
    execution = world.start("f")
    suspended(world, execution)
    wake(world, execution, {"a": 1})
    first.busy("w")
    until(lambda: entries(file)["on_event"] == 1, "on_event")
    first.kill()
    assert world.row(execution).control["woken"] == "event"
    world.serving(**PATIENT)
    until(lambda: entries(file)["on_event"] == 2, "on_event again")
    assert entries(file)["execute"] == 1
    world.client.cancel(execution)
    assert world.wait(execution)["status"] == "cancelled"


def test_a_drain_hands_a_resume_on_with_its_data(world: World) -> None:
    file = waiting_flow(world, hang="on_event")
    first = world.serving(**PATIENT, instance="one", drain_timeout=1, kill_grace=1)
    execution = world.start("f")
    suspended(world, execution)
    wake(world, execution, {"a": 1})
    first.busy("w")
    second = world.serving(**PATIENT, instance="two")
    assert first.stop() == 75
    second.busy("w")
    until(lambda: entries(file)["on_event"] == 2, "on_event on the other host")
    row = world.row(execution)
    assert (row.control["woken"], row.wake_data) == ("event", b'{"a":1}')
    assert entries(file)["execute"] == 1


def test_a_cancel_during_the_suspend_commit_is_not_lost(world: World) -> None:
    file = waiting_flow(world)
    world.serving(**PATIENT)
    execution = world.start("f")
    # The flag comes while the node's own code runs, so that the suspend finds it.
    until(lambda: entries(file)["execute"] >= 1, "the node's code")
    world.client.cancel(execution)
    assert world.wait(execution)["status"] == "cancelled"


def test_an_executor_killed_before_it_suspends_runs_the_wait_again(world: World) -> None:
    file = waiting_flow(world, hang="execute")
    supervisor = world.serving(**PATIENT)
    execution = world.start("f")
    until(lambda: entries(file)["execute"] == 1, "the node's code")
    os.kill(supervisor.busy("w")["pid"], signal.SIGKILL)
    until(lambda: entries(file)["execute"] == 2, "execute again")
    world.client.cancel(execution)
    assert world.wait(execution)["status"] == "cancelled"


def test_flow_put_while_executions_wait_changes_nothing_for_them(world: World) -> None:
    waiting_flow(world)
    world.serving(**PATIENT, executors=2)
    waiting = [world.start("f") for _ in range(100)]
    for execution in waiting:
        suspended(world, execution)
    world.chain("f", {"type": "mock", "id": "other", "value": "new"})
    for execution in waiting:
        assert wake(world, execution, execution).woken
    for execution in waiting:
        row = world.wait(execution)
        assert (row["status"], row["version"]) == ("completed", "1")
        assert row["output"]["w"]["event_data"] == execution
    row = world.run("f")
    assert (row["version"], row["output"]["other"]) == ("2", "new")


def test_a_timer_that_is_due_twice_or_late_wakes_once(world: World) -> None:
    file = waiting_flow(world, subscriptionTimeout=3600)
    world.serving(**PATIENT)
    execution = world.start("f")
    suspended(world, execution)
    assert wake(world, execution, None, "timeout").woken
    assert not wake(world, execution, 1).woken
    row = world.wait(execution)
    assert (row["status"], row["error"]["code"]) == ("error", -1)
    assert world.do(delayed.promote(world.keys)).moved == 0
    assert entries(file) == {"execute": 1, "on_timeout": 1}
