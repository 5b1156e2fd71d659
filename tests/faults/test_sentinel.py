"""Failover by Sentinel with real processes: supervisor, clients and storages follow the primary by themselves."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hosts import SupervisorProcess, World, until

from plaita.errors import PlaitaError
from plaita.nodes.builtin import BUILT_IN
from plaita.nodes.registry import NodeRegistry
from plaita.server import FlowWorker
from plaita.storage import RedisExecutionStorage, RedisFlowStorage
from plaita.store.call import Value
from plaita.store.runner_sync import SyncRunner
from plaita.testing.sentinels import PASSWORD, SENTINEL_PASSWORD, Process, SentinelGroup
from plaita.testing.server import raw


@pytest.fixture
def group() -> Iterator[SentinelGroup]:
    with tempfile.TemporaryDirectory(prefix="plaita-") as folder:
        made = SentinelGroup(f"{folder}/group", password=True)
        yield made
        made.close()


@pytest.fixture
def three() -> Iterator[SentinelGroup]:
    with tempfile.TemporaryDirectory(prefix="plaita-") as folder:
        made = SentinelGroup(f"{folder}/group", sentinels=3)
        yield made
        made.close()


@pytest.fixture
def world(group: SentinelGroup) -> Iterator[World]:
    yield from _world(group)


@pytest.fixture
def world_of_three(three: SentinelGroup) -> Iterator[World]:
    yield from _world(three)


def _world(group: SentinelGroup) -> Iterator[World]:
    with tempfile.TemporaryDirectory(prefix="plaita-") as folder:
        made = World(group.url, Path(folder))
        yield made
        made.close()


def serve(world: World, **named: object) -> SupervisorProcess:
    flags = {"preload": "trouble", "lease_ttl_seconds": 600, "claim_min_idle_ms": 600_000} | named
    return world.serving(**flags)


def follow(world: World) -> None:
    """The test's own connections have found the new primary."""
    for runner in (world.runner, world.client._runner):
        until(lambda runner=runner: isinstance(runner.run(raw("PING")), Value), "a connection of the test's own")


def in_step(group: SentinelGroup) -> None:
    """All that was written is on the replica."""
    assert until(lambda: group.do(group.primary(), "WAIT", 1, 1000), "the replica") == 1


def nobody_of_plaita(server: Process, group: SentinelGroup) -> bool:
    clients = bytes(group.do(server, "CLIENT", "LIST")).decode()
    return "name=plaita" not in clients


def test_DECISIONS_40_the_primary_is_killed_and_the_work_goes_on_at_the_new_one(
    group: SentinelGroup, world: World
) -> None:
    """Lease and min-idle of 10 minutes: what goes on does so because the supervisor itself found the new primary. The
    step that runs meanwhile is kept, not run again."""
    one = serve(world, executors=2)
    file = world.folder / "kept"
    world.chain("kept", {"type": "t_line", "id": "kept", "file": str(file), "until": str(world.folder / "go")})
    world.chain("quick", {"type": "t_line", "id": "quick", "file": str(world.folder / "quick")})
    kept = world.start("kept")
    one.busy("kept")
    in_step(group)
    old, new = group.primary(), group.replica()
    old.kill()
    group.wait_for_primary(new)
    follow(world)
    assert world.run("quick")["status"] == "completed"
    (world.folder / "go").touch()
    assert world.wait(kept)["status"] == "completed"
    assert len(file.read_text().splitlines()) == 1
    status = one.status()
    assert status is not None
    assert (status["counters"]["failovers"], status["counters"]["failover_dropped"]) == (1, 0)
    # It comes back and believes to be a primary, until the sentinels have noticed.
    old.start()
    until(lambda: "role:" in group.info(old), "the old primary")
    assert world.run("quick")["status"] == "completed"
    assert nobody_of_plaita(old, group)
    assert one.stop() == 0
    for secret in (PASSWORD, SENTINEL_PASSWORD):
        assert secret not in one.text()


def test_DECISIONS_40_sentinels_that_come_later_are_waited_for_and_named(group: SentinelGroup, world: World) -> None:
    """All silent; then there, and the service not yet known to them; then it is."""
    sentinel = group.sentinels[0]
    sentinel.kill()
    url = group.url_of("later")
    one = world.supervisor(redis_url=url)
    status = one.wait_status(lambda s: "no sentinel names" in (s["redis"]["error"] or ""), "the silence said")
    assert status["status"] == "starting"
    assert f"127.0.0.1:{sentinel.port}: Connection refused" in status["redis"]["error"]
    sentinel.start()
    one.wait_status(lambda s: "knows no service 'later'" in (s["redis"]["error"] or ""), "the service said")
    port = group.servers[0].port
    group.ask_sentinel(sentinel, "SENTINEL", "MONITOR", "later", "127.0.0.1", port, 1)
    one.wait_serving()
    assert one.stop() == 0
    said = [line for line in one.text().splitlines() if "event=redis.unreachable" in line]
    assert any("Connection refused" in line for line in said)
    assert any("knows no service" in line for line in said)  # another reason is said at once
    for secret in (PASSWORD, SENTINEL_PASSWORD):
        assert secret not in one.text()


