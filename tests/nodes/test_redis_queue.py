"""The node ``redis_queue`` (FLOW-FORMAT 2.3), and what its bridge makes of messages (DECISIONS 41)."""

from __future__ import annotations

from typing import Any

import pytest

from plaita.errors import FlowDefinitionError
from plaita.flow.context import Context
from plaita.flow.engine import run_step
from plaita.flow.model import parse_flow
from plaita.flow.outcome import Advanced, Failed, Suspended
from plaita.nodes.base import enter
from plaita.nodes.execution import Execution
from plaita.nodes.registry import NodeRegistry
from plaita.policy import bridges
from plaita.policy.bridges import Asked, Queue, Target
from plaita.runtime_config.redis_url import mask_url, read_redis_url

SECRET = "S3cr3t-marker"
GIVEN = {"seven": 7, "minus": -1, "secret": SECRET}
ASKED = Asked("default", "x1", "f", "w")


class World:
    def __init__(self, registry: NodeRegistry, flow_input: Any = None, **fields: Any) -> None:
        nodes = [
            {"type": "start", "id": "s", "next": "w"},
            {"id": "w", "type": "redis_queue", "next": "e", **fields},
            {"type": "end", "id": "e"},
        ]
        self.flow = parse_flow({"flow_id": "f", "nodes": nodes}, registry)
        self.context = Context(execution_id="x1", flow_id="f", input={**GIVEN, **(flow_input or {})})

    def step(self, action: Any = "execute", event: Any = None) -> Any:
        return run_step(
            self.flow,
            self.context,
            "w",
            call=lambda node: enter(node, Execution(node, self.context)),  # type: ignore[arg-type]
            now_ms=1_700_000_000_000,
            action=action,
            event=event,
        )


def test_what_is_waited_for_and_the_password_is_for_the_service_only(registry: NodeRegistry) -> None:
    world = World(
        registry,
        {"port": 7000, "secret": SECRET, "q": "jobs"},
        redis_host="queues",
        redisPort="$INPUT.port",
        redis_password="$INPUT.secret",
        queueName="$INPUT.q",
        queue_type="stream",
        timeoutSeconds=2.5,
        batchSize=3,
    )
    outcome = world.step()
    assert isinstance(outcome, Suspended)
    config = outcome.result["service_config"]
    assert config["redis_config"] == {"host": "queues", "port": 7000, "db": 0, "password": "***"}
    assert config["queue_config"] == {"name": "jobs", "type": "stream", "message_format": "json"}
    assert config["listen_config"] == {"timeout_seconds": 2.5, "batch_size": 3}
    assert (outcome.result["event_type"], outcome.result["node_subtype"]) == ("redis_message", "redis_queue")
    assert SECRET not in str(outcome.result)
    said = outcome.subscription
    assert (said["event_type"], said["timeout_ms"]) == ("redis_message", 2500)
    service = said["service"]
    assert (service["type"], service["task_id"]) == ("redis_queue", config["task_id"])
    assert service["task_id"].startswith("redis_queue_w_")
    assert bridges.queue_of(service["config"]) == Queue(Target("queues", 7000, 0, SECRET), "jobs", "stream", "json", 3)


