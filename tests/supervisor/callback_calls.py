"""HTTP calls to the URLs that executions wait at, as the HTTP server of a console would hand them in."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from hosts import World

from plaita.services.callbacks import CallbackIntake
from plaita.store.keys import Keys
from plaita.store.runner_async import AsyncRunner

SECRET = "S3cr3t-marker of the platform"


class _Host:
    """What the HTTP server of a console lends."""

    consumer = "console"
    redis_targets: tuple[str, ...] = ()

    def __init__(self, url: str, keys: Keys) -> None:
        self.runner, self.keys = AsyncRunner(url), keys

    async def run(self, call: Any) -> Any:
        return await self.runner.run(call)

    def tell(self, level: Any, event: str, **fields: Any) -> None: ...

    def count(self, name: str, amount: int = 1) -> None: ...


def call(
    world: World, method: str, path: str, body: bytes, headers: Mapping[str, str] | None = None
) -> tuple[int, bytes]:
    """Status and body of the answer to a JSON call."""

    async def run() -> tuple[int, bytes]:
        host = _Host(world.url, world.keys)
        named = {"Content-Type": "application/json", **(headers or {})}
        status, _, said = await CallbackIntake(host, SECRET).handle(method, path, named, {}, body)
        await host.runner.close()
        return status, said

    return asyncio.run(run())
