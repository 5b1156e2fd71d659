"""Flow definitions by name, for a short time (ledger F1).

For whoever asks by flow and version. An execution does not come through here: a start resolves its version in Redis,
and from then on goes by the hash in its row (DECISIONS 14).
"""

from __future__ import annotations

import copy
import threading
import time
from collections import OrderedDict
from typing import Any

from plaita.errors import InputError
from plaita.storage.base import FlowStorage


class DefinitionCache:
    """Of one flow storage, and so of one tenant. ``size`` definitions at most, each for ``ttl_s`` seconds."""

    def __init__(self, storage: FlowStorage, size: int, ttl_s: float) -> None:
        if size < 0 or not 0 <= ttl_s < float("inf"):
            raise InputError(f"cache_size: {size}, cache_ttl: {ttl_s}; numbers of 0 or more, and 0 keeps nothing")
        self._storage = storage
        self._size = size
        self._ttl_s = ttl_s
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[str, str], tuple[float, dict[str, Any]]] = OrderedDict()

    def get(self, flow_id: str, version: str) -> dict[str, Any] | None:
        """The definition, the caller's own; None where there is none, which is not remembered."""
        name = (flow_id, version)
        with self._lock:
            found = self._kept.get(name)
            if found is not None and time.monotonic() < found[0]:
                self._kept.move_to_end(name)
                return copy.deepcopy(found[1])
        definition = self._storage.get_flow_definition(flow_id, version)
        if definition is None:
            return None
        with self._lock:
            self._kept[name] = (time.monotonic() + self._ttl_s, copy.deepcopy(definition))
            self._kept.move_to_end(name)
            while len(self._kept) > self._size:
                self._kept.popitem(last=False)
        return definition
