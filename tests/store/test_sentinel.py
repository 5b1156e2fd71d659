"""Asking sentinels: the conversation without I/O, then both runners against real ones, and against wrong ones."""

from __future__ import annotations

import asyncio
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import uvloop

from plaita.runtime_config.redis_url import Place
from plaita.store.call import Answer, Refused, Unavailable, Value
from plaita.store.endpoint import parse_endpoint
from plaita.store.runner_async import AsyncRunner
from plaita.store.runner_sync import SyncRunner
from plaita.store.sentinel import Sentinels, questions, share_s
from plaita.store.wire import GreetingError
from plaita.testing.proxy import Proxy
from plaita.testing.sentinels import SENTINEL_PASSWORD, SERVICE, SentinelGroup
from plaita.testing.server import Server, raw
from plaita.testing.tls import Authority, TlsFront

A, B, C = Place("a", 1), Place("b", 2), Place("c", 3)
URL = "redis+sentinel://u:geheim@a:1,b:2,c:3/m/4?sentinel_username=su&sentinel_password=verborgen"
FOUND = [Value([b"10.0.0.1", b"6379"])]


def search(answers: dict[Place, list[Answer[Any]] | str], sentinels: Sentinels | None = None) -> Any:
    one = (sentinels or Sentinels(parse_endpoint(URL))).search()
    for place in one:
        said = answers[place]
        if isinstance(said, str):
            one.silent(place, said)
        else:
            one.heard(place, said)
    return one


