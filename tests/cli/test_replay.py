"""``plaita dlq replay`` on a real server (ledger D5): one or many, by filter, dry, resumed, killed in the middle."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest

from plaita import AsyncClient, Client
from plaita.client import Manner, Wanted, replaying
from plaita.client.operations import Operation, Pause
from plaita.store.embedded import Embedded
from plaita.store.keys import Keys

Run = Callable[..., Any]
Do = Callable[..., Any]
DAY_S = 86_400


class Letters:
    """Dead letters of starts of the flow ``hello``."""

    def __init__(self, do: Do, keys: Keys) -> None:
        self.do, self.keys = do, keys

    def put(
        self, execution_id: str | None = "e", *, entry_id: str = "*", tenant: str | None = "default", **said: Any
    ) -> str:
        payload = {"type": "start", "flow_id": "hello", "execution_id": execution_id, "params": {"name": "x"}}
        letter = {
            "reason": "no flow",
            "cause": "no_flow",
            "flow_id": "hello",
            "node_id": None,
            "dead_lettered_at": time.time(),
            "schema_version": 1,
            "payload": payload | {"tenant_id": tenant},
        }
        return self.do("XADD", self.keys.dead_letters, entry_id, "payload", json.dumps(letter | said)).decode()

    def queued(self) -> list[str]:
        found = []
        for _, flat in self.do("XRANGE", self.keys.queue, "-", "+"):
            found.append(dict(zip(flat[::2], flat[1::2], strict=True))[b"execution_id"].decode())
        return found

    def audit(self) -> list[dict[str, str]]:
        found = self.do("XRANGE", self.keys.replay_audit, "-", "+")
        pairs = (zip(flat[::2], flat[1::2], strict=True) for _, flat in found)
        return [{name.decode(): value.decode() for name, value in one} for one in pairs]


@pytest.fixture
def letters(hello: dict[str, Any], plaita: Run, flow_file: Callable[..., str], redis_do: Do, keys: Keys) -> Letters:
    assert plaita("flow", "put", flow_file(hello), "--id", "hello").code == 0
    return Letters(redis_do, keys)


def test_D5_one_goes_once_with_its_reason_in_the_audit(letters: Letters, plaita: Run) -> None:
    dlq_id = letters.put()
    told = plaita("dlq", "replay", dlq_id, "--reason", "flow is back", "--json")
    assert (told.code, told.err) == (0, "")
    [entry] = told.json["entries"]
    assert (told.json["replayed"], told.json["outcomes"], told.json["more"]) == (1, {"replayed": 1}, False)
    assert (entry["dlq_id"], entry["outcome"], entry["execution_id"]) == (dlq_id, "replayed", "e")
    assert (entry["enqueued_as"], entry["detail"]) == ("start", None)
    again = plaita("dlq", "replay", dlq_id, "--json")
    assert (again.code, again.json["replayed"], again.json["outcomes"]) == (0, 0, {"already_replayed": 1})
    assert again.json["entries"][0]["detail"].startswith("at 2")
    assert letters.queued() == ["e"]
    first, second = letters.audit()
    assert (first["outcome"], first["reason"], first["dlq_id"]) == ("replayed", "flow is back", dlq_id)
    assert "@" in first["by"]
    assert second["outcome"] == "already_replayed"
    assert plaita("dlq", "replay", dlq_id, "--force").code == 0
    assert letters.queued() == ["e", "e"]
    assert plaita("dlq", "list", "--json").json["total"] == 1
    assert plaita("dlq", "show", dlq_id, "--json").json["replayed_at"] is not None


def test_D5_several_by_name_and_one_that_is_not_there(letters: Letters, plaita: Run) -> None:
    ids = [letters.put(f"e{n}") for n in range(3)]
    told = plaita("dlq", "replay", *ids, ids[0], "1-1", "--json")
    assert told.code == 1
    assert told.json["outcomes"] == {"replayed": 3, "no_letter": 1}
    assert "no_letter" in told.err
    assert letters.queued() == ["e0", "e1", "e2"]
    assert letters.audit()[-1]["outcome"] == "no_letter"


def test_D5_tenants(letters: Letters, plaita: Run, flow_file: Callable[..., str], hello: dict[str, Any]) -> None:
    none, other = letters.put("a", tenant=None), letters.put("b", tenant="t2")
    told = plaita("dlq", "replay", none, "--json")
    assert (told.code, told.json["outcomes"]) == (1, {"tenant_required": 1})
    told = plaita("dlq", "replay", other, "--tenant", "default", "--json")
    assert (told.code, told.json["outcomes"]) == (1, {"tenant_mismatch": 1})
    assert letters.queued() == []
    assert plaita("dlq", "replay", none, "--tenant", "default").code == 0
    assert plaita("flow", "put", flow_file(hello), "--id", "hello", "--tenant", "t2").code == 0
    assert plaita("dlq", "replay", other).code == 0
    assert letters.queued() == ["a", "b"]
    assert [one["outcome"] for one in letters.audit()] == ["tenant_required", "tenant_mismatch", "replayed", "replayed"]


def test_D5_a_sweep_with_a_tenant_leaves_the_others_alone(letters: Letters, plaita: Run) -> None:
    letters.put("a"), letters.put("b", tenant="t2"), letters.put("c", tenant=None)
    assert plaita("dlq", "replay", "--all", "--tenant", "default", "--json").json["outcomes"] == {"replayed": 2}
    assert letters.queued() == ["a", "c"]


def test_D5_filters(letters: Letters, plaita: Run) -> None:
    letters.put("a", reason="Executor died: SIGKILL", cause="SIGKILL", node_id="n1")
    letters.put("b", reason="processing_failed: boom", cause="ValueError", node_id="n1")
    letters.put("c", reason="processing_failed: bang", cause="ValueError", node_id="n2", flow_id="other")

    def chosen(*words: str) -> list[str]:
        found = plaita("dlq", "replay", *words, "--dry-run", "--json")
        assert found.code == 0, found.err
        return [one["execution_id"] for one in found.json["entries"]]

    assert chosen("--all") == ["a", "b", "c"]
    assert chosen("--match-reason", "PROCESSING_failed") == ["b", "c"]
    assert chosen("--cause", "SIGKILL") == ["a"]
    assert chosen("--node", "n1") == ["a", "b"]
    assert chosen("--flow", "other") == ["c"]
    assert chosen("--node", "n1", "--cause", "ValueError") == ["b"]
    assert chosen("--cause", "none") == []
    assert letters.queued() == []


def test_D5_by_time(letters: Letters, plaita: Run) -> None:
    now = int(time.time())
    for name, days in (("old", 9), ("mid", 5), ("new", 1)):
        letters.put(name, entry_id=f"{(now - days * DAY_S) * 1000}-0", dead_lettered_at=now - days * DAY_S)

    def chosen(*words: str) -> list[str]:
        return [one["execution_id"] for one in plaita("dlq", "replay", *words, "--dry-run", "--json").json["entries"]]

    assert chosen("--since", "6d") == ["mid", "new"]
    assert chosen("--until", "6d") == ["old"]
    assert chosen("--since", "240h", "--until", "2880m") == ["old", "mid"]
    assert chosen("--since", time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now - 2 * DAY_S))) == ["new"]
    assert chosen("--since", "2999-01-01T00:00:00Z") == []


def test_D5_a_dry_run_counts_by_group_and_writes_nothing(letters: Letters, plaita: Run) -> None:
    done = letters.put("done", cause="A", reason="ra")
    assert plaita("dlq", "replay", done).code == 0
    for name in ("x", "y"):
        letters.put(name, cause="A", reason="ra")
    letters.put("z", cause="B", reason="rb", node_id="n")
    letters.put("w", tenant=None, cause="B", reason="rb", node_id="n")
    tries = letters.audit()
    told = plaita("dlq", "replay", "--all", "--dry-run", "--json")
    assert (told.code, told.json["dry_run"], told.json["replayed"]) == (0, True, 0)
    assert told.json["groups"] == [
        {
            "reason": "ra",
            "cause": "A",
            "flow_id": "hello",
            "node_id": None,
            "count": 3,
            "outcomes": {"already_replayed": 1, "replayed": 2},
        },
        {
            "reason": "rb",
            "cause": "B",
            "flow_id": "hello",
            "node_id": "n",
            "count": 2,
            "outcomes": {"replayed": 1, "tenant_required": 1},
        },
    ]
    assert (letters.queued(), letters.audit()) == (["done"], tries)
    shown = plaita("dlq", "replay", "--all", "--dry-run")
    assert "would be replayed 2" in shown.out


def test_D5_with_a_limit_each_run_goes_on_where_the_last_one_stopped(letters: Letters, plaita: Run) -> None:
    letters.put("bad", flow_id="gone", payload={"type": "start", "flow_id": "gone", "tenant_id": "default"})
    for n in range(5):
        letters.put(f"e{n}")
    first = plaita("dlq", "replay", "--all", "--limit", "2", "--json")
    assert (first.code, first.json["outcomes"], first.json["more"]) == (1, {"no_flow": 1, "replayed": 2}, True)
    assert letters.queued() == ["e0", "e1"]
    second = plaita("dlq", "replay", "--flow", "hello", "--limit", "9", "--json")
    assert (second.code, second.json["more"]) == (0, False)
    assert second.json["outcomes"] == {"already_replayed": 2, "replayed": 3}
    assert letters.queued() == [f"e{n}" for n in range(5)]
    assert "already_replayed" not in {one["outcome"] for one in letters.audit()}, "a sweep only counts those"


def drive(operation: Operation[dict[str, Any]], on_call: Callable[[], Any]) -> tuple[dict[str, Any], list[float]]:
    """An operation without its pauses: what it answered, and how long it would have paused each time."""
    pauses: list[float] = []
    answer: Any = None
    with Client() as client:
        while True:
            try:
                step = operation.send(answer)
            except StopIteration as done:
                return done.value, pauses
            if isinstance(step, Pause):
                pauses.append(step.seconds)
                answer = None
            else:
                answer = client._runner.run(step)
                on_call()


def test_D5_what_comes_in_meanwhile_is_left_to_the_next_run(letters: Letters, keys: Keys) -> None:
    letters.put("a"), letters.put("b")
    sweep = replaying.replay(keys, Wanted(everything=True), Manner(rate=0.0))
    found, pauses = drive(sweep, lambda: letters.put("later"))
    assert (found["outcomes"], pauses) == ({"replayed": 2}, [])
    assert letters.queued() == ["a", "b"]


def test_D5_killed_in_the_middle_nothing_is_lost_and_nothing_doubled(letters: Letters, plaita: Run) -> None:
    count = 300
    for n in range(count):
        letters.put(f"e{n}")
    command = [sys.executable, "-m", "plaita.cli.main", "dlq", "replay", "--all", "--rate", "50"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=os.environ.copy())
    deadline = time.monotonic() + 60
    while not letters.queued():
        assert process.poll() is None, "it ended without having replayed anything"
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    stopped_at = len(letters.queued())
    assert 0 < stopped_at < count
    told = plaita("dlq", "replay", "--all", "--rate", "0", "--json")
    assert (told.code, told.json["outcomes"]) == (
        0,
        {"already_replayed": stopped_at, "replayed": count - stopped_at},
    )
    assert letters.queued() == [f"e{n}" for n in range(count)]


def test_D5_the_rate_bounds_what_is_enqueued(letters: Letters, keys: Keys) -> None:
    for n in range(6):
        letters.put(f"e{n}")
    found, pauses = drive(replaying.replay(keys, Wanted(everything=True), Manner(rate=1.0)), lambda: None)
    assert (found["replayed"], len(pauses)) == (6, 6)
    assert pauses == sorted(pauses), "nobody waited here, so it falls further behind its pace with each"
    assert 0 < pauses[0] <= 1.0 < pauses[-1] <= 6.0


def test_D3_too_old_by_the_settings_of_the_command(
    letters: Letters, plaita: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    dlq_id = letters.put(first_enqueued_at=int((time.time() - 31 * DAY_S) * 1000))
    told = plaita("dlq", "replay", dlq_id, "--json")
    assert (told.code, told.json["outcomes"]) == (1, {"too_old": 1})
    assert "PLAITA_TASK_MAX_AGE_SECONDS" in told.err
    assert letters.queued() == []
    monkeypatch.setenv("PLAITA_TASK_MAX_AGE_SECONDS", "0")
    assert plaita("dlq", "replay", dlq_id).code == 0
    [[_, flat]] = letters.do("XRANGE", letters.keys.queue, "-", "+")
    first = int(dict(zip(flat[::2], flat[1::2], strict=True))[b"first_enqueued_at"])
    assert first < (time.time() - 30 * DAY_S) * 1000, "its age is its own"


def test_one_letter_that_the_server_refuses_does_not_end_the_run(letters: Letters, plaita: Run) -> None:
    letters.put("a"), letters.put("bad"), letters.put("c")
    letters.do("SET", letters.keys.tombstone("bad"), "not a hash")
    told = plaita("dlq", "replay", "--all", "--json")
    assert (told.code, told.json["outcomes"]) == (1, {"replayed": 2, "refused": 1})
    assert "WRONGTYPE" in told.json["entries"][1]["detail"]
    assert letters.queued() == ["a", "c"]
    assert letters.audit()[1]["outcome"] == "refused"


def test_bad_usage(letters: Letters, plaita: Run) -> None:
    dlq_id = letters.put()
    for words in (
        (),
        ("x",),
        (dlq_id, "--all"),
        (dlq_id, "--cause", "A"),
        (dlq_id, "--limit", "1"),
        ("--limit", "3"),
        ("--all", "--limit", "0"),
        ("--all", "--rate", "-1"),
        ("--all", "--since", "soon"),
    ):
        told = plaita("dlq", "replay", *words)
        assert (told.code, told.out) == (2, ""), words
    assert letters.queued() == []


def test_both_clients_replay(letters: Letters, server: Embedded) -> None:
    ids = [letters.put("a"), letters.put("b")]
    with Client() as client:
        assert client.replay_dead_letters(Wanted(ids[:1]), Manner(why="w"))["replayed"] == 1

    async def work() -> None:
        async with AsyncClient() as client:
            found = await client.replay_dead_letters(Wanted(everything=True))
            assert found["outcomes"] == {"already_replayed": 1, "replayed": 1}

    asyncio.run(work())
    assert letters.queued() == ["a", "b"]
