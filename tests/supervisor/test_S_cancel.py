"""Cancel at every moment of an execution's life; what was asked for, told and done is shown apart (ledger S8,
DECISIONS 13). Of waits it is in test_waits, of poison steps in tests/faults."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from carriers_by_hand import PATIENT, bring_back, counters, ended, facts, hold_back, nothing_left, settled
from hosts import World, until

from plaita.errors import CODE_CANCELLED


def gated(world: World, **fields: Any) -> Path:
    """The flow ``f``: ``a`` notes its run, then ``b``, whose attempt n ends once the file gate.<n> is there."""
    gate, file = world.folder / "gate", str(world.folder / "lines")
    world.chain(
        "f",
        {"type": "t_noted", "id": "a", "file": file},
        {"type": "t_gated", "id": "b", "file": file, "gate": str(gate), **fields},
        {"type": "t_noted", "id": "c", "file": file},
    )
    return gate


def ran(world: World, execution: str) -> list[str]:
    file = world.folder / "lines"
    lines = [line.split() for line in file.read_text().splitlines()] if file.exists() else []
    return [words[1] for words in lines if words[0] == execution]


def state_of(world: World, execution: str) -> str | None:
    shown = world.get(execution)["cancel"]
    return None if shown is None else str(shown["state"])


def is_cancelled(world: World, execution: str, reason: str, checkpoint: str | None) -> None:
    """The end that was asked for, with the checkpoint before the step that was in hand, and nothing besides."""
    row = ended(world, execution)
    assert (row["status"], row["error"]["code"], row["last_node_id"]) == ("cancelled", CODE_CANCELLED, checkpoint)
    assert row["cancel"] == {"state": "stopped", "reason": reason, "at": row["ended_at"]}
    assert reason in row["error"]["message"]
    assert (row["cancel_requested"], row["cancel_reason"], row["output"]) == (False, reason, None)
    assert counters(world, execution) == {}
    _, _, indexed = facts(world, execution)
    assert indexed == ["cancelled"]


def test_S8_of_what_nobody_has_read(world: World) -> None:
    gated(world)
    execution = world.start("f")
    told = world.client.cancel(execution, "too soon")
    assert (told["status"], told["cancel_requested"], told["cancel"]) == ("pending", True, "requested")
    assert state_of(world, execution) == "requested"
    world.serving(**PATIENT)
    is_cancelled(world, execution, "too soon", None)
    nothing_left(world)
    assert ran(world, execution) == []


def test_S8_of_what_is_queued_behind_a_long_step(world: World) -> None:
    gate = gated(world)
    supervisor = world.serving(**PATIENT, executors=1)
    first = world.start("f")
    supervisor.busy("b")
    behind = world.start("f")
    world.client.cancel(behind, "not needed")
    assert (world.get(behind)["status"], state_of(world, behind)) == ("pending", "requested")
    gate.with_name("gate.1").touch()
    assert ended(world, first)["status"] == "completed"
    is_cancelled(world, behind, "not needed", None)
    nothing_left(world)
    assert ran(world, behind) == []


def test_S8_of_a_step_that_does_not_listen_is_told_apart_and_killed(world: World) -> None:
    world.chain("f", {"type": "mock", "id": "a", "value": 1}, {"type": "t_stubborn", "id": "b"})
    supervisor = world.serving(**PATIENT, kill_grace=600)
    execution = world.start("f")
    pid = supervisor.busy("b")["pid"]
    assert state_of(world, execution) is None
    supervisor.signal(signal.SIGSTOP)
    world.client.cancel(execution, "enough")
    assert state_of(world, execution) == "requested"
    supervisor.signal(signal.SIGCONT)
    until(lambda: state_of(world, execution) == "signalled", "that the step was told")
    shown = world.get(execution)
    assert (shown["status"], shown["cancel"]["reason"], shown["cancel"]["at"] is not None) == (
        "running",
        "enough",
        True,
    )
    os.kill(pid, signal.SIGKILL)
    is_cancelled(world, execution, "enough", "a")
    assert world.row(execution).death is None  # it is no lost step
    nothing_left(world)


def test_S8_what_does_not_stop_within_its_grace_is_killed(world: World) -> None:
    world.chain("f", {"type": "mock", "id": "a", "value": 1}, {"type": "t_stubborn", "id": "b"})
    supervisor = world.serving(**PATIENT, kill_grace=0.2)
    execution = world.start("f")
    pid = supervisor.busy("b")["pid"]
    world.client.cancel(execution, "enough")
    is_cancelled(world, execution, "enough", "a")
    assert not os.path.exists(f"/proc/{pid}")
    assert int(world.row(execution).control["cancel_signalled_at"]) > 0
    nothing_left(world)
    supervisor.wait_status(lambda s: all(row["state"] == "idle" for row in s["executors"]), "idle executors")


def test_S8_in_retry_backoff_it_ends_at_once(world: World) -> None:
    file = str(world.folder / "lines")
    world.chain(
        "f", {"type": "t_noted", "id": "a", "file": file}, {"type": "t_noted", "id": "b", "file": file, "fails": 9}
    )
    world.serving(**PATIENT)
    execution = world.start("f")
    hold_back(world, execution)
    tries = len(ran(world, execution))
    world.client.cancel(execution, "it fails anyway")
    is_cancelled(world, execution, "it fails anyway", "a")
    before = facts(world, execution)
    bring_back(world)
    until(lambda: world.stats().delayed == 0, "the copy that it waited for")
    settled(world)
    assert facts(world, execution) == before
    assert len(ran(world, execution)) == tries


def test_S8_in_the_resume_of_a_wait(world: World) -> None:
    file = world.folder / "entries"
    world.chain(
        "f",
        {"type": "mock", "id": "a", "value": 1},
        {"type": "t_wait", "id": "w", "file": str(file), "hang": "on_event"},
    )
    supervisor = world.serving(**PATIENT)
    execution = world.start("f")
    until(lambda: world.get(execution)["status"] == "suspended", "the wait")
    assert world.client.resume(execution, "event", {"n": 1})["resumed"]
    supervisor.busy("w")
    world.client.cancel(execution, "no more")
    is_cancelled(world, execution, "no more", "w")
    control = world.row(execution).control
    assert not any(control.get(name) for name in ("wait", "woken", "wake_id", "wait_deadline"))
    assert [line.split()[0] for line in file.read_text().splitlines()] == ["execute", "on_event"]
    nothing_left(world)


def test_S8_between_two_steps_the_reason_is_kept(world: World) -> None:
    """The commit of the step in hand tells of the cancel before the keeper has seen the flag."""
    gate = gated(world)
    supervisor = world.serving(**PATIENT)
    execution = world.start("f")
    supervisor.busy("b")
    world.client.cancel(execution, "the customer called")
    gate.with_name("gate.1").touch()
    row = ended(world, execution)
    assert (row["status"], row["cancel_reason"]) == ("cancelled", "the customer called")
    is_cancelled(world, execution, "the customer called", row["last_node_id"])
    assert row["last_node_id"] in ("a", "b")  # by who was first
    assert "c" not in ran(world, execution)
    nothing_left(world)


def test_S8_a_holder_that_is_killed_leaves_the_cancel_to_the_next(world: World) -> None:
    gated(world)
    first = world.serving(**PATIENT)
    execution = world.start("f")
    first.busy("b")
    first.signal(signal.SIGSTOP)
    world.client.cancel(execution, "in between")
    first.kill()
    world.serving(**PATIENT)
    is_cancelled(world, execution, "in between", "a")
    assert ran(world, execution) == ["a", "b"]
    nothing_left(world)


@pytest.mark.parametrize("status", ["completed", "error"])
def test_S8_a_cancel_that_comes_too_late_leaves_no_trace(world: World, status: str) -> None:
    """Asked for while the last step ends: the end stands, the flag goes with it, a later retry is not cancelled."""
    gate = world.folder / "gate"
    node = {"type": "t_gated", "id": "end", "file": str(world.folder / "lines"), "gate": str(gate), "fails": 1}
    if status == "completed":
        node["fails"] = 0
    world.put(
        "f", [{"type": "start", "id": "start", "next": "end"}, {**node, "next": "last"}, {"type": "end", "id": "last"}]
    )
    supervisor = world.serving(**PATIENT, max_deliveries=1)
    execution = world.start("f")
    supervisor.busy("end")
    gate.with_name("gate.1").touch()
    row = ended(world, execution)
    assert row["status"] == status
    told = world.client.cancel(execution, "late")
    assert (told["status"], told["cancel_requested"], told["cancel"]) == (status, False, None)
    assert (world.get(execution)["cancel"], counters(world, execution).get("cancel")) == (None, None)
    nothing_left(world)
    if status == "error":
        gate.with_name("gate.2").touch()
        world.client.resume(execution, "retry")
        until(lambda: world.get(execution)["status"] == "completed", "the end")
