"""The node ``http_callback`` (FLOW-FORMAT 2.3), and the URLs of its calls (DECISIONS 30)."""

from __future__ import annotations

from typing import Any

import pytest

from plaita.callback_url import CallbackKey, Place, execution_key, is_token, path_of, read_path, token_of
from plaita.errors import FlowDefinitionError
from plaita.flow.context import Context
from plaita.flow.engine import run_step
from plaita.flow.model import parse_flow
from plaita.flow.outcome import Advanced, Failed, Suspended
from plaita.nodes.base import enter
from plaita.nodes.execution import Execution
from plaita.nodes.registry import NodeRegistry

SECRET = "user:S3cr3t-marker"
KEY = execution_key("the platform's secret", "plaita", "default", "x1")


def step(registry: NodeRegistry, action: Any = "execute", event: Any = None, key: Any = "", **fields: Any) -> Any:
    nodes = [
        {"type": "start", "id": "s", "next": "w"},
        {"id": "w", "type": "http_callback", "next": "e", **fields},
        {"type": "end", "id": "e"},
    ]
    flow = parse_flow({"flow_id": "f", "nodes": nodes}, registry)
    context = Context(execution_id="x1", flow_id="f", input={"secret": SECRET, "minus": -1, "list": [1], "plain": "x"})
    made = CallbackKey(KEY, "https://h/p") if key == "" else key

    def run(action: Any, event: Any) -> Any:
        return run_step(
            flow,
            context,
            "w",
            call=lambda node: enter(node, Execution(node, context, callback_key=made)),  # type: ignore[arg-type]
            now_ms=1_700_000_000_000,
            action=action,
            event=event,
        )

    outcome = run("execute", None)
    if action == "execute":
        return outcome
    context.load_result("w", outcome.result_json)
    return run(action, event)


def test_the_result_has_the_url_and_no_secret(registry: NodeRegistry) -> None:
    outcome = step(
        registry,
        callbackPath="/orders/paid",
        callbackMethod="put",
        authType="basic",
        authToken="$INPUT.secret",
        validateHeaders={"X-Kind": "paid"},
    )
    assert isinstance(outcome, Suspended)
    config = outcome.result["service_config"]
    full = config["callback_config"]["full_url"]
    assert full == f"https://h/p{config['callback_config']['path']}"
    found = read_path(config["callback_config"]["path"])
    assert found is not None
    place, token = found
    assert place == Place("/orders/paid", "default", "x1", "w", 1)
    assert is_token(KEY, place, token)
    assert config["callback_config"]["method"] == "PUT"
    assert config["auth_config"] == {"enabled": True, "type": "basic", "token": "***"}
    assert config["response_config"] == {"success": {"status": "success"}, "error": {"status": "error"}}
    assert SECRET not in str(outcome.result)
    service = outcome.subscription["service"]
    assert (service["type"], service["config"]["auth_config"]["token"]) == ("http_callback", SECRET)
    assert outcome.subscription["timeout_ms"] == 3_600_000


