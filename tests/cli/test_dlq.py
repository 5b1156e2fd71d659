"""``plaita dlq``: the JSON forms of the contract, ids, emptying, envelopes of other writers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from plaita.client import Client
from plaita.policy.dead_letter import envelope
from plaita.store.embedded import Embedded
from plaita.store.keys import Keys
from plaita.store.runner_sync import SyncRunner

Run = Callable[..., Any]
ENTRY = {"dlq_id", "reason", "cause", "execution_id", "flow_id", "node_id", "tenant_id", "dead_lettered_at", "attempts"}
AT_MS = 1_764_490_800_123


class Letters:
    """Puts dead letters where the commands of this test look."""

    def __init__(self, runner: SyncRunner, queue: str) -> None:
        self._do = runner.do
        self.key = f"{queue}:dlq"

    def put(self, **fields: bytes | str) -> str:
        from plaita.store.call import Call

        words: list[bytes | str | int] = ["XADD", self.key, "*"]
        for name, value in fields.items():
            words += [name, value]
        call: Call[str] = Call("test", None, (self.key,), words, "writer", False, lambda reply: reply.decode())
        return self._do(call)

    def put_ours(self, **changes: Any) -> str:
        given = {
            "reason": "executor died: SIGKILL",
            "cause": "SIGKILL",
            "source_stream": "q",
            "source_id": "1700000000000-0",
            "fields": {b"payload": b'{"type":"start"}', b"config_family": b"cf1-a"},
            "schema_version": 1,
            "dead_lettered_at_ms": AT_MS,
            "attempts": 3,
            "execution_id": "e1",
            "flow_id": "f",
            "node_id": "n",
            "tenant_id": "other",
        }
        return self.put(**dict(envelope(**(given | changes))))


@pytest.fixture
def letters(server: Embedded, connected: str) -> Iterator[Letters]:
    with SyncRunner(server.url) as runner:
        yield Letters(runner, f"{connected}:queue")


def test_Q5_list_json_is_the_contract(letters: Letters, plaita: Run) -> None:
    first, second = letters.put_ours(), letters.put_ours(execution_id="e2")
    found = plaita("dlq", "list", "--json").json
    assert set(found) == {"entries", "total"}
    assert [set(entry) for entry in found["entries"]] == [ENTRY, ENTRY]
    assert [entry["dlq_id"] for entry in found["entries"]] == [second, first]
    assert found["total"] == 2
    assert found["entries"][1] == {
        "dlq_id": first,
        "reason": "executor died: SIGKILL",
        "cause": "SIGKILL",
        "execution_id": "e1",
        "flow_id": "f",
        "node_id": "n",
        "tenant_id": "other",
        "dead_lettered_at": "2025-11-30T08:20:00.123Z",
        "attempts": 3,
    }
    told = plaita("dlq", "list")
    assert told.code == 0
    assert first in told.out
    assert "2 of 2" in told.err
    assert plaita("dlq", "list", "--limit", "1", "--json").json["entries"][0]["dlq_id"] == second


def test_Q5_an_empty_one(connected: str, plaita: Run) -> None:
    assert plaita("dlq", "list", "--json").json == {"entries": [], "total": 0}
    assert plaita("dlq", "purge", "--yes", "--json").json == {"purged": 0}


def test_Q9_show_has_all_that_the_carrier_was(letters: Letters, plaita: Run) -> None:
    dlq_id = letters.put_ours(fields={b"payload": b"\xff"}, raw_fields=[(b"payload", b"\xff"), (b"x", b"1")])
    found = plaita("dlq", "show", dlq_id, "--json").json
    assert set(found) > ENTRY
    assert found["raw_fields"] == [["cGF5bG9hZA==", "/w=="], ["eA==", "MQ=="]]
    assert found["payload"] == {"base64": "/w=="}
    assert (found["schema_version"], found["source_id"]) == (1, "1700000000000-0")
    assert plaita("dlq", "show", dlq_id).code == 0


def test_Q7_show_has_what_a_replay_must_inherit(letters: Letters, plaita: Run) -> None:
    found = plaita("dlq", "show", letters.put_ours(), "--json").json
    assert (found["config_family"], found["first_enqueued_at"]) == ("cf1-a", "2023-11-14T22:13:20.000Z")


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        (
            {"payload": json.dumps({"reason": "r", "delivery_count": 5, "payload": {"execution_id": "x"}})},
            {"reason": "r", "attempts": 5, "execution_id": "x", "cause": None, "dead_lettered_at": None},
        ),
        (
            {"reason": "delayed_record_unreadable", "dead_lettered_at": str(AT_MS), "raw_body": b"\xff"},
            {"reason": "delayed_record_unreadable", "dead_lettered_at": "2025-11-30T08:20:00.123Z"},
        ),
        ({"payload": b"\xff\x00"}, {"execution_id": None}),
        ({"payload": b"[1]"}, {"execution_id": None, "attempts": None}),
        ({"payload": b"[" * 300 + b"]" * 300}, {"execution_id": None}),
        ({"payload": json.dumps({"reason": 7, "dead_lettered_at": "soon", "payload": [1]})}, {"reason": 7}),
    ],
)
def test_envelopes_of_other_writers_are_shown(
    letters: Letters, plaita: Run, fields: dict[str, Any], wanted: dict[str, Any]
) -> None:
    dlq_id = letters.put(**fields)
    [entry] = plaita("dlq", "list", "--json").json["entries"]
    assert {name: entry[name] for name in wanted} == wanted
    assert set(entry) == ENTRY
    assert plaita("dlq", "list").code == 0
    assert plaita("dlq", "show", dlq_id).code == 0
    assert plaita("dlq", "show", dlq_id, "--json").code == 0


def test_ids_that_are_none_or_gone(letters: Letters, plaita: Run) -> None:
    letters.put_ours()
    for wrong in ("x", "5", "5-", "-", "+", "1-1-1"):
        told = plaita("dlq", "show", "--", wrong)
        assert (told.code, told.out) == (2, ""), wrong
    told = plaita("dlq", "show", "1-1")
    assert (told.code, told.out) == (1, "")
    assert "1-1" in told.err


def test_purge_asks_for_yes_and_then_empties(letters: Letters, plaita: Run) -> None:
    first = letters.put_ours()
    told = plaita("dlq", "purge")
    assert told.code == 2
    assert "--yes" in told.err
    assert plaita("dlq", "list", "--json").json["total"] == 1
    assert plaita("dlq", "purge", "--yes").code == 0
    assert plaita("dlq", "list", "--json").json["total"] == 0
    assert letters.put_ours() > first


def test_large_ones_are_listed_in_several_calls(letters: Letters, plaita: Run) -> None:
    wanted = [letters.put_ours(fields={b"payload": b'"' + b"x" * (2 * 1024 * 1024) + b'"'}) for _ in range(5)]
    found = plaita("dlq", "list", "--json").json
    assert [entry["dlq_id"] for entry in found["entries"]] == wanted[::-1]


def test_the_client_reads_them_too(server: Embedded, letters: Letters, connected: str) -> None:
    dlq_id = letters.put_ours()
    with Client(server.url, queue_name=f"{connected}:queue", key_prefix=connected) as client:
        assert [entry["dlq_id"] for entry in client.dead_letters()] == [dlq_id]
        assert client.keys.dead_letters == Keys(queue=f"{connected}:queue").dead_letters
