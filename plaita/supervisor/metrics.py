"""The Prometheus port (ledger O1): gauges and counters under the names that existing dashboards know (REFERENCE 8.1).

Served by prometheus-client's own thread, which only reads copies: a scrape never touches the loop's state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from plaita.errors import ConfigError

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
        queue_labels, queue_values = ["stream", "group"], [facts.stream, facts.group]
        for name, value in facts.queue.items():
            if value is not None:
                gauge = GaugeMetricFamily(f"plaita_queue_{name}", f"Queue: {name}.", labels=queue_labels)
                gauge.add_metric(queue_values, value)
                yield gauge
        for name, count in facts.counters.items():
            in_queue = name in _QUEUE_COUNTERS
            prefix = "plaita_queue_" if in_queue else "plaita_worker_"
            labels, values = (queue_labels, queue_values) if in_queue else (["instance"], [facts.instance])
            counter = CounterMetricFamily(prefix + name.removesuffix("_total"), f"Count of {name}.", labels=labels)
            counter.add_metric(values, count)
            yield counter
        for name, number in (
            ("up", float(facts.up)),
            ("active_tasks", float(facts.active)),
            ("draining", float(facts.draining)),
            ("registered", float(facts.registered)),
            ("heartbeat_timestamp_seconds", facts.heartbeat_s),
            ("serving", float(facts.serving)),
        ):
            gauge = GaugeMetricFamily(f"plaita_worker_{name}", f"Worker: {name}.", labels=["instance"])
            gauge.add_metric([facts.instance], number)
            yield gauge


def serve(host: str, port: int, snapshot: Callable[[], Snapshot]) -> Callable[[], None]:
    """Listen; returns what stops it. Raises ConfigError when the address cannot be bound."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(snapshot))
    try:
        server, thread = start_http_server(port, addr=host, registry=registry)
    except OSError as error:
        raise ConfigError(
            [f"--metrics-port {port}: {host}:{port} cannot be listened on ({error.strerror or error}); give another"]
        ) from None

    def stop() -> None:
        server.shutdown()
        server.server_close()
        thread.join(timeout=2.0)

    return stop
