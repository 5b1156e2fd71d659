"""The asyncio runner: order, batching, cancelled callers, losses; on asyncio and on uvloop."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest
import uvloop

from plaita.store import carriers, flows, server
from plaita.store.call import Call, Refused, Unavailable, Unknown, Value
from plaita.store.keys import Keys
from plaita.store.runner_async import AsyncRunner, RunnerState
from plaita.testing.proxy import Proxy
from plaita.testing.server import raw

KEYS = Keys()
Run = Callable[[Coroutine[Any, Any, Any]], Any]


@pytest.fixture(params=["asyncio", "uvloop"])
def loop_run(request: pytest.FixtureRequest) -> Run:
    def run(main: Coroutine[Any, Any, Any]) -> Any:
        if request.param == "uvloop":
            return uvloop.run(asyncio.wait_for(main, 60))
        return asyncio.run(asyncio.wait_for(main, 60))

    return run


@pytest.fixture
def proxy(plaita_server) -> Iterator[Proxy]:
    found = Proxy(plaita_server.socket_path)
    yield found
    found.close()


def echo(text: str, lane: Any = "writer") -> Call[str]:
    return Call("echo", None, (), ("ECHO", text), lane, True, lambda reply: reply.decode())


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - a test may look again and again
        await asyncio.sleep(0.005)


def test_concurrent_calls_get_their_own_replies(loop_run: Run, plaita_server):
    async def main() -> None:
        runner = AsyncRunner(plaita_server.url)
        texts = [f"{number}" * (number % 50) for number in range(2000)]
        answers = await asyncio.gather(*(runner.run(echo(text)) for text in texts))
        assert answers == [Value(text) for text in texts]
        await runner.close()

    loop_run(main())


def test_calls_of_one_turn_travel_together(loop_run: Run, plaita_server):
    """Far fewer reads on the server than calls."""

    async def main() -> int:
        runner = AsyncRunner(plaita_server.url)
        await runner.run(echo("warm"))

        def reads() -> Call[int]:
            def parse(reply: bytes) -> int:
                return int(reply.decode().split("total_reads_processed:")[1].split("\r\n")[0])

            return Call("info", None, (), ("INFO", "stats"), "writer", True, parse)

        before = (await runner.run(reads())).value
        await asyncio.gather(*(runner.run(echo("x")) for _ in range(512)))
        after = (await runner.run(reads())).value
        await runner.close()
        return after - before

    assert loop_run(main()) <= 40


def test_a_cancelled_caller_shifts_no_reply(loop_run: Run, plaita_server):
    async def main() -> None:
        runner = AsyncRunner(plaita_server.url)
        await runner.run(echo("warm"))
        tasks = [asyncio.create_task(runner.run(echo(str(number)))) for number in range(300)]
        await asyncio.sleep(0)  # queued
        await asyncio.sleep(0)  # sent
        for task in tasks[::3]:
            task.cancel()
        kept = [number for number in range(300) if number % 3]
        answers = await asyncio.gather(*(tasks[number] for number in kept))
        assert answers == [Value(str(number)) for number in kept]
        assert await runner.run(echo("after")) == Value("after")
        await runner.close()

    loop_run(main())


def test_a_caller_cancelled_before_sending_never_happens(loop_run: Run, plaita_server):
    async def main() -> None:
        runner = AsyncRunner(plaita_server.url)
        # Nothing is connected yet, so the call waits in the queue.
        task = asyncio.create_task(runner.run(raw("SET", "cancelled", "1")))
        await asyncio.sleep(0)
        task.cancel()
        assert await runner.run(raw("EXISTS", "cancelled")) == Value(0)
        await runner.close()

    loop_run(main())


def test_lanes_do_not_wait_for_each_other(loop_run: Run, plaita_server):
    async def main() -> None:
        runner = AsyncRunner(plaita_server.url)
        await runner.run(carriers.take(KEYS, carriers.Take("c", 1, 1000, "h/i")))
        reading = asyncio.create_task(runner.run(carriers.read_blocking(KEYS, "c", 30_000)))
        for lane in ("writer", "keeper", "bulk"):
            assert await runner.run(server.ping(KEYS, lane)) == Value(True)
        while not await runner.unblock():  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        assert await reading == Value([])
        await runner.close()

    loop_run(main())


def test_unblock_without_a_read_is_harmless(loop_run: Run, plaita_server):
    async def main() -> None:
        runner = AsyncRunner(plaita_server.url)
        assert await runner.unblock() is False
        await runner.run(server.ping(KEYS, "reader"))
        assert await runner.unblock() is False
        assert await runner.run(server.ping(KEYS, "reader")) == Value(True)
        await runner.close()

    loop_run(main())


def test_big_bodies_both_ways(loop_run: Run, plaita_server):
    async def main() -> None:
        runner = AsyncRunner(plaita_server.url)
        bodies = [bytes([number]) * 3_000_000 for number in range(8)]
        await asyncio.gather(*(runner.run(raw("SET", f"k{n}", body)) for n, body in enumerate(bodies)))
        answers = await asyncio.gather(*(runner.run(raw("GET", f"k{n}")) for n in range(8)))
        assert [answer.value for answer in answers] == bodies
        await runner.close()

    loop_run(main())


def test_NOSCRIPT_the_text_is_sent_once(loop_run: Run, plaita_server):
    """KNOWN-TROUBLE 34: flushed while idle and in the middle of many."""

    async def main() -> None:
        runner = AsyncRunner(plaita_server.url)
        for _ in range(2):
            await runner.run(raw("SCRIPT", "FLUSH", "SYNC"))
            call = flows.put(KEYS, "f", "1", "a" * 64, b"{}")
            answers = await asyncio.gather(*(runner.run(call) for _ in range(20)), runner.run(echo("x")))
            assert all(isinstance(answer, Value) for answer in answers)
            assert sum(answer.value.created for answer in answers[:20]) <= 1
        await runner.close()

    loop_run(main())


def test_arguments_that_no_text_carries_are_refused(loop_run: Run, plaita_server):
    async def main() -> None:
        runner = AsyncRunner(plaita_server.url)
        bad, good = await asyncio.gather(runner.run(echo("\ud800")), runner.run(echo("x")))
        assert isinstance(bad, Refused)
        assert bad.reason == "bad_argument"
        assert good == Value("x")
        await runner.close()

    loop_run(main())


def test_an_error_reply_hurts_only_its_caller(loop_run: Run, plaita_server):
    async def main() -> None:
        runner = AsyncRunner(plaita_server.url)
        answers = await asyncio.gather(
            runner.run(echo("a")), runner.run(raw("NOSUCH")), runner.run(raw("SET", "k")), runner.run(echo("b"))
        )
        assert [type(answer) for answer in answers] == [Value, Refused, Refused, Value]
        assert answers[3] == Value("b")
        await runner.close()

    loop_run(main())


# -- losses ---------------------------------------------------------------------------------------------------


def test_half_open_is_noticed_and_left(loop_run: Run, plaita_server, proxy: Proxy):
    """KNOWN-TROUBLE 10: nothing comes any more, and nothing is closed. A fresh connection then serves."""

    async def main() -> None:
        runner = AsyncRunner(proxy.url(plaita_server.password), response_timeout_s=0.3)
        assert await runner.run(echo("a")) == Value("a")
        await runner.run(carriers.take(KEYS, carriers.Take("c", 1, 1000, "h/i")))
        proxy.set_mode("freeze")
        sent, reading = await asyncio.gather(
            runner.run(echo("b")), runner.run(carriers.read_blocking(KEYS, "c", 100)), return_exceptions=False
        )
        assert isinstance(sent, Unknown)
        assert "no answer" in sent.error
        assert isinstance(reading, Unavailable | Unknown)
        assert runner.state.connected is False
        proxy.set_mode("forward")
        answer: Any = None
        while not isinstance(answer, Value):
            answer = await runner.run(echo("c"))
        assert answer == Value("c")
        assert runner.state.connected is True
        await runner.close()

    loop_run(main())


def test_a_lost_reply_is_unknown_and_was_done(loop_run: Run, plaita_server, proxy: Proxy):
    async def main() -> None:
        runner = AsyncRunner(proxy.url(plaita_server.password), response_timeout_s=0.3)
        await runner.run(echo("warm"))
        proxy.set_mode("drop_replies")
        assert isinstance(await runner.run(raw("INCR", "n")), Unknown)
        assert plaita_server.do("GET", "n") == b"1"
        await runner.close()

    loop_run(main())


def test_a_cut_makes_all_under_way_unknown(loop_run: Run, plaita_server, proxy: Proxy):
    async def main() -> None:
        runner = AsyncRunner(proxy.url(plaita_server.password))
        await runner.run(echo("warm"))
        proxy.set_mode("drop_replies")
        tasks = [asyncio.create_task(runner.run(echo(str(number)))) for number in range(50)]
        await asyncio.sleep(0.05)
        proxy.set_mode("cut")
        answers = await asyncio.gather(*tasks)
        assert {type(answer) for answer in answers} == {Unknown}
        proxy.set_mode("forward")
        answer: Any = None
        while not isinstance(answer, Value):
            answer = await runner.run(echo("again"))
        await runner.close()

    loop_run(main())


def test_nobody_there_is_unavailable_and_paced(loop_run: Run, tmp_path):
    """Asking again and again does not spin: the tries to connect are few (KNOWN-TROUBLE 32)."""

    async def main() -> None:
        states: list[RunnerState] = []
        runner = AsyncRunner(f"unix://{tmp_path}/none.sock", on_state=states.append)
        loop = asyncio.get_running_loop()
        deadline, asked = loop.time() + 1.5, 0
        while loop.time() < deadline:
            answer = await runner.run(echo("x"))
            assert isinstance(answer, Unavailable)
            assert not answer.auth
            assert "none.sock" in answer.error
            asked += 1
        assert asked <= 15
        assert runner.state.connected is False
        assert ["none.sock" in state.last_error for state in states] == [True], "told once, with its reason"
        await runner.close()

    loop_run(main())


def test_many_callers_share_one_try(loop_run: Run, tmp_path):
    async def main() -> None:
        runner = AsyncRunner(f"unix://{tmp_path}/none.sock")
        answers = await asyncio.gather(*(runner.run(echo(str(number))) for number in range(100)))
        assert {type(answer) for answer in answers} == {Unavailable}
        await runner.close()

    loop_run(main())


@pytest.mark.parametrize("password", ["", "wrong-one"])
def test_a_wrong_password_is_named_and_never_shown(loop_run: Run, plaita_server, proxy: Proxy, password: str):
    async def main() -> None:
        runner = AsyncRunner(proxy.url(password))
        answer = await runner.run(echo("x"))
        assert isinstance(answer, Unavailable)
        assert answer.auth is True
        assert runner.state.auth is True
        for text in (answer.error, runner.state.last_error, repr(runner.endpoint)):
            assert "wrong-one" not in text
        await runner.close()

    loop_run(main())


def test_a_peer_that_is_no_redis(loop_run: Run):
    async def main() -> None:
        async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"220 mail.example ESMTP\r\n")
            await writer.drain()
            writer.close()

        listener = await asyncio.start_server(greet, "127.0.0.1", 0)
        port = listener.sockets[0].getsockname()[1]
        runner = AsyncRunner(f"redis://127.0.0.1:{port}")
        assert isinstance(await runner.run(echo("x")), Unavailable)
        await runner.close()
        listener.close()

    loop_run(main())


def test_LOADING_waits_and_then_serves(loop_run: Run):
    """A stub that is loading for the first two connections."""

    async def main() -> None:
        seen = 0

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal seen
            seen += 1
            loading = seen <= 2
            while await reader.read(65536):
                if loading:
                    writer.write(b"-LOADING Redis is loading the dataset in memory\r\n" * 2)
                else:
                    writer.write(b"*2\r\n$4\r\nrole\r\n$6\r\nmaster\r\n+PONG\r\n" if seen == 3 else b"+PONG\r\n")
                    seen += 1
                await writer.drain()
            writer.close()

        listener = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = listener.sockets[0].getsockname()[1]
        runner = AsyncRunner(f"redis://127.0.0.1:{port}")
        answers = [await runner.run(server.ping(KEYS)) for _ in range(3)]
        assert [type(answer) for answer in answers] == [Unavailable, Unavailable, Value]
        assert "LOADING" in str(answers[0])
        await runner.close()
        listener.close()

    loop_run(main())


def test_READONLY_leaves_for_where_the_name_points_now(loop_run: Run, plaita_server, proxy: Proxy):
    """KNOWN-TROUBLE 31: the connection stays up, each write is refused, until it is made anew."""

    async def main() -> None:
        runner = AsyncRunner(proxy.url(plaita_server.password))
        assert await runner.run(raw("SET", "k", "1")) == Value(b"OK")
        plaita_server.do("REPLICAOF", "127.0.0.1", "1")
        try:
            # A call that finds the lane idle is sent at once; what comes behind it in this turn travels together.
            calls = (echo("ahead"), raw("SET", "k", "2"), raw("GET", "k"))
            _, *first = await asyncio.gather(*(runner.run(call) for call in calls))
            assert isinstance(first[0], Unavailable)
            assert "READONLY" in first[0].error
            assert first[1] == Value(b"1"), "what was under way on the old connection is answered"
            again = await runner.run(raw("SET", "k", "3"))
            assert isinstance(again, Unavailable)
            assert runner.state.connected is False
        finally:
            plaita_server.do("REPLICAOF", "NO", "ONE")
        answer: Any = None
        while not isinstance(answer, Value):
            answer = await runner.run(raw("SET", "k", "4"))
        assert runner.state.connected is True
        await runner.close()

    loop_run(main())


def test_state_tells_each_change_once(loop_run: Run, plaita_server, proxy: Proxy):
    async def main() -> None:
        states: list[RunnerState] = []
        runner = AsyncRunner(proxy.url(plaita_server.password), on_state=states.append)
        await runner.run(echo("x"))
        await runner.run(echo("x"))
        proxy.set_mode("cut")
        await until(lambda: not runner.state.connected)
        await runner.run(echo("x"))
        await runner.run(echo("x"))
        proxy.set_mode("forward")
        while not isinstance(await runner.run(echo("x")), Value):
            pass
        assert [key for key, _ in itertools.groupby(state.connected for state in states)] == [True, False, True]
        told = [(state.connected, state.last_error) for state in states]
        assert all(one != other for one, other in itertools.pairwise(told)), "only what is new"
        assert states[0].server.startswith("valkey ")
        assert states[1].last_error
        assert all(state.since_ms > 0 for state in states)
        await runner.close()

    loop_run(main())


def test_close_leaves_nobody_waiting(loop_run: Run, plaita_server):
    async def main() -> None:
        runner = AsyncRunner(plaita_server.url)
        await runner.run(carriers.take(KEYS, carriers.Take("c", 1, 1000, "h/i")))
        await runner.run(server.ping(KEYS, "reader"))
        reading = asyncio.create_task(runner.run(carriers.read_blocking(KEYS, "c", 30_000)))
        await asyncio.sleep(0.02)
        await runner.close()
        assert isinstance(await reading, Unknown)
        assert isinstance(await runner.run(echo("x")), Unavailable)

    loop_run(main())


def test_close_while_connecting(loop_run: Run, tmp_path):
    async def main() -> None:
        runner = AsyncRunner(f"unix://{tmp_path}/none.sock")
        await runner.run(echo("x"))
        waiting = asyncio.create_task(runner.run(echo("x")))
        await asyncio.sleep(0)
        await runner.close()
        assert isinstance(await waiting, Unavailable)

    loop_run(main())