def test_DECISIONS_40_the_wrong_password_of_sentinels_is_fatal_at_the_start(group: SentinelGroup, world: World) -> None:
    one = world.supervisor(redis_url=group.url.replace(SENTINEL_PASSWORD, "S3cr3t-marker"))
    assert one.wait_exit() == 78
    assert "WRONGPASS" in one.text()
    assert "S3cr3t" not in one.text()


def test_DECISIONS_40_commands_storages_and_library_mode_follow_a_failover(group: SentinelGroup, world: World) -> None:
    world.chain("f", {"type": "mock", "id": "a", "value": 1})
    command = [sys.executable, "-m", "plaita.cli.main", "flow", "list", "--redis-url", group.url, "--json"]
    environment = {"PLAITA_KEY_PREFIX": world.keys.prefix, "PLAITA_CONFIG": "/dev/null"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    assert '"f"' in done.stdout
    prefix = world.keys.prefix
    executions, flows = (kind(group.url, key_prefix=prefix) for kind in (RedisExecutionStorage, RedisFlowStorage))
    assert flows.list_flows() == ["f"]
    types = NodeRegistry(BUILT_IN)
    with FlowWorker(executions, flows, queue_name=world.keys.queue, consumer_group="g", registry=types) as worker:
        assert worker.start_flow("f")["status"] == "completed"
        in_step(group)
        old, new = group.primary(), group.replica()
        old.kill()
        group.wait_for_primary(new)
        until(lambda: _done(lambda: flows.list_flows() == ["f"]), "the flow from the new primary")
        until(lambda: _done(lambda: worker.start_flow("f")["status"] == "completed"), "work on the new primary")


def _done(deed: Callable[[], bool]) -> bool:
    """Whether it could be done; it cannot as long as the connection is the one to the old primary."""
    try:
        return deed()
    except PlaitaError:
        return False


@pytest.mark.long
def test_DECISIONS_40_a_primary_that_only_the_sentinels_have_lost_is_left(group: SentinelGroup, world: World) -> None:
    """It answers us, on connections that stay open, and is a primary to itself: what is written there would be lost."""
    one = serve(world)
    world.chain("quick", {"type": "t_line", "id": "quick", "file": str(world.folder / "quick")})
    assert world.run("quick")["status"] == "completed"
    in_step(group)
    old, new = group.primary(), group.replica()
    # Who connects from now on is shut out; the sentinel's own connections are ended.
    group.do(old, "CONFIG", "SET", "requirepass", "of nobody")
    mine = SyncRunner(old.url.replace(PASSWORD, "of%20nobody"))
    for line in mine.do(raw("CLIENT", "LIST")).decode().splitlines():
        if "name=sentinel" in line:
            mine.run(raw("CLIENT", "KILL", "ID", line.split()[0].removeprefix("id=")))
    until(lambda: group.primary() is new, "the failover")
    assert "role:master" in mine.do(raw("INFO", "replication")).decode()
    status = one.wait_status(lambda s: s["counters"]["failovers"] == 1 and s["serving"], "the new primary found")
    assert status["counters"]["failover_dropped"] == 0
    assert "name=plaita-" not in mine.do(raw("CLIENT", "LIST")).decode()
    world.runner.close()
    world.client._runner.close()
    follow(world)
    assert world.run("quick")["status"] == "completed"
    mine.close()


@pytest.mark.long
@pytest.mark.parametrize("deed", ["kill", "freeze", "failover"])
def test_DECISIONS_40_three_failovers_of_three_sentinels_under_load(
    three: SentinelGroup, world_of_three: World, deed: str
) -> None:
    """Every execution whose start the new primary knows ends, at whatever moment the primary went."""
    group, world = three, world_of_three
    one = serve(world, executors=4, lease_ttl_seconds=5, claim_min_idle_ms=6000)
    step = {"type": "t_line", "file": str(world.folder / "lines"), "seconds": 0.05}
    world.chain("f", *({**step, "id": f"n{number}"} for number in range(10)))
    for _ in range(3):
        begun = [world.start("f") for _ in range(20)]
        one.busy("n3")
        old, new = group.primary(), group.replica()
        in_step(group)
        if deed == "failover":
            group.failover()
        elif deed == "kill":
            old.kill()
        else:
            old.signal(signal.SIGSTOP)
        group.wait_for_primary(new)
        follow(world)
        for execution in begun:
            assert world.wait(execution)["status"] == "completed"
        if deed == "kill":
            old.start()
        elif deed == "freeze":
            old.signal(signal.SIGCONT)
        group.wait_for_replica(old)
        assert nobody_of_plaita(old, group)
    counters = one.wait_status(lambda s: s["serving"], "serving")["counters"]
    assert counters["failovers"] >= 3
    assert counters["dead_lettered"] == 0
    assert one.stop() == 0
