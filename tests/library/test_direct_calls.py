"""``start_flow`` and ``resume_flow``: run here, answered here, by ledger id."""

from __future__ import annotations

import tempfile
import uuid
from pathlib import Path
from typing import Any

import pytest
from library_world import Fails, Gate, World, chain, types, until

from plaita import EventNode, jsontext
from plaita.errors import ExecutionIdConflictError, InputError, RefusedError, ResumeProtocolError
from plaita.nodes.builtin import BUILT_IN
from plaita.nodes.registry import NodeRegistry
from plaita.server import FlowWorker
from plaita.storage import (
    ExecutionState,
    ExecutionStorage,
    FlowStorage,
    MemoryExecutionStorage,
    MemoryFlowStorage,
    RedisExecutionStorage,
    RedisFlowStorage,
)
from plaita.store import executions, leases
from plaita.testing.server import Server


def fails(times: int, **fields: Any) -> dict[str, Any]:
    return {"type": "t_fails", "id": "f", "name_of": uuid.uuid4().hex, "times": times, **fields}


def test_a_start_runs_to_its_end_and_leaves_nothing_behind(world: World) -> None:
    world.put("f", {"type": "assignment", "id": "m", "output": "$INPUT.x"})
    answer = world.worker().start_flow("f", {"x": 1})
    assert answer == {
        "execution_id": answer["execution_id"],
        "flow_id": "f",
        "version": "1",
        "tenant_id": "default",
        "status": "completed",
        "output": answer["output"],
        "error": None,
        "last_node_id": "end",
        "waiting": None,
        "already_terminal": False,
        "already_suspended": False,
        "deduplicated": False,
    }
    assert set(answer["output"]) == {"start", "m"}
    assert answer["output"]["m"] == 1
    assert world.lengths() == (0, 0, 0)
    assert world.row(answer["execution_id"]).lease is None
    assert world.client.get(answer["execution_id"])["status"] == "completed"


def test_it_is_pinned_and_listed_like_any_other(world: World) -> None:
    world.put("f", {"type": "mock", "id": "m", "value": 1})
    world.put("f", {"type": "mock", "id": "m", "value": 2})
    worker = world.worker()
    assert worker.start_flow("f")["output"]["m"] == 2
    assert worker.start_flow("f", version="1")["output"]["m"] == 1
    assert [one.flow_version for one in world.executions.list_executions({"status": "completed"})] == ["1", "2"]


def test_what_cannot_start_is_refused(world: World) -> None:
    world.put("f")
    worker = world.worker()
    for call, reason in ((("none",), "no_flow"), (("f", None, "9"), "no_version")):
        with pytest.raises(RefusedError) as refused:
            worker.start_flow(*call)
        assert refused.value.reason == reason
    for bad in ({"params": float("nan")}, {"execution_id": "a b"}):
        with pytest.raises(InputError):
            worker.start_flow("f", **bad)
    with pytest.raises(RefusedError, match="no execution"):
        worker.resume_flow("nobody")
    assert world.executions.list_executions() == []


def test_S1_an_id_that_was_used_goes_on_and_never_over_again(world: World) -> None:
    world.put("f", {"type": "mock", "id": "m"})
    world.put("g")
    worker = world.worker()
    assert worker.start_flow("f", execution_id="e")["already_terminal"] is False
    assert worker.start_flow("f", execution_id="e")["already_terminal"] is True
    assert world.row("e").control["attempts"] == "1"
    with pytest.raises(ExecutionIdConflictError, match="of flow 'f'"):
        worker.start_flow("g", execution_id="e")
    world.client.start("f", execution_id="queued")
    assert worker.start_flow("f", execution_id="queued")["status"] == "completed"
    assert world.lengths()[1:] == (0, 0)


def test_S2_a_dedup_key_starts_once(world: World) -> None:
    world.put("f", {"type": "t_waits", "id": "w"})
    worker = world.worker()
    first = worker.start_flow("f", dedup_key="k")
    assert (first["status"], first["deduplicated"]) == ("suspended", False)
    again = worker.start_flow("f", dedup_key="k")
    assert again["execution_id"] == first["execution_id"]
    assert (again["deduplicated"], again["already_suspended"], again["already_terminal"]) == (True, True, False)
    worker.resume_flow(first["execution_id"], "event")
    again = worker.start_flow("f", dedup_key="k")
    assert (again["deduplicated"], again["already_terminal"]) == (True, True)


