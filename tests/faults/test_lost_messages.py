"""Single requests and answers are lost between supervisor and Redis: every call of a carrier's way, one by one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fault_load import Load, Serve, judge, residue
from hosts import World, until

from plaita.client import Client
from plaita.testing.proxy import Deed, Proxy, Rule, Then
from plaita.testing.server import Server, raw

CALLS = ("take", "XREADGROUP", "begin", "commit", "finish")


@pytest.mark.parametrize("deed", ["lose_request", "lose_reply", pytest.param("cut_reply", marks=pytest.mark.long)])
def test_each_call_of_a_carriers_way(
    world: World, plaita_server_process: Server, proxy: Proxy, serve: Serve, deed: Deed
) -> None:
    supervisor = serve()
    load = Load(world, plaita_server_process)
    for call in CALLS:
        rule = proxy.add(Rule(call, deed, nth=2))
        for _ in range(20):  # which of take and XREADGROUP brings a carrier is a matter of moments
            load.start(2)
            load.wait(20)
            if rule.done:
                break
        assert rule.done == 1, f"{call} was never sent twice"
        proxy.clear()
    load.clean()
    judge(supervisor, supervisor.pid)


@pytest.mark.parametrize("deed", [pytest.param("lose_request", marks=pytest.mark.long), "lose_reply"])
def test_the_calls_of_failing_and_dying_steps(world: World, proxy: Proxy, serve: Serve, deed: Deed) -> None:
    """count_failure, postpone and retake: a failure and a death are counted once each."""
    supervisor = serve(executors=1)
    mark = world.folder / "mark"
    world.chain("fails", {"type": "f_fails_once", "id": "a", "file": str(mark)})
    world.chain("dies", {"type": "f_dies_once", "id": "a", "file": str(mark)})
    for flow, calls in (("fails", ("count_failure", "postpone")), ("dies", ("retake",))):
        for call in calls:
            rule = proxy.add(Rule(call, deed))
            mark.unlink(missing_ok=True)
            row = world.run(flow)
            assert row["status"] == "completed"
            assert row["output"]["a"] == 2, "ran again once, as attempt 2"
            assert rule.done == 1
            proxy.clear()
    counters = supervisor.status()["counters"]  # type: ignore[index]
    assert (counters["step_failures"], counters["node_retries"], counters["executor_deaths"]) == (2, 2, 1)
    judge(
        supervisor, supervisor.pid, quiet=("dead_lettered", "poison_acked", "failed", "refused_writes", "leases_lost")
    )


@pytest.fixture
def client(world: World, proxy: Proxy, plaita_server_process: Server) -> Iterator[Client]:
    """One behind the proxy too."""
    keys = world.keys
    url = proxy.url(plaita_server_process.password)
    with Client(url, queue_name=keys.queue, consumer_group=keys.group, key_prefix=keys.prefix) as made:
        yield made


def suspended(world: World, **fields: Any) -> tuple[str, Path]:
    """An execution that waits, and the file of its node's entries."""
    file = world.folder / "entries"
    world.chain("f", {"type": "t_wait", "id": "w", "file": str(file), "subscriptionTimeout": 3600, **fields})
    execution = world.start("f")
    until(lambda: world.get(execution)["status"] == "suspended", "the wait")
    return execution, file


def entries(file: Path) -> Counter[str]:
    return Counter(line.split()[0] for line in file.read_text().splitlines())


@pytest.mark.parametrize("deed", ["lose_request", "lose_reply", pytest.param("cut_reply", marks=pytest.mark.long)])
def test_the_calls_of_a_wait_and_its_end(world: World, proxy: Proxy, serve: Serve, client: Client, deed: Deed) -> None:
    """suspend, the client's wake, and what resumes it: one wait with one timer, woken once."""
    supervisor = serve(preload="waiting")
    rules = [proxy.add(Rule("suspend", deed))]
    execution, file = suspended(world)
    assert world.stats().delayed == 1
    rules += [proxy.add(Rule(call, deed)) for call in ("wake", "begin", "commit", "finish")]
    assert client.resume(execution, "event", {"n": 1})["resumed"]
    row = world.wait(execution)
    assert (row["status"], row["output"]["w"]["event_data"]) == ("completed", {"n": 1})
    assert entries(file) == {"execute": 1, "on_event": 1}
    assert [rule.done for rule in rules] == [1] * 5
    assert (world.stats().delayed, residue(world)) == (0, [])
    judge(supervisor, supervisor.pid)


@pytest.mark.parametrize("deed", ["lose_request", "lose_reply"])
def test_the_promotion_of_a_timer(world: World, proxy: Proxy, serve: Serve, deed: Deed) -> None:
    """Moved and never heard of, or not moved: it wakes once."""
    late = {"strategy": "continue-with", "defaultValue": "late"}
    supervisor = serve(preload="waiting")
    execution, file = suspended(world, timeoutHandler=late)
    rule = proxy.add(Rule("promote", deed, times=1_000_000))  # any of them may be the one that finds it due
    [timer] = world.do(raw("ZRANGE", world.keys.delayed, 0, -1))
    world.do(raw("ZADD", world.keys.delayed, "XX", 0, timer))
    if deed == "lose_reply":
        until(lambda: world.row(execution).control["woken"] == "timeout", "the end of its time")
    until(lambda: rule.done, "a promotion")
    proxy.clear()
    row = world.wait(execution)
    assert (row["status"], row["output"]["w"]) == ("completed", "late")
    assert entries(file) == {"execute": 1, "on_timeout": 1}
    judge(supervisor, supervisor.pid)


