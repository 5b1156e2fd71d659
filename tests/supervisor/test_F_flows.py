"""Ledger F on real servers: which definition an execution runs, what is saved when, and how it ends.

F7 (callbacks) has ``test_callbacks``, F9 ``test_redis``, F10 ``tests/storage``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hosts import World, until

from plaita import jsontext
from plaita.client.operations import put_flow
from plaita.errors import RefusedError
from plaita.flow.outline import flow_hash
from plaita.policy.carrier import resume_payload
from plaita.store import carriers, executions, flows
from plaita.store.call import Answer, Call
from plaita.store.keys import Keys
from plaita.supervisor.flow_cache import CACHE_SIZE, CACHE_TTL_MS, FlowCache, FlowGone
from plaita.testing.server import raw

PATIENT: dict[str, Any] = {
    "lease_ttl_seconds": 600, "claim_min_idle_ms": 600_000, "preload": ["crashing", "waiting", "outcomes"],
}  # fmt: skip


# -- F1: the cache ---------------------------------------------------------------------------------------------


class Reading:
    """In the place of the supervisor's sender: answers from the server, and counts."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.sent = 0

    async def send(self, call: Call[Any], *, until: int) -> Answer[Any]:
        self.sent += 1
        return self._world.runner.run(call)


class Cache:
    """A cache on the server with a clock of the test's."""

    def __init__(self, world: World, **changes: Any) -> None:
        self.reading = Reading(world)
        self.now = 0
        self._cache = FlowCache(self.reading, clock=lambda: self.now, **changes)  # type: ignore[arg-type]

    def get(self, keys: Keys, digest: str) -> bytes:
        found = asyncio.run(self._cache.get(keys, digest, 0))
        assert found is not None
        return found.definition

    def reads(self, keys: Keys, digest: str) -> int:
        """How many calls this cost."""
        before = self.reading.sent
        self.get(keys, digest)
        return self.reading.sent - before


def stored(world: World, flow_id: str, value: Any = 1, tenant: str = "default") -> str:
    definition = {
        "flow_id": flow_id,
        "nodes": [
            {"type": "start", "id": "start", "next": "m"},
            {"type": "mock", "id": "m", "value": value, "next": "end"},
            {"type": "end", "id": "end", "output": "$NODE.m"},
        ],
    }
    digest = flow_hash(definition)
    call = flows.put(world.keys.for_tenant(tenant), flow_id, None, digest, jsontext.dumps(definition))
    world.do(call)
    return digest


def test_F1_the_defaults_are_a_hundred_flows_for_five_minutes() -> None:
    assert (CACHE_SIZE, CACHE_TTL_MS) == (100, 300_000)


def test_F1_a_miss_reads_and_fills_a_hit_does_not_read(world: World) -> None:
    cache, digest = Cache(world), stored(world, "f")
    assert [cache.reads(world.keys, digest) for _ in range(3)] == [1, 0, 0]
    cache.now = CACHE_TTL_MS - 1
    assert cache.reads(world.keys, digest) == 0
    cache.now = CACHE_TTL_MS
    assert [cache.reads(world.keys, digest) for _ in range(2)] == [1, 0]


def test_F1_the_least_recently_used_goes_first(world: World) -> None:
    digests = [stored(world, f"f{number}", number) for number in range(CACHE_SIZE + 1)]
    cache = Cache(world)
    for digest in digests[:CACHE_SIZE]:
        cache.get(world.keys, digest)
    assert cache.reads(world.keys, digests[0]) == 0  # used again: now the second is the oldest
    assert cache.reads(world.keys, digests[CACHE_SIZE]) == 1
    assert cache.reads(world.keys, digests[0]) == 0
    assert cache.reads(world.keys, digests[1]) == 1


