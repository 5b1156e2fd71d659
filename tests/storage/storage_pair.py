"""Both storages of one kind, and a hand on the server below them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from plaita.storage import RedisExecutionStorage, RedisFlowStorage
from plaita.store.call import Call
from plaita.store.keys import Keys
from plaita.store.runner_sync import SyncRunner
from plaita.testing.server import raw


@dataclass
class Pair:
    """One kind. ``do`` sends a call past the storages, with the keys of the executions."""

    kind: str
    executions: RedisExecutionStorage
    flows: RedisFlowStorage
    runner: SyncRunner

    @property
    def keys(self) -> Keys:
        return self.executions.keys

    def do(self, call: Call[Any]) -> Any:
        return self.runner.do(call)

    def raw(self, *words: str | bytes | int) -> Any:
        return self.runner.do(raw(*words))

    def row(self, execution_id: str) -> dict[str, bytes]:
        flat = self.raw("HGETALL", self.keys.row(execution_id))
        return {name.decode(): value for name, value in zip(flat[::2], flat[1::2], strict=True)}

    def index(self, status: str | None = None) -> list[str]:
        return [name.decode() for name in self.raw("ZRANGE", self.keys.index(status), 0, -1)]
