"""Nodes that fail: what is tried again and when, how often, and what stands in row, counters and dead letters after
(ledger S9 to S12)."""

from __future__ import annotations

from typing import Any

import pytest
from carriers_by_hand import (
    FAR,
    PATIENT,
    bring_back,
    counters,
    delayed_of,
    ended,
    facts,
    hold_back,
    nothing_left,
    raw,
    send_resume,
    send_start,
    settled,
)
from hosts import World, until

from plaita import jsontext
from plaita.clock import iso_utc, wall_ms

# What ends an execution at once: code, error type, exception.
AT_ONCE: dict[str, tuple[Any, str, str]] = {
    "value_error": (-500, "node_error", "NodeExecutionError"),
    "1001": (1001, "node_error", "NodeExecutionError"),
    "caused": (1001, "node_error", "NodeExecutionError"),
    "timeout_error": (-1, "node_error", "NodeTimeoutError"),
    "async_timeout": (-1, "node_error", "NodeTimeoutError"),
    "caused by a timeout": (-500, "node_error", "NodeExecutionError"),
    "caused by a timeout far below": (-500, "node_error", "NodeExecutionError"),
    "cancelled": (-4, "flow_error", "FlowCancelledException"),
    "caused by a cancellation": (-500, "node_error", "NodeExecutionError"),
    "result_error": (42, "error_result", "ErrorResultException"),
    "nan": (-500, "node_error", "NodeExecutionError"),
}
TRIED_AGAIN = (
    "key_error", "business", "text_code", "1002", "1003", "output_validation", "caused by a value error", "exit",
    "interrupt",
)  # fmt: skip


def test_S9_what_each_chain_of_causes_comes_to(world: World) -> None:
    for how in (*AT_ONCE, *TRIED_AGAIN):
        node = {"type": "t_ends", "id": "n", "how": how}
        world.chain(how.replace(" ", "-"), {"type": "mock", "id": "a", "value": 1}, node)
    world.chain("node-time", {"type": "t_ends", "id": "n", "how": "sleeps", "timeout": 50})
    world.chain("flow-time", {"type": "t_ends", "id": "n", "how": "sleeps"}, timeout=50)
    lost = [{"type": "start", "id": "start", "next": "n"}, {"type": "mock", "id": "n", "value": 1, "next": "nowhere"}]
    world.put("no-such-node", lost)
    times = {
        "node time": (-1, "node_error", "NodeTimeoutError"),
        "flow time": (-1, "flow_error", "NodeTimeoutError"),
    }
    supervisor = world.serving(**PATIENT, executors=2)
    started = {how: world.start(how.replace(" ", "-")) for how in (*AT_ONCE, *TRIED_AGAIN, *times, "no such node")}
    for how, (code, error_type, exception) in {**AT_ONCE, **times}.items():
        row = ended(world, started[how])
        error = row["error"]
        assert (row["status"], error["code"], error["error_type"], error["exception"]) == (
            "error", code, error_type, exception,
        ), how  # fmt: skip
        assert (error["failed_node"], error["node_retries"], row["attempts"]) == ("n", 0, 1), how
        assert counters(world, started[how]) == {"nofail": 1}, how
    assert ended(world, started["no such node"])["status"] == "error"
    again = [started[how] for how in TRIED_AGAIN]
    for execution, row in hold_back(world, *again).items():
        how = next(how for how, one in started.items() if one == execution)
        assert (row.status, row.lease, row.error, row.control["last_node"]) == ("running", None, None, "a"), how
        assert row.results == {"start": b"null", "a": b"1"}, how
        assert (row.last_error is not None, jsontext.loads(row.timings["n"])["status"]) == (True, "retrying"), how
        found = counters(world, execution)
        assert set(found) == {"noderetry:n", "noderefetch"}, how
        assert found["noderetry:n"] == found["noderefetch"] >= 1, how  # type: ignore[operator]
    settled(world)
    assert (world.stats().delayed, world.stats().dlq_length) == (len(TRIED_AGAIN), 0)
    supervisor.wait_status(lambda s: all(row["state"] == "idle" for row in s["executors"]), "idle executors")