def test_the_defaults(registry: NodeRegistry) -> None:
    outcome = World(registry, queueName="q").step()
    config = outcome.result["service_config"]
    assert config["redis_config"] == {"host": "localhost", "port": 6379, "db": 0, "password": None}
    assert config["listen_config"] == {"timeout_seconds": 0, "batch_size": 1}
    assert outcome.subscription["timeout_ms"] is None


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"queueName": "$INPUT.seven"}, "queue_name gives 7"),
        ({"queueName": "$INPUT.none"}, "queue_name gives None"),
        ({"queueName": "q", "redisPort": "$INPUT.none"}, "redis_port gives None"),
        ({"queueName": "q", "redisPort": "{% $INPUT.seven %}9999"}, "a whole number from 1 to 65535"),
        ({"queueName": "q", "batchSize": "$INPUT.none"}, "batch_size gives None"),
        ({"queueName": "q", "timeoutSeconds": "$INPUT.minus"}, "timeout_seconds gives -1"),
        ({"queueName": "q", "redisPassword": ["$INPUT.secret"]}, "redis_password gives"),
        ({"queueName": "q", "redisHost": "redis://:{% $INPUT.secret %}@h:1/0"}, "redis_host gives a URL or a login"),
    ],
)
def test_what_is_none_is_named(registry: NodeRegistry, fields: dict[str, Any], expected: str) -> None:
    outcome = World(registry, **fields).step()
    assert isinstance(outcome, Failed)
    assert expected in outcome.error.message
    assert SECRET not in str(outcome)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"queueName": None}, "queueName: queue_name gives None: 1 to 1024 characters are wanted"),
        ({"queueName": ""}, "queueName: queue_name gives '': 1 to 1024 characters are wanted"),
        ({"queue_name": 7}, "queue_name gives 7: 1 to 1024 characters are wanted"),
        ({"queueType": "topic"}, "queueType: 'list', 'stream' or 'pubsub' is wanted, not 'topic'"),
        ({"redisHost": 7}, "redisHost: redis_host gives 7: 1 to 1024 characters are wanted"),
        ({"redisHost": f"redis://:{SECRET}@h"}, "redisHost: redis_host gives a URL or a login"),
        ({"redisHost": f"me:{SECRET}@h"}, "redisHost: redis_host gives a URL or a login"),
        ({"redisPort": 0}, "redisPort: redis_port gives 0: a whole number from 1 to 65535 is wanted"),
        ({"redisPort": "redis"}, "redisPort: redis_port gives 'redis': a whole number from 1 to 65535 is wanted"),
        ({"redisDb": "x"}, "redisDb: redis_db gives 'x': a whole number from 0 to 1000000 is wanted"),
        ({"redisPassword": [SECRET]}, "redisPassword: redis_password gives a list; a text is wanted"),
        ({"batchSize": 1.5}, "batchSize: batch_size gives 1.5: a whole number from 1 to 1000 is wanted"),
        ({"timeoutSeconds": "PT5S"}, "timeoutSeconds: timeout_seconds gives 'PT5S': a number of seconds is wanted"),
        ({"timeout_seconds": -1}, "timeout_seconds gives -1: a number of seconds is wanted, 0 for no limit"),
    ],
)
def test_rule_3_bad_fields_are_refused_when_read(registry: NodeRegistry, fields: dict[str, Any], expected: str) -> None:
    with pytest.raises(FlowDefinitionError) as caught:
        World(registry, **({} if "queue_name" in fields else {"queueName": "q"}) | fields)
    [problem] = caught.value.problems
    assert problem.place.startswith("nodes[1].")
    assert expected in f"{problem.place}: {problem.reason}"
    assert SECRET not in str(problem)


def test_rule_3_a_queue_has_a_name(registry: NodeRegistry) -> None:
    with pytest.raises(FlowDefinitionError, match="queue_name"):
        World(registry)


def test_a_limit_of_less_than_a_millisecond_is_one(registry: NodeRegistry) -> None:
    assert World(registry, queueName="q", timeoutSeconds=0.0001).step().subscription["timeout_ms"] == 1


def event(data: Any) -> Any:
    return {"event_id": "m1", "event_type": "redis_message", "event_data": data}


def test_a_message_completes_the_node(registry: NodeRegistry) -> None:
    world = World(registry, queueName="q")
    world.context.load_result("w", world.step().result_json)
    told = bridges.told(ASKED, Queue(Target("h", 1, 0), "q", "list", "json", 1), [b'{"a":1}'], 5)
    outcome = world.step("event", event(told.data))
    assert isinstance(outcome, Advanced)
    assert outcome.result["status"] == "completed"
    assert outcome.result["event_data"]["message"] == {"a": 1}


def test_S7_an_error_of_the_bridge_is_a_failure_of_the_node(registry: NodeRegistry) -> None:
    world = World(registry, queueName="q")
    world.context.load_result("w", world.step().result_json)
    told = bridges.told(ASKED, Queue(Target("h", 1, 0), "q", "list", "json", 1), [b"{"], 5)
    outcome = world.step("event", event(told.data))
    assert isinstance(outcome, Failed)
    assert "queue 'q': a message is no JSON" in outcome.error.message


