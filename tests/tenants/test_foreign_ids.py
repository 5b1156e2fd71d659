"""Ids of one tenant are not found from another by any command or call (issue 5, KNOWN-TROUBLE 73).

With tenant B's session, an id of tenant A gives the answer of an id that does not exist: the same code, the same words
apart from the id; and nothing of A's changes. Commands and methods are enumerated with all their parameters: a new one
fails here until it is listed, as one that takes an id, with a case, or as one that takes none.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import io
import json
import re
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import typer
from carriers_by_hand import raw
from tenants_world import TenantsWorld

from plaita import jsontext
from plaita.cli import exits, main
from plaita.cli import supervisor as supervisor_cli
from plaita.client import AsyncClient, Client, Manner, Wanted, operations
from plaita.client.base import ClientBase
from plaita.credentials import CredentialStore, RedisCredentialStore, new_key
from plaita.errors import PlaitaError
from plaita.server import FlowWorker
from plaita.storage import ExecutionState, ExecutionStorage, FlowStorage, RedisExecutionStorage, RedisFlowStorage
from plaita.store import dead_letters
from plaita.store.keys import STATUSES, Keys
from plaita.tenancy import tenant_context
from plaita.testing.server import Server

PAIRS = [
    pytest.param(("a", "a-b"), id="prefix"),
    pytest.param(("default", "租户"), id="default"),
    pytest.param(("x" * 200, "default"), id="long", marks=pytest.mark.long),
    pytest.param(("ab", "a"), id="shorter", marks=pytest.mark.long),
]
EXECUTION, FLOW, LETTER, KEY, EVENT = "execution", "flow", "letter", "start key", "event"
SCHEDULE, YEARLY = "schedule", "0 0 1 1 *"
APPROVAL = "approval"
STATES = ("pending", "running", "suspended", "completed", "error", "cancelled", "deleted")

# -- what takes which id ------------------------------------------------------------------------------

# Parameters that name nothing of a tenant's: settings, files, words, numbers, other instances.
NO_IDS = frozenset(
    {
        "redis_url", "embedded", "tenant", "json_output", "given", "preload", "timeout", "version", "wait_for_end",
        "target", "reason", "force", "status", "limit", "resume_type", "data", "file", "allow_unknown_types",
        "requeue", "idle_minutes", "dry_run", "yes", "match_reason", "cause", "node", "since", "until",
        "everything", "unblock", "rate", "everybody", "number", "input", "ignored_keys", "key_prefix", "brief",
        "socket", "instance", "instance_id", "event_type", "cron", "tz", "misfire", "label", "disabled",
        "enabled", "count", "by", "approve", "reject", "decision", "comment", "form",
    }
)  # fmt: skip

COMMANDS: dict[tuple[str, str], tuple[str, list[str]]] = {
    ("start", "flow_id"): (FLOW, ["start", "{id}"]),
    ("start", "execution_id"): (EXECUTION, ["start", "own", "--id", "{id}"]),
    ("start", "dedup_key"): (KEY, ["start", "own", "--dedup-key", "{id}"]),
    ("show", "execution_id"): (EXECUTION, ["show", "{id}"]),
    ("list", "flow"): (FLOW, ["list", "--flow", "{id}"]),
    ("wait", "execution_ids"): (EXECUTION, ["wait", "{id}", "--timeout", "0.2"]),
    ("resume", "execution_id"): (EXECUTION, ["resume", "{id}", "--type", "{resume}"]),
    ("cancel", "execution_id"): (EXECUTION, ["cancel", "{id}"]),
    ("rm", "execution_id"): (EXECUTION, ["rm", "{id}", "--force"]),
    ("flow put", "flow_id"): (FLOW, ["flow", "put", "{file}", "--id", "{id}"]),
    ("flow validate", "flow_id"): (FLOW, ["flow", "validate", "{file}", "--id", "{id}"]),
    ("flow show", "flow_id"): (FLOW, ["flow", "show", "{id}"]),
    ("flow rm", "flow_id"): (FLOW, ["flow", "rm", "{id}"]),
    ("dlq show", "dlq_id"): (LETTER, ["dlq", "show", "{id}"]),
    ("event publish", "correlation_id"): (EXECUTION, ["event", "publish", "e", "--correlation-id", "{id}"]),
    ("event publish", "event_id"): (EVENT, ["event", "publish", "e", "--event-id", "{id}"]),
    ("approval show", "approval_id"): (APPROVAL, ["approval", "show", "{id}"]),
    ("approval decide", "approval_id"): (APPROVAL, ["approval", "decide", "{id}", "--approve", "--by", "ann"]),
    ("dlq replay", "flow"): (FLOW, ["dlq", "replay", "--flow", "{id}"]),
    ("schedule put", "schedule_id"): (SCHEDULE, ["schedule", "put", "{id}", "--flow", "own", "--cron", YEARLY]),
    ("schedule put", "flow"): (FLOW, ["schedule", "put", "s", "--flow", "{id}", "--cron", YEARLY]),
    ("schedule show", "schedule_id"): (SCHEDULE, ["schedule", "show", "{id}"]),
    ("schedule rm", "schedule_id"): (SCHEDULE, ["schedule", "rm", "{id}"]),
    ("schedule enable", "schedule_id"): (SCHEDULE, ["schedule", "enable", "{id}"]),
    ("schedule disable", "schedule_id"): (SCHEDULE, ["schedule", "disable", "{id}"]),
    ("schedule trigger", "schedule_id"): (SCHEDULE, ["schedule", "trigger", "{id}"]),
    ("schedule history", "schedule_id"): (SCHEDULE, ["schedule", "history", "{id}"]),
    ("schedule preview", "schedule_id"): (SCHEDULE, ["schedule", "preview", "{id}"]),
}
# Not the same answer, for the reason given; each has a test of its own below.
OTHERWISE: dict[tuple[str, str], str] = {
    ("dlq replay", "dlq_ids"): "ledger D5: the answer is tenant_mismatch, and says no more",
    ("tenant status", "name"): "a platform command: it names a tenant, no id of one",
    ("tenant enable", "name"): "as above",
    ("tenant disable", "name"): "as above",
    ("tenant quota", "name"): "as above",
    ("tenant purge", "name"): "as above",
}
# These make something under the id, for B: they come last.
MAKING = frozenset(
    {
        ("start", "execution_id"), ("start", "dedup_key"), ("flow put", "flow_id"), ("start_flow", "execution_id"),
        ("start_flow", "dedup_key"), ("save_execution_state", "execution_id"), ("put_flow_definition", "flow_id"),
        ("event publish", "event_id"), ("publish", "event_id"), ("schedule put", "schedule_id"),
        ("put_schedule", "schedule_id"),
    }
)  # fmt: skip
EVENT_TYPES = ("event", "timeout", "continue", "retry")


def in_order(listed: dict[tuple[str, str], Any]) -> list[tuple[tuple[str, str], Any]]:
    return sorted(listed.items(), key=lambda one: one[0] in MAKING)


def leaves(app: typer.Typer) -> Iterator[tuple[str, Any]]:
    """Every command with its whole name."""
    pending: list[tuple[tuple[str, ...], Any]] = [((), typer.main.get_command(app))]
    while pending:
        path, command = pending.pop()
        if hasattr(command, "commands"):
            pending += [((*path, name), one) for name, one in command.commands.items()]
        else:
            yield " ".join(path), command


def test_every_parameter_of_every_command_is_listed() -> None:
    found = {(path, str(parameter.name)) for path, command in leaves(main.app) for parameter in command.params}
    named = {one for one in found if one[1] not in NO_IDS and one[1] not in ("help", "version")}
    listed = set(COMMANDS) | set(OTHERWISE)
    assert named - listed == set(), "new: does it take an id? List it, with a case"
    assert listed - named == set(), "gone: take it out of the list"


def test_the_supervisors_commands_take_no_id_at_all() -> None:
    for path, command in leaves(supervisor_cli.app):
        for parameter in command.params:
            assert parameter.param_type_name == "option", (path, parameter.name)
            assert not re.search(r"execution_id|flow|dlq_id|dedup", str(parameter.name)), (path, parameter.name)


# -- a world with everything in it -----------------------------------------------------------------------

END = [{"type": "start", "id": "start", "next": "end"}, {"type": "end", "id": "end", "output": 1}]


@dataclass
class Scene:
    world: TenantsWorld
    a: str
    b: str
    ids: dict[str, str]
    """state -> an execution of A's in it; ``flow``, ``letter``, ``key``, ``event``, ``schedule`` and ``approval``: ids
    of A's of those kinds."""

    def known(self, kind: str) -> list[str]:
        if kind == EXECUTION:
            return [self.ids[state] for state in STATES]
        return [self.ids["key" if kind == KEY else kind]]

    def missing(self, kind: str) -> str:
        """An id of the same form that nobody has."""
        if kind == LETTER:
            return f"{int(self.ids['letter'].partition('-')[0]) + 1}-0"
        return f"none{uuid.uuid4().hex[:8]}"

    def of_a(self) -> dict[str, Any]:
        """All that A has, as it stands."""
        keys = self.world.keys_of(self.a)
        names: set[bytes] = set()
        cursor = "0"
        while True:
            reply = raw(self.world, "SCAN", cursor, "MATCH", f"{keys.ns}:*", "COUNT", 10_000)
            cursor = reply[0].decode()
            names.update(reply[1])
            if cursor == "0":
                break
        if self.a == "default":  # its keys stand beside everybody's: only those with what was made for it
            of_tenants = (
                "execution:",
                "flow:",
                "flow_list",
                "flow_versions:",
                "start-dedup:",
                "event:",
                "schedule",
                "service:",
            )
            words = tuple(f"{keys.ns}:{word}" for word in of_tenants)
            names = {name for name in names if name.decode().startswith(words)}
        return {name.decode(): raw(self.world, "DUMP", name) for name in names}