@pytest.mark.parametrize("deed", ["lose_request", "lose_reply"])
def test_S13_a_retry_that_is_asked_for(world: World, proxy: Proxy, serve: Serve, client: Client, deed: Deed) -> None:
    """The client asks again, and it is one retry: what it wakes fails again, and is woken no second time."""
    supervisor = serve(preload="crashing")
    file = world.folder / "lines"
    world.chain("f", {"type": "t_noted", "id": "a", "file": str(file), "fails": 99, "final": True})
    execution = world.start("f")
    assert world.wait(execution)["status"] == "error"
    rule = proxy.add(Rule("resume", deed))
    assert client.resume(execution, "retry")["resumed"]
    assert rule.done == 1
    until(lambda: len(file.read_text().splitlines()) == 2, "the retry")
    until(lambda: all(stream.length == 0 for stream in world.stats().streams), "an empty queue")
    assert world.get(execution)["status"] == "error"
    assert len(file.read_text().splitlines()) == 2
    assert world.do(raw("GET", world.keys.of_execution("g1wakeups", execution))) == b"1"
    judge(
        supervisor, supervisor.pid, quiet=("dead_lettered", "poison_acked", "failed", "refused_writes", "leases_lost")
    )


@pytest.mark.parametrize("deed", [pytest.param("lose_request", marks=pytest.mark.long), "lose_reply"])
def test_hand_on(world: World, plaita_server_process: Server, proxy: Proxy, serve: Serve, deed: Deed) -> None:
    """With leases and min-idle of 10 minutes, the next supervisor can only go on by what was handed on."""
    first = serve(executors=1)
    load = Load(world, plaita_server_process, seconds=0.3)
    load.start(2)
    load.wait_lines(1)
    rule = proxy.add(Rule("hand_on", deed))
    assert first.stop() == 0
    assert rule.done == 1
    proxy.clear()
    second = serve(instance="two")
    load.wait()
    load.clean()
    judge(second, second.pid)


@pytest.mark.long
def test_a_reply_lost_without_a_word(world: World, plaita_server_process: Server, proxy: Proxy, serve: Serve) -> None:
    """Nothing is reset: the connection is silent from then on, which only the response timeout shows."""
    supervisor = serve()
    load = Load(world, plaita_server_process)
    rule = proxy.add(Rule("begin", "lose_reply", then="silence"))
    load.start(2)
    until(lambda: rule.done, "the loss")
    load.wait()
    load.clean()
    judge(supervisor, supervisor.pid)


@pytest.mark.parametrize("then", ["reset", pytest.param("silence", marks=pytest.mark.long)])
def test_a_carrier_delivered_to_a_dead_reply_is_taken_up_by_its_own_consumer(
    world: World, plaita_server_process: Server, proxy: Proxy, serve: Serve, then: Then
) -> None:
    """XREADGROUP's answer never comes (KNOWN-TROUBLE 11): min-idle is 10 minutes, and it does not wait for it."""
    supervisor = serve(read_block_ms=1000)
    load = Load(world, plaita_server_process)
    rule = proxy.add(Rule("XREADGROUP", "lose_reply", then=then))
    until(lambda: rule.done, "a blocking read that will not be answered")
    load.start(1)  # which the server delivers to that read at once
    load.wait(20)
    load.clean()
    judge(supervisor, supervisor.pid)


def test_a_carrier_delivered_to_a_reader_that_is_gone_already(
    world: World, plaita_server_process: Server, proxy: Proxy, serve: Serve
) -> None:
    """Our end is reset, the server's is not: it holds the blocking read of a dead connection, and delivers to it after
    we have looked for what the loss may have left with us."""
    supervisor = serve(read_block_ms=3000)
    load = Load(world, plaita_server_process)
    proxy.reset(client_only=True)
    gone = proxy.connections
    until(lambda: proxy.connections >= gone + 2, "new connections of reader and writer")
    load.start(1)  # the oldest waiting reader is served first: the dead one
    load.wait(20)
    load.clean()
    judge(supervisor, supervisor.pid)


@pytest.mark.long
@pytest.mark.parametrize("then", ["reset", "silence"])
@pytest.mark.parametrize("deed", ["lose_request", "lose_reply", "cut_reply"])
@pytest.mark.parametrize("call", CALLS)
def test_every_seventh(
    world: World, plaita_server_process: Server, proxy: Proxy, serve: Serve, call: str, deed: Deed, then: Any
) -> None:
    supervisor = serve(read_block_ms=200)
    load = Load(world, plaita_server_process)
    proxy.add(Rule(call, deed, every=7, then=then))
    load.start(10 if then == "silence" else 60)
    load.wait(300)
    proxy.clear()
    load.clean()
    judge(supervisor, supervisor.pid, lines=200)


@pytest.mark.long
def test_a_begin_that_is_never_answered(
    world: World, plaita_server_process: Server, proxy: Proxy, serve: Serve
) -> None:
    """For a whole lease: the carrier is let go of then, and does not lie until it has been idle for 10 minutes."""
    supervisor = serve(lease_ttl_seconds=5)
    load = Load(world, plaita_server_process)
    proxy.add(Rule("begin", "lose_request", times=1_000_000))
    load.start(2)
    until(lambda: supervisor.text().count("begin.unanswered") >= 2, "begins given up")
    proxy.clear()
    load.wait()
    load.clean()
    judge(supervisor, supervisor.pid, lines=120)
