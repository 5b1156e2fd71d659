"""Starting once: starts that come again, that name no id, that bring a dedup key (ledger S1, S2)."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from carriers_by_hand import (
    PATIENT,
    counters,
    ended,
    hold_back,
    nothing_left,
    raw,
    send_start,
    settled,
    stays,
)
from hosts import World, until


def runs(world: World) -> Counter[tuple[str, str]]:
    """How often each (execution, node) of the flow was run."""
    file = world.folder / "lines"
    lines = file.read_text().splitlines() if file.exists() else []
    return Counter((line.split()[0], line.split()[1]) for line in lines)


def first_and_gate(world: World) -> Path:
    """The flow ``f``: ``a``, which notes its run, then ``b``, whose attempt n ends once the file gate.<n> is there."""
    gate = world.folder / "gate"
    world.chain(
        "f",
        {"type": "t_noted", "id": "a", "file": str(world.folder / "lines")},
        {"type": "t_gated", "id": "b", "file": str(world.folder / "lines"), "gate": str(gate)},
    )
    return gate


def all_ids(world: World) -> set[str]:
    return {name.decode() for name in raw(world, "ZRANGE", world.keys.index(), 0, -1)}


def test_S1_a_foreign_start_without_an_id_gets_one_that_lasts(world: World) -> None:
    gate = first_and_gate(world)
    first = world.serving(**PATIENT)
    entry = send_start(world, params={"n": 1})
    execution = str(uuid.uuid5(uuid.NAMESPACE_OID, f"{world.keys.queue}:{entry}"))
    first.busy("b")
    first.kill()
    second = world.serving(**PATIENT)
    second.busy("b")
    gate.with_name("gate.2").touch()
    row = ended(world, execution)
    assert (row["status"], row["input"], row["output"]["b"]) == ("completed", {"n": 1}, 2)
    assert runs(world) == {(execution, "a"): 1, (execution, "b"): 2}
    assert all_ids(world) == {execution}
    assert counters(world, execution) == {}
    nothing_left(world)


def running(world: World, execution: str) -> None:
    until(lambda: runs(world)[execution, "b"] == 1, "node b")


def waits_for_a_retry(world: World, execution: str) -> None:
    hold_back(world, execution)


def has_ended(world: World, execution: str) -> None:
    ended(world, execution)
    settled(world)


def waits(world: World, execution: str) -> None:
    until(lambda: raw(world, "HGET", world.keys.row(execution), "status") == b"suspended", "the wait")


SECOND: dict[str, tuple[dict[str, Any], Callable[[World, str], None]]] = {
    "completed": ({"type": "mock", "value": 1}, has_ended),
    "error": ({"type": "t_ends", "how": "value_error"}, has_ended),
    "suspended": ({"type": "t_wait", "file": "{folder}/entries"}, waits),
    "running": ({"type": "t_gated", "file": "{folder}/lines", "gate": "{folder}/gate"}, running),
    "backoff": ({"type": "t_noted", "file": "{folder}/lines", "fails": 1}, waits_for_a_retry),
}


def put(world: World, status: str) -> None:
    """A flow of this name, whose executions come to this status in their second node."""
    folder = str(world.folder)
    node = SECOND[status][0]
    fields = {name: value.format(folder=folder) if isinstance(value, str) else value for name, value in node.items()}
    world.chain(status, {"type": "t_noted", "id": "a", "file": f"{folder}/lines"}, {**fields, "id": "b"})


def arrive(world: World, status: str, execution: str, **said: Any) -> None:
    """Send a foreign start of that flow, and wait until it is so far."""
    put(world, status)
    send_start(world, status, execution_id=execution, **said)
    SECOND[status][1](world, execution)


def test_S1_a_start_that_comes_again_changes_nothing(world: World) -> None:
    world.serving(**PATIENT)
    for status in ("completed", "error", "suspended"):
        arrive(world, status, f"e-{status}", params={"n": 1})

        def again(status: str = status) -> None:
            for number in (1, 2):
                send_start(world, status, execution_id=f"e-{status}", params={"n": number})

        stays(world, f"e-{status}", again)
        assert runs(world)[f"e-{status}", "a"] == 1


def test_S1_a_start_that_comes_again_goes_on_from_the_checkpoint(world: World) -> None:
    world.serving(**PATIENT)
    arrive(world, "backoff", "e", params={"n": 1})
    send_start(world, "backoff", execution_id="e", params={"n": 2})
    row = ended(world, "e")
    assert (row["status"], row["input"], row["attempts"]) == ("completed", {"n": 1}, 2)
    assert runs(world) == {("e", "a"): 1, ("e", "b"): 2}
    settled(world)
    assert (all_ids(world), counters(world, "e")) == ({"e"}, {})


# -- S2 --------------------------------------------------------------------------------------------------


def by_a_carrier(world: World, flow_id: str, key: str) -> str | None:
    send_start(world, flow_id, execution_id=f"second-{key}", dedup_key=key, params={"n": 2})
    return None


def by_the_client(world: World, flow_id: str, key: str) -> str | None:
    started = world.client.start(flow_id, {"n": 2}, dedup_key=key)
    assert started.deduplicated
    return started.execution_id


HOW = [by_a_carrier, by_the_client]


def test_S2_what_has_ended_or_waits_is_only_told(world: World) -> None:
    world.serving(**PATIENT)
    for status in ("completed", "error", "suspended"):
        arrive(world, status, status, dedup_key=f"k-{status}", params={"n": 1})
        for again in HOW:
            stays(world, status, lambda again=again, status=status: again(world, status, f"k-{status}"))  # type: ignore[misc]
        claim = world.keys.start_dedup(f"k-{status}")
        assert raw(world, "GET", claim) == status.encode()
        assert 6 * 86_400_000 < raw(world, "PTTL", claim) <= 7 * 86_400_000
        told = world.client.start(status, dedup_key=f"k-{status}")
        assert (told.execution_id, told.deduplicated, told.status) == (status, True, status)
    assert all_ids(world) == {"completed", "error", "suspended"}
    assert set(runs(world).values()) == {1}


def test_S2_what_has_not_begun_is_begun_once(world: World) -> None:
    put(world, "completed")
    first = world.client.start("completed", {"n": 1}, dedup_key="k").execution_id
    for again in HOW:
        assert again(world, "completed", "k") in (None, first)
    # another whose carrier was lost, so that it has a row without a context and nothing that moves it
    other = world.client.start("completed", {"n": 1}, dedup_key="lost").execution_id
    entry = raw(world, "XREVRANGE", world.keys.queue, "+", "-", "COUNT", 1)[0][0]
    raw(world, "XDEL", world.keys.queue, entry)
    by_a_carrier(world, "completed", "lost")
    world.serving(**PATIENT)
    for execution in (first, other):
        row = ended(world, execution)
        assert (row["status"], row["input"], row["attempts"]) == ("completed", {"n": 1}, 1)
    nothing_left(world)
    assert (all_ids(world), runs(world)) == ({first, other}, {(first, "a"): 1, (other, "a"): 1})


def test_S2_what_runs_and_nobody_holds_goes_on_from_its_checkpoint(world: World) -> None:
    supervisor = world.serving(**PATIENT)
    arrive(world, "backoff", "first", dedup_key="k")  # held back: what makes it go on is the second start
    by_a_carrier(world, "backoff", "k")
    assert ended(world, "first")["status"] == "completed"
    settled(world)
    assert (all_ids(world), runs(world)) == ({"first"}, {("first", "a"): 1, ("first", "b"): 2})
    assert "event=start.deduplicated" in supervisor.text()


def test_S1_S2_what_its_holder_runs_is_left_to_it(world: World) -> None:
    """Met by the holder itself and by another host: the same start, another with its key, and the client's."""
    world.serving(**PATIENT)
    world.serving(**PATIENT, instance="two")
    arrive(world, "running", "first", dedup_key="k")
    for _ in range(5):
        send_start(world, "running", execution_id="first")
        for again in HOW:
            again(world, "running", "k")
    until(lambda: [one.length for one in world.stats().streams] == [1, 0], "the holder's own carrier alone")
    (world.folder / "gate.1").touch()
    assert ended(world, "first")["attempts"] == 1
    nothing_left(world)
    assert (all_ids(world), runs(world)) == ({"first"}, {("first", "a"): 1, ("first", "b"): 1})


