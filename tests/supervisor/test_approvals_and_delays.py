"""Waits for people and for a time, on real supervisors: no host has to stay for them (rule 16, DECISIONS 26, S7, S8).

Lease and min-idle are ten minutes: what finishes at all was not waited for (DECISIONS 44).
"""

from __future__ import annotations

from typing import Any

import pytest
from hosts import World, until

from plaita.errors import RefusedError
from plaita.store.call import Call

PATIENT = {"lease_ttl_seconds": 600, "claim_min_idle_ms": 600_000, "preload": "waiting"}
DAY_MS = 86_400_000


def asks(world: World, strategy: str = "all", **fields: Any) -> None:
    node = {
        "type": "t_asks",
        "id": "w",
        "file": str(world.folder / "ran"),
        "approval_title": "pay {% $INPUT.amount %}?",
        "approval_content": "$INPUT",
        "approvers": ["ann", "bob", "cleo"],
        "approval_strategy": strategy,
    }
    world.chain("f", {**node, **fields})


def ran(world: World) -> list[str]:
    file = world.folder / "ran"
    return file.read_text().splitlines() if file.exists() else []


def suspended(world: World, execution_id: str) -> None:
    until(lambda: world.get(execution_id)["status"] == "suspended", "the wait")


def raw(world: World, *words: Any) -> Any:
    return world.do(Call("test", None, (), words, "writer", False, lambda reply: reply))


def left_of_waits(world: World) -> list[bytes]:
    """Keys of tasks, timers and subscriptions."""
    names: list[bytes] = raw(world, "KEYS", f"{world.keys.prefix}*")
    return [name for name in names if b":service:" in name or b":event:index" in name or b"delayed" in name]


def timer(world: World, execution_id: str) -> tuple[str, bytes | None]:
    """Name and due time of the wait's timer."""
    name = f"wait {world.keys.ns} {execution_id} {world.row(execution_id).control['wait']}"
    return name, raw(world, "ZSCORE", world.keys.delayed, name)


def test_rule_16_what_one_host_asks_is_decided_with_no_host_and_goes_on_at_another(world: World) -> None:
    asks(world, "any")
    first = world.serving(**PATIENT, instance="one")
    execution = world.start("f", {"amount": 12})
    suspended(world, execution)
    assert first.stop() == 0
    [asked] = world.client.approvals()
    assert (asked["title"], asked["content"], asked["execution_id"]) == ("pay 12?", {"amount": 12}, execution)
    assert world.client.decide(asked["approval_id"], "approve", "bob", comment="fine")["settled"] is True
    assert world.get(execution)["status"] == "suspended"
    world.serving(**PATIENT, instance="two")
    result = world.wait(execution)["output"]["w"]
    assert (result["approved"], result["final_decision"], result["status"]) == (True, "approve", "completed")
    assert [one["approver_id"] for one in result["event_data"]["approval_details"]] == ["bob"]
    assert ran(world) == ["execute", "on_event"]
    assert left_of_waits(world) == []


def test_decisions_outlive_a_supervisor_that_is_killed_between_them(world: World) -> None:
    asks(world, subscriptionTimeout="P3D")
    first = world.serving(**PATIENT, instance="one")
    execution = world.start("f", {"amount": 12})
    suspended(world, execution)
    approval = world.client.approvals()[0]["approval_id"]
    assert world.client.decide(approval, "approve", "cleo")["settled"] is False
    first.kill()
    assert world.client.decide(approval, "approve", "ann")["settled"] is False
    second = world.serving(**PATIENT, instance="two")
    assert second.status() is not None
    assert world.client.decide(approval, "approve", "bob")["settled"] is True
    result = world.wait(execution)["output"]["w"]
    assert [one["approver_id"] for one in result["event_data"]["approval_details"]] == ["cleo", "ann", "bob"]
    assert ran(world) == ["execute", "on_event"]
    with pytest.raises(RefusedError) as caught:
        world.client.decide(approval, "reject", "ann")
    assert caught.value.reason == "no_approval"
    assert left_of_waits(world) == []


