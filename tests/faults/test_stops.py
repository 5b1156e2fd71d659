"""SIGTERM at bad moments: while Redis is away, while a step hears nothing, twice, in the middle of a step's exit."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from fault_load import Serve
from hosts import SupervisorProcess, World, alive, until

from plaita.store import registry
from plaita.supervisor.identity import registry_status
from plaita.testing.proxy import Proxy, Rule

PATIENT = {"lease_ttl_seconds": 600, "claim_min_idle_ms": 600_000, "preload": "trouble"}


def _lines(path: Path) -> list[list[str]]:
    return [line.split() for line in path.read_text().splitlines()] if path.exists() else []


def _steps(world: World) -> Path:
    """The first of them goes on until ``_enough`` is there."""
    file = world.folder / "lines"
    step = {"type": "t_line", "file": str(file)}
    world.chain("f", {**step, "id": "a", "until": str(_enough(world))}, {**step, "id": "b"})
    return file


def _enough(world: World) -> Path:
    return world.folder / "enough"


def _receipts(supervisor: SupervisorProcess) -> list[dict[str, int]]:
    """Those in its log."""
    found = []
    for line in supervisor.text().splitlines():
        if "drain.receipt" in line:
            words = dict(word.split("=", 1) for word in line.split() if "=" in word)
            found.append({name: int(words[name]) for name in ("finished", "handed_on", "killed", "left")})
    return found


def _gone(supervisor: SupervisorProcess) -> None:
    assert not supervisor.tree()
    assert not os.path.exists(supervisor.socket)


def _registered(world: World, instance: str = "one") -> str | None:
    record = world.do(registry.get(world.keys, instance))
    return None if record is None else registry_status(record.record)


@pytest.mark.parametrize("mode", ["cut", "freeze", pytest.param("drop_replies", marks=pytest.mark.long)])
def test_R6_an_idle_stop_while_redis_is_away_does_not_wait_for_it(
    world: World, proxy: Proxy, serve: Serve, mode: Any
) -> None:
    """The drain may take ten minutes: an end within the test's minute did not wait for Redis."""
    supervisor = serve(drain_timeout=600, kill_grace=600)
    proxy.set_mode(mode)
    if mode == "cut":
        until(lambda: not (supervisor.status() or {"serving": True})["serving"], "Redis missed")
    began = time.monotonic()
    assert supervisor.stop() == 0
    print(f"{mode}: {time.monotonic() - began:.2f} s from SIGTERM to the end")
    _gone(supervisor)
    assert _receipts(supervisor) == [{"finished": 0, "handed_on": 0, "killed": 0, "left": 0}]


def test_a_stop_while_redis_is_away_keeps_the_answer_of_the_running_step(
    world: World, proxy: Proxy, serve: Serve
) -> None:
    """Redis comes back within the drain's time: the answer is written, and nothing runs twice."""
    file = _steps(world)
    supervisor = serve(executors=1, drain_timeout=600)
    execution = world.start("f")
    supervisor.busy("a")
    proxy.set_mode("cut")
    supervisor.signal(signal.SIGTERM)
    supervisor.wait_status(lambda status: status["status"] == "draining", "draining")
    _enough(world).touch()
    until(lambda: "redis.call_repeated" in supervisor.text(), "an answer that waits")
    proxy.set_mode("forward")
    assert supervisor.wait_exit() == 0
    _gone(supervisor)
    assert _receipts(supervisor) == [{"finished": 0, "handed_on": 1, "killed": 0, "left": 0}]
    assert _registered(world) in (None, "stopped")
    assert world.get(execution)["holder"] is None
    world.serving(instance="two", **PATIENT)
    assert world.wait(execution)["status"] == "completed"
    assert [(line[1], line[2]) for line in _lines(file)] == [("a", "1"), ("b", "1")]


@pytest.mark.parametrize("mode", ["cut", "freeze"])
def test_R2_a_stop_gives_up_an_answer_that_cannot_be_written(
    world: World, proxy: Proxy, serve: Serve, mode: Any
) -> None:
    """The same host goes on with it at its next start: its lease is known for one of a dead life."""
    file = _steps(world)
    supervisor = serve(executors=1, drain_timeout=1, kill_grace=0.2)
    execution = world.start("f")
    supervisor.busy("a")
    proxy.set_mode(mode)
    _enough(world).touch()
    began = time.monotonic()
    assert supervisor.stop() == 75
    print(f"{mode}: {time.monotonic() - began:.2f} s from SIGTERM to the end, the drain may take 1.2 s")
    _gone(supervisor)
    [receipt] = _receipts(supervisor)
    assert (receipt["handed_on"], receipt["left"]) == (0, 1)
    proxy.set_mode("forward")
    world.serving(**PATIENT)
    assert world.wait(execution)["status"] == "completed"
    ran = [line[1] for line in _lines(file)]
    # What was frozen is carried out when it thaws: then the step was committed, by the token that still stood.
    assert ran == ["a", "a", "b"] or (mode == "freeze" and ran == ["a", "b"])


