"""The node ``approval``: what it asks, of whom, and what a decision makes of it (FLOW-FORMAT 2.3, rule 16)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from plaita.errors import FlowDefinitionError
from plaita.flow.context import Context
from plaita.flow.engine import run_step
from plaita.flow.outcome import Advanced, Failed, Suspended
from plaita.nodes.approval import MAX_CONFIG_BYTES
from plaita.nodes.base import enter
from plaita.nodes.execution import Execution
from plaita.policy import approval

NOW_MS = 1_700_000_000_000
GIVEN: dict[str, Any] = {
    "people": ["ann", "bob", "ann"],
    "one": "ann",
    "title": "pay 12?",
    "hours": 0.5,
    "none": None,
    "empty": [],
    "blank": ["ann", " "],
    "mixed": ["ann", 5],
    "many": [f"p{n}" for n in range(1001)],
    "long": ["x" * 201],
    "nan": float("nan"),
    "minus": -1,
    "flag": True,
    "fields": [{"name": "amount", "required": True}],
    "bad_fields": [{"label": "amount"}],
    "big": "x" * MAX_CONFIG_BYTES,
}
ASKS: dict[str, Any] = {"approval_title": "pay?", "approval_content": "12 EUR", "approvers": ["ann", "bob"]}


def flow_of(fields: dict[str, Any]) -> dict[str, Any]:
    node = {"type": "approval", "id": "w", "next": "e", **fields}
    return {"flow_id": "f", "nodes": [{"type": "start", "id": "s", "next": "w"}, node, {"type": "end", "id": "e"}]}


@pytest.fixture
def step(parse: Callable[..., Any]) -> Callable[..., Any]:
    context = Context(execution_id="x1", flow_id="f", input=GIVEN)

    def step(fields: dict[str, Any], action: Any = "execute", event: Any = None) -> Any:
        return run_step(
            parse(flow_of(fields)),
            context,
            "w",
            call=lambda node: enter(node, Execution(node, context)),
            now_ms=NOW_MS,
            action=action,
            event=event,
        )

    return step


def test_it_asks_by_a_service_and_no_event_can_end_it(step: Any) -> None:
    outcome = step(ASKS)
    assert isinstance(outcome, Suspended)
    config = outcome.result["service_config"]
    service = outcome.subscription["service"]
    assert (service["type"], service["task_id"], service["config"]) == ("approval", config["approval_id"], config)
    assert config["approval_id"].startswith("approval_w_")
    assert config["approval_config"] == {
        "title": "pay?",
        "content": "12 EUR",
        "type": "manual",
        "created_time": NOW_MS,
    }
    assert config["approver_config"] == {
        "approvers": ["ann", "bob"],
        "strategy": "any",
        "auto_escalation": False,
        "escalation_timeout_hours": 24,
        "escalation_approvers": [],
    }
    assert config["form_config"] == {"fields": [], "allow_comments": True, "require_comments": False}
    assert (outcome.result["event_type"], outcome.result["node_subtype"]) == ("approval_decision", "approval")
    assert step(ASKS).result["service_config"]["approval_id"] == config["approval_id"], "one question, one approval"


def test_every_field_by_both_of_its_names(step: Any) -> None:
    snake = {
        "approval_title": "$INPUT.title",
        "approval_content": {"who": "$INPUT.one"},
        "approval_type": "payment",
        "approvers": "$INPUT.people",
        "approval_strategy": "majority",
        "auto_escalation": True,
        "escalation_timeout_hours": "$INPUT.hours",
        "escalation_approvers": ["$INPUT.one", "cleo"],
        "form_fields": "$INPUT.fields",
        "allow_comments": True,
        "require_comments": True,
        "notification_config": {"mail": "{% $INPUT.one %}@example.org"},
        "subscription_timeout": "P3D",
    }
    camel = {_camel(name): value for name, value in snake.items()}
    one, other = step(snake), step(camel)
    assert one.result == other.result
    assert one.subscription == other.subscription
    config = one.result["service_config"]
    assert config["approval_config"]["title"] == "pay 12?"
    assert config["approval_config"]["content"] == {"who": "ann"}
    assert config["approval_config"]["type"] == "payment"
    assert config["approver_config"]["approvers"] == ["ann", "bob"], "named twice is one person with one word"
    assert config["approver_config"]["escalation_approvers"] == ["ann", "cleo"]
    assert config["notification_config"] == {"mail": "ann@example.org"}
    assert one.subscription["timeout_ms"] == 3 * 86_400_000
    terms = approval.terms_of(config)
    assert (terms.strategy, terms.escalation_after_ms, terms.require_comments) == ("majority", 1_800_000, True)
    assert approval.form_fields(config) == {"amount": True}


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.title() for word in rest)


@pytest.mark.parametrize(
    ("fields", "place", "expected"),
    [
        ({"approvers": "ann"}, ("approver_config", "approvers"), ["ann"]),
        ({"approvers": [" ann ", "ann"]}, ("approver_config", "approvers"), ["ann"]),
        ({"approvers": ["Jose\u0301", "Jos\u00e9"]}, ("approver_config", "approvers"), ["Jos\u00e9"]),
        ({"approvers": "$INPUT.one"}, ("approver_config", "approvers"), ["ann"]),
        ({"approvers": GIVEN["many"][:1000]}, ("approver_config", "approvers"), GIVEN["many"][:1000]),
        ({"approval_strategy": None}, ("approver_config", "strategy"), "any"),
        ({"escalation_timeout_hours": None}, ("approver_config", "escalation_timeout_hours"), 24),
        ({"escalation_timeout_hours": "$INPUT.none"}, ("approver_config", "escalation_timeout_hours"), 24),
        ({"escalation_timeout_hours": 0}, ("approver_config", "escalation_timeout_hours"), 0),
        ({"escalation_approvers": None}, ("approver_config", "escalation_approvers"), []),
        ({"form_fields": None}, ("form_config", "fields"), []),
        ({"approval_content": None}, ("approval_config", "content"), None),
        ({"approval_title": "$INPUT.none"}, ("approval_config", "title"), "$INPUT.none"),
        ({"event_type": "mine"}, ("event_type",), "approval_decision"),
    ],
)
def test_lenient_where_it_is_clear(step: Any, fields: dict[str, Any], place: tuple[str, ...], expected: Any) -> None:
    value = step({**ASKS, **fields}).result["service_config"]
    for name in place:
        value = value[name]
    assert value == expected


REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"approvers": []}, "approvers", "gives 0 names; 1 to 1000 are wanted"),
    ({"approvers": None}, "approvers", "gives None: a list of names"),
    ({"approvers": ""}, "approvers", "none of them empty"),
    ({"approvers": ["ann", ""]}, "approvers", "none of them empty"),
    ({"approvers": ["ann", 5]}, "approvers", "a list of names is wanted"),
    ({"approvers": {"ann": 1}}, "approvers", "gives an object"),
    ({"approvers": GIVEN["many"]}, "approvers", "gives 1001 names"),
    ({"approvers": ["x" * 201]}, "approvers", "has 201 characters; at most 200"),
    ({"approval_title": ""}, "approval_title", "a text that is not empty"),
    ({"approval_title": None}, "approval_title", "gives None"),
    ({"approval_title": 5}, "approval_title", "gives 5"),
    ({"approval_strategy": "most"}, "approval_strategy", "any"),
    ({"auto_escalation": True}, "escalation_approvers", "gives 0 names; 1 to 1000"),
    ({"auto_escalation": "yes please"}, "auto_escalation", "true or false is wanted"),
    ({"escalation_timeout_hours": -1}, "escalation_timeout_hours", "from 0 to 878400 is wanted"),
    ({"escalation_timeout_hours": True}, "escalation_timeout_hours", "gives True"),
    ({"escalation_timeout_hours": "24"}, "escalation_timeout_hours", "gives '24'"),
    ({"escalation_timeout_hours": 10**400}, "escalation_timeout_hours", "from 0 to 878400 is wanted"),
    ({"form_fields": "amount"}, "form_fields", "a list of objects"),
    ({"form_fields": ["amount"]}, "form_fields", "form_fields[0]: 'amount' is no object with a name"),
    ({"form_fields": [{"name": ""}]}, "form_fields", "is no object with a name"),
    ({"form_fields": [{"name": "a", "required": "false"}]}, "form_fields", "true or false is wanted"),
    ({"require_comments": True, "allow_comments": False}, "require_comments", "required and not allowed"),
]


@pytest.mark.parametrize(("fields", "place", "reason"), REFUSED)
def test_what_cannot_be_asked_is_refused_when_the_flow_is_read(
    parse: Callable[..., Any], fields: dict[str, Any], place: str, reason: str
) -> None:
    with pytest.raises(FlowDefinitionError) as caught:
        parse(flow_of({**ASKS, **fields}))
    [problem] = caught.value.problems
    assert problem.place == f"nodes[1].{place}"
    assert reason in problem.reason


def test_a_title_that_gives_nothing_is_warned_of(step: Any) -> None:
    assert "gives nothing: it is shown as it is written" in step({**ASKS, "approval_title": "$INPUT.none"}).warnings[0]
    assert step(ASKS).warnings == ()


@pytest.mark.parametrize("missing", sorted(ASKS))
def test_what_must_be_said(parse: Callable[..., Any], missing: str) -> None:
    with pytest.raises(FlowDefinitionError) as caught:
        parse(flow_of({name: value for name, value in ASKS.items() if name != missing}))
    [problem] = caught.value.problems
    assert missing in problem.place


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"approvers": "$INPUT.empty"}, "approvers gives 0 names"),
        ({"approvers": "$INPUT.none"}, "approvers gives None"),
        ({"approvers": "$INPUT.blank"}, "none of them empty"),
        ({"approvers": "$INPUT.mixed"}, "a list of names is wanted"),
        ({"approvers": "$INPUT.many"}, "approvers gives 1001 names"),
        ({"approvers": "$INPUT.long"}, "has 201 characters"),
        ({"approvers": ["$INPUT.none"]}, "a list of names is wanted"),
        ({"approval_title": "$INPUT.people"}, "approval_title gives a list"),
        ({"escalation_timeout_hours": "$INPUT.nan"}, "escalation_timeout_hours gives nan"),
        ({"escalation_timeout_hours": "$INPUT.minus"}, "escalation_timeout_hours gives -1"),
        ({"escalation_timeout_hours": "$INPUT.flag"}, "escalation_timeout_hours gives True"),
        ({"auto_escalation": True, "escalation_approvers": "$INPUT.none"}, "escalation_approvers gives None"),
        ({"form_fields": "$INPUT.bad_fields"}, "form_fields[0]: an object is no object with a name"),
        ({"approval_content": "$INPUT.big"}, f"the limit is {MAX_CONFIG_BYTES}"),
    ],
)
def test_what_the_input_makes_impossible_is_a_failure_of_the_node(
    step: Any, fields: dict[str, Any], reason: str
) -> None:
    failed = step({**ASKS, **fields})
    assert isinstance(failed, Failed)
    assert reason in failed.error.message
    assert failed.error.retryable is False


@pytest.mark.parametrize(("word", "approved"), [("approve", True), ("reject", False)])
def test_rule_16_the_result_says_whether_it_is_approved(step: Any, word: str, approved: bool) -> None:
    config = step(ASKS).result["service_config"]
    details = [{"approver_id": "ann", "decision": word, "comments": "", "timestamp": 1}]
    said = approval.event_data(config, word, details, "default", 2)  # type: ignore[arg-type]
    told = {"event_id": "d1", "event_type": "approval_decision", "event_data": said}
    outcome = step(ASKS, "event", told)
    assert isinstance(outcome, Advanced)
    result = outcome.result
    assert (result["approved"], result["final_decision"], result["status"]) == (approved, word, "completed")
    assert result["event_data"]["approval_details"] == details
    assert result["event_data"]["trigger_type"] == "approval_completed"


@pytest.mark.parametrize(
    "data",
    [
        None,
        {},
        {"final_decision": "maybe"},
        {"final_decision": True},
        ["approve"],
        "approve",
        {"event_data": {"final_decision": "approve"}},
    ],
)
def test_S7_data_that_holds_no_decision_is_a_failure_that_is_retried(step: Any, data: Any) -> None:
    step(ASKS)
    failed = step(ASKS, "event", data)
    assert isinstance(failed, Failed)
    assert "approve or reject is wanted" in failed.error.message
    assert failed.error.retryable is True


def test_S7_an_operator_may_say_it_directly(step: Any) -> None:
    step(ASKS)
    assert step(ASKS, "event", {"final_decision": "approve"}).result["approved"] is True


def test_its_deadline_is_a_timeout_for_its_handler(step: Any) -> None:
    fields = {**ASKS, "subscription_timeout": 60}
    step(fields)
    failed = step(fields, "timeout")
    assert (failed.error.exception, failed.error.code) == ("NodeTimeoutError", -1)
    assert "no decision came in time" in failed.error.message
    fields["timeoutHandler"] = {"strategy": "continue-with", "defaultValue": {"approved": False}}
    assert step(fields, "timeout").result == {"approved": False}
