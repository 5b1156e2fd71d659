"""Events by whole supervisors: published early, late, twice, to what is over; who reads the log (E1, E2).

Lease and min-idle are ten minutes: what finishes at all was not waited for (DECISIONS 44).
"""

from __future__ import annotations

import os
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hosts import World, until

from plaita.store import events, executions
from plaita.testing.server import Server, raw

PATIENT = {"lease_ttl_seconds": 600, "claim_min_idle_ms": 600_000, "preload": "waiting"}
MIB = 1024.0


def event_flow(world: World, **fields: Any) -> None:
    world.chain("f", {"type": "event", "id": "w", "eventType": "paid", **fields}, {"type": "mock", "id": "m"})


def suspended(world: World, execution: str) -> None:
    until(lambda: world.get(execution)["status"] == "suspended", "the wait")


def result(world: World, execution: str) -> Any:
    row = world.wait(execution)
    assert row["status"] == "completed", row["error"]
    return row["output"]["w"]


def log_is_done(world: World) -> None:
    """Every event was read and done with."""

    def look() -> bool:
        groups = world.do(raw("XINFO", "GROUPS", world.keys.event_log))
        facts = dict(zip(groups[0][::2], groups[0][1::2], strict=True)) if groups else {}
        return bool(facts) and facts[b"pending"] == 0 and facts[b"lag"] == 0

    until(look, "the end of the log")


def test_E1_an_event_resumes_who_waits_for_it_with_its_data(world: World) -> None:
    event_flow(world, eventFilter={"order.id": "$INPUT.order"})
    world.serving(**PATIENT)
    first, second = world.start("f", {"order": 1}), world.start("f", {"order": 2})
    for execution in (first, second):
        suspended(world, execution)
    published = world.client.publish("paid", {"order": {"id": 2.0}, "n": 7})
    got = result(world, second)
    assert (got["event_id"], got["event_data"]["n"], got["status"]) == (published.event_id, 7, "completed")
    assert world.get(first)["status"] == "suspended"
    world.client.publish("paid", {"order": {"id": 1}}, correlation_id=first)
    assert result(world, first)["event_data"] == {"order": {"id": 1}}


def test_an_event_that_came_before_the_wait_ends_it(world: World) -> None:
    """One before its executor ran at all, which does not fit, and one that does."""
    event_flow(world, eventFilter={"n": 2})
    execution = world.start("f")
    world.client.publish("paid", {"n": 1}, correlation_id=execution)
    world.client.publish("paid", {"n": 2, "first": True}, correlation_id=execution)
    world.client.publish("paid", {"n": 2}, correlation_id=execution)
    supervisor = world.serving(**PATIENT)
    assert result(world, execution)["event_data"] == {"n": 2, "first": True}
    log_is_done(world)
    assert world.get(execution)["status"] == "completed"
    assert "early_event" in supervisor.text()


def test_an_event_while_the_node_runs_is_not_lost(world: World) -> None:
    file = world.folder / "entries"
    world.chain("f", {"type": "t_wait", "id": "w", "file": str(file)}, {"type": "mock", "id": "m"})
    world.serving(**PATIENT)
    for _ in range(5):
        before = len(file.read_text().splitlines()) if file.exists() else 0
        execution = world.start("f")
        until(lambda before=before: file.exists() and len(file.read_text().splitlines()) > before, "the node's code")
        world.client.publish("go", {"a": 1}, correlation_id=execution)
        assert result(world, execution)["event_data"] == {"a": 1}
    entries = Counter(line.split()[0] for line in file.read_text().splitlines())
    assert entries == {"execute": 5, "on_event": 5}


def test_an_event_for_what_is_over_deleted_or_running_changes_nothing(world: World) -> None:
    event_flow(world)
    world.chain("g", {"type": "t_wait", "id": "w", "hang": "execute", "file": str(world.folder / "entries")})
    supervisor = world.serving(**PATIENT, executors=2)
    over, cancelled, deleted = (world.start("f") for _ in range(3))
    running = world.start("g")
    for execution in (over, cancelled, deleted):
        suspended(world, execution)
    world.client.publish("paid", {"n": 1}, correlation_id=over)
    assert result(world, over)["event_data"] == {"n": 1}
    world.client.cancel(cancelled)
    assert world.wait(cancelled)["status"] == "cancelled"
    world.do(executions.delete(world.keys, deleted, "gone", force=False, tombstone_ttl_ms=600_000))
    supervisor.busy("w")
    before = {execution: world.row(execution) for execution in (over, cancelled)}
    for execution in (over, cancelled, deleted, running):
        for event_type in ("paid", "go"):
            world.client.publish(event_type, {"n": 2}, correlation_id=execution)
    world.client.publish("paid", {"n": 3})
    log_is_done(world)
    assert {execution: world.row(execution) for execution in before} == before
    assert world.get(running)["status"] == "running"
    assert all(one.length == 0 for one in world.stats().streams if one.name == world.keys.wake)


