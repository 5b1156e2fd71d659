"""The blocking runner gives the same answers."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from plaita.errors import RefusedError, UnreachableError
from plaita.store import carriers, flows, server
from plaita.store.call import Call, Refused, Unavailable, Unknown, Value
from plaita.store.keys import Keys
from plaita.store.runner_sync import SyncRunner
from plaita.testing.proxy import Proxy
from plaita.testing.server import raw

KEYS = Keys()


@pytest.fixture
def proxy(plaita_server) -> Iterator[Proxy]:
    found = Proxy(plaita_server.socket_path)
    yield found
    found.close()


def test_values_and_refusals(plaita_server):
    with SyncRunner(plaita_server.url) as runner:
        assert runner.run(server.ping(KEYS)) == Value(True)
        assert runner.run(flows.resolve(KEYS, "none")) == Refused("no_flow")
        with pytest.raises(RefusedError, match="no_flow"):
            runner.do(flows.resolve(KEYS, "none"))
        assert runner.run(raw("ECHO", "\ud800")).reason == "bad_argument"  # type: ignore[union-attr]
        assert runner.server.startswith("valkey ")


def test_a_database_of_its_own(plaita_server):
    with SyncRunner(plaita_server.url + "&db=3") as runner:
        runner.do(raw("SET", "k", "1"))
    assert plaita_server.do("EXISTS", "k") == 0


def test_NOSCRIPT(plaita_server):
    with SyncRunner(plaita_server.url) as runner:
        runner.do(raw("SCRIPT", "FLUSH", "SYNC"))
        assert runner.do(flows.put(KEYS, "f", None, "a" * 64, b"{}")).version == "1"


def test_nobody_there(tmp_path):
    for url in (f"unix://{tmp_path}/none.sock", "redis://127.0.0.1:1", "redis://" + "x" * 70 + ".invalid"):
        with SyncRunner(url) as runner:
            assert isinstance(runner.run(server.ping(KEYS)), Unavailable)
            with pytest.raises(UnreachableError):
                runner.do(server.ping(KEYS))


def test_a_lost_reply_is_unknown_and_an_idempotent_call_is_sent_again(plaita_server, proxy: Proxy):
    with SyncRunner(proxy.url(plaita_server.password), response_timeout_s=0.2) as runner:
        runner.do(server.ping(KEYS))
        proxy.set_mode("drop_replies")
        assert isinstance(runner.run(raw("INCR", "n")), Unknown)
        proxy.set_mode("forward")
        assert runner.run(raw("GET", "n")) == Value(b"1")
        proxy.set_mode("cut")
        proxy.set_mode("forward")
        assert runner.do(server.ping(KEYS)) is True, "the first try met the cut connection"


def test_what_is_not_idempotent_is_not_sent_again(plaita_server, proxy: Proxy):
    with SyncRunner(proxy.url(plaita_server.password), response_timeout_s=0.2) as runner:
        runner.do(server.ping(KEYS))
        proxy.set_mode("drop_replies")
        with pytest.raises(UnreachableError):
            runner.do(carriers.enqueue(KEYS, "q", [("payload", b"1")]))
    assert plaita_server.do("XLEN", KEYS.queue) == 1


def test_half_open_when_connecting(plaita_server, proxy: Proxy):
    proxy.set_mode("freeze")
    with SyncRunner(proxy.url(plaita_server.password), response_timeout_s=0.2) as runner:
        answer = runner.run(server.ping(KEYS))
    assert isinstance(answer, Unavailable)
    assert "no answer" in answer.error


def test_after_an_interrupt_no_reply_is_left_over(plaita_server):
    """Ctrl-C in a blocking read: the next call must not get its answer."""
    with SyncRunner(plaita_server.url) as runner:
        runner.do(carriers.take(KEYS, carriers.Take("c", 1, 1000, "h/i")))

        class Interrupted(BaseException):
            pass

        def interrupted(reply: object) -> object:
            raise Interrupted

        original = runner._exchange

        def exchange(packed: bytes, replies: int, block_ms: int = 0) -> list[object]:
            assert runner._socket is not None
            runner._socket.sendall(packed)
            raise Interrupted

        runner._exchange = exchange  # type: ignore[method-assign]
        with pytest.raises(Interrupted):
            runner.run(Call("echo", None, (), ("ECHO", "old"), "writer", True, interrupted))
        runner._exchange = original  # type: ignore[method-assign]
        assert runner.do(raw("ECHO", "new")) == b"new"


def test_threads_take_turns(plaita_server):
    with SyncRunner(plaita_server.url) as runner:
        wrong: list[object] = []

        def work(name: str) -> None:
            for number in range(200):
                text = f"{name}-{number}"
                if runner.do(raw("ECHO", text)) != text.encode():
                    wrong.append(text)

        threads = [threading.Thread(target=work, args=(str(n),)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert wrong == []
