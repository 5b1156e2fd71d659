"""Both storages in the memory of this process: those on Redis, over a server that is private to it (``store.private``).

There is no second copy of any rule: the same scripts decide, on a server that keeps nothing and ends with the process.
Each storage is empty when it is made; several in one process share the server and nothing else.
"""

from __future__ import annotations

import itertools
import threading

from plaita.storage.redis import RETENTION_DAYS, RedisExecutionStorage, RedisFlowStorage
from plaita.store.keys import DEFAULT_TENANT
from plaita.store.private import PrivateServer

_lock = threading.Lock()
_servers: list[PrivateServer] = []
_numbers = itertools.count(1)


def shared_server() -> PrivateServer:
    """The one of this process, started when its URL is first asked for."""
    with _lock:
        if not _servers:
            _servers.append(PrivateServer())
        return _servers[0]


class MemoryExecutionStorage(RedisExecutionStorage):
    """Executions in memory, for tests and for programs that need no durability: all are gone with the process."""

    def __init__(self, *, tenant: str = DEFAULT_TENANT, retention_days: float = RETENTION_DAYS) -> None:
        super().__init__(key_prefix=f"memory{next(_numbers)}", tenant=tenant, retention_days=retention_days)
        self._locate = lambda: shared_server().url


class MemoryFlowStorage(RedisFlowStorage):
    """Flow definitions in memory: all are gone with the process."""

    def __init__(self, *, tenant: str = DEFAULT_TENANT) -> None:
        super().__init__(key_prefix=f"memory{next(_numbers)}", tenant=tenant)
        self._locate = lambda: shared_server().url
