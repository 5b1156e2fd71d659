"""Carriers that name a host, with real supervisors (ledger G4, DECISIONS 12).

Min-idle, which bounds the handing over, is ten minutes unless a test is about it (DECISIONS 44).
"""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import pytest
from carriers_by_hand import ended, send_start
from hosts import SupervisorProcess, World, until

from plaita import jsontext
from plaita.policy.carrier import Carrier, read_carrier
from plaita.store import executions
from plaita.store.carriers import Entry
from plaita.store.executions import Start
from plaita.store.runner_async import AsyncRunner
from plaita.supervisor import affinity
from plaita.supervisor.affinity import Affinity
from plaita.supervisor.sender import Sender
from plaita.supervisor.stats import Stats
from plaita.testing.server import raw

FLAGS = {"claim_min_idle_ms": 600_000, "lease_ttl_seconds": 600, "executors": 1}


def start(world: World, target: str) -> str:
    """An execution of the flow ``f`` that names a host."""
    world.put("f", [{"type": "start", "id": "s", "next": "e"}, {"type": "end", "id": "e", "output": 1}])
    execution = uuid.uuid4().hex
    payload = {
        "type": "start",
        "flow_id": "f",
        "execution_id": execution,
        "tenant_id": "default",
        "input_in_row": True,
        "target_instance_id": target,
    }
    world.do(executions.start(world.keys, Start(execution, "f", b"{}", jsontext.dumps(payload))))
    return execution


def ran_on(world: World, execution: str) -> str:
    assert world.wait(execution)["status"] == "completed"
    return world.row(execution).control["last_holder"].rpartition("/")[0]


def counter(supervisor: SupervisorProcess, name: str) -> int:
    status = supervisor.status()
    return 0 if status is None else int(status["counters"][name])


def nothing_left(world: World) -> bool:
    stats = world.stats()
    return all(stream.length == stream.pending == 0 for stream in stats.streams) and stats.delayed == 0


def test_G4_the_named_host_runs_it_and_another_hands_it_over(world: World) -> None:
    one, two = (world.serving(instance=name, **FLAGS) for name in ("one", "two"))
    two.ask("pause")  # so that the other one meets it first; for the registry it runs
    execution = start(world, "two")
    until(lambda: counter(one, "handed_over") >= 2, "two handovers")
    two.ask("resume")
    assert ran_on(world, execution) == "two"
    until(lambda: nothing_left(world), "an empty queue")
    assert "event=TaskNotForThisWorker" in one.text()
    assert counter(one, "steps") == 0
    assert world.get(execution)["attempts"] == 1


def test_G4_whoever_meets_them_all_run_where_they_are_to(world: World) -> None:
    for name in ("one", "two"):
        world.serving(instance=name, **FLAGS)
    wanted = {start(world, name): name for name in ("one", "two") * 6}
    assert {execution: ran_on(world, execution) for execution in wanted} == wanted
    until(lambda: nothing_left(world), "an empty queue")


def test_G4_a_target_that_was_stopped_is_replaced_by_anybody(world: World) -> None:
    one, two = (world.serving(instance=name, **FLAGS) for name in ("one", "two"))
    assert two.stop() == 0
    execution = start(world, "two")
    assert ran_on(world, execution) == "one"
    assert "event=dispatch-target-unavailable:broadcast" in one.text()
    assert (counter(one, "broadcast"), counter(one, "handed_over")) == (1, 0)


def test_G4_a_target_that_drains_is_replaced_by_anybody(world: World) -> None:
    one, two = (world.serving(instance=name, **FLAGS) for name in ("one", "two"))
    two.ask("drain")
    execution = start(world, "two")
    assert ran_on(world, execution) == "one"
    assert counter(one, "broadcast") == 1


def test_G4_a_target_that_nobody_knows_is_replaced_at_once(world: World) -> None:
    one = world.serving(instance="one", **FLAGS)
    execution = start(world, "nobody")
    assert ran_on(world, execution) == "one"
    assert "event=dispatch-target-unavailable:broadcast" in one.text()
    assert counter(one, "handed_over") == 0
    until(lambda: nothing_left(world), "an empty queue")


