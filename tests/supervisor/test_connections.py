"""How a supervisor gets to its server: TLS, users with just the rights they need, unix sockets; what is fatal at the
start and what is waited for."""

from __future__ import annotations

import os
import re
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from urllib.parse import quote

import pytest
from hosts import SupervisorProcess, World, until

from plaita.cli import exits, main
from plaita.store import permissions
from plaita.store.call import Value
from plaita.store.keys import Keys
from plaita.testing.server import Server, raw
from plaita.testing.tls import Authority, TlsFront

WorldAt = Callable[[str], World]
SECRET = "S3cr3t-marker"
ASKED = [words for _, words in permissions.commands(Keys())]
DOCS = Path(__file__).parents[2] / "docs" / "redis.md"


def documented_rule(prefix: str, *more: str) -> list[str]:
    """The words of ACL SETUSER as docs/redis.md gives them, for another prefix."""
    [rule] = re.findall(r"```\nACL SETUSER plaita (.*?)```", DOCS.read_text(), flags=re.S)
    words = [word.replace("~plaita:", f"~{prefix}:").replace(">PASSWORD", f">{SECRET}") for word in rule.split()]
    return [*words, *more]


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="plaita-") as name:
        yield Path(name)


def fatal(one: SupervisorProcess, *words: str) -> None:
    assert one.wait_exit() == 78
    for word in words:
        assert word in one.text()
    assert SECRET not in one.text()


@pytest.fixture
def world_at(folder: Path) -> Iterator[WorldAt]:
    """A world for a URL; gone at the end, however the test ends."""
    with ExitStack() as stack:

        def make(url: str) -> World:
            made = World(url, folder)
            stack.callback(made.close)
            return made

        yield make


@pytest.fixture
def kept() -> Iterator[ExitStack]:
    """What else a test opens; closed at the end, however it ends."""
    with ExitStack() as stack:
        yield stack


# -- a user with just the rights it needs --------------------------------------------------------------


def as_user(server: Server, db: int = 0) -> str:
    return f"unix://{quote(server.socket_path)}?username=worker&password={SECRET}&db={db}"


def test_the_documented_rule_is_enough_for_all_that_plaita_does(
    world_at: WorldAt, own_server: Server, folder: Path, plaita: Plaita
) -> None:
    """Flow, wait, cancel, dead letter, drain, deletion, upkeep and doctor; on a database of its own, so that SELECT is
    asked too. Nothing was denied: the server's own log of that is empty."""
    world = world_at(as_user(own_server, db=3))
    own_server.do("ACL", "SETUSER", "worker", *documented_rule(world.keys.prefix, "+config|get", "+acl|whoami"))
    own_server.do("ACL", "LOG", "RESET")
    one = world.serving(preload=["trouble", "waiting"], executors=2)
    world.chain("f", {"type": "mock", "id": "a", "value": 1})
    assert world.run("f")["status"] == "completed"
    world.chain("w", {"type": "t_wait", "id": "w", "file": str(folder / "entries"), "subscriptionTimeout": 600})
    woken, cancelled, told, early = (world.start("w") for _ in range(4))
    plaita(world, "event", "publish", "go", "--correlation-id", early)
    for waiting in (woken, cancelled, told):
        until(lambda waiting=waiting: world.get(waiting)["status"] == "suspended", "the wait")
        plaita(world, "show", waiting)
    plaita(world, "resume", woken, "--type", "event")
    plaita(world, "event", "publish", "go", "--correlation-id", told, "--event-id", "one")
    for execution in (woken, told, early):
        assert world.wait(execution)["status"] == "completed"
    plaita(world, "cancel", cancelled)
    until(lambda: world.get(cancelled)["status"] == "cancelled", "the end of the wait")
    world.chain("held", {"type": "t_line", "id": "held", "file": str(folder / "line"), "until": str(folder / "go")})
    held = world.start("held")
    one.busy("held")
    one.ask("drain")
    (folder / "go").touch()
    one.wait_status(lambda s: s["counters"]["handed_on"] == 1, "the step handed on")
    one.ask("undrain")
    assert world.wait(held)["status"] == "completed"
    world.runner.do(raw("XADD", world.keys.queue, "*", "payload", "no carrier"))
    until(lambda: world.stats().dlq_length == 1, "the dead letter")
    for words in (
        ("list",), ("queue", "stats"), ("dlq", "list"), ("dlq", "purge", "--yes"), ("flow", "list"), ("tenant", "list"),
        ("rm", held), ("reindex",), ("reap", "--idle-minutes", "9"), ("doctor",),
    ):  # fmt: skip
        plaita(world, *words)
    assert one.stop() == 0
    denied = own_server.do("ACL", "LOG")
    assert denied == [], denied
    assert SECRET not in one.text()