def test_a_host_without_services_reads_no_events_but_moves_timers(world: World) -> None:
    event_flow(world, subscriptionTimeout=1.5, timeoutHandler={"strategy": "continue-with", "defaultValue": "late"})
    world.serving("--no-services", **PATIENT)
    execution = world.start("f")
    suspended(world, execution)
    world.client.publish("paid", {"n": 1}, correlation_id=execution)
    assert result(world, execution) == "late"
    assert world.do(raw("XINFO", "GROUPS", world.keys.event_log)) == []


def test_what_was_published_while_nobody_read_is_done_by_the_next_that_comes(world: World) -> None:
    event_flow(world)
    first = world.serving("--no-services", **PATIENT)
    execution = world.start("f")
    suspended(world, execution)
    world.client.publish("paid", {"n": 1}, correlation_id=execution)
    first.kill()
    world.serving(instance="two", **PATIENT)
    assert result(world, execution)["event_data"] == {"n": 1}


@pytest.mark.long
def test_a_server_that_restarts_between_publish_and_wake_loses_nothing(own_server: Server, own_world: World) -> None:
    own_server.do("CONFIG", "SET", "appendfsync", "always")
    event_flow(own_world)
    supervisor = own_world.serving(**PATIENT)
    waiting = [own_world.start("f") for _ in range(30)]
    for execution in waiting:
        suspended(own_world, execution)
    for number, execution in enumerate(waiting):
        own_world.client.publish("paid", {"n": number}, correlation_id=execution)
        if number in (10, 20):
            own_server.kill()
            own_server.start()
            own_server.do("CONFIG", "SET", "appendfsync", "always")
    for number, execution in enumerate(waiting):
        assert result(own_world, execution)["event_data"] == {"n": number}
    assert supervisor.code is None


def in_status(world: World, status: str) -> int:
    return int(world.do(raw("ZCARD", world.keys.index(status))))


def _rss_mib(pid: int) -> float:
    text = Path(f"/proc/{pid}/status").read_text("ascii")
    return int(next(line.split()[1] for line in text.splitlines() if line.startswith("VmRSS"))) / MIB


@pytest.mark.parametrize(("few", "many"), [(20, 60), pytest.param(1_000, 10_000, marks=pytest.mark.long)])
def test_each_of_many_that_wait_is_woken_by_its_own_event_and_memory_is_flat(world: World, few: int, many: int) -> None:
    """The supervisor holds nothing of an execution that waits."""
    event_flow(world, eventFilter={"n": "$INPUT.n"})
    supervisor = world.serving(**PATIENT, executors=2)
    started: list[str] = []
    rss = []
    began = time.perf_counter()
    for size in (few, many):
        started += [world.start("f", {"n": number}) for number in range(len(started), size)]
        until(lambda size=size: in_status(world, "suspended") == size, f"{size} waits", 300)
        rss.append(_rss_mib(supervisor.pid))
    waited = time.perf_counter()
    for number, execution in enumerate(started):
        world.client.publish("paid", {"n": number}, correlation_id=None if number % 2 else execution)
    until(lambda: in_status(world, "completed") == many, "all ends", 600)
    ended = time.perf_counter()
    rss.append(_rss_mib(supervisor.pid))
    for number in range(0, many, max(1, many // 200)):
        assert result(world, started[number])["event_data"] == {"n": number}
    status = supervisor.ask("status")["counters"]
    print(
        f"\n{many} waits in {waited - began:.0f} s, woken and ended in {ended - waited:.0f} s, "
        f"supervisor {[round(one, 1) for one in rss]} MiB at {few}, {many} waiting and after; {os.cpu_count()} cores"
    )
    assert (status["waits_woken"], status["finished"]) == (many, many)
    assert rss[1] - rss[0] < 6
    assert rss[2] - rss[0] < 8
    assert world.do(events.key_sets(world.keys, "paid")) == []


def test_S8_what_comes_after_a_cancel_does_not_keep_the_node_from_undoing(world: World) -> None:
    """The cancel is asked for while no host is there; then come an event, a resume by hand and the timer."""
    file = world.folder / "entries"
    world.chain("f", {"type": "t_wait", "id": "w", "file": str(file), "subscriptionTimeout": 3600})
    first = world.serving(**PATIENT)
    execution = world.start("f")
    suspended(world, execution)
    assert first.stop() == 0
    world.client.cancel(execution)
    world.client.publish("go", {"n": 1}, correlation_id=execution)
    assert world.client.resume(execution, "event", {"n": 2})["reason"] == "cancelled"
    assert world.do(raw("ZADD", world.keys.delayed, "XX", "CH", 1, f"wait {world.keys.ns} {execution} 2")) == 1
    world.serving(**PATIENT)
    assert world.wait(execution)["status"] == "cancelled"
    log_is_done(world)
    until(lambda: world.stats().delayed == 0, "the timer's end")
    until(lambda: all(one.length == 0 for one in world.stats().streams), "empty streams")
    entries = Counter(line.split()[0] for line in file.read_text().splitlines())
    assert entries == {"execute": 1, "on_cancel": 1}