def failing(world: World, fails: int = 99, **fields: Any) -> None:
    """The flow ``f``: ``a``, then ``n``, which fails so many times."""
    file = str(world.folder / "lines")
    world.chain(
        "f",
        {"type": "t_noted", "id": "a", "file": file},
        {"type": "t_noted", "id": "n", "file": file, "fails": fails, **fields},
    )


def runs(world: World, node_id: str) -> int:
    return sum(line.split()[1] == node_id for line in (world.folder / "lines").read_text().splitlines())


def test_S10_the_waits_double_up_to_thirty_seconds(world: World) -> None:
    failing(world)
    world.serving(**PATIENT, max_deliveries=20)
    execution = world.start("f")
    waits = []
    for number in range(1, 8):
        until(lambda number=number: counters(world, execution).get("noderetry:n") == number, "a failure")  # type: ignore[misc]
        until(lambda: delayed_of(world).get(execution, FAR) != FAR, "its copy")
        row = world.row(execution)
        # Both times are Redis's in the one call that lets the execution go.
        waits.append(delayed_of(world)[execution] - int(row.control["last_update_time"]))
        assert (row.status, row.lease, row.control["last_node"]) == ("running", None, "a")
        assert [(one.length, one.pending) for one in world.stats().streams] == [(0, 0), (0, 0)]
        bring_back(world)
    assert waits == [1000, 2000, 4000, 8000, 16_000, 30_000, 30_000]
    assert runs(world, "a") == 1


def test_S10_the_copy_of_a_start_is_a_continue_as_old_as_the_start(world: World) -> None:
    failing(world)
    world.serving(**PATIENT)
    an_hour_ago = wall_ms() // 1000 * 1000 - 3_600_000
    send_start(world, execution_id="e", params={"n": 1}, timestamp=iso_utc(an_hour_ago))
    hold_back(world, "e")
    [body] = raw(world, "HVALS", world.keys.delayed_body)
    for said in ('"type":"resume"', '"resume_type":"continue"', '"execution_id":"e"', str(an_hour_ago)):
        assert said.encode() in body
    assert world.row("e").input == b'{"n":1}'
    settled(world)


def test_S10_a_wait_holds_no_executor_and_blocks_nobody(world: World) -> None:
    failing(world)
    world.chain("fine", {"type": "mock", "id": "m", "value": 1})
    supervisor = world.serving(**PATIENT, executors=1)
    failed = [world.start("f") for _ in range(10)]
    hold_back(world, *failed)
    before = {execution: facts(world, execution) for execution in failed}
    supervisor.wait_status(lambda s: all(row["state"] == "idle" for row in s["executors"]), "an idle executor")
    assert world.run("fine")["status"] == "completed"
    settled(world)
    assert {execution: facts(world, execution) for execution in failed} == before
    assert world.stats().delayed == len(failed)


def test_S11_a_budget_that_is_spent_ends_it_with_a_dead_letter(world: World) -> None:
    failing(world, fails=99)
    supervisor = world.serving(**PATIENT, max_deliveries=3)
    execution = world.start("f", {"k": 1})
    while world.get(execution)["status"] != "error":
        bring_back(world)
    row = world.get(execution)
    assert (row["error"]["failed_node"], row["error"]["node"], row["error"]["node_retries"]) == ("n", "n", 2)
    assert (row["last_node_id"], row["attempts"], runs(world, "n"), runs(world, "a")) == ("a", 3, 3, 1)
    nothing_left(world)
    [letter] = world.client.dead_letters()
    assert (letter["execution_id"], letter["flow_id"], letter["node_id"]) == (execution, "f", "n")
    assert letter["attempts"] == 3
    assert "run 3 of 99" in letter["reason"]
    assert counters(world, execution) == {"noderefetch": 3}
    status = supervisor.status()
    assert status is not None
    assert (status["counters"]["node_retries"], status["counters"]["step_failures"]) == (2, 3)
    assert (status["counters"]["dead_lettered"], status["counters"]["poison_acked"]) == (1, 0)