@pytest.fixture(params=PAIRS)
def scene(request: Any, world: TenantsWorld, monkeypatch: pytest.MonkeyPatch) -> Scene:
    """A has a flow, a start key, a dead letter and executions in every state; B has a flow of its own."""
    a, b = request.param
    monkeypatch.setenv("PLAITA_CONFIG", "/dev/null")
    for name, value in {
        "REDIS_URL": world.url,
        "KEY_PREFIX": world.keys.prefix,
        "QUEUE_NAME": world.keys.queue,
        "CONSUMER_GROUP": world.keys.group,
        "DLQ_KEY": world.keys.dead_letters,
    }.items():
        monkeypatch.setenv(f"PLAITA_{name}", value)
    client, keys = world.of(a), world.keys_of(a)
    mark = uuid.uuid4().hex[:8]
    world.put_for(a, f"flow{mark}")
    world.put_for(b, "own")
    ids = {"flow": f"flow{mark}", "key": f"key{mark}", "event": f"event{mark}"}
    for state in STATES:
        ids[state] = client.start(ids["flow"], {"secret": "of-a"}, execution_id=f"{state}{mark}").execution_id
        if state in STATUSES and state != "pending":
            raw(world, "HSET", keys.row(ids[state]), "status", state)
            raw(world, "ZREM", keys.index("pending"), ids[state])
            raw(world, "ZADD", keys.index(state), 1, ids[state])
    client.start(ids["flow"], dedup_key=ids["key"])
    ids["approval"] = f"approval_ok_{mark}"
    ask_ann(world, keys, ids["suspended"], ids["approval"])
    ids["schedule"] = f"schedule{mark}"
    client.put_schedule(ids["schedule"], ids["flow"], YEARLY, input={"secret": "of-a"})
    client.publish("e", {"secret": "of-a"}, event_id=ids["event"], correlation_id=ids["suspended"])
    client.perform(operations.remove_execution(keys, ids["deleted"], "gone", True, 3_600_000))
    payload = {"type": "start", "flow_id": ids["flow"], "tenant_id": a, "params": {"secret": "of-a"}}
    letter = {"payload": payload, "reason": "why-of-a", "flow_id": ids["flow"], "tenant_id": a, "schema_version": 1}
    ids["letter"] = raw(world, "XADD", world.keys.dead_letters, "*", "payload", jsontext.dumps(letter)).decode()
    assert world.do(dead_letters.get(world.keys, ids["letter"])) is not None
    return Scene(world, a, b, ids)


