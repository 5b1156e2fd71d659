"""DECISIONS 38: a node that kills executors under many executions is shut out on this host; other flows go on."""

from __future__ import annotations

import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hosts import SupervisorProcess, World, alive, until

from plaita.policy import breaker as policy
from plaita.supervisor.breaker import Breaker
from plaita.supervisor.held import Held
from plaita.supervisor.stats import Stats

COLD = ("env",)  # an interpreter of its own, that reads sitecustomize
KILLER = """
import os
import signal
from pathlib import Path
from plaita import Node

class Killer(Node):
    node_type = "t_killer"
    folder: str

    def execute(self, execution):
        folder = Path(self.folder)
        with open(folder / "tries", "a") as file:
            file.write(execution.execution_id + "\\n")
        if not (folder / "mended").exists():
            os._exit(9)
        return execution.attempt
"""


def _shorter(folder: Path, shut_ms: int) -> dict[str, str]:
    """The environment in which a supervisor's breaker is shut for so long."""
    (folder / "sitecustomize.py").write_text(f"import plaita.policy.breaker as b\nb.SHUT_MS = {shut_ms}\n")
    (folder / "killer.py").write_text(KILLER)
    return {"PYTHONPATH": f"{folder}:{Path(__file__).parent / 'nodes'}"}


def _killer(world: World, name: str = "deadly") -> str:
    return world.chain(
        name,
        {"type": "mock", "id": "before", "value": 1},
        {"type": "t_killer", "id": "kill", "folder": str(world.folder)},
    )


def _tries(world: World) -> list[str]:
    file = world.folder / "tries"
    return file.read_text().split() if file.exists() else []


def _next_node(world: World, execution: str) -> str | None:
    return world.row(execution).control.get("next_node")


def _breaker_rows(supervisor: SupervisorProcess) -> list[dict[str, Any]]:
    return [row for row in supervisor.ask("explain")["gates"] if row["gate"] == "breaker"]


def test_38_a_node_that_kills_under_many_executions_is_shut_out_and_let_in_when_mended(world: World) -> None:
    supervisor = world.serving(
        executors=2,
        preload="killer",
        max_deliveries=20,
        environment=_shorter(world.folder, 3_000),
        through=COLD,
        claim_min_idle_ms=600_000,
        lease_ttl_seconds=600,
    )
    [row] = _breaker_rows(supervisor)
    assert (row["open"], row["waiting"]) == (True, 0)
    _killer(world)
    world.chain("other", {"type": "mock", "id": "a", "value": 1}, {"type": "mock", "id": "b", "value": 2})
    executions = [world.start("deadly") for _ in range(6)]
    shut = supervisor.wait_status(lambda status: status["breakers"], "a breaker that is shut")
    [block] = shut["breakers"]
    assert (block["flow_id"], block["node_id"], block["cause"]) == ("deadly", "kill", "exit 9")
    assert block["executions"] >= 3
    assert block["deaths"] >= 5
    [row] = _breaker_rows(supervisor)
    assert row["open"] is False
    assert "deadly@" in row["value"]
    assert row["advice"]
    # The flow beside it goes on, and so do the nodes before the one that kills; nobody waits in an executor.
    assert world.run("other")["status"] == "completed"
    until(lambda: all(_next_node(world, execution) == "kill" for execution in executions), "all stand before it")
    until(lambda: world.stats().delayed == 6, "all six are delayed")
    # Only probes have been tried since; each that died has shut it anew.
    until(lambda: "breaker.still_open" in supervisor.text(), "a probe that died")
    assert {world.get(execution)["status"] for execution in executions} == {"running"}
    (world.folder / "mended").touch()
    assert {world.wait(execution)["status"] for execution in executions} == {"completed"}
    status = supervisor.wait_status(lambda status: not status["breakers"], "a breaker that is open again")
    counters = status["counters"]
    assert (counters["breaker_opened"], counters["breaker_closed"]) == (1, 1)
    assert counters["breaker_delayed"] >= 6
    # A delay costs nothing: what each execution has lost is what it has died of, no more.
    tries = _tries(world)
    attempts = {execution: world.node(execution, "kill")["attempts"] for execution in executions}
    assert attempts == {execution: tries.count(execution) for execution in executions}
    assert counters["executor_deaths"] == len(tries) - 6
    assert world.stats().dlq_length == 0
    assert [row["open"] for row in _breaker_rows(supervisor)] == [True]


def test_38_another_host_takes_what_is_delayed_here(world: World) -> None:
    """It has no probe to wait for: its own breaker knows of no death."""
    environment = _shorter(world.folder, 2_000)
    first = world.serving(executors=2, preload="killer", max_deliveries=20, environment=environment, through=COLD)
    _killer(world)
    executions = [world.start("deadly") for _ in range(4)]
    first.wait_status(lambda status: status["breakers"], "a breaker that is shut")
    until(lambda: world.stats().delayed == 4, "all are delayed")
    first.ask("pause")
    (world.folder / "mended").touch()
    second = world.serving(
        executors=2, preload="killer", max_deliveries=20, environment=environment, through=COLD, instance="two"
    )
    assert {world.wait(execution)["status"] for execution in executions} == {"completed"}
    status = second.status()
    assert status is not None
    assert status["counters"]["finished"] == 4
    assert status["counters"]["breaker_delayed"] == 0


