"""O1: the metrics port, scraped from a running supervisor."""

from __future__ import annotations

import errno
import re
import socket
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest
from hosts import World, until

from plaita.errors import ConfigError
from plaita.supervisor import metrics
from plaita.supervisor.metrics import Snapshot
from plaita.supervisor.stats import COUNTERS
from plaita.testing.server import Server


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


# -- the page -----------------------------------------------------------------------------------------

QUEUE = [
    "enqueued",
    "acked",
    "reclaimed",
    "dead_lettered",
    "lease_conflicts",
    "poison_acked",
    "failed",
    "dlq_guard_skipped",
    "claim_guard_skipped",
    "residue_swept",
    "schema_rejected",
]
WORKER = ["up", "active_tasks", "draining", "registered", "heartbeat_timestamp_seconds"]
IN_LEDGER = ["worker_carrier_age_unknown_total", "worker_registry_status_flush_failed_total"]
ALERTS = ["alert_webhook_sent_total", "alert_webhook_failed_total", "alert_webhook_dropped_total"]


@pytest.fixture
def served() -> Iterator[Callable[..., str]]:
    """Serves a snapshot; the address of the page."""
    stops = []

    def start(snapshot: Callable[[], Snapshot]) -> str:
        port = _free_port()
        stops.append(metrics.serve("127.0.0.1", port, snapshot))
        return f"http://127.0.0.1:{port}/metrics"

    yield start
    for stop in stops:
        stop()


def idle(**changes: object) -> Snapshot:
    facts = {"instance": "i", "stream": "s", "group": "g", "up": True, "active": 0, "draining": False,
             "registered": True, "heartbeat_s": 1.0, "counters": dict.fromkeys(COUNTERS, 0)}  # fmt: skip
    return Snapshot(**{**facts, **changes})  # type: ignore[arg-type]


def page(url: str) -> dict[str, float]:
    with urllib.request.urlopen(url, timeout=5) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        lines = answer.read().decode().splitlines()
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if line[0] != "#")}


def test_O1_every_counter_is_there_from_the_start_with_0_and_spelled_as_in_the_ledger(
    served: Callable[..., str],
) -> None:
    found = page(served(idle))
    for name in QUEUE:
        assert found[f'plaita_queue_{name}_total{{group="g",stream="s"}}'] == 0
    for name in (*WORKER, *(one.removeprefix("worker_") for one in IN_LEDGER)):
        assert f'plaita_worker_{name}{{instance="i"}}' in found
    assert [found[f"plaita_{name}"] for name in (*ALERTS, "alert_webhook_pending")] == [0, 0, 0, 0]
    names = {re.split(r"[{ ]", name)[0] for name in found}
    missing = [
        name for name in COUNTERS if not {f"plaita_{kind}_{name.removesuffix('_total')}_total" for kind in
        ("queue", "worker")} & names
    ]  # fmt: skip
    assert missing == []


def test_O1_a_gauge_a_gate(served: Callable[..., str]) -> None:
    found = page(served(lambda: idle(gates={"redis": True, "tenant quota": False}, serving=True)))
    assert found['plaita_worker_gate_open{gate="redis",instance="i"}'] == 1
    assert found['plaita_worker_gate_open{gate="tenant quota",instance="i"}'] == 0
    assert found['plaita_worker_serving{instance="i"}'] == 1


def test_O1_enqueued_counts_what_was_put_on_a_stream(served: Callable[..., str]) -> None:
    counters = {**dict.fromkeys(COUNTERS, 0), "handed_over": 1, "delayed_promoted": 20, "handed_on": 300}
    found = page(served(lambda: idle(counters=counters)))
    assert found['plaita_queue_enqueued_total{group="g",stream="s"}'] == 21


def test_O1_other_paths_are_404_and_a_bug_is_500(served: Callable[..., str]) -> None:
    url = served(idle)
    for path in ("", "metrics/", "metricsx", "favicon.ico", "../metrics"):
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(url.removesuffix("metrics") + path, timeout=5)
        assert caught.value.code == 404, path
    assert page(f"{url}?a=b")

    def broken() -> Snapshot:
        raise RuntimeError("no facts")

    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(served(broken), timeout=5)
    assert caught.value.code == 500
    assert b"no facts" in caught.value.read()


def test_silent_clients_of_the_metrics_port_hold_a_few_threads_and_for_a_while_only(
    served: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics._Handler, "timeout", 0.5)
    url = served(idle)
    port = int(url.split(":")[2].split("/")[0])
    silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(3 * metrics.CLIENTS)]
    until(lambda: all(one.recv(1) == b"" for one in silent), "each is let go")

    def scraped() -> bool:
        try:
            return bool(page(url))
        except OSError:
            return False

    until(scraped, "a page")
    for one in silent:
        one.close()


@pytest.mark.parametrize("host", ["203.0.113.7", "no.such.host.invalid", "a..b"])
def test_an_address_that_cannot_be_bound_is_named(host: str) -> None:
    with pytest.raises(ConfigError, match=r"--metrics-port 1.*metrics_host"):
        metrics.serve(host, 1, idle)


def test_O1_a_scrape_works_while_redis_is_away_and_says_so(own_world: World, own_server: Server) -> None:
    port = _free_port()
    supervisor = own_world.serving(metrics_port=port, environment={"PLAITA_METRICS_HOST": "127.0.0.1"})
    url = f"http://127.0.0.1:{port}/metrics"
    gate = 'plaita_worker_gate_open{gate="redis",instance="one"}'
    pending = f'plaita_queue_pending{{group="g",stream="{own_world.keys.queue}"}}'
    until(lambda: page(url).get(gate) == 1 and pending in page(url), "all is well")
    own_server.kill()
    found = until(lambda: one if (one := page(url))[gate] == 0 else None, "seen")
    assert found['plaita_worker_serving{instance="one"}'] == 0
    until(lambda: pending not in page(url), "what is not known is not told")
    assert page(url)[f'plaita_queue_acked_total{{group="g",stream="{own_world.keys.queue}"}}'] == 0
    beat = 'plaita_worker_heartbeat_timestamp_seconds{instance="one"}'
    before = page(url)[beat]
    until(lambda: page(url)[beat] > before, "the heartbeat goes on")
    assert supervisor.code is None


def test_a_port_that_has_no_descriptor_for_a_client_does_not_spin(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client stays in the queue of the socket, which is readable on and on (KNOWN-TROUBLE 56)."""
    pauses: list[float] = []
    monkeypatch.setattr("plaita.supervisor.metrics.time.sleep", pauses.append)
    listening = SimpleNamespace(accept=lambda: (_ for _ in ()).throw(OSError(errno.EMFILE, "Too many open files")))
    server = metrics._Server.__new__(metrics._Server)
    server.socket = listening  # type: ignore[assignment]
    with pytest.raises(OSError, match="Too many"):
        server.get_request()
    assert pauses == [metrics.ACCEPT_PAUSE_S]
