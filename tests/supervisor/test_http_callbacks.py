"""Executions that wait for HTTP calls, on real supervisors (DECISIONS 30)."""

from __future__ import annotations

import callback_calls
from callback_calls import SECRET
from hosts import World, until

from plaita import jsontext


def post(world: World, path: str, body: bytes) -> int:
    status, _ = callback_calls.call(world, "POST", path, body)
    return status


def test_E1_a_call_to_its_url_wakes_an_execution_once_each_visit_has_its_own(world: World) -> None:
    world.chain("f", {"type": "http_callback", "id": "w/é"})
    environment = {"PLAITA_CALLBACK_SECRET": SECRET, "PLAITA_CALLBACK_BASE_URL": "https://flows.example/"}
    supervisor = world.serving(environment=environment, lease_ttl_seconds=600, claim_min_idle_ms=600_000)
    execution = world.start("f")
    until(lambda: world.get(execution)["status"] == "suspended", "the wait")
    pending = jsontext.loads(world.row(execution).results["w/é"])
    url = pending["service_config"]["callback_config"]["full_url"]
    assert url.startswith("https://flows.example/callback/default/")
    assert world.get(execution)["waiting"]["callback_url"] == url
    path = url.removeprefix("https://flows.example")
    assert post(world, path[:-1] + "x", b"{}") == 404
    assert post(world, path, b'{"n":1}') == 200
    row = world.wait(execution)
    assert row["status"] == "completed"
    assert row["output"]["w/é"]["event_data"]["request_data"]["body"] == {"n": 1}
    assert post(world, path, b'{"n":2}') == 409
    assert SECRET not in supervisor.text() + str(row)


def test_decision_30_without_a_secret_the_wait_fails_and_says_so(world: World) -> None:
    world.chain("f", {"type": "http_callback", "id": "w", "errorHandler": {"code": 7}})
    world.serving(max_deliveries=1)
    row = world.run("f")
    assert (row["status"], row["error"]["code"]) == ("error", 7)
    assert "PLAITA_CALLBACK_SECRET is not set" in row["error"]["message"]


def test_decision_30_a_url_that_an_earlier_node_gave_out_may_be_called_before_the_wait_begins(world: World) -> None:
    again = {"field": "$NODE.cb.event_data.request_data.body.n", "operator": "eq", "value": 1}
    world.put(
        "f",
        [
            {"type": "start", "id": "s", "next": "out"},
            {"type": "assignment", "id": "out", "output": {"url": "$F.callback_url('cb')"}, "next": "go"},
            {"type": "event", "id": "go", "eventType": "go", "correlationId": "$NODE.out.url", "next": "cb"},
            {"type": "http_callback", "id": "cb", "next": "again"},
            {"type": "if", "id": "again", "condition": again, "next": "out", "elseNext": "e"},
            {"type": "end", "id": "e", "output": ["$NODE.out.url", "$NODE.cb.event_data.request_data.body.n"]},
        ],
    )
    environment = {"PLAITA_CALLBACK_SECRET": SECRET, "PLAITA_CALLBACK_BASE_URL": "https://flows.example"}
    world.serving(environment=environment, lease_ttl_seconds=600, claim_min_idle_ms=600_000)
    execution = world.start("f")
    paths: list[str] = []
    for visit in (1, 2):

        def at_go(seen: int = visit) -> bool:
            row = world.row(execution)
            timing = jsontext.loads(row.timings.get("go", b"{}"))
            return row.control["status"] == "suspended" and timing.get("visit") == seen

        until(at_go, f"wait {visit} of the node before")
        url = jsontext.loads(world.row(execution).results["out"])["url"]
        paths.append(url.removeprefix("https://flows.example"))
        assert f"/cb/{visit}/" in url
        assert post(world, paths[-1], b'{"n":%d}' % visit) == 202
        assert post(world, paths[-1], b'{"n":9}') == 409, "one early call is kept, and it ends the wait"
        world.client.publish("go", {}, correlation_id=url)
    row = world.wait(execution)
    assert (row["status"], row["output"]) == ("completed", [url, 2])
    assert [post(world, path, b"{}") for path in paths] == [409, 409]
