"""A service that fails is told of and begun again, and the others do not hear of it (ledger E1)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from feed_hosts import until

from plaita import jsontext
from plaita.policy.explain import Gate
from plaita.services import manager as module
from plaita.services.manager import ServiceManager
from plaita.store.call import Unavailable, Value
from plaita.store.events import Published
from plaita.store.keys import Keys
from plaita.supervisor.report import service_gates

SINCE = "2025-11-30T12:00:00.000Z"


class Host:
    """A ServiceHost that only listens."""

    keys = Keys("plaita")
    consumer = "host1"
    min_idle_ms = 1000
    redis_targets: tuple[str, ...] = ()

    def __init__(self) -> None:
        self.told: list[tuple[str, dict[str, Any]]] = []
        self.counts: dict[str, int] = {}
        self.published: list[tuple[str, Any]] = []
        self.answer: Any = Value(Published("1-1", False))

    async def run(self, call: Any) -> Any:
        assert call.name == "events.publish"
        words = dict(zip(call.args[5::2], call.args[6::2], strict=True))
        self.published.append((words["event_type"], jsontext.loads(words["data"])))
        if self.answer is None:
            await asyncio.Event().wait()
        return self.answer

    def tell(self, level: str, event: str, **fields: Any) -> None:
        self.told.append((event, fields))

    def count(self, name: str, amount: int = 1) -> None:
        self.counts[name] = self.counts.get(name, 0) + amount


class Counted:
    """A service that does as it is told in its first lives, and then runs."""

    lives: list[str]

    def __init__(self, host: Any) -> None:
        type(self).lives.append("begun")

    async def run(self) -> None:
        await self.does() if len(self.lives) < 3 else await asyncio.Event().wait()

    async def does(self) -> None:
        raise RuntimeError("boom")

    def state(self) -> dict[str, Any]:
        return {"lives": len(self.lives)}


class Cancelled(Counted):
    async def does(self) -> None:
        other = asyncio.create_task(asyncio.sleep(60))
        other.cancel()
        await other


class Grouped(Counted):
    async def does(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(super().does())


class Odd(Counted):
    """What no UTF-8 carries must end neither the service for good nor the answer to ``status``."""

    async def does(self) -> None:
        raise RuntimeError("boom \ud800")


class Ends(Counted):
    async def does(self) -> None:
        return


@pytest.mark.parametrize(
    ("bad", "error", "told"),
    [(Counted, "RuntimeError: boom", 2), (Grouped, "RuntimeError: boom", 2), (Cancelled, "CancelledError", 2),
     (Odd, "RuntimeError: boom ?", 2), (Ends, "it has ended by itself", 0)],
)  # fmt: skip
def test_E1_a_service_that_fails_is_begun_again_told_of_by_an_event_and_harms_no_other(
    monkeypatch: pytest.MonkeyPatch, bad: type[Counted], error: str, told: int
) -> None:
    monkeypatch.setattr(module, "backoff_s", lambda *_, **__: 0.05)
    bad.lives = []
    well = type("Well", (Counted,), {"lives": ["begun"] * 3})

    async def play() -> tuple[Host, list[list[dict[str, Any]]]]:
        host = Host()
        manager = ServiceManager(host)
        manager._classes.clear()
        manager.register_service_class("bad", bad)
        manager.register_service_class("well", well)
        manager.start_all_services()
        seen = []
        await until(lambda: manager.states()[0]["state"] == "failed", "a failure")
        seen.append(manager.states())
        await until(lambda: manager.states()[0].get("lives") == 3, "its third life")
        seen.append(manager.states())
        await manager.stop_all_services()
        return host, [*seen, manager.states()]

    host, (failed, again, stopped) = asyncio.run(play())
    assert (failed[0]["service"], failed[0]["failures"], failed[0]["error"]) == ("bad", 1, error)
    assert (again[0]["state"], again[0]["failures"], again[0]["error"]) == ("running", 2, error)
    for rows in (failed, again):
        assert (rows[1]["state"], rows[1]["failures"], rows[1]["error"]) == ("running", 0, None)
    assert [row["state"] for row in stopped] == ["stopped", "stopped"]
    assert well.lives == ["begun"] * 4
    assert [event for event, _ in host.told] == ["service.failed"] * told
    assert host.counts == ({"service_failures": told} if told else {})
    data = {
        "error_type": "service_error", "error_message": error, "service_type": "bad", "instance_id": "host1",
    }  # fmt: skip
    assert host.published == [("service_error", data)] * 2


@pytest.mark.parametrize("answer", [Unavailable("gone"), None], ids=["no Redis", "no answer"])
def test_E1_a_service_is_begun_again_though_nobody_takes_the_event(
    monkeypatch: pytest.MonkeyPatch, answer: Any
) -> None:
    monkeypatch.setattr(module, "backoff_s", lambda *_, **__: 0.05)
    monkeypatch.setattr(module, "PUBLISH_S", 0.05)
    Counted.lives = []

    async def play() -> Host:
        host = Host()
        host.answer = answer
        manager = ServiceManager(host)
        manager._classes.clear()
        manager.register_service_class("bad", Counted)
        manager.start_all_services()
        await until(lambda: manager.states()[0].get("lives") == 3, "its third life")
        await manager.stop_all_services()
        return host

    host = asyncio.run(play())
    assert [event for event, _ in host.told] == ["service.failed", "service.failure_not_published"] * 2


def row(name: str, state: str = "running", **more: Any) -> dict[str, Any]:
    return {"service": name, "state": state, "since": SINCE, "failures": 2, "error": "boom", **more}


def target(**changes: Any) -> dict[str, Any]:
    return {"target": "q:1/0", "waits": 3, "left": 0, "away_since": None, "error": None, **changes}


@pytest.mark.parametrize(
    ("services", "wanted"),
    [
        ([], [("services", True, "none on this host")]),
        ([row("events"), row("schedules")], [("services", True, "events, schedules")]),
        ([row("events"), row("x", "failed")], [("services", False, "x: failed, 2 times by now; boom")]),
        (
            [row("redis_queue", targets=[target()])],
            [("services", True, "redis_queue"), ("queue server", True, "1 reached")],
        ),
        (
            [row("redis_queue", targets=[target(left=1, away_since=SINCE, error="refused")])],
            [
                ("services", True, "redis_queue"),
                ("queue server", False, "q:1/0: 3 wait for its queues, 1 is over with messages left there; refused"),
            ],
        ),
    ],
)
def test_E1_what_services_are_at_is_told_by_gates(services: Any, wanted: list[tuple[str, bool, str]]) -> None:
    found = service_gates(services)
    assert [(gate.name, gate.open, gate.value) for gate in found] == wanted
    for gate in found:
        assert gate.open or (gate.since == 1_764_504_000_000 and gate.advice)
    assert all(isinstance(gate, Gate) for gate in found)


def test_E1_of_many_servers_that_are_away_the_first_are_named() -> None:
    away = [target(target=f"q:{n}/0", away_since=f"2025-11-30T12:00:0{n}.000Z", error="refused") for n in range(9)]
    found = service_gates([row("redis_queue", targets=[*reversed(away), target()])])
    assert [gate.value.partition(":")[0] for gate in found] == [
        "redis_queue",
        *["q"] * 5,
        "4 more; see `plaita-supervisor status`",
    ]
    assert [gate.since for gate in found[1:4]] == [1_764_504_000_000, 1_764_504_001_000, 1_764_504_002_000]