@pytest.mark.parametrize(
    ("form", "message", "read", "bare"),
    [
        ("json", b'{"n":912345678901234567}', {"n": 912345678901234567}, '{"n":912345678901234567}'),
        ("json", b'"x"', "x", '"x"'),
        ("text", "zoë".encode(), "zoë", "zoë"),
        ("raw", b"\xff\x00", "/wA=", "/wA="),
        ("raw", b"abc", "YWJj", "abc"),
        ("json", {b"a": b"1", b"b": b"paid"}, {"a": 1, "b": "paid"}, {"a": "1", "b": "paid"}),
        ("text", {b"a": b"1"}, {"a": "1"}, {"a": "1"}),
    ],
)
def test_messages_in_their_forms(form: str, message: Any, read: Any, bare: Any) -> None:
    told = bridges.told(ASKED, Queue(Target("h", 1, 0), "q", "list", form, 1), [message], 5)
    assert (told.bad, told.data["message"], told.data["raw_message"]) == (False, read, bare)


@pytest.mark.parametrize(
    ("form", "message"),
    [("json", b""), ("json", b"NaN"), ("json", b"1e999"), ("text", b"\xff"), ("raw", b"x" * (4 * 1024 * 1024 + 1))],
)
def test_messages_that_are_none(form: str, message: bytes) -> None:
    told = bridges.told(ASKED, Queue(Target("h", 1, 0), "q", "list", form, 1), [message], 5)
    assert told.bad
    assert (told.data["trigger_type"], told.data["success"]) == ("redis_error", False)
    assert len(told.data["error_message"]) < 600


@pytest.mark.parametrize(
    ("target", "place"),
    [
        (Target("Queues.Example", 6379, 0), "queues.example:6379"),
        (Target("::1", 6379, 0), "[::1]:6379"),
        (Target("[::1]", 6379, 3), "[::1]:6379"),
        (Target("/run/valkey.sock", 6379, 0), "/run/valkey.sock"),
    ],
)
def test_decision_41_targets_by_their_places(target: Target, place: str) -> None:
    assert target.place == place
    assert bridges.target_refusal(target, (place,)) is None
    refusal = bridges.target_refusal(target, ())
    assert refusal is not None
    assert "it is empty, which allows none" in refusal


@pytest.mark.parametrize("host", ["h", "::1", "/run/a b.sock"])
def test_the_url_of_a_target_carries_its_password_whole(host: str) -> None:
    password = "a:b@c/d?e#f %é"
    target = Target(host, 7, 2, password)
    read = read_redis_url(target.url)
    assert (read.password, read.db) == (password, 2)
    assert read.path == host or (str(read.places[0].host), read.places[0].port) == (host, 7)
    assert password not in repr(target)
    assert "***" in mask_url(target.url)


@pytest.mark.parametrize("host", ["other:1/x", "me@other", "h#", "a?b=c", "h,other"])
def test_decision_41_a_host_that_would_lead_elsewhere_is_no_listed_place(host: str) -> None:
    assert bridges.target_refusal(Target(host, 6379, 0), ("h:6379", "other:1", "other:6379")) is not None


@pytest.mark.parametrize(
    ("name", "allowed"),
    [("p:userqueue:a", True), ("p:userqueue:", False), ("p:wake", False), ("p:a:userqueue:x", False), ("", False)],
)
def test_decision_41_names_on_plaitas_own_server(name: str, allowed: bool) -> None:
    assert (bridges.name_refusal(name, "p") is None) == allowed


@pytest.mark.parametrize(
    ("last", "age", "place"),
    [("", 100, "898-0"), ("950-3", 100, "898-0"), ("700-3", 100, "700-3"), ("1-1", 100, "1-1"), ("", 5000, "0-0")],
)
def test_where_a_stream_is_read_from(last: str, age: int, place: str) -> None:
    assert bridges.stream_position(1000, last, age) == place
