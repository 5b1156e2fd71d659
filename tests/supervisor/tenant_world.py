"""Tenants of a world: each with keys and a client of its own, and the flow that tells when its steps run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hosts import SupervisorProcess, World

from plaita import jsontext
from plaita.client import operations, upkeep
from plaita.flow.outline import flow_hash
from plaita.store import executions, flows, tenants
from plaita.store.keys import Keys

FLAGS: dict[str, Any] = {"claim_min_idle_ms": 600_000, "lease_ttl_seconds": 600, "preload": "tenants"}
RETENTION_MS = 86_400_000


@dataclass
class Tenant:
    world: World
    name: str

    @property
    def keys(self) -> Keys:
        return self.world.keys.for_tenant(self.name)

    def put(self, *nodes: str, gate: str | Path = "", flow_id: str = "f") -> None:
        """start, a counted node for each name, end."""
        following = [*nodes, "end"]
        steps: list[dict[str, Any]] = [{"type": "start", "id": "start", "next": following[0]}]
        for name, then in zip(nodes, following[1:], strict=True):
            file = str(self.world.folder / "counted")
            steps.append({"type": "t_counted", "id": name, "file": file, "gate": str(gate), "next": then})
        steps.append({"type": "end", "id": "end", "output": "done"})
        definition = {"flow_id": flow_id, "nodes": steps}
        self.world.do(flows.put(self.keys, flow_id, None, flow_hash(definition), jsontext.dumps(definition)))

    def start(self, flow_id: str = "f") -> str:
        return self.world.client.perform(operations.start(self.keys, flow_id, {})).execution_id

    def status(self, said: Any, epoch: str | None = None) -> None:
        self.world.do(tenants.set_status(self.keys, said, epoch))

    def quota(self, number: int) -> None:
        self.world.do(tenants.set_quota(self.keys, number))

    def facts(self) -> tenants.Facts:
        [found] = self.world.do(tenants.snapshot(self.keys, [self.name])).tenants
        return found

    def row(self, execution: str) -> executions.Row:
        row = self.world.do(executions.load(self.keys, execution, results=True))
        assert row is not None
        return row

    def statuses(self, ids: list[str]) -> set[str | None]:
        found: set[str | None] = set()
        for at in range(0, len(ids), 500):
            found |= set(self.world.do(executions.status_of(self.keys, ids[at : at + 500])))
        return found

    def requeue(self) -> int:
        """A carrier for what lost its own, as enabling the tenant does."""
        return self.world.client.perform(upkeep.reindex(self.keys, RETENTION_MS, requeue=True))["requeued"]


def counted(world: World) -> list[list[str]]:
    """[sign, tenant, execution, node] of each line so far, in order."""
    file = world.folder / "counted"
    return [line.split() for line in file.read_text().splitlines()] if file.exists() else []


def most_at_once(world: World, tenant: str) -> int:
    """How many steps of the tenant were in at the same time."""
    now = most = 0
    for sign, whose, _, _ in counted(world):
        if whose == tenant:
            now += 1 if sign == "+" else -1
            most = max(most, now)
    return most


def counter(supervisor: SupervisorProcess, name: str) -> int:
    status = supervisor.status()
    return 0 if status is None else int(status["counters"][name])
