"""``plaita schedule ...`` on a real server: documents, tables, refusals, exit codes (ledger E5)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from plaita.store.keys import Keys

Run = Callable[..., Any]

pytestmark = pytest.mark.usefixtures("connected")


@pytest.fixture
def stored(plaita: Run, flow_file: Callable[..., str], hello: dict[str, Any]) -> None:
    assert plaita("flow", "put", flow_file(hello), "--id", "hello").code == 0


def put(plaita: Run, *more: str, code: int = 0) -> Any:
    done = plaita("schedule", "put", "s", "--flow", "hello", "--cron", "0 6 * * 1-5", *more, "--json")
    assert done.code == code, done.err
    return done


def test_E5_from_put_to_rm(plaita: Run, stored: None) -> None:
    made = put(
        plaita, "--tz", "Europe/Berlin", "--input", '{"name": "x"}', "--name", "Morning", "--misfire", "all"
    ).json
    assert made.pop("created") is True
    assert made == plaita("schedule", "show", "s", "--json").json
    assert (made["cron"], made["tz"], made["misfire"], made["params"]) == (
        "0 6 * * 1-5",
        "Europe/Berlin",
        "all",
        {"name": "x"},
    )
    assert plaita("schedule", "list", "--json").json == {"schedules": [made], "total": 1}
    row = plaita("schedule", "list").out.splitlines()[-1]
    assert row.split()[:3] == ["s", "running", "hello"]
    due = plaita("schedule", "preview", "s", "--count", "3", "--json").json
    assert due["due"][0] == made["next_run_at"]
    assert [text[10:16] for text in due["local"]] == ["T06:00"] * 3
    assert plaita("schedule", "disable", "s", "--json").json["status"] == "paused"
    assert plaita("schedule", "enable", "s", "--json").json["next_run_at"] == made["next_run_at"]
    fired = plaita("schedule", "trigger", "s", "--json").json
    assert plaita("show", fired["execution_id"], "--json").json["input"] == {"name": "x"}
    [told] = plaita("schedule", "history", "s", "--json").json["fires"]
    assert (told["trigger_kind"], told["execution_id"]) == ("manual", fired["execution_id"])
    assert fired["execution_id"] in plaita("schedule", "history", "s").out
    shown = plaita("schedule", "show", "s").out
    assert all(text in shown for text in ("Morning", '{"name":"x"}', "true")), shown
    assert plaita("schedule", "rm", "s", "--json").json == {"schedule_id": "s", "removed": True}
    for command in ("show", "rm", "trigger", "enable", "disable", "history", "preview"):
        gone = plaita("schedule", command, "s")
        assert (gone.code, "no schedule 's'" in gone.err) == (1, True), command


@pytest.mark.parametrize(
    ("more", "word", "code"),
    [
        (["--cron", "0 0 31 2 *"], "day-of-month", 2),
        (["--cron", "@daily"], "0 0 * * *", 2),
        (["--tz", "Europe/Berln"], "did you mean 'Europe/Berlin'?", 2),
        (["--misfire", "alle"], "did you mean 'all'?", 2),
        (["--input", "{"], "--input", 2),
        (["--flow", "nope"], "no flow 'nope'", 1),
        (["--version", "9"], "no version '9'", 1),
    ],
)
def test_E5_refusals(
    plaita: Run, stored: None, keys: Keys, redis_do: Any, more: list[str], word: str, code: int
) -> None:
    assert word in put(plaita, *more, code=code).err
    assert redis_do("EXISTS", keys.schedules, keys.schedules_due) == 0


def test_preview_of_an_expression_asks_no_server(plaita: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PLAITA_EMBEDDED")
    monkeypatch.setenv("PLAITA_REDIS_URL", "redis://127.0.0.1:1/0")
    found = plaita("schedule", "preview", "--cron", "30 2 * * *", "--tz", "Europe/Berlin", "--count", "2", "--json")
    assert (found.code, len(found.json["due"]), found.json["tz"]) == (0, 2, "Europe/Berlin")
    assert plaita("schedule", "preview").code == 2
    assert plaita("schedule", "preview", "s", "--cron", "* * * * *").code == 2
    assert plaita("schedule", "preview", "--cron", "* * * * *", "--count", "0").code == 2
