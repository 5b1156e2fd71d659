"""The Prometheus port (ledger O1): gauges and counters under the names that existing dashboards know (REFERENCE 8.1).

Served on threads of its own, which only read copies: a scrape never touches the loop's state and asks Redis nothing, so
that it works while Redis is away. A silent or slow client holds one of a few threads for a few seconds.
"""

from __future__ import annotations

import socket
import socketserver
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from plaita.errors import ConfigError
from plaita.supervisor import logs

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
CLIENT_S = 5.0
CLIENTS = 16
ACCEPT_PAUSE_S = 0.2

_QUEUE_COUNTERS = (
    "acked",
    "reclaimed",
    "dead_lettered",
    "lease_conflicts",
    "poison_acked",
    "failed",
    "residue_swept",
    "schema_rejected",
    "dlq_guard_skipped",
    "claim_guard_skipped",
    "dlq_trimmed",
    "dlq_trim_failures",
)
_ENQUEUED = ("handed_over", "broadcast", "delayed_promoted", "parked_released")  # each puts a carrier on a stream
_ALERTS = ("sent", "failed", "dropped")  # of webhooks (ledger O2), which this build does not send


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Facts of one moment. ``queue`` values of None are left out: Redis could not be asked."""

    instance: str
    stream: str
    group: str
    up: bool
    active: int
    draining: bool
    registered: bool
    heartbeat_s: float
    serving: bool = False
    gates: dict[str, bool] = field(default_factory=dict)
    counters: dict[str, int] = field(default_factory=dict)
    queue: dict[str, int | None] = field(default_factory=dict)


class _Collector:
    def __init__(self, snapshot: Callable[[], Snapshot]) -> None:
        self._snapshot = snapshot

    def collect(self) -> Iterator[Metric]:
        facts = self._snapshot()
        yield from _of_the_queue(facts)
        for name, count in facts.counters.items():
            if name not in _QUEUE_COUNTERS:
                yield _counter(f"worker_{name}", f"Count of {name}.", ["instance"], [facts.instance], count)
        for name in _ALERTS:
            yield _counter(f"alert_webhook_{name}", f"Alerts: {name}.", [], [], 0)
        yield _gauge("alert_webhook_pending", "Alerts: pending.", [], [([], 0)])
        for name, number in (
            ("up", facts.up),
            ("active_tasks", facts.active),
            ("draining", facts.draining),
            ("registered", facts.registered),
            ("heartbeat_timestamp_seconds", facts.heartbeat_s),
            ("serving", facts.serving),
        ):
            yield _gauge(f"worker_{name}", f"Worker: {name}.", ["instance"], [([facts.instance], number)])
        rows = [([facts.instance, gate], is_open) for gate, is_open in facts.gates.items()]
        yield _gauge("worker_gate_open", "Whether a gate lets work through, as in explain.", ["instance", "gate"], rows)


def _of_the_queue(facts: Snapshot) -> Iterator[Metric]:
    labels, values = ["stream", "group"], [facts.stream, facts.group]
    for name, value in facts.queue.items():
        if value is not None:
            yield _gauge(f"queue_{name}", f"Queue: {name}.", labels, [(values, value)])
    for name in _QUEUE_COUNTERS:
        yield _counter(f"queue_{name}", f"Count of {name}.", labels, values, facts.counters.get(name, 0))
    enqueued = sum(facts.counters.get(name, 0) for name in _ENQUEUED)
    yield _counter("queue_enqueued", "Carriers that this host put on a stream.", labels, values, enqueued)


def _counter(name: str, about: str, labels: list[str], values: list[str], count: int) -> Metric:
    made = CounterMetricFamily(f"plaita_{name.removesuffix('_total')}", about, labels=labels)
    made.add_metric(values, count)
    return made


def _gauge(name: str, about: str, labels: list[str], rows: Sequence[tuple[list[str], float]]) -> Metric:
    made = GaugeMetricFamily(f"plaita_{name}", about, labels=labels)
    for values, number in rows:
        made.add_metric(values, float(number))
    return made


# -- HTTP -------------------------------------------------------------------------------------------


class _Server(ThreadingHTTPServer):
    """Threads that do not keep the process, and only so many."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, family: int, address: Any, registry: CollectorRegistry) -> None:
        self.address_family = family
        self.registry = registry
        self._places = threading.BoundedSemaphore(CLIENTS)
        super().__init__(address, _Handler)

    def server_bind(self) -> None:
        socketserver.TCPServer.server_bind(self)  # that of HTTPServer looks up this host's name, which may take long

    def get_request(self) -> tuple[Any, Any]:
        try:
            return super().get_request()
        except OSError:  # no descriptor left: who waits makes the socket readable on and on
            time.sleep(ACCEPT_PAUSE_S)
            raise

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._places.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is not worth a line."""


class _Handler(BaseHTTPRequestHandler):
    timeout = CLIENT_S
    server: _Server
    server_version, sys_version = "plaita", ""

    def do_GET(self) -> None:
        if self.path.partition("?")[0] != "/metrics":
            self._answer(404, b"the metrics are at /metrics\n")
            return
        try:
            page = generate_latest(self.server.registry)
        except Exception as error:  # noqa: BLE001 - a bug in a scrape must be seen by who scrapes
            logs.error("metrics.bug", error=repr(error))
            self._answer(500, f"the metrics cannot be rendered: {error!r}\n".encode("utf-8", "backslashreplace"))
            return
        self._answer(200, page)

    do_HEAD = do_GET

    def _answer(self, code: int, body: bytes) -> None:
        self.send_response(code)
        self.send_header("Content-Type", CONTENT_TYPE)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Scrapes are not logged."""


def serve(host: str, port: int, snapshot: Callable[[], Snapshot]) -> Callable[[], None]:
    """Listen; returns what stops it. Raises ConfigError when the address cannot be bound."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(snapshot))
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        server = _Server(family, address, registry)
    except (OSError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or error
        fault = f"--metrics-port {port}: {host}:{port} cannot be listened on ({why}); give another, or a metrics_host"
        raise ConfigError([fault]) from None
    thread = threading.Thread(target=server.serve_forever, name="metrics", daemon=True)
    thread.start()

    def stop() -> None:
        server.shutdown()
        server.server_close()
        thread.join(timeout=2.0)

    return stop