def test_S2_a_claim_without_a_row_is_claimed_anew(world: World) -> None:
    put(world, "completed")
    for key in ("c", "f"):
        raw(world, "SET", world.keys.start_dedup(key), "never-came")
    world.serving(**PATIENT)
    by_a_carrier(world, "completed", "f")
    started = world.client.start("completed", {"n": 2}, dedup_key="c")
    assert not started.deduplicated
    for key, execution in (("f", "second-f"), ("c", started.execution_id)):
        assert ended(world, execution)["input"] == {"n": 2}
        assert raw(world, "GET", world.keys.start_dedup(key)) == execution.encode()
    assert all_ids(world) == {"second-f", started.execution_id}
    nothing_left(world)


def test_S2_two_at_once_on_two_hosts_are_one(world: World) -> None:
    put(world, "completed")
    keys = [f"k{number}" for number in range(20)]
    for key in keys:
        for which in ("left", "right"):
            send_start(world, "completed", execution_id=f"{which}-{key}", dedup_key=key)
    hosts = [world.supervisor(**PATIENT, instance=name) for name in ("one", "two")]
    for host in hosts:
        host.wait_serving()
    nothing_left(world)
    winners = all_ids(world)
    assert sorted(name.partition("-")[2] for name in winners) == sorted(keys)
    for execution in winners:
        assert ended(world, execution)["status"] == "completed"
    assert runs(world) == {(execution, "a"): 1 for execution in winners}


def test_S2_without_a_key_there_is_no_claim(world: World) -> None:
    put(world, "completed")
    world.serving(**PATIENT)
    for name in ("one", "two"):
        send_start(world, "completed", execution_id=name, params={"same": "body"})
    for name in ("one", "two"):
        assert ended(world, name)["status"] == "completed"
    assert raw(world, "KEYS", f"{world.keys.ns}:start-dedup:*") == []


def test_S2_a_claim_outlives_the_host_that_made_it(world: World) -> None:
    """Its holder is killed in the first node; the second start meets the row, and the first goes on elsewhere."""
    gate = first_and_gate(world)
    first = world.serving(**PATIENT)
    send_start(world, execution_id="first", dedup_key="k")
    first.busy("b")
    first.kill()
    by_a_carrier(world, "f", "k")
    gate.with_name("gate.2").touch()
    world.serving(**PATIENT)
    assert ended(world, "first")["status"] == "completed"
    nothing_left(world)
    assert all_ids(world) == {"first"}
    assert runs(world)["first", "a"] == 1