@pytest.mark.parametrize(
    "how", ["deadline", *(pytest.param(how, marks=pytest.mark.long) for how in ("second signal", "drain command"))]
)
def test_R2_a_step_that_hears_nothing_ends_with_its_whole_family(world: World, how: str) -> None:
    """Handed on, it begins again elsewhere with a lease and a min-idle of ten minutes."""
    pids = world.folder / "pids"
    world.chain("f", {"type": "t_stubborn_family", "id": "a", "file": str(pids)})
    drain_timeout = 1 if how == "deadline" else 600
    first = world.serving(**PATIENT, executors=1, drain_timeout=drain_timeout, kill_grace=0.5)
    execution = world.start("f")
    family = [int(pid) for pid in until(lambda: len(_lines(pids)) == 3 and pids.read_text().split(), "its family")]
    first.busy("a")
    second = world.serving(**PATIENT, instance="two", executors=1)
    began = time.monotonic()
    if how == "drain command":
        first.ask("drain", deadline=0.5)
        first.wait_status(lambda s: s["drain"]["phase"] == "drained", "the drain")
    first.signal(signal.SIGTERM)
    if how == "second signal":
        first.wait_status(lambda s: s["status"] == "draining", "draining")
        began = time.monotonic()
        first.signal(signal.SIGTERM)
    assert first.wait_exit() == 75
    ended = time.monotonic()
    second.busy("a")
    until(lambda: len(_lines(pids)) == 6, "the step begun elsewhere")
    print(f"{how}: {ended - began:.2f} s to the end, elsewhere after {time.monotonic() - began:.2f} s")
    _gone(first)
    assert not [pid for pid in family if alive(pid)]
    assert _receipts(first) == [{"finished": 0, "handed_on": 1, "killed": 1, "left": 0}]
    assert world.row(execution).control["lost"] == "1"  # of the step that runs now: the drain cost nothing
    world.client.cancel(execution)
    assert world.wait(execution)["status"] == "cancelled"


def test_R4_no_step_starts_when_a_stop_comes_while_its_context_is_loaded(
    world: World, proxy: Proxy, serve: Serve
) -> None:
    file = _steps(world)
    first = world.serving(**PATIENT, executors=1)
    execution = world.start("f")
    first.busy("a")
    assert first.stop_within(_enough(world)) == 0
    loading = proxy.add(Rule("HMGET", "delay_reply", seconds=2.0))
    second = serve(instance="two", executors=1, drain_timeout=600)
    until(lambda: loading.done, "a context that is asked for")
    second.signal(signal.SIGTERM)
    assert second.wait_exit() == 0
    assert [line[1] for line in _lines(file)] == ["a"]
    assert _receipts(second) == [{"finished": 0, "handed_on": 1, "killed": 0, "left": 0}]
    world.serving(**PATIENT, instance="three")
    assert world.wait(execution)["status"] == "completed"
    assert [(line[1], line[2]) for line in _lines(file)] == [("a", "1"), ("b", "1")]


def test_R2_what_waits_for_a_retry_is_nobodys_when_the_host_leaves(world: World) -> None:
    """It is a copy in Redis by then: the host ends at once, and another goes on when it is due."""
    world.chain("f", {"type": "t_do", "id": "a", "what": "error"})
    first = world.serving(**PATIENT, executors=1, drain_timeout=600)
    execution = world.start("f")
    until(lambda: (first.status() or {"queue": {"delayed": 0}})["queue"]["delayed"] == 1, "a retry that waits")
    assert first.stop() == 0
    world.serving(**PATIENT, instance="two", executors=1, max_deliveries=2)
    row = world.wait(execution)
    assert row["status"] == "error"
    assert row["error"]["node_retries"] >= 1


@pytest.mark.parametrize(
    ("what", "cause"),
    [
        ("sys_exit", "SystemExit"),
        ("keyboard", "KeyboardInterrupt"),
        ("abort", "SIGABRT"),
        pytest.param("sys_exit_text", "SystemExit", marks=pytest.mark.long),
        pytest.param("base", "BaseException", marks=pytest.mark.long),
        pytest.param("generator_exit", "GeneratorExit", marks=pytest.mark.long),
    ],
)
def test_a_step_that_leaves_by_itself_during_a_stop_is_no_interrupted_one(world: World, what: str, cause: str) -> None:
    """KNOWN-TROUBLE 14: only a stop that plaita ordered counts as interrupted."""
    file = world.folder / "late"
    world.chain("f", {"type": "t_do", "id": "a", "what": "late", "file": str(file)})
    supervisor = world.serving(**PATIENT, executors=1, drain_timeout=600, max_deliveries=1)
    execution = world.start("f")
    supervisor.busy("a")
    supervisor.signal(signal.SIGTERM)
    supervisor.wait_status(lambda s: s["status"] == "draining", "draining")
    (world.folder / "new").write_text(what)
    (world.folder / "new").rename(world.folder / "late.what")
    assert supervisor.wait_exit() == 0
    row = world.get(execution)
    assert row["status"] == "error"
    assert cause in json.dumps(row["error"])
    assert _receipts(supervisor)[0]["killed"] == 0


def test_a_storm_of_signals_freezes_nobody(world: World) -> None:
    """KNOWN-TROUBLE 20: reloads and logged states while children come and go and the log is busy."""
    file = world.folder / "lines"
    world.chain("f", {"type": "t_line", "id": "a", "file": str(file)})
    environment = {"PLAITA_LOG_LEVEL": "DEBUG"}
    supervisor = world.serving(**PATIENT, executors=2, max_steps_per_executor=1, environment=environment)
    executions = []
    for number in range(30):
        executions.append(world.start("f"))
        supervisor.signal(signal.SIGHUP if number % 3 == 0 else signal.SIGUSR1)
    assert {world.wait(execution)["status"] for execution in executions} == {"completed"}
    assert len(_lines(file)) == len(executions)
    assert supervisor.status() is not None
    for _ in range(5):
        supervisor.signal(signal.SIGHUP)
        supervisor.signal(signal.SIGUSR1)
    supervisor.signal(signal.SIGTERM)
    supervisor.signal(signal.SIGUSR1)
    assert supervisor.wait_exit() == 0
    _gone(supervisor)
