"""The registrar against a Redis that refuses, is silent or has another's record (ledger G2, G3)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from plaita.store.call import Answer, Call, Refused, Unavailable, Unknown, Value
from plaita.store.keys import Keys
from plaita.store.registry import Instance
from plaita.supervisor import registrar
from plaita.supervisor.identity import Identity
from plaita.supervisor.registrar import IdentityTaken, Registrar
from plaita.supervisor.stats import Stats

OWN = Identity("host", "machine", "boot", 1000, 77)
AWAY = Unavailable("no connection")
Script = Callable[[Call[Any]], Answer[Any]]


class FakeRunner:
    """Answers each call as the test says, by its name; the last answer stays."""

    def __init__(self, **answers: list[Answer[Any] | Exception]) -> None:
        self.answers = answers
        self.calls: list[tuple[str, str]] = []  # (name, status written)
        self.slow: asyncio.Event | None = None

    async def run(self, call: Call[Any]) -> Answer[Any]:
        name = call.name.removeprefix("registry.")
        record = next((one for one in call.args if isinstance(one, bytes) and one.startswith(b"{")), b"{}")
        self.calls.append((name, json.loads(record).get("status", "")))
        if self.slow is not None:
            await self.slow.wait()
        await asyncio.sleep(0)
        answers = self.answers[name]
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        assert not isinstance(answer, Exception)
        return answer


class World:
    def __init__(self, **answers: list[Any]) -> None:
        self.runner = FakeRunner(**answers)
        self.status = "starting"
        self.stats = Stats()
        self.registrar = Registrar(
            self.runner,  # type: ignore[arg-type]
            Keys(),
            "one",
            "i1",
            OWN,
            {},
            self.stats,
            lambda: {"status": self.status},
        )

    def written(self) -> list[str]:
        return [status for name, status in self.runner.calls if name in ("register", "heartbeat", "unregister")]


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    lines: list[str] = []
    for level in ("info", "warning", "error"):
        monkeypatch.setattr(registrar.logs, level, lambda event, **fields: lines.append(f"{event} {fields}"))
    return lines


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Waits are taken down, and take no time."""
    waits: list[float] = []

    def waited(attempt: int, **bounds: float) -> float:
        waits.append(min(bounds["cap"], bounds["base"] * 2**attempt))
        return 0.0

    monkeypatch.setattr(registrar, "backoff_s", waited)
    return waits


def run(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(scenario, 60))


def named(name: str, lines: list[str]) -> list[str]:
    return [line for line in lines if line.startswith(name + " ")]


@pytest.mark.parametrize(
    "answer", [AWAY, Unknown("lost"), Refused("wrong_type", "x"), Refused("server_error", "NOPERM")]
)
def test_G3_a_registration_that_fails_is_an_error_and_retried_in_the_background(
    answer: Answer[bool], told: list[str], quick: list[float]
) -> None:
    world = World(register=[answer] * 8 + [Value(True)], heartbeat=[Value(True)])
    registered = asyncio.Event()

    async def scenario() -> None:
        assert await world.registrar.claim() is False
        assert not world.registrar.registered
        assert len(named("registry.register_failed", told)) == 1
        world.registrar.start(registered=registered.set)
        await registered.wait()
        assert world.registrar.registered

    run(scenario())
    assert quick == [1, 2, 4, 8, 16, 30, 30, 30]
    assert len(named("registry.register_failed", told)) == 8