def test_D2_what_was_deleted_stays_deleted(world: World) -> None:
    world.put("f", {"type": "t_waits", "id": "w"})
    worker = world.worker()
    worker.start_flow("f", execution_id="e")
    world.executions.delete_execution_state("e")
    assert worker.start_flow("f", execution_id="e")["status"] == "deleted"
    assert worker.resume_flow("e", "event")["status"] == "deleted"
    assert world.executions.list_executions() == []


def test_S10_a_retry_of_the_queue_is_waited_for_and_run_here(world: World) -> None:
    world.put("f", fails(1))
    answer = world.worker().start_flow("f")
    assert (answer["status"], answer["output"]["f"]) == ("completed", 2)
    row = world.row(answer["execution_id"])
    assert row.control["attempts"] == "2"
    assert row.state == {"runs": b"2"}
    assert world.lengths() == (0, 0, 0)


def test_S11_a_node_that_always_fails_ends_in_error_and_in_the_dead_letters(world: World) -> None:
    world.put("f", fails(99))
    answer = world.worker(max_deliveries=2).start_flow("f")
    assert (answer["status"], answer["error"]["failed_node"], answer["error"]["node_retries"]) == ("error", "f", 1)
    assert len(world.client.dead_letters()) == 1


def test_a_wait_is_answered_and_resumed_by_an_event(world: World) -> None:
    world.put("f", {"type": "t_waits", "id": "w"})
    worker = world.worker()
    answer = worker.start_flow("f", execution_id="e")
    assert answer["status"] == "suspended"
    assert answer["waiting"]["event_type"] == "go"
    assert world.lengths() == (0, 0, 0)
    for kind in ("continue", "retry"):
        again = worker.resume_flow("e", kind)
        assert (again["status"], again["already_suspended"]) == ("suspended", True)  # S4
    answer = worker.resume_flow("e", "event", {"n": 1})
    assert answer["status"] == "completed"
    assert answer["output"]["w"]["event_data"] == {"n": 1}
    assert worker.resume_flow("e", "event", {"n": 2})["already_terminal"] is True
    assert world.lengths() == (0, 0, 0)


def test_a_wait_ends_by_its_timeout_and_by_a_cancel(world: World) -> None:
    handler = {"strategy": "continue-with", "defaultValue": "late"}
    world.put("f", {"type": "t_waits", "id": "w", "timeoutHandler": handler})
    worker = world.worker()
    worker.start_flow("f", execution_id="late")
    assert worker.resume_flow("late", "timeout")["output"]["w"] == "late"
    worker.start_flow("f", execution_id="gone")
    answer = worker.resume_flow("gone", "cancel", "enough")
    assert (answer["status"], answer["error"]["code"]) == ("cancelled", -4)
    assert world.row("gone").control["cancel_reason"] == "enough"
    assert worker.resume_flow("gone", "cancel")["already_terminal"] is True


def test_S3_S13_a_retry_wakes_what_failed_until_its_wakes_are_used_up(world: World) -> None:
    world.put("f", {"type": "mock", "id": "m"}, fails(2, deterministic=True))
    worker = world.worker()
    assert worker.start_flow("f", execution_id="e")["status"] == "error"
    assert worker.resume_flow("e", "continue")["already_terminal"] is True
    assert worker.resume_flow("e", "retry")["status"] == "error"
    answer = worker.resume_flow("e", "retry")
    assert (answer["status"], answer["output"]["f"]) == ("completed", 3)
    world.put("g", fails(99, deterministic=True))
    worker.start_flow("g", execution_id="x")
    for _ in range(2):
        assert worker.resume_flow("x", "retry")["status"] == "error"
    before = world.row("x").control
    answer = worker.resume_flow("x", "retry")
    assert answer["already_terminal"] is True
    assert answer["g1_wakeups_exhausted"] is True
    assert answer["counter_key"] == world.keys.of_execution("g1wakeups", "x")
    assert world.row("x").control == before


def test_S6_an_event_of_a_wait_that_is_over_goes_on_as_a_continue(world: World) -> None:
    world.put("f", {"type": "mock", "id": "m"})
    world.client.start("f", execution_id="e")
    with pytest.raises(ResumeProtocolError, match="pending and waits for nothing"):
        world.worker().resume_flow("e", "event")
    assert world.row("e").status == "pending"
    state = world.executions.load_execution_state("e")
    assert state is not None
    state.status, state.next_node = "running", "m"
    world.executions.save_execution_state("e", state)
    assert world.worker().resume_flow("e", "event")["status"] == "completed"