def test_an_approval_that_nobody_decides_in_time_goes_the_way_of_its_handler(world: World) -> None:
    asks(world, subscriptionTimeout=0.3, timeoutHandler={"strategy": "continue-with", "defaultValue": "nobody said"})
    world.serving(**PATIENT)
    row = world.run("f", {"amount": 12})
    assert (row["status"], row["output"]["w"]) == ("completed", "nobody said")
    assert ran(world) == ["execute", "on_timeout"]
    assert world.client.approvals() == []
    assert left_of_waits(world) == []


def test_S8_a_cancel_undoes_what_was_asked(world: World) -> None:
    asks(world, subscriptionTimeout="P3D")
    world.serving(**PATIENT)
    execution = world.start("f", {"amount": 12})
    suspended(world, execution)
    approval = world.client.approvals()[0]["approval_id"]
    world.client.decide(approval, "approve", "ann")
    world.client.cancel(execution, "not needed")
    assert world.wait(execution)["status"] == "cancelled"
    assert ran(world) == ["execute", "on_cancel pending"]
    assert world.client.approvals() == []
    with pytest.raises(RefusedError):
        world.client.decide(approval, "approve", "bob")
    assert left_of_waits(world) == []


def test_S7_an_operator_ends_an_approval_by_a_decision_and_breaks_it_by_anything_else(world: World) -> None:
    """A published event of its type does neither: it is not in the index."""
    asks(world)
    world.serving(**PATIENT, max_deliveries=2)
    wrong, right = world.start("f", {"amount": 1}), world.start("f", {"amount": 2})
    for execution in (wrong, right):
        suspended(world, execution)
        world.client.publish("approval_decision", {"final_decision": "approve"}, correlation_id=execution)
    world.client.publish("approval_decision", {"final_decision": "approve"})
    assert [key for key in left_of_waits(world) if b"event:index" in key] == []
    assert len(world.client.approvals()) == 2
    assert world.client.resume(wrong, "event", {"final_decision": "perhaps"})["resumed"] is True
    assert world.client.resume(right, "event", {"final_decision": "reject"})["resumed"] is True
    row = world.wait(right)
    assert (row["status"], row["output"]["w"]["approved"]) == ("completed", False)
    row = world.wait(wrong)
    assert (row["status"], row["error"]["failed_node"], row["error"]["node_retries"]) == ("error", "w", 1)
    assert "final_decision: 'perhaps' is none; approve or reject is wanted" in row["error"]["message"]
    assert ran(world) == ["execute", "execute", *["on_event"] * 3]
    assert world.client.approvals() == []


def test_a_delay_of_days_stands_in_redis_whatever_becomes_of_the_hosts(world: World) -> None:
    world.chain("f", {"type": "delay", "id": "w", "delay_seconds": 3, "delay_unit": "days"})
    first = world.serving(**PATIENT, instance="one")
    execution = world.start("f")
    suspended(world, execution)
    name, due = timer(world, execution)
    assert due is not None
    assert int(due) == int(world.row(execution).control["wait_since"]) + 3 * DAY_MS
    assert first.stop() == 0, "there is nothing to drain: nobody waits"
    assert timer(world, execution) == (name, due)
    second = world.serving(**PATIENT, instance="two")
    second.wait_status(lambda s: all(one["state"] == "idle" for one in s["executors"]), "nothing to do")
    assert world.get(execution)["status"] == "suspended"
    second.kill()
    raw(world, "ZADD", world.keys.delayed, "XX", 1, name)  # three days later
    world.serving(**PATIENT, instance="three")
    result = world.wait(execution)["output"]["w"]
    assert (result["status"], result["event_data"]["delay_ms"]) == ("completed", 3 * DAY_MS)
    assert left_of_waits(world) == []


