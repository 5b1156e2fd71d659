"""Ledger Q and C3 with real supervisors: nothing that arrives on the queue is lost, run twice, or looped for ever."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hosts import NODES, SupervisorProcess, World, until

from plaita import jsontext
from plaita.clock import iso_utc, wall_ms
from plaita.policy.carrier import TASK_SCHEMA_VERSION
from plaita.policy.dead_letter import read
from plaita.store import carriers, delayed, executions
from plaita.store.call import Value
from plaita.testing.server import raw

FLAGS: dict[str, Any] = {"executors": 2, "preload": "crashing", "lease_ttl_seconds": 600}
SOON = {"claim_min_idle_ms": 1000}
LATER = {"claim_min_idle_ms": 600_000}
IDLE = 100_000_000


def add(world: World, payload: Any, stream: str = "q", **fields: str) -> str:
    body = payload if isinstance(payload, bytes) else jsontext.dumps(payload)
    return world.do(carriers.enqueue(world.keys, stream, [("payload", body), *fields.items()]))


def start_of(flow_id: str, execution_id: str, **fields: Any) -> dict[str, Any]:
    return {"type": "start", "flow_id": flow_id, "execution_id": execution_id, **fields}


def continue_of(execution_id: str, **fields: Any) -> dict[str, Any]:
    return {"type": "resume", "execution_id": execution_id, "resume_type": "continue", **fields}


def letters(world: World) -> list[dict[str, Any]]:
    entries = world.do(raw("XRANGE", world.keys.dead_letters, "-", "+"))
    return [read(dict(zip(flat[::2], flat[1::2], strict=True))) for _, flat in entries]


def pending(world: World, stream: str = "q") -> dict[str, tuple[str, int, int]]:
    """Consumer, idle ms and deliveries by entry."""
    answer = world.runner.run(raw("XPENDING", world.keys.stream(stream), world.keys.group, "-", "+", 100))
    rows = answer.value if isinstance(answer, Value) else []
    return {row[0].decode(): (row[1].decode(), row[2], row[3]) for row in rows}


def left_by_a_dead_consumer(world: World, entry: str, stream: str = "q", deliveries: int = 1) -> None:
    """Delivered to somebody who is gone, long ago."""
    name, group = world.keys.stream(stream), world.keys.group
    world.runner.run(raw("XGROUP", "CREATE", name, group, "0", "MKSTREAM"))
    world.do(raw("XREADGROUP", "GROUP", group, "dead", "STREAMS", name, ">"))
    world.do(raw("XCLAIM", name, group, "dead", 0, entry, "IDLE", IDLE, "RETRYCOUNT", deliveries, "JUSTID"))


def without_carrier(world: World, flow_id: str) -> str:
    """A started execution whose carrier is gone."""
    execution = world.client.start(flow_id, {})
    world.do(raw("XDEL", world.keys.queue, execution.message_id))
    return execution.execution_id


def counters(supervisor: SupervisorProcess) -> dict[str, int]:
    status = supervisor.status()
    assert status is not None
    found: dict[str, int] = status["counters"]
    return found


def counted(supervisor: SupervisorProcess, name: str, at_least: int = 1) -> None:
    supervisor.wait_status(lambda s: s["counters"][name] >= at_least, f"{name} >= {at_least}")


def settled(world: World) -> None:
    def empty() -> bool:
        stats = world.stats()
        return all(s.length == s.pending == 0 for s in stats.streams) and stats.delayed == 0

    until(empty, "an empty queue")


def runs(world: World) -> list[list[str]]:
    file = world.folder / "lines"
    return [line.split() for line in file.read_text().splitlines()] if file.exists() else []


@pytest.fixture
def gated(world: World) -> Iterator[World]:
    """With the flow ``gated``, whose step waits for a file; opened at the end whatever happens."""
    lines, gate = str(world.folder / "lines"), str(world.folder / "gate")
    world.chain("gated", {"type": "t_gated", "id": "a", "file": lines, "gate": gate})
    world.chain("noted", {"type": "t_noted", "id": "a", "file": lines})
    yield world
    open_gate(world)


def open_gate(world: World) -> None:
    for attempt in range(1, 4):
        Path(f"{world.folder / 'gate'}.{attempt}").touch()


# -- Q1, Q2, Q3 -----------------------------------------------------------------------------------


def test_Q1_stream_and_group_that_are_gone_are_made_again(gated: World) -> None:
    supervisor = gated.serving(**FLAGS, **LATER)
    assert gated.run("noted")["status"] == "completed"
    gated.do(raw("DEL", gated.keys.queue, gated.keys.wake))
    assert gated.run("noted")["status"] == "completed"
    gated.do(raw("XGROUP", "DESTROY", gated.keys.queue, gated.keys.group))
    assert gated.run("noted")["status"] == "completed"
    assert supervisor.code is None


def test_Q2_pending_for_long_is_no_fault_the_lease_keeps_the_step_single(gated: World) -> None:
    hosts = [gated.serving(**FLAGS, **SOON, instance=name) for name in ("one", "two")]
    execution = gated.start("gated")
    until(lambda: runs(gated), "the step begins")
    until(lambda: any(counters(host)["claim_guard_skipped"] >= 3 for host in hosts), "the other has left it alone")
    [(_, _, deliveries)] = pending(gated).values()
    open_gate(gated)
    assert gated.wait(execution)["output"]["a"] == 1
    assert (deliveries, len(runs(gated))) == (1, 1)
    settled(gated)


def test_Q3_one_try_is_allowed_and_only_its_failure_is_dead_lettered(gated: World) -> None:
    lines = str(gated.folder / "lines")
    gated.chain("fails", {"type": "t_noted", "id": "a", "file": lines, "fails": 99})
    gated.serving(**FLAGS, **LATER, max_deliveries=1)
    assert gated.run("noted")["status"] == "completed"
    assert letters(gated) == []
    failed = gated.run("fails")
    assert (failed["status"], failed["error"]["failed_node"]) == ("error", "a")
    [letter] = letters(gated)
    assert (letter["execution_id"], letter["node_id"]) == (failed["execution_id"], "a")
    assert len([run for run in runs(gated) if run[0] == failed["execution_id"]]) == 1


def test_Q3_the_streams_delivery_count_decides_nothing(gated: World) -> None:
    started = gated.client.start("noted", {})
    left_by_a_dead_consumer(gated, started.message_id, deliveries=500)
    gated.serving(**FLAGS, **LATER, max_deliveries=1)
    assert gated.wait(started.execution_id)["status"] == "completed"
    assert letters(gated) == []


# -- Q4 -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reclaimed", [False, True], ids=["first delivery", "reclaim"])
def test_Q4_the_last_carrier_of_a_living_execution_leaves_a_recovery_copy(gated: World, reclaimed: bool) -> None:
    execution = without_carrier(gated, "noted")
    entry = add(gated, b"{broken", execution_id=execution)
    if reclaimed:
        left_by_a_dead_consumer(gated, entry, deliveries=7)
    gated.serving(**FLAGS, **LATER)
    assert gated.wait(execution)["status"] == "completed"
    settled(gated)
    [letter] = letters(gated)
    assert (letter["execution_id"], letter["source_id"], letter["cause"]) == (execution, entry, "malformed")
    assert len(runs(gated)) == 1


def test_Q4_while_the_lease_is_held_it_stays_pending(gated: World) -> None:
    supervisor = gated.serving(**FLAGS, **SOON)
    execution = gated.start("gated")
    until(lambda: runs(gated), "the step begins")
    # Without an entry field: the reclaim cannot see whose it is and has to ask each time.
    entry = add(gated, {"type": "resume", "execution_id": execution, "resume_type": "bogus"})
    counted(supervisor, "dlq_guard_skipped", 2)
    assert letters(gated) == []
    assert entry in pending(gated)
    assert "event=dlq.guard_skipped" in supervisor.text()
    open_gate(gated)
    assert gated.wait(execution)["status"] == "completed"
    until(lambda: len(letters(gated)) == 1, "let go once the execution is over")
    settled(gated)
    assert len(runs(gated)) == 1


def test_Q4_what_cannot_be_read_stays_pending_until_it_can(gated: World) -> None:
    key = gated.keys.row("odd")
    gated.do(raw("SET", key, "somebody else's"))
    supervisor = gated.serving(**FLAGS, **SOON)
    entry = add(gated, start_of("noted", "odd"))
    counted(supervisor, "dlq_guard_skipped", 2)
    assert (letters(gated), list(pending(gated))) == ([], [entry])
    assert gated.do(raw("GET", key)) == b"somebody else's"
    gated.do(raw("DEL", key))
    assert until(lambda: gated.do(executions.status_of(gated.keys, ["odd"]))[0] == "completed", "it runs after all")


def test_Q4_a_spent_budget_is_the_end_not_another_copy(gated: World) -> None:
    execution = without_carrier(gated, "noted")
    gated.do(raw("SET", gated.keys.noderetry(execution, "start"), 5))
    gated.do(raw("HSET", gated.keys.row(execution), "retried", ":start:"))
    add(gated, b"{broken", execution_id=execution)
    gated.serving(**FLAGS, **LATER, max_deliveries=5)
    ended = gated.wait(execution)
    assert ended["status"] == "error"
    assert "budget" in ended["error"]["message"]
    settled(gated)
    assert [letter["execution_id"] for letter in letters(gated)] == [execution]
    assert runs(gated) == []


def test_Q4_a_flow_that_does_not_exist(gated: World) -> None:
    supervisor = gated.serving(**FLAGS, **LATER)
    add(gated, start_of("nowhere", "e"))
    until(lambda: letters(gated), "a dead letter")
    settled(gated)
    [letter] = letters(gated)
    assert (letter["cause"], letter["flow_id"], letter["execution_id"]) == ("no_flow", "nowhere", "e")
    assert counters(supervisor)["dead_lettered"] == 1
    assert counters(supervisor)["dlq_guard_skipped"] == 0


def test_D2_no_copy_for_a_deleted_execution(gated: World) -> None:
    execution = without_carrier(gated, "noted")
    backup = gated.do(raw("DUMP", gated.keys.row(execution)))
    gated.do(executions.delete(gated.keys, execution, "", force=True, tombstone_ttl_ms=600_000))
    gated.do(raw("RESTORE", gated.keys.row(execution), 0, backup))
    add(gated, b"{broken", execution_id=execution)
    gated.serving(**FLAGS, **LATER)
    until(lambda: letters(gated), "a dead letter")
    settled(gated)
    assert len(letters(gated)) == 1
    assert runs(gated) == []


# -- Q5 -------------------------------------------------------------------------------------------


def test_Q5_the_limit_is_an_exact_fifo_and_counted(gated: World) -> None:
    supervisor = gated.serving(**FLAGS, **LATER, environment={"PLAITA_DLQ_MAX_LEN": "3"})
    entries = [add(gated, f"broken {number}".encode()) for number in range(5)]
    counted(supervisor, "dead_lettered", 5)
    sources = [letter["source_id"] for letter in letters(gated)]
    assert len(sources) == 3
    assert set(sources) < set(entries)
    assert counters(supervisor)["dlq_trimmed"] == 2
    assert "WARNING event=dlq.trimmed" in supervisor.text()


def test_Q5_the_envelope(gated: World) -> None:
    gated.serving(**FLAGS, **LATER)
    before = wall_ms()
    entry = add(gated, {"type": "start", "flow_id": 7}, schema_version="1", config_family="", x="y")
    until(lambda: letters(gated), "a dead letter")
    [letter] = letters(gated)
    assert letter["payload"] == {"type": "start", "flow_id": 7}
    assert "flow_id" in letter["reason"]
    assert (letter["source_stream"], letter["source_id"]) == (gated.keys.queue, entry)
    assert (letter["schema_version"], letter["delivery_count"]) == (1, 1)
    assert before <= letter["dead_lettered_at"] * 1000 <= wall_ms()
    assert len(letter["raw_fields"]) == 4


# -- Q6 -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reclaimed", [False, True], ids=["first delivery", "reclaim"])
def test_Q6_a_newer_schema_is_dead_lettered_once_and_changes_nothing(gated: World, reclaimed: bool) -> None:
    execution = without_carrier(gated, "noted")
    row = gated.do(raw("DUMP", gated.keys.row(execution)))
    entry = add(gated, continue_of(execution), schema_version="2", execution_id=execution)
    if reclaimed:
        left_by_a_dead_consumer(gated, entry)
    supervisor = gated.serving(**FLAGS, **LATER)
    until(lambda: letters(gated), "a dead letter")
    settled(gated)
    [letter] = letters(gated)
    assert (letter["schema_version"], letter["execution_id"]) == (2, execution)
    assert letter["reason"] == "unsupported schema_version=2"
    assert counters(supervisor)["schema_rejected"] == 1
    assert gated.do(raw("DUMP", gated.keys.row(execution))) == row
    # It can still be woken: by what the letter holds, once a build understands it.
    add(gated, letter["payload"])
    assert gated.wait(execution)["status"] == "completed"


def test_Q6_while_the_lease_is_held_it_stays_pending(gated: World) -> None:
    supervisor = gated.serving(**FLAGS, **SOON)
    execution = gated.start("gated")
    until(lambda: runs(gated), "the step begins")
    entry = add(gated, continue_of(execution), schema_version="2")
    counted(supervisor, "dlq_guard_skipped", 2)
    assert (letters(gated), entry in pending(gated)) == ([], True)
    assert counters(supervisor)["schema_rejected"] == 0
    open_gate(gated)
    assert gated.wait(execution)["status"] == "completed"
    until(lambda: letters(gated), "let go once the execution is over")
    assert counters(supervisor)["schema_rejected"] == 1


NEWER_BUILD = """
import importlib
importlib.import_module("plaita.policy.carrier").read_carrier.__kwdefaults__["max_schema_version"] = 2
importlib.import_module("plaita.runtime_config.generations").TASK_SCHEMA_VERSION = 2
"""


def test_Q6_C3_an_old_and_a_newer_build_on_one_stream(gated: World) -> None:
    """What the newer build's producers stamp as their family's is left to it, whoever reads it first."""
    folder = gated.folder / "newer"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(NEWER_BUILD)
    old = gated.serving(**FLAGS, **LATER, instance="old")
    new = gated.serving(**FLAGS, **LATER, instance="new", environment={"PYTHONPATH": f"{folder}:{NODES}"})
    status = new.status()
    assert status is not None
    family = status["generations"]["config_family"]
    assert family != old.wait_serving().ask("status")["generations"]["config_family"]
    names = [f"e{number}" for number in range(12)]
    for name in names:
        add(gated, start_of("noted", name), schema_version=str(TASK_SCHEMA_VERSION + 1), config_family=family)
    for name in names:
        until(lambda name=name: gated.do(executions.status_of(gated.keys, [name]))[0] == "completed", name)
    settled(gated)
    assert letters(gated) == []
    assert counters(old)["steps"] == 0
    assert counters(new)["finished"] == 12


# -- Q7 -------------------------------------------------------------------------------------------


def test_Q7_the_copy_of_a_retry_inherits(gated: World) -> None:
    lines = str(gated.folder / "lines")
    gated.chain("fails", {"type": "t_noted", "id": "a", "file": lines, "fails": 1})
    supervisor = gated.serving(**FLAGS, **LATER)
    status = supervisor.status()
    assert status is not None
    ids = status["generations"]
    enqueued = wall_ms() - 86_400_000
    stamps = {name: ids[name] for name in ("config_family", "budget_generation")}
    add(gated, start_of("fails", "stamped", timestamp=iso_utc(enqueued)), schema_version="1", **stamps)
    add(gated, start_of("fails", "legacy"))
    until(lambda: gated.stats().delayed == 2, "two delayed copies")
    assert supervisor.stop() == 0
    moved = 0

    def promoted() -> bool:
        nonlocal moved
        moved += gated.do(delayed.promote(gated.keys)).moved
        return moved >= 2

    until(promoted, "the copies are due")
    found = {}
    for entry_id, flat in gated.do(raw("XRANGE", gated.keys.wake, "-", "+")):
        fields = {name.decode(): value.decode() for name, value in zip(flat[::2], flat[1::2], strict=True)}
        found[fields["execution_id"]] = (entry_id.decode(), fields)
    _, stamped = found["stamped"]
    assert {name: stamped[name] for name in stamps} == stamps
    assert stamped["schema_version"] == "1"
    assert stamped["first_enqueued_at"] == str(enqueued)
    assert json.loads(stamped["payload"])["timestamp"] == iso_utc(enqueued)
    entry_id, legacy = found["legacy"]
    assert not set(stamps) & set(legacy)
    assert int(legacy["first_enqueued_at"]) < int(entry_id.partition("-")[0])


# -- Q8, Q9 ---------------------------------------------------------------------------------------


def test_Q8_what_was_acked_and_not_deleted_is_swept_at_the_start(gated: World) -> None:
    """Of workers that ack and delete in two steps and were killed in between."""
    residue = [add(gated, start_of("noted", f"done{number}")) for number in range(3)]
    left_by_a_dead_consumer(gated, residue[0])
    gated.do(raw("XACK", gated.keys.queue, gated.keys.group, *residue))
    kept = add(gated, start_of("noted", "in-work"))
    gated.do(raw("XREADGROUP", "GROUP", gated.keys.group, "alive", "STREAMS", gated.keys.queue, ">"))
    supervisor = gated.serving(**FLAGS, **LATER)
    counted(supervisor, "residue_swept", 3)
    left = [entry[0].decode() for entry in gated.do(raw("XRANGE", gated.keys.queue, "-", "+"))]
    assert left == [kept]
    assert list(pending(gated)) == [kept]
    assert gated.run("noted")["status"] == "completed"
    assert counters(supervisor)["residue_swept"] == 3
    assert gated.do(executions.status_of(gated.keys, ["done0", "done1", "done2"])) == [None] * 3


BROKEN: list[bytes] = [
    b"",
    b"{",
    b"\xff\xfe",
    b"null",
    b"[]",
    b'"text"',
    b"{}",
    b'{"type":"other"}',
    b'{"type":"start"}',
    b'{"type":"start","flow_id":7}',
    b'{"type":"start","flow_id":"f","execution_id":"a b"}',
    b'{"type":"start","flow_id":"f","tenant_id":"a:b"}',
    b'{"type":"resume","resume_type":"continue"}',
    b'{"type":"resume","execution_id":"e","resume_type":"bogus"}',
    b'{"type":"resume","execution_id":["e"],"resume_type":"continue"}',
    b"[" * 100_000,
    b'{"type":"start","flow_id":"f","params":' + b"[" * 300 + b"]" * 300 + b"}",
]


def test_Q9_malformed_payloads_are_kept_byte_for_byte_and_never_loop(gated: World) -> None:
    supervisor = gated.serving(**FLAGS, **SOON)
    entries = [add(gated, body, odd="\x00") for body in BROKEN]
    entries.append(gated.do(raw("XADD", gated.keys.wake, "*", b"\xff", b"\x00")).decode())
    until(lambda: len(letters(gated)) >= len(entries), "all are dead letters")
    settled(gated)
    found = {letter["source_id"]: letter for letter in letters(gated)}
    assert set(found) == set(entries)
    assert len(letters(gated)) == len(entries)
    assert all(
        letter["raw_fields"] and letter["reason"] and letter["cause"] == "malformed" for letter in found.values()
    )
    assert counters(supervisor)["dead_lettered"] == len(entries)
    assert gated.run("noted")["status"] == "completed"


# -- C3 -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["field", pytest.param("payload", marks=pytest.mark.long)])
def test_C3_another_family_is_left_to_its_hosts(gated: World, where: str) -> None:
    """A host of another family reads it first: not run, not looped, run as soon as a host of its own is there."""
    theirs = gated.serving(**FLAGS, **LATER, instance="theirs", dlq_key=f"{gated.keys.queue}:other-dlq")
    status = theirs.status()
    assert status is not None
    family = status["generations"]["config_family"]
    assert theirs.stop() == 0
    ours = gated.serving(**FLAGS, **LATER, instance="ours")
    if where == "field":
        entry = add(gated, start_of("noted", "e"), config_family=family)
    else:
        entry = add(gated, start_of("noted", "e", config_family=family))
    until(lambda: "event=config.family_mismatch" in ours.text(), "it is said")
    assert gated.run("noted")["status"] == "completed"
    until(lambda: pending(gated).get(entry, ("", 0, 0))[1] > 600_000, "handed on")
    assert pending(gated)[entry][2] == 1
    assert (letters(gated), gated.do(executions.status_of(gated.keys, ["e"]))) == ([], [None])
    assert counters(ours)["reclaimed"] == 0
    assert ours.text().count("event=config.family_mismatch") <= 2
    gated.serving(**FLAGS, **LATER, instance="theirs", dlq_key=f"{gated.keys.queue}:other-dlq")
    until(lambda: gated.do(executions.status_of(gated.keys, ["e"]))[0] == "completed", "run by its own")
    settled(gated)


@pytest.mark.parametrize("where", ["field", pytest.param("payload", marks=pytest.mark.long)])
def test_C3_another_family_at_reclaim_spends_no_delivery(gated: World, where: str) -> None:
    stamps = {"config_family": "cf1-0123456789abcdef"}
    if where == "field":
        entry = add(gated, start_of("noted", "e"), **stamps)
    else:
        entry = add(gated, start_of("noted", "e", **stamps))
    left_by_a_dead_consumer(gated, entry, deliveries=3)
    hosts = [gated.serving(**FLAGS, **SOON, instance=name) for name in ("one", "two")]
    assert gated.run("noted")["status"] == "completed"
    until(lambda: any("event=config.family_mismatch" in host.text() for host in hosts), "it is said")
    consumer, _, deliveries = pending(gated)[entry]
    assert deliveries == 3
    if where == "field":
        assert consumer == "dead", "looked at, never claimed"
    # Without a field each host claims it once to look, and remembers; never one after the other for ever.
    assert sum(counters(host)["reclaimed"] for host in hosts) <= (0 if where == "field" else 2)


def test_C3_another_budget_is_not_applied(gated: World) -> None:
    theirs = gated.serving(**FLAGS, **LATER, instance="theirs", max_deliveries=7)
    status = theirs.status()
    assert status is not None
    budget = status["generations"]["budget_generation"]
    assert theirs.stop() == 0
    ours = gated.serving(**FLAGS, **LATER, instance="ours")
    entry = add(gated, start_of("noted", "e"), budget_generation=budget)
    until(lambda: "event=config.budget_stale" in ours.text(), "it is said")
    assert "drain" in ours.text()
    assert gated.run("noted")["status"] == "completed"
    assert pending(gated)[entry][2] == 1
    assert gated.do(executions.status_of(gated.keys, ["e"])) == [None]
    gated.serving(**FLAGS, **LATER, instance="theirs", max_deliveries=7)
    until(lambda: gated.do(executions.status_of(gated.keys, ["e"]))[0] == "completed", "run by its own")


def test_C3_a_rolling_change_of_budget_and_family_runs_nothing_under_the_wrong_one_and_says_what_waits(
    gated: World,
) -> None:
    """Old and new hosts on one stream. What was made under the old values is run by an old host only; where none is
    left, log, status and explain of the new one say so, until one comes."""
    old = {"max_deliveries": 7, "lease_ttl_seconds": 60}
    old_host = gated.serving(**FLAGS | old, **LATER, instance="old")
    status = old_host.status()
    assert status is not None
    stamps = {"budget_generation": status["generations"]["budget_generation"]}
    family = {"config_family": "cf1-0123456789abcdef"}
    new_host = gated.serving(**FLAGS, **LATER, instance="new")
    for number in range(6):  # both read them; only the old one runs them
        add(gated, start_of("noted", f"old{number}"), **stamps)
    for number in range(6):
        name = f"old{number}"
        until(lambda name=name: gated.do(executions.status_of(gated.keys, [name]))[0] == "completed", name)
        assert gated.row(name).control["last_holder"].startswith("old/")
    assert old_host.stop() == 0  # the last of its kind
    add(gated, start_of("noted", "late"), **stamps)
    add(gated, start_of("noted", "inside", **stamps))  # as other producers say it: in the body only
    add(gated, start_of("noted", "foreign"), **family)
    until(lambda: {"event=config.budget_stale", "event=config.family_mismatch"} <= set(new_host.text().split()), "said")
    assert gated.run("noted")["status"] == "completed"
    queue = new_host.wait_status(lambda s: s["queue"]["other_budget"] == 2, "status says so")["queue"]
    assert queue["other_family"] == 1
    [row] = [row for row in new_host.ask("explain")["gates"] if row["gate"] == "generations"]
    assert row["waiting"] == 3
    assert "drain" in row["advice"]
    assert gated.do(executions.status_of(gated.keys, ["late", "inside", "foreign"])) == [None] * 3
    gated.serving(**FLAGS | old, **LATER, instance="old")
    for name in ("late", "inside"):
        until(lambda name=name: gated.do(executions.status_of(gated.keys, [name]))[0] == "completed", "its own budget")
        assert gated.row(name).control["last_holder"].startswith("old/")
    new_host.wait_status(lambda s: s["queue"]["other_budget"] == 0, "nothing is left of the old budget")


def test_C3_missing_is_legacy_and_malformed_warns_and_runs(gated: World) -> None:
    supervisor = gated.serving(**FLAGS, **LATER)
    add(gated, start_of("noted", "legacy"))
    add(gated, start_of("noted", "empty"), config_family="", budget_generation="")
    assert "config.stamp_malformed" not in supervisor.text()
    add(gated, start_of("noted", "odd"), config_family="none of your business")
    add(gated, start_of("noted", "odd2", budget_generation=[1]))
    for name in ("legacy", "empty", "odd", "odd2"):
        until(lambda name=name: gated.do(executions.status_of(gated.keys, [name]))[0] == "completed", name)
    assert supervisor.text().count("WARNING event=config.stamp_malformed") == 2


# -- D3 -------------------------------------------------------------------------------------------


def test_D3_a_carrier_from_long_ago_is_dropped(gated: World) -> None:
    supervisor = gated.serving(**FLAGS, **LATER, environment={"PLAITA_TASK_MAX_AGE_SECONDS": "3600"})
    old = iso_utc(wall_ms() - 3_700_000)
    add(gated, start_of("noted", "old", timestamp=old))
    add(gated, start_of("noted", "copied"), first_enqueued_at=str(wall_ms() - 3_700_000))
    add(gated, start_of("noted", "young", timestamp=iso_utc(wall_ms() - 3_000_000)))
    add(gated, start_of("noted", "future", timestamp="2999-01-01T00:00:00Z"))
    for name in ("young", "future"):
        until(lambda name=name: gated.do(executions.status_of(gated.keys, [name]))[0] == "completed", name)
    counted(supervisor, "carriers_too_old", 2)
    settled(gated)
    assert gated.do(executions.status_of(gated.keys, ["old", "copied"])) == [None, None]
    assert (letters(gated), counters(supervisor)["carrier_age_unknown_total"]) == ([], 0)
    assert "event=carrier.dropped" in supervisor.text()


def test_D3_an_age_that_nobody_can_tell_is_dropped_and_counted(gated: World) -> None:
    supervisor = gated.serving(**FLAGS, **LATER)
    body = jsontext.dumps(start_of("noted", "ageless"))
    gated.do(raw("XADD", gated.keys.queue, "18446744073709551000-0", "payload", body))
    counted(supervisor, "carrier_age_unknown_total")
    settled(gated)
    assert gated.do(executions.status_of(gated.keys, ["ageless"])) == [None]