def test_F1_a_flow_read_again_after_its_time_is_the_newest(world: World) -> None:
    first, second, third = (stored(world, f"f{number}", number) for number in range(3))
    cache = Cache(world, size=2, ttl_ms=10)
    cache.get(world.keys, first)
    cache.now = 5
    cache.get(world.keys, second)
    cache.now = 12
    assert cache.reads(world.keys, first) == 1
    assert cache.reads(world.keys, third) == 1
    assert cache.reads(world.keys, first) == 0


def test_F1_never_shared_between_tenants(world: World) -> None:
    cache, digest = Cache(world), stored(world, "f")
    cache.get(world.keys, digest)
    acme = world.keys.for_tenant("acme")
    with pytest.raises(FlowGone, match="not stored"):
        cache.get(acme, digest)
    stored(world, "f", tenant="acme")
    assert cache.reads(acme, digest) == 1
    world.do(raw("DEL", acme.flow_body(digest)))
    assert cache.reads(world.keys, digest) == 0


def test_F1_what_is_gone_is_not_remembered(world: World) -> None:
    cache, digest = Cache(world), stored(world, "f")
    body = world.do(raw("GET", world.keys.flow_body(digest)))
    world.do(raw("DEL", world.keys.flow_body(digest)))
    for _ in range(2):
        with pytest.raises(FlowGone) as gone:
            cache.get(world.keys, digest)
        assert gone.value.found_hash is None
    world.do(raw("SET", world.keys.flow_body(digest), body))
    assert cache.get(world.keys, digest) == body


def test_F1_two_tenants_with_one_flow_id_run_each_its_own(world: World) -> None:
    stored(world, "f", "ours")
    stored(world, "f", "theirs", tenant="acme")
    world.serving(**PATIENT)
    assert world.run("f")["output"] == "ours"
    for number in range(3):
        payload = {"type": "start", "flow_id": "f", "execution_id": f"e{number}", "tenant_id": "acme"}
        world.do(carriers.enqueue(world.keys, "q", [("payload", jsontext.dumps(payload))]))
    acme = world.keys.for_tenant("acme")
    for number in range(3):
        name = acme.row(f"e{number}")
        until(lambda name=name: world.do(raw("HGET", name, "status")) == b"completed", "its end")  # type: ignore[misc]
        assert world.do(raw("HGET", name, "output")) == b'"theirs"'


# -- F2, F3: what is saved when ------------------------------------------------------------------------------------


def gated(world: World) -> Path:
    """Flow ``f``: start, a (noted), b (gated), end; the gate of b's first attempt."""
    lines, gate = str(world.folder / "lines"), str(world.folder / "gate")
    world.chain(
        "f", {"type": "t_noted", "id": "a", "file": lines}, {"type": "t_gated", "id": "b", "file": lines, "gate": gate}
    )
    return Path(f"{gate}.1")


@pytest.fixture
def gate(world: World) -> Iterator[Path]:
    made = gated(world)
    yield made
    for attempt in range(1, 6):
        made.with_suffix(f".{attempt}").touch()


def test_F2_a_step_is_saved_before_the_next_one_begins(world: World, gate: Path) -> None:
    supervisor = world.serving(**PATIENT)
    execution = world.start("f")
    supervisor.busy("b")
    row = world.row(execution)
    assert (row.status, row.control["step"], row.control["last_node"], row.control["next_node"]) == (
        "running", "2", "a", "b",
    )  # fmt: skip
    assert row.results["a"] == b"1"
    assert "b" not in row.results
    assert [one.pending for one in world.stats().streams if one.name == world.keys.queue] == [1]


