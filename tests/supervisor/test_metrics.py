"""O1: the metrics port, scraped from a running supervisor."""

from __future__ import annotations

import socket
import urllib.request

from hosts import World, until


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_O1_metrics_are_served_under_their_known_names(world: World) -> None:
    port = _free_port()
    supervisor = world.serving(metrics_port=port, environment={"PLAITA_METRICS_HOST": "127.0.0.1"})
    world.chain("f", {"type": "mock", "id": "a", "value": 1})
    assert world.run("f")["status"] == "completed"

    def scrape() -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
            return answer.read().decode()

    text = until(lambda: page if "plaita_queue_stream_length" in (page := scrape()) else "", "queue gauges")
    for name in ("plaita_worker_up", "plaita_queue_acked_total", "plaita_queue_pending", "plaita_worker_steps_total"):
        assert name in text
    assert f'plaita_worker_up{{instance="{supervisor.instance}"}} 1.0' in text
    assert 'plaita_worker_steps_total{instance="one"} 3.0' in text
    assert supervisor.stop() == 0


def test_series_do_not_grow_with_tenants_flows_and_ids(world: World) -> None:
    """No label holds an id that others choose: neither the scrape nor its store can be filled from outside."""
    port = _free_port()
    supervisor = world.serving(metrics_port=port, environment={"PLAITA_METRICS_HOST": "127.0.0.1"})

    def series() -> set[str]:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
            lines = answer.read().decode().splitlines()
        return {line.rpartition(" ")[0] for line in lines if not line.startswith(("#", "python_", "process_"))}

    until(lambda: any("plaita_queue_pending" in one for one in series()), "the gauges of the queue")
    before = series()
    for number in range(12):
        name = f'odd"{{}}\\{number}'
        world.chain("f", {"type": "mock", "id": "a", "value": 1})
        flow = world.chain(f"f.{number}", {"type": "mock", "id": f"n{number}", "value": name})
        assert world.run(flow)["status"] == "completed"
    assert world.wait(world.start("f", execution_id="e" * 200))["status"] == "completed"
    assert series() == before
    assert supervisor.stop() == 0


def test_a_port_that_is_taken_is_named(world: World) -> None:
    with socket.socket() as taken:
        taken.bind(("0.0.0.0", 0))
        taken.listen()
        port = taken.getsockname()[1]
        supervisor = world.supervisor(metrics_port=port)
        assert supervisor.wait_exit() == 78
        assert f"--metrics-port {port}" in supervisor.text()
