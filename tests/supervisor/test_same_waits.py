"""The runner that skips time and real supervisors: the same flows, the same things that happen, the same outcome.

Each scenario of ``wait_scenarios.py`` is played on both stages of ``two_stages.py``.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from callback_calls import SECRET
from hosts import NODES, World
from two_stages import BASE_URL, MAX_DELIVERIES, Real, Skipping
from wait_scenarios import FIELDS, SCENARIOS, WORKED

from plaita import jsontext
from plaita.nodes.builtin import BUILT_IN
from plaita.nodes.registry import NodeRegistry
from plaita.testing import TimeSkippingRunner
from plaita.testing.server import Server

PATIENT = {"lease_ttl_seconds": 600, "claim_min_idle_ms": 600_000, "preload": "waiting"}
EXAMPLES = Path(__file__).parents[2] / "examples" / "waiting"


@pytest.fixture
def waiting_nodes(monkeypatch: pytest.MonkeyPatch) -> NodeRegistry:
    """The types of ``nodes/waiting.py`` in this process."""
    monkeypatch.syspath_prepend(str(NODES))
    sys.modules.pop("waiting", None)
    import waiting  # type: ignore[import-not-found]

    return NodeRegistry([*BUILT_IN, waiting.Wait])


@pytest.fixture
def supervised(world: World, plaita_server_process: Server) -> World:
    environment = {
        "PLAITA_CALLBACK_SECRET": SECRET,
        "PLAITA_CALLBACK_BASE_URL": BASE_URL,
        "PLAITA_REDIS_NODE_TARGETS": plaita_server_process.socket_path,
    }
    world.serving(**PATIENT, environment=environment, executors=2, max_deliveries=MAX_DELIVERIES)
    return world


def fitted(flow: dict[str, Any], world: World, server: Server, stage: str, number: int) -> dict[str, Any]:
    """With a file of this stage's own, and a queue of this scenario's own on plaita's server."""
    queue = {"redisHost": server.socket_path, "redisPassword": server.password}
    queue["queueName"] = f"{world.keys.prefix}:userqueue:{number}"
    added = {"redis_queue": queue, "t_wait": {"file": str(world.folder / f"{stage}{number}")}}
    nodes = [{**node, **added.get(node["type"], {})} for node in flow["nodes"]]
    return {**flow, "flow_id": f"f{number}", "nodes": nodes}


def test_flows_end_the_same_where_time_is_skipped(
    supervised: World, plaita_server_process: Server, waiting_nodes: NodeRegistry
) -> None:
    told: list[tuple[Real, list[Any]]] = []
    given = {"order": 7, "word": "soon"}
    flows = [({"nodes": one[0], **FIELDS.get(name, {})}, one[1], given) for name, one in SCENARIOS.items()]
    flows += [(jsontext.loads((EXAMPLES / f"{one[0]}.json").read_bytes()), one[2], one[1]) for one in WORKED]
    for number, (flow, play, asked) in enumerate(flows):
        supervised.put(**fitted(flow, supervised, plaita_server_process, "real", number))
        stage = Real(supervised, f"f{number}", asked)
        told.append((stage, []))
        play(stage, told[-1][1])
    seen: list[tuple[list[Any], dict[str, Any]]] = []
    for number, (flow, play, asked) in enumerate(flows):
        with TimeSkippingRunner(registry=waiting_nodes, max_deliveries=MAX_DELIVERIES) as run:
            skipping = Skipping(run, fitted(flow, supervised, plaita_server_process, "skipping", number), asked)
            said: list[Any] = []
            play(skipping, said)
            seen.append((said, skipping.outcome()))
    names = [*SCENARIOS, *(name for name, *_ in WORKED)]
    for name, (real, answered), (said, found) in zip(names, told, seen, strict=True):
        assert said == answered, name
        assert found == real.outcome(), name
    for (name, (_, _, answers, status)), (said, found) in zip(SCENARIOS.items(), seen, strict=False):
        assert (said, found["status"]) == (answers, status), name
    for (name, _, _, answers, output), (said, found) in zip(WORKED, seen[len(SCENARIOS) :], strict=True):
        assert (said, found["status"]) == (answers, "completed"), name
        assert output is None or found["output"] == output, name


def test_every_example_is_played() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.json")} == {name for name, *_ in WORKED}
