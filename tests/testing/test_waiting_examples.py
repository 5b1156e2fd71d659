"""``examples/waiting``: one worked flow for each kind of wait, tried as their authors would."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from plaita import Flow, Node
from plaita.errors import FlowExecutionException, RefusedError
from plaita.testing import TimeSkippingRunner

EXAMPLES = Path(__file__).parents[2] / "examples" / "waiting"
FLOWS = sorted(EXAMPLES.glob("*.json"))
EXPENSE = {"what": "chairs", "amount": 300, "leads": ["ann", "bob"]}


@pytest.fixture
def run() -> TimeSkippingRunner:
    return TimeSkippingRunner()


@pytest.mark.parametrize("path", FLOWS, ids=lambda path: path.stem)
def test_they_are_read_without_a_warning(path: Path) -> None:
    flow = Flow.from_file(path)
    assert flow.definition.warnings == []
    assert flow.definition.flow_id == path.stem


def test_each_is_tried_here() -> None:
    assert [path.stem for path in FLOWS] == ["expense", "intake", "order-paid", "refund", "reminder", "signature"]


def test_order_paid(run: TimeSkippingRunner) -> None:
    paid = run.start(EXAMPLES / "order-paid.json", {"order": 7})
    other = run.start(EXAMPLES / "order-paid.json", {"order": 8})
    run.advance(hours=47)
    run.publish("order.paid", {"order": {"id": 7}, "amount": 12})
    assert paid.output == {"order": 7, "shipped": True, "paid": 12}
    assert run.finish(other).output == {"order": 8, "shipped": False}
    assert other.lasted == timedelta(hours=48)


@pytest.mark.parametrize(("given", "days"), [({"name": "ann", "days": 0.5}, 0.5), ({"name": "ann", "days": 10}, 10)])
def test_reminder(run: TimeSkippingRunner, given: dict[str, Any], days: float) -> None:
    trial = run(EXAMPLES / "reminder.json", given)
    assert trial.output == ["ann, please answer", "ann, for the second time"]
    assert trial.lasted == timedelta(days=days)


def test_expense_by_both(run: TimeSkippingRunner) -> None:
    trial = run.start(EXAMPLES / "expense.json", EXPENSE)
    assert run.waiting[0].title == "chairs for 300 EUR"
    run.approve("review", by="ann", form={"cost_centre": "K1"})
    run.approve("review", by="bob", form={"cost_centre": "K1"})
    assert (trial.output["paid"], [one["approver_id"] for one in trial.output["by"]]) == (300, ["ann", "bob"])


def test_expense_by_the_boss_the_day_after(run: TimeSkippingRunner) -> None:
    run.after(lambda: run.approve("review", by="boss", form={"cost_centre": "K1"}), hours=24)
    assert run(EXAMPLES / "expense.json", EXPENSE).output["paid"] == 300


def test_expense_refused_and_forgotten(run: TimeSkippingRunner) -> None:
    trial = run.start(EXAMPLES / "expense.json", EXPENSE)
    run.reject("review", by="bob", form={"cost_centre": "K1"})
    assert trial.output == {"paid": 0, "because": "reject"}
    assert run(EXAMPLES / "expense.json", EXPENSE).output == {"paid": 0, "because": "nobody"}


def test_refund(run: TimeSkippingRunner) -> None:
    given = {"customer": "eve", "amount": 12, "think_again_s": 86_400}
    trial = run.start(EXAMPLES / "refund.json", given, execution_id="r-1")
    run.approve("review", by="ann")
    run.approve("review", by="bob")
    run.publish("bank.paid", {"amount": 12, "receipt": "B-17"}, "r-1")
    assert [one.node_id for one in run.waiting] == ["think-again"], "an early event waits for its node"
    assert run.finish(trial).output == {"refunded": 12, "receipt": "B-17"}
    assert trial.lasted == timedelta(days=1)


def test_signature(run: TimeSkippingRunner) -> None:
    trial = run.start(EXAMPLES / "signature.json", {"document": "D-1"})
    url = trial.results["signed"]["service_config"]["callback_config"]["full_url"]
    assert url.startswith("https://flows.example/signatures/default/")
    assert run.call(url, {"document": "D-1"}, method="GET").status == 405
    assert run.call(url, {"document": "D-2", "by": "eve"}).status == 400
    assert run.call(url + "x", {"document": "D-1"}).status == 404
    assert trial.status == "suspended"
    answer = run.call(url, {"document": "D-1", "by": "ann"})
    assert (answer.status, answer.body, trial.output) == (200, b'{"thanks":true}', "ann")
    assert run.call(url, {"document": "D-1"}).status == 409
    late = run(EXAMPLES / "signature.json", {"document": "D-1"})
    assert (late.status, late.lasted) == ("error", timedelta(days=1))


def test_decision_30_a_url_is_given_out_before_the_wait_begins(run: TimeSkippingRunner) -> None:
    nodes = [
        {"type": "start", "id": "s", "next": "mail"},
        {"type": "assignment", "id": "mail", "output": "$F.callback_url('cb')", "next": "cb"},
        {"type": "http_callback", "id": "cb", "next": "again", "successResponse": {"next": "$F.callback_url('cb')"}},
        {
            "type": "if", "id": "again", "next": "mail", "elseNext": "e",
            "condition": {"field": "$NODE.cb.event_data.request_data.body", "operator": "eq", "value": "again"},
        },
        {"type": "end", "id": "e", "output": "$NODE.mail"},
    ]  # fmt: skip
    trial = run.start({"nodes": nodes})
    for visit, body in ((1, "again"), (2, "done")):
        url = trial.results["mail"]
        assert f"/cb/{visit}/" in url
        assert trial.results["cb"]["service_config"]["response_config"]["success"] == {"next": url}
        assert run.call(url, body).status == 200
    assert trial.output == url
    with pytest.raises(FlowExecutionException, match="PLAITA_CALLBACK_SECRET is not set"):
        Flow.from_dict({"nodes": nodes}).run()


def test_intake(run: TimeSkippingRunner) -> None:
    trial = run.start(EXAMPLES / "intake.json")
    run.message("order", {"order": 7})
    assert trial.output == {"order": 7}
    bad = run.start(EXAMPLES / "intake.json")
    run.message("order", "no JSON")
    assert run.finish(bad).status == "error"
    with pytest.raises(RefusedError, match="no redis_queue node 'order' waits"):
        run.message("order", 1)
    assert run(EXAMPLES / "intake.json").output is None


def test_what_the_page_shows_is_true(monkeypatch: pytest.MonkeyPatch) -> None:
    page = (EXAMPLES.parents[1] / "docs" / "waiting.md").read_text("utf-8")
    [shown] = [block for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "TimeSkippingRunner" in block]
    monkeypatch.chdir(EXAMPLES)
    names: dict[str, Any] = {"MyNode": type("MyNode", (Node,), {"node_type": "mine"})}
    exec(compile(shown, "docs/waiting.md", "exec"), names)
    tests = [value for name, value in names.items() if name.startswith("test_")]
    assert len(tests) == 1
    tests[0]()
