"""One scenario on two stages: a real supervisor, and the runner that skips time. Both tell what became of it.

Where the runner lets time pass, the other stage moves what Redis keeps of the time: the score of a timer, the beginning
of a wait.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, Protocol

import callback_calls
from hosts import World, until

from plaita import jsontext
from plaita.errors import RefusedError
from plaita.store.call import Call
from plaita.testing import TimeSkippingRunner, Trial

BASE_URL = "https://flows.example"
MAX_DELIVERIES = 2
UNLIKE = {
    "timestamp",
    "created_time",
    "trigger_timestamp",
    "event_id",
    "subscription_id",
    "approval_id",
    "execution_id",
    "full_url",
    "path",
    "callback_path",
    "task_id",
    "url",
}
"""What is another each time: ids, moments, and what is made of them."""


class Stage(Protocol):
    """One execution, and what happens to it."""

    def at(self, node_id: str) -> None: ...
    def publish(self, event_type: str, data: Any = None, *, correlated: bool = True, event_id: Any = None) -> None: ...
    def decide(self, node_id: str, word: str, by: str, **more: Any) -> str: ...
    def call(self, node_id: str, body: Any = None, *, method: str = "POST", headers: Any = None) -> tuple[int, Any]: ...
    def message(self, node_id: str, *messages: str) -> None: ...
    def resume(self, data: Any = None) -> None: ...
    def cancel(self) -> None: ...
    def deadline(self) -> None: ...
    def hours(self, hours: int) -> None: ...
    def flow_time_up(self, hours: int) -> None: ...
    def outcome(self) -> dict[str, Any]: ...


class Real:
    def __init__(self, world: World, flow_id: str, given: Any) -> None:
        self.world = world
        self.id = world.start(flow_id, given)

    def at(self, node_id: str) -> None:
        def waits() -> bool:
            row = self.world.row(self.id).control
            return (row["status"], row.get("next_node"), row.get("woken")) == ("suspended", node_id, "")

        until(waits, f"the wait at {node_id}")

    def publish(self, event_type: str, data: Any = None, *, correlated: bool = True, event_id: Any = None) -> None:
        correlation = self.id if correlated else None
        self.world.client.publish(event_type, data, correlation_id=correlation, event_id=event_id)

    def decide(self, node_id: str, word: str, by: str, **more: Any) -> str:
        asked = [one for one in self.world.client.approvals() if one["execution_id"] == self.id]
        approval = asked[0]["approval_id"] if asked else "none"
        return _reason(lambda: self.world.client.decide(approval, word, by, **more))  # type: ignore[arg-type]

    def call(self, node_id: str, body: Any = None, *, method: str = "POST", headers: Any = None) -> tuple[int, Any]:
        results = self.world.row(self.id).results  # before the wait begins, an earlier node has given the URL out
        pending = jsontext.loads(results[node_id]) if node_id in results else None
        told = pending and pending["service_config"]["callback_config"]["full_url"]
        url = told or jsontext.loads(results["out"])["url"]
        raw = b"" if body is None else jsontext.dumps(body)
        status, said = callback_calls.call(self.world, method, url.removeprefix(BASE_URL), raw, headers)
        return status, jsontext.loads(said)

    def message(self, node_id: str, *messages: str) -> None:
        queue = self._pending(node_id)["service_config"]["queue_config"]["name"]
        self._do("RPUSH", queue, *messages)

    def resume(self, data: Any = None) -> None:
        self.world.client.resume(self.id, "event", data)

    def cancel(self) -> None:
        self.world.client.cancel(self.id)

    def deadline(self) -> None:
        name = f"wait {self.world.keys.ns} {self.id} {self.world.row(self.id).control['wait']}"
        self._do("ZADD", self.world.keys.delayed, "XX", 1, name)

    def hours(self, hours: int) -> None:
        since = int(self.world.row(self.id).control["wait_since"])
        self._do("HSET", self.world.keys.row(self.id), "wait_since", since - hours * 3_600_000)

    def flow_time_up(self, hours: int) -> None:
        created = int(self.world.row(self.id).control["created_at"])
        self._do("HSET", self.world.keys.row(self.id), "created_at", created - hours * 3_600_000)
        self.deadline()

    def outcome(self) -> dict[str, Any]:
        shown = self.world.wait(self.id)
        results = {name: jsontext.loads(raw) for name, raw in self.world.row(self.id).results.items()}
        order = [node["id"] for node in shown["nodes"]]
        return _outcome(self.id, shown["status"], shown["error"], shown["output"], results, order)

    def _pending(self, node_id: str) -> Any:
        return jsontext.loads(self.world.row(self.id).results[node_id])

    def _do(self, *words: Any) -> None:
        self.world.do(Call("test", None, (), words, "writer", False, lambda reply: reply))


class Skipping:
    def __init__(self, run: TimeSkippingRunner, flow: Any, given: Any) -> None:
        self.run = run
        self.trial: Trial = run.start(flow, given)

    def at(self, node_id: str) -> None:
        assert [one.node_id for one in self.run.waiting] == [node_id]

    def publish(self, event_type: str, data: Any = None, *, correlated: bool = True, event_id: Any = None) -> None:
        self.run.publish(event_type, data, self.trial.execution_id if correlated else None, event_id=event_id)

    def decide(self, node_id: str, word: str, by: str, **more: Any) -> str:
        decide = self.run.approve if word == "approve" else self.run.reject
        return _reason(lambda: decide(node_id, by=by, **more))

    def call(self, node_id: str, body: Any = None, *, method: str = "POST", headers: Any = None) -> tuple[int, Any]:
        reply = self.run.call(node_id, body, method=method, headers=headers)
        return reply.status, jsontext.loads(reply.body)

    def message(self, node_id: str, *messages: str) -> None:
        self.run.message(node_id, *messages)

    def resume(self, data: Any = None) -> None:
        self.run.resume(self.trial, data)

    def cancel(self) -> None:
        self.run.cancel(self.trial)

    def deadline(self) -> None:
        [waiting] = self.run.waiting
        assert waiting.until is not None
        self.run.advance(seconds=(waiting.until - self.run.now) / timedelta(seconds=1))

    def hours(self, hours: int) -> None:
        self.run.advance(hours=hours)

    def flow_time_up(self, hours: int) -> None:
        self.run.advance(hours=hours)

    def outcome(self) -> dict[str, Any]:
        trial = self.run.finish(self.trial)
        error = None if trial.error is None else {name: getattr(trial.error, name) for name in TOLD_OF_ERRORS}
        order = list(dict.fromkeys(trial.visited))
        return _outcome(trial.execution_id, trial.status, error, trial.output, trial.results, order)


TOLD_OF_ERRORS = ("code", "message", "error_type", "node")


def _outcome(
    execution: str, status: str, error: Mapping[str, Any] | None, output: Any, results: Any, order: list[str]
) -> dict[str, Any]:
    """What users see of the end. ``order``: the nodes that were done, which the runner does not count one that failed
    among."""
    told = None if error is None else {name: error[name] for name in TOLD_OF_ERRORS}
    if error is not None and order[-1:] == [error["node"]]:
        order = order[:-1]
    return {
        "status": status,
        "error": like(told, execution),
        "output": like(output, execution),
        "results": like(results, execution),
        "nodes": order,
    }


def _reason(decide: Callable[[], dict[str, Any]]) -> str:
    try:
        return "settled" if decide()["settled"] else "taken"
    except RefusedError as error:
        return error.reason


def like(value: Any, execution_id: str) -> Any:
    """Without what is another at each time."""
    if isinstance(value, dict):
        return {name: "-" if name in UNLIKE else like(item, execution_id) for name, item in value.items()}
    if isinstance(value, list):
        return [like(item, execution_id) for item in value]
    return "-" if value == execution_id else value
