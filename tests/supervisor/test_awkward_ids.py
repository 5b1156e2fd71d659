"""KNOWN-TROUBLE 23 through a whole supervisor: an id is refused at the edge, or it lives its whole life and leaves
nothing behind, whoever sent it."""

from __future__ import annotations

import unicodedata
from typing import Any

import pytest
from hosts import World, until

from plaita import jsontext
from plaita.client.operations import remove_execution
from plaita.errors import InputError
from plaita.policy.dead_letter import read
from plaita.store import carriers, executions
from plaita.store.executions import ForeignStart
from plaita.testing.server import raw

FLAGS: dict[str, Any] = {"preload": "crashing", "lease_ttl_seconds": 600, "claim_min_idle_ms": 600_000}
AWKWARD = [
    "a:b", "a:b:c", "index", "expiry", "lease:x", "fencegen:x", "../x", "..", ".", "/", "0", "-1", "007", "日本語",
    "क्षि", "x" * 200, "Ünïcode".casefold(), "index:running", "noderetry:a:b", "a-b_c.d/e",
]  # fmt: skip
REFUSED = [
    "a\nb",
    "a\x00b",
    "a b",
    " a ",
    "",
    "x" * 201,
    "a\u202eb",
    "😀",
    "a{b}c",
    "a%b",
    "a*",
    "\ud800",
    7,
    None,
    ["a"],
]


def flow(world: World, flow_id: str, node_id: str) -> None:
    """A node that fails once, so that its counter is made and cleared."""
    lines = str(world.folder / "lines")
    world.chain(flow_id, {"type": "t_noted", "id": node_id, "file": lines, "fails": 1})


def left_of(world: World, execution_id: str) -> set[str]:
    """Keys of executions that name it, and indexes that hold it."""
    part = world.keys.row(execution_id).removeprefix(f"{world.keys.prefix}:execution:")
    found = {world.keys.tombstone(execution_id)}
    for key in world.do(raw("KEYS", f"{world.keys.prefix}:execution:*")):
        name = key.decode()
        if world.do(raw("TYPE", key)) == b"zset":
            holds = world.do(raw("ZSCORE", key, execution_id)) is not None
        else:
            holds = name.endswith(f":{part}") or f":{part}:" in name
        if holds:
            found.add(name)
    return found


def test_KNOWN_TROUBLE_23_awkward_ids_live_a_whole_life_and_leave_nothing(world: World) -> None:
    for one in AWKWARD:
        flow(world, one, one)
    supervisor = world.serving(**FLAGS)
    for one in AWKWARD:  # ours, and one of another producer beside it whose id is told apart by a colon
        world.start(one, {}, execution_id=one)
        payload = {"type": "start", "flow_id": one, "execution_id": f"foreign:{one}"[:200], "dedup_key": one}
        world.do(carriers.enqueue(world.keys, "q", [("payload", jsontext.dumps(payload))]))
    ids = {*AWKWARD, *(f"foreign:{one}"[:200] for one in AWKWARD)}
    for one in ids:
        until(lambda one=one: world.do(raw("EXISTS", world.keys.row(one))), f"a row of {one}")  # type: ignore[misc]
        row = world.wait(one)
        assert (row["execution_id"], row["status"]) == (one, "completed"), row["error"]
    page = world.do(executions.list_executions(world.keys, limit=1000))
    assert {row["execution_id"] for row in page.rows} == ids
    assert page.total == len(ids)
    assert supervisor.code is None
    for one in sorted(ids):
        world.client.perform(remove_execution(world.keys, one, "", force=False))
        assert left_of(world, one) == {
            world.keys.tombstone(one),
            world.keys.fencegen(one),
        }
    assert world.do(executions.list_executions(world.keys)).total == 0
    assert world.do(raw("KEYS", f"{world.keys.prefix}:start-dedup:*")) == []


def test_KNOWN_TROUBLE_23_what_the_client_refuses_a_foreign_carrier_may_not_have_either(world: World) -> None:
    """One rule: what is refused at the edge becomes a dead letter that names it, and nothing is lost or looped."""
    flow(world, "f", "a")
    supervisor = world.serving(**FLAGS)
    sent = 0
    for bad in REFUSED:
        with pytest.raises(InputError):
            world.start("f", {}, execution_id=bad if bad is not None else "")
        if bad in ("", None):
            continue  # that is no id, which a start of another producer may leave out
        for field in ("execution_id", "flow_id"):
            payload = {"type": "start", "flow_id": "f", "execution_id": "e", field: bad}
            body = jsontext.dumps(payload) if bad != "\ud800" else b'{"type":"start","flow_id":"\\ud800"}'
            world.do(carriers.enqueue(world.keys, "q", [("payload", body)]))
            sent += 1
    supervisor.wait_status(lambda s: s["counters"]["dead_lettered"] == sent, f"{sent} dead letters")
    assert [(one.length, one.pending) for one in world.stats().streams] == [(0, 0), (0, 0)]
    assert world.do(executions.list_executions(world.keys)).total == 0
    letters = [read(dict(zip(flat[::2], flat[1::2], strict=True))) for _, flat in
               world.do(raw("XRANGE", world.keys.dead_letters, "-", "+"))]  # fmt: skip
    assert all(letter["cause"] == "malformed" and letter["reason"] for letter in letters)
    assert "\n\n" not in supervisor.text()  # no id has broken a line of the log


def test_KNOWN_TROUBLE_23_two_spellings_of_one_id_are_one_execution(world: World) -> None:
    flow(world, "f", "a")
    world.serving(**FLAGS)
    spelled = [unicodedata.normalize(form, "café:é") for form in ("NFC", "NFD")]
    assert spelled[0] != spelled[1]
    for one in spelled:
        payload = {"type": "start", "flow_id": "f", "execution_id": one, "dedup_key": one}
        world.do(carriers.enqueue(world.keys, "q", [("payload", jsontext.dumps(payload))]))
    assert world.wait(_when_there(world, spelled[0]))["status"] == "completed"
    until(lambda: all(one.length == 0 for one in world.stats().streams), "empty streams")
    assert world.do(executions.list_executions(world.keys)).total == 1
    world.client.perform(remove_execution(world.keys, spelled[1], "", force=False))
    assert world.do(raw("KEYS", f"{world.keys.prefix}:start-dedup:*")) == []


def _when_there(world: World, execution_id: str) -> str:
    until(lambda: world.do(raw("EXISTS", world.keys.row(execution_id))), "its row")
    return execution_id


def test_KNOWN_TROUBLE_23_a_claim_is_released_whatever_its_key_looks_like(world: World) -> None:
    flow(world, "f", "a")
    for number, key in enumerate(("a b", "a{b}%:c", "{}", "%25", "日本 語", "'\"\\")):
        begin = executions.Begin(
            f"e{number}", "h/1", "n", 60_000, "q", "1-1", 5, foreign=ForeignStart("f", "latest", b"1", key)
        )
        world.do(executions.begin(world.keys, begin))
        assert world.do(raw("GET", world.keys.start_dedup(key))) == f"e{number}".encode()
        world.client.perform(remove_execution(world.keys, f"e{number}", "", force=True))
        assert world.do(raw("EXISTS", world.keys.start_dedup(key))) == 0
