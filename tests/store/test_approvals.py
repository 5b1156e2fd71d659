"""Approvals at a real server: tasks, decisions by compare-and-set, and none is left behind (rule 16, DECISIONS 26).

The operations of ``plaita.client.approvals`` are driven call by call, so that what happens between two calls of one
person is the test's to say.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

import pytest

from plaita import jsontext
from plaita.client import approvals, tenants
from plaita.client.operations import Pause
from plaita.errors import InputError, RefusedError
from plaita.policy import approval
from plaita.store import delayed, executions, tasks
from plaita.store.call import Value
from plaita.store.keys import Keys
from plaita.store.tasks import Decide

TASK = "approval_w_1"


def config(strategy: str = "any", approvers: tuple[str, ...] = ("ann", "bob", "cleo"), **more: Any) -> dict[str, Any]:
    people = {"approvers": list(approvers), "strategy": strategy, "auto_escalation": False}
    people |= {"escalation_timeout_hours": 24, "escalation_approvers": []}
    form = {"fields": [], "allow_comments": True, "require_comments": False}
    return {
        "approval_id": TASK,
        "node_id": "w",
        "execution_id": "e",
        "flow_id": "f",
        "approval_config": {"title": "pay?", "content": {"amount": 12}, "type": "manual", "created_time": 1},
        "approver_config": people | more.pop("people", {}),
        "form_config": form | more.pop("form", {}),
        "notification_config": {},
        **more,
    }


def asked(world: Any, given: dict[str, Any] | None = None, **changes: Any) -> None:
    said = jsontext.dumps(config() if given is None else given)
    fields = {"event_type": "approval_decision", "task_type": "approval", "task_id": TASK, "config": said} | changes
    world.suspended(**fields)


def perform(world: Any, operation: Generator[Any, Any, Any]) -> Any:
    answer: Any = None
    try:
        while True:
            call = operation.send(answer)
            answer = None if isinstance(call, Pause) else world.runner.run(call)
    except StopIteration as done:
        return done.value


def decide(world: Any, by: str, word: Any = "approve", **more: Any) -> Any:
    return perform(world, approvals.decide(world.keys, TASK, word, by, **more))


def refused(world: Any, by: str, word: Any = "approve", **more: Any) -> str:
    """Why it is refused; nothing at the server has changed."""
    before = world.everything()
    with pytest.raises(RefusedError) as caught:
        decide(world, by, word, **more)
    assert world.everything() == before
    return caught.value.reason


def tasks_left(world: Any) -> list[bytes]:
    return [key for key in world.raw("KEYS", "*") if b":service:" in key]


# -- what is asked ------------------------------------


def test_an_approval_is_listed_and_shown_and_reading_changes_nothing(world):
    """KNOWN-TROUBLE 68: nothing decides by reading."""
    asked(world, config(form={"fields": [{"name": "amount", "required": True}]}), timeout_ms=60_000)
    before = world.everything()
    listed = perform(world, approvals.list_approvals(world.keys))
    shown = perform(world, approvals.get_approval(world.keys, TASK))
    assert (listed["total"], listed["approvals"]) == (1, [shown])
    assert (shown["approval_id"], shown["execution_id"], shown["node_id"]) == (TASK, "e", "w")
    assert (shown["title"], shown["content"]) == ("pay?", {"amount": 12})
    assert (shown["approvers"], shown["undecided"]) == (["ann", "bob", "cleo"], ["ann", "bob", "cleo"])
    assert (shown["decisions"], shown["strategy"], shown["escalated"]) == ([], "any", False)
    assert shown["deadline"] > shown["created_at"]
    assert world.everything() == before


def test_the_first_approval_wakes_it_once(world):
    asked(world, timeout_ms=60_000)
    answer = decide(world, "bob", comment="fine")
    assert answer == {
        "approval_id": TASK,
        "execution_id": "e",
        "decision": "approve",
        "settled": True,
        "final_decision": "approve",
    }
    row = world.row()
    assert (row["woken"], row["status"]) == (b"event", b"suspended")
    told = jsontext.loads(row["wake_data"])
    assert (told["event_type"], told["event_data"]["final_decision"]) == ("approval_decision", "approve")
    [detail] = told["event_data"]["approval_details"]
    assert (detail["approver_id"], detail["decision"], detail["comments"]) == ("bob", "approve", "fine")
    assert set(detail) == {"approver_id", "decision", "comments", "timestamp"}
    assert world.raw("XLEN", world.keys.wake) == 1
    assert (world.raw("ZCARD", world.keys.delayed), tasks_left(world)) == (0, [])
    assert perform(world, approvals.list_approvals(world.keys)) == {"approvals": [], "total": 0}
    assert refused(world, "ann") == "no_approval"


def test_decisions_are_kept_until_the_last_and_each_person_has_one(world):
    asked(world, config("all"))
    assert decide(world, "ann")["settled"] is False
    assert refused(world, "ann", "reject") == "decided_before"
    assert refused(world, "ann") == "decided_before"
    assert refused(world, " ann ") == "decided_before"
    assert refused(world, "stranger") == "not_an_approver"
    assert decide(world, "bob")["final_decision"] is None
    shown = perform(world, approvals.get_approval(world.keys, TASK))
    assert [one["approver_id"] for one in shown["decisions"]] == ["ann", "bob"]
    assert all("nonce" not in one for one in shown["decisions"])
    assert shown["undecided"] == ["cleo"]
    assert world.raw("XLEN", world.keys.wake) == 0
    assert decide(world, "cleo", "reject")["final_decision"] == "reject"
    assert world.raw("XLEN", world.keys.wake) == 1


def test_a_name_is_the_same_in_whatever_way_its_letters_are_written(world):
    asked(world, config(approvers=("Jos\u00e9",)))
    assert decide(world, "Jose\u0301")["settled"] is True


@pytest.mark.parametrize(
    ("form", "more", "reason"),
    [
        ({"require_comments": True}, {}, "comment_missing"),
        ({"require_comments": True}, {"comment": "  "}, "comment_missing"),
        ({"allow_comments": False}, {"comment": "why not"}, "no_comments"),
    ],
)
def test_comments_as_the_node_has_it(world, form, more, reason):
    asked(world, config(form=form))
    assert refused(world, "ann", **more) == reason
    assert decide(world, "ann", comment="because" if "require_comments" in form else "")["settled"] is True


BAD_INPUT: list[tuple[dict[str, Any], str]] = [
    ({"form": {}}, "the field 'amount' is required"),
    ({}, "the field 'amount' is required"),
    ({"form": {"amount": 1, "x": 2}}, "there is no field 'x'"),
    ({"form": {"amount": 1}, "comment": "x" * 4001}, "4001 characters"),
    ({"form": {"amount": 1}, "comment": "\ud800"}, "comment"),
    ({"form": {"amount": 1}, "comment": 5}, "comment: a int is no text"),
    ({"form": {"amount": 1}, "by": "x" * 201}, "201 characters"),
    ({"form": {"amount": 1}, "by": " "}, "who decides is missing"),
    ({"form": {"amount": 1}, "word": "maybe"}, "approve or reject"),
]


@pytest.mark.parametrize(("more", "reason"), BAD_INPUT)
def test_bad_input_is_told_and_changes_nothing(world, more, reason):
    asked(world, config(form={"fields": [{"name": "amount", "required": True}]}))
    before = world.everything()
    with pytest.raises(InputError) as caught:
        decide(world, **({"by": "ann"} | more))
    assert reason in str(caught.value)
    assert world.everything() == before
    decide(world, "ann", form={"amount": 12})
    told = jsontext.loads(world.row()["wake_data"])["event_data"]
    assert told["approval_details"][0]["form"] == {"amount": 12}


@pytest.mark.parametrize("approval_id", ["", "x" * 401, "\ud800", None])
def test_what_is_no_approval_id(world, approval_id):
    with pytest.raises(InputError, match="approval id"):
        perform(world, approvals.get_approval(world.keys, approval_id))


def test_a_node_with_the_longest_id_can_be_decided(world):
    task = f"approval_{'n' * 200}_0123456789abcdef"
    asked(world, config(approval_id=task), task_id=task)
    assert perform(world, approvals.decide(world.keys, task, "approve", "ann"))["settled"] is True


# -- several at once ------------------------------------


def between(world: Any, operation: Generator[Any, Any, Any], happens: Callable[[], Any]) -> Any:
    """Run an operation; ``happens`` after its first read, before it writes."""
    call = next(operation)
    answer = world.runner.run(call)
    happens()
    try:
        while True:
            answer = world.runner.run(operation.send(answer))
    except StopIteration as done:
        return done.value


def test_two_who_decide_at_once_are_taken_one_after_the_other(world):
    asked(world, config("all", ("ann", "bob")))
    mine = approvals.decide(world.keys, TASK, "approve", "ann")
    answer = between(world, mine, lambda: decide(world, "bob"))
    assert (answer["settled"], answer["final_decision"]) == (True, "approve")
    told = jsontext.loads(world.row()["wake_data"])["event_data"]["approval_details"]
    assert [one["approver_id"] for one in told] == ["bob", "ann"]
    assert world.raw("XLEN", world.keys.wake) == 1


def test_of_two_who_could_settle_it_one_does(world):
    asked(world)
    before = []
    mine = approvals.decide(world.keys, TASK, "reject", "ann")
    with pytest.raises(RefusedError) as caught:
        between(world, mine, lambda: (decide(world, "bob"), before.append(world.everything())))
    assert caught.value.reason == "no_approval"
    assert world.everything() == before[0]
    assert jsontext.loads(world.row()["wake_data"])["event_data"]["final_decision"] == "approve"


def test_one_person_who_decides_twice_at_once_has_decided_once(world):
    asked(world, config("all", ("ann", "bob")))
    mine = approvals.decide(world.keys, TASK, "reject", "ann")
    with pytest.raises(RefusedError) as caught:
        between(world, mine, lambda: decide(world, "ann"))
    assert caught.value.reason == "decided_before"
    assert decide(world, "bob")["final_decision"] == "approve"


def sent(world: Any, operation: Generator[Any, Any, Any]) -> Any:
    """The call of a decision, as it would be sent, after its read."""
    return operation.send(world.runner.run(next(operation)))


def test_the_same_decision_sent_again_is_taken_once(world):
    asked(world, config("all", ("ann", "bob")))
    call = sent(world, approvals.decide(world.keys, TASK, "approve", "ann"))
    assert world.run(call) == Value(False)
    before = world.everything()
    assert world.run(call) == Value(False)
    assert world.everything() == before
    last = sent(world, approvals.decide(world.keys, TASK, "approve", "bob"))
    assert world.run(last) == Value(True)
    before = world.everything()
    assert world.run(last) == Value(True)
    assert world.run(call) == Value(False), "however far the matter has gone since"
    assert world.everything() == before
    entry = world.take_one()
    again = world.begin(entry, nonce="n2", kind="event").value
    assert world.run(last) == Value(True)
    world.commit(again, 2, "w", "b")
    before = world.everything()
    assert world.run(last) == Value(True)
    assert world.everything() == before


# -- too late, over, elsewhere ------------------------------------


def test_after_its_deadline_a_decision_is_refused_whether_the_timer_was_moved_or_not(world):
    asked(world, timeout_ms=1)
    # The timer stands in Redis until a supervisor moves it: none is here.
    assert world.raw("ZCARD", world.keys.delayed) == 1
    assert refused(world, "ann") == "too_late"
    assert world.do(delayed.promote(world.keys)).moved == 1
    assert world.row()["woken"] == b"timeout"
    assert tasks_left(world) == []
    assert refused(world, "ann") == "no_approval"


def test_a_decision_before_the_deadline_leaves_no_timer_to_end_it_again(world):
    asked(world, timeout_ms=600_000)
    decide(world, "ann")
    world.timer_is_due()
    assert world.do(delayed.promote(world.keys)).moved == 0
    assert world.row()["woken"] == b"event"


def test_S8_once_a_cancel_is_asked_for_nobody_decides(world):
    asked(world)
    world.do(executions.request_cancel(world.keys, "e", "enough", b"{}"))
    assert refused(world, "ann") == "cancelled"


def test_D1_of_a_deleted_execution_there_is_no_approval(world):
    asked(world)
    world.do(executions.delete(world.keys, "e", "gone", force=True, tombstone_ttl_ms=60_000))
    assert tasks_left(world) == []
    assert refused(world, "ann") == "no_approval"


def test_D2_a_row_that_a_backup_brings_back_is_not_decided_over_its_tombstone(world):
    asked(world)
    backup = {key: world.raw("DUMP", key) for key in world.raw("KEYS", "*")}
    world.do(executions.delete(world.keys, "e", "gone", force=True, tombstone_ttl_ms=60_000))
    for key, dump in backup.items():
        world.raw("RESTORE", key, 0, dump, "REPLACE")
    assert refused(world, "ann") == "no_approval"


def test_a_whole_backup_brings_back_the_question(world):
    asked(world, config("all", ("ann", "bob")))
    decide(world, "ann")
    backup = {key: world.raw("DUMP", key) for key in world.raw("KEYS", "*")}
    decide(world, "bob")
    world.raw("FLUSHALL")
    for key, dump in backup.items():
        world.raw("RESTORE", key, 0, dump)
    assert perform(world, approvals.get_approval(world.keys, TASK))["undecided"] == ["bob"]
    assert decide(world, "bob")["final_decision"] == "approve"


def test_the_approval_of_another_tenant_is_not_there_in_the_same_words(world):
    asked(world)
    here, world.keys = world.keys, Keys(tenant="acme")
    before = world.everything()
    words = []
    for wanted in (TASK, "approval_w_no_such"):
        for operation in (
            approvals.get_approval(world.keys, wanted),
            approvals.decide(world.keys, wanted, "approve", "ann"),
        ):
            with pytest.raises(RefusedError) as caught:
                perform(world, operation)
            assert caught.value.reason == "no_approval"
            words.append(str(caught.value).replace(wanted, "ID"))
    assert words[:2] == words[2:]
    assert perform(world, approvals.list_approvals(world.keys)) == {"approvals": [], "total": 0}
    assert world.everything() == before
    world.keys = here
    assert decide(world, "ann")["settled"] is True


def test_a_decision_of_an_earlier_wait_does_not_count_for_this_one(world):
    asked(world)
    call = sent(world, approvals.decide(world.keys, TASK, "approve", "ann"))
    world.raw("HSET", world.keys.row("e"), "wait", "7")
    before = world.everything()
    assert world.run(call).reason == "over"
    assert world.everything() == before


# -- nothing is left behind ------------------------------------


def by_decision(world: Any) -> None:
    decide(world, "ann")


def by_timeout(world: Any) -> None:
    world.timer_is_due()
    world.do(delayed.promote(world.keys))


def by_resume(world: Any) -> None:
    world.wake()


ENDS = {"decision": by_decision, "timeout": by_timeout, "resume": by_resume}


@pytest.mark.parametrize("how", [*ENDS, "cancel", "delete"])
def test_E1_no_task_is_left_behind(world, how):
    """All keys at the end are those of the same life with a wait that has no task."""

    def lived(task: bool) -> set[bytes]:
        world.raw("FLUSHALL")
        world.put_flow()
        if task:
            asked(world, timeout_ms=60_000)
        else:
            world.suspended(event_type="approval_decision", timeout_ms=60_000)
        if how in ENDS:
            ENDS[how](world) if task or how != "decision" else world.wake()
            entry = world.take_one()
            begun = world.begin(entry, nonce="n2", kind="event").value
            world.finish(begun, entry, 2)
        elif how == "cancel":
            world.do(executions.request_cancel(world.keys, "e", "enough", b"{}"))
            entry = world.take_one()
            begun = world.begin(entry, nonce="n2", kind="cancel").value
            world.finish(begun, entry, 2, status="cancelled")
        else:
            world.do(executions.delete(world.keys, "e", "gone", force=True, tombstone_ttl_ms=60_000))
        if how != "delete":
            assert not [name for name, value in world.row().items() if name.startswith("wait") and value]
        return set(world.raw("KEYS", "*"))

    assert lived(True) == lived(False)


def test_T4_a_purge_leaves_no_task_behind(world):
    world.keys = Keys(tenant="acme")
    world.put_flow()
    asked(world, timeout_ms=60_000)
    assert tasks_left(world)
    perform(world, tenants.purge(world.keys, "acme", 60_000, force=True))
    assert tasks_left(world) == []
    assert world.raw("ZCARD", world.keys.delayed) == 0
    assert world.raw("EXISTS", world.keys.tasks_of_all("approval")) == 0


# -- many, and what cannot be read ------------------------------------


def many(world: Any, count: int, said: bytes | None = None) -> list[str]:
    """As if so many executions waited: rows and tasks as suspend writes them."""
    names = []
    for n in range(count):
        task = f"approval_w_{n:04}"
        given = jsontext.dumps(config(approval_id=task, execution_id=f"e{n}")) if said is None else said
        place = "\n".join(world.keys.task_places("approval", task))
        world.raw(
            "HSET", world.keys.row(f"e{n}"), "status", "suspended", "wait", "1", "wait_task", place,
            "wait_since", 1000 + n, "wait_config", given, "flow_id", "f", "next_node", "w",
        )  # fmt: skip
        world.raw("ZADD", world.keys.tasks("approval"), 1000 + n, task)
        world.raw("HSET", world.keys.task_of("approval"), task, f"e{n}")
        names.append(task)
    return names


def listed(world: Any, limit: int) -> list[str]:
    found = perform(world, approvals.list_approvals(world.keys, limit))
    return [one["approval_id"] for one in found["approvals"]]


def test_a_long_list_comes_in_pages_the_oldest_first(world):
    names = many(world, 50)
    assert listed(world, 100) == names
    assert listed(world, 50) == names
    assert listed(world, 17) == names[:17]
    assert listed(world, 1) == names[:1]
    assert perform(world, approvals.list_approvals(world.keys, 3))["total"] == 50


def test_what_ends_while_a_list_is_read_hides_nothing_else(world):
    names = many(world, 50)
    operation = approvals.list_approvals(world.keys, 100)
    answer = world.runner.run(next(operation))
    for task in names[:5]:
        world.raw("ZREM", world.keys.tasks("approval"), task)
    try:
        while True:
            answer = world.runner.run(operation.send(answer))
    except StopIteration as done:
        found = [one["approval_id"] for one in done.value["approvals"]]
    assert found == names, "those that were read before they ended, and all others"


@pytest.mark.parametrize("said", [b"", b"{", b"[]", b"7", b"{}", b'{"approver_config":5}'])
def test_one_that_cannot_be_read_hides_no_other(world, said):
    many(world, 1, said)
    asked(world)
    found = perform(world, approvals.list_approvals(world.keys))["approvals"]
    assert [one["approval_id"] for one in found] == ["approval_w_0000", TASK]
    assert "not written by an approval node" in found[0]["problem"]
    for operation in (
        approvals.get_approval(world.keys, "approval_w_0000"),
        approvals.decide(world.keys, "approval_w_0000", "approve", "ann"),
    ):
        with pytest.raises(RefusedError) as caught:
            perform(world, operation)
        assert caught.value.reason == "unreadable"


@pytest.mark.parametrize("name", ["approval_id", "node_id", "execution_id", "flow_id"])
def test_one_that_cannot_be_told_is_not_decided(world, name):
    asked(world, {key: value for key, value in config().items() if key != name})
    assert refused(world, "ann") == "unreadable"


@pytest.mark.parametrize("decisions", [b"{", b"5", b"[5]", b"[{}]", b'{"ann":1}'])
def test_decisions_that_cannot_be_read_are_left_as_they_are(world, decisions):
    asked(world, config("all"))
    world.raw("HSET", world.keys.row("e"), "wait_decisions", decisions)
    assert refused(world, "ann") == "unreadable"
    assert "problem" in perform(world, approvals.list_approvals(world.keys))["approvals"][0]


@pytest.mark.parametrize("limit", [0, -1, 10_001, True, "5", None])
def test_what_is_no_limit(world, limit):
    with pytest.raises(InputError, match="limit"):
        perform(world, approvals.list_approvals(world.keys, limit))


def test_a_thousand_approvers_settle_it_with_one_wake(world):
    people = tuple(f"p{n}" for n in range(1000))
    asked(world, config("all", people))
    details = [{"approver_id": who, "decision": "approve", "comments": "", "timestamp": 1} for who in people[:-1]]
    page = world.do(tasks.get(world.keys, "approval", TASK))
    world.do(tasks.decide(world.keys, Decide(page.tasks[0], jsontext.dumps(details), None, "d", "n", [])))
    assert decide(world, people[-1], comment="the last")["final_decision"] == "approve"
    told = jsontext.loads(world.row()["wake_data"])["event_data"]
    assert len(told["approval_details"]) == 1000
    assert approval.decided(told["approval_details"][-1]).approver_id == "p999"
