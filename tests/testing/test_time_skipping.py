"""The runner that skips time: what authors see of it. That it does what supervisors do is
``tests/supervisor/test_same_waits.py``."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar

import pytest

from plaita import EventNode, Flow, Node
from plaita.errors import FlowDefinitionError, FlowExecutionException, FlowWaitsError, InputError, RefusedError
from plaita.nodes.builtin import BUILT_IN
from plaita.nodes.registry import NodeRegistry
from plaita.testing import TimeSkippingRunner

START = datetime(2026, 1, 1, tzinfo=UTC)


class Flaky(Node):
    """Fails so often, then tells its attempt, visit and key."""

    node_type: ClassVar[str] = "flaky"
    fails: int = 0
    seen: ClassVar[list[tuple[int, int, str]]] = []

    def execute(self, execution: Any) -> Any:
        self.seen.append((execution.attempt, execution.visit, execution.idempotency_key))
        if execution.attempt <= self.fails:
            raise RuntimeError("not yet")
        return execution.attempt


class Undone(EventNode):
    """Notes which of its methods ran."""

    node_type: ClassVar[str] = "undone"
    event_type: str | None = "never"
    ran: ClassVar[list[str]] = []

    async def arun(self, execution: Any) -> Any:
        self.ran.append("arun")
        return {"began": True}

    def on_cancel(self, execution: Any) -> None:
        self.ran.append(f"on_cancel {execution.pending}")
        raise RuntimeError("told in the log, and no more")


def chain(*steps: dict[str, Any], output: Any = "$NODE", **fields: Any) -> dict[str, Any]:
    names = [step["id"] for step in steps] + ["end"]
    nodes = [{"type": "start", "id": "start", "next": names[0]}]
    nodes += [{**step, "next": after} for step, after in zip(steps, names[1:], strict=True)]
    return {"flow_id": "f", "nodes": [*nodes, {"type": "end", "id": "end", "output": output}], **fields}


def delay(seconds: Any, node_id: str = "d", **fields: Any) -> dict[str, Any]:
    return {"type": "delay", "id": node_id, "delay_seconds": seconds, **fields}


def event(event_type: str, node_id: str = "e", **fields: Any) -> dict[str, Any]:
    return {"type": "event", "id": node_id, "event_type": event_type, **fields}


REVIEW = {
    "type": "approval",
    "id": "review",
    "approval_title": "pay {% $INPUT.amount %}?",
    "approval_content": "$INPUT",
    "approvers": ["ann", "bob"],
    "approval_strategy": "all",
    "auto_escalation": True,
    "escalation_timeout_hours": 24,
    "escalation_approvers": ["boss"],
    "subscription_timeout": "P3D",
    "timeoutHandler": {"strategy": "continue-with", "defaultValue": {"approved": False}},
}


@pytest.fixture
def run() -> TimeSkippingRunner:
    with TimeSkippingRunner(nodes=[Flaky, Undone], registry=NodeRegistry(BUILT_IN), max_jumps=50) as made:
        Flaky.seen, Undone.ran = [], []
        return made


def test_delays_are_not_waited_for(run: TimeSkippingRunner) -> None:
    trial = run(chain(delay(30, delay_unit="days"), {"type": "assignment", "id": "at", "output": "$F.now()"}))
    assert (trial.status, trial.lasted, run.now) == ("completed", timedelta(days=30), START + timedelta(days=30))
    assert trial.output["at"].startswith("2026-01-31 00:00:00"), "the flow's clock is the runner's"
    assert trial.visited == ["start", "d", "d", "at", "end"]


def test_a_three_day_approval_with_escalation(run: TimeSkippingRunner) -> None:
    flow = chain(REVIEW, output="$NODE.review.approved")
    trial = run.start(flow, {"amount": 12})
    [waiting] = run.waiting
    assert (waiting.node_id, waiting.node_type, waiting.title) == ("review", "approval", "pay 12?")
    assert (waiting.since, waiting.until) == (START, START + timedelta(days=3))
    assert waiting.undecided == ("ann", "bob")
    with pytest.raises(RefusedError, match="their word is not asked for here"):
        run.approve("review", by="boss")
    assert run.approve("review", by="ann", comment="fine")["settled"] is False
    with pytest.raises(RefusedError, match="decided already"):
        run.reject("review", by="ann")
    run.advance(hours=23, minutes=59, seconds=59)
    assert run.waiting[0].undecided == ("bob",)
    run.advance(seconds=1)
    assert run.waiting[0].undecided == ("bob", "boss")
    answer = run.approve(str(waiting.approval_id), by=" boss ")
    assert (answer["settled"], answer["final_decision"]) == (True, "approve")
    assert (trial.status, trial.output, run.waiting) == ("completed", True, [])
    details = trial.results["review"]["event_data"]["approval_details"]
    assert [(one["approver_id"], one["comments"]) for one in details] == [("ann", "fine"), ("boss", "")]
    with pytest.raises(RefusedError, match="nobody is asked for this approval"):
        run.approve("review", by="bob")


def test_an_approval_that_nobody_decides_ends_at_its_deadline(run: TimeSkippingRunner) -> None:
    trial = run(chain(REVIEW, output="$NODE.review.approved"), {"amount": 1})
    assert (trial.output, trial.lasted) == (False, timedelta(days=3))


def test_what_is_asked_again_is_another_approval(run: TimeSkippingRunner) -> None:
    flow = chain({**REVIEW, "approval_strategy": "any", "approvers": ["ann"]}, {"type": "if", "id": "ok"})
    branch = flow["nodes"][2]
    branch["condition"] = {"field": "$NODE.review.approved", "operator": "eq", "value": True}
    branch["elseNext"] = "review"
    trial = run.start(flow, {"amount": 1})
    first = run.waiting[0].approval_id
    run.reject("review", by="ann")
    second = run.waiting[0].approval_id
    assert first != second
    with pytest.raises(RefusedError, match="nobody is asked"):
        run.approve(str(first), by="ann")
    run.approve(str(second), by="ann")
    assert trial.status == "completed"


def test_a_decision_that_is_due_with_the_deadline_is_too_late(run: TimeSkippingRunner) -> None:
    run.after(lambda: run.approve("review", by="ann"), days=3)
    run.start(chain({**REVIEW, "approval_strategy": "any"}), {"amount": 1})
    with pytest.raises(RefusedError, match="its time was over"):
        run.advance(days=3)


def test_what_is_planned_happens_in_its_turn(run: TimeSkippingRunner) -> None:
    said: list[datetime] = []
    run.after(lambda: (said.append(run.now), run.approve("review", by="bob")), hours=2)
    run.after(lambda: (said.append(run.now), run.approve("review", by="ann")), hours=1)
    trial = run(chain(REVIEW), {"amount": 1})
    assert trial.status == "completed"
    assert said == [START + timedelta(hours=1), START + timedelta(hours=2)]


def test_a_form_and_a_comment_are_judged_as_by_the_client(run: TimeSkippingRunner) -> None:
    run.start(chain({**REVIEW, "form_fields": [{"name": "amount", "required": True}]}), {"amount": 1})
    with pytest.raises(InputError, match="the field 'amount' is required"):
        run.approve("review", by="ann")
    with pytest.raises(InputError, match="who decides is missing"):
        run.approve("review", by=" ")
    run.reject("review", by="ann", form={"amount": 3})


def test_events_reach_whom_they_concern(run: TimeSkippingRunner) -> None:
    flow = chain(event("paid", event_filter={"order.id": "$INPUT.order"}), output="$NODE.e.event_data")
    first, second = run.start(flow, {"order": 1}), run.start(flow, {"order": 2}, execution_id="x2")
    run.publish("paid", {"order": {"id": 3}})
    run.publish("shipped", {"order": {"id": 1}})
    run.publish("paid", {"order": {"id": 1}}, correlation_id="x2")
    assert [trial.status for trial in (first, second)] == ["suspended", "suspended"]
    run.publish("paid", {"order": {"id": 1.0}, "by": "card"})
    assert first.output == {"order": {"id": 1.0}, "by": "card"}
    run.publish("paid", {"order": {"id": 2}}, correlation_id="x2")
    assert (second.status, run.waiting) == ("completed", [])


def test_one_event_id_is_one_event_and_ends_one_wait(run: TimeSkippingRunner) -> None:
    trial = run.start(chain(event("tick", "a"), event("tick", "b")), execution_id="x")
    assert run.publish("tick", 1, "x", event_id="t1").duplicate is False
    assert run.publish("tick", 1, "x", event_id="t1").duplicate is True
    assert [one.node_id for one in run.waiting] == ["b"]
    run.publish("tick", 2, "x")
    assert (trial.output["a"]["event_data"], trial.output["b"]["event_data"]) == (1, 2)


def test_an_event_that_came_before_its_wait(run: TimeSkippingRunner) -> None:
    run.publish("paid", {"ok": True, "n": "before it was there"}, "x")
    trial = run.start(chain(delay(3600), event("paid", event_filter={"ok": True})), execution_id="x")
    run.publish("paid", {"ok": False}, "x")
    run.publish("paid", {"ok": True, "n": 1}, "x")
    run.publish("paid", {"ok": True, "n": 2}, "x")
    run.publish("paid", {"ok": True, "n": 3})
    run.finish(trial)
    assert trial.output["e"]["event_data"] == {"ok": True, "n": 1}
    assert trial.lasted == timedelta(hours=1)


def test_an_event_is_kept_for_seven_days(run: TimeSkippingRunner) -> None:
    trial = run.start(chain(delay(7, delay_unit="days"), event("paid")), execution_id="x")
    run.publish("paid", correlation_id="x")
    with pytest.raises(FlowWaitsError):
        run.finish(trial)


@pytest.mark.parametrize(("included", "status", "hours"), [(False, "completed", 4), (True, "error", 3)])
def test_rule_15_waits_count_for_the_flow_where_it_says_so(
    run: TimeSkippingRunner, included: bool, status: str, hours: int
) -> None:
    waits = [delay(7200, "a"), event("never", "b", timeout="PT2H", timeoutHandler={"strategy": "continue"})]
    trial = run(chain(*waits, timeout="PT3H", timeoutIncludesWaits=included))
    assert (trial.status, trial.lasted) == (status, timedelta(hours=hours))
    if included:
        assert trial.error is not None
        assert (trial.error.code, trial.error.error_type) == (-1, "flow_error")


def test_a_wait_that_a_service_elsewhere_ends_is_ended_by_hand(run: TimeSkippingRunner) -> None:
    trial = run.start(chain(REVIEW), {"amount": 1})
    assert run.resume(trial, {"final_decision": "approve"}) is True
    assert (trial.status, run.resume(trial)) == ("completed", False)


def test_nothing_that_could_end_it_is_said(run: TimeSkippingRunner) -> None:
    with pytest.raises(FlowWaitsError, match=r"node 'e' waits for an event of type 'paid' for 'x', without a deadline"):
        run(chain(event("paid")), execution_id="x")
    with pytest.raises(FlowWaitsError, match=r"the approval 'approval_review_.*' by ann, bob"):
        run(chain({**REVIEW, "subscription_timeout": None}), {"amount": 1})


def test_a_published_event_ends_no_approval(run: TimeSkippingRunner) -> None:
    trial = run.start(chain(REVIEW), {"amount": 1}, execution_id="x")
    run.publish("approval_decision", {"final_decision": "approve"}, "x")
    run.publish("approval_decision", {"final_decision": "approve"})
    assert trial.status == "suspended"


def test_a_timeout_without_a_handler_is_an_error(run: TimeSkippingRunner) -> None:
    trial = run(chain(event("paid", timeout="PT1H")))
    assert trial.error is not None
    assert (trial.status, trial.error.code, trial.error.failed_node) == ("error", -1, "e")


@pytest.mark.parametrize(("fails", "status", "lasted"), [(0, "completed", 0), (3, "completed", 7), (5, "error", 15)])
def test_a_node_that_fails_is_tried_again_later(run: TimeSkippingRunner, fails: int, status: str, lasted: int) -> None:
    trial = run(chain({"type": "flaky", "id": "n", "fails": fails}))
    assert (trial.status, trial.lasted) == (status, timedelta(seconds=lasted))
    assert [attempt for attempt, _, _ in Flaky.seen] == list(range(1, min(fails + 1, 5) + 1))
    assert len({(visit, key) for _, visit, key in Flaky.seen}) == 1, "attempts of one visit"


def test_a_node_met_again_is_another_visit(run: TimeSkippingRunner) -> None:
    flow = chain(delay(60), {"type": "flaky", "id": "n"})
    flow["nodes"][2]["next"] = "d"
    with pytest.raises(FlowExecutionException, match="has not ended after"):
        run(flow)
    assert [visit for _, visit, _ in Flaky.seen[:3]] == [1, 2, 3]
    assert len({key for _, _, key in Flaky.seen[:3]}) == 3


def test_S8_cancel_undoes_the_wait(run: TimeSkippingRunner) -> None:
    trial = run.start(chain({"type": "undone", "id": "u"}))
    assert run.cancel(trial, "enough") is True
    assert trial.error is not None
    assert (trial.status, trial.error.code, run.waiting) == ("cancelled", -4, [])
    assert Undone.ran == ["arun", "on_cancel {'began': True}"]
    assert run.cancel(trial) is False
    run.publish("never")
    assert trial.status == "cancelled"


def test_a_cancel_ends_what_is_tried_again(run: TimeSkippingRunner) -> None:
    trial = run.start(chain({"type": "flaky", "id": "n", "fails": 3}))
    assert trial.status == "running"
    run.cancel(trial)
    run.advance(hours=1)
    assert (trial.status, len(Flaky.seen)) == ("cancelled", 1)


def test_flows_come_in_every_form(run: TimeSkippingRunner, tmp_path: Path) -> None:
    definition = chain({"type": "mock", "id": "m", "value": 1}, output="$NODE.m")
    text = json.dumps(definition)
    (tmp_path / "flow.json").write_text(text)
    for flow in (definition, text, text.encode(), tmp_path / "flow.json", Flow.from_dict(definition)):
        assert run(flow).output == 1
    with pytest.raises(FlowDefinitionError, match="unknown node type 'nope'"):
        run(chain({"type": "nope", "id": "m"}))


def test_bad_calls_are_refused(run: TimeSkippingRunner) -> None:
    with pytest.raises(InputError, match="input"):
        run(chain(), {"n": float("nan")})
    run(chain(), execution_id="x")
    with pytest.raises(InputError, match="'x' is there already"):
        run(chain(), execution_id="x")
    with pytest.raises(InputError, match="negative"):
        run.advance(hours=-1)
    with pytest.raises(InputError, match="event type"):
        run.publish("")
    run.start(chain(REVIEW), {"amount": 1})
    run.start(chain(REVIEW), {"amount": 2})
    with pytest.raises(InputError, match="several wait at node 'review'"):
        run.approve("review", by="ann")


def test_the_runners_types_are_its_own(run: TimeSkippingRunner) -> None:
    assert run(chain({"type": "flaky", "id": "n"})).status == "completed"
    with TimeSkippingRunner() as other, pytest.raises(FlowDefinitionError, match="flaky"):
        other(chain({"type": "flaky", "id": "n"}))


STUCK: list[tuple[dict[str, Any], list[tuple[str, Any, str | None]], str]] = [
    (event("paid"), [], r"is planned\. Use start\(\), then publish\('paid', data\), or plan that with after\(\)"),
    (event("paid", correlation_id="c"), [], r"publish\('paid', data, correlation_id='c'\)"),
    (event("paid"), [("payed", 1, None)], r"Published and not for it: 'payed': another type\. Use"),
    (event("paid"), [("paid", 1, "y")], r"'paid' for 'y': another correlation"),
    (event("paid", correlation_id="c"), [("paid", 1, None)], "no correlation, and the node says correlationId 'c'"),
    (event("paid", event_filter={"a.b": 7}), [("paid", {"a": 1}, None)], "its data have nothing at 'a.b'"),
    (event("paid", event_filter={"a.b": 7}), [("paid", {"a": {"b": "7"}}, None)], "have '7' at 'a.b', 7 is wanted"),
    (event("paid", event_filter={"b": True}), [("paid", {"b": 1}, "x")], "have 1 at 'b', true is wanted"),
    ({**REVIEW, "subscription_timeout": None}, [], r"approve\('review', by=\.\.\.\) or reject\('review', by=\.\.\.\)"),
    (
        {"type": "http_callback", "id": "cb", "callback_timeout_minutes": 0},
        [],
        r"a call to its URL.*call\('cb', body\)",
    ),
    ({"type": "redis_queue", "id": "q", "queue_name": "jobs"}, [], r"a message of 'jobs'.*message\('q', message\)"),
]


@pytest.mark.parametrize(("node", "published", "said"), STUCK)
def test_why_nothing_ends_a_wait_is_said(
    run: TimeSkippingRunner, node: dict[str, Any], published: list[tuple[str, Any, str | None]], said: str
) -> None:
    trial = run.start(chain(node), {"amount": 1}, execution_id="x")
    for event_type, data, correlation in published:
        run.publish(event_type, data, correlation)
    with pytest.raises(FlowWaitsError, match=said):
        run.finish(trial)


def test_an_event_that_was_published_too_early_is_named(run: TimeSkippingRunner) -> None:
    run.publish("b", 1, "x")
    trial = run.start(chain(event("a", "a"), event("b", "b")), execution_id="x")
    run.publish("b", 2)
    run.publish("a")
    with pytest.raises(FlowWaitsError) as caught:
        run.finish(trial)
    assert "'b' for 'x': it came before the execution was started" in str(caught.value)
    assert "'b': it came before the wait began, and without a correlation nobody keeps it" in str(caught.value)
    for _ in range(7):
        run.publish("c")
    with pytest.raises(FlowWaitsError, match="and 5 more"):
        run.finish(trial)


def test_a_flow_that_goes_round_is_told_where(run: TimeSkippingRunner) -> None:
    waits = chain(delay(60))
    waits["nodes"][1]["next"] = "d"
    with pytest.raises(FlowExecutionException, match=r"50 jumps in time, until 2026-01-01T00:50:00.*goes round by 'd'"):
        run(waits)
    with pytest.raises(FlowWaitsError, match="node 'e' waits for an event of type 'paid'"):
        run(chain(event("paid")))  # while the other goes round
    busy = chain({"type": "mock", "id": "a"}, {"type": "mock", "id": "b"})
    busy["nodes"][2]["next"] = "a"
    with pytest.raises(
        FlowExecutionException, match=r"has taken 10000 steps without a wait: it goes round by '[ab]', "
    ):
        run(busy)
    run.start(waits)
    with pytest.raises(FlowExecutionException, match="more than 50 things are due"):
        run.advance(days=1)


def test_a_name_that_nobody_has_is_told_with_the_nearest(run: TimeSkippingRunner) -> None:
    run.start(chain(REVIEW), {"amount": 1})
    run.start(chain({"type": "http_callback", "id": "signed"}, {"type": "redis_queue", "id": "q", "queue_name": "q"}))
    with pytest.raises(RefusedError, match="did you mean 'review'"):
        run.approve("reviw", by="ann")
    with pytest.raises(InputError, match="an http_callback node 'singed'; did you mean 'signed'"):
        run.call("singed")
    assert run.call("/callback/x/y").status == 404, "a URL may be any"
    with pytest.raises(RefusedError, match=r"no redis_queue node 'q' waits; nothing of that kind waits"):
        run.message("q", 1)
    with pytest.raises(InputError, match="messages: there is none"):
        run.message("q")
    with pytest.raises(InputError, match=r"the name of a file; give Path\('flow.json'\)"):
        run.start("flow.json")


@pytest.mark.parametrize("span", [{"days": 10**9}, {"hours": "1"}, {"days": 40_000}, {"hours": float("nan")}])
def test_what_is_no_time_is_refused(run: TimeSkippingRunner, span: Any) -> None:
    with pytest.raises(InputError, match="time: "):
        run.advance(**span)
    assert run.now == START


def test_a_trial_shows_where_it_is_and_why_it_failed(run: TimeSkippingRunner) -> None:
    trial = run.start(chain(event("paid", timeout="PT1H")), execution_id="x")
    assert repr(trial) == "<Trial x suspended at 'e'>"
    run.advance(hours=1)
    assert repr(trial).startswith("<Trial x error: ")
    assert "no event of type 'paid' came in time" in repr(trial)


def test_E5_a_schedule_starts_executions_as_time_goes_by(run: TimeSkippingRunner) -> None:
    flow = chain(
        {"type": "assignment", "id": "at", "output": "{% $INPUT.to %} {% $F.now('%m-%d %H:%M') %}"}, output="$NODE.at"
    )
    started = run.schedule(flow, "30 2 * * *", {"to": "ann"}, tz="Europe/Berlin")
    assert started == []
    run.advance(days=2)
    assert [one.output for one in started] == ["ann 01-01 01:30", "ann 01-02 01:30"]
    with pytest.raises(FlowWaitsError):
        run(chain(event("paid")))  # what a schedule starts ends no wait of others
    with pytest.raises(InputError, match="cron: "):
        run.schedule(flow, "0 0 31 2 *")


def test_E5_a_schedule_keeps_the_calendar_of_its_zone() -> None:
    with TimeSkippingRunner(beginning=datetime(2026, 3, 27, tzinfo=UTC)) as run:
        started = run.schedule(chain(output="$F.now('%m-%d %H:%M')"), "30 2 * * *", tz="Europe/Berlin")
        run.advance(days=4)
        assert [one.output for one in started] == ["03-27 01:30", "03-28 01:30", "03-29 01:00", "03-30 00:30"]


def test_decision_30_a_call_that_comes_before_its_wait_is_kept_for_it(run: TimeSkippingRunner) -> None:
    nodes = [delay(7, "d", delay_unit="days"), {"type": "http_callback", "id": "cb", "validate_params": {"n": 1}}]
    flow = chain({"type": "assignment", "id": "out", "output": "$F.callback_url('cb')"}, *nodes)
    first = run.start(flow)
    assert run.call("cb", {"n": 1}, method="GET").status == 405
    assert [run.call(each, {"n": 1}).status for each in (first.results["out"], "cb")] == [202, 409]
    second = run.start(flow)
    with pytest.raises(InputError, match="several executions have the node 'cb'"):
        run.call("cb", {"n": 1})
    assert run.call(second.results["out"], {"n": 2}).status == 202
    assert run.call(second.results["out"][:-1] + "x", {"n": 1}).status == 404
    run.advance(days=7)
    assert first.output["cb"]["event_data"]["request_data"]["body"] == {"n": 1}
    assert (second.status, "the call that came early is dropped" in second.warnings[0]) == ("suspended", True)
    assert run.call("cb", b"x" * 65_537).status == 413
    assert run.call("cb", {"n": 1}).status == 200
    assert [run.call(trial.results["out"], {"n": 1}).status for trial in (first, second)] == [409, 409]
    late = run.start(chain({"type": "assignment", "id": "out", "output": "$F.callback_url('cb')"}, nodes[1]))
    run.cancel(late)
    assert run.call(late.results["out"], {"n": 1}).status == 409


def test_an_early_call_is_kept_for_seven_days(run: TimeSkippingRunner) -> None:
    trial = run.start(chain(delay(8, delay_unit="days"), {"type": "http_callback", "id": "cb"}))
    assert run.call("cb").status == 202
    run.advance(days=8)
    assert trial.status == "suspended"
