"""FLOW-FORMAT rule 16: when an approval is decided and by whom. Tables, and properties over all that people may say."""

from __future__ import annotations

from itertools import permutations
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plaita import jsontext
from plaita.errors import InputError
from plaita.policy import approval
from plaita.policy.approval import HOUR_MS, Decided, Decision, NotTaken, Terms

A, R = "approve", "reject"
BEFORE, AFTER = 24 * HOUR_MS - 1, 24 * HOUR_MS


def terms(strategy: str, *approvers: str, above: tuple[str, ...] = (), **changes: Any) -> Terms:
    given: dict[str, Any] = {"allow_comments": True, "require_comments": False} | changes
    return Terms(approvers, strategy, AFTER if above else None, above, **given)


def said(words: str) -> list[Decided]:
    """``"a+ b-"``: a approves, b rejects."""
    return [Decided(word[:-1], A if word[-1] == "+" else R) for word in words.split()]


OUTCOMES: list[tuple[str, str, str, str, int, str | None]] = [
    # strategy, approvers, those above, what was said, after how long, outcome
    ("any", "a", "", "", 0, None),
    ("any", "a", "", "a+", 0, A),
    ("any", "a", "", "a-", 0, R),
    ("any", "a b c", "", "b+", 0, A),
    ("any", "a b c", "", "a- b-", 0, None),
    ("any", "a b c", "", "a- b- c+", 0, A),
    ("any", "a b c", "", "a- b- c-", 0, R),
    ("any", "a b", "x", "a- b-", BEFORE, R),
    ("any", "a b", "x", "a- b-", AFTER, None),
    ("any", "a b", "x", "a- b- x-", AFTER, R),
    ("any", "a b", "x", "a- x+", AFTER, A),
    ("any", "a b", "x", "x-", AFTER, None),
    ("any", "a b", "a", "a- b-", AFTER, R),
    ("all", "a", "", "a+", 0, A),
    ("all", "a b", "", "a+", 0, None),
    ("all", "a b", "", "a+ b+", 0, A),
    ("all", "a b c", "", "b-", 0, R),
    ("all", "a b c", "", "a+ b+ c-", 0, R),
    ("all", "a b", "x", "a+", AFTER, None),
    ("all", "a b", "x", "a+ x+", AFTER, A),
    ("all", "a b", "x", "x-", AFTER, R),
    ("all", "a b", "b x", "a+ b+", AFTER, A),
    ("majority", "a", "", "a+", 0, A),
    ("majority", "a", "", "a-", 0, R),
    ("majority", "a b", "", "a+", 0, None),
    ("majority", "a b", "", "a+ b-", 0, R),  # an even split cannot become a majority
    ("majority", "a b", "", "a-", 0, R),
    ("majority", "a b", "", "a+ b+", 0, A),
    ("majority", "a b c", "", "a+ b-", 0, None),
    ("majority", "a b c", "", "a+ b- c+", 0, A),
    ("majority", "a b c", "", "a- b-", 0, R),
    ("majority", "a b c d", "", "a+ b+", 0, None),
    ("majority", "a b c d", "", "a+ b+ c-", 0, None),
    ("majority", "a b c d", "", "a+ b+ c- d-", 0, R),
    ("majority", "a b c d", "", "a- b-", 0, R),
    ("majority", "a b c d", "", "a+ b+ c+", 0, A),
    ("majority", "a b c", "x", "a+ x-", AFTER, R),
    ("majority", "a b c", "x", "a- x+", AFTER, A),
]


@pytest.mark.parametrize(("strategy", "approvers", "above", "words", "waits_ms", "expected"), OUTCOMES)
def test_rule_16_the_outcome(
    strategy: str, approvers: str, above: str, words: str, waits_ms: int, expected: str | None
) -> None:
    asked = terms(strategy, *approvers.split(), above=tuple(above.split()))
    assert approval.outcome(asked, said(words), waits_ms) == expected


