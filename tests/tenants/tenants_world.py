"""A queue that several tenants share, with a client for each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hosts import World

from plaita import jsontext
from plaita.client import Client
from plaita.flow.outline import flow_hash
from plaita.store import flows
from plaita.store.keys import Keys


class TenantsWorld(World):
    """``World`` is the default tenant's."""

    def __init__(self, url: str, folder: Path) -> None:
        super().__init__(url, folder)
        self._clients: dict[str, Client] = {}

    def keys_of(self, tenant: str) -> Keys:
        return self.keys.for_tenant(tenant)

    def of(self, tenant: str) -> Client:
        """The tenant's client."""
        if tenant not in self._clients:
            self._clients[tenant] = Client(
                self.url,
                tenant=tenant,
                queue_name=self.keys.queue,
                consumer_group=self.keys.group,
                key_prefix=self.keys.prefix,
            )
        return self._clients[tenant]

    def put_for(self, tenant: str, flow_id: str, *steps: dict[str, Any], **fields: Any) -> str:
        """start, the steps in order, end (whose output is all results)."""
        names = [step["id"] for step in steps] + ["end"]
        nodes: list[dict[str, Any]] = [{"type": "start", "id": "start", "next": names[0]}]
        nodes += [{**step, "next": following} for step, following in zip(steps, names[1:], strict=True)]
        nodes.append({"type": "end", "id": "end", "output": "$NODE"})
        definition = {"flow_id": flow_id, "nodes": nodes, **fields}
        self.do(flows.put(self.keys_of(tenant), flow_id, None, flow_hash(definition), jsontext.dumps(definition)))
        return flow_id

    def run_for(self, tenant: str, flow_id: str, given: Any = None, seconds: float = 60.0) -> dict[str, Any]:
        client = self.of(tenant)
        return client.wait(client.start(flow_id, given).execution_id, timeout=seconds)

    def close(self) -> None:
        super().close()
        for client in self._clients.values():
            client.close()
