"""The server itself goes wrong: killed, a replica, loading, full, busy, forgetful, unable to save."""

from __future__ import annotations

import random
import socketserver
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext

import pytest
from fault_load import Load, bounded, judge
from hosts import SupervisorProcess, World, until

from plaita.store import embedded
from plaita.store.runner_sync import SyncRunner
from plaita.testing.proxy import Proxy
from plaita.testing.resp import end_of
from plaita.testing.server import Server, raw


def _serve(world: World, **named: object) -> SupervisorProcess:
    flags = {"preload": "trouble", "lease_ttl_seconds": 600, "claim_min_idle_ms": 600_000, **named}
    return world.serving(**flags)


@pytest.mark.parametrize("kills", [2, pytest.param(15, marks=pytest.mark.long)])
def test_killed_and_started_again_in_mid_commit(own_server: Server, own_world: World, kills: int) -> None:
    own_server.do("CONFIG", "SET", "appendfsync", "always")
    supervisor = _serve(own_world)
    load = Load(own_world, own_server)
    for kill in range(kills):
        load.start(20)
        load.wait_lines(60 * kill + 5)
        own_server.kill()
        time.sleep(0.05)
        own_server.start()
        own_server.do("CONFIG", "SET", "appendfsync", "always")
    load.wait()
    load.clean()
    judge(supervisor, supervisor.pid, lines=40 + 20 * kills)


@contextmanager
def _replica(server: Server) -> Iterator[str]:
    server.do("REPLICAOF", "127.0.0.1", "1")
    yield "READONLY"
    server.do("REPLICAOF", "NO", "ONE")


@contextmanager
def _full(server: Server) -> Iterator[str]:
    server.do("CONFIG", "SET", "maxmemory-policy", "noeviction", "maxmemory", "1")
    yield "OOM"
    server.do("CONFIG", "SET", "maxmemory", "0")


@contextmanager
def _cannot_save(server: Server) -> Iterator[str]:
    """A folder where the dump should be renamed to."""
    place = server.folder / "dump.rdb"
    (place / "x").mkdir(parents=True)
    server.do("CONFIG", "SET", "save", "3600 1")
    server.do("BGSAVE")
    until(lambda: b"rdb_last_bgsave_status:err" in server.do("INFO", "persistence"), "a save that failed")
    yield "MISCONF"
    server.do("CONFIG", "SET", "save", "")  # or its end would wait for a save for ever
    (place / "x").rmdir()
    place.rmdir()


@contextmanager
def _too_few_replicas(server: Server) -> Iterator[str]:
    server.do("CONFIG", "SET", "min-replicas-to-write", "1")
    yield "NOREPLICAS"
    server.do("CONFIG", "SET", "min-replicas-to-write", "0")


@contextmanager
def _busy(server: Server) -> Iterator[str]:
    """Somebody's script that does not end."""
    server.do("CONFIG", "SET", "busy-reply-threshold", "50")
    with SyncRunner(server.url, response_timeout_s=60) as runner:
        blocker = threading.Thread(target=lambda: runner.run(raw("EVAL", "while true do end", 0)))
        blocker.start()
        yield "BUSY"
        server.do("SCRIPT", "KILL")
        blocker.join()


FAULTS = {"readonly": _replica, "oom": _full, "misconf": _cannot_save, "noreplicas": _too_few_replicas, "busy": _busy}
FAST_FAULTS = ("readonly", "oom")
LATE_FAULTS = ("busy", "misconf", "noreplicas")


@pytest.mark.parametrize(
    "fault", [*FAST_FAULTS, *(pytest.param(fault, marks=pytest.mark.long) for fault in LATE_FAULTS)]
)
def test_writes_refused_for_a_while(own_server: Server, own_world: World, fault: str) -> None:
    """Nothing is taken meanwhile, `status` says why, and all goes on when it is over."""
    supervisor = _serve(own_world, executors=2)
    load = Load(own_world, own_server, seconds=0.2)
    load.start(6)
    load.wait_lines(3)
    with FAULTS[fault](own_server) as word:
        supervisor.wait_status(
            # the reader may have been told UNBLOCKED first, in its own words
            lambda s: not s["serving"] and word in (s["redis"]["error"] or ""),
            f"a status that knows of {word}",
        )
        with bounded(own_server, 120) if fault != "busy" else nullcontext():
            time.sleep(1.5)
        assert supervisor.status()["serving"] is False  # type: ignore[index]
    load.wait()
    load.clean()
    judge(supervisor, supervisor.pid)


@pytest.mark.parametrize("seconds", [1.5, pytest.param(6.0, marks=pytest.mark.long)])
def test_the_server_stands_still(own_server: Server, own_world: World, seconds: float) -> None:
    """DEBUG SLEEP is often forbidden; CLIENT PAUSE does the same to all clients."""
    supervisor = _serve(own_world)
    load = Load(own_world, own_server, seconds=0.05)
    load.start(6)
    load.wait_lines(3)
    own_server.do("CLIENT", "PAUSE", int(seconds * 1000), "ALL")
    load.wait()
    load.clean()
    judge(supervisor, supervisor.pid)


