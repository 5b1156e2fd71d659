"""Flow definitions by content hash: bytes for executors, outline for the supervisor (ledger F1, DECISIONS 14).

A hash never changes its content, but a body may be taken away or spoilt: so each is read anew after a while. The least
recently used go. Never shared between tenants.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from plaita import jsontext
from plaita.clock import boot_ms
from plaita.errors import FlowDefinitionError
from plaita.flow.outline import Outline, outline
from plaita.flow.outline import flow_hash as content_hash
from plaita.store import flows
from plaita.store.call import Refused, Value
from plaita.store.keys import Keys
from plaita.supervisor.sender import Sender

CACHE_SIZE = 100
CACHE_TTL_MS = 300_000


@dataclass(frozen=True, slots=True)
class StoredFlow:
    """The definition's JSON text, what the supervisor reads from it, and its hash."""

    definition: bytes
    outline: Outline
    flow_hash: str


class FlowGone(Exception):
    """The body is not stored, or cannot be read: the message says which (ledger F6). ``found_hash``: of the content
    that stands in its place, None where there is none that can be read."""

    def __init__(self, message: str, found_hash: str | None = None) -> None:
        super().__init__(message)
        self.found_hash = found_hash


class FlowCache:
    """``size`` flows at most, each for ``ttl_ms`` after it was read. ``clock``: ms that only go forward."""

    def __init__(
        self,
        sender: Sender,
        size: int = CACHE_SIZE,
        ttl_ms: int = CACHE_TTL_MS,
        clock: Callable[[], int] = boot_ms,
    ) -> None:
        self._sender = sender
        self._size = size
        self._ttl_ms = ttl_ms
        self._clock = clock
        self._flows: OrderedDict[tuple[str, str], tuple[StoredFlow, int]] = OrderedDict()

    async def of_row(self, keys: Keys, control: Mapping[str, str], until: int) -> StoredFlow | None:
        """The flow that a row names by its hash. One without a hash, which another producer wrote, takes what its
        version holds now: there is nothing to compare (ledger F6). None and FlowGone as of ``get``."""
        flow_hash = control.get("flow_hash", "")
        if flow_hash:
            return await self.get(keys, flow_hash, until)
        flow_id, version = control.get("flow_id", ""), control.get("version") or "latest"
        answer = await self._sender.send(flows.resolve(keys, flow_id, version), until=until)
        if isinstance(answer, Refused):
            raise FlowGone(f"its row names no hash, and flow {flow_id!r}, version {version!r}, is not stored")
        return None if answer is None else await self.get(keys, answer.value.flow_hash, until)

    async def get(self, keys: Keys, flow_hash: str, until: int) -> StoredFlow | None:
        """The flow; None when Redis did not answer before boot time ``until``. Raises FlowGone."""
        name = (keys.tenant, flow_hash)
        known = self._flows.get(name)
        if known is not None and self._clock() < known[1]:
            self._flows.move_to_end(name)
            return known[0]
        answer = await self._sender.send(flows.body(keys, flow_hash), until=until)
        if not isinstance(answer, Value):
            return None
        if answer.value is None:
            raise FlowGone(f"the definition with hash {flow_hash} is not stored any more")
        found = _read(answer.value, flow_hash)
        self._flows[name] = (found, self._clock() + self._ttl_ms)
        self._flows.move_to_end(name)
        while len(self._flows) > self._size:
            self._flows.popitem(last=False)
        return found


def _read(body: bytes, flow_hash: str) -> StoredFlow:
    try:
        definition = jsontext.loads(body)
        if (found := content_hash(definition)) != flow_hash:
            raise FlowGone(f"the stored definition with hash {flow_hash} has other content, of hash {found}", found)
        return StoredFlow(body, outline(definition), flow_hash)
    except (jsontext.JSONTextError, FlowDefinitionError) as error:
        raise FlowGone(f"the stored definition with hash {flow_hash} cannot be read: {error}") from error