def test_S8_a_wait_that_a_cancel_forestalls_is_undone_with_what_it_began(world: World) -> None:
    """The cancel comes while the wait begins, so it is written nowhere: only its own code knows of it."""
    undone: list[Any] = []

    class Begins(EventNode):
        node_type = "t_begins"
        event_type: str | None = "go"

        def execute(self, execution: Any) -> Any:
            execution.set_state("ticket", 7)
            world.client.cancel("e", "by hand")
            return {"ordered": 3}

        def on_cancel(self, execution: Any) -> None:
            undone.append((execution.pending, execution.get_state("ticket")))

    world.put("f", {"type": "t_begins", "id": "w"})
    answer = world.worker(registry=NodeRegistry([*BUILT_IN, Begins])).start_flow("f", execution_id="e")
    assert (answer["status"], answer["last_node_id"]) == ("cancelled", "start")
    assert undone == [({"ordered": 3}, 7)]


def test_S8_a_running_step_is_told_and_its_execution_cancelled(world: World) -> None:
    name = world.gate("f")
    worker = world.worker()
    came = world.background(worker.start_flow, "f", execution_id="e")
    assert Gate.running[name].wait(60)
    answer = worker.resume_flow("e", "cancel", {"reason": "by hand"})
    assert (answer["status"], answer["last_node_id"]) == ("cancelled", "start")
    until(lambda: "answer" in came, "the start's answer")
    assert came["answer"]["status"] == "cancelled"
    assert Gate.left[name].is_set()
    assert world.lengths() == (0, 0, 0)


def test_a_step_that_does_not_listen_is_given_up_and_cannot_write(world: World) -> None:
    name = world.gate("f", heeds=False, timeout=200)
    worker = world.worker()
    answer = worker.start_flow("f", execution_id="e")
    assert (answer["status"], answer["error"]["code"]) == ("error", -1)
    before = world.row("e")
    assert not Gate.left[name].is_set()
    Gate.go_on[name].set()
    assert Gate.left[name].wait(60)
    assert worker.start_flow("f", execution_id="other")["status"] == "completed"  # the gate is open now
    assert world.row("e") == before
    assert worker.stats["executor_deaths"] == 1


def test_L3_a_lost_lease_ends_the_step_and_nothing_of_it_is_written(world: World) -> None:
    """Another took the execution: the step is told, its answer dropped, and the call follows the other to the end."""
    name = world.gate("f")
    worker = world.worker(lease_ttl_seconds=5)
    came = world.background(worker.start_flow, "f", execution_id="e")
    assert Gate.running[name].wait(60)
    Gate.running[name].clear()
    row = world.row("e")
    world.raw("DEL", world.keys.lease("e"))
    begin = executions.Begin("e", "other/1", "nonce", 600_000, "q", "9-9", 5, kind="continue")
    held = world.do(executions.begin(world.keys, begin))
    assert Gate.left[name].wait(60)
    assert "answer" not in came
    assert world.row("e").control["step"] == row.control["step"]
    world.do(
        executions.finish(
            world.keys, executions.Finish("e", held.token, int(row.control["step"]) + 1, "completed", "q", "9-9", 0)
        )
    )
    until(lambda: came, "the start's answer")
    assert came["answer"]["status"] == "completed"
    assert worker.stats["leases_lost"] == 1
    assert leases.parse_lease(row.lease or "") is not None


def test_while_another_holds_it_a_resume_says_so(world: World) -> None:
    name = world.gate("f")
    worker, other = world.worker(), world.worker()
    came = world.background(worker.start_flow, "f", execution_id="e")
    assert Gate.running[name].wait(60)
    answer = other.resume_flow("e", "continue")
    assert (answer["status"], answer["reason"]) == ("running", "held")
    Gate.go_on[name].set()
    until(lambda: "answer" in came, "the start's answer")
    assert came["answer"]["status"] == "completed"


