"""HTTP calls that end waits (ledger E1, DECISIONS 30; KNOWN-TROUBLE 68), against a real server."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
from dataclasses import dataclass, field
from typing import Any

import pytest

from plaita import jsontext
from plaita.callback_url import CallbackKey, Place, execution_key, task_id_of
from plaita.services.callbacks import CallbackIntake, EarlyCalls
from plaita.store import executions
from plaita.store.call import Answer, Call, Value
from plaita.store.keys import Keys
from plaita.store.runner_async import AsyncRunner

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

    async def run(self, call: Call[Any]) -> Answer[Any]:
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
        entry, begun = held or self.world.running()
        answer = self.world.suspend(
            begun,
            entry,
            event_type="http_callback",
            timing=b'{"order":1,"visit":1,"status":"waiting","ended_at":null}',
            task_type="http_callback",
            task_id=task_id_of(PLACE),
            config=self.config(**config),
        )
        assert isinstance(answer, Value), answer

    def call(self, *requests: dict[str, Any], secret: str | None = SECRET) -> list[tuple[int, Any]]:
        """All at once; status and JSON of each."""

        async def run() -> list[tuple[int, Any]]:
            runner = AsyncRunner(self.world.server.url)
            intake = CallbackIntake(Host(runner, Keys()), secret)
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
            await EarlyCalls(host).look()
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


@pytest.mark.parametrize("odd", [DEEP, {"headers": {"X-Who": "\udcff"}}, {"query": {"who": "\udcff"}}])
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
        ("token", "k", {"Authorization": "Bearer ké\udcff"}, {"authorization": "Bearer k"}),
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


def test_decision_30_a_call_before_the_wait_is_kept_and_ends_it(there: Callbacks) -> None:
    held = there.running()
    assert there.call({"body": b"first"}, {"body": b"second"}) == [
        (202, {"status": "accepted"}),
        (409, {"status": "error", "message": "this callback was called already, or its time is over"}),
    ]
    there.look()
    there.wait(held)
    assert there.call({"body": b"third"})[0][0] == 409
    assert there.look().counts == {"callbacks_kept_used": 1}
    assert there.data()["request_data"]["body"] == "first"
    assert there.world.raw("EXISTS", there.keys.early_callbacks) == 0
    assert there.call({})[0][0] == 409


def test_trouble_68_a_link_that_is_looked_at_before_the_wait_is_not_kept(there: Callbacks) -> None:
    there.running()
    assert [there.call({"method": method})[0][0] for method in ("GET", "HEAD")] == [405, 405]
    assert there.world.raw("EXISTS", there.keys.early_callbacks) == 0


def test_a_call_that_came_early_and_is_not_what_is_wanted_is_dropped_and_told(there: Callbacks) -> None:
    held = there.running()
    assert there.call({"headers": {"Authorization": "Bearer S3cr3t-marker"}})[0][0] == 202
    there.wait(held, token="k")
    host = there.look()
    assert host.counts == {"callbacks_kept_refused": 1}
    assert [event for event, _ in host.said] == ["callback.refused"]
    assert "S3cr3t-marker" not in str(host.said)
    assert there.data() is None
    assert there.call({"headers": {"Authorization": "Bearer k"}})[0][0] == 200


def test_an_early_call_of_an_execution_that_is_over_is_dropped(there: Callbacks) -> None:
    entry, begun = there.running()
    there.call({})
    there.world.finish(begun, entry)
    there.look()
    assert there.world.raw("EXISTS", there.keys.early_callbacks) == 0
    assert there.call({})[0][0] == 409


def test_a_call_after_the_time_was_up(there: Callbacks) -> None:
    there.wait()
    there.world.wake(kind="timeout", event_id="")
    assert there.call({})[0][0] == 409


def test_a_call_to_an_execution_that_was_deleted(there: Callbacks) -> None:
    there.wait()
    there.world.do(executions.delete(there.keys, "e", "test", force=True, tombstone_ttl_ms=60_000))
    assert there.call({})[0][0] == 404
