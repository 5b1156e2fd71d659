"""``plaita-supervisor record-exit``: writes the death of the right life or none, and fails no unit (ledger S14)."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from hosts import World

from plaita import jsontext
from plaita.clock import boot_ms
from plaita.store import deaths, registry
from plaita.store.deaths import LastLife
from plaita.store.runner_async import AsyncRunner
from plaita.supervisor.identity import own_identity
from plaita.supervisor.post_mortem import supervisor_death
from plaita.supervisor.record_exit import not_ours
from plaita.supervisor.sender import Sender
from plaita.supervisor.stats import Stats

KILLED = {"EXIT_CODE": "killed", "EXIT_STATUS": "KILL", "SERVICE_RESULT": "signal"}
OWN = replace(own_identity(), machine="m", boot="b", host="h", pid=1, started=10)


def record(**changes: Any) -> bytes:
    """Of a process with pid 7 on OWN's machine."""
    given = {"host": "h", "machine": "m", "boot": "b", "pid": 7, "started": 77, "invocation": None}
    return jsontext.dumps({**given, **changes})


@pytest.mark.parametrize(
    ("there", "started_of_pid", "invocation", "ours"),
    [
        (None, None, None, True),  # the record has run out
        (record(), None, None, True),  # its process is gone
        (record(), 78, None, True),  # its pid is another's
        (record(), 77, None, False),  # it lives
        (record(host="other"), None, None, False),  # another container on this kernel
        (record(machine="other", boot="other"), None, None, False),
        (record(boot="before"), None, None, True),  # this machine, before a boot
        (b"no json", None, None, False),
        (record(invocation="a"), None, "a", True),
        (record(invocation="a"), None, "b", False),  # a life of another run of the unit
        (record(invocation="a"), None, None, True),
        (record(), None, "a", True),
        (record(invocation="a"), 77, "a", False),
    ],
)
def test_S14_whose_life_it_was(
    there: bytes | None, started_of_pid: int | None, invocation: str | None, ours: bool
) -> None:
    assert (not_ours(LastLife("i", there), OWN, started_of_pid, invocation) == "") is ours


def registered(world: World, pid: int, started: int) -> None:
    own = own_identity()
    text = record(host=own.host, machine=own.machine, boot=own.boot, pid=pid, started=started)
    world.do(registry.register(world.keys, "one", "i1", text, 30_000))


