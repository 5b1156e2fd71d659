"""The first words with the Redis that a supervisor, or a worker in a process of the user's own, is to work on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from plaita.errors import InputError
from plaita.store import server
from plaita.store.call import Answer, Unavailable, Value
from plaita.store.keys import Keys
from plaita.store.runner_async import AsyncRunner
from plaita.store.server import ServerInfo
from plaita.supervisor import rights


async def meet(runner: AsyncRunner, keys: Keys, waits: Callable[[Answer[Any]], None], pause_s: float) -> ServerInfo:
    """Ask until it answers, and see that plaita can work there. ``waits`` is told each answer that is none. Raises
    InputError for what waiting does not mend: a Redis Cluster (DECISIONS 40), a wrong password, rights that lack."""
    while True:
        answer = await runner.run(server.server_info(keys))
        if isinstance(answer, Value):
            if answer.value.cluster_enabled:
                raise InputError(
                    "redis_url: the server is a Redis Cluster, which plaita does not run on; "
                    "split by --key-prefix over several single servers instead"
                )
            if lacks := await rights.missing(runner, keys):
                raise InputError(f"redis_url: {lacks}")
            return answer.value
        if isinstance(answer, Unavailable) and answer.auth:
            raise InputError(f"redis_url: the server refuses us ({answer.error})")
        waits(answer)
        await asyncio.sleep(pause_s)
