"""``plaita doctor`` about schedules on a real server: overdue, lost, put aside; what it says is what helps (E5)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from doctor_world import Do, Run, checks, finding

from plaita.store.keys import Keys

pytestmark = pytest.mark.usefixtures("quiet_host")


@pytest.fixture
def scheduled(plaita: Run, hello: Any, flow_file: Callable[..., str], keys: Keys, redis_do: Do) -> None:
    assert plaita("flow", "put", flow_file(hello), "--id", "hello").code == 0
    for name in ("a", "b", "paused"):
        words = ("--disabled",) if name == "paused" else ()
        assert plaita("schedule", "put", name, "--flow", "hello", "--cron", "0 0 1 1 *", *words).code == 0


def test_E5_overdue_schedules_are_told_and_why(
    plaita: Run, keys: Keys, redis_do: Do, registered: Callable[..., None], scheduled: None
) -> None:
    assert finding(plaita("doctor", "--json"), "schedules.due")["value"] == "2, none overdue"
    redis_do("ZADD", keys.schedules_due, "1000", keys.schedule_member("a"))
    told = plaita("doctor", "--json")
    assert (told.code, checks(told)["schedules.due"]) == (1, "error")
    assert finding(told, "schedules.due")["value"].startswith("1 of 2 overdue, the oldest by ")
    assert "no supervisor runs" in finding(told, "schedules.due")["why"]
    registered("h1", config={"services": False})
    assert "--no-services" in finding(plaita("doctor", "--json"), "schedules.due")["why"]
    registered("h2")
    assert "the log of h2" in finding(plaita("doctor", "--json"), "schedules.due")["action"]


def test_E5_schedules_without_a_due_time_are_told_and_reindex_helps(
    plaita: Run, keys: Keys, redis_do: Do, scheduled: None
) -> None:
    assert {"schedules.lost", "schedules.aside"} & set(checks(plaita("doctor", "--json"))) == set()
    redis_do("DEL", keys.schedules_due)
    told = plaita("doctor", "--json")
    assert checks(told)["schedules.lost"] == "error"
    assert finding(told, "schedules.lost")["value"] == "2 schedules without a due time: a, b"
    assert "plaita reindex puts them back" in finding(told, "schedules.lost")["action"]
    assert plaita("reindex", "--json").json["schedules"] == 2
    assert "given their due time" not in plaita("reindex").out
    assert "schedules.lost" not in checks(plaita("doctor", "--json"))


def test_E5_schedules_that_were_put_aside_are_told(plaita: Run, keys: Keys, redis_do: Do, scheduled: None) -> None:
    record = redis_do("HGET", keys.schedules, "b").replace(b'"UTC"', b'"Moon/Base"')
    redis_do("HSET", keys.schedules, "b", record)
    redis_do("ZREM", keys.schedules_due, keys.schedule_member("b"))
    told = plaita("doctor", "--json")
    assert (checks(told)["schedules.aside"], "schedules.lost" in checks(told)) == ("warning", False)
    assert "plaita schedule show b says why" in finding(told, "schedules.aside")["action"]
    assert "Moon/Base" in plaita("schedule", "show", "b", "--json").json["why"]


def test_E5_schedules_of_another_queue_are_told(plaita: Run, monkeypatch: pytest.MonkeyPatch, scheduled: None) -> None:
    """The queue got another name: nothing fires them, and `put` brings them along."""
    assert "schedules.elsewhere" not in checks(plaita("doctor", "--json"))
    monkeypatch.setenv("PLAITA_QUEUE_NAME", "renamed")
    told = plaita("doctor", "--json")
    assert (checks(told)["schedules.elsewhere"], "schedules.lost" in checks(told)) == ("note", False)
    assert finding(told, "schedules.elsewhere")["value"] == "2 schedules of other queues: a, b"
    assert plaita("schedule", "put", "a", "--flow", "hello", "--cron", "0 0 1 1 *").code == 0
    assert finding(plaita("doctor", "--json"), "schedules.elsewhere")["value"].endswith(": b")
    assert plaita("schedule", "trigger", "b").code == 1


def test_schedules_of_another_type_are_a_note(plaita: Run, keys: Keys, redis_do: Do) -> None:
    redis_do("SET", keys.schedules, "x")
    assert checks(plaita("doctor", "--json"))["schedules.due"] == "note"