def test_without_the_platforms_secret_it_fails_with_the_reason(registry: NodeRegistry) -> None:
    outcome = step(registry, key=None)
    assert isinstance(outcome, Failed)
    assert "PLAITA_CALLBACK_SECRET is not set" in outcome.error.message


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"callbackTimeoutMinutes": "$INPUT.minus"}, "callback_timeout_minutes gives -1"),
        ({"validateHeaders": "$INPUT.list"}, "validate_headers gives a list"),
        ({"authToken": "$INPUT.none"}, "auth_token gives no text"),
        ({"authToken": {"a": "$INPUT.secret"}}, "auth_token gives an object"),
        ({"authToken": "$INPUT.plain", "authType": "basic"}, "user:password is wanted"),
    ],
)
def test_what_is_none_is_named(registry: NodeRegistry, fields: dict[str, Any], expected: str) -> None:
    outcome = step(registry, **fields)
    assert isinstance(outcome, Failed)
    assert expected in outcome.error.message
    assert SECRET not in str(outcome)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"callbackPath": "x"}, "callbackPath: 'x' is no path"),
        ({"callbackPath": "/a/../%"}, "callbackPath: '/a/../%' is no path"),
        ({"callbackMethod": "head"}, "callbackMethod: 'POST', 'GET', 'PUT' or 'DELETE' is wanted, not 'head'"),
        ({"authType": "basic"}, "auth_token: auth_type 'basic' needs it"),
        ({"authType": "basic", "authToken": SECRET.replace(":", "")}, "authToken: auth_token gives a text without a"),
        ({"authToken": ""}, "authToken: auth_token gives no text"),
        ({"authToken": [SECRET]}, "authToken: auth_token gives a list; a text is wanted"),
        ({"callbackTimeoutMinutes": -1}, "callbackTimeoutMinutes: callback_timeout_minutes gives -1: a number of"),
        ({"callback_timeout_minutes": "60"}, "callback_timeout_minutes gives '60': a number of minutes is wanted"),
        ({"callbackTimeoutMinutes": None}, "callback_timeout_minutes gives None: a number of minutes is wanted"),
        ({"validateHeaders": ["X-A"]}, "validateHeaders: validate_headers gives a list: an object of names and"),
        ({"validateParams": "x"}, "validateParams: validate_params gives 'x': an object of names and values"),
    ],
)
def test_rule_3_bad_fields_are_refused_when_read(registry: NodeRegistry, fields: dict[str, Any], expected: str) -> None:
    with pytest.raises(FlowDefinitionError) as caught:
        step(registry, **fields)
    [problem] = caught.value.problems
    assert f"{problem.place}: {problem.reason}".startswith("nodes[1].")
    assert expected in f"{problem.place}: {problem.reason}"
    assert SECRET not in str(problem)


@pytest.mark.parametrize(
    ("fields", "warned"),
    [
        ({"callbackMethod": "get"}, True),
        ({"callbackMethod": "GET", "authToken": SECRET, "requireAuth": False}, True),
        ({"callbackMethod": "GET", "authToken": SECRET}, False),
        ({"callbackMethod": "POST"}, False),
    ],
)
def test_trouble_68_a_link_that_anything_may_follow_is_warned_of(
    registry: NodeRegistry, fields: dict[str, Any], warned: bool
) -> None:
    nodes = [
        {"type": "start", "id": "s", "next": "w"},
        {"id": "w", "type": "http_callback", "next": "e", **fields},
        {"type": "end", "id": "e"},
    ]
    said = [str(one) for one in parse_flow({"flow_id": "f", "nodes": nodes}, registry).warnings]
    assert any("whatever follows the URL" in one for one in said) == warned


def test_a_limit_of_less_than_a_millisecond_is_one(registry: NodeRegistry) -> None:
    assert step(registry, callbackTimeoutMinutes=0.000001).subscription["timeout_ms"] == 1
    assert step(registry, callbackTimeoutMinutes=0).subscription["timeout_ms"] is None


def test_a_call_completes_it_and_other_events_are_none(registry: NodeRegistry) -> None:
    call = {"trigger_type": "http_callback", "request_data": {"body": 1}}
    outcome = step(registry, "event", {"event_id": "c", "event_type": "http_callback", "event_data": call})
    assert isinstance(outcome, Advanced)
    assert outcome.result["event_data"] == call
    assert isinstance(step(registry, "event", {"x": 1}), Failed)


@pytest.mark.parametrize("node", ["n", "a/b:c", "日本", "%2F", "n.-_"])
@pytest.mark.parametrize("prefix", ["", "/a/b"])
def test_a_path_is_read_back(node: str, prefix: str) -> None:
    place = Place(prefix, "a.b", "x/1:é", node, 12)
    assert read_path(path_of(place, "t" * 64)) == (place, "t" * 64)


def test_each_place_has_a_token_of_its_own() -> None:
    places = [
        Place(prefix, "t", "e", node, visit) for prefix in ("", "/a") for node in ("n", "n1") for visit in (1, 11, 111)
    ]
    tokens = {token_of(KEY, place) for place in places}
    assert len(tokens) == len(places)
    keys = {
        execution_key("s", *parts) for parts in (("p", "t", "e"), ("pt", "", "e"), ("p", "te", ""), ("p", "", "te"))
    }
    assert len(keys) == 4
    assert not is_token(KEY, places[0], "é\udcff")