def ask_ann(world: TenantsWorld, keys: Keys, execution_id: str, approval_id: str) -> None:
    """The execution waits for the approval, as a suspended approval node leaves it."""
    places = keys.task_places("approval", approval_id)
    people = {"approvers": ["ann"], "strategy": "any", "auto_escalation": False, "escalation_timeout_hours": 24}
    config = {
        "approval_id": approval_id,
        "node_id": "ok",
        "execution_id": execution_id,
        "flow_id": "f",
        "approval_config": {"title": "of-a", "content": "of-a", "type": "manual"},
        "approver_config": {**people, "escalation_approvers": []},
        "form_config": {"fields": [], "allow_comments": True, "require_comments": False},
        "notification_config": {},
    }
    row = {"wait": "1", "wait_since": "1", "wait_task": "\n".join(places), "wait_config": jsontext.dumps(config)}
    for name, value in row.items():
        raw(world, "HSET", keys.row(execution_id), name, value)
    raw(world, "ZADD", places[0], 1, approval_id)
    raw(world, "HSET", places[1], approval_id, execution_id)


def said(text: str, name: str) -> str:
    """Without the id, and without what is new at each call."""
    text = text.replace(name, "ID")
    text = re.sub(r"\b[0-9a-f]{32}\b", "NEW", text)
    text = re.sub(r"\b\d{13}-\d+\b", "ENTRY", text)
    return re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+(Z|\+00:00)?", "TIME", text)


