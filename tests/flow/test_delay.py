"""The node ``delay``: how long it waits, and what it makes of what it is given (FLOW-FORMAT 2.3; rules 11, 15)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from plaita.errors import FlowDefinitionError
from plaita.flow.context import Context
from plaita.flow.durations import LONGEST_MS
from plaita.flow.engine import run_step
from plaita.flow.outcome import Advanced, Failed, Suspended
from plaita.nodes.base import enter
from plaita.nodes.execution import Execution

NOW_MS = 1_700_000_000_000
GIVEN = {
    "n": 2,
    "text": "1.5",
    "none": None,
    "flag": True,
    "list": [1],
    "word": "soon",
    "minus": -1,
    "huge": 10**400,
    "long": "9" * 5000,
    "inf": float("inf"),
    "nan": float("nan"),
}


def flow_of(**fields: Any) -> dict[str, Any]:
    node = {"type": "delay", "id": "w", "next": "e", **fields}
    return {"flow_id": "f", "nodes": [{"type": "start", "id": "s", "next": "w"}, node, {"type": "end", "id": "e"}]}


@pytest.fixture
def step(parse: Callable[..., Any]) -> Callable[..., Any]:
    """step(fields, action) of a delay; further actions go on with the same context."""
    context = Context(execution_id="x1", flow_id="f", input=GIVEN)

    def step(fields: dict[str, Any], action: Any = "execute", event: Any = None, now_ms: int = NOW_MS) -> Any:
        return run_step(
            parse(flow_of(**fields)),
            context,
            "w",
            call=lambda node: enter(node, Execution(node, context)),
            now_ms=now_ms,
            action=action,
            event=event,
        )

    return step


WAITS: list[tuple[dict[str, Any], int]] = [
    ({"delaySeconds": 5}, 5000),
    ({"delay_seconds": 5}, 5000),
    ({"delay_seconds": 0}, 0),
    ({"delay_seconds": -0.0}, 0),
    ({"delay_seconds": 0.1}, 100),
    ({"delay_seconds": 0.0001}, 1),
    ({"delay_seconds": "7"}, 7000),
    ({"delay_seconds": "0.25"}, 250),
    ({"delay_seconds": "1e3"}, 1_000_000),
    ({"delay_seconds": "$INPUT.n"}, 2000),
    ({"delay_seconds": "$INPUT.text"}, 1500),
    ({"delay_seconds": "{% $INPUT.n %}0"}, 20_000),
    ({"delay_seconds": "$F.mul($INPUT.n, 2)"}, 4000),
    ({"delay_seconds": 2, "delay_unit": "minutes"}, 120_000),
    ({"delaySeconds": 2, "delayUnit": "Hours"}, 7_200_000),
    ({"delay_seconds": 2, "delay_unit": "DAYS"}, 172_800_000),
    ({"delay_seconds": 2, "delay_unit": "day"}, 172_800_000),
    ({"delay_seconds": 100 * 366, "delay_unit": "days"}, LONGEST_MS),
]


@pytest.mark.parametrize(("fields", "delay_ms"), WAITS)
def test_a_delay_is_a_timer(step: Any, fields: dict[str, Any], delay_ms: int) -> None:
    outcome = step(fields)
    assert isinstance(outcome, Suspended)
    wanted = {"event_type": "delay_trigger", "event_filter": None, "correlation_id": None, "timeout_ms": delay_ms}
    assert outcome.subscription == wanted, "no service: the timer of the wait is all"
    assert outcome.warnings == ()
    config = outcome.result["service_config"]
    assert (config["delay_ms"], config["trigger_timestamp"]) == (delay_ms, NOW_MS + delay_ms)
    assert (outcome.result["status"], outcome.result["node_subtype"]) == ("pending", "delay")


def test_an_expression_that_gives_nothing_waits_a_minute_and_says_so(step: Any) -> None:
    outcome = step({"delay_seconds": "$INPUT.none", "delay_unit": "hours"})
    assert outcome.subscription["timeout_ms"] == 60_000
    assert "gives nothing: 60 seconds are waited" in outcome.warnings[0]


REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({}, "delay_seconds", "is missing"),
    ({"delay_seconds": None}, "delay_seconds", "is missing"),
    ({"delay_seconds": True}, "delay_seconds", "a number is wanted"),
    ({"delay_seconds": [5]}, "delay_seconds", "gives a list"),
    ({"delay_seconds": {"n": 5}}, "delay_seconds", "gives an object"),
    ({"delay_seconds": "soon"}, "delay_seconds", "'soon': a number is wanted"),
    ({"delay_seconds": ""}, "delay_seconds", "'': a number is wanted"),
    ({"delay_seconds": " 5"}, "delay_seconds", "a number is wanted"),
    ({"delay_seconds": "1_000"}, "delay_seconds", "a number is wanted"),
    ({"delay_seconds": "٣"}, "delay_seconds", "a number is wanted"),
    ({"delay_seconds": "nan"}, "delay_seconds", "a number is wanted"),
    ({"delay_seconds": "Infinity"}, "delay_seconds", "a number is wanted"),
    ({"delay_seconds": "1e400"}, "delay_seconds", "longer than a hundred years"),
    ({"delay_seconds": "PT5S"}, "delay_seconds", "a number is wanted"),
    ({"delay_seconds": -1}, "delay_seconds", "cannot be negative"),
    ({"delay_seconds": "-0.5"}, "delay_seconds", "cannot be negative"),
    ({"delay_seconds": 10**400}, "delay_seconds", "longer than a hundred years"),
    ({"delay_seconds": 1e308, "delay_unit": "days"}, "delay_seconds", "longer than a hundred years"),
    ({"delay_seconds": 36_601, "delay_unit": "days"}, "delay_seconds", "longer than a hundred years"),
    ({"delay_seconds": 1, "delay_unit": "week"}, "delay_unit", "unknown unit 'week'"),
    ({"delay_seconds": 1, "delay_unit": ""}, "delay_unit", "unknown unit ''"),
    ({"delay_seconds": 1, "delay_unit": "minuts"}, "delay_unit", "did you mean 'minutes'?"),
    ({"delay_seconds": 1, "delayUnit": 5}, "delayUnit", "text"),
]


@pytest.mark.parametrize(("fields", "place", "reason"), REFUSED)
def test_what_is_no_time_is_refused_when_the_flow_is_read(
    parse: Callable[..., Any], fields: dict[str, Any], place: str, reason: str
) -> None:
    with pytest.raises(FlowDefinitionError) as caught:
        parse(flow_of(**fields))
    [problem] = caught.value.problems
    assert problem.place == f"nodes[1].{place}"
    assert reason in problem.reason


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("flag", "gives True: a number is wanted"),
        ("list", "gives a list: a number is wanted"),
        ("word", "gives 'soon': a number is wanted"),
        ("minus", "gives -1: it cannot be negative"),
        ("huge", "longer than a hundred years"),
        ("long", "a number is wanted"),
        ("inf", "gives inf: longer than a hundred years"),
        ("nan", "gives nan: a number is wanted"),
    ],
)
def test_what_the_input_makes_no_time_is_a_failure_of_the_node(step: Any, name: str, reason: str) -> None:
    failed = step({"delay_seconds": f"$INPUT.{name}"})
    assert isinstance(failed, Failed)
    assert reason in failed.error.message
    assert len(failed.error.message) < 300
    assert failed.error.retryable is False


def test_when_its_time_has_come_it_tells_when_that_was(step: Any) -> None:
    step({"delay_seconds": 5})
    outcome = step({"delay_seconds": 5}, "timeout", now_ms=NOW_MS + 5003)
    assert isinstance(outcome, Advanced)
    assert outcome.result["status"] == "completed"
    told = {"trigger_type": "delay_trigger", "node_id": "w", "execution_id": "x1", "flow_id": "f"}
    told |= {"tenant_id": "default", "delay_ms": 5000, "trigger_timestamp": NOW_MS + 5000}
    assert outcome.result["event_data"] == {**told, "timestamp": NOW_MS + 5003, "success": True}


@pytest.mark.parametrize(
    ("limits", "ends_ms", "completes"),
    [
        ({"timeout": 4000}, 4000, False),
        ({"subscriptionTimeout": 4}, 4000, False),
        ({"timeout": 4999, "subscription_timeout": "PT4.5S"}, 4500, False),
        ({"timeout": 5000}, 5000, True),
        ({"timeout": "PT1H"}, 5000, True),
        ({"timeout": 0}, 5000, True),
    ],
)
def test_rule_15_its_own_limit_where_that_is_shorter(
    step: Any, limits: dict[str, Any], ends_ms: int, completes: bool
) -> None:
    fields = {"delay_seconds": 5, **limits}
    assert step(fields).subscription["timeout_ms"] == ends_ms
    outcome = step(fields, "timeout")
    if completes:
        assert outcome.result["status"] == "completed"
    else:
        assert (outcome.error.exception, outcome.error.code) == ("NodeTimeoutError", -1)


def test_its_timeout_handler_decides(step: Any) -> None:
    fields = {"delay_seconds": 5, "timeout": 100}
    fields["timeoutHandler"] = {"strategy": "continue-with", "defaultValue": "short"}
    step(fields)
    assert step(fields, "timeout").result == "short"


def test_an_event_ends_it_earlier_whatever_it_brings(step: Any) -> None:
    step({"delay_seconds": 5})
    outcome = step({"delay_seconds": 5}, "event", {"event_id": "e7", "event_type": "delay_trigger", "event_data": None})
    assert (outcome.result["status"], outcome.result["event_data"]) == ("completed", None)
    assert (outcome.result["event_id"], outcome.result["service_config"]["delay_ms"]) == ("e7", 5000)


def test_its_event_and_correlation_may_be_named(step: Any) -> None:
    outcome = step({"delay_seconds": 5, "eventType": "hurry", "correlationId": "$INPUT.word"})
    assert (outcome.subscription["event_type"], outcome.subscription["correlation_id"]) == ("hurry", "soon")
    assert outcome.result["service_config"]["event_type"] == "hurry"