def test_S11_success_clears_the_key_of_its_node_alone(world: World) -> None:
    file, gate = str(world.folder / "lines"), world.folder / "gate"
    world.chain(
        "f",
        {"type": "t_noted", "id": "a", "file": file, "fails": 1},
        {"type": "t_noted", "id": "b", "file": file, "fails": 1},
        {"type": "t_gated", "id": "c", "file": file, "gate": str(gate)},
    )
    supervisor = world.serving(**PATIENT)
    execution = world.start("f")
    other = world.keys.noderetry(execution, "elsewhere")
    raw(world, "SET", other, 3)
    hold_back(world, execution)
    assert counters(world, execution) == {"noderefetch": 1, "noderetry:a": 1, "noderetry:elsewhere": 3}
    assert 6 * 86_400_000 < raw(world, "PTTL", world.keys.noderetry(execution, "a")) <= 7 * 86_400_000
    assert 6 * 86_400_000 < raw(world, "PTTL", world.keys.of_execution("noderefetch", execution)) <= 7 * 86_400_000
    bring_back(world)
    until(lambda: "noderetry:b" in counters(world, execution), "the failure of b")
    hold_back(world, execution)
    assert counters(world, execution) == {"noderefetch": 2, "noderetry:b": 1, "noderetry:elsewhere": 3}
    bring_back(world)
    supervisor.busy("c")
    found = counters(world, execution)
    found.pop("lease")
    assert found == {"noderefetch": 2, "noderetry:elsewhere": 3}
    gate.with_name("gate.1").touch()
    assert ended(world, execution)["status"] == "completed"
    raw(world, "DEL", other)
    assert counters(world, execution) == {}


@pytest.mark.parametrize("what", ["deaths", "drains", "deliveries"])
def test_S11_nothing_but_failures_is_counted(world: World, what: str) -> None:
    """A carrier that is delivered again, an executor that is lost: each has a budget of its own (S14)."""
    failing(world, fails=1, seconds=0.05)
    supervisor = world.serving(**PATIENT, max_deliveries=2)
    execution = world.start("f")
    hold_back(world, execution)
    if what == "deliveries":
        for _ in range(3):
            send_resume(world, execution, "continue")
    elif what == "drains":
        assert supervisor.stop() == 0
        world.serving(**PATIENT, max_deliveries=2)
        bring_back(world)
    else:
        raw(world, "HSET", world.keys.row(execution), "lost", 1, "lost_node", "n")
        bring_back(world)
    row = ended(world, execution)
    assert (row["status"], runs(world, "n")) == ("completed", 2)


def test_S12_a_hundred_retries_of_one_execution_whatever_the_node(world: World) -> None:
    failing(world)
    world.serving(**PATIENT, max_deliveries=50)
    execution = world.start("f")
    hold_back(world, execution)
    key = world.keys.of_execution("noderefetch", execution)
    raw(world, "SET", key, 99)
    send_resume(world, execution, "continue")
    until(lambda: counters(world, execution).get("noderefetch") == 100, "the hundredth")
    hold_back(world, execution)
    assert world.get(execution)["status"] == "running"
    bring_back(world)
    row = ended(world, execution)
    assert (row["status"], row["error"]["failed_node"], row["error"]["node_retries"]) == ("error", "n", 2)
    [letter] = world.client.dead_letters()
    assert (letter["execution_id"], letter["node_id"]) == (execution, "n")
    nothing_left(world)
    # A retry by hand does not begin to count anew; deleting the key does.
    assert counters(world, execution) == {"noderefetch": 101}
    world.client.resume(execution, "retry")
    until(lambda: counters(world, execution).get("noderefetch") == 102, "one more failure")
    until(lambda: world.get(execution)["status"] == "error", "its end at once")
    settled(world)
    raw(world, "DEL", key)
    world.client.resume(execution, "retry")
    hold_back(world, execution)
    assert counters(world, execution)["noderefetch"] == 1
