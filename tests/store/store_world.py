"""``world``, which walks executions to a point by the store's calls: a server and a blocking runner."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from plaita.store import carriers, executions, flows
from plaita.store.call import Answer, Call, Value
from plaita.store.carriers import Entry, Take
from plaita.store.executions import Begin, Begun, Commit, Finish, ResumeRequest, Start, Suspend, Wake
from plaita.store.keys import Keys
from plaita.store.runner_sync import SyncRunner
from plaita.testing.server import Server

TTL = 600_000
HASH = "a" * 64


@dataclass
class World:
    """One server with the flow ``f`` on it, seen by supervisor ``host1/first`` as consumer ``host1``."""

    server: Server
    runner: SyncRunner
    keys: Keys = field(default_factory=Keys)
    holder: str = "host1/first"
    consumer: str = "host1"

    def run(self, call: Call[Any]) -> Answer[Any]:
        return self.runner.run(call)

    def do(self, call: Call[Any]) -> Any:
        return self.runner.do(call)

    def raw(self, *command: str | bytes | int) -> Any:
        return self.server.do(*command)

    def put_flow(self, flow_id: str = "f") -> None:
        self.do(flows.put(self.keys, flow_id, None, HASH, b"{}"))

    def start(self, execution_id: str = "e", **changes: Any) -> Any:
        given: dict[str, Any] = {"flow_id": "f", "input": b'{"x":1}', "payload": b'{"type":"start"}'} | changes
        return self.do(executions.start(self.keys, Start(execution_id, **given)))

    def take(self, count: int = 10, **changes: Any) -> Any:
        given: dict[str, Any] = {"min_idle_ms": TTL, "holder": self.holder, "consumer": self.consumer} | changes
        return self.do(carriers.take(self.keys, Take(count=count, **given)))

    def take_one(self, **changes: Any) -> Entry:
        entries: list[Entry] = self.take(1, **changes).entries
        assert len(entries) == 1
        return entries[0]

    def begin(self, entry: Entry, execution_id: str = "e", nonce: str = "n1", **changes: Any) -> Answer[Begun]:
        given: dict[str, Any] = {"holder": self.holder, "lease_ttl_ms": TTL, "max_lost": 5} | changes
        stream, entry_id = entry.stream, entry.entry_id
        request = Begin(execution_id, nonce=nonce, stream=stream, entry_id=entry_id, **given)
        return self.run(executions.begin(self.keys, request))

    def running(self, execution_id: str = "e") -> tuple[Entry, Begun]:
        """Started, taken and begun."""
        self.start(execution_id)
        entry = self.take_one()
        return entry, self.begin(entry, execution_id).value  # type: ignore[union-attr]

    def commit(self, begun: Begun, step: int = 1, node: str = "a", next_node: str = "b", **changes: Any) -> Answer[Any]:
        given: dict[str, Any] = {
            "execution_id": "e",
            "token": begun.token,
            "step": step,
            "lease_ttl_ms": TTL,
            "lease_value": begun.lease_value,
            "node_id": node,
            "result": b'"done"',
            "timing": b'{"order":1}',
            "next_node": next_node,
        }
        return self.run(executions.commit(self.keys, Commit(**(given | changes))))

    def finish(self, begun: Begun, entry: Entry, step: int = 1, **changes: Any) -> Answer[Any]:
        given: dict[str, Any] = {
            "execution_id": "e",
            "token": begun.token,
            "step": step,
            "status": "completed",
            "stream": entry.stream,
            "entry_id": entry.entry_id,
            "retention_ms": 86_400_000,
        }
        return self.run(executions.finish(self.keys, Finish(**(given | changes))))

    def suspend(self, begun: Begun, entry: Entry, step: int = 1, **changes: Any) -> Answer[Any]:
        return self.run(executions.suspend(self.keys, Suspend(**self.suspend_fields(begun, entry, step, **changes))))

    def suspend_fields(self, begun: Begun, entry: Entry, step: int = 1, **changes: Any) -> dict[str, Any]:
        given: dict[str, Any] = {
            "execution_id": "e",
            "token": begun.token,
            "step": step,
            "node_id": "w",
            "result": b'{"status":"pending"}',
            "timing": b'{"status":"waiting"}',
            "event_type": "approval",
            "correlation": "",
            "event_filter": None,
            "timeout_ms": None,
            "timer_fields": [("payload", b"timer"), ("execution_id", "e"), ("tenant_id", "default")],
            "stream": entry.stream,
            "entry_id": entry.entry_id,
        }
        return given | changes

    def suspended(self, **changes: Any) -> tuple[Entry, Begun]:
        """Started, taken, begun and waiting at node ``w`` since step 1."""
        entry, begun = self.running()
        assert isinstance(self.suspend(begun, entry, **changes), Value)
        return entry, begun

    def wake(self, event_id: str = "ev1", **changes: Any) -> Answer[Any]:
        given: dict[str, Any] = {"kind": "event", "data": b'{"yes":1}', "payload": b"event"} | changes
        return self.run(executions.wake(self.keys, Wake("e", event_id=event_id, **given)))

    def resume(self, kind: Any = "continue", execution_id: str = "e", nonce: str = "r1") -> Answer[Any]:
        request = ResumeRequest(execution_id, kind, b"resume", {"flow_id": "f"}, nonce=nonce)
        return self.run(executions.request_resume(self.keys, request))

    def timer_is_due(self, wait: str = "1") -> None:
        """As if the time of this wait were over; nothing where it has no timer."""
        self.raw("ZADD", self.keys.delayed, "XX", 1, f"wait {self.keys.ns} e {wait}")

    def row(self, execution_id: str = "e") -> dict[str, bytes]:
        flat = self.raw("HGETALL", self.keys.row(execution_id))
        return {name.decode(): value for name, value in zip(flat[::2], flat[1::2], strict=True)}

    def pending(self, stream: str = "q") -> list[Any]:
        found: list[Any] = self.raw("XPENDING", self.keys.stream(stream), self.keys.group, "-", "+", 100)
        return found

    def everything(self) -> dict[bytes, bytes]:
        """A dump of the whole server, to see that nothing changed (times to live left out)."""
        return {key: self.raw("DUMP", key) for key in self.raw("KEYS", "*")}


@pytest.fixture
def world(plaita_server: Server) -> Iterator[World]:
    with SyncRunner(plaita_server.url) as runner:
        found = World(plaita_server, runner)
        found.put_flow()
        yield found