def test_what_is_said_to_a_sentinel() -> None:
    words = [list(call.args) for call in questions(parse_endpoint(URL))]
    assert words == [["AUTH", "su", "verborgen"], ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", "m"]]
    [only] = questions(parse_endpoint("redis+sentinel://:p@a/m"))  # the servers' password is not for sentinels
    assert list(only.args) == ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", "m"]


def test_the_first_answer_ends_the_search_and_is_asked_first_the_next_time() -> None:
    sentinels = Sentinels(parse_endpoint(URL))
    primary = search({A: "no connection", B: FOUND}, sentinels).primary()
    assert (primary.host, primary.port, primary.db, primary.password) == ("10.0.0.1", 6379, 4, "geheim")
    assert primary.shown == "redis+sentinel://a:1,b:2,c:3/m/4 (now 10.0.0.1:6379)"
    assert sentinels.order == (B, A, C)


def test_who_named_a_place_where_nobody_serves_is_asked_last_the_next_time() -> None:
    sentinels = Sentinels(parse_endpoint(URL))
    search({A: FOUND}, sentinels).misled()
    assert sentinels.order == (B, C, A)
    search({B: FOUND}, sentinels).misled()
    assert sentinels.order == (C, A, B)


@pytest.mark.parametrize(
    ("answers", "words", "auth"),
    [
        ({A: "no connection", B: "gone", C: "late"}, ["a:1: no connection", "b:2: gone", "c:3: late"], False),
        ({A: [Value(None)], B: [Value(None)], C: "late"}, ["a:1: knows no service 'm'", "c:3: late"], False),
        ({A: [Value(b"OK"), Value(b"?")], B: [Value(5)], C: [Value([b"h", b"x"])]}, ["not the answer"], False),
        ({place: [Unavailable("WRONGPASS x", True)] for place in (A, B, C)}, ["a:1: WRONGPASS x"], True),
        ({A: [Unavailable("WRONGPASS x", True)], B: "gone", C: "gone"}, ["WRONGPASS x", "gone"], False),
        ({place: [Refused("server_error", "ERR unknown command")] for place in (A, B, C)}, ["unknown command"], False),
    ],
)
def test_none_names_a_primary(answers: dict[Place, Any], words: list[str], auth: bool) -> None:
    with pytest.raises(GreetingError) as caught:
        search(answers).primary()
    answer = caught.value.answer
    assert answer.auth is auth
    for word in ["redis+sentinel://a:1,b:2,c:3/m/4: no sentinel names a primary", *words]:
        assert word in answer.error
    assert "geheim" not in answer.error
    assert "verborgen" not in answer.error


def test_three_silent_sentinels_take_no_longer_than_one_connection() -> None:
    assert 3 * share_s(3.0) == 3.0


# -- both runners -----------------------------------------------------------------------------------

Run = Callable[[str], Answer[Any]]


def _sync(url: str) -> Answer[Any]:
    with SyncRunner(url, connect_timeout_s=1.5) as runner:
        return runner.run(raw("CONFIG", "GET", "port"))


def _async(url: str) -> Answer[Any]:
    async def run() -> Answer[Any]:
        runner = AsyncRunner(url, connect_timeout_s=1.5)
        try:
            return await runner.run(raw("CONFIG", "GET", "port"))
        finally:
            await runner.close()

    return asyncio.run(run())


@pytest.fixture(params=[_sync, _async], ids=["sync", "async"])
def run(request: pytest.FixtureRequest) -> Run:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def group() -> Iterator[SentinelGroup]:
    with tempfile.TemporaryDirectory(prefix="plaita-") as folder:
        made = SentinelGroup(f"{folder}/group", password=True)
        yield made
        made.close()


@contextmanager
def fake(reply: bytes | list[bytes] | None) -> Iterator[str]:
    """Somebody who answers everything so (None: never; a list: its first, as it is then); its ``host:port``."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    client, _ = listener.accept()
                    client.recv(65536)
                    if reply is not None:
                        client.sendall(reply[0] if isinstance(reply, list) else reply)
                    kept.append(client)
                except OSError:
                    return

        kept: list[socket.socket] = []
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield f"127.0.0.1:{listener.getsockname()[1]}"
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(5)
            for client in kept:
                client.close()


def naming(port: int) -> bytes:
    return b"+OK\r\n*2\r\n$9\r\n127.0.0.1\r\n$%d\r\n%d\r\n" % (len(str(port)), port)


def test_the_primary_is_found(group: SentinelGroup, run: Run) -> None:
    assert run(group.url) == Value([b"port", str(group.primary().port).encode()])


def test_sentinels_that_are_away_or_silent_are_passed_over(group: SentinelGroup, run: Run) -> None:
    with fake(None) as silent:
        url = group.url.replace("@", f"@127.0.0.1:1,{silent},")
        assert isinstance(run(url), Value)


def test_a_service_that_the_sentinels_do_not_know_is_named_and_may_come(group: SentinelGroup, run: Run) -> None:
    answer = run(group.url_of("nobodys"))
    assert isinstance(answer, Unavailable)
    assert "knows no service 'nobodys'" in answer.error
    assert not answer.auth


def test_the_sentinels_password(group: SentinelGroup, run: Run) -> None:
    answer = run(group.url.replace(SENTINEL_PASSWORD, "S3cr3t-marker"))
    assert isinstance(answer, Unavailable)
    assert answer.auth
    assert "WRONGPASS" in answer.error
    assert "S3cr3t" not in answer.error


def test_a_user_of_the_sentinels_needs_one_right(group: SentinelGroup, run: Run) -> None:
    sentinel = group.sentinels[0]
    url = group.url.replace(f"sentinel_password={SENTINEL_PASSWORD}", "sentinel_username=me&sentinel_password=S3cr3t")
    group.ask_sentinel(sentinel, "ACL", "SETUSER", "me", "on", ">S3cr3t", "-@all", "+sentinel|get-master-addr-by-name")
    assert isinstance(run(url), Value)
    group.ask_sentinel(sentinel, "ACL", "SETUSER", "me", "-@all")
    answer = run(url)
    assert isinstance(answer, Unavailable)
    assert answer.auth
    assert "'sentinel|get-master-addr-by-name'" in answer.error
    assert "S3cr3t" not in answer.error


def test_a_sentinel_written_as_a_server_is_said_to_be_one(run: Run) -> None:
    hello = b"*4\r\n$5\r\nproto\r\n:2\r\n$4\r\nmode\r\n$8\r\nsentinel\r\n+PONG\r\n"
    with fake(hello) as place:
        answer = run(f"redis://{place}")
    assert isinstance(answer, Unavailable)
    assert "it is a sentinel" in answer.error
    assert answer.auth  # waiting will not help


def test_a_server_written_as_a_sentinel(plaita_server: Server, run: Run) -> None:
    answer = run(f"redis+sentinel://127.0.0.1:{plaita_server.listen()}/m")
    assert isinstance(answer, Unavailable)
    assert "no sentinel names a primary" in answer.error


def test_a_sentinel_that_still_names_the_dead_primary_is_asked_last(group: SentinelGroup) -> None:
    """Cut off from the others it repeats it for ever."""
    with fake(naming(1)) as outdated:
        url = group.url.replace("@", f"@{outdated},")
        with SyncRunner(url) as runner:
            first = runner.run(raw("PING"))
            assert isinstance(first, Unavailable)
            assert "(now 127.0.0.1:1): Connection refused" in first.error
            assert runner.run(raw("PING")) == Value(b"PONG")

        async def run() -> None:
            runner = AsyncRunner(url)
            assert isinstance(await runner.run(raw("PING")), Unavailable)
            assert await runner.run(raw("PING")) == Value(b"PONG")
            await runner.close()

        asyncio.run(run())


def test_a_replica_that_a_sentinel_names_is_not_used(group: SentinelGroup, run: Run) -> None:
    with fake(naming(group.replica().port)) as mistaken:
        answer = run(group.url.replace(f"127.0.0.1:{group.sentinels[0].port}", mistaken))
    assert isinstance(answer, Unavailable)
    assert "READONLY, the server is a replica" in answer.error


def test_tls_to_sentinels_and_to_the_server_that_they_name(plaita_server: Server, tmp_path: Path, run: Run) -> None:
    authority = Authority(tmp_path)
    certificate = authority.sign("localhost", "127.0.0.1")
    behind = TlsFront(plaita_server.socket_path, certificate)
    with fake(naming(behind.port).removeprefix(b"+OK\r\n")) as place:
        host, _, port = place.partition(":")
        asked = TlsFront((host, int(port)), certificate)
        url = f"rediss+sentinel://:{plaita_server.password}@localhost:{asked.port}/m?ssl_ca_certs={authority.cafile}"
        assert isinstance(run(url), Value)
        other = Authority(tmp_path / "other", "another")
        answer = run(url.replace(authority.cafile, other.cafile))
        asked.close()
    behind.close()
    assert isinstance(answer, Unavailable)
    assert f"localhost:{asked.port}: the certificate is not accepted" in answer.error


@pytest.mark.parametrize("run_loop", [asyncio.run, uvloop.run])
def test_a_server_that_the_sentinels_do_not_name_any_more_is_left(plaita_server: Server, run_loop: Any) -> None:
    """Both answer as primaries; here they are one server, once behind a proxy."""
    direct, proxy = plaita_server.listen(), Proxy(plaita_server.socket_path)

    async def run(place: str, answers: list[bytes]) -> None:
        runner = AsyncRunner(f"redis+sentinel://:{plaita_server.password}@{place}/m")
        assert await runner.run(raw("PING")) == Value(b"PONG")
        await runner.follow_sentinels()
        assert runner.state.connected
        assert proxy.connections == 0
        answers[0] = b"-ERR who knows\r\n"  # nobody can tell: what works goes on
        await runner.follow_sentinels()
        assert runner.state.connected
        answers[0] = naming(proxy.port).removeprefix(b"+OK\r\n")
        await runner.follow_sentinels()
        assert not runner.state.connected
        assert "name another primary" in runner.state.last_error
        assert await runner.run(raw("PING")) == Value(b"PONG")
        assert proxy.connections == 1
        await runner.close()

    answers = [naming(direct).removeprefix(b"+OK\r\n")]
    with fake(answers) as place:
        run_loop(run(place, answers))
    proxy.close()


def test_KNOWN_TROUBLE_31_readonly_asks_the_sentinels_again(group: SentinelGroup) -> None:
    """The runner's connection stays open to a server that has become a replica: its first refusal ends that."""
    with SyncRunner(group.url) as runner:
        assert isinstance(runner.run(raw("SET", "a", "1")), Value)
        group.do(group.primary(), "REPLICAOF", "127.0.0.1", "1")
        answer = runner.run(raw("SET", "a", "2"))
        assert isinstance(answer, Unavailable)
        assert "READONLY" in answer.error
        answer = runner.run(raw("SET", "a", "3"))
        assert isinstance(answer, Unavailable)
        assert "the server is a replica" in answer.error  # asked again, and greeted anew
        group.do(group.servers[0], "REPLICAOF", "NO", "ONE")
        group.wait_for_primary(group.servers[0])
        assert isinstance(runner.run(raw("SET", "a", "4")), Value)


def test_service_name() -> None:
    assert parse_endpoint(f"redis+sentinel://a?service_name={SERVICE}").service == SERVICE
