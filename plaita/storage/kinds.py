"""A storage by the name of its kind, as settings give it: ``memory`` or ``redis`` (ledger F10)."""

from __future__ import annotations

from plaita.errors import InputError
from plaita.storage.base import ExecutionStorage, FlowStorage
from plaita.storage.memory import MemoryExecutionStorage, MemoryFlowStorage
from plaita.storage.redis import RedisExecutionStorage, RedisFlowStorage
from plaita.store.keys import DEFAULT_TENANT


def check_kind(kind: str, what: str) -> str:
    """``memory`` or ``redis``. Raises InputError; ``db`` is refused by its name."""
    if kind == "db":
        raise InputError(
            f"{what}: 'db' is not supported: its methods are asynchronous and it cannot fence a write; use redis, or "
            "memory where nothing needs to last"
        )
    if kind not in ("memory", "redis"):
        raise InputError(f"{what}: {kind!r} is no kind of storage; there are memory and redis")
    return kind


def create_execution_storage(
    kind: str, redis_url: str | None = None, *, key_prefix: str = "plaita", tenant: str = DEFAULT_TENANT
) -> ExecutionStorage:
    """``redis_url`` and ``key_prefix`` are for ``redis``. Raises InputError."""
    if check_kind(kind, "execution storage") == "memory":
        return MemoryExecutionStorage(tenant=tenant)
    return RedisExecutionStorage(redis_url, key_prefix=key_prefix, tenant=tenant)


def create_flow_storage(
    kind: str, redis_url: str | None = None, *, key_prefix: str = "plaita", tenant: str = DEFAULT_TENANT
) -> FlowStorage:
    """``redis_url`` and ``key_prefix`` are for ``redis``. Raises InputError."""
    if check_kind(kind, "flow storage") == "memory":
        return MemoryFlowStorage(tenant=tenant)
    return RedisFlowStorage(redis_url, key_prefix=key_prefix, tenant=tenant)