def test_38_a_delayed_execution_can_be_cancelled(world: World) -> None:
    supervisor = world.serving(
        executors=2,
        preload="killer",
        max_deliveries=20,
        environment=_shorter(world.folder, 600_000),
        through=COLD,
    )
    _killer(world)
    executions = [world.start("deadly") for _ in range(5)]
    supervisor.wait_status(lambda status: status["breakers"], "a breaker that is shut")
    waiting = until(
        lambda: [one for one in executions if world.get(one)["status"] == "running" and _held_back(world, one)],
        "one that is held back",
    )
    world.client.cancel(waiting[0])
    assert world.wait(waiting[0])["status"] == "cancelled"


def _held_back(world: World, execution: str) -> bool:
    return _next_node(world, execution) == "kill" and world.stats().delayed == 5


def _held(execution: str) -> Held:
    known = {"tenant_id": "t", "flow_id": "f", "version": "3", "node_id": "n", "execution_id": execution}
    return cast(Held, SimpleNamespace(**known))


KEY = ("t", "f", "3", "n")


def test_38_a_probe_that_came_to_nothing_makes_room_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a carrier that is cancelled, drained or robbed of its lease in the middle of its try."""
    monkeypatch.setattr(policy, "SHUT_MS", 0)  # any may try at once
    stats = Stats()
    breaker = Breaker(stats)
    for name in "aabbc":
        breaker.died(KEY, name, "SIGSEGV")
    assert breaker.delay_ms(_held("probe")) is None
    monkeypatch.setattr(policy, "SHUT_MS", 600_000)
    breaker.died(KEY, "probe", "exit 1")  # shut for ten minutes
    assert breaker.delay_ms(_held("x")) is not None
    breaker.nothing(KEY, "x")  # it was no probe
    assert breaker.delay_ms(_held("y")) is not None
    assert breaker.delay_ms(cast(Held, SimpleNamespace(**{**vars(_held("z")), "version": "4"}))) is None
    [block] = breaker.blocks()
    assert (block["waiting"], block["deaths"], block["executions"], block["cause"]) == (2, 6, 4, "exit 1")
    assert breaker.gates()[0].value.startswith("f@3 node n: 6 deaths of 4 executions, the last by exit 1; tried again")
    monkeypatch.setattr(policy, "SHUT_MS", 0)
    for node in breaker._nodes.values():
        node.circuit = policy.after_nothing(policy.Circuit(node.circuit.deaths, 0, "probe"), "probe", 0)
    monkeypatch.setattr(policy, "SHUT_MS", 600_000)
    assert breaker.delay_ms(_held("first")) is None
    assert breaker.delay_ms(_held("second")) is not None
    breaker.nothing(KEY, "first")
    assert breaker.delay_ms(_held("second")) is None
    breaker.lived(KEY, "second")
    assert breaker.delay_ms(_held("third")) is None
    assert (breaker.blocks(), [gate.open for gate in breaker.gates()]) == ([], [True])
    assert (stats.get("breaker_opened"), stats.get("breaker_closed"), stats.get("breaker_delayed")) == (1, 1, 3)


def test_what_a_breaker_keeps_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("plaita.supervisor.breaker.NODES_KNOWN", 5)
    monkeypatch.setattr("plaita.supervisor.breaker.WAITING_KNOWN", 7)
    breaker = Breaker(Stats())
    for number in range(40):
        for name in "aabbc":
            breaker.died(("t", "f", "3", f"n{number}"), name, "SIGSEGV")
    assert [block["node_id"] for block in breaker.blocks()] == ["n39", "n38", "n37", "n36", "n35"]
    monkeypatch.setattr("plaita.supervisor.breaker.SHOWN", 2)
    assert [gate.value.partition(":")[0] for gate in breaker.gates()] == [
        "f@3 node n39",
        "f@3 node n38",
        "3 more nodes",
    ]
    for name in "aabbc":
        breaker.died(KEY, name, "SIGSEGV")
    for number in range(40):
        breaker.delay_ms(_held(f"e{number}"))
    assert breaker.blocks()[0]["waiting"] == 7


def test_38_what_the_dead_mans_switch_killed_is_no_fault_of_its_node(world: World) -> None:
    """Six executors of one node are killed at once, because their supervisor was frozen. On asyncio's own loop, which
    hears of the deaths before the lease keeper has looked at the clock; still, they are deaths for a lost lease."""
    (world.folder / "hanger.py").write_text(
        "import pathlib, time\nfrom plaita import Node\n\n"
        "class Hang(Node):\n    node_type = 't_hang'\n\n"
        "    def execute(self, execution):\n"
        "        while (pathlib.Path(__file__).parent / 'hang').exists():\n            time.sleep(0.02)\n"
    )
    supervisor = world.serving(
        executors=6,
        loop="asyncio",
        preload="hanger",
        lease_ttl_seconds=5,
        claim_min_idle_ms=300,
        environment={"PYTHONPATH": str(world.folder)},
    )
    world.chain("f", {"type": "t_hang", "id": "a"})
    (world.folder / "hang").touch()
    executions = [world.start("f") for _ in range(6)]
    working = supervisor.wait_status(
        lambda status: all(row["step_s"] is not None for row in status["executors"]), "six at work"
    )
    pids = [row["pid"] for row in working["executors"]]
    supervisor.signal(signal.SIGSTOP)
    until(lambda: not any(alive(pid) for pid in pids), "the dead man's switch")
    (world.folder / "hang").unlink()
    supervisor.signal(signal.SIGCONT)
    assert {world.wait(execution)["status"] for execution in executions} == {"completed"}
    counters = supervisor.ask("status")["counters"]
    assert counters["executor_deaths"] >= 6
    assert (counters["breaker_opened"], counters["breaker_delayed"]) == (0, 0)