def squeezed(text: str) -> str:
    """Tables are as wide as their ids."""
    return re.sub(r"[─ ]+", " ", text)


# -- commands ------------------------------------------------------------------------------------------------


class Shell:
    """``plaita`` in this process, always as tenant B."""

    def __init__(self, tenant: str, file: Path) -> None:
        self._tenant = tenant
        self._file = file

    def __call__(self, words: list[str], name: str, *more: str) -> tuple[int, str, str]:
        filled = [word.replace("{id}", name).replace("{file}", str(self._file)) for word in words]
        out, err = _Captured(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = exits.run_app(main.app, "plaita", [*filled, *more, "--tenant", self._tenant])
        assert "Traceback" not in err.getvalue(), err.getvalue()
        return code, squeezed(said(out.text(), name)), squeezed(said(err.getvalue(), name))


class _Captured(io.TextIOWrapper):
    def __init__(self) -> None:
        super().__init__(io.BytesIO(), encoding="utf-8", write_through=True)

    def text(self) -> str:
        return self.buffer.getvalue().decode()  # type: ignore[attr-defined, no-any-return]


@pytest.fixture
def shell(scene: Scene, tmp_path: Path) -> Shell:
    file = tmp_path / "flow.json"
    file.write_text(json.dumps({"nodes": END}))
    return Shell(scene.b, file)


def variants(words: list[str]) -> list[list[str]]:
    if "{resume}" not in words:
        return [words]
    return [[word.replace("{resume}", kind) for word in words] for kind in EVENT_TYPES]


@pytest.mark.parametrize(
    "form", ["by turns", *(pytest.param(form, marks=pytest.mark.long) for form in ("text", "json"))]
)
def test_no_command_finds_an_id_of_another_tenant(scene: Scene, shell: Shell, form: str) -> None:
    flags = ["--json"] if form == "json" or (form == "by turns" and scene.a == "default") else []
    before = scene.of_a()
    assert before
    for (path, parameter), (kind, words) in in_order(COMMANDS):
        for filled in variants(words):
            wanted = shell(filled, scene.missing(kind), *flags)
            for known in scene.known(kind):
                got = shell(filled, known, *flags)
                assert got == wanted, f"plaita {path} ({parameter}) as {scene.b!r} about {known!r} of {scene.a!r}"
                assert "of-a" not in got[1] + got[2]
            assert scene.of_a() == before, f"plaita {path} changed what is {scene.a!r}'s"


def test_the_same_commands_find_the_ids_for_their_own_tenant(scene: Scene, tmp_path: Path) -> None:
    """So the equal answers above are not equal because nothing works."""
    own = Shell(scene.a, tmp_path / "none")
    for state in STATES[:-1]:
        assert own(["show", "{id}"], scene.ids[state])[0] == 0
    assert own(["show", "{id}"], scene.ids["deleted"])[0] == 1
    assert own(["flow", "show", "{id}"], scene.ids["flow"])[0] == 0
    assert own(["dlq", "show", "{id}"], scene.ids["letter"])[0] == 0
    assert own(["approval", "show", "{id}"], scene.ids["approval"])[0] == 0
    assert own(["approval", "decide", "{id}", "--approve", "--by", "ann"], scene.ids["approval"])[0] == 0
    assert "1 of 1" in own(["dlq", "list"], "-")[2]
    assert own(["start", scene.ids["flow"], "--id", "{id}"], scene.ids["pending"])[0] == 1
    assert "before with this key" in own(["start", scene.ids["flow"], "--dedup-key", "{id}"], scene.ids["key"])[1]


def test_lists_and_counts_are_of_the_own_tenant(scene: Scene, shell: Shell) -> None:
    for words in (["list"], ["flow", "list"], ["dlq", "list"], ["reap", "--idle-minutes", "0.001"], ["reindex"]):
        code, out, err = shell(words, "nobody", "--json")
        assert code == 0, (words, err)
        for known in scene.ids.values():
            assert known not in out + err, words
    assert json.loads(shell(["list"], "x", "--json")[1])["total"] == 0
    assert json.loads(shell(["dlq", "list"], "x", "--json")[1]) == {"entries": [], "total": 0}
    assert json.loads(shell(["reindex"], "x", "--json")[1])["rows"] == 0


def test_D5_a_dead_letter_of_another_tenant_is_not_brought_back_and_nothing_of_it_is_told(
    scene: Scene, shell: Shell
) -> None:
    before = scene.of_a()
    code, out, err = shell(["dlq", "replay", "{id}"], scene.ids["letter"], "--json")
    assert code == exits.FAILED
    document = json.loads(out)
    assert document["outcomes"] == {"tenant_mismatch": 1}
    [entry] = document["entries"]
    assert {name: value for name, value in entry.items() if value is not None} == {
        "dlq_id": "ID",
        "outcome": "tenant_mismatch",
    }
    for word in ("of-a", scene.ids["flow"], repr(scene.a)):
        assert word not in out + err
    assert scene.of_a() == before
    assert raw(scene.world, "XLEN", scene.world.keys.dead_letters) == 1


def test_a_purge_of_all_letters_is_not_for_one_tenant(scene: Scene, shell: Shell) -> None:
    assert shell(["dlq", "purge", "--yes"], "x")[0] == exits.USAGE
    assert raw(scene.world, "XLEN", scene.world.keys.dead_letters) == 1


# -- methods ------------------------------------------------------------------------------------------------

Method = Callable[[Any, str], Any]

CLIENT: dict[tuple[str, str], tuple[str, Method]] = {
    ("start", "flow_id"): (FLOW, lambda c, name: c.start(name)),
    ("start", "execution_id"): (EXECUTION, lambda c, name: c.start("own", execution_id=name)),
    ("start", "dedup_key"): (KEY, lambda c, name: c.start("own", dedup_key=name)),
    ("get", "execution_id"): (EXECUTION, lambda c, name: c.get(name)),
    ("wait", "execution_id"): (EXECUTION, lambda c, name: c.wait(name, timeout=0.2)),
    ("wait_all", "execution_ids"): (EXECUTION, lambda c, name: c.wait_all([name], timeout=0.2)),
    ("cancel", "execution_id"): (EXECUTION, lambda c, name: c.cancel(name)),
    ("resume", "execution_id"): (EXECUTION, lambda c, name: c.resume(name, "retry")),
    ("replay_dead_letters", "wanted"): (FLOW, lambda c, name: c.replay_dead_letters(Wanted(flow_id=name), _mine(c))),
    ("publish", "correlation_id"): (EXECUTION, lambda c, name: c.publish("e", correlation_id=name)),
    ("publish", "event_id"): (EVENT, lambda c, name: c.publish("e", event_id=name)),
    ("approval", "approval_id"): (APPROVAL, lambda c, name: c.approval(name)),
    ("decide", "approval_id"): (APPROVAL, lambda c, name: c.decide(name, "approve", "ann")),
    ("put_schedule", "schedule_id"): (SCHEDULE, lambda c, name: c.put_schedule(name, "own", YEARLY)),
    ("put_schedule", "flow_id"): (FLOW, lambda c, name: c.put_schedule("s", name, YEARLY)),
    ("trigger_schedule", "schedule_id"): (SCHEDULE, lambda c, name: c.trigger_schedule(name)),
    ("enable_schedule", "schedule_id"): (SCHEDULE, lambda c, name: c.enable_schedule(name)),
    ("remove_schedule", "schedule_id"): (SCHEDULE, lambda c, name: c.remove_schedule(name)),
}
WORKER: dict[tuple[str, str], tuple[str, Method]] = {
    ("start_flow", "flow_id"): (FLOW, lambda w, name: w.start_flow(name)),
    ("start_flow", "execution_id"): (EXECUTION, lambda w, name: w.start_flow("own", execution_id=name)),
    ("start_flow", "dedup_key"): (KEY, lambda w, name: w.start_flow("own", dedup_key=name)),
    ("resume_flow", "execution_id"): (EXECUTION, lambda w, name: w.resume_flow(name)),
    ("get_flow_definition", "flow_id"): (FLOW, lambda w, name: w.get_flow_definition(name)),
}
EXECUTIONS: dict[tuple[str, str], tuple[str, Method]] = {
    ("save_execution_state", "execution_id"): (
        EXECUTION,
        lambda s, name: s.save_execution_state(name, ExecutionState(execution_id=name, status="pending")),
    ),
    ("load_execution_state", "execution_id"): (EXECUTION, lambda s, name: s.load_execution_state(name)),
    ("delete_execution_state", "execution_id"): (EXECUTION, lambda s, name: s.delete_execution_state(name)),
    ("list_executions", "query"): (FLOW, lambda s, name: s.list_executions({"flow_id": name})),
}
FLOWS: dict[tuple[str, str], tuple[str, Method]] = {
    ("put_flow_definition", "flow_id"): (FLOW, lambda s, name: s.put_flow_definition(name, {"nodes": END})),
    ("get_flow_definition", "flow_id"): (FLOW, lambda s, name: s.get_flow_definition(name)),
    ("versions", "flow_id"): (FLOW, lambda s, name: s.versions(name)),
    ("remove_flow", "flow_id"): (FLOW, lambda s, name: s.remove_flow(name)),
}
# Parameters of methods that name nothing of a tenant's.
NO_IDS_OF_METHODS = NO_IDS | frozenset(
    {
        "input", "config", "operation", "params", "resume_type", "wait", "wait_for_inflight", "token", "state",
        "order_by", "offset", "definition", "manner", "values", "name",
    }
)  # fmt: skip


def _mine(client: ClientBase) -> Manner:
    return Manner(tenant=client.keys.tenant)


def parameters(kind: type) -> set[tuple[str, str]]:
    found = set()
    for name, method in inspect.getmembers(kind, callable):
        if name.startswith("_"):
            continue
        for parameter in inspect.signature(method).parameters:
            if parameter not in ("self", "cls") and parameter not in NO_IDS_OF_METHODS:
                found.add((name, parameter))
    return found


@pytest.mark.parametrize(
    ("kind", "listed"),
    [
        (Client, CLIENT),
        (AsyncClient, CLIENT),
        (FlowWorker, WORKER),
        (ExecutionStorage, EXECUTIONS),
        (RedisExecutionStorage, EXECUTIONS),
        (FlowStorage, FLOWS),
        (RedisFlowStorage, FLOWS),
    ],
    ids=lambda one: one.__name__ if isinstance(one, type) else "",
)
def test_every_parameter_of_every_method_is_listed(kind: type, listed: dict[tuple[str, str], Any]) -> None:
    found = parameters(kind) - {("serialize_state", "state"), ("deserialize_state", "data"), ("manner", "given")}
    assert found - set(listed) == set(), "new: does it take an id? List it, with a case"
    assert set(listed) - found == set(), "gone: take it out of the list"


def answer(call: Callable[[], Any], name: str) -> str:
    """What a call answers, or raises, in words."""
    try:
        found = call()
    except PlaitaError as error:
        return said(f"{type(error).__name__} {getattr(error, 'reason', '')} {error}", name)
    return said(re.sub(r"fence='[^']*'|'fence': '[^']*'", "FENCE", repr(found)), name)


def compare(scene: Scene, listed: dict[tuple[str, str], tuple[str, Method]], one: Callable[[Method, str], Any]) -> None:
    before = scene.of_a()
    for (method, parameter), (kind, call) in in_order(listed):
        missing = scene.missing(kind)
        wanted = answer(lambda call=call, missing=missing: one(call, missing), missing)  # type: ignore[misc]
        for known in scene.known(kind):
            got = answer(lambda call=call, known=known: one(call, known), known)  # type: ignore[misc]
            assert got == wanted, f"{method}({parameter}) as {scene.b!r} about {known!r} of {scene.a!r}"
            assert "of-a" not in got
        assert scene.of_a() == before, f"{method} changed what is {scene.a!r}'s"


def arguments(scene: Scene) -> dict[str, Any]:
    keys = scene.world.keys
    return {"tenant": scene.b, "queue_name": keys.queue, "consumer_group": keys.group, "key_prefix": keys.prefix}


def test_no_method_of_the_client_finds_an_id_of_another_tenant(scene: Scene) -> None:
    with Client(scene.world.url, **arguments(scene)) as client:
        compare(scene, CLIENT, lambda call, name: call(client, name))
        assert client.dead_letters() == []
        assert client.rebuild_execution_index()["moved"] == 0


def test_no_method_of_the_async_client_finds_an_id_of_another_tenant(scene: Scene) -> None:
    def one(call: Method, name: str) -> Any:
        async def work() -> Any:
            async with AsyncClient(scene.world.url, **arguments(scene)) as client:
                return await call(client, name)

        return asyncio.run(work())

    compare(scene, CLIENT, one)


def test_no_method_of_the_storages_finds_an_id_of_another_tenant(scene: Scene) -> None:
    said_of = {"key_prefix": scene.world.keys.prefix, "tenant": scene.b}
    executions, flows = RedisExecutionStorage(scene.world.url, **said_of), RedisFlowStorage(scene.world.url, **said_of)
    with contextlib.closing(executions), contextlib.closing(flows):
        compare(scene, EXECUTIONS, lambda call, name: call(executions, name))
        compare(scene, FLOWS, lambda call, name: call(flows, name))


def test_no_method_of_the_worker_finds_an_id_of_another_tenant(scene: Scene) -> None:
    said_of = {"key_prefix": scene.world.keys.prefix, "tenant": scene.b}
    with FlowWorker(
        RedisExecutionStorage(scene.world.url, **said_of),
        RedisFlowStorage(scene.world.url, **said_of),
        queue_name=f"{scene.world.keys.prefix}:own",
    ) as worker:
        compare(scene, WORKER, lambda call, name: call(worker, name))


def test_credentials_of_another_tenant_are_not_found(plaita_server_process: Server, scene: Scene) -> None:
    with RedisCredentialStore(plaita_server_process.url, key_prefix=scene.world.keys.prefix, key=new_key()) as store:
        kept: CredentialStore = store
        with tenant_context(scene.a):
            kept.save("mail", {"secret": "of-a"})
        with tenant_context(scene.b):
            assert kept.load("mail") == kept.load("none")
            assert kept.delete("mail") == kept.delete("none")
            assert kept.list() == []
        with tenant_context(scene.a):
            assert kept.load("mail") == {"secret": "of-a"}


@pytest.mark.parametrize("tenant", ["a:b", "a/b", "execution", "a b", "..", "x" * 201])
def test_what_could_mean_several_tenants_is_refused_everywhere(world: TenantsWorld, tenant: str) -> None:
    out, usage = io.StringIO(), exits.USAGE
    for words in (["show", "x"], ["list"], ["start", "f"], ["flow", "list"], ["cancel", "x"], ["rm", "x"]):
        with contextlib.redirect_stderr(out):
            assert exits.run_app(main.app, "plaita", [*words, "--redis-url", world.url, "--tenant", tenant]) == usage
    with pytest.raises(PlaitaError):
        Client(world.url, tenant=tenant)
    with pytest.raises(PlaitaError):
        RedisExecutionStorage(world.url, tenant=tenant)
    with pytest.raises(PlaitaError):
        RedisFlowStorage(world.url, tenant=tenant)