REFUSALS: list[tuple[dict[str, Any], str, str, str, int, str | None]] = [
    # changes, what was said, by, comment, after how long, refusal
    ({}, "", "a", "", 0, None),
    ({}, "b+", "a", "", 0, None),
    ({}, "a+", "a", "", 0, "decided_before"),
    ({}, "a-", "a", "", 0, "decided_before"),
    ({}, "", "stranger", "", 0, "not_an_approver"),
    ({}, "", "A", "", 0, "not_an_approver"),
    ({"above": ("x",)}, "", "x", "", BEFORE, "not_an_approver"),
    ({"above": ("x",)}, "", "x", "", -5, "not_an_approver"),
    ({"above": ("x",)}, "", "x", "", AFTER, None),
    ({"above": ("x",)}, "", "a", "", AFTER, None),
    ({"above": ("x",)}, "x+", "x", "", AFTER, "decided_before"),
    ({"require_comments": True}, "", "a", "", 0, "comment_missing"),
    ({"require_comments": True}, "", "a", " \n", 0, "comment_missing"),
    ({"require_comments": True}, "", "a", "yes", 0, None),
    ({"require_comments": True}, "", "stranger", "", 0, "not_an_approver"),
    ({"allow_comments": False}, "", "a", "yes", 0, "no_comments"),
    ({"allow_comments": False}, "", "a", "", 0, None),
]


@pytest.mark.parametrize(("changes", "words", "by", "comment", "waits_ms", "expected"), REFUSALS)
def test_rule_16_who_may_decide(
    changes: dict[str, Any], words: str, by: str, comment: str, waits_ms: int, expected: str | None
) -> None:
    asked = terms("all", "a", "b", **changes)
    assert approval.refusal(asked, said(words), by, comment, waits_ms) == expected


PEOPLE = ("a", "b", "c", "d")
VOTES = st.lists(
    st.tuples(st.sampled_from(PEOPLE), st.sampled_from(get_args(Decision))), unique_by=lambda vote: vote[0]
)
STRATEGIES = st.sampled_from(("any", "all", "majority"))


@given(STRATEGIES, st.integers(1, 4), VOTES)
def test_the_order_of_decisions_does_not_matter(strategy: str, count: int, votes: list[tuple[str, Decision]]) -> None:
    asked = terms(strategy, *PEOPLE[:count])
    counted = [Decided(*vote) for vote in votes if vote[0] in asked.approvers]
    assert len({approval.outcome(asked, list(order), 0) for order in permutations(counted)}) == 1


@given(STRATEGIES, st.integers(1, 4), VOTES, st.sampled_from([(), ("x",), ("x", "y")]), st.booleans())
def test_it_is_open_just_while_what_is_yet_to_be_said_can_change_it(
    strategy: str, count: int, votes: list[tuple[str, Decision]], above: tuple[str, ...], late: bool
) -> None:
    """Never undecided when nobody can change it; and decided at once where everything that may come says the same."""
    asked, waits_ms = terms(strategy, *PEOPLE[:count], above=above), AFTER if late else 0
    counted = [Decided(*vote) for vote in votes if vote[0] in asked.approvers]
    found = approval.outcome(asked, counted, waits_ms)
    silent = [who for who in approval.may_decide(asked, waits_ms) if who not in {one.approver_id for one in counted}]
    ends = set()
    for word in (A, R):
        ends.add(approval.outcome(asked, [*counted, *(Decided(who, word) for who in silent)], waits_ms))  # type: ignore[arg-type]
    assert None not in ends
    if found is None:
        assert ends == {A, R}
    elif not silent or not late:
        assert found in ends
        assert len(ends) == 1 or counted == []


@given(STRATEGIES, st.integers(1, 4), VOTES)
def test_what_is_decided_stays_decided(strategy: str, count: int, votes: list[tuple[str, Decision]]) -> None:
    asked = terms(strategy, *PEOPLE[:count])
    counted = [Decided(*vote) for vote in votes if vote[0] in asked.approvers]
    found = [approval.outcome(asked, counted[:upto], 0) for upto in range(len(counted) + 1)]
    settled = [one for one in found if one is not None]
    assert len(set(settled)) <= 1
    assert found[len(found) - len(settled) :] == settled


# -- taking a decision ------------------------------------


def config(strategy: str = "all", fields: list[dict[str, Any]] | None = None, **people: Any) -> dict[str, Any]:
    asked = {"approvers": ["a", "b"], "strategy": strategy, "auto_escalation": False, "escalation_timeout_hours": 24}
    return {
        "approval_id": "approval_w_1",
        "node_id": "w",
        "execution_id": "x1",
        "flow_id": "f",
        "approver_config": {**asked, "escalation_approvers": [], **people},
        "form_config": {"fields": fields or [], "allow_comments": True, "require_comments": False},
    }


