"""``plaita rm`` and ``flow rm``: ledger D1, D2, DECISIONS 14 and 43; what is left on the server afterwards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from plaita.store.keys import Keys

Run = Callable[..., Any]
Do = Callable[..., Any]
DAY_MS = 86_400_000


@pytest.fixture
def stored(hello: dict[str, Any], connected: str, plaita: Run, flow_file: Callable[..., str]) -> str:
    assert plaita("flow", "put", flow_file(hello), "--id", "hello").code == 0
    return "hello"


def ttl_days(redis_do: Do, keys: Keys) -> float:
    left: int = redis_do("PTTL", keys.tombstone("e"))
    return (left + 59_999) // 60_000 * 60_000 / DAY_MS  # up to the minute: some of it has passed


@pytest.mark.parametrize(
    ("environ", "days", "warns"),
    [
        ({}, 30, False),
        ({"TOMBSTONE_TTL_SECONDS": "86400"}, 30, False),
        ({"TOMBSTONE_TTL_SECONDS": str(60 * 86_400)}, 60, False),
        ({"TOMBSTONE_TTL_SECONDS": "86400", "STATE_TTL_DAYS": "90"}, 90, False),
        ({"TOMBSTONE_TTL_SECONDS": "86400", "STATE_TTL_DAYS": "0"}, 30, False),
        ({"TOMBSTONE_TTL_SECONDS": "0"}, 30, True),
        ({"TOMBSTONE_TTL_SECONDS": "-1"}, 30, True),
        ({"TOMBSTONE_TTL_SECONDS": "for ever"}, 30, True),
    ],
)
def test_D2_how_long_a_tombstone_lives(
    stored: str,
    plaita: Run,
    redis_do: Do,
    keys: Keys,
    monkeypatch: pytest.MonkeyPatch,
    environ: dict[str, str],
    days: float,
    warns: bool,
) -> None:
    for name, value in environ.items():
        monkeypatch.setenv(f"PLAITA_EXECUTION_{name}", value)
    plaita("start", stored, "--id", "e")
    told = plaita("rm", "e", "--json")
    assert (told.code, told.json["existed"]) == (0, True)
    assert ttl_days(redis_do, keys) == days
    assert ("WARNING" in told.err) is warns


def test_C1_what_was_wrong_with_a_setting_is_told_once_by_any_command(
    stored: str, plaita: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLAITA_QUEUE_NAMES", "q")  # no variable of plaita
    for words in (("list",), ("rm", "none"), ("tenant", "list")):
        assert plaita(*words).err.count("PLAITA_QUEUE_NAMES: not known and not read") == 1, words


def test_D2_a_second_delete_keeps_its_time_and_only_lengthens(
    stored: str, plaita: Run, redis_do: Do, keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    plaita("start", stored, "--id", "e")
    first = plaita("rm", "e", "--reason", "test data", "--json").json
    monkeypatch.setenv("PLAITA_EXECUTION_TOMBSTONE_TTL_SECONDS", str(40 * 86_400))
    second = plaita("rm", "e", "--reason", "again", "--json").json
    assert (second["existed"], second["deleted_at"]) == (False, first["deleted_at"])
    assert ttl_days(redis_do, keys) == 40
    monkeypatch.delenv("PLAITA_EXECUTION_TOMBSTONE_TTL_SECONDS")
    plaita("rm", "e")
    assert ttl_days(redis_do, keys) == 40
    assert b"test data" in redis_do("HGET", keys.tombstone("e"), "default")


def test_D1_a_running_one_is_refused_without_force(stored: str, plaita: Run, redis_do: Do, keys: Keys) -> None:
    plaita("start", stored, "--id", "e")
    redis_do("HSET", keys.row("e"), "status", "running")
    told = plaita("rm", "e")
    assert (told.code, told.out) == (1, "")
    assert "--force" in told.err
    assert redis_do("EXISTS", keys.row("e"), keys.tombstone("e")) == 1
    assert plaita("rm", "e", "--force").code == 0
    assert redis_do("EXISTS", keys.row("e")) == 0
    told = plaita("rm", "nobody")
    assert (told.code, told.out) == (1, "")


def test_D1_nothing_of_it_is_left_but_the_tombstone(stored: str, plaita: Run, redis_do: Do, keys: Keys) -> None:
    before = set(redis_do("KEYS", f"{keys.prefix}:*"))
    plaita("start", stored, "--id", "e", "--dedup-key", "k")
    for word in ("lease", "fence", "nofail", "g1wakeups", "noderefetch", "affinityhandover"):
        redis_do("SET", keys.of_execution(word, "e"), "1")
    redis_do("SET", keys.noderetry("e", "n"), "1")
    redis_do("SET", keys.noderetry("e", None), "1")
    redis_do("HSET", keys.row("e"), "retried", ":n:")
    assert plaita("rm", "e", "--force").code == 0
    left = set(redis_do("KEYS", f"{keys.prefix}:*")) - before
    assert left == {keys.tombstone("e").encode(), keys.queue.encode()}


def test_D14_flow_rm_says_who_goes_on_and_leaves_them_their_definition(
    stored: str, plaita: Run, redis_do: Do, keys: Keys
) -> None:
    for number, status in enumerate(("pending", "running", "suspended", "completed")):
        plaita("start", stored, "--id", f"e{number}")
        redis_do("ZREM", keys.index("pending"), f"e{number}")
        redis_do("ZADD", keys.index(status), 1, f"e{number}")
        redis_do("HSET", keys.row(f"e{number}"), "status", status)
    told = plaita("flow", "rm", stored, "--json")
    assert (told.code, told.json["executions_going_on"], told.json["versions_removed"]) == (0, 3, 1)
    hash_ = redis_do("HGET", keys.row("e0"), "flow_hash").decode()
    assert redis_do("EXISTS", keys.flow_body(hash_)) == 1
    assert plaita("show", "e0").code == 0
    told = plaita("start", stored)
    assert told.code == 1
    assert "no flow" in told.err
