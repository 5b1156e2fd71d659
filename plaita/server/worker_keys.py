"""The key names of a worker whose executions and flows may stand under different prefixes."""

from __future__ import annotations

from dataclasses import dataclass

from plaita.errors import InputError
from plaita.storage.base import ExecutionStorage, FlowStorage
from plaita.storage.redis import Connected
from plaita.store.endpoint import parse_endpoint
from plaita.store.keys import Keys


@dataclass(frozen=True)
class WorkerKeys(Keys):
    """Keys whose flow definitions are those of ``flows_prefix``."""

    flows_prefix: str = "plaita"

    @property
    def flows_ns(self) -> str:
        return Keys(prefix=self.flows_prefix, tenant=self.tenant).ns


def one_server(executions: ExecutionStorage, flows: FlowStorage) -> tuple[Connected, Connected]:
    """Both storages, which must be of this package, on one server and of one tenant: a start is one script that reads
    the flow and writes the row. Raises InputError."""
    for storage, what in ((executions, "execution_storage"), (flows, "flow_storage")):
        if not isinstance(storage, Connected):
            raise InputError(
                f"{what}: a {type(storage).__name__}; a worker runs on the memory or redis storages of plaita.storage"
            )
    assert isinstance(executions, Connected)
    assert isinstance(flows, Connected)
    places = [parse_endpoint(storage.url) for storage in (executions, flows)]
    if len({place.server for place in places}) > 1:
        shown = " and ".join(place.shown for place in places)
        raise InputError(f"execution_storage and flow_storage: {shown} are two servers; both must be on one")
    if executions.keys.tenant != flows.keys.tenant:
        raise InputError(
            f"execution_storage is of tenant {executions.keys.tenant!r}, flow_storage of {flows.keys.tenant!r}"
        )
    return executions, flows
