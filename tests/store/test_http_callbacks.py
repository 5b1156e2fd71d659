"""HTTP calls that end waits (ledger E1, DECISIONS 30; KNOWN-TROUBLE 68), against a real server."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from bridge_world import CEILING_S, blocked_by_the_log

from plaita import jsontext
from plaita.callback_url import CallbackKey, Place, execution_key, task_id_of
from plaita.policy.callbacks import kept_name
from plaita.services.callbacks import CallbackIntake, EarlyCalls
from plaita.store import executions
from plaita.store.call import Answer, Call, Value
from plaita.store.executions import Suspend
from plaita.store.keys import Keys
from plaita.store.runner_async import AsyncRunner
from plaita.supervisor import suspends
from plaita.supervisor.stats import Stats

SECRET = "a platform's secret of some length"
PLACE = Place("", "default", "e", "w", 1)


@dataclass
class Host:
    runner: AsyncRunner
    keys: Keys
    redis_targets: tuple[str, ...] = ()
    consumer: str = "host1"
    said: list[Any] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    before: Any = None

    async def run(self, call: Call[Any]) -> Answer[Any]:
        if self.before is not None:
            self.before(call)
        return await self.runner.run(call)

    def tell(self, level: str, event: str, **fields: Any) -> None:
        self.said.append((event, fields))

    def count(self, name: str, amount: int = 1) -> None:
        self.counts[name] = self.counts.get(name, 0) + amount


def url(place: Place = PLACE, secret: str = SECRET) -> str:
    return CallbackKey(execution_key(secret, "plaita", place.tenant, place.execution_id)).url(place)


class Callbacks:
    """Execution ``e`` of ``world`` that waits at node ``w`` for a call."""

    def __init__(self, world: Any) -> None:
        self.world = world
        self.keys = world.keys
        self.stats = Stats()

    def config(self, *, method: str = "POST", auth: str = "token", token: str | None = None, **wanted: Any) -> bytes:
        return jsontext.dumps(
            {
                "node_id": "w",
                "execution_id": "e",
                "flow_id": "f",
                "visit": 1,
                "callback_config": {"path": "/p", "method": method, "timeout_minutes": 1, "full_url": "/p"},
                "auth_config": {"enabled": True, "type": auth, "token": token},
                "validation_config": {"headers": wanted.get("headers", {}), "params": wanted.get("params", {})},
                "response_config": {"success": {"status": "taken"}, "error": {"status": "no"}},
            }
        )

    def running(self) -> Any:
        return self.world.running()

    def wait(self, held: Any = None, **config: Any) -> None:
        """As a supervisor does it: a call that came first is judged and sent back with the wait."""
        entry, begun = held or self.world.running()
        given = {
            "event_type": "http_callback",
            "timing": b'{"order":1,"visit":1,"status":"waiting","ended_at":null}',
            "task_type": "http_callback",
            "task_id": task_id_of(PLACE),
            "config": self.config(**config),
            "call_name": kept_name(PLACE),
        }
        answer = self.world.suspend(begun, entry, **given)
        assert isinstance(answer, Value), answer
        if answer.value.open:
            assert self.world.row()["status"] == b"running", "nothing is written yet"
            held_execution: Any = SimpleNamespace(
                fields=entry.fields,
                entry_id=entry.entry_id,
                execution_id="e",
                flow_id="f",
                tenant_id="default",
                node_id="w",
            )
            wait = Suspend(**self.world.suspend_fields(begun, entry, **given))
            wait = suspends.judged(held_execution, wait, answer.value, self.stats)
            done = self.world.do(executions.suspend(self.keys, wait))
            assert not done.open
            again = self.world.do(executions.suspend(self.keys, wait))
            assert (again.done_before, again.open) == (True, False)

    def call(self, *requests: dict[str, Any], secret: str | None = SECRET, before: Any = None) -> list[tuple[int, Any]]:
        """All at once; status and JSON of each. ``before``: is told of each call to Redis before it is sent."""

        async def run() -> list[tuple[int, Any]]:
            runner = AsyncRunner(self.world.server.url)
            intake = CallbackIntake(Host(runner, Keys(), before=before), secret)
            answers = await asyncio.gather(
                *(
                    intake.handle(
                        one.get("method", "POST"),
                        one.get("path", url()),
                        one.get("headers", {}),
                        one.get("query", {}),
                        one.get("body", b""),
                    )
                    for one in requests
                )
            )
            await runner.close()
            for _, headers, _ in answers:
                assert headers["Cache-Control"] == "no-store"
            return [(status, jsontext.loads(body)) for status, _, body in answers]

        return asyncio.run(run())

    def look(self) -> Host:
        """One round of the service for early calls."""

        async def run() -> Host:
            host = Host(AsyncRunner(self.world.server.url), Keys())
            reading = await blocked_by_the_log(host.runner, host.keys)
            async with asyncio.timeout(CEILING_S):
                await EarlyCalls(host).look()
            reading.cancel()
            await host.runner.close()
            return host

        return asyncio.run(run())

    def data(self) -> Any:
        row = self.world.row()
        return jsontext.loads(row["wake_data"])["event_data"] if row.get("woken") else None


@pytest.fixture
def there(world: Any) -> Callbacks:
    return Callbacks(world)


JSON = {"Content-Type": "application/json"}


def test_E1_a_call_ends_the_wait_and_a_second_one_is_told_so(there: Callbacks) -> None:
    there.wait()
    request = {"headers": {**JSON, "Cookie": "c"}, "body": b'{"paid": 912345678901234567}', "query": {"a": "1"}}
    assert there.call(request) == [(200, {"status": "taken"})]
    data = there.data()
    assert data["trigger_type"] == "http_callback"
    assert data["request_data"] == {
        "method": "POST",
        "headers": {"content-type": "application/json"},
        "query": {"a": "1"},
        "body": {"paid": 912345678901234567},
    }
    assert there.call(request)[0][0] == 409
    there.world.begin(there.world.take_one(), nonce="n2")
    assert there.call(request)[0][0] == 409
    assert there.world.raw("EXISTS", there.keys.early_callbacks) == 0


def test_E1_of_many_calls_at_once_one_is_the_first(there: Callbacks) -> None:
    there.wait()
    statuses = sorted(status for status, _ in there.call(*[{"body": b"x"}] * 8))
    assert statuses == [200] + [409] * 7
    assert there.world.raw("XLEN", there.keys.wake) == 1


@pytest.mark.parametrize(
    "path",
    [
        url(secret="another secret of some length"),
        url()[:-1] + ("0" if url()[-1] != "0" else "1"),
        url().replace("/e/w/1/", "/e/w/2/"),
        url().replace("/e/w/1/", "/e2/w/1/"),
        url().replace("/default/", "/a/"),
        url().replace("/callback/", "/elsewhere/"),
        url(Place("", "default", "gone", "w", 1)),
        "/callback/" + "x" * 9000,
        "/",
        "",
        "/callback/default/e/w/1/%ff%00",
        "/callback/../e/w/1/x",
    ],
)
def test_decision_30_a_wrong_token_finds_nothing(there: Callbacks, path: str) -> None:
    there.wait()
    assert there.call({"path": path})[0][0] == 404
    assert there.data() is None


def test_decision_30_without_a_secret_there_are_no_callbacks(there: Callbacks) -> None:
    there.wait()
    assert there.call({}, secret=None)[0][0] == 404


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "PUT"])
def test_trouble_68_another_method_changes_nothing(there: Callbacks, method: str) -> None:
    there.wait()
    before = there.world.everything()
    assert there.call({"method": method})[0][0] == 405
    assert there.world.everything() == before
    assert there.call({})[0][0] == 200


def test_a_body_that_is_too_large(there: Callbacks) -> None:
    there.wait()
    [(status, _), (taken, _)] = [there.call({"body": b"x" * size})[0] for size in (64 * 1024 + 1, 64 * 1024)]
    assert (status, taken) == (413, 200)


DEEP = {"headers": {"Content-Type": "application/json"}, "body": b"[" * 250 + b"]" * 250}


@pytest.mark.parametrize("odd", [DEEP, {"headers": {"Authorization": "\udcff"}}, {"query": {"who": "\udcff"}}])
def test_what_no_node_could_be_told_is_refused_and_the_wait_goes_on(there: Callbacks, odd: Any) -> None:
    there.wait()
    assert there.call(odd)[0][0] == 400
    assert there.data() is None
    assert there.call({})[0][0] == 200


@pytest.mark.parametrize("odd", [{"headers": {"X-Who": "\udcff"}}, {"query": {"who": "\udcff"}}])
def test_what_no_node_could_be_told_is_not_kept(there: Callbacks, odd: Any) -> None:
    there.running()
    assert there.call(odd)[0][0] == 400
    assert there.world.raw("EXISTS", there.keys.early_callbacks) == 0


def basic(text: str) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(text.encode()).decode()}


SIGNED = {"X-Signature": "sha256=" + hmac.new(b"k", b"x", hashlib.sha256).hexdigest()}


@pytest.mark.parametrize(
    ("auth", "token", "wrong", "right"),
    [
        ("token", "k", {"Authorization": "Bearer j"}, {"Authorization": "bearer k"}),
        ("token", "k", {}, {"authorization": "Bearer k"}),
        ("token", "k", {"Authorization": "Bearer ké"}, {"authorization": "Bearer k"}),
        ("basic", "me:pass:word", basic("me:pass"), basic("me:pass:word")),
        ("basic", "me:k", {"Authorization": "Bearer me:k"}, basic("me:k")),
        ("signature", "k", {"X-Signature": "00"}, SIGNED),
        ("signature", "k", {"Authorization": "Bearer k"}, SIGNED),
    ],
)
def test_who_must_authorize(there: Callbacks, auth: str, token: str, wrong: Any, right: Any) -> None:
    there.wait(auth=auth, token=token)
    status, said = there.call({"headers": wrong, "body": b"x"})[0]
    assert (status, said["status"]) == (401, "no")
    assert there.data() is None
    assert there.call({"headers": right, "body": b"x"})[0][0] == 200
    assert not {"authorization", "x-signature"} & set(there.data()["request_data"]["headers"])


@pytest.mark.parametrize(
    ("config", "wrong", "right"),
    [
        ({"headers": {"X-Kind": "paid"}}, {"headers": {"x-kind": "open"}}, {"headers": {"x-kind": "paid"}}),
        ({"headers": {"X-Kind": None}}, {}, {"headers": {"X-KIND": "any"}}),
        ({"params": {"order": "7"}}, {"query": {"order": "8"}}, {"query": {"order": "7"}}),
        (
            {"params": {"order": 7}},
            {"headers": JSON, "body": b'{"order":8}'},
            {"headers": JSON, "body": b'{"order":7}'},
        ),
        ({"params": {"order": 7}}, {"headers": JSON, "body": b"{"}, {"query": {"order": "7"}}),
    ],
)
def test_what_a_call_must_have(there: Callbacks, config: Any, wrong: Any, right: Any) -> None:
    there.wait(**config)
    status, said = there.call(wrong)[0]
    assert (status, said["status"]) == (400, "no")
    assert said["message"]
    assert there.data() is None
    assert there.call(right)[0][0] == 200


def test_decision_30_a_call_before_the_wait_is_kept_and_ends_it_in_the_call_that_makes_it(there: Callbacks) -> None:
    held = there.running()
    assert there.call({"body": b"first"}) == [(202, {"status": "accepted"})]
    assert there.call({"body": b"second"}) == [
        (409, {"status": "error", "message": "this callback was called already, or its time is over"}),
    ]
    there.look()
    there.wait(held)
    assert there.stats.get("callbacks_kept_used") == 1
    assert there.data()["request_data"]["body"] == "first"
    assert there.world.raw("EXISTS", there.keys.early_callbacks) == 0
    assert [status for status, _ in there.call({"body": b"third"}, {})] == [409, 409]
    row = there.world.row()
    assert (row["status"], row["woken"]) == (b"suspended", b"event")
    assert row.get("wait_task", b"") == b"", "nobody is asked to look after it"
    [(_, carrier)] = there.world.raw("XRANGE", there.keys.wake, "-", "+")
    assert carrier[-2:] == [b"wait", b"1"]
    begun = there.world.begin(there.world.take_one(), nonce="n2", kind="event").value
    assert begun.woken == "event"


def test_decision_30_a_call_that_meets_the_wait_as_it_begins_is_judged_by_it(there: Callbacks) -> None:
    """Seen before the wait, kept after it: nobody would look for it there."""
    held = there.running()
    moved: list[Any] = []

    def suspends_first(call: Call[Any]) -> None:
        if call.name == "callbacks.keep" and not moved:
            moved.append(call)
            there.wait(held, token="k")

    calls = {"headers": {"Authorization": "Bearer j"}}, {"headers": {"Authorization": "Bearer k"}}
    assert there.call(calls[0], before=suspends_first)[0][0] == 401
    assert there.world.raw("EXISTS", there.keys.early_callbacks) == 0
    assert there.call(calls[1])[0][0] == 200
    assert len(moved) == 1


def test_trouble_68_a_link_that_is_looked_at_before_the_wait_is_not_kept(there: Callbacks) -> None:
    there.running()
    assert [there.call({"method": method})[0][0] for method in ("GET", "HEAD")] == [405, 405]
    assert there.world.raw("EXISTS", there.keys.early_callbacks) == 0


def test_a_call_that_came_early_and_is_not_what_is_wanted_is_dropped_and_told(
    there: Callbacks, caplog: pytest.LogCaptureFixture
) -> None:
    held = there.running()
    assert there.call({"headers": {"Authorization": "Bearer S3cr3t-marker"}})[0][0] == 202
    there.wait(held, token="k")
    assert there.stats.get("callbacks_kept_refused") == 1
    [told] = [record.getMessage() for record in caplog.records if "callback.refused" in record.getMessage()]
    assert "S3cr3t-marker" not in told
    assert there.data() is None
    assert there.world.raw("EXISTS", there.keys.early_callbacks) == 0
    assert there.world.row()["wait_task"]
    assert there.call({"headers": {"Authorization": "Bearer k"}})[0][0] == 200


def test_an_early_call_of_an_execution_that_is_over_is_dropped(there: Callbacks) -> None:
    entry, begun = there.running()
    there.call({})
    there.world.finish(begun, entry)
    there.look()
    assert there.world.raw("EXISTS", there.keys.early_callbacks) == 0
    assert there.call({})[0][0] == 409


UNREADABLE = [b"?", b"[]", b"{}", b'{"place":["","default"],"request":["POST","/","",""],"body":"","at":1}']


@pytest.mark.parametrize("record", UNREADABLE)
def test_E1_an_early_call_that_nobody_can_read_stops_neither_its_wait_nor_the_service(
    there: Callbacks, record: bytes
) -> None:
    held = there.running()
    there.world.raw("HSET", there.keys.early_callbacks, kept_name(PLACE), record, "other", record)
    there.wait(held)
    assert there.data() is None
    assert there.world.raw("HKEYS", there.keys.early_callbacks) == [b"other"]
    assert [event for event, _ in there.look().said] == ["callback.unreadable"]
    assert there.world.raw("EXISTS", there.keys.early_callbacks) == 0
    assert there.call({})[0][0] == 200


def test_a_call_after_the_time_was_up(there: Callbacks) -> None:
    there.wait()
    there.world.wake(kind="timeout", event_id="")
    assert there.call({})[0][0] == 409


def test_a_call_to_an_execution_that_was_deleted(there: Callbacks) -> None:
    there.wait()
    there.world.do(executions.delete(there.keys, "e", "test", force=True, tombstone_ttl_ms=60_000))
    assert there.call({})[0][0] == 404
