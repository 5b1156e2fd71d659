"""Callbacks (ledger F7, DECISIONS 25) through whole supervisors: across hosts and waits, bounded like node code."""

from __future__ import annotations

import re

import pytest
from hosts import SupervisorProcess, World, until

TOLD = {"preload": "telling", "executors": 1, "kill_grace": 0.5}


def told(*supervisors: SupervisorProcess, execution: str) -> list[tuple[str, ...]]:
    """(kind, node, action, attempt, error) of each call, host by host."""
    found: list[tuple[str, ...]] = []
    for supervisor in supervisors:
        lines = re.findall(rf'text="told {execution} (.*?) \d+ end"', supervisor.text())
        found += [tuple(line.split()) for line in lines]
    return found


def test_F7_they_see_every_step_across_a_wait_and_two_hosts(world: World) -> None:
    flow = world.chain("f", {"type": "event", "id": "w", "event_type": "t"})
    one = world.serving(**TOLD)
    execution = world.start(flow)
    until(lambda: world.get(execution)["status"] == "suspended", "the wait")
    assert one.stop() == 0
    two = world.serving(instance="two", **TOLD)
    world.client.resume(execution, "event", {"a": 1})
    row = world.wait(execution)
    assert (row["status"], row["output"]["w"]["event_data"]) == ("completed", {"a": 1})
    until(lambda: told(two, execution=execution)[-1:] == [("flow_end", "end", "execute", "1", "-")], "the last word")
    assert [call[:3] for call in told(one, two, execution=execution)] == [
        ("flow_start", "start", "execute"),
        ("node_start", "start", "execute"),
        ("node_end", "start", "execute"),
        ("node_start", "w", "execute"),
        ("node_suspend", "w", "execute"),
        ("flow_suspend", "w", "execute"),
        ("flow_resume", "w", "event"),
        ("node_resume", "w", "event"),
        ("node_end", "w", "event"),
        ("node_start", "end", "execute"),
        ("node_end", "end", "execute"),
        ("flow_end", "end", "execute"),
    ]
    assert all(call[4] == "-" for call in told(one, two, execution=execution))
    assert "callback telling.Teller.on_flow_resume failed" in two.text()
    assert "SystemExit: a callback that leaves" in two.text()


@pytest.mark.parametrize("kind", ["node_start", "node_end"])
def test_F7_one_that_hangs_ends_with_its_step(world: World, kind: str) -> None:
    handler = {"strategy": "continue-with", "defaultValue": "late"}
    flow = world.chain("f", {"type": "mock", "id": "m", "value": 1, "timeout": 300, "timeoutHandler": handler})
    supervisor = world.serving(**TOLD)
    execution = world.start(flow, execution_id=f"hang-{kind}-m")
    row = world.wait(execution)
    assert (row["status"], row["output"]["m"]) == ("completed", "late")
    calls = [call[:3] for call in told(supervisor, execution=execution) if call[1] == "m"]
    assert calls[0] == ("node_start", "m", "execute")
    assert calls[-1] == ("node_end", "m", "timed_out")
    assert (("node_end", "m", "execute") in calls) is (kind == "node_end")