def test_F2_a_step_that_cannot_be_saved_is_not_acked_and_its_carrier_comes_again(world: World, gate: Path) -> None:
    supervisor = world.serving(**{**PATIENT, "lease_ttl_seconds": 5, "claim_min_idle_ms": 1000})
    execution = world.start("f")
    supervisor.busy("b")
    name = world.keys.row(execution)
    dump = world.do(raw("DUMP", name))
    world.do(raw("SET", name, "not a row"))
    gate.touch()
    until(lambda: gate.with_name(gate.name + ".passed").exists(), "b is past its gate")
    supervisor.wait_status(lambda s: all(one["state"] == "idle" for one in s["executors"]), "the step is let go")
    assert world.do(raw("GET", name)) == b"not a row"
    assert [(one.length, one.pending) for one in world.stats().streams if one.name == world.keys.queue] == [(1, 1)]
    assert world.stats().dlq_length == 0
    world.do(raw("RESTORE", name, 0, dump, "REPLACE"))
    for attempt in range(2, 6):
        gate.with_suffix(f".{attempt}").touch()
    assert world.wait(execution)["status"] == "completed"
    nodes = [line.split()[1] for line in (world.folder / "lines").read_text().splitlines()]
    assert nodes.count("a") == 1


def test_F3_the_end_is_saved_with_everything_that_belongs_to_it(world: World, gate: Path) -> None:
    supervisor = world.serving(**PATIENT)
    execution = world.start("f")
    supervisor.busy("b")
    gate.touch()
    until(lambda: world.do(raw("HGET", world.keys.row(execution), "status")) == b"completed", "the end")
    row = world.row(execution)  # the moment it is completed, all of it is
    assert (row.lease, row.output) == (None, b'{"start":null,"a":1,"b":1}')
    assert [(one.length, one.pending) for one in world.stats().streams] == [(0, 0), (0, 0)]
    for status, score in (("running", None), ("completed", float(row.control["created_at"]))):
        found = world.do(raw("ZSCORE", world.keys.index(status), execution))
        assert (None if found is None else float(found)) == score


# -- F4: no way on ---------------------------------------------------------------------------------------------------


def condition(value: int) -> dict[str, Any]:
    return {"field": "$INPUT.x", "operator": "eq", "value": value}


NO_WAY = {
    "if without else": {"type": "if", "condition": condition(1), "next": "end"},
    "if whose else is the placeholder": {"type": "if", "condition": condition(1), "next": "end", "else_next": "false"},
    "if whose else is empty": {"type": "if", "condition": condition(1), "next": "end", "else_next": ""},
    "switch": {"type": "switch", "branches": [{"next": "end", "condition": condition(1)}], "next": None},
}


@pytest.mark.parametrize("given_up", [False, True])
@pytest.mark.parametrize("node", NO_WAY)
def test_F4_no_matching_branch_is_an_error_and_never_left_running(world: World, node: str, given_up: bool) -> None:
    handler = {"errorHandler": {"strategy": "continue"}} if given_up else {}
    nodes = [
        {"type": "start", "id": "start", "next": "m"},
        {"type": "mock", "id": "m", "value": 7, "next": "n"},
        {"id": "n", **NO_WAY[node], **handler},
        {"type": "end", "id": "end"},
    ]
    world.put("f", nodes)
    world.serving(**PATIENT)
    row = world.run("f", {"x": 2})
    if given_up:
        assert (row["status"], row["output"]["m"]) == ("completed", 7)
    else:
        assert (row["status"], row["error"]["failed_node"]) == ("error", "n")
        expected = "FlowExecutionException" if "empty" in node or node == "switch" else "NodeNotFoundError"
        assert row["error"]["exception"] == expected
    assert world.stats().dlq_length == 0
    assert [(one.length, one.pending) for one in world.stats().streams] == [(0, 0), (0, 0)]
    assert world.row(row["execution_id"]).lease is None


def listed(world: World, status: str) -> list[str]:
    page = world.do(executions.list_executions(world.keys, status))
    return [row["execution_id"] for row in page.rows]


# -- F5: the id ------------------------------------------------------------------------------------------------------


