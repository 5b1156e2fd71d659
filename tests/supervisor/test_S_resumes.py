"""Resumes of every type on every kind of row, and retries of what ended in error (ledger S3 to S7, S13).

What a wait is woken by is in test_waits.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from carriers_by_hand import (
    PATIENT,
    bring_back,
    counters,
    ended,
    facts,
    hold_back,
    nothing_left,
    raw,
    send_resume,
    send_start,
    settled,
    stays,
)
from hosts import SupervisorProcess, World, until

from plaita import jsontext
from plaita.ids import new_nonce
from plaita.policy.carrier import resume_payload, routing_fields
from plaita.store import executions
from plaita.store.executions import Wake

TYPES = ("event", "timeout", "cancel", "continue", "retry")
G1, NOFAIL = "g1wakeups", "nofail"


def runs(world: World, node_id: str) -> int:
    """How often the node was run."""
    file = world.folder / "lines"
    return sum(line.split()[1] == node_id for line in file.read_text().splitlines()) if file.exists() else 0


def fails_until(world: World) -> Path:
    """The flow ``f``: ``a`` notes its run, then ``n`` fails until the file that is returned is there."""
    there = world.folder / "there"
    world.chain(
        "f",
        {"type": "t_noted", "id": "a", "file": str(world.folder / "lines")},
        {"type": "t_fail_until", "id": "n", "file": str(there), "log": str(world.folder / "log")},
    )
    return there


def tries(world: World) -> int:
    log = world.folder / "log"
    return len(log.read_text().splitlines()) if log.exists() else 0


def counted(supervisor: SupervisorProcess, name: str) -> int:
    status = supervisor.status()
    assert status is not None
    return int(status["counters"][name])


# -- S3 ------------------------------------------------------------------------------------------------


def test_S3_no_resume_changes_what_has_ended(world: World) -> None:
    world.chain("completed", {"type": "mock", "id": "n", "value": 1})
    world.chain("error", {"type": "t_ends", "id": "n", "how": "value_error"})
    supervisor = world.serving(**PATIENT)
    ids = {status: world.start(status) for status in ("completed", "error")}
    for status, execution in ids.items():
        assert world.wait(execution)["status"] == status
    supervisor.ask("pause")
    ids["cancelled"] = world.start("completed")
    world.client.cancel(ids["cancelled"], "no")
    supervisor.ask("resume")
    assert world.wait(ids["cancelled"])["status"] == "cancelled"
    nothing_left(world)
    refused = {
        (status, kind): execution
        for status, execution in ids.items()
        for kind in TYPES
        if (status, kind) != ("error", "retry")
    }
    before = {execution: facts(world, execution) for execution in ids.values()}
    seen = len(supervisor.text())
    for (_, kind), execution in refused.items():
        send_resume(world, execution, kind, data={"event_id": "late", "event_data": 1})
    nothing_left(world)
    assert {execution: facts(world, execution) for execution in ids.values()} == before
    text = supervisor.text()[seen:]
    assert text.count("event=begin.refused") == text.count("reason=terminal") == len(refused) == 14
    assert counted(supervisor, "poison_acked") == 0
    for (status, kind), execution in refused.items():
        if kind == "cancel":
            told = world.client.cancel(execution)
            assert (told["cancel_requested"], told["status"]) == (False, status)
        else:
            told = world.client.resume(execution, kind)
            assert (told["already_terminal"], told["resumed"], told["status"]) == (True, False, status)
    nothing_left(world)
    assert {execution: facts(world, execution) for execution in ids.values()} == before


def test_S3_a_retry_goes_on_from_the_checkpoint_with_fresh_budgets(world: World) -> None:
    there = fails_until(world)
    world.serving(**PATIENT, max_deliveries=2)
    execution = world.start("f")
    assert world.wait(execution)["error"]["node_retries"] == 1
    assert counters(world, execution) == {"noderefetch": 2}
    assert world.client.resume(execution, "retry")["resumed"]
    hold_back(world, execution)
    row = world.get(execution)
    assert (row["status"], row["error"], row["ended_at"], row["last_node_id"]) == ("running", None, None, "a")
    assert counters(world, execution) == {G1: 1, "noderefetch": 3, "noderetry:n": 1}
    assert raw(world, "ZSCORE", world.keys.expiry, execution) is None
    assert raw(world, "PTTL", world.keys.row(execution)) == -1
    bring_back(world)
    until(lambda: world.get(execution)["status"] == "error", "the end of the second budget")
    assert (tries(world), world.get(execution)["error"]["node_retries"]) == (4, 1)
    there.touch()
    world.client.resume(execution, "retry")
    until(lambda: world.get(execution)["status"] == "completed", "the end")
    assert (runs(world, "a"), tries(world)) == (1, 5)
    assert counters(world, execution) == {}
    nothing_left(world)
    assert world.stats().dlq_length == 2


def test_S3_a_retry_compares_the_flow_first(world: World) -> None:
    there = fails_until(world)
    supervisor = world.serving(**PATIENT, max_deliveries=1)
    execution = world.start("f")
    assert world.wait(execution)["status"] == "error"
    key = world.keys.flow_body(world.row(execution).control["flow_hash"])
    body = raw(world, "GET", key)
    there.touch()
    before = facts(world, execution)
    for wrong in (None, b'{"flow_id": "f", "nodes": []}'):
        raw(world, "DEL", key) if wrong is None else raw(world, "SET", key, wrong)
        supervisor.kill()  # what it has read before is not asked again
        supervisor = world.serving(**PATIENT, max_deliveries=1)
        send_resume(world, execution, "retry")
        nothing_left(world)
        assert facts(world, execution) == before
        said = 1 if wrong is None else 2
        until(lambda life=supervisor, said=said: life.text().count("event=retry.refused") >= said, "it is said")
        assert supervisor.text().count("event=retry.refused") == said
    raw(world, "SET", key, body)
    world.client.resume(execution, "retry")
    until(lambda: world.get(execution)["status"] == "completed", "the end")
    assert counters(world, execution) == {}


# -- S13 -----------------------------------------------------------------------------------------------


def test_S13_two_wakes_by_people_and_machines_together(world: World) -> None:
    there = fails_until(world)
    supervisor = world.serving(**PATIENT, max_deliveries=1)
    execution = world.start("f")
    for number, by in enumerate(("a person", "a machine"), 1):
        until(lambda: world.get(execution)["status"] == "error", "its end")
        settled(world)
        if by == "a person":
            assert world.client.resume(execution, "retry")["resumed"]
        else:
            send_resume(world, execution, "retry")
        until(lambda number=number: tries(world) == number + 1, "one more try")  # type: ignore[misc]
    until(lambda: world.get(execution)["status"] == "error", "its end")
    settled(world)
    there.touch()  # it would succeed
    key = world.keys.of_execution(G1, execution)
    stays(world, execution, lambda: send_resume(world, execution, "retry"))
    assert key in supervisor.text().split("reason=g1_wakeups_exhausted")[1].splitlines()[0]
    told = world.client.resume(execution, "retry")
    assert {name: told[name] for name in ("resumed", "already_terminal", "reason", "counter_key", "status")} == {
        "resumed": False,
        "already_terminal": True,
        "reason": "g1_wakeups_exhausted",
        "counter_key": key,
        "status": "error",
    }
    assert (tries(world), counters(world, execution)[G1]) == (3, 2)
    raw(world, "DEL", key)
    assert world.client.resume(execution, "retry")["resumed"]
    until(lambda: world.get(execution)["status"] == "completed", "the end")
    assert (runs(world, "a"), counters(world, execution)) == (1, {})


@pytest.mark.parametrize("how", ["wrong", "late"])
def test_S13_twelve_deterministic_failures_in_a_row(world: World, how: str) -> None:
    nodes: dict[str, dict[str, Any]] = {
        "wrong": {"type": "t_ends", "how": "value_error"},
        "late": {"type": "t_line", "file": str(world.folder / "lines"), "seconds": 1000, "timeout": 10},
    }
    world.chain("f", {"id": "n", **nodes[how]})
    world.serving(**PATIENT)
    execution = world.start("f")
    wakes = world.keys.of_execution(G1, execution)
    for number in range(1, 13):
        until(lambda number=number: counters(world, execution).get(NOFAIL) == number, "the count")  # type: ignore[misc]
        settled(world)
        raw(world, "DEL", wakes)
        told = world.client.resume(execution, "retry")
        assert told["resumed"] == (number < 12)
    assert (told["reason"], told["already_terminal"]) == ("deterministic_failure_exhausted", True)
    key = world.keys.of_execution(NOFAIL, execution)
    assert told["counter_key"] == key
    assert world.get(execution)["attempts"] == 12
    stays(world, execution, lambda: send_resume(world, execution, "retry"))
    raw(world, "DEL", key)
    assert world.client.resume(execution, "retry")["resumed"]
    until(lambda: world.get(execution)["attempts"] == 13, "one more")
    until(lambda: counters(world, execution).get(NOFAIL) == 1, "the count from one")
    nothing_left(world)
    assert world.stats().dlq_length == 0  # what no retry changes is in its row


def test_S13_the_success_of_any_node_clears_the_failures_in_a_row_and_a_wake_does_not(world: World) -> None:
    file = str(world.folder / "lines")
    world.chain(
        "f",
        {"type": "t_noted", "id": "a", "file": file, "fails": 2, "final": True},
        {"type": "t_noted", "id": "b", "file": file, "fails": 1, "final": True},
    )
    world.serving(**PATIENT)
    execution = world.start("f")
    for failures in (1, 2, 1):
        until(lambda: world.get(execution)["status"] == "error", "its end")
        until(lambda failures=failures: counters(world, execution).get(NOFAIL) == failures, "the count")  # type: ignore[misc]
        raw(world, "DEL", world.keys.of_execution(G1, execution))
        world.client.resume(execution, "retry")
        settled(world)
    until(lambda: world.get(execution)["status"] == "completed", "the end")
    assert (runs(world, "a"), runs(world, "b"), counters(world, execution)) == (3, 2, {})


# -- S5 ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("by", ["client", "carrier"])
def test_S5_a_retry_of_a_running_one_is_a_continue_whatever_the_counters_say(world: World, by: str) -> None:
    there = fails_until(world)
    supervisor = world.serving(**PATIENT)
    execution = world.start("f")
    hold_back(world, execution)
    raw(world, "SET", world.keys.of_execution(G1, execution), 9)
    raw(world, "SET", world.keys.of_execution(NOFAIL, execution), 99)
    failures = counters(world, execution)["noderetry:n"]
    if by == "client":
        assert world.client.resume(execution, "retry")["resumed"]
    else:
        send_resume(world, execution, "retry")
    until(lambda: counters(world, execution).get("noderetry:n") == int(failures) + 1, "one more try, not a new budget")
    hold_back(world, execution)
    assert "WARNING event=retry.of_running" in supervisor.text()
    there.touch()
    send_resume(world, execution, "continue")
    assert ended(world, execution)["status"] == "completed"
    assert (runs(world, "a"), counters(world, execution)) == (1, {})
    before = facts(world, execution)
    bring_back(world)
    until(lambda: world.stats().delayed == 0, "the copies that it did not wait for")
    settled(world)
    assert facts(world, execution) == before


def test_S5_a_resume_beside_a_living_holder_has_no_effect_and_says_so(world: World) -> None:
    gate, file = world.folder / "gate", str(world.folder / "lines")
    world.chain("f", {"type": "t_gated", "id": "b", "file": file, "gate": str(gate)})
    supervisor = world.serving(**PATIENT)
    execution = world.start("f")
    supervisor.busy("b")
    for kind in ("continue", "retry"):
        told = world.client.resume(execution, kind)
        assert (told["resumed"], told["reason"]) == (False, "held")
        send_resume(world, execution, kind)
    until(lambda: [one.length for one in world.stats().streams] == [1, 0], "the holder's own carrier alone")
    until(lambda: supervisor.text().count("WARNING event=resume.no_effect") == 2, "both are told of")
    gate.with_name("gate.1").touch()
    assert ended(world, execution)["attempts"] == 1
    nothing_left(world)
    assert runs(world, "b") == 1


# -- S6, S7 ----------------------------------------------------------------------------------------------


def wait_then_gate(world: World, **fields: Any) -> Path:
    """The flow ``f``: ``w`` waits, then ``b``, whose attempt n ends once the file gate.<n> is there."""
    gate = world.folder / "gate"
    world.chain(
        "f",
        {"type": "t_wait", "id": "w", "file": str(world.folder / "entries"), **fields},
        {"type": "t_gated", "id": "b", "file": str(world.folder / "lines"), "gate": str(gate)},
    )
    return gate


def entries(world: World) -> list[str]:
    file = world.folder / "entries"
    return [line.split()[0] for line in file.read_text().splitlines()] if file.exists() else []


def suspended(world: World, execution: str) -> executions.Row:
    until(lambda: world.get(execution)["status"] == "suspended", "the wait")
    return world.row(execution)


def wake(world: World, execution: str, data: Any) -> None:
    request = Wake(
        execution_id=execution,
        kind="event",
        data=jsontext.dumps(data),
        event_id=new_nonce(),
        payload=resume_payload(
            execution_id=execution, flow_id="f", resume_type="event", tenant_id="default", timestamp=""
        ),
        fields=routing_fields(execution_id=execution, tenant_id="default", flow_id="f"),
    )
    assert world.do(executions.wake(world.keys, request)).woken


@pytest.mark.parametrize("by", ["wake", "carrier"])
def test_S6_an_event_that_is_delivered_again_goes_on_after_the_wait(world: World, by: str) -> None:
    gate = wait_then_gate(world)
    first = world.serving(**PATIENT)
    execution = world.start("f")
    suspended(world, execution)
    if by == "wake":
        wake(world, execution, {"n": 1})
    else:
        send_resume(world, execution, "event", data={"n": 1})
    first.busy("b")
    first.kill()  # its carrier is the event's, and the execution is past the wait
    second = world.serving(**PATIENT)
    second.busy("b")
    assert counted(second, "resumes_normalised") == 1
    gate.with_name("gate.2").touch()
    row = ended(world, execution)
    assert (row["status"], row["output"]["w"]["event_data"]) == ("completed", {"n": 1})
    assert (entries(world), runs(world, "b")) == (["execute", "on_event"], 2)
    assert counters(world, execution) == {}
    nothing_left(world)


def test_S6_an_event_beside_a_living_holder_waits_and_is_normalised_then(world: World) -> None:
    """It may be what the execution waits for next, so it is not acked while a lease is there."""
    file, gate = str(world.folder / "lines"), world.folder / "gate"
    world.chain("f", {"type": "t_gated", "id": "b", "file": file, "gate": str(gate), "fails": 1})
    supervisor = world.serving(**PATIENT)
    execution = world.start("f")
    supervisor.busy("b")
    send_resume(world, execution, "event", data={"n": 1})
    until(lambda: "event=lease.conflict" in supervisor.text(), "the event delivered")
    assert [one.pending for one in world.stats().streams] == [1, 1]
    gate.with_name("gate.1").touch()  # it fails, and is held no more: the event makes it go on, not the retry
    gate.with_name("gate.2").touch()
    assert ended(world, execution)["status"] == "completed"
    bring_back(world)
    until(lambda: world.stats().delayed == 0, "the copy")
    settled(world)
    assert (runs(world, "b"), counters(world, execution)) == (2, {})


def test_S7_what_does_not_fit_the_row_is_poison_and_leaves_it(world: World) -> None:
    wait_then_gate(world)
    supervisor = world.serving(**PATIENT)
    supervisor.ask("pause")
    execution = world.start("f")
    before = facts(world, execution)
    assert [send_resume(world, execution, kind, data=1) for kind in ("event", "timeout")]
    raw(world, "DEL", world.keys.queue)  # its start comes after them
    supervisor.ask("resume")
    settled(world)
    assert facts(world, execution) == before
    assert counted(supervisor, "poison_acked") == 2
    assert supervisor.text().count("ResumeProtocolError") == 2
    send_start(world, execution_id=execution)
    wait = suspended(world, execution).control["wait"]
    settled(world)
    stays(
        world,
        execution,
        lambda: [
            send_resume(world, execution, "event", data=1, wait=wait + "0"),
            send_resume(world, execution, "timeout", wait=wait + "0"),
            send_resume(world, execution, "continue"),
            send_resume(world, execution, "retry"),
        ],
    )
    assert (counted(supervisor, "poison_acked"), entries(world)) == (4, ["execute"])
    assert supervisor.text().count("ResumeProtocolError") == 4


def test_S7_a_resume_that_fails_follows_the_retry_rules_to_the_end(world: World) -> None:
    wait_then_gate(world, fail=3)
    supervisor = world.serving(**PATIENT, max_deliveries=2)
    execution = world.start("f")
    suspended(world, execution)
    wake(world, execution, {"n": 1})
    row = ended(world, execution)
    assert (row["status"], row["error"]["failed_node"], row["error"]["node_retries"]) == ("error", "w", 1)
    assert entries(world) == ["execute", "on_event", "on_event"]
    assert counters(world, execution) == {"noderefetch": 2}
    assert world.stats().dlq_length == 1
    nothing_left(world)
    world.client.resume(execution, "retry")  # it is resumed with the same data, not waited for anew
    until(lambda: entries(world).count("on_event") == 4, "the resume again")
    supervisor.busy("b")
    assert jsontext.loads(world.row(execution).results["w"])["event_data"] == {"n": 1}
    assert counters(world, execution)["g1wakeups"] == 1
    (world.folder / "gate.1").touch()
    until(lambda: world.get(execution)["status"] == "completed", "the end")
    assert entries(world).count("execute") == 1
