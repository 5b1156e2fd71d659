"""The same id or key again, and cancels of what is not there (ledger S2, S8, F8; KNOWN-TROUBLE 70)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from plaita.store.keys import Keys

Run = Callable[..., Any]
Do = Callable[..., Any]


@pytest.fixture
def stored(hello: dict[str, Any], connected: str, plaita: Run, flow_file: Callable[..., str]) -> str:
    assert plaita("flow", "put", flow_file(hello), "--id", "hello").code == 0
    return "hello"


@pytest.mark.parametrize("status", ["pending", "running", "suspended", "completed", "error", "cancelled"])
def test_an_id_is_used_once_whatever_became_of_it(
    stored: str, plaita: Run, redis_do: Do, keys: Keys, status: str
) -> None:
    plaita("start", stored, "--id", "e", "--input", '{"name": "first"}')
    redis_do("HSET", keys.row("e"), "status", status)
    before = redis_do("HGETALL", keys.row("e"))
    for given in ('{"name": "first"}', '{"name": "second"}'):
        told = plaita("start", stored, "--id", "e", "--input", given)
        assert (told.code, told.out) == (1, "")
        assert "exists already" in told.err
    assert redis_do("HGETALL", keys.row("e")) == before
    assert redis_do("XLEN", keys.queue) == 1


@pytest.mark.parametrize("status", ["pending", "running", "suspended", "completed", "error", "cancelled"])
def test_S2_a_dedup_key_answers_the_first_execution(
    stored: str, plaita: Run, redis_do: Do, keys: Keys, status: str
) -> None:
    first = plaita("start", stored, "--dedup-key", "order-17", "--json").json["execution_id"]
    redis_do("HSET", keys.row(first), "status", status)
    again = plaita("start", stored, "--dedup-key", "order-17", "--input", '{"name": "other"}', "--json")
    assert (again.code, again.json["execution_id"], again.json["deduplicated"]) == (0, first, True)
    assert again.json["status"] == status
    assert redis_do("XLEN", keys.queue) == 1
    other = plaita("start", stored, "--dedup-key", "order-18", "--json").json
    assert other["execution_id"] != first


def test_S2_a_key_whose_execution_was_deleted_starts_anew(stored: str, plaita: Run, redis_do: Do, keys: Keys) -> None:
    first = plaita("start", stored, "--dedup-key", "k", "--json").json["execution_id"]
    assert plaita("rm", first).code == 0
    again = plaita("start", stored, "--dedup-key", "k", "--json").json
    assert again["execution_id"] != first
    assert "deduplicated" not in again
    assert redis_do("GET", keys.start_dedup("k")).decode() == again["execution_id"]


def test_S8_a_cancel_of_what_is_not_there_kills_nothing_later(
    stored: str, plaita: Run, redis_do: Do, keys: Keys
) -> None:
    told = plaita("cancel", "later")
    assert (told.code, told.out) == (1, "")
    assert redis_do("EXISTS", keys.cancel("later"), keys.wake) == 0
    plaita("start", stored, "--id", "later")
    assert plaita("show", "later", "--json").json["cancel"] is None


def test_S8_a_cancel_that_came_too_late_leaves_no_flag(stored: str, plaita: Run, redis_do: Do, keys: Keys) -> None:
    plaita("start", stored, "--id", "e")
    redis_do("HSET", keys.row("e"), "status", "completed")
    assert plaita("cancel", "e", "--json").json["cancel_requested"] is False
    assert redis_do("EXISTS", keys.cancel("e"), keys.wake) == 0
