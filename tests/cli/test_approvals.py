"""``plaita approval list, show, decide`` and the clients' approvals: what is printed, refused, and with which code."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from plaita import AsyncClient, Client, jsontext
from plaita.errors import RefusedError
from plaita.store.keys import Keys

Run = Callable[..., Any]
Do = Callable[..., Any]
TASK = "approval_w_1"


class Stage:
    """Executions that wait for approvals, as suspend writes them."""

    def __init__(self, do: Do, keys: Keys) -> None:
        self.do, self.keys = do, keys
        self._since = 1_764_490_000_000

    def asks(self, task: str = TASK, *, title: str = "pay?", strategy: str = "any", **more: Any) -> None:
        execution, self._since = f"of_{task}", self._since + 1
        people = {"approvers": more.pop("approvers", ["ann", "bob"]), "strategy": strategy, "auto_escalation": False}
        config = {
            "approval_id": task,
            "node_id": "w",
            "execution_id": execution,
            "flow_id": "f",
            "approval_config": {"title": title, "content": more.pop("content", {"amount": 12}), "type": "manual"},
            "approver_config": people | {"escalation_timeout_hours": 24, "escalation_approvers": []},
            "form_config": {"fields": [], "allow_comments": True, "require_comments": False} | more.pop("form", {}),
            "notification_config": {},
        }
        fields = {
            "status": "suspended",
            "wait": "3",
            "wait_task": "\n".join(self.keys.task_places("approval", task)),
            "wait_since": str(self._since),
            "wait_config": jsontext.dumps(config),
            "flow_id": "f",
            "next_node": "w",
        } | more
        self.do("HSET", self.keys.row(execution), *[word for pair in fields.items() for word in pair])
        self.do("ZADD", self.keys.tasks("approval"), self._since, task)
        self.do("HSET", self.keys.task_of("approval"), task, execution)

    def woken(self, task: str = TASK) -> bytes | None:
        found: bytes | None = self.do("HGET", self.keys.row(f"of_{task}"), "woken")
        return found


@pytest.fixture
def stage(redis_do: Do, keys: Keys) -> Stage:
    return Stage(redis_do, keys)


def test_list_and_show_tell_what_is_asked(stage: Stage, plaita: Run) -> None:
    assert plaita("approval", "list", "--json").json == {"approvals": [], "total": 0}
    stage.asks(approvers=[f"p{n}" for n in range(8)], wait_deadline="1764490800123")
    stage.asks("approval_w_2", title="ship?")
    found = plaita("approval", "list", "--json").json
    assert (found["total"], [one["title"] for one in found["approvals"]]) == (2, ["pay?", "ship?"])
    table = plaita("approval", "list").out
    assert "p0, p1, p2, p3, p4 and 3 more" in table
    assert "2025-11-30T08:20:00.123Z" in table
    assert "1 of 2; --limit shows more" in plaita("approval", "list", "--limit", "1").out
    shown = plaita("approval", "show", TASK, "--json").json
    assert (shown["title"], shown["content"], shown["deadline"]) == (
        "pay?",
        {"amount": 12},
        "2025-11-30T08:20:00.123Z",
    )
    page = plaita("approval", "show", TASK).out
    assert '{"amount":12}' in page
    assert "p0, p1, p2" in page


def test_decide_says_what_became_of_it(stage: Stage, plaita: Run) -> None:
    stage.asks(strategy="all")
    first = plaita("approval", "decide", TASK, "--approve", "--by", "ann", "--comment", "looks right")
    assert (first.code, first.out.strip()) == (0, "taken; others have yet to decide")
    assert "looks right" in plaita("approval", "show", TASK).out
    last = plaita("approval", "decide", TASK, "--reject", "--by", "bob", "--json")
    assert last.json == {
        "approval_id": TASK,
        "execution_id": f"of_{TASK}",
        "decision": "reject",
        "settled": True,
        "final_decision": "reject",
    }
    assert stage.woken() == b"event"
    over = plaita("approval", "decide", TASK, "--approve", "--by", "ann")
    assert (over.code, over.out) == (1, "")
    assert "nobody is asked for this approval" in over.err
    assert plaita("approval", "show", TASK).code == 1


def test_show_of_the_execution_names_its_approval(stage: Stage, plaita: Run) -> None:
    stage.asks(wait_type="approval_decision")
    assert plaita("show", f"of_{TASK}", "--json").json["waiting"]["approval_id"] == TASK
    assert f"at node w for approval {TASK}" in plaita("show", f"of_{TASK}").out
    plaita("approval", "decide", TASK, "--approve", "--by", "ann")
    assert plaita("show", f"of_{TASK}", "--json").json["waiting"] is None


def test_decide_in_words(stage: Stage, plaita: Run) -> None:
    stage.asks()
    done = plaita("approval", "decide", TASK, "--approve", "--by", "bob")
    assert done.out.strip() == f"decided: approve; execution of_{TASK} goes on"


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--by", "ann"], 2, "give one of --approve and --reject"),
        (["--approve", "--reject", "--by", "ann"], 2, "give one of --approve and --reject"),
        (["--approve"], 2, "--by"),
        (["--approve", "--by", " "], 2, "who decides is missing"),
        (["--approve", "--by", "stranger"], 1, "their word is not asked for here"),
        (["--approve", "--by", "ann", "--form", "{"], 2, "--form"),
        (["--approve", "--by", "ann", "--form", "[1]"], 2, "an object of field names"),
        (["--approve", "--by", "ann", "--form", '{"amuont":1}'], 2, "there is no field 'amuont'; there are 'amount'"),
        (["--approve", "--by", "ann"], 2, "the field 'amount' is required"),
        (["--approve", "--by", "ann", "--form", '{"amount":1}'], 1, "a decision on this needs a comment"),
    ],
)
def test_what_is_wrong_with_a_decision(stage: Stage, plaita: Run, words: list[str], code: int, said: str) -> None:
    stage.asks(form={"fields": [{"name": "amount", "required": True}], "require_comments": said.startswith("a dec")})
    result = plaita("approval", "decide", TASK, *words)
    assert (result.code, result.out) == (code, "")
    assert said in result.err
    assert stage.woken() is None


def test_a_form_from_a_file_goes_to_the_node(stage: Stage, plaita: Run, tmp_path: Any) -> None:
    stage.asks(form={"fields": [{"name": "amount", "required": True}]})
    (tmp_path / "form.json").write_text('{"amount": 912345678901234567}')
    assert plaita("approval", "decide", TASK, "--approve", "--by", "ann", "--form", f"@{tmp_path}/form.json").code == 0
    told = jsontext.loads(stage.do("HGET", stage.keys.row(f"of_{TASK}"), "wake_data"))
    assert told["event_data"]["approval_details"][0]["form"] == {"amount": 912345678901234567}


def test_no_stored_text_writes_to_a_terminal_what_it_likes(stage: Stage, plaita: Run) -> None:
    nasty = "ann\x1b[2J\x07\u202e"
    stage.asks(title=f"pay\x1b]0;x\x07 [red]now[/red] {nasty}", approvers=[nasty, "bob"], strategy="all", content=nasty)
    assert plaita("approval", "decide", TASK, "--approve", "--by", nasty, "--comment", nasty).code == 0
    refused = plaita("approval", "decide", TASK, "--approve", "--by", nasty)
    unknown = plaita("approval", "show", nasty)
    pages = [plaita("approval", "list"), plaita("approval", "show", TASK), refused, unknown]
    assert [page.code for page in pages] == [0, 0, 1, 1]
    for page in pages:
        assert not {"\x1b", "\x07", "\u202e"} & set(page.out + page.err)
    assert "[red]now[/red]" in pages[0].out, "no markup out of data"
    shown = plaita("approval", "show", TASK, "--json").json
    assert shown["decisions"][0]["approver_id"] == nasty, "scripts get it as it is"


def test_one_that_cannot_be_read_is_named_in_the_list(stage: Stage, plaita: Run) -> None:
    stage.asks("approval_bad", wait_config="{}")
    stage.asks()
    listed = plaita("approval", "list")
    assert listed.code == 0
    assert "was not written by an approval node" in listed.out
    assert TASK in listed.out
    assert plaita("approval", "show", "approval_bad").code == 1


def test_the_approval_of_another_tenant_is_not_there(stage: Stage, plaita: Run) -> None:
    stage.asks()
    assert plaita("approval", "list", "--tenant", "acme", "--json").json["total"] == 0
    for words in (["show", TASK], ["decide", TASK, "--approve", "--by", "ann"]):
        theirs, none = plaita("approval", *words, "--tenant", "acme"), plaita("approval", words[0], "x", *words[2:])
        assert (theirs.code, none.code) == (1, 1)
        assert theirs.err.replace(TASK, "x") == none.err
    assert stage.woken() is None


def test_the_clients_read_and_decide(stage: Stage, connected: str) -> None:
    stage.asks(strategy="all")
    with Client() as client:
        assert [one["approval_id"] for one in client.approvals()] == [TASK]
        assert client.decide(TASK, "approve", "ann", comment="fine")["settled"] is False
        assert client.approval(TASK)["undecided"] == ["bob"]

    async def other() -> dict[str, Any]:
        async with AsyncClient() as client:
            assert len(await client.approvals(5)) == 1
            assert (await client.approval(TASK))["decisions"][0]["comments"] == "fine"
            with pytest.raises(RefusedError, match="decided already"):
                await client.decide(TASK, "approve", "ann")
            return await client.decide(TASK, "approve", "bob")

    assert asyncio.run(other())["final_decision"] == "approve"
    assert stage.woken() == b"event"
