"""Whatever people, time and operators do to an approval in whatever order: a small model says what comes of it.

Fixed seeds (DECISIONS 45). The model knows ``policy.approval`` and nothing of scripts: who has decided, whether the
deadline has passed, whether a cancel is asked for. After each move the server agrees with it.
"""

from __future__ import annotations

import random
from collections.abc import Generator
from typing import Any

import pytest

from plaita import jsontext
from plaita.client import approvals
from plaita.errors import RefusedError
from plaita.policy import approval
from plaita.policy.approval import Decided
from plaita.store import delayed, executions

PEOPLE = ("ann", "bob", "cleo", "boss", "eve")
TASK = "approval_w_1"
HOURS_MS = 25 * approval.HOUR_MS


def config(strategy: str, count: int, escalates: bool) -> dict[str, Any]:
    people = {"approvers": list(PEOPLE[:count]), "strategy": strategy, "auto_escalation": escalates}
    return {
        "approval_id": TASK,
        "node_id": "w",
        "execution_id": "e",
        "flow_id": "f",
        "approval_config": {"title": "pay?", "content": None, "type": "manual"},
        "approver_config": people | {"escalation_timeout_hours": 24, "escalation_approvers": ["boss"]},
        "form_config": {"fields": [], "allow_comments": True, "require_comments": False},
        "notification_config": {},
    }


class Model:
    def __init__(self, given: dict[str, Any]) -> None:
        self.terms = approval.terms_of(given)
        self.said: list[Decided] = []
        self.waits_ms = 0
        self.late = self.cancelled = self.gone = False
        self.ended = ""  # by what: event, timeout

    def decide(self, by: str, word: Any) -> str:
        """What the answer is to be."""
        if self.gone or self.ended:
            return "no_approval"
        refusal = approval.refusal(self.terms, self.said, by, "", self.waits_ms)
        if refusal is not None:
            return refusal
        if self.cancelled:
            return "cancelled"
        if self.late:
            return "too_late"
        self.said.append(Decided(by, word))
        if approval.outcome(self.terms, self.said, self.waits_ms) is None:
            return "taken"
        self.ended = "event"
        return "settled"


def perform(world: Any, operation: Generator[Any, Any, Any]) -> Any:
    answer: Any = None
    try:
        while True:
            answer = world.runner.run(operation.send(answer))
    except StopIteration as done:
        return done.value


def answered(world: Any, by: str, word: Any) -> str:
    try:
        answer = perform(world, approvals.decide(world.keys, TASK, word, by))
    except RefusedError as error:
        return error.reason
    return "settled" if answer["settled"] else "taken"


def move(world: Any, model: Model, rng: random.Random) -> None:
    what = rng.choices(("decide", "hours", "deadline", "promote", "cancel", "delete", "event"), (30, 3, 2, 3, 1, 1, 2))[
        0
    ]
    row = world.keys.row("e")
    if what == "decide":
        by, word = rng.choice(PEOPLE), rng.choice(("approve", "reject"))
        assert answered(world, by, word) == model.decide(by, word)
    elif model.gone:
        return
    elif what == "hours":
        world.raw("HINCRBY", row, "wait_since", -HOURS_MS)
        model.waits_ms += HOURS_MS
    elif what == "deadline":
        world.raw("HSET", row, "wait_deadline", 1)
        world.timer_is_due()
        model.late = True
    elif what == "promote":
        moved = world.do(delayed.promote(world.keys)).moved
        assert moved == int(model.late and not model.ended)
        if model.late and not model.ended:
            model.ended = "timeout"
    elif what == "cancel":
        world.do(executions.request_cancel(world.keys, "e", "enough", b"{}"))
        model.cancelled = True
    elif what == "event":
        woken = world.wake(f"ev{rng.random()}", data=b"{}").value.woken
        assert woken == (not model.ended)
        model.ended = model.ended or "event"
    else:
        world.do(executions.delete(world.keys, "e", "gone", force=True, tombstone_ttl_ms=60_000))
        model.gone = True


def check(world: Any, model: Model) -> None:
    open_now = not model.gone and not model.ended
    listed = perform(world, approvals.list_approvals(world.keys))
    assert (listed["total"], len(listed["approvals"])) == (int(open_now), int(open_now))
    assert bool([key for key in world.raw("KEYS", "*") if b":service:" in key]) == open_now
    assert (world.raw("ZCARD", world.keys.delayed) == 1) == open_now
    if model.gone:
        return
    row = world.row()
    assert row["woken"].decode() == model.ended
    kept = jsontext.loads(row["wait_decisions"]) if row["wait_decisions"] else []
    assert [approval.decided(one) for one in kept] == model.said
    carriers = world.raw("XLEN", world.keys.wake)
    cancels = world.raw("EXISTS", world.keys.cancel("e"))
    assert carriers >= int(bool(model.ended))
    if not cancels:
        assert carriers == int(bool(model.ended)), "one wake-up"


@pytest.mark.parametrize("seed", range(24))
def test_whatever_is_done_to_an_approval_it_ends_once_as_the_rules_say(world, seed):
    rng = random.Random(seed)
    given = config(rng.choice(("any", "all", "majority")), rng.randint(1, 3), rng.random() < 0.5)
    world.suspended(
        event_type="approval_decision",
        task_type="approval",
        task_id=TASK,
        config=jsontext.dumps(given),
        timeout_ms=600_000,
    )
    model = Model(given)
    check(world, model)
    for _ in range(14):
        move(world, model, rng)
        check(world, model)
