"""The public interfaces: where executions and flow definitions are kept. All methods block (ledger F10).

Every implementation passes one conformance suite, ``tests/storage``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from plaita import jsontext
from plaita.storage.state import ExecutionState


class ExecutionStorage(ABC):
    """Executions as records of ``ExecutionState``.

    Every write is fenced (ledger L2). Who holds an execution gives its ``token``. Anybody else may write while nobody
    holds it: a record that was loaded is written only if nobody has had the execution since; one that was not loaded is
    a new beginning. Each such write takes a generation of its own, so that all who read or held it before are refused.
    """

    @abstractmethod
    def save_execution_state(self, execution_id: str, state: ExecutionState, *, token: str | None = None) -> bool:
        """Write the whole record; True. ``state.fence`` is set to what it stands under, so that it can be saved again.
        A record without ``flow_hash`` is pinned to the stored definition of its flow and version, where there is one.

        Raises ExecutionLeaseError (another has the execution, or has had it since), ExecutionDeletedError (it was
        deleted), WrongKeyTypeError, and StatePersistError for anything else that kept it from being saved: the server,
        an end that would be undone, or a value that JSON does not carry exactly (its path is in the message).
        """

    @abstractmethod
    def load_execution_state(self, execution_id: str) -> ExecutionState | None:
        """The record with its whole context; None where there is none, or none any more.

        Raises ExecutionStateLoadError; WrongKeyTypeError where something else stands at its key.
        """

    @abstractmethod
    def delete_execution_state(self, execution_id: str, *, reason: str = "", token: str | None = None) -> bool:
        """Revoke it: the record, its lease, fence and counters go, a tombstone stays (ledger D1, D2). Whoever runs it
        is refused at its next write. False where there was none. With ``token`` only if that still has the execution.

        Raises ExecutionLeaseError, StatePersistError.
        """

    @abstractmethod
    def list_executions(
        self,
        query: Mapping[str, str] | None = None,
        order_by: str | None = None,
        limit: int = 100,
        offset: int = 0,
    ) -> list[ExecutionState]:
        """Records without context and error, the newest start first, which is the only order there is (``order_by`` is
        None or ``-start_time``). ``query`` may name ``status`` and ``flow_id``.

        Raises InputError, ExecutionStateLoadError.
        """

    def serialize_state(self, state: ExecutionState | Mapping[str, Any]) -> str:
        """A record, or any object of JSON values, as JSON text that ``deserialize_state`` gives back exactly.

        Raises JSONValueError (a ValueError) with the path of what JSON does not carry.
        """
        value = state.model_dump() if isinstance(state, BaseModel) else dict(state)
        return jsontext.dumps(value, "state").decode()

    def deserialize_state(self, data: str | bytes) -> dict[str, Any]:
        """The object of such a text; ``ExecutionState(**it)`` makes a record of it. Raises JSONTextError."""
        value = jsontext.loads(data)
        if not isinstance(value, dict):
            raise jsontext.JSONTextError(f"a state is an object, this is a {type(value).__name__}")
        return value

    def close(self) -> None:  # noqa: B027 - most implementations have something to close, none must
        """Let go of connections. The storage can be used again."""


@dataclass(frozen=True, slots=True)
class StoredVersion:
    """``put_at`` is ISO 8601 UTC."""

    version: str
    flow_hash: str
    put_at: str


class FlowStorage(ABC):
    """Flow definitions under versions. What was put is never changed: a version points at content, by its hash
    (DECISIONS 14)."""

    @abstractmethod
    def put_flow_definition(
        self,
        flow_id: str,
        definition: Mapping[str, Any] | str | bytes,
        version: str | None = None,
        *,
        force: bool = False,
    ) -> str:
        """Store a definition (an object, or its JSON or YAML text); the version it has.

        Without ``version`` the next integer, or the latest again where the content is the same. Other content under a
        version that exists is a RefusedError ``version_exists`` unless ``force``. Node types are not judged here: the
        host that runs it knows them. Raises FlowDefinitionError, InputError, UnreachableError.
        """

    @abstractmethod
    def get_flow_definition(self, flow_id: str, version: str = "latest") -> dict[str, Any] | None:
        """The definition, or None where there is no such flow or version. Raises UnreachableError."""

    @abstractmethod
    def list_flows(self) -> list[str]:
        """All flow ids, sorted."""

    @abstractmethod
    def versions(self, flow_id: str) -> list[StoredVersion]:
        """The versions of a flow in the order in which they were put; none for a flow that is not there."""

    @abstractmethod
    def remove_flow(self, flow_id: str) -> bool:
        """Take its versions away; False where there were none. Executions under way keep what they began with."""

    def close(self) -> None:  # noqa: B027 - as above
        """Let go of connections. The storage can be used again."""