def take(given: dict[str, Any], details: list[dict[str, Any]], by: str, decision: Any = A, **more: Any) -> Any:
    options: dict[str, Any] = {"comment": "", "form": None, "since": 1000, "now": 5000} | more
    return approval.taken(given, details, by, decision, **options)


def test_decisions_are_added_until_the_matter_is_settled() -> None:
    first = take(config(), [], "a", comment="fine", nonce="n1")
    assert (first.final, len(first.details)) == (None, 1)
    second = take(config(), first.details, "b", now=6000, nonce="n2")
    assert second.final == A
    assert approval.shown(second.details) == [
        {"approver_id": "a", "decision": "approve", "comments": "fine", "timestamp": 5000},
        {"approver_id": "b", "decision": "approve", "comments": "", "timestamp": 6000},
    ]
    told = approval.event_data(config(), A, second.details, "default", 6000)
    assert told["approval_details"] == approval.shown(second.details)
    assert (told["approval_id"], told["final_decision"], told["execution_id"]) == ("approval_w_1", "approve", "x1")
    assert "n1" not in str(told)


def test_escalation_counts_from_the_beginning_of_the_wait() -> None:
    asked = config(auto_escalation=True, escalation_timeout_hours=0.5, escalation_approvers=["x"])
    with pytest.raises(NotTaken, match="not_an_approver"):
        take(asked, [], "x", now=1000 + HOUR_MS // 2 - 1)
    assert take(asked, [], "x", now=1000 + HOUR_MS // 2).final == A
    with pytest.raises(NotTaken, match="not_an_approver"):
        take({**asked, "approver_config": {**asked["approver_config"], "auto_escalation": False}}, [], "x", now=10**12)


FIELDS = [{"name": "amount", "required": True}, {"name": "note"}]
FORMS: list[tuple[Any, str]] = [
    (None, "the field 'amount' is required"),
    ({}, "the field 'amount' is required"),
    ({"note": "x"}, "the field 'amount' is required"),
    ({"amount": None}, "the field 'amount' is required"),
    ({"amount": ""}, "the field 'amount' is required"),
    ({"amount": 1, "amuont": 2}, "there is no field 'amuont'; there are 'amount', 'note'"),
    ({"amount": float("nan")}, "form.amount"),
    ({"amount": jsontext.loads("[" * 240 + "]" * 240)}, "nested deeper"),
    ({"amount": "x" * 17_000}, "at most 16384"),
    ([1], "a list; an object"),
    ("amount", "a str; an object"),
]


@pytest.mark.parametrize(("form", "reason"), FORMS)
@pytest.mark.parametrize("decision", [A, R])
def test_a_form_that_does_not_fit_is_bad_input(form: Any, reason: str, decision: str) -> None:
    with pytest.raises(InputError) as caught:
        take(config(fields=FIELDS), [], "a", decision, form=form)
    assert reason in str(caught.value)


def test_a_form_goes_along_with_its_decision() -> None:
    taken = take(config(fields=FIELDS), [], "a", form={"amount": 0, "note": ["x"]})
    assert taken.details[0]["form"] == {"amount": 0, "note": ["x"]}
    assert "form" not in take(config(fields=[{"name": "note"}]), [], "a").details[0]
    with pytest.raises(InputError, match="there is no field 'x'; there are none"):
        take(config(), [], "a", form={"x": 1})


def test_comments_never_keep_the_last_of_many_from_deciding() -> None:
    """What is decided becomes a node's result, which has a limit: filled by comments, it still takes decisions."""
    many = [f"p{n}" for n in range(1000)]
    asked = config(approvers=many)
    details: list[dict[str, Any]] = [
        {"approver_id": who, "decision": A, "comments": "x" * 4000, "timestamp": 1} for who in many[:990]
    ]
    assert len(jsontext.dumps(details)) < approval.MAX_DECISIONS_BYTES
    details[0]["comments"] = "x" * (approval.MAX_DECISIONS_BYTES - len(jsontext.dumps(details)) + 3000)
    with pytest.raises(NotTaken, match="too_large"):
        take(asked, details, "p999", comment="me too" * 500)
    assert take(asked, details, "p999").final is None
