"""What waits and how it ends: every way for each waiting node, and the worked flows of ``examples/waiting``. Told once,
to be played on each stage of ``two_stages.py``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from two_stages import Stage

Play = Callable[[Stage, list[Any]], None]
"""What happens to an execution; what it is answered goes to the list."""


def chain(*steps: dict[str, Any]) -> list[dict[str, Any]]:
    names = [step["id"] for step in steps] + ["end"]
    nodes = [{"type": "start", "id": "start", "next": names[0]}]
    nodes += [{**step, "next": after} for step, after in zip(steps, names[1:], strict=True)]
    return [*nodes, {"type": "end", "id": "end", "output": "$NODE"}]


def event(node_id: str, event_type: str, **fields: Any) -> dict[str, Any]:
    return {"type": "event", "id": node_id, "event_type": event_type, **fields}


def review(strategy: str, **fields: Any) -> dict[str, Any]:
    asked = {"approval_title": "pay?", "approval_content": "$INPUT", "approvers": ["ann", "bob", "cleo"]}
    return {"type": "approval", "id": "w", "approval_strategy": strategy, **asked, **fields}


ESCALATES = {"auto_escalation": True, "escalation_timeout_hours": 24, "escalation_approvers": ["boss"]}
ABSENT = {"timeoutHandler": {"strategy": "continue-with", "defaultValue": "nobody said"}}


def delay_ends(stage: Stage, said: list[Any]) -> None:
    stage.at("w")
    stage.deadline()


def by_itself(stage: Stage, said: list[Any]) -> None:
    """Nothing happens."""


def delay_hurried(stage: Stage, said: list[Any]) -> None:
    stage.at("w")
    stage.publish("delay_trigger", {"why": "now"})


def filtered(stage: Stage, said: list[Any]) -> None:
    stage.at("w")
    stage.publish("paid", {"order": {"id": 8}})
    stage.publish("paid", {"order": 7})
    stage.publish("paid", None)
    stage.publish("paid", {"order": {"id": 7.0}, "by": "card"})
    stage.publish("paid", {"order": {"id": 7}, "by": "late"})


def early(stage: Stage, said: list[Any]) -> None:
    stage.at("a")
    stage.publish("second", {"n": 0})
    stage.publish("second", {"ok": True, "n": 1})
    stage.publish("second", {"ok": True, "n": 2})
    stage.publish("first")


def early_for_nobody(stage: Stage, said: list[Any]) -> None:
    stage.at("a")
    stage.publish("second", {"ok": True}, correlated=False)
    stage.publish("first", correlated=False)
    stage.at("b")
    stage.deadline()


def one_event_one_wait(stage: Stage, said: list[Any]) -> None:
    stage.at("a")
    stage.publish("tick", 1, event_id="t1")
    stage.publish("tick", 1, event_id="t1")
    stage.at("b")
    stage.publish("tick", 2, event_id="t2")


def words(*decisions: str, hours: int = 0) -> Play:
    """Decisions as ``ann+`` and ``ann-``; ``@`` lets ``hours`` pass."""

    def play(stage: Stage, said: list[Any]) -> None:
        stage.at("w")
        for one in decisions:
            if one == "@":
                stage.hours(hours)
            else:
                said.append(stage.decide("w", "approve" if one[-1] == "+" else "reject", one[:-1]))

    return play


def no_event_decides(stage: Stage, said: list[Any]) -> None:
    stage.at("w")
    stage.publish("approval_decision", {"final_decision": "approve"})
    stage.publish("approval_decision", {"final_decision": "approve"}, correlated=False)
    said.append(stage.decide("w", "reject", "ann", comment="I say"))


def fails_at_first(stage: Stage, said: list[Any]) -> None:
    stage.at("w")
    stage.publish("go", {"a": 1})


def done(*deeds: Callable[[Stage], Any]) -> Play:
    """At the wait ``w``, one thing after the other; what it is answered is told."""

    def play(stage: Stage, said: list[Any]) -> None:
        stage.at("w")
        said += [answer for answer in (deed(stage) for deed in deeds) if answer is not None]

    return play


def call(body: Any = None, **more: Any) -> Callable[[Stage], Any]:
    return lambda stage: stage.call("w", body, **more)


def called_early(number: int) -> Play:
    """Before the wait, which wants 1."""

    def play(stage: Stage, said: list[Any]) -> None:
        stage.at("a")
        said.append(stage.call("w", {"n": 1}, method="GET"))
        said += [stage.call("w", {"n": number}) for _ in range(2)]
        stage.publish("go")
        if number != 1:
            stage.at("w")
            said.append(stage.call("w", {"n": 1}))

    return play


def resumed(data: Any = None) -> Callable[[Stage], None]:
    return lambda stage: stage.resume(data)


def published(event_type: str, data: Any = None, **more: Any) -> Callable[[Stage], None]:
    return lambda stage: stage.publish(event_type, data, **more)


def messages(*texts: str) -> Callable[[Stage], None]:
    return lambda stage: stage.message("w", *texts)


def overdue(stage: Stage) -> None:
    stage.deadline()


def flow_is_late(stage: Stage) -> None:
    stage.flow_time_up(1)


def cancel(stage: Stage) -> None:
    stage.cancel()


DELAY = {"type": "delay", "id": "w", "delay_seconds": 3, "delay_unit": "days"}
CALLBACK = {"type": "http_callback", "id": "w", "validateParams": {"n": 1}, "successResponse": {"ok": True}}
OK, WRONG = (200, {"ok": True}), "parameter n: it is missing, or not what is wanted"
SECOND = (409, {"status": "error", "message": "this callback was called already, or its time is over"})
TOO_EARLY = (405, {"status": "error", "message": "nobody waits for this call yet"})
KEPT = (202, {"status": "accepted"})
GIVES_OUT = {"type": "assignment", "id": "out", "output": {"url": "$F.callback_url('w')"}}
QUEUE = {"type": "redis_queue", "id": "w", "queueName": "QUEUE", "redisHost": "HOST", "redisPassword": "PASSWORD"}
MINE = {"type": "t_wait", "id": "w", "file": "FILE"}
GO_ON = {"timeoutHandler": {"strategy": "continue"}}

IN_AN_HOUR = {"timeout": "PT1H", "timeoutIncludesWaits": True}
FIELDS = {"the flow's time is up": IN_AN_HOUR, "the flow's time is up first": IN_AN_HOUR}
"""Of the flows of some scenarios."""

# nodes; what happens; what is answered; how it ends
SCENARIOS: dict[str, tuple[list[dict[str, Any]], Play, list[Any], str]] = {
    "a delay ends": (chain(DELAY), delay_ends, [], "completed"),
    "a delay of nothing": (chain({**DELAY, "delay_seconds": 0}), by_itself, [], "completed"),
    "a delay ends earlier": (chain(DELAY), delay_hurried, [], "completed"),
    "a delay with a shorter limit": (chain({**DELAY, "timeout": "PT1H"}), delay_ends, [], "error"),
    "a delay is cancelled": (chain(DELAY), done(cancel), [], "cancelled"),
    "a delay of no time": (chain({**DELAY, "delay_seconds": "$INPUT.word"}), by_itself, [], "error"),
    "a filter": (chain(event("w", "paid", event_filter={"order.id": "$INPUT.order"})), filtered, [], "completed"),
    "no data": (chain(event("w", "go")), done(published("go")), [], "completed"),
    "odd data": (chain(event("w", "go")), done(published("go", {"订单.号": [1.0, None, 2**70]})), [], "completed"),
    "a correlation of its own": (
        chain(event("w", "go", correlation_id="$INPUT.order")),
        done(published("go", 1), published("go", 2, correlated=False), resumed({"by": "hand"})),
        [],
        "completed",
    ),
    "an early event": (
        chain(event("a", "first"), event("b", "second", event_filter={"ok": True})),
        early,
        [],
        "completed",
    ),
    "an early event for nobody": (
        chain(event("a", "first"), event("b", "second", timeout="P1D", **ABSENT)),
        early_for_nobody,
        [],
        "completed",
    ),
    "one event, one wait": (chain(event("a", "tick"), event("b", "tick")), one_event_one_wait, [], "completed"),
    "no event comes": (chain(event("w", "go", subscription_timeout=5000)), done(overdue), [], "error"),
    "no event comes and it goes on": (chain(event("w", "go", timeout="P1D", **GO_ON)), done(overdue), [], "completed"),
    "the flow's time is up": (chain(event("w", "go", timeout="P1D", **ABSENT)), done(flow_is_late), [], "error"),
    "the flow's time is up first": (chain(DELAY), done(flow_is_late), [], "error"),
    "an event is cancelled": (chain(event("w", "go")), done(cancel), [], "cancelled"),
    "an event's correlation is none": (chain(event("w", "go", correlationId="$INPUT.none")), by_itself, [], "error"),
    "resumed with nothing": (chain(event("w", "go")), done(resumed()), [], "completed"),
    "any": (
        chain(review("any")),
        words("eve+", "ann-", "bob+", "cleo+"),
        ["not_an_approver", "taken", "settled", "no_approval"],
        "completed",
    ),
    "all": (chain(review("all")), words("ann+", "ann-", "bob-"), ["taken", "decided_before", "settled"], "completed"),
    "majority": (chain(review("majority")), words("ann+", "bob-", "cleo+"), ["taken", "taken", "settled"], "completed"),
    "escalation": (
        chain(review("all", **ESCALATES)),
        words("boss+", "ann+", "@", "boss-", hours=25),
        ["not_an_approver", "taken", "settled"],
        "completed",
    ),
    "nobody decides": (chain(review("any", subscription_timeout="P3D", **ABSENT)), delay_ends, [], "completed"),
    "nobody decides in time": (chain(review("any", subscription_timeout="P3D")), done(overdue), [], "error"),
    "no event decides": (chain(review("any", approvers=["ann"])), no_event_decides, ["settled"], "completed"),
    "decided by hand": (chain(review("any")), done(resumed({"final_decision": "reject"})), [], "completed"),
    "decided by hand, badly": (chain(review("any")), done(resumed({"final_decision": "maybe"})), [], "error"),
    "nobody to ask": (chain(review("any", approvers="$INPUT.none")), by_itself, [], "error"),
    "cancelled": (chain(review("any")), done(cancel), [], "cancelled"),
    "called": (chain(CALLBACK), done(call({"n": 1, "x": [1]})), [OK], "completed"),
    "called in vain at first": (
        chain(CALLBACK),
        done(call({"n": 2}), call({"n": 1}, method="GET"), call(), call({"n": 1})),
        [
            (400, {"message": WRONG, "status": "error"}),
            (405, {"status": "error", "message": "the method of this callback is POST"}),
            (400, {"message": WRONG, "status": "error"}),
            OK,
        ],
        "completed",
    ),
    "called by one who knows": (
        chain({**CALLBACK, "authToken": "$INPUT.word", "errorResponse": "no"}),
        done(call({"n": 1}), call({"n": 1}, headers={"Authorization": "Bearer soon"})),
        [(401, "no"), OK],
        "completed",
    ),
    "called twice": (chain(CALLBACK), done(call({"n": 1}), call({"n": 1})), [OK, SECOND], "completed"),
    "called early": (
        chain(GIVES_OUT, event("a", "go"), CALLBACK),
        called_early(1),
        [TOO_EARLY, KEPT, SECOND],
        "completed",
    ),
    "called early, and not as wanted": (
        chain(GIVES_OUT, event("a", "go"), CALLBACK),
        called_early(2),
        [TOO_EARLY, KEPT, SECOND, OK],
        "completed",
    ),
    "nobody calls": (chain(CALLBACK), done(overdue), [], "error"),
    "a call is cancelled": (chain({**CALLBACK, "callbackTimeoutMinutes": 0}), done(cancel), [], "cancelled"),
    "a message": (chain(QUEUE), done(messages('{"a": 1.0}')), [], "completed"),
    "messages": (chain({**QUEUE, "batchSize": 3}), done(messages("1", "2")), [], "completed"),
    "a text": (chain({**QUEUE, "messageFormat": "text"}), done(messages("你 {")), [], "completed"),
    "raw": (chain({**QUEUE, "messageFormat": "raw"}), done(messages("x")), [], "completed"),
    "a message that is none": (chain(QUEUE), done(messages("no JSON")), [], "error"),
    "no message comes": (chain({**QUEUE, "timeoutSeconds": 600, **GO_ON}), done(overdue), [], "completed"),
    "a message is cancelled": (chain(QUEUE), done(cancel), [], "cancelled"),
    "a resume fails at first": (chain({**MINE, "fail": 1}), fails_at_first, [], "completed"),
    "a resume fails for good": (chain({**MINE, "fail": 9}), fails_at_first, [], "error"),
    "a resume fails and it goes on": (
        chain({**MINE, "fail": 9, "errorHandler": {"strategy": "continue-with", "defaultValue": 1}}),
        fails_at_first,
        [],
        "completed",
    ),
    "a wait of a plug-in ends": (chain({**MINE, "timeout": "PT1H"}), done(overdue), [], "error"),
    "a wait of a plug-in is cancelled": (chain(MINE), done(cancel), [], "cancelled"),
}


def words_with(form: dict[str, Any], *decisions: tuple[str, str]) -> Play:
    def play(stage: Stage, said: list[Any]) -> None:
        stage.at("review")
        said += [stage.decide("review", word, by, form=form) for by, word in decisions]

    return play


def boss_decides(stage: Stage, said: list[Any]) -> None:
    stage.at("review")
    stage.hours(24)
    said.append(stage.decide("review", "approve", "boss", form={"cost_centre": "K1"}))


def refund_is_paid(stage: Stage, said: list[Any]) -> None:
    stage.at("review")
    said += [stage.decide("review", "approve", by) for by in ("ann", "bob")]
    stage.at("think-again")
    stage.publish("bank.paid", {"amount": 12, "receipt": "B-17"})
    stage.deadline()


def at(node_id: str, deed: Callable[[Stage], Any]) -> Play:
    def play(stage: Stage, said: list[Any]) -> None:
        stage.at(node_id)
        answer = deed(stage)
        said += [] if answer is None else [answer]

    return play


EXPENSE = {"what": "chairs", "amount": 300, "leads": ["ann", "bob"]}
REFUND = {"customer": "eve", "amount": 12, "think_again_s": 86_400}
PAID = {"order": {"id": 7}, "amount": 12}
THANKS = (200, {"thanks": True})

# the flow's file; its input; what happens; what is answered; the output
WORKED: list[tuple[str, Any, Play, list[Any], Any]] = [
    (
        "order-paid",
        {"order": 7},
        at("paid", published("order.paid", PAID)),
        [],
        {"order": 7, "shipped": True, "paid": 12},
    ),
    ("order-paid", {"order": 7}, at("paid", overdue), [], {"order": 7, "shipped": False}),
    (
        "reminder",
        {"name": "ann", "days": 3},
        at("days", overdue),
        [],
        ["ann, please answer", "ann, for the second time"],
    ),
    (
        "expense",
        EXPENSE,
        words_with({"cost_centre": "K"}, ("bob", "reject")),
        ["settled"],
        {"paid": 0, "because": "reject"},
    ),
    ("expense", EXPENSE, at("review", overdue), [], {"paid": 0, "because": "nobody"}),
    ("expense", EXPENSE, boss_decides, ["settled"], None),
    ("refund", REFUND, refund_is_paid, ["taken", "settled"], {"refunded": 12, "receipt": "B-17"}),
    (
        "signature",
        {"document": "D"},
        at("signed", lambda s: s.call("signed", {"document": "D", "by": "ann"})),
        [THANKS],
        "ann",
    ),
    ("intake", {}, at("order", lambda stage: stage.message("order", '{"n": 7}')), [], {"n": 7}),
    ("intake", {}, at("order", overdue), [], None),
]
