"""The guard's own faults (ledger Q4) and the hooks (ledger Q5), without a server."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from plaita.policy.dead_letter_guard import Verdict
from plaita.store.call import Call, Refused, Value
from plaita.store.carriers import Entry
from plaita.store.dead_letters import Buried, GuardFacts
from plaita.store.keys import Keys
from plaita.supervisor.dead_letters import DeadLetters, Notice, Wanted
from plaita.supervisor.stats import Stats

ENTRY = Entry("q", "1700000000000-0", ((b"payload", b"{"),), delivered=2)
KEYS = Keys()
FREE = GuardFacts(True, "running", None, 0, 0, False, "f", b"mark")


class Answers:
    """Answers each call by its name; an exception is raised. Notes what was asked."""

    def __init__(self, facts: Any, bury: Any = None) -> None:
        self._answers = {"dead_letters.guard_facts": facts, "dead_letters.bury": bury}
        self.asked: list[str] = []

    async def send(self, call: Call[Any], **_: Any) -> Any:
        self.asked.append(call.name)
        answer = self._answers[call.name]
        if isinstance(answer, Exception):
            raise answer
        return answer


def asked(answers: Answers, hook: Any = None) -> tuple[Verdict, Stats]:
    stats = Stats()
    office = DeadLetters(KEYS, answers, stats, maxlen=5, max_deliveries=5, patience_ms=1000)  # type: ignore[arg-type]
    if hook is not None:
        office.on_dead_letter += [hook]
    wanted = Wanted(ENTRY, "why", "malformed", (KEYS, "e"))
    return asyncio.run(office.dead_letter_if_allowed(wanted)), stats


@pytest.mark.parametrize(
    ("facts", "bury"),
    [
        (RuntimeError("a bug"), None),
        (None, None),
        (Refused("wrong_type"), None),
        (Value(GuardFacts(False, None, None, 0, 0, False, "", b"")), None),
        (Value(GuardFacts(True, "running", "v2 x", 0, 0, False, "f", b"")), None),
        (Value(FREE), RuntimeError("a bug")),
        (Value(FREE), None),
        (Value(FREE), Refused("wrong_type")),
        (Value(FREE), Refused("changed")),
    ],
)
def test_Q4_a_guard_that_refuses_or_raises_keeps_the_carrier_and_is_counted(facts: Any, bury: Any) -> None:
    verdict, stats = asked(Answers(facts, bury))
    assert verdict is Verdict.KEEP
    assert (stats.get("dlq_guard_skipped"), stats.get("dead_lettered")) == (1, 0)


def test_Q4_what_keeps_changing_is_left_for_another_round() -> None:
    answers = Answers(Value(FREE), Refused("changed"))
    asked(answers)
    assert 1 < answers.asked.count("dead_letters.bury") < 10
    assert answers.asked.count("dead_letters.guard_facts") == answers.asked.count("dead_letters.bury")


def test_Q5_the_hook_is_told_and_one_that_raises_stops_nothing() -> None:
    told: list[Notice] = []

    def hook(notice: Notice) -> None:
        told.append(notice)
        raise RuntimeError("the webhook is down")

    verdict, stats = asked(Answers(Value(FREE), Value(Buried("5-0", 2, "6-0"))), hook)
    assert verdict is Verdict.LET_GO_WITH_COPY
    assert told == [Notice("5-0", "why", "malformed", KEYS.queue, ENTRY.entry_id, "e", 2)]
    assert (stats.get("dead_lettered"), stats.get("dlq_trimmed"), stats.get("dlq_guard_skipped")) == (1, 2, 0)


def test_Q5_trimming_that_fails_is_counted() -> None:
    _, stats = asked(Answers(Value(FREE), Value(Buried("5-0", -1))))
    assert (stats.get("dlq_trimmed"), stats.get("dlq_trim_failures")) == (0, 1)
