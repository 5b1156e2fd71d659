"""Two supervisors on one queue, each behind a bad line of its own, while the server is killed under both."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from fault_load import Load, judge
from hosts import World

from plaita.testing.proxy import Proxy, Rule
from plaita.testing.server import Server

CALLS = ("take", "XREADGROUP", "begin", "commit", "finish", "renew", "promote", "register")


@contextmanager
def _bad_lines(proxies: list[Proxy]) -> Iterator[None]:
    """Every eleventh call of each kind is lost, this way or that; now and then all connections are reset."""
    for proxy in proxies:
        for n, call in enumerate(CALLS):
            deed = ("lose_request", "lose_reply", "cut_reply")[n % 3]
            proxy.add(Rule(call, deed, every=11))  # type: ignore[arg-type]
    stop = threading.Event()

    def shake() -> None:
        while not stop.wait(random.uniform(0.1, 0.4)):
            random.choice(proxies).reset()

    thread = threading.Thread(target=shake)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        for proxy in proxies:
            proxy.clear()


@pytest.mark.parametrize(("count", "kills"), [(30, 1), pytest.param(400, 10, marks=pytest.mark.long)])
def test_all_at_once(own_server: Server, own_world: World, count: int, kills: int) -> None:
    proxies = [Proxy(own_server.socket_path) for _ in range(2)]
    try:
        supervisors = [
            own_world.supervisor(
                instance=name,
                preload="trouble",
                lease_ttl_seconds=600,
                claim_min_idle_ms=600_000,
                redis_url=proxy.url(own_server.password),
            )
            for name, proxy in zip(("one", "two"), proxies, strict=True)
        ]
        for supervisor in supervisors:
            supervisor.wait_serving()
        load = Load(own_world, own_server, seconds=0.01)
        load.start(count)
        with _bad_lines(proxies):
            for kill in range(kills):
                load.wait_lines(count * 3 * (kill + 1) // (kills + 2))
                own_server.kill()
                time.sleep(0.05)
                own_server.start()
            load.wait(240)
        load.clean()
        for supervisor in supervisors:
            judge(supervisor, supervisor.pid, lines=100 + 10 * count)
    finally:
        for proxy in proxies:
            proxy.close()