def test_F5_the_execution_id_is_the_workers_at_each_step_and_resume(world: World) -> None:
    file = str(world.folder / "entries")
    world.chain(
        "f",
        {"type": "assignment", "id": "before", "output": "$EXECUTION_ID"},
        {"type": "t_wait", "id": "w", "file": file},
        {"type": "assignment", "id": "after", "output": "$EXECUTION_ID"},
    )
    first = world.serving(**PATIENT)
    payload = {"type": "start", "flow_id": "f", "params": {"$EXECUTION_ID": "another's"}}
    world.do(carriers.enqueue(world.keys, "q", [("payload", jsontext.dumps(payload))]))
    execution = until(lambda: listed(world, "suspended"), "the wait")[0]
    assert not any(name.strip("$").upper() == "EXECUTION_ID" for name in world.row(execution).control)
    assert first.stop() == 0  # another process has only what is in the row
    world.serving(**PATIENT, instance="two")
    world.client.resume(execution, "event", {"a": 1})
    output = world.wait(execution)["output"]
    assert (output["before"], output["after"]) == (execution, execution)
    noted = {line.split()[1] for line in Path(file).read_text().splitlines()}
    assert noted == {execution}


def test_F5_nothing_is_counted_under_an_empty_id(world: World) -> None:
    world.chain("f", {"type": "t_noted", "id": "a", "file": str(world.folder / "lines"), "fails": 9})
    world.serving(**PATIENT, max_deliveries=2)
    for payload in ({"execution_id": ""}, {"execution_id": None}, {}):
        start = {"type": "start", "flow_id": "f", **payload}
        world.do(carriers.enqueue(world.keys, "q", [("payload", jsontext.dumps(start))]))
    until(lambda: len(listed(world, "error")) == 3, "three ends")
    assert "" not in listed(world, "error")
    names = [key.decode() for key in world.do(raw("KEYS", f"{world.keys.prefix}:execution:*"))]
    assert all(name.rstrip(":") == name and "::" not in name for name in names)


# -- F6: the definition is gone, or another ----------------------------------------------------------------------------


class Waiting:
    """An execution that waits, and no supervisor any more that knows its flow."""

    def __init__(self, world: World) -> None:
        self.world = world
        world.chain("f", {"type": "t_wait", "id": "w", "file": str(world.folder / "entries")})
        supervisor = world.serving(**PATIENT)
        self.execution = world.start("f")
        until(lambda: world.get(self.execution)["status"] == "suspended", "the wait")
        assert supervisor.stop() == 0
        self.digest = world.row(self.execution).control["flow_hash"]
        self.key = world.keys.flow_body(self.digest)
        self.body = world.do(raw("GET", self.key))

    def spoil(self, how: str) -> str | None:
        """The hash of what stands there now."""
        if how == "gone":
            self.world.do(raw("DEL", self.key))
            return None
        changed = jsontext.loads(self.body)
        changed["nodes"][-1]["output"] = "changed"
        self.world.do(raw("SET", self.key, jsontext.dumps(changed)))
        return flow_hash(changed)

    def send(self, kind: str) -> None:
        payload = resume_payload(
            execution_id=self.execution, flow_id="f", resume_type=kind, tenant_id="default", timestamp=""
        )
        self.world.do(carriers.enqueue(self.world.keys, "w", [("payload", payload)]))
        until(lambda: all(one.length == 0 for one in self.world.stats().streams), "empty streams")


@pytest.mark.parametrize("how", ["gone", "changed"])
def test_F6_a_definition_that_is_gone_or_changed_ends_it_and_a_retry_waits_for_the_right_one(
    world: World, how: str
) -> None:
    waiting = Waiting(world)
    execution, found = waiting.execution, waiting.spoil(how)
    supervisor = world.serving(**PATIENT, instance="two")
    waiting.send("event")
    row = world.wait(execution)
    error = row["error"]
    assert (row["status"], error["stored_flow_hash"], error["found_flow_hash"]) == ("error", waiting.digest, found)
    assert "changed or is gone" in error["message"]
    assert waiting.digest in error["message"]
    assert found is None or found in error["message"]
    supervisor.wait_status(lambda s: s["counters"]["poison_acked"] == 1, "poison_acked")
    assert (world.stats().dlq_length, world.row(execution).lease) == (0, None)

    ended = world.row(execution)
    waiting.send("retry")
    assert world.row(execution) == ended  # it stays as it is, and no wake-up is counted
    assert world.do(raw("EXISTS", world.keys.of_execution("g1wakeups", execution))) == 0

    world.do(raw("SET", waiting.key, waiting.body))
    waiting.send("retry")
    row = world.wait(execution)
    assert (row["status"], row["output"]["w"]["status"]) == ("completed", "completed")