Plaita = Callable[..., None]


@pytest.fixture
def plaita(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Plaita:
    """A command in this process; nothing of it was refused for want of a right."""

    def run(world: World, *words: str) -> None:
        monkeypatch.setenv("PLAITA_REDIS_URL", world.url)
        monkeypatch.setenv("PLAITA_KEY_PREFIX", world.keys.prefix)
        monkeypatch.setenv("PLAITA_QUEUE_NAME", world.keys.queue)
        monkeypatch.setenv("PLAITA_CONSUMER_GROUP", world.keys.group)
        monkeypatch.setenv("PLAITA_CONFIG", os.devnull)
        code = exits.run_app(main.app, "plaita", words, usage=exits.USAGE)
        said = capsys.readouterr()
        assert "NOPERM" not in said.out + said.err, (words, said)
        assert code in (0, 1), (words, said)

    return run


def test_missing_rights_are_all_named_at_the_start(world_at: WorldAt, own_server: Server, folder: Path) -> None:
    world = world_at(as_user(own_server))
    own_server.do("ACL", "SETUSER", "worker", *documented_rule(world.keys.prefix, "-xclaim", "-zadd"))
    fatal(world.supervisor(), "the user may not run", "xclaim", "zadd", "docs/redis.md")
    own_server.do("ACL", "SETUSER", "worker", *documented_rule("another"), "resetkeys", "~another:*")
    fatal(world.supervisor(instance="two"), f"use keys ~{world.keys.prefix}:*")
    own_server.do("ACL", "SETUSER", "worker", "-evalsha")
    fatal(world.supervisor(instance="three"), "may not run scripts", "'evalsha'")
    own_server.do("ACL", "SETUSER", "worker", "-info")
    fatal(world.supervisor(instance="four"), "'info'")


def test_a_right_taken_away_is_said_waited_for_and_no_hot_loop(
    world_at: WorldAt, own_server: Server, folder: Path
) -> None:
    world = world_at(as_user(own_server))
    own_server.do("ACL", "SETUSER", "worker", *documented_rule(world.keys.prefix))
    one = world.serving()
    world.chain("f", {"type": "mock", "id": "a", "value": 1})
    own_server.do("ACL", "SETUSER", "worker", "-xreadgroup")

    def writes_gate() -> dict[str, object]:
        [row] = [row for row in one.ask("explain")["gates"] if row["gate"] == "writes"]
        return row

    until(lambda: not writes_gate()["open"], "the gate shut")
    assert "xreadgroup" in str(writes_gate()["value"])
    before = processed(own_server)
    time.sleep(2)
    assert processed(own_server) - before < 200, "a hot loop"
    assert one.code is None
    begun = world.start("f")
    own_server.do("ACL", "SETUSER", "worker", "+xreadgroup")
    assert world.wait(begun)["status"] == "completed"
    until(lambda: writes_gate()["open"], "the gate open")
    assert one.stop() == 0
    assert one.text().count("redis.refuses_writes") < 10
    assert SECRET not in one.text()


def processed(server: Server) -> int:
    info = server.do("INFO", "stats").decode()
    return int(re.findall(r"total_commands_processed:(\d+)", info)[0])


def test_a_right_taken_away_inside_the_scripts_loses_nothing(
    world_at: WorldAt, own_server: Server, folder: Path
) -> None:
    """A step ends while its commit is refused in the middle: once the right is back, the execution goes on, and no step
    is run twice. Lease and min-idle of 10 minutes: nobody else could have helped."""
    world = world_at(as_user(own_server))
    own_server.do("ACL", "SETUSER", "worker", *documented_rule(world.keys.prefix))
    one = world.serving(preload="trouble", executors=1, lease_ttl_seconds=600, claim_min_idle_ms=600_000)
    line = {"type": "t_line", "file": str(folder / "lines"), "until": str(folder / "go")}
    world.chain("f", {**line, "id": "a"}, {**line, "id": "b"})
    begun = world.start("f")
    one.busy("a")
    own_server.do("ACL", "SETUSER", "worker", "-hset", "-zadd", "-zrem", "-xack")
    (folder / "go").touch()
    until(lambda: "redis.refuses_writes" in one.text(), "the refusal")
    before = processed(own_server)
    time.sleep(1)
    assert processed(own_server) - before < 100, "a hot loop"
    assert len((folder / "lines").read_text().splitlines()) == 1
    own_server.do("ACL", "SETUSER", "worker", *documented_rule(world.keys.prefix))
    assert world.wait(begun)["status"] == "completed"
    assert len((folder / "lines").read_text().splitlines()) == 2
    assert one.status()["counters"]["dead_lettered"] == 0
    assert one.stop() == 0


# -- TLS -------------------------------------------------------------------------------------------------


def test_a_supervisor_over_tls_and_a_certificate_that_is_mended(
    world_at: WorldAt, own_server: Server, kept: ExitStack, folder: Path
) -> None:
    """A certificate that is not accepted is waited for: it can be mended on the server."""
    authority = Authority(folder / "ca")
    front = kept.enter_context(closing(TlsFront(own_server.socket_path, authority.sign("another.example"))))
    url = f"rediss://:{own_server.password}@localhost:{front.port}?ssl_ca_certs={authority.cafile}"
    world = world_at(own_server.url)
    one = world.supervisor(redis_url=url)
    status = one.wait_status(lambda s: "certificate" in (s["redis"]["error"] or ""), "the certificate named")
    assert "localhost" in status["redis"]["error"]
    assert status["status"] == "starting"
    front.present(authority.sign("localhost"))
    one.wait_serving()
    world.chain("f", {"type": "mock", "id": "a", "value": 1})
    assert world.run("f")["status"] == "completed"
    assert one.stop() == 0
    assert own_server.password not in one.text()
    assert "redis.unreachable" in one.text()


def test_tls_files_that_are_not_there_exit_78(world: World) -> None:
    url = f"rediss://:{SECRET}@localhost?ssl_ca_certs=/no/such/file.pem"
    fatal(world.supervisor(redis_url=url), "ssl_ca_certs", "'/no/such/file.pem'", "No such file")


# -- unix sockets and databases ------------------------------------------------------------------------------


def test_a_unix_socket_with_spaces_and_percent_signs(world_at: WorldAt, kept: ExitStack, folder: Path) -> None:
    server = kept.enter_context(closing(Server(folder / "a b%20c")))
    world = world_at(f"unix://:{server.password}@{quote(server.socket_path)}?db=2")
    one = world.serving()
    world.chain("f", {"type": "mock", "id": "a", "value": 1})
    assert world.run("f")["status"] == "completed"
    assert isinstance(world.runner.run(raw("PING")), Value)
    assert one.stop() == 0


def test_a_socket_that_is_not_there_yet_is_waited_for(world_at: WorldAt, folder: Path) -> None:
    world = world_at(f"unix:///{folder}/later/valkey.sock?password={SECRET}")
    one = world.supervisor()
    one.wait_status(lambda s: "there is no such socket" in (s["redis"]["error"] or ""), "the socket missed")
    assert one.stop() == 0
    assert SECRET not in one.text()


def test_a_database_that_the_server_does_not_have_is_fatal(own_server: Server, own_world: World) -> None:
    fatal(own_world.supervisor(redis_url=f"{own_server.url}&db=99"), "no database 99")


def test_the_documented_rule_is_what_is_asked_at_the_start_and_no_more() -> None:
    asked = {"|".join(words[: 2 if words[0] in ("CLIENT", "XGROUP", "XINFO") else 1]).lower() for words in ASKED}
    allowed = {word.removeprefix("+") for word in documented_rule("plaita") if word.startswith("+")}
    assert allowed == asked | {"select"}
