"""``plaita resume``, ``cancel``, and what ``show`` tells of waits: ledger S3 to S8, S13; row and stream after."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Callable
from typing import Any

import pytest

from plaita import AsyncClient, Client
from plaita.errors import InputError, RefusedError
from plaita.store.keys import Keys

Run = Callable[..., Any]
Do = Callable[..., Any]
WAITING = {
    "status": "suspended",
    "next_node": "greet",
    "wait": "3",
    "wait_type": "paid",
    "wait_deadline": "1764490800123",
    "wait_since": "1764490000000",
    "wait_correlation": "e",
}


class Stage:
    """One execution ``e`` of the flow ``hello``, put into a state."""

    def __init__(self, do: Do, keys: Keys) -> None:
        self.do, self.keys = do, keys

    def set(self, **fields: str) -> None:
        self.do("HSET", self.keys.row("e"), *[word for pair in fields.items() for word in pair])

    def row(self) -> dict[bytes, bytes]:
        flat = self.do("HGETALL", self.keys.row("e"))
        return dict(zip(flat[::2], flat[1::2], strict=True))

    def carriers(self) -> list[dict[str, Any]]:
        found = []
        for _, flat in self.do("XRANGE", self.keys.wake, "-", "+"):
            fields = dict(zip(flat[::2], flat[1::2], strict=True))
            found.append(json.loads(fields[b"payload"]) | {"entry": fields})
        return found


@pytest.fixture
def stage(hello: dict[str, Any], plaita: Run, flow_file: Callable[..., str], redis_do: Do, keys: Keys) -> Stage:
    assert plaita("flow", "put", flow_file(hello), "--id", "hello").code == 0
    assert plaita("start", "hello", "--id", "e").code == 0
    return Stage(redis_do, keys)


def test_S3_an_event_wakes_what_waits_once(stage: Stage, plaita: Run) -> None:
    stage.set(**WAITING)
    told = plaita("resume", "e", "--type", "event", "--data", '{"n": 912345678901234567}', "--json")
    assert told.code == 0
    assert told.json == {
        "execution_id": "e",
        "resume_type": "event",
        "status": "suspended",
        "resumed": True,
        "reason": None,
    }
    row = stage.row()
    assert (row[b"woken"], row[b"wake_data"]) == (b"event", b'{"n":912345678901234567}')
    [carrier] = stage.carriers()
    assert (carrier["type"], carrier["resume_type"], carrier["execution_id"]) == ("resume", "event", "e")
    assert (carrier["flow_id"], carrier["tenant_id"], carrier["entry"][b"wait"]) == ("hello", "default", b"3")
    again = plaita("resume", "e", "--type", "event", "--json")
    assert (again.code, again.json["resumed"], again.json["reason"]) == (1, False, "already_woken")
    assert "already_woken" in again.err
    assert (stage.row(), len(stage.carriers())) == (row, 1)


def test_S3_the_same_event_sent_again_is_one_wake(stage: Stage, plaita: Run) -> None:
    stage.set(**WAITING)
    words = ("resume", "e", "--type", "event", "--data", '{"event_id": "ev1", "event_data": 1}', "--json")
    assert [plaita(*words).json["resumed"] for _ in range(2)] == [True, True]
    assert len(stage.carriers()) == 1
    assert stage.row()[b"wake_id"] == b"ev1"


def test_S3_a_timeout_by_hand(stage: Stage, plaita: Run) -> None:
    stage.set(**WAITING)
    assert plaita("resume", "e", "--type", "timeout").code == 0
    assert (stage.row()[b"woken"], stage.row()[b"wake_data"]) == (b"timeout", b"null")
    assert [one["resume_type"] for one in stage.carriers()] == ["timeout"]


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        *itertools.product(["completed", "cancelled", "error"], ["event", "timeout", "continue"]),
        ("completed", "retry"),
        ("cancelled", "retry"),
    ],
)
def test_S3_what_has_ended_is_left_as_it_is(stage: Stage, plaita: Run, status: str, kind: str) -> None:
    stage.set(status=status)
    before = stage.row()
    told = plaita("resume", "e", "--type", kind, "--json")
    assert told.code == 0
    assert (told.json["already_terminal"], told.json["resumed"], told.json["status"]) == (True, False, status)
    assert (stage.row(), stage.carriers()) == (before, [])


def test_S3_a_retry_of_an_error_is_on_its_way(stage: Stage, plaita: Run) -> None:
    stage.set(status="error")
    told = plaita("resume", "e", "--type", "retry", "--json")
    assert (told.code, told.json["resumed"], told.json["status"]) == (0, True, "error")
    assert [one["resume_type"] for one in stage.carriers()] == ["retry"]


@pytest.mark.parametrize(
    ("counter", "limit", "word"),
    [("g1wakeups", 2, "g1_wakeups_exhausted"), ("nofail", 12, "deterministic_failure_exhausted")],
)
def test_S13_at_a_limit_it_says_which_key_unblocks(
    stage: Stage, plaita: Run, counter: str, limit: int, word: str
) -> None:
    stage.set(status="error")
    key = stage.keys.of_execution(counter, "e")
    stage.do("SET", key, limit)
    before = stage.row()
    told = plaita("resume", "e", "--type", "retry", "--json")
    assert told.code == 1
    assert told.json == {
        "execution_id": "e",
        "resume_type": "retry",
        "status": "error",
        "resumed": False,
        "reason": word,
        "already_terminal": True,
        "counter_key": key,
    }
    assert key in told.err
    assert (stage.row(), stage.carriers(), stage.do("GET", key)) == (before, [], str(limit).encode())
    stage.do("DEL", key)
    assert plaita("resume", "e", "--type", "retry").code == 0


@pytest.mark.parametrize("counter", ["g1wakeups", "nofail"])
def test_S13_unblock_lets_both_limits_count_anew(stage: Stage, plaita: Run, counter: str) -> None:
    stage.set(status="error")
    keys = [stage.keys.of_execution(name, "e") for name in ("g1wakeups", "nofail")]
    stage.do("SET", stage.keys.of_execution(counter, "e"), 12)
    assert plaita("resume", "e", "--type", "continue", "--unblock").code == 2
    told = plaita("resume", "e", "--type", "retry", "--unblock", "--json")
    assert (told.code, told.json["resumed"]) == (0, True)
    assert stage.do("EXISTS", *keys) == 0
    assert [one["resume_type"] for one in stage.carriers()] == ["retry"]


def test_S13_unblock_changes_nothing_of_what_is_not_in_error(stage: Stage, plaita: Run) -> None:
    stage.set(status="completed")
    key = stage.keys.of_execution("g1wakeups", "e")
    stage.do("SET", key, 2)
    assert plaita("resume", "e", "--type", "retry", "--unblock").code == 0
    assert (stage.do("GET", key), stage.carriers()) == (b"2", [])


def test_S3_the_definition_it_began_with_is_gone(stage: Stage, plaita: Run) -> None:
    stage.set(status="error")
    hash_ = stage.row()[b"flow_hash"].decode()
    stage.do("DEL", stage.keys.flow_body(hash_))
    told = plaita("resume", "e", "--type", "retry", "--json")
    assert (told.code, told.json["reason"], told.json["flow_hash"]) == (1, "definition_gone", hash_)
    assert (stage.row()[b"status"], stage.carriers()) == (b"error", [])


@pytest.mark.parametrize("kind", ["continue", "retry"])
def test_S4_what_waits_is_not_continued_unless_it_is_to_be_cancelled(stage: Stage, plaita: Run, kind: str) -> None:
    stage.set(**WAITING)
    before = stage.row()
    told = plaita("resume", "e", "--type", kind, "--json")
    assert (told.code, told.json["already_suspended"], told.json["resumed"]) == (0, True, False)
    assert (stage.row(), stage.carriers()) == (before, [])
    stage.do("SET", stage.keys.cancel("e"), "stop")
    assert plaita("resume", "e", "--type", kind, "--json").json["resumed"] is True
    assert len(stage.carriers()) == 1


@pytest.mark.parametrize("kind", ["continue", "retry"])
def test_S5_a_running_one_goes_on_unless_somebody_runs_it(stage: Stage, plaita: Run, kind: str) -> None:
    stage.set(status="running")
    stage.do("SET", stage.keys.of_execution("g1wakeups", "e"), 9)
    assert plaita("resume", "e", "--type", kind, "--json").json["resumed"] is True
    stage.do("SET", stage.keys.lease("e"), "v2 h/i 1:a q 1-0")
    told = plaita("resume", "e", "--type", kind, "--json")
    assert (told.code, told.json["resumed"], told.json["reason"]) == (0, False, "held")
    assert "held" in plaita("resume", "e", "--type", kind).out
    assert len(stage.carriers()) == 1


@pytest.mark.parametrize("kind", ["event", "timeout"])
@pytest.mark.parametrize("status", ["pending", "running"])
def test_S7_an_event_for_what_does_not_wait_is_refused(stage: Stage, plaita: Run, status: str, kind: str) -> None:
    stage.set(status=status)
    before = stage.row()
    told = plaita("resume", "e", "--type", kind)
    assert (told.code, told.out) == (1, "")
    assert "not_waiting" in told.err
    assert (stage.row(), stage.carriers()) == (before, [])


def test_ids_that_are_not_there(stage: Stage, plaita: Run) -> None:
    for kind in ("event", "retry"):
        told = plaita("resume", "nobody", "--type", kind)
        assert (told.code, told.out) == (1, "")
        assert "no execution" in told.err
    stage.set(status="completed")
    assert plaita("rm", "e").code == 0
    for kind in ("event", "retry"):
        told = plaita("resume", "e", "--type", kind)
        assert told.code == 1
        assert "deleted" in told.err
    assert stage.carriers() == []
    told = plaita("resume", "e", "--type", "retry", "--tenant", "t2")
    assert told.code == 1


def test_bad_usage(stage: Stage, plaita: Run, tmp_path: Any) -> None:
    stage.set(**WAITING)
    large = tmp_path / "large.json"
    large.write_text(json.dumps("x" * 65_536))
    for words in (
        ("--type", "jump"),
        ("--type", "cancel"),
        ("--type", "event", "--data", "{"),
        ("--type", "event", "--data", f"@{large}"),
        ("--type", "event", "--data", "[" * 241 + "]" * 241),
        ("--type", "retry", "--data", "1"),
        ("--type", "timeout", "--data", "1"),
        (),
    ):
        told = plaita("resume", "e", *words)
        assert (told.code, told.out) == (2, ""), words
    assert "65536" in plaita("resume", "e", "--type", "event", "--data", f"@{large}").err
    assert b"woken" not in stage.row()
    deep = plaita("resume", "e", "--type", "event", "--data", "[" * 241 + "]" * 241)
    assert "nested deeper than 240 levels" in deep.err
    large.write_text(json.dumps("x" * 65_534))
    assert plaita("resume", "e", "--type", "event", "--data", f"@{large}").code == 0


def test_data_from_stdin(stage: Stage, plaita: Run) -> None:
    stage.set(**WAITING)
    assert plaita("resume", "e", "--type", "event", "--data", "-", stdin='{"a": 1}').code == 0
    assert stage.row()[b"wake_data"] == b'{"a":1}'


def test_show_tells_what_it_waits_for(stage: Stage, plaita: Run) -> None:
    assert plaita("show", "e", "--json").json["waiting"] is None
    stage.set(**WAITING)
    shown = plaita("show", "e", "--json").json
    assert {name: shown["waiting"][name] for name in ("event_type", "node_id", "deadline")} == {
        "event_type": "paid",
        "node_id": "greet",
        "deadline": "2025-11-30T08:20:00.123Z",
    }
    assert "paid" in plaita("show", "e").out
    stage.set(wait_deadline="")
    assert plaita("show", "e", "--json").json["waiting"]["deadline"] is None
    stage.set(woken="event")
    shown = plaita("show", "e", "--json").json
    assert (shown["waiting"], shown["woken"]) == (None, "event")
    stage.set(status="running")
    assert plaita("show", "e", "--json").json["waiting"] is None


def test_S8_the_three_words_of_a_cancel(stage: Stage, plaita: Run) -> None:
    assert plaita("show", "e", "--json").json["cancel"] is None
    told = plaita("cancel", "e", "--reason", "wrong", "--json").json
    assert (told["cancel"], told["cancel_requested"]) == ("requested", True)
    assert [one["resume_type"] for one in stage.carriers()] == ["cancel"]
    assert stage.carriers()[0]["data"] == {"reason": "wrong"}
    assert plaita("show", "e", "--json").json["cancel"] == {"state": "requested", "reason": "wrong", "at": None}
    stage.set(status="running", cancel_signalled_at="1764490800123")
    assert plaita("show", "e", "--json").json["cancel"] == {
        "state": "signalled",
        "reason": "wrong",
        "at": "2025-11-30T08:20:00.123Z",
    }
    assert "signalled" in plaita("show", "e").out
    stage.do("DEL", stage.keys.cancel("e"))
    stage.set(status="cancelled", cancel_reason="wrong", ended_at="1764490800456")
    assert plaita("show", "e", "--json").json["cancel"] == {
        "state": "stopped",
        "reason": "wrong",
        "at": "2025-11-30T08:20:00.456Z",
    }
    late = plaita("cancel", "e", "--json")
    assert (late.code, late.json["cancel"], late.json["cancel_requested"]) == (0, None, False)


def test_both_clients_resume(stage: Stage) -> None:
    stage.set(**WAITING)
    with Client() as client:
        assert client.resume("e", "continue")["already_suspended"] is True
        assert client.resume("e", "event", {"a": 1})["resumed"] is True
        with pytest.raises(InputError):
            client.resume("e", "cancel")
        with pytest.raises(RefusedError) as refusal:
            client.resume("nobody", "retry")
        assert refusal.value.reason == "no_row"

    async def work() -> None:
        async with AsyncClient() as client:
            assert (await client.resume("e", "event"))["reason"] == "already_woken"

    asyncio.run(work())
    assert len(stage.carriers()) == 1


def test_G4_a_start_may_name_the_instance_that_is_to_run_it(stage: Stage, plaita: Run) -> None:
    assert plaita("start", "hello", "--target", "host-7", "--version", "1", "--dedup-key", "k").code == 0
    [*_, [_, flat]] = stage.do("XRANGE", stage.keys.queue, "-", "+")
    payload = json.loads(dict(zip(flat[::2], flat[1::2], strict=True))[b"payload"])
    assert (payload["target_instance_id"], payload["version"]) == ("host-7", "1")
    assert plaita("start", "hello", "--target", "no spaces").code == 2
