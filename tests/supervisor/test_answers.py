"""Finished answers that wait for Redis: bounded, the oldest dropped and counted (DECISIONS 9)."""

from __future__ import annotations

import asyncio
from typing import Any

from plaita.flow.outline import outline
from plaita.policy import lease
from plaita.store.call import Call, Unavailable, Value
from plaita.store.keys import Keys
from plaita.supervisor.answers import HeldAnswers, weight
from plaita.supervisor.held import Held
from plaita.supervisor.sender import Sender
from plaita.supervisor.settle import Settler
from plaita.supervisor.stats import Stats


def test_DECISIONS_9_the_oldest_are_dropped_over_the_limit() -> None:
    dropped: list[str] = []
    answers = HeldAnswers(limit=100)
    first = answers.add(40, lambda: dropped.append("first"))
    answers.add(40, lambda: dropped.append("second"))
    assert (dropped, answers.size) == ([], 80)
    answers.add(50, lambda: dropped.append("third"))
    assert (dropped, answers.size) == (["first"], 90)
    answers.remove(first)  # its sender notices, late
    assert answers.size == 90
    last = answers.add(500, lambda: dropped.append("fourth"))
    assert (dropped, answers.size) == (["first", "second", "third"], 500)  # the newest stays, whatever it weighs
    answers.remove(last)
    assert answers.size == 0


def test_what_weighs_is_the_bodies() -> None:
    assert weight(Call("c", None, ("key",), ("ab", b"cde", 7), "writer", True, lambda reply: reply)) == 5


class Away:
    """A runner whose server is away until ``back``."""

    def __init__(self) -> None:
        self.back = asyncio.Event()
        self.written: list[Any] = []

    async def run(self, call: Call[Any]) -> Any:
        await asyncio.sleep(0)
        if not self.back.is_set():
            return Unavailable("away")
        self.written.append(call.args[0])
        return Value(None)


def held(name: str) -> Held:
    flow = outline({"nodes": [{"type": "start", "id": "s"}]})
    return Held(
        keys=Keys(), execution_id=name, tenant_id="default", flow_id="f", version="1", flow_hash="", stream="q",
        entry_id="1-0", holder="h/i", token=f"1:{name}", lease=lease.times(0, 10_000), node_id="s", outline=flow,
        step=0, lost=1, active_ms=0,
    )  # fmt: skip


def test_DECISIONS_9_in_an_outage() -> None:
    asyncio.run(in_an_outage())


async def in_an_outage() -> None:
    runner, stats = Away(), Stats()
    settler = Settler.__new__(Settler)
    settler._sender = Sender(runner, stats)  # type: ignore[arg-type]
    settler._stats = stats
    settler._answers = HeldAnswers(limit=1000)

    def write(name: str, size: int) -> asyncio.Task[Any]:
        body = name.encode().ljust(size, b".")
        call = Call("executions.commit", None, (), (body,), "writer", True, lambda reply: reply)
        return asyncio.create_task(settler._write(held(name), call))

    first = write("first", 600)
    while settler._answers.size < 600:  # noqa: ASYNC110 - there is no event to wait for
        await asyncio.sleep(0.001)
    second = write("second", 600)
    await first  # dropped: its carrier stays pending
    assert stats.get("answers_dropped") == 1
    runner.back.set()
    await second
    assert [body[:6] for body in runner.written] == [b"second"]
    assert (stats.get("answers_dropped"), settler._answers.size) == (1, 0)