@contextmanager
def _repeated(deed: object, pause: float) -> Iterator[None]:
    """Do it again and again, at random moments, until the end of the block."""
    stop = threading.Event()

    def work() -> None:
        while not stop.wait(random.random() * pause):
            deed()  # type: ignore[operator]

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@pytest.mark.parametrize("count", [30, pytest.param(500, marks=pytest.mark.long)])
def test_scripts_forgotten_at_random_moments(own_server: Server, own_world: World, count: int) -> None:
    """NOSCRIPT is nobody's business but the runner's (KNOWN-TROUBLE 34)."""
    supervisor = _serve(own_world)
    load = Load(own_world, own_server)
    with _repeated(lambda: own_server.do("SCRIPT", "FLUSH"), 0.01):
        load.start(count)
        load.wait()
    load.clean()
    status = judge(supervisor, supervisor.pid, lines=30)
    assert status["counters"]["answers_resent"] == 0


def test_loading_in_mid_work(own_server: Server, own_world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """For three seconds the server loads what it held; `status` says LOADING, not how the outage began."""
    settings = embedded._settings
    slowly = "key-load-delay 1000\nloading-process-events-interval-bytes 1024\n"
    monkeypatch.setattr(embedded, "_settings", lambda *given: settings(*given) + slowly)
    own_server.do("EVAL", "for n = 1, 3000 do redis.call('SET', 'ballast:' .. n, 'x') end", 0)
    supervisor = _serve(own_world)
    load = Load(own_world, own_server, seconds=0.1)
    load.start(4)
    load.wait_lines(2)
    own_server.kill()
    starting = threading.Thread(target=own_server.start)
    starting.start()
    status = supervisor.wait_status(lambda s: "LOADING" in (s["redis"]["error"] or ""), "a status that says LOADING")
    assert (status["status"], status["serving"]) == ("running", False)
    starting.join()
    load.wait()
    load.clean()
    judge(supervisor, supervisor.pid)


class _Loading(socketserver.StreamRequestHandler):
    """A server that answers LOADING to everything."""

    def handle(self) -> None:
        held = b""
        while data := self.request.recv(65536):
            held += data
            while held and (end := end_of(held)) > 0:
                held = held[end:]
                self.request.sendall(b"-LOADING Valkey is loading the dataset in memory\r\n")


def test_loading_at_the_start(world: World, plaita_server_process: Server) -> None:
    """A supervisor that comes before its server has loaded waits, and says what for (KNOWN-TROUBLE 32)."""
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), _Loading) as stub:
        stub.daemon_threads = True
        threading.Thread(target=stub.serve_forever, daemon=True).start()
        with closing(Proxy(stub.server_address)) as proxy:  # type: ignore[arg-type]
            supervisor = world.supervisor(redis_url=proxy.url(plaita_server_process.password), preload="trouble")
            status = supervisor.wait_status(lambda s: s["template"]["ready"], "an answer while the server loads")
            assert (status["status"], status["serving"]) == ("starting", False)
            assert "LOADING" in status["redis"]["error"]
            proxy.set_target(plaita_server_process.socket_path)
            load = Load(world, plaita_server_process)
            load.start(2)
            load.wait()
            load.clean()
            judge(supervisor, supervisor.pid)
        stub.shutdown()


@pytest.mark.parametrize("times", [3, pytest.param(20, marks=pytest.mark.long)])
def test_the_group_is_destroyed_under_the_work(own_server: Server, own_world: World, times: int) -> None:
    """What was delivered is delivered again, to who has it in hand already: nothing runs twice, nothing is lost."""
    supervisor = _serve(own_world)
    load = Load(own_world, own_server, seconds=0.1)
    for n in range(times):
        load.start(5)
        load.wait_lines(15 * n + 2)
        for stream in (own_world.keys.queue, own_world.keys.wake):
            own_server.do("XGROUP", "DESTROY", stream, own_world.keys.group)
    load.wait()
    load.clean()
    judge(supervisor, supervisor.pid, lines=30 + 20 * times)


@pytest.mark.long
def test_a_payload_over_the_limit_is_dead_lettered_once(own_server: Server, own_world: World) -> None:
    """KNOWN-TROUBLE 65: not read again and again by everybody, and nobody waits behind it."""
    supervisor = _serve(own_world)
    own_server.do("XADD", own_world.keys.queue, "*", "payload", b"x" * (65 * 1024 * 1024))
    load = Load(own_world, own_server)
    load.start(5)
    load.wait()
    until(lambda: own_world.stats().dlq_length == 1, "a dead letter")
    assert [stream.length for stream in own_world.stats().streams] == [0, 0]
    judge(supervisor, supervisor.pid, quiet=("failed", "executor_deaths", "leases_lost"))