def test_G3_a_stop_ends_the_retry_before_it_unregisters(told: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(register=[Unknown("lost")], unregister=[Value(True)])
    monkeypatch.setattr(registrar, "backoff_s", lambda attempt, **bounds: 3600.0)

    async def scenario() -> None:
        await world.registrar.claim()
        world.registrar.start()
        await asyncio.sleep(0)
        world.status = "stopping"
        await world.registrar.announce()
        await world.registrar.unregister()
        calls = list(world.runner.calls)
        world.registrar.try_again()
        for _ in range(5):
            await asyncio.sleep(0)
        assert world.runner.calls == calls
        assert [name for name, _ in calls][-1] == "unregister"

    world.runner.answers["heartbeat"] = [Value(True)]
    run(scenario())


def test_G3_redis_that_serves_again_is_not_kept_waiting(monkeypatch: pytest.MonkeyPatch, told: list[str]) -> None:
    world = World(register=[AWAY, Value(True)], heartbeat=[Value(True)])
    monkeypatch.setattr(registrar, "backoff_s", lambda attempt, **bounds: 3600.0)
    registered = asyncio.Event()

    async def scenario() -> None:
        await world.registrar.claim()
        world.registrar.start(registered=registered.set)
        await asyncio.sleep(0)
        world.registrar.try_again()
        await registered.wait()

    run(scenario())


def test_G3_one_that_was_faster_is_told_of(told: list[str]) -> None:
    there = {"machine": "machine", "boot": "boot", "host": "host", "pid": 1, "started": 5}
    world = World(
        register=[AWAY, Refused("taken", "{}")],
        get=[Value(Instance("one", "i2", json.dumps(there).encode()))],
    )
    taken: list[Exception] = []
    come = asyncio.Event()

    async def scenario() -> None:
        await world.registrar.claim()

        def on_taken(error: IdentityTaken) -> None:
            taken.append(error)
            come.set()

        world.registrar.start(taken=on_taken)
        await come.wait()

    from plaita.unix.processes import start_ticks

    there["started"] = start_ticks(1) or 0
    world.runner.answers["get"] = [Value(Instance("one", "i2", json.dumps(there).encode()))]
    run(scenario())
    assert "pid 1" in str(taken[0])


def test_DECISIONS_1_a_dead_namesake_without_an_incarnation_is_no_hot_loop(told: list[str]) -> None:
    """Its incarnation was evicted, so nothing can be compared: it is waited for like one elsewhere."""
    record = json.dumps({"machine": "machine", "boot": "earlier", "host": "host", "pid": 1, "started": 5}).encode()
    world = World(register=[Refused("taken", "{}")], get=[Value(Instance("one", "", record))])

    async def scenario() -> None:
        claiming = asyncio.create_task(world.registrar.claim())
        while not named("registry.namesake_elsewhere", told):  # noqa: ASYNC110 - a test waits
            await asyncio.sleep(0)
        claiming.cancel()

    run(scenario())
    assert len(world.runner.calls) <= 3


def test_G1_a_heartbeat_every_ten_seconds_with_what_is_so_then(
    told: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A little sooner rather than later, so that hosts which started together do not beat together."""
    world = World(register=[Value(True)], heartbeat=[Value(True)])
    pauses: list[float] = []
    enough, refreshed = asyncio.Event(), []

    async def pause(self: Registrar, seconds: float) -> None:
        pauses.append(seconds)
        world.status = f"beat {len(pauses)}"
        if len(pauses) > 20:
            enough.set()
            await asyncio.Event().wait()

    async def refresh() -> None:
        refreshed.append(world.status)

    monkeypatch.setattr(Registrar, "_pause", pause)
    world.registrar._refresh = refresh

    async def scenario() -> None:
        await world.registrar.claim()
        world.registrar.start()
        await enough.wait()

    run(scenario())
    assert all(8 <= seconds <= 10 for seconds in pauses)
    assert max(pauses) - min(pauses) > 0.1
    assert world.written() == ["starting", *(f"beat {number}" for number in range(1, 21))]
    assert refreshed == world.written()[1:]


def test_G1_an_entry_that_cannot_be_renewed_is_ours_until_it_has_run_out(
    told: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Health must not stay green (KNOWN-TROUBLE 10, 32): all else may work while the heartbeat is refused. When Redis
    serves again the next heartbeat comes at once, and what an outage has left is looked for."""
    now = [1_000_000]
    monkeypatch.setattr(registrar, "boot_ms", lambda: now[0])
    world = World(register=[Value(True)], heartbeat=[Refused("server_error", "NOPERM")])
    again = asyncio.Event()

    async def scenario() -> None:
        await world.registrar.claim()
        world.registrar.start(registered=again.set)
        await asyncio.sleep(0)
        await world.registrar.announce(tries=1)
        now[0] += registrar.TTL_MS - 1
        assert world.registrar.registered
        world.registrar.try_again()  # no reason to hurry
        for _ in range(5):
            await asyncio.sleep(0)
        assert len(world.runner.calls) == 2
        now[0] += 1
        assert not world.registrar.registered
        world.runner.answers["heartbeat"] = [Value(True)]
        world.registrar.try_again()
        await again.wait()
        assert world.registrar.registered

    run(scenario())


def test_G2_a_status_that_cannot_be_written_is_tried_three_times_counted_and_an_error(told: list[str]) -> None:
    world = World(register=[Value(True)], heartbeat=[AWAY])

    async def scenario() -> None:
        await world.registrar.claim()
        world.status = "draining"
        await world.registrar.announce()

    run(scenario())
    assert [name for name, _ in world.runner.calls] == ["register"] + ["heartbeat"] * 3
    assert world.stats.get("registry_status_flush_failed_total") == 1
    assert len(named("registry.status_not_written", told)) == 1


def test_G2_after_stopping_nothing_writes_but_the_mark(told: list[str]) -> None:
    """A drain's status that is still being tried, the heartbeat and further changes: all behind the gate."""
    world = World(register=[Value(True)], heartbeat=[AWAY, AWAY, Value(True)], unregister=[Value(True)])

    async def scenario() -> None:
        await world.registrar.claim()
        world.registrar.start()
        world.status = "draining"
        draining = asyncio.create_task(world.registrar.announce())  # its first try fails, then it waits a moment
        await asyncio.sleep(0.01)
        world.status = "stopping"
        stopping = asyncio.create_task(world.registrar.announce())
        await stopping
        await draining
        world.status = "running"
        await world.registrar.announce()
        await world.registrar.unregister()

    run(scenario())
    assert world.written() == ["starting", "draining", "stopping", "stopping", "stopped"]


@pytest.mark.parametrize(
    ("answer", "lines"),
    [(AWAY, 1), (Unknown("lost"), 1), (Refused("server_error", "x"), 1), (Value(False), 1), (Value(True), 0)],
)
def test_G2_an_unregister_that_fails_is_told(answer: Answer[bool], lines: int, told: list[str]) -> None:
    world = World(register=[Value(True)], unregister=[answer])

    async def scenario() -> None:
        await world.registrar.claim()
        await world.registrar.unregister()

    run(scenario())
    assert len(named("registry_unregister_failed", told)) == lines
    assert not world.registrar.registered


def test_G2_an_unregister_that_redis_does_not_answer_is_told(told: list[str]) -> None:
    world = World(register=[Value(True)], unregister=[Value(True)])

    async def scenario() -> None:
        await world.registrar.claim()
        world.runner.slow = asyncio.Event()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(world.registrar.unregister(), 0.01)

    run(scenario())
    assert len(named("registry_unregister_failed", told)) == 1


def test_G2_an_entry_that_a_change_of_status_wrote_is_taken_away_too(told: list[str]) -> None:
    """While a claim is under way a status is written; the claim is refused, the status is taken."""
    world = World(register=[Refused("wrong_type", "x")], heartbeat=[Value(True)], unregister=[Value(True)])

    async def scenario() -> None:
        world.runner.slow = asyncio.Event()
        claiming = asyncio.create_task(world.registrar.claim())
        await asyncio.sleep(0)
        writing = asyncio.create_task(world.registrar.announce())
        await asyncio.sleep(0)
        world.runner.slow.set()
        assert await claiming is False
        await writing
        assert world.registrar.registered
        await world.registrar.unregister()

    run(scenario())
    assert [name for name, _ in world.runner.calls] == ["register", "heartbeat", "unregister"]


def test_G2_a_stop_before_the_answer_to_a_claim_takes_it_away(told: list[str]) -> None:
    world = World(register=[Value(True)], unregister=[Value(True)])

    async def scenario() -> None:
        world.runner.slow = asyncio.Event()
        claiming = asyncio.create_task(world.registrar.claim())
        await asyncio.sleep(0)
        claiming.cancel()
        leaving = asyncio.create_task(world.registrar.unregister())
        await asyncio.sleep(0)
        world.runner.slow.set()
        await leaving

    run(scenario())
    assert [name for name, _ in world.runner.calls] == ["register", "unregister"]


def test_G2_what_never_reached_redis_is_not_taken_away(told: list[str]) -> None:
    world = World(register=[AWAY])

    async def scenario() -> None:
        await world.registrar.claim()
        await world.registrar.unregister()

    run(scenario())
    assert [name for name, _ in world.runner.calls] == ["register"]
    assert not named("registry_unregister_failed", told)
