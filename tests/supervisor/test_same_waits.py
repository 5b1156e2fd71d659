"""The runner that skips time and real supervisors: the same flows, the same things that happen, the same outcome.

Each scenario is told once and played on both stages. Where the runner lets time pass, the other stage moves what Redis
keeps of the time: the score of a timer, the beginning of a wait.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Protocol

import pytest
from hosts import NODES, World, until

from plaita.errors import RefusedError
from plaita.nodes.builtin import BUILT_IN
from plaita.nodes.registry import NodeRegistry
from plaita.store.call import Call
from plaita.testing import TimeSkippingRunner, Trial

PATIENT = {"lease_ttl_seconds": 600, "claim_min_idle_ms": 600_000, "preload": "waiting"}
UNLIKE = {
    "timestamp",
    "created_time",
    "trigger_timestamp",
    "event_id",
    "subscription_id",
    "approval_id",
    "execution_id",
}


class Stage(Protocol):
    """One execution, and what happens to it."""

    def at(self, node_id: str) -> None: ...
    def publish(self, event_type: str, data: Any = None, *, correlated: bool = True, event_id: Any = None) -> None: ...
    def decide(self, node_id: str, word: str, by: str, **more: Any) -> str: ...
    def cancel(self) -> None: ...
    def deadline(self) -> None: ...
    def hours(self, hours: int) -> None: ...


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

    def cancel(self) -> None:
        self.world.client.cancel(self.id)

    def deadline(self) -> None:
        name = f"wait {self.world.keys.ns} {self.id} {self.world.row(self.id).control['wait']}"
        self._do("ZADD", self.world.keys.delayed, "XX", 1, name)

    def hours(self, hours: int) -> None:
        since = int(self.world.row(self.id).control["wait_since"])
        self._do("HSET", self.world.keys.row(self.id), "wait_since", since - hours * 3_600_000)

    def outcome(self) -> tuple[Any, ...]:
        row = self.world.wait(self.id)
        code = row["error"]["code"] if row["error"] else None
        return row["status"], code, like(row["output"], self.id)

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

    def cancel(self) -> None:
        self.run.cancel(self.trial)

    def deadline(self) -> None:
        [waiting] = self.run.waiting
        assert waiting.until is not None
        self.run.advance(seconds=(waiting.until - self.run.now) / timedelta(seconds=1))

    def hours(self, hours: int) -> None:
        self.run.advance(hours=hours)

    def outcome(self) -> tuple[Any, ...]:
        trial = self.run.finish(self.trial)
        code = trial.error.code if trial.error else None
        return trial.status, code, like(trial.output, trial.execution_id)


def _reason(decide: Callable[[], dict[str, Any]]) -> str:
    try:
        return "settled" if decide()["settled"] else "taken"
    except RefusedError as error:
        return error.reason


def like(value: Any, execution_id: str) -> Any:
    """Without what is another at each time: ids and moments."""
    if isinstance(value, dict):
        return {name: "-" if name in UNLIKE else like(item, execution_id) for name, item in value.items()}
    if isinstance(value, list):
        return [like(item, execution_id) for item in value]
    return "-" if value == execution_id else value


def chain(*steps: dict[str, Any]) -> list[dict[str, Any]]:
    names = [step["id"] for step in steps] + ["end"]
    nodes = [{"type": "start", "id": "start", "next": names[0]}]
    nodes += [{**step, "next": after} for step, after in zip(steps, names[1:], strict=True)]
    return [*nodes, {"type": "end", "id": "end", "output": "$NODE"}]


def event(node_id: str, event_type: str, **fields: Any) -> dict[str, Any]:
    return {"type": "event", "id": node_id, "event_type": event_type, **fields}


def review(strategy: str, **fields: Any) -> dict[str, Any]:
    asked = {"approval_title": "pay?", "approval_content": "$INPUT", "approvers": ["ann", "bob", "cleo"]}
    return {"type": "approval", "id": "w", "approval_strategy": strategy, **asked, **fields}


ESCALATES = {"auto_escalation": True, "escalation_timeout_hours": 24, "escalation_approvers": ["boss"]}
ABSENT = {"timeoutHandler": {"strategy": "continue-with", "defaultValue": "nobody said"}}


def delay_ends(stage: Stage, said: list[str]) -> None:
    stage.at("w")
    stage.deadline()


def by_itself(stage: Stage, said: list[str]) -> None:
    """Nothing happens."""


def delay_hurried(stage: Stage, said: list[str]) -> None:
    stage.at("w")
    stage.publish("delay_trigger", {"why": "now"})


def filtered(stage: Stage, said: list[str]) -> None:
    stage.at("w")
    stage.publish("paid", {"order": {"id": 8}})
    stage.publish("paid", {"order": 7})
    stage.publish("paid", None)
    stage.publish("paid", {"order": {"id": 7.0}, "by": "card"})
    stage.publish("paid", {"order": {"id": 7}, "by": "late"})


def early(stage: Stage, said: list[str]) -> None:
    stage.at("a")
    stage.publish("second", {"n": 0})
    stage.publish("second", {"ok": True, "n": 1})
    stage.publish("second", {"ok": True, "n": 2})
    stage.publish("first")


def early_for_nobody(stage: Stage, said: list[str]) -> None:
    stage.at("a")
    stage.publish("second", {"ok": True}, correlated=False)
    stage.publish("first", correlated=False)
    stage.at("b")
    stage.deadline()


def one_event_one_wait(stage: Stage, said: list[str]) -> None:
    stage.at("a")
    stage.publish("tick", 1, event_id="t1")
    stage.publish("tick", 1, event_id="t1")
    stage.at("b")
    stage.publish("tick", 2, event_id="t2")


def words(*decisions: str, hours: int = 0) -> Callable[[Stage, list[str]], None]:
    """Decisions as ``ann+`` and ``ann-``; ``@`` lets ``hours`` pass."""

    def play(stage: Stage, said: list[str]) -> None:
        stage.at("w")
        for one in decisions:
            if one == "@":
                stage.hours(hours)
            else:
                said.append(stage.decide("w", "approve" if one[-1] == "+" else "reject", one[:-1]))

    return play


def no_event_decides(stage: Stage, said: list[str]) -> None:
    stage.at("w")
    stage.publish("approval_decision", {"final_decision": "approve"})
    stage.publish("approval_decision", {"final_decision": "approve"}, correlated=False)
    said.append(stage.decide("w", "reject", "ann", comment="I say"))


def cancelled(stage: Stage, said: list[str]) -> None:
    stage.at("w")
    stage.cancel()


def fails_at_first(stage: Stage, said: list[str]) -> None:
    stage.at("w")
    stage.publish("go", {"a": 1})


SCENARIOS: dict[str, tuple[list[dict[str, Any]], Callable[[Stage, list[str]], None], list[str]]] = {
    "a delay ends": (chain({"type": "delay", "id": "w", "delay_seconds": 3, "delay_unit": "days"}), delay_ends, []),
    "a delay of nothing": (chain({"type": "delay", "id": "w", "delay_seconds": 0}), by_itself, []),
    "a delay ends earlier": (chain({"type": "delay", "id": "w", "delay_seconds": 3600}), delay_hurried, []),
    "a delay with a shorter limit": (
        chain({"type": "delay", "id": "w", "delay_seconds": 5000, "timeout": "PT1H"}),
        delay_ends,
        [],
    ),
    "a filter": (chain(event("w", "paid", event_filter={"order.id": "$INPUT.order"})), filtered, []),
    "an early event": (chain(event("a", "first"), event("b", "second", event_filter={"ok": True})), early, []),
    "an early event for nobody": (
        chain(event("a", "first"), event("b", "second", timeout="P1D", **ABSENT)),
        early_for_nobody,
        [],
    ),
    "one event, one wait": (chain(event("a", "tick"), event("b", "tick")), one_event_one_wait, []),
    "any": (chain(review("any")), words("eve+", "ann-", "bob+", "cleo+"), ["not_an_approver", "taken", "settled"]),
    "all": (chain(review("all")), words("ann+", "ann-", "bob-"), ["taken", "decided_before", "settled"]),
    "majority": (chain(review("majority")), words("ann+", "bob-", "cleo+"), ["taken", "taken", "settled"]),
    "escalation": (
        chain(review("all", **ESCALATES)),
        words("boss+", "ann+", "@", "boss-", hours=25),
        ["not_an_approver", "taken", "settled"],
    ),
    "nobody decides": (chain(review("any", subscription_timeout="P3D", **ABSENT)), delay_ends, []),
    "no event decides": (chain(review("any", approvers=["ann"])), no_event_decides, ["settled"]),
    "cancelled": (chain(review("any")), cancelled, []),
    "a resume fails at first": (chain({"type": "t_wait", "id": "w", "file": "FILE", "fail": 1}), fails_at_first, []),
}


@pytest.fixture
def waiting_nodes(monkeypatch: pytest.MonkeyPatch) -> NodeRegistry:
    """The types of ``nodes/waiting.py`` in this process."""
    monkeypatch.syspath_prepend(str(NODES))
    sys.modules.pop("waiting", None)
    import waiting  # type: ignore[import-not-found]

    return NodeRegistry([*BUILT_IN, waiting.Wait])


def test_flows_end_the_same_where_time_is_skipped(world: World, waiting_nodes: NodeRegistry) -> None:
    world.serving(**PATIENT, executors=2)
    played: dict[str, Real] = {}
    told: dict[str, list[str]] = {}
    for at, (name, (nodes, play, _)) in enumerate(SCENARIOS.items()):
        world.put(f"f{at}", for_file(nodes, world, "real"))
        played[name] = Real(world, f"f{at}", {"order": 7})
        play(played[name], told.setdefault(name, []))
    for at, (name, (nodes, play, reasons)) in enumerate(SCENARIOS.items()):
        said: list[str] = []
        with TimeSkippingRunner(registry=waiting_nodes) as run:
            flow = {"flow_id": f"f{at}", "nodes": for_file(nodes, world, "skipping")}
            stage = Skipping(run, flow, {"order": 7})
            play(stage, said)
            found = stage.outcome()
        assert found == played[name].outcome(), name
        refused_after = ["no_approval"] * (len(said) - len(reasons))
        assert said == told[name] == reasons + refused_after, name
        assert name == "cancelled" or found[0] in ("completed", "error"), name


def for_file(nodes: list[dict[str, Any]], world: World, name: str) -> list[dict[str, Any]]:
    return [{**node, "file": str(world.folder / name)} if "file" in node else node for node in nodes]