def test_F6_a_command_for_one_whose_definition_is_gone_says_so(world: World) -> None:
    waiting = Waiting(world)
    waiting.spoil("gone")
    supervisor = world.serving(**PATIENT, instance="two")
    waiting.send("event")
    assert world.wait(waiting.execution)["status"] == "error"
    told = world.client.resume(waiting.execution, "retry")
    assert (told["resumed"], told["reason"], told["flow_hash"]) == (False, "definition_gone", waiting.digest)
    assert supervisor.code is None


@pytest.mark.parametrize("version", ["1", None])
def test_F6_a_row_without_a_hash_takes_what_its_version_holds_unchecked(world: World, version: str | None) -> None:
    """As another producer wrote it, or a program that saved it without one."""
    stored(world, "f")
    execution = world.start("f")
    world.do(raw("HDEL", world.keys.row(execution), "flow_hash", *([] if version else ["version"])))
    world.serving(**PATIENT)
    row = world.wait(execution)
    assert (row["status"], row["output"]) == ("completed", 1)


def test_F6_a_row_without_a_hash_whose_version_is_not_there_ends_in_error(world: World) -> None:
    stored(world, "f")
    execution = world.start("f")
    world.do(raw("HDEL", world.keys.row(execution), "flow_hash"))
    world.do(raw("HSET", world.keys.row(execution), "version", "7"))
    world.serving(**PATIENT)
    row = world.wait(execution)
    assert row["status"] == "error"
    assert "version '7', is not stored" in row["error"]["message"]


# -- F8 ----------------------------------------------------------------------------------------------------------------


def test_F8_an_id_of_another_flow_is_refused_and_its_row_untouched(world: World) -> None:
    stored(world, "f")
    stored(world, "g", 2)
    supervisor = world.serving(**PATIENT)
    execution = world.start("f", execution_id="mine")
    assert world.wait(execution)["output"] == 1
    before = world.do(raw("DUMP", world.keys.row("mine")))
    payload = {"type": "start", "flow_id": "g", "execution_id": "mine", "params": {}}
    world.do(carriers.enqueue(world.keys, "q", [("payload", jsontext.dumps(payload))]))
    supervisor.wait_status(lambda s: s["counters"]["poison_acked"] == 1, "poison_acked")
    assert world.do(raw("DUMP", world.keys.row("mine"))) == before
    until(lambda: all(one.length == one.pending == 0 for one in world.stats().streams), "empty streams")
    assert world.stats().dlq_length == 0
    with pytest.raises(RefusedError) as refused:
        world.start("g", execution_id="mine")
    assert refused.value.reason == "id_taken"


def test_F10_a_flow_that_is_put_is_found_by_its_hash_for_as_long_as_something_needs_it(world: World) -> None:
    """Replaced, then removed: what began with it ends with it (DECISIONS 14)."""
    waiting = Waiting(world)
    body = jsontext.dumps({**jsontext.loads(waiting.body), "description": "another"})
    digest = flow_hash(jsontext.loads(body))
    world.client.perform(put_flow(world.keys, "f", "1", digest, body, force=True))
    world.client.perform(_removed(world))
    world.serving(**PATIENT, instance="two")
    world.client.resume(waiting.execution, "event", None)
    assert world.wait(waiting.execution)["status"] == "completed"


def _removed(world: World) -> Any:
    from plaita.client.operations import remove_flow

    return remove_flow(world.keys, "f")
