"""Commits through outages: killed servers, cut and dropped connections, no memory. Sending again until an answer comes
must end in the same state as a day without trouble (DECISIONS 2, 9)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from plaita.store import carriers, executions, flows
from plaita.store.call import Answer, Call, Refused, Unavailable, Unknown, Value
from plaita.store.carriers import Take
from plaita.store.executions import Begin, Begun, Commit, Finish, Start
from plaita.store.keys import Keys
from plaita.store.runner_async import AsyncRunner
from plaita.testing.proxy import Proxy
from plaita.testing.server import Server

KEYS = Keys()
EXECUTIONS, STEPS = 6, 150


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[Server]:
    found = Server(tmp_path / "own")
    found.write_through()
    yield found
    found.close()


async def stubborn(runner: AsyncRunner, call: Call) -> Answer:
    """As the supervisor does: again until done or refused."""
    while True:
        answer = await runner.run(call)
        if isinstance(answer, Value | Refused):
            return answer
        await asyncio.sleep(0.001)


async def life(runner: AsyncRunner, name: str, progress: asyncio.Event) -> None:
    entry_id = f"{name}-0"
    begin = Begin(name, "h/i", "n", 600_000, "q", entry_id, 5)
    begun: Begun = (await stubborn(runner, executions.begin(KEYS, begin))).value
    for step in range(1, STEPS + 1):
        commit = Commit(name, begun.token, step, 600_000, begun.lease_value, f"n{step}", b"1", b"{}", f"n{step + 1}")
        answer = await stubborn(runner, executions.commit(KEYS, commit))
        assert isinstance(answer, Value), answer
        progress.set()
    end = Finish(name, begun.token, STEPS + 1, "completed", "q", entry_id, 1000_000, output=b"1")
    answer = await stubborn(runner, executions.finish(KEYS, end))
    assert isinstance(answer, Value), answer


async def prepare(runner: AsyncRunner) -> list[str]:
    await stubborn(runner, flows.put(KEYS, "f", "1", "a" * 64, b"{}"))
    for number in range(EXECUTIONS):
        await stubborn(runner, executions.start(KEYS, Start(str(number), "f", input=b"1", payload=b"{}")))
    await stubborn(runner, carriers.take(KEYS, Take("h", EXECUTIONS, 1000, "h/i")))
    return [str(number) for number in range(EXECUTIONS)]


async def check(runner: AsyncRunner, names: list[str]) -> None:
    for name in names:
        row = (await stubborn(runner, executions.load(KEYS, name, results=True))).value
        assert row.status == "completed"
        assert row.control["step"] == str(STEPS)
        assert set(row.results) == {f"n{step}" for step in range(1, STEPS + 1)}
        assert row.control["attempts"] == "1"


def test_the_server_is_killed_in_the_middle_of_pipelined_commits(own_server: Server):
    async def main() -> None:
        states: list[bool] = []
        runner = AsyncRunner(
            own_server.url, response_timeout_s=2, on_state=lambda state: states.append(state.connected)
        )
        names = await prepare(runner)
        progress = asyncio.Event()
        lives = asyncio.gather(*(life(runner, name, progress) for name in names))
        for _ in range(3):
            progress.clear()
            await asyncio.wait({asyncio.ensure_future(progress.wait()), lives}, return_when="FIRST_COMPLETED")
            assert not lives.done(), "the kill comes in the middle"
            await asyncio.to_thread(own_server.kill)
            await asyncio.to_thread(own_server.start)
        await lives
        await check(runner, names)
        assert states.count(False) >= 1
        await runner.close()

    asyncio.run(asyncio.wait_for(main(), 60))


def test_connections_cut_and_replies_dropped(plaita_server: Server):
    async def main() -> None:
        proxy = Proxy(plaita_server.socket_path)
        runner = AsyncRunner(proxy.url(plaita_server.password), response_timeout_s=0.2)
        names = await prepare(runner)
        progress = asyncio.Event()
        lives = asyncio.gather(*(life(runner, name, progress) for name in names))
        for mode in ("cut", "drop_replies", "freeze", "cut", "drop_replies"):
            progress.clear()
            await asyncio.wait({asyncio.ensure_future(progress.wait()), lives}, return_when="FIRST_COMPLETED")
            proxy.set_mode(mode)
            await asyncio.sleep(0.3)
            proxy.set_mode("forward")
        await lives
        await check(runner, names)
        await runner.close()
        proxy.close()

    asyncio.run(asyncio.wait_for(main(), 60))


def test_scripts_flushed_again_and_again(plaita_server: Server):
    async def main() -> None:
        runner = AsyncRunner(plaita_server.url)
        names = await prepare(runner)
        progress = asyncio.Event()
        lives = asyncio.gather(*(life(runner, name, progress) for name in names))
        while not lives.done():
            plaita_server.do("SCRIPT", "FLUSH", "SYNC")
            await asyncio.sleep(0.01)
        await lives
        await check(runner, names)
        await runner.close()

    asyncio.run(asyncio.wait_for(main(), 60))


def test_no_memory_left(plaita_server: Server):
    async def main() -> None:
        runner = AsyncRunner(plaita_server.url)
        await prepare(runner)
        begun = (await runner.run(executions.begin(KEYS, Begin("0", "h/i", "n", 600_000, "q", "0-0", 5)))).value
        commit = executions.commit(
            KEYS, Commit("0", begun.token, 1, 600_000, begun.lease_value, "a", b"1", b"{}", "b", active_ms_delta=5)
        )
        before = plaita_server.do("DUMP", KEYS.row("0"))
        plaita_server.do("CONFIG", "SET", "maxmemory", "1")
        try:
            answer = await runner.run(commit)
        finally:
            plaita_server.do("CONFIG", "SET", "maxmemory", "0")
        assert isinstance(answer, Unavailable)
        assert "OOM" in answer.error
        assert plaita_server.do("DUMP", KEYS.row("0")) == before
        assert (await runner.run(commit)).value.done_before is False
        await runner.close()

    asyncio.run(asyncio.wait_for(main(), 60))


def test_an_entry_delivered_to_a_lost_reply_comes_back_by_adopting(plaita_server: Server):
    """KNOWN-TROUBLE 11: not after hours, and not only to somebody else."""

    async def main() -> None:
        proxy = Proxy(plaita_server.socket_path)
        runner = AsyncRunner(proxy.url(plaita_server.password), response_timeout_s=0.2)
        await stubborn(runner, flows.put(KEYS, "f", "1", "a" * 64, b"{}"))
        await stubborn(runner, carriers.take(KEYS, Take("h", 1, 600_000, "h/i")))
        started = (await stubborn(runner, executions.start(KEYS, Start("e", "f", input=b"1", payload=b"{}")))).value
        proxy.set_mode("drop_replies")
        assert isinstance(await runner.run(carriers.take(KEYS, Take("h", 1, 600_000, "h/i"))), Unknown)
        proxy.set_mode("forward")
        taken = (await stubborn(runner, carriers.take(KEYS, Take("h", 1, 600_000, "h/i", adopt=True)))).value
        assert [entry.entry_id for entry in taken.entries] == [started.message_id]
        await runner.close()
        proxy.close()

    asyncio.run(asyncio.wait_for(main(), 60))