def record_exit(
    world: World, *flags: str, url: str | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PLAITA_")}
    command = [sys.executable, "-m", "plaita.cli.supervisor", "record-exit", "--redis-url", url or world.url]
    command += ["--instance-id", "one", "--key-prefix", world.keys.prefix, "--queue-name", world.keys.queue]
    environment = {**clean, "PLAITA_CONFIG": os.devnull, **environment}
    return subprocess.run([*command, *flags], env=environment, capture_output=True, text=True, timeout=60, check=False)


def death(world: World) -> Any:
    found = world.do(deaths.find(world.keys, "one", "i1"))
    return None if found is None else jsontext.loads(found)


def test_S14_the_parents_word_is_kept(world: World) -> None:
    registered(world, 2**22 + 1, 1)  # no such pid
    done = record_exit(world, **KILLED)
    assert (done.returncode, done.stderr) == (0, "")
    written = death(world)
    assert written.pop("at").endswith("Z")
    assert written == {"cause": "SIGKILL", "signal": 9, "exit_code": None, "service_result": "signal"}


def test_S14_flags_stand_above_the_environment(world: World) -> None:
    registered(world, 2**22 + 1, 1)
    done = record_exit(world, "--exit-code", "exited", "--exit-status", "70", **KILLED)
    assert done.returncode == 0
    assert (death(world)["cause"], death(world)["exit_code"]) == ("exit 70", 70)


@pytest.mark.parametrize("status", ["0", "75", "78"])
def test_S14_a_normal_end_is_no_death(world: World, status: str) -> None:
    registered(world, 2**22 + 1, 1)
    done = record_exit(world, EXIT_CODE="exited", EXIT_STATUS=status, SERVICE_RESULT="success")
    assert (done.returncode, done.stderr, death(world)) == (0, "", None)


def test_S14_a_living_namesake_is_not_declared_dead(world: World) -> None:
    registered(world, os.getpid(), own_identity().started)
    done = record_exit(world, **KILLED)
    assert (done.returncode, death(world)) == (0, None)
    assert "runs on this host" in done.stderr


def test_S14_a_service_that_had_no_process_leaves_no_death(world: World) -> None:
    done = record_exit(world, SERVICE_RESULT="resources")
    assert (done.returncode, "no main process" in done.stderr) == (0, True)


def test_S14_a_person_is_told_what_is_missing(world: World) -> None:
    done = record_exit(world)
    assert (done.returncode, "--exit-code" in done.stderr) == (2, True)


@contextmanager
def silent_server() -> Iterator[str]:
    """Takes connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"redis://127.0.0.1:{listener.getsockname()[1]}/0"


def test_S14_a_silent_redis_does_not_hang_the_unit(world: World) -> None:
    with silent_server() as url:
        done = record_exit(world, url=url, **KILLED)
    assert (done.returncode, "no answer within" in done.stderr) == (0, True)


def test_S14_redis_away_is_said_and_fails_nothing(world: World) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    done = record_exit(world, url=f"redis://127.0.0.1:{port}/0", **KILLED)
    assert (done.returncode, "refused" in done.stderr) == (0, True)


def test_S14_an_embedded_server_is_not_started_for_it(world: World) -> None:
    folder = world.folder / "data"
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PLAITA_")}
    command = [sys.executable, "-m", "plaita.cli.supervisor", "record-exit", "--embedded", str(folder)]
    environment = {**clean, "PLAITA_CONFIG": os.devnull, **KILLED}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, "no server runs" in done.stderr) == (0, True)
    assert not folder.exists()


# -- what the heirs make of it -------------------------------------------------------------------


def post_mortem(world: World, **control: str) -> dict[str, Any]:
    async def ask() -> dict[str, Any]:
        runner = AsyncRunner(world.url)
        try:
            sender, until = Sender(runner, Stats()), boot_ms() + 60_000
            return await supervisor_death(sender, world.keys, control, node_id="n", attempt=3, until=until)
        finally:
            await runner.close()

    return asyncio.run(ask())


def recorded(world: World, text: bytes) -> None:
    world.do(registry.register(world.keys, "a/b", "i1", b"{}", 30_000))
    world.do(deaths.record(world.keys, "a/b", "i1", text))


def test_S14_the_death_of_the_last_holder_is_told(world: World) -> None:
    recorded(world, b'{"cause":"SIGSEGV (core dumped)","signal":11,"service_result":"core-dump","at":"then"}')
    assert post_mortem(world, last_holder="a/b/i1") == {
        "cause": "supervisor died: SIGSEGV (core dumped)",
        "signal": 11,
        "exit_code": None,
        "service_result": "core-dump",
        "node": "n",
        "attempt": 3,
        "holder": "a/b/i1",
        "at": "then",
    }


@pytest.mark.parametrize("control", [{"last_holder": "a/b/i2"}, {"last_holder": "b/i1"}, {"last_holder": "x"}, {}])
def test_S14_another_lifes_death_is_not_told(world: World, control: dict[str, str]) -> None:
    recorded(world, b'{"cause":"SIGKILL","signal":9}')
    death = post_mortem(world, **control)
    assert (death["cause"], death["signal"], "nobody" in death["note"]) == ("supervisor died", None, True)


def test_S14_a_record_that_is_none_says_nothing(world: World) -> None:
    recorded(world, b"no json")
    assert "note" in post_mortem(world, last_holder="a/b/i1")


@pytest.mark.parametrize(("node", "told"), [("n", True), ("m", False)])
def test_S14_an_earlier_death_under_the_same_node_is_kept_beside_it(world: World, node: str, told: bool) -> None:
    earlier = {"cause": "SIGKILL", "node": node}
    death = post_mortem(world, death=jsontext.dumps(earlier).decode())
    assert death.get("earlier") == (earlier if told else None)
