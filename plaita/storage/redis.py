"""Both storages on a Redis server, in the same rows and under the same scripts as everything else.

Owns the words for what the store refuses. Must not: hold a rule of its own; each is in a script.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, NoReturn, TypeVar

from plaita import jsontext
from plaita.clock import iso_utc
from plaita.errors import (
    ExecutionDeletedError,
    ExecutionLeaseError,
    ExecutionStateLoadError,
    InputError,
    RefusedError,
    StatePersistError,
    UnreachableError,
    WrongKeyTypeError,
)
from plaita.flow.limits import DEFAULT_LIMITS
from plaita.flow.outline import flow_hash, outline
from plaita.flow.text import read_definition
from plaita.ids import check_id
from plaita.policy.retention import DAY_MS, tombstone_ttl_ms
from plaita.runtime_config import load_retention_config
from plaita.storage.base import ExecutionStorage, FlowStorage, StoredVersion
from plaita.storage.client_url import url_of_client
from plaita.storage.state import ExecutionState, from_row, listed, time_ms, to_fields
from plaita.store import executions, flows, states
from plaita.store.call import Call
from plaita.store.keys import DEFAULT_TENANT, STATUSES, Keys, check_tenant
from plaita.store.runner_sync import SyncRunner

T = TypeVar("T")

DEFAULT_URL = "redis://localhost:6379/0"
RETENTION_DAYS = 30  # of terminal rows (DECISIONS 17)
MAX_LISTED = 10_000

_log = logging.getLogger("plaita.storage")


class Connected:
    """What both have: where the server is, whose keys, one connection that is made when first needed."""

    def __init__(
        self,
        redis_url: str | None = None,
        *,
        client: Any = None,
        key_prefix: str = "plaita",
        tenant: str = DEFAULT_TENANT,
    ) -> None:
        """``client``: a client of the package ``redis``, of which only the address is taken. Raises InputError."""
        if redis_url is not None and client is not None:
            raise InputError("give redis_url or client, not both")
        url = url_of_client(client) if client is not None else redis_url or DEFAULT_URL
        self._locate: Callable[[], str] = lambda: url
        self.keys = Keys(prefix=key_prefix, tenant=check_tenant(tenant))
        self._runner: SyncRunner | None = None

    @property
    def url(self) -> str:
        """The address of the server."""
        return self._locate()

    def _do(self, call: Call[T]) -> T:
        if self._runner is None:
            self._runner = SyncRunner(self._locate(), name="plaita-storage")
        return self._runner.do(call)

    def close(self) -> None:
        """Close the connection; it is made again when needed."""
        if self._runner is not None:
            self._runner.close()


class RedisExecutionStorage(Connected, ExecutionStorage):
    """Executions on a Redis server, in the rows that supervisors work on."""

    def __init__(
        self,
        redis_url: str | None = None,
        *,
        client: Any = None,
        key_prefix: str = "plaita",
        tenant: str = DEFAULT_TENANT,
        retention_days: float = RETENTION_DAYS,
    ) -> None:
        """``retention_days``: how long what has ended is kept, 0 for ever. Raises InputError."""
        super().__init__(redis_url, client=client, key_prefix=key_prefix, tenant=tenant)
        if not 0 <= retention_days < float("inf"):
            raise InputError(f"retention_days: {retention_days!r}; a number of days, 0 keeps for ever")
        self.retention_ms = int(retention_days * DAY_MS)

    def save_execution_state(self, execution_id: str, state: ExecutionState, *, token: str | None = None) -> bool:
        execution = check_id(execution_id, "execution id")
        if state.execution_id != execution_id:
            raise InputError(f"the state is of execution {state.execution_id!r}, not of {execution_id!r}")
        if state.tenant_id not in (None, "", self.keys.tenant):
            raise InputError(f"the state is of tenant {state.tenant_id!r}, this storage of {self.keys.tenant!r}")
        try:
            row = to_fields(state.model_copy(update={"tenant_id": self.keys.tenant, **self._pinned(state)}))
        except jsontext.JSONValueError as error:
            raise StatePersistError(f"execution {execution!r} cannot be saved: {error}") from error
        except UnreachableError as error:
            raise StatePersistError(f"execution {execution!r} was not saved: {error}") from error
        request = states.Save(
            execution_id=execution,
            status=state.status,
            fields=row.fields,
            drop=row.drop,
            token=token,
            fence=states.NOTHING_READ if state.fence is None else state.fence,
            started_at_ms=time_ms(state.start_time),
            ended_at_ms=time_ms(state.end_time),
            retention_ms=self.retention_ms,
        )
        try:
            state.fence = self._do(states.save(self.keys, request))
        except RefusedError as error:
            _refused(execution, error)
        except UnreachableError as error:
            raise StatePersistError(f"execution {execution!r} was not saved: {error}") from error
        return True

    def _pinned(self, state: ExecutionState) -> dict[str, str]:
        """Version and hash for a record that names a flow and no hash, as old ones do (ledger F6): those that a start
        would take now, since whoever goes on goes by the hash."""
        if state.flow_id is None or state.flow_hash is not None:
            return {}
        try:
            found = self._do(flows.resolve(self.keys, state.flow_id, state.flow_version or "latest"))
        except RefusedError:
            return {}
        return {"flow_version": found.version, "flow_hash": found.flow_hash}

    def load_execution_state(self, execution_id: str) -> ExecutionState | None:
        execution = check_id(execution_id, "execution id")
        try:
            found = self._do(states.load(self.keys, execution))
            if found is None:
                return None
            digest = found.row.control.get("flow_hash")
            body = self._do(flows.body(self.keys, digest)) if digest else None
            definition = None if body is None else jsontext.loads(body)
            state = from_row(found.row, found.fence, definition if isinstance(definition, dict) else None)
        except RefusedError as error:
            if error.reason == "tombstoned":
                return None
            if error.reason == "wrong_type":
                raise WrongKeyTypeError(_wrong_type(execution, error)) from error
            raise ExecutionStateLoadError(f"execution {execution!r}: {error}") from error
        except (UnreachableError, ValueError) as error:
            raise ExecutionStateLoadError(f"execution {execution!r} cannot be loaded: {error}") from error
        if found.indexed_again:
            _log.warning("execution %s stood in no index; it is indexed again", execution)
        return state

    def delete_execution_state(self, execution_id: str, *, reason: str = "", token: str | None = None) -> bool:
        execution = check_id(execution_id, "execution id")
        call = executions.delete(
            self.keys,
            execution,
            reason,
            force=True,
            tombstone_ttl_ms=max(self.retention_ms, _tombstone_ms()),
            token=token,
        )
        try:
            return self._do(call).existed
        except RefusedError as error:
            if error.reason == "no_row":
                return False
            _refused(execution, error)
        except UnreachableError as error:
            raise StatePersistError(f"execution {execution!r} may not have been deleted: {error}") from error

    def list_executions(
        self,
        query: Mapping[str, str] | None = None,
        order_by: str | None = None,
        limit: int = 100,
        offset: int = 0,
    ) -> list[ExecutionState]:
        wanted = dict(query or {})
        status, flow = wanted.pop("status", None), wanted.pop("flow_id", None)
        if wanted:
            raise InputError(f"query: {', '.join(map(repr, wanted))}; it may name status and flow_id")
        if status is not None and status not in STATUSES:
            raise InputError(f"status: {status!r} is none; there are {', '.join(STATUSES)}")
        if order_by not in (None, "-start_time"):
            raise InputError(f"order_by: {order_by!r}; the only order is -start_time, the newest first")
        if not 0 <= limit <= MAX_LISTED or offset < 0:
            raise InputError(f"limit: {limit}, offset: {offset}; up to {MAX_LISTED} from an offset of 0 or more")
        try:
            page = self._do(executions.list_executions(self.keys, status, flow, limit, offset))
        except (RefusedError, UnreachableError) as error:
            raise ExecutionStateLoadError(f"executions cannot be listed: {error}") from error
        return [listed(row) for row in page.rows]


class RedisFlowStorage(Connected, FlowStorage):
    """Flow definitions on a Redis server, where supervisors and ``plaita flow`` find them."""

    def put_flow_definition(
        self,
        flow_id: str,
        definition: Mapping[str, Any] | str | bytes,
        version: str | None = None,
        *,
        force: bool = False,
    ) -> str:
        flow = check_id(flow_id, "flow id")
        wanted = None if version is None else check_id(version, "version")
        raw = read_definition(dict(definition) if isinstance(definition, Mapping) else definition, DEFAULT_LIMITS)
        outline(raw)
        body = jsontext.dumps(raw, "flow")
        return self._do(flows.put(self.keys, flow, wanted, flow_hash(raw), body, force=force)).version

    def get_flow_definition(self, flow_id: str, version: str = "latest") -> dict[str, Any] | None:
        try:
            resolved = self._do(flows.resolve(self.keys, check_id(flow_id, "flow id"), version))
        except RefusedError as error:
            if error.reason in ("no_flow", "no_version"):
                return None
            raise
        body = self._do(flows.body(self.keys, resolved.flow_hash))
        return None if body is None else dict(jsontext.loads(body))

    def list_flows(self) -> list[str]:
        return [flow.flow_id for flow in self._do(flows.list_flows(self.keys))]

    def versions(self, flow_id: str) -> list[StoredVersion]:
        try:
            found = self._do(flows.versions(self.keys, check_id(flow_id, "flow id")))
        except RefusedError as error:
            if error.reason == "no_flow":
                return []
            raise
        return [StoredVersion(one.version, one.flow_hash, iso_utc(one.put_at_ms) or "") for one in found]

    def remove_flow(self, flow_id: str) -> bool:
        try:
            return self._do(flows.remove(self.keys, check_id(flow_id, "flow id"))) > 0
        except RefusedError as error:
            if error.reason == "no_flow":
                return False
            raise


def _tombstone_ms() -> int:
    """As long as the settings say, which supervisors read their age limit from too: a carrier that one of them would
    still run must meet it (ledger D2). Raises ConfigError."""
    kept = load_retention_config()
    for warning in kept.warnings:
        _log.warning("%s", warning)
    return tombstone_ttl_ms(
        kept.execution_tombstone_ttl_seconds, kept.execution_state_ttl_days, kept.task_max_age_seconds
    )


def _wrong_type(execution: str, error: RefusedError) -> str:
    return f"at the key of execution {execution!r} stands something else: {error}; it is left as it is"


def _refused(execution: str, error: RefusedError) -> NoReturn:
    said = str(error).partition(": ")[2]
    if error.reason == "wrong_type":
        raise WrongKeyTypeError(_wrong_type(execution, error)) from error
    if error.reason in ("tombstoned", "no_row"):
        raise ExecutionDeletedError(
            f"execution {execution!r} was deleted: {said or 'it is not there any more'}"
        ) from error
    if error.reason == "leased":
        raise ExecutionLeaseError(f"execution {execution!r} is held by {said!r}") from error
    if error.reason == "fence":
        raise ExecutionLeaseError(f"execution {execution!r} was another's since: its fence is {said!r}") from error
    if error.reason == "terminal":
        raise StatePersistError(f"execution {execution!r} has ended as {said}, which no save changes") from error
    raise StatePersistError(f"execution {execution!r}: {error}") from error
