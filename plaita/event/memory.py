"""The event bus in the memory of this process: the same code on the private server of the memory storages (0008)."""

from __future__ import annotations

import itertools

from plaita.client import Client
from plaita.event.redis import RedisEventBus
from plaita.storage.memory import shared_server
from plaita.store.keys import DEFAULT_TENANT

_numbers = itertools.count(1)


class MemoryEventBus(RedisEventBus):
    """Empty when it is made, gone with the process, shared with nobody."""

    def __init__(self, *, tenant: str = DEFAULT_TENANT) -> None:
        super().__init__()
        name = f"memorybus{next(_numbers)}"
        self._make = lambda: Client(shared_server().url, key_prefix=name, queue_name=f"{name}:queue", tenant=tenant)
