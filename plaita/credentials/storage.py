"""Where credentials are kept: under the tenant that is set in the context, sealed (ledger T1).

``save`` and ``delete`` fail closed: where no tenant was ever set they raise, whatever the default would be.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from plaita import tenancy
from plaita.credentials.seal import Seal, new_key
from plaita.errors import InputError
from plaita.ids import check_id
from plaita.runtime_config import load_credential_config
from plaita.store import credentials
from plaita.store.embedded import Embedded
from plaita.store.keys import Keys, check_tenant
from plaita.store.runner_sync import SyncRunner

SAVE, DELETE = "credentials.save", "credentials.delete"


class CredentialStore(ABC):
    """Named sets of values (``{"user": ..., "password": ...}``), each tenant's apart from the others'."""

    def __init__(self, seal: Seal) -> None:
        self._seal = seal

    def save(self, name: str, values: Mapping[str, Any]) -> None:
        """Store the values under the name, in place of what stands there.

        Raises TenantContextMissingError, InputError (bad name, no JSON, over 64 KiB), UnreachableError.
        """
        tenant, name = check_tenant(tenancy.require_tenant(SAVE)), _checked(name)
        if not isinstance(values, Mapping):
            raise InputError(f"credential {name!r}: values are a mapping of names to values")
        self._put(tenant, name, self._seal.close(tenant, name, dict(values)))

    def load(self, name: str) -> dict[str, Any] | None:
        """The values, None where there are none. Raises SealError where they cannot be opened, UnreachableError."""
        tenant, name = _reading(), _checked(name)
        sealed = self._get(tenant, name)
        return None if sealed is None else self._seal.open(tenant, name, sealed)

    def delete(self, name: str) -> bool:
        """Forget it; False where it was not there. Raises TenantContextMissingError, UnreachableError."""
        return self._drop(check_tenant(tenancy.require_tenant(DELETE)), _checked(name))

    def list(self) -> list[str]:
        """The names, sorted; no values."""
        return sorted(self._names(_reading()))

    @abstractmethod
    def _put(self, tenant: str, name: str, sealed: bytes) -> None: ...

    @abstractmethod
    def _get(self, tenant: str, name: str) -> bytes | None: ...

    @abstractmethod
    def _drop(self, tenant: str, name: str) -> bool: ...

    @abstractmethod
    def _names(self, tenant: str) -> set[str]: ...

    def close(self) -> None:  # noqa: B027 - the one in memory has nothing to close
        """Let go of connections."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class MemoryCredentialStore(CredentialStore):
    """In the memory of this process, sealed there too; for tests. Without a key, one of its own."""

    def __init__(self, key: str | None = None) -> None:
        super().__init__(Seal.of(key or new_key()))
        self._stored: dict[tuple[str, str], bytes] = {}
        self._lock = threading.Lock()

    def _put(self, tenant: str, name: str, sealed: bytes) -> None:
        with self._lock:
            self._stored[(tenant, name)] = sealed

    def _get(self, tenant: str, name: str) -> bytes | None:
        with self._lock:
            return self._stored.get((tenant, name))

    def _drop(self, tenant: str, name: str) -> bool:
        with self._lock:
            return self._stored.pop((tenant, name), None) is not None

    def _names(self, tenant: str) -> set[str]:
        with self._lock:
            return {name for owner, name in self._stored if owner == tenant}


class RedisCredentialStore(CredentialStore):
    """On the Redis server of the settings (``PLAITA_REDIS_URL``, ``PLAITA_EMBEDDED``, the TOML file), sealed with
    ``PLAITA_CREDENTIAL_KEY``. One connection, usable from one thread at a time."""

    def __init__(
        self,
        redis_url: str | None = None,
        *,
        embedded: str | None = None,
        key_prefix: str | None = None,
        key: str | None = None,
    ) -> None:
        """What is given here stands above environment and file. Raises ConfigError, InputError (no or a wrong key),
        UnreachableError (embedded)."""
        given = {"redis_url": redis_url, "embedded": embedded, "key_prefix": key_prefix, "credential_key": key}
        config = load_credential_config(flags=given)
        super().__init__(Seal.of(config.credential_key))
        self._keys = Keys(prefix=config.key_prefix)
        self._server = None if config.embedded is None else Embedded.open(config.embedded)
        self._runner = SyncRunner(config.redis_url if self._server is None else self._server.url, name="plaita-secrets")

    def close(self) -> None:
        self._runner.close()
        if self._server is not None:
            self._server.close()
            self._server = None

    def _put(self, tenant: str, name: str, sealed: bytes) -> None:
        self._runner.do(credentials.put(self._keys.for_tenant(tenant), name, sealed))

    def _get(self, tenant: str, name: str) -> bytes | None:
        return self._runner.do(credentials.get(self._keys.for_tenant(tenant), name))

    def _drop(self, tenant: str, name: str) -> bool:
        return self._runner.do(credentials.remove(self._keys.for_tenant(tenant), name))

    def _names(self, tenant: str) -> set[str]:
        found: set[str] = set()
        cursor = "0"
        while True:
            cursor, names = self._runner.do(credentials.page(self._keys.for_tenant(tenant), cursor))
            found.update(names)
            if cursor == "0":
                return found


def _reading() -> str:
    return check_tenant(tenancy.current_tenant())


def _checked(name: str) -> str:
    return check_id(name, "credential")