def test_29_a_host_that_takes_no_work_moves_what_is_due_for_the_others(world: World) -> None:
    """Paused, draining, without services: the carrier goes to the stream, where a host that works finds it."""
    world.chain("f", {"type": "delay", "id": "w", "delay_seconds": 3, "delay_unit": "days"})
    host = world.serving("--no-services", **PATIENT)
    executions = [world.start("f"), world.start("f")]
    for execution in executions:
        suspended(world, execution)
    for execution, shut, opened in zip(executions, ("pause", "drain"), ("resume", "undrain"), strict=True):
        host.ask(shut)
        host.wait_status(lambda s: not s["serving"], shut)
        raw(world, "ZADD", world.keys.delayed, "XX", 1, timer(world, execution)[0])
        until(lambda: raw(world, "XLEN", world.keys.wake) == 1, f"moved by a host in {shut}")
        assert world.get(execution)["status"] == "suspended"
        host.ask(opened)
        assert world.wait(execution)["status"] == "completed"


def test_rule_15_a_limit_that_is_shorter_than_the_delay_is_a_timeout(world: World) -> None:
    delay = {"type": "delay", "id": "w", "delay_seconds": 3600, "timeout": 200}
    world.chain("f", delay)
    world.chain("handled", {**delay, "timeoutHandler": {"strategy": "continue-with", "defaultValue": "short"}})
    world.serving(**PATIENT)
    executions = world.start("f"), world.start("handled")
    row = world.wait(executions[0])
    assert (row["status"], row["error"]["code"], row["error"]["failed_node"]) == ("error", -1, "w")
    assert "the limit of 200 ms is shorter than the delay of 3600000 ms" in row["error"]["message"]
    assert world.wait(executions[1])["output"]["w"] == "short"


def test_rule_15_waits_count_for_the_flow_where_it_says_so(world: World) -> None:
    """By what Redis says of its beginning: the wait that ends in time is no longer in time a day later."""
    waits = {"type": "event", "id": "w", "event_type": "go", "timeoutHandler": {"strategy": "continue"}}
    world.chain("short", waits, timeout=400, timeoutIncludesWaits=True)
    world.chain("f", waits, {**waits, "id": "v"}, timeout="PT1H", timeoutIncludesWaits=True)
    world.chain("steps", waits, timeout="PT1H")
    supervisor = world.serving(**PATIENT)
    first, other, old = world.start("short"), world.start("f"), world.start("steps")
    for execution in (other, old):
        suspended(world, execution)
        raw(world, "HINCRBY", world.keys.row(execution), "created_at", -DAY_MS)
        world.client.publish("go", correlation_id=execution)
    for execution in (first, other):
        row = world.wait(execution)
        assert (row["status"], row["error"]["code"], row["error"]["error_type"]) == ("error", -1, "flow_error")
        assert row["error"]["message"] == "the time of the flow is spent; node 'w' was not gone on with"
    assert world.wait(old)["status"] == "completed"
    assert supervisor.status()["counters"]["step_timeouts"] == 0, "no handler of the node, and nobody is killed for it"


def test_S8_a_cancel_undoes_what_was_begun_also_when_an_event_came_before_it_was_gone_on_with(world: World) -> None:
    """Neither half of the node would run else, and what ``execute`` began stayed begun."""
    asks(world)
    first = world.serving(**PATIENT, instance="one")
    event_first, cancel_first = world.start("f", {"amount": 1}), world.start("f", {"amount": 2})
    for execution in (event_first, cancel_first):
        suspended(world, execution)
    assert first.stop() == 0
    word = {"final_decision": "approve"}
    assert world.client.resume(event_first, "event", word)["resumed"] is True
    world.client.cancel(event_first)
    world.client.cancel(cancel_first)
    world.client.resume(cancel_first, "event", word)
    world.serving(**PATIENT, instance="two")
    for execution in (event_first, cancel_first):
        assert world.wait(execution)["status"] == "cancelled"
    assert ran(world) == ["execute", "execute", "on_cancel pending", "on_cancel pending"]
    assert left_of_waits(world) == []
