"""SIGSTOP past the lease, then SIGCONT: whatever the frozen one does late, nothing of the next holder is overwritten
(ledger L1, L7; DECISIONS 2, 9, 10)."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import pytest
from freezing import FLAGS, TTL_S, Freeze, states
from hosts import World, alive, until

from plaita.testing.proxy import Proxy
from plaita.testing.server import Server, raw


def gated(world: World, *, fails: int = 0, **flags: Any) -> Freeze:
    """One execution in node ``a`` under supervisor ``one``. ``fails``: attempt 1 raises."""
    return Freeze(world, {"type": "t_gated", "id": "a", "fails": fails}, **flags)


@pytest.mark.parametrize(
    ("act", "call"), [("success", "commit"), pytest.param("failure", "count_failure", marks=pytest.mark.long)]
)
def test_a_late_write_of_a_frozen_supervisor_is_refused(
    world: World, proxy: Proxy, plaita_server_process: Server, act: str, call: str
) -> None:
    """The answer came in time, what it says was on its way to Redis when everything stood still: it arrives late."""
    url = proxy.url(plaita_server_process.password)
    freeze = gated(world, fails=1 if act == "failure" else 0, redis_url=url)
    late = freeze.late_write(proxy, call)
    freeze.lease_over()
    two = freeze.second()
    freeze.open(2)
    freeze.judge_end()
    before = freeze.state()
    freeze.arrives(proxy, late)
    assert freeze.state() == before
    assert (freeze.one.stop(), two.stop()) == (0, 0)
    assert freeze.state() == before
    freeze.judge_end()


@pytest.mark.parametrize("act", ["success", pytest.param("failure", marks=pytest.mark.long)])
def test_a_frozen_supervisor_finds_a_late_answer_and_changes_nothing(world: World, act: str) -> None:
    freeze = gated(world, fails=1 if act == "failure" else 0)
    freeze.one.signal(signal.SIGSTOP)
    freeze.open(1)
    freeze.passed(1)  # the answer lies in the socket of the frozen supervisor
    freeze.lease_over()
    two = freeze.second()
    freeze.open(2)
    freeze.judge_end()
    before = freeze.state()
    freeze.thaw()
    assert freeze.state() == before
    assert (freeze.one.stop(), two.stop()) == (0, 0)
    assert freeze.state() == before
    freeze.judge_end()


@pytest.mark.parametrize("act", [pytest.param("renewal", marks=pytest.mark.long), "release"])
def test_a_frozen_supervisor_takes_nothing_from_the_next_holder(
    world: World, proxy: Proxy, plaita_server_process: Server, act: str
) -> None:
    """A renewal, or the hand-on of a drain, is held up on its way past the end of the lease."""
    freeze = gated(world, redis_url=proxy.url(plaita_server_process.password), kill_grace=0.2, drain_timeout=0.1)
    proxy.set_mode("freeze")
    if act == "release":
        freeze.one.signal(signal.SIGTERM)
        until(lambda: not alive(freeze.executor), "the step killed by the drain")
    else:
        value = freeze.ttl()
        until(lambda: freeze.ttl() < value - 1000 * TTL_S // 2, "a renewal that was due and did not come")
    freeze.one.signal(signal.SIGSTOP)
    freeze.lease_over()
    two = freeze.second()
    before = freeze.lease()
    assert before is not None
    assert b" two/" in before
    proxy.set_mode("forward")
    freeze.one.signal(signal.SIGCONT)
    if act == "release":
        assert freeze.one.wait_exit() in (0, 75)
        assert "carrier.handed_on" not in freeze.one.text()
    else:
        freeze.one.wait_status(lambda s: states(s) == ["idle"] and s["redis"]["connected"], "one lets go")
    assert freeze.lease() == before
    keys = world.keys
    [[_, consumer, _, _]] = world.do(raw("XPENDING", keys.queue, keys.group, "-", "+", 10))
    assert consumer == b"two"
    assert world.row(freeze.execution).control["lost"] == "2"
    freeze.open(2)
    freeze.judge_end()
    assert two.stop() == 0


@pytest.mark.parametrize("act", ["success", pytest.param("failure", marks=pytest.mark.long)])
def test_a_frozen_host_wakes_up_and_writes_over_nothing(world: World, act: str) -> None:
    """All of it stands still, executor and template too, as in a suspended machine: node code itself goes on late."""
    freeze = gated(world, fails=1 if act == "failure" else 0)
    tree = freeze.one.tree()
    for pid in (freeze.one.pid, *tree):
        os.kill(pid, signal.SIGSTOP)
    freeze.lease_over()
    two = freeze.second()
    freeze.open(2)
    freeze.judge_end()
    before = freeze.state()
    freeze.open(1)
    os.kill(freeze.executor, signal.SIGCONT)
    freeze.passed(1)
    for pid in tree - {freeze.executor}:
        os.kill(pid, signal.SIGCONT)
    freeze.thaw()
    assert freeze.state() == before
    freeze.judge_end()
    assert two.stop() == 0
    assert freeze.one.stop() == 0


@pytest.mark.parametrize("act", ["success", pytest.param("failure", marks=pytest.mark.long)])
def test_a_frozen_executor_is_still_the_owner_while_its_supervisor_lives(world: World, act: str) -> None:
    freeze = gated(world, fails=1 if act == "failure" else 0)
    world.serving(instance="two", **FLAGS)  # waits for a lease that never ends
    os.kill(freeze.executor, signal.SIGSTOP)
    past_the_lease = time.monotonic() + TTL_S * 1.5
    lease = freeze.lease()
    until(lambda: freeze.lease() != lease or time.monotonic() > past_the_lease, "a time longer than the lease")
    assert freeze.lease() == lease
    freeze.open(1)
    freeze.open(2)
    os.kill(freeze.executor, signal.SIGCONT)
    row = world.wait(freeze.execution)
    right = ["1"] if act == "success" else ["1", "2"]
    assert (row["status"], row["output"]["a"], freeze.attempts()) == ("completed", len(right), right)
    assert world.stats().dlq_length == 0


def test_L7_a_frozen_executor_is_killed_with_its_step_when_it_runs_out_of_time(world: World) -> None:
    node = {"type": "t_gated", "id": "a", "file": str(world.folder / "lines"), "gate": str(world.folder / "gate")}
    world.chain("g", {**node, "timeout": 1000})
    supervisor = world.serving(kill_grace=0.3, **FLAGS)
    execution = world.start("g")
    victim = supervisor.busy("a")["pid"]
    os.kill(victim, signal.SIGSTOP)
    row = world.wait(execution)
    assert (row["status"], row["error"]["exception"]) == ("error", "NodeTimeoutError")
    until(lambda: not alive(victim), "the end of the executor")


def test_a_frozen_executor_dies_with_its_supervisor(world: World) -> None:
    freeze = gated(world)
    os.kill(freeze.executor, signal.SIGSTOP)
    freeze.one.kill()
    until(lambda: not alive(freeze.executor), "the end of the executor")
    freeze.second()
    freeze.open(2)
    freeze.judge_end()