def test_DECISIONS_12_a_target_that_does_not_take_it_in_time_is_given_up(world: World) -> None:
    one, two = (world.serving(instance=name, **{**FLAGS, "claim_min_idle_ms": 1000}) for name in ("one", "two"))
    two.ask("pause")
    execution = start(world, "two")
    assert ran_on(world, execution) == "one"
    assert "event=AffinityHandoverExhausted" in one.text()
    assert counter(one, "handed_over") >= 1
    assert (counter(one, "broadcast"), counter(one, "handover_exhausted")) == (1, 1)


def test_G4_where_redis_says_nothing_the_target_stays(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(affinity, "ANSWER_MS", 100)
    start(world, "two")
    [(entry_id, flat)] = world.do(raw("XRANGE", world.keys.queue, "-", "+"))
    entry = Entry("q", entry_id.decode(), tuple(zip(flat[::2], flat[1::2], strict=True)))
    carrier = read_carrier(entry.fields, queue="q", entry_id=entry.entry_id)
    assert isinstance(carrier, Carrier)

    async def ask() -> bool:
        runner = AsyncRunner("redis://127.0.0.1:1/0")
        try:
            sender = Sender(runner, Stats())
            judge = Affinity(
                world.keys,
                sender,
                Stats(),
                instance_id="one",
                patience_ms=0,
                step_back=sender.runner.unblock,
                paths=None,
            )
            return await judge.runs_here(carrier, entry)
        finally:
            await runner.close()

    assert asyncio.run(ask()) is False
    assert world.do(raw("XRANGE", world.keys.queue, "-", "+")) == [[entry_id, flat]]
    assert world.stats().delayed == 0


def test_S1_a_start_without_an_id_keeps_its_first_one_while_it_is_handed_over(world: World) -> None:
    world.put("f", [{"type": "start", "id": "s", "next": "e"}, {"type": "end", "id": "e", "output": 1}])
    one, two = (world.serving(instance=name, **FLAGS) for name in ("one", "two"))
    two.ask("pause")
    entry_id = send_start(world, "f", target_instance_id="two", tenant_id="default")
    until(lambda: counter(one, "handed_over") >= 2, "two handovers")
    assert two.stop() == 0
    execution = str(uuid.uuid5(uuid.NAMESPACE_OID, f"{world.keys.queue}:{entry_id}"))
    assert ended(world, execution)["status"] == "completed"
    assert counter(one, "broadcast") == 1
    assert world.do(raw("ZRANGE", world.keys.index("completed"), "0", "-1")) == [execution.encode()]


def test_G4_the_copy_takes_the_place_of_its_source(world: World) -> None:
    """What is handed over says so, and keeps all else."""
    one = world.serving(instance="one", **FLAGS)
    two = world.serving(instance="two", **FLAGS)
    two.ask("pause")
    start(world, "two")
    until(lambda: counter(one, "handed_over") >= 1, "a handover")
    one.ask("pause")

    def copy() -> dict[str, Any] | None:
        for stream in (world.keys.queue, world.keys.wake):
            for _, flat in world.do(raw("XRANGE", stream, "-", "+")):
                return {name.decode(): value for name, value in zip(flat[::2], flat[1::2], strict=True)}
        return None

    found = until(copy, "the copy, moved to a stream")
    assert jsontext.loads(found["payload"])["target_instance_id"] == "two"
    assert {"handovers", "handover_since", "first_enqueued_at", "execution_id", "flow_id"} <= set(found)


def test_G4_a_name_is_the_same_in_every_unicode_form(world: World) -> None:
    world.put("f", [{"type": "start", "id": "s", "next": "e"}, {"type": "end", "id": "e", "output": 1}])
    one = world.serving(instance="n\u00e9", **FLAGS)
    send_start(world, "f", target_instance_id="ne\u0301", tenant_id="default", execution_id="e")
    assert ended(world, "e")["status"] == "completed"
    assert counter(one, "handed_over") == 0