def test_many_calls_at_once(world: World) -> None:
    world.put("f", {"type": "assignment", "id": "m", "output": "$INPUT.n"})
    worker = world.worker(concurrency=2)
    came = [world.background(worker.start_flow, "f", {"n": number}) for number in range(20)]
    until(lambda: all(came), "all answers")
    assert [one["answer"]["status"] for one in came] == ["completed"] * 20
    assert [one["answer"]["output"]["m"] for one in came] == list(range(20))


def test_F1_definitions_are_remembered_for_a_while(world: World) -> None:
    first, second = chain({"type": "mock", "id": "a"}), chain({"type": "mock", "id": "b"})
    world.flows.put_flow_definition("f", first)
    remembering, forgetting = world.worker(), world.worker(cache_ttl=0)
    for worker in (remembering, forgetting):
        assert worker.get_flow_definition("f") == first
        assert worker.get_flow_definition("g") is None
    (worker.get_flow_definition("f") or {}).clear()
    world.flows.put_flow_definition("f", second)
    assert remembering.get_flow_definition("f") == first
    assert forgetting.get_flow_definition("f") == second
    assert remembering.get_flow_definition("f", "2") == second
    assert "b" in remembering.start_flow("f")["output"]  # a start reads which is the latest (DECISIONS 14)


def test_in_memory_it_is_the_same(world: World) -> None:
    executions_, flows = MemoryExecutionStorage(), MemoryFlowStorage()
    name = uuid.uuid4().hex
    flows.put_flow_definition("f", chain({"type": "t_fails", "id": "f", "name_of": name, "deterministic": True}))
    flows.put_flow_definition("w", chain({"type": "t_waits", "id": "w"}))
    worker = world.worker()
    with FlowWorker(executions_, flows, registry=worker._types) as memory:
        assert memory.start_flow("f", execution_id="e")["status"] == "error"
        assert memory.resume_flow("e", "retry")["output"]["f"] == 2
        assert memory.start_flow("w", execution_id="w")["status"] == "suspended"
        assert memory.resume_flow("w", "event", 1)["status"] == "completed"
    state = executions_.load_execution_state("e")
    assert state is not None
    assert (state.status, state.context["$NODE"]["f"]) == ("completed", 2)
    assert Fails.runs[name] == 2


def test_F10_storages_of_two_kinds_or_places_are_refused(world: World) -> None:
    class Own(FlowStorage):
        pass

    Own.__abstractmethods__ = frozenset()  # type: ignore[attr-defined]
    cases: list[tuple[Any, Any, str]] = [
        (world.executions, MemoryFlowStorage(), "two servers"),
        (world.executions, Own(), "memory or redis storages"),
        (object(), world.flows, "memory or redis storages"),
        (world.executions, RedisFlowStorage(world.url, tenant="t"), "tenant"),
    ]
    for one, other, message in cases:
        with pytest.raises(InputError, match=message):
            FlowWorker(one, other)
    with pytest.raises(InputError, match="no method publish"):
        FlowWorker(world.executions, world.flows, event_bus=object())
    with pytest.raises(InputError, match="'leases'"):
        FlowWorker(world.executions, world.flows, leases=1)
    with pytest.raises(InputError, match="lease"):
        FlowWorker(world.executions, world.flows, lease_ttl_seconds=1)
    with pytest.raises(InputError, match="cache_size"):
        FlowWorker(world.executions, world.flows, cache_size=-1)
    for name in ("redis_url", "embedded", "key_prefix"):
        with pytest.raises(InputError, match=f"{name}: where the data is"):
            FlowWorker(world.executions, world.flows, **{name: "redis://elsewhere"})
    assert issubclass(type(world.executions), ExecutionStorage)


def test_F7_callbacks_see_every_step_across_waits_and_workers(world: World) -> None:
    world.put("f", {"type": "mock", "id": "m"}, {"type": "t_waits", "id": "w"})
    seen: list[tuple[int, str, str]] = []

    class Told:
        def __init__(self, number: int) -> None:
            self.number = number

        def on_node_start(self, event: Any) -> None:
            seen.append((self.number, "start", event.node_id))

        def on_node_end(self, event: Any) -> None:
            seen.append((self.number, "end", event.node_id))

        def on_flow_suspend(self, event: Any) -> None:
            seen.append((self.number, "suspend", event.node_id))

        def on_flow_end(self, event: Any) -> None:
            seen.append((self.number, "over", event.node_id))
            raise RuntimeError("changes nothing")

    first, second = (world.worker(callback_handlers=[Told(number)]) for number in (1, 2))
    first.start_flow("f", execution_id="e")
    assert second.resume_flow("e", "event")["status"] == "completed"
    steps = [(1, "start", "start"), (1, "end", "start"), (1, "start", "m"), (1, "end", "m"), (1, "start", "w")]
    steps += [(1, "suspend", "w"), (2, "end", "w"), (2, "start", "end"), (2, "end", "end"), (2, "over", "end")]
    assert seen == steps
    with pytest.raises(InputError, match="no callback"):
        world.worker(callback_handlers=[object()])


def test_F6_a_record_without_a_hash_is_pinned_when_it_is_saved_and_goes_on(world: World) -> None:
    world.put("f", {"type": "mock", "id": "m"}, {"type": "assignment", "id": "n", "output": "{% $NODE.m %} again"})
    old = ExecutionState(execution_id="e", flow_id="f", next_node="n", context={"$NODE": {"m": "kept"}})
    world.executions.save_execution_state("e", old)
    answer = world.worker().resume_flow("e")
    assert (answer["status"], answer["version"], answer["output"]) == (
        "completed",
        "1",
        {"m": "kept", "n": "kept again"},
    )


def test_of_another_tenant(world: World) -> None:
    executions_, flows = (
        make(world.url, key_prefix=world.keys.prefix, tenant="t") for make in (RedisExecutionStorage, RedisFlowStorage)
    )
    flows.put_flow_definition("f", chain({"type": "t_waits", "id": "w"}))
    with FlowWorker(executions_, flows, registry=types(), **world.queue) as worker:
        answer = worker.start_flow("f", execution_id="e")
        assert (answer["status"], answer["tenant_id"]) == ("suspended", "t")
        assert worker.resume_flow("e", "event")["status"] == "completed"
    assert executions_.load_execution_state("e") is not None
    assert world.executions.load_execution_state("e") is None


def test_settings_of_the_environment_count_and_the_storages_say_where(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.put("f")
    monkeypatch.setenv("PLAITA_EMBEDDED", "/nowhere")
    monkeypatch.setenv("PLAITA_REDIS_URL", "redis://nowhere:1")
    monkeypatch.setenv("PLAITA_QUEUE_NAME", f"{world.keys.prefix}:other")
    with FlowWorker(world.executions, world.flows, registry=types(), lease_ttl_seconds=7) as worker:
        assert worker.start_flow("f")["status"] == "completed"
        assert (worker.settings.queue_name, worker.settings.lease_ttl_seconds) == (f"{world.keys.prefix}:other", 7)


def test_a_server_that_is_away_while_a_step_runs_is_waited_for() -> None:
    with tempfile.TemporaryDirectory(prefix="plaita-") as folder:
        server = Server(Path(folder) / "data")
        server.write_through()
        world = World(server.url)
        try:
            name = world.gate("f")
            came = world.background(world.worker().start_flow, "f", execution_id="e")
            assert Gate.running[name].wait(60)
            server.kill()
            Gate.go_on[name].set()
            assert Gate.left[name].wait(60)
            server.start()
            until(lambda: came, "the answer")
            assert came["answer"]["status"] == "completed"
            assert came["answer"]["output"]["gate"] == 1  # its step was not run again
        finally:
            world.close()
            server.close()


def test_C1_a_worker_says_what_it_takes_another_value_for(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("PLAITA_DLQ_MAX_LEN", "many")
    monkeypatch.setenv("PLAITA_TENANT_STATUS_EPOCH_STRICT", "0")
    FlowWorker(world.executions, world.flows)
    assert "PLAITA_DLQ_MAX_LEN: 'many'" in caplog.text
    assert "tenant_status_epoch_strict: off" in caplog.text


def test_decision_30_a_worker_gives_out_the_url_of_a_callback_that_is_still_to_come(world: World) -> None:
    world.put(
        "f", {"type": "assignment", "id": "m", "output": "$F.callback_url('c')"}, {"type": "http_callback", "id": "c"}
    )
    worker = world.worker(
        callback_secret="a secret of 32 letters or even more", callback_base_url="https://flows.example"
    )
    answer = worker.start_flow("f")
    assert answer["status"] == "suspended"
    results = {node: jsontext.loads(text) for node, text in world.row(answer["execution_id"]).results.items()}
    assert results["m"] == results["c"]["service_config"]["callback_config"]["full_url"]
