"""T4: a purge takes all that a tenant has, leaves the platform's tombstones, and can be broken off anywhere."""

from __future__ import annotations

import contextlib
import json
import time
from typing import Any

import pytest
from carriers_by_hand import raw
from hosts import until
from tenants_world import TenantsWorld

from plaita import jsontext
from plaita.client import operations, tenants
from plaita.client.operations import Pause
from plaita.errors import InputError, RefusedError
from plaita.store import carriers, credentials, delayed, purges
from plaita.store import tenants as store
from plaita.store.keys import Keys

TTL_MS = 3_600_000
NEIGHBOURS = ("a-b", "ab", "租户", "default", "x" * 200)
PLAIN: dict[str, Any] = {"executors": 2, "preload": "tenants"}


def line(world: TenantsWorld, flow: str, tenant: str) -> None:
    """A flow whose one step leaves a line when it runs."""
    step = {"type": "t_counted", "id": "n", "file": str(world.folder / "ran")}
    world.put_for(tenant, flow, step)


def ran(world: TenantsWorld) -> list[list[str]]:
    file = world.folder / "ran"
    return [text.split() for text in file.read_text().splitlines()] if file.exists() else []


def send(world: TenantsWorld, letter: str, payload: dict[str, Any]) -> str:
    return world.do(carriers.enqueue(world.keys, letter, [("payload", jsontext.dumps(payload))]))


def names(world: TenantsWorld, keys: Keys) -> list[str]:
    """All keys under the tenant's name."""
    found: set[str] = set()
    cursor = "0"
    while True:
        cursor, page = raw(world, "SCAN", cursor, "COUNT", 10_000)
        cursor = cursor.decode()
        found.update(name.decode() for name in page)
        if cursor == "0":
            return sorted(name for name in found if name.startswith(f"{keys.ns}:"))


def furnish(world: TenantsWorld, tenant: str) -> dict[str, str]:
    """One of everything; executions by what they are."""
    line(world, "f", tenant)
    client, keys = world.of(tenant), world.keys_of(tenant)
    made = {
        "pending": client.start("f", execution_id="pending-1").execution_id,
        "keyed": client.start("f", dedup_key="k").execution_id,
        "awkward": client.start("f", execution_id="a:b/索引").execution_id,
        "word": client.start("f", execution_id="index").execution_id,
    }
    client.put_schedule("s", "f", "0 0 1 1 *")
    send(world, "q", {"type": "start", "flow_id": "f", "tenant_id": tenant, "execution_id": "foreign"})
    nameless = send(world, "q", {"type": "start", "flow_id": "f", "tenant_id": tenant})
    half = jsontext.dumps({"type": "start", "flow_id": "f", "tenant_id": tenant, "execution_id": "half"})
    world.do(carriers.enqueue(world.keys, "q", [("payload", half), ("execution_id", "half")]))
    later = jsontext.dumps({"type": "start", "flow_id": "f", "tenant_id": tenant, "execution_id": "later"})
    fields: list[tuple[str, bytes | str]] = [("payload", later), ("execution_id", "later"), ("tenant_id", tenant)]
    world.do(delayed.put(keys, f"later {tenant}", 3_600_000, fields, stream="q"))
    world.do(credentials.put(keys, "mail", b"sealed"))
    client.publish("e", {"x": 1}, correlation_id="c", event_id="once")
    raw(world, "SET", f"{keys.ns}:of:a:later:version", "x")
    return made | {"foreign": "foreign", "later": "later", "nameless": nameless}


def purge_all(world: TenantsWorld, tenant: str, **said: Any) -> dict[str, Any]:
    return world.client.perform(tenants.purge(world.keys, tenant, TTL_MS, **said))


def disable(world: TenantsWorld, tenant: str) -> None:
    world.client.perform(tenants.disable(world.keys, tenant, None))


def left(world: TenantsWorld, tenant: str) -> list[str]:
    return [name for name in names(world, world.keys_of(tenant)) if ":fencegen:" not in name]


def test_T4_everything_goes_tombstones_stay_and_neighbours_keep_all(world: TenantsWorld) -> None:
    furnish(world, "a")
    for neighbour in NEIGHBOURS:
        line(world, "f", neighbour)
        world.of(neighbour).start("f", execution_id="pending-1")
    before = {one: left(world, one) for one in NEIGHBOURS if one != "default"}
    disable(world, "a")
    answer = purge_all(world, "a")
    assert answer["tenant_id"] == "a"
    assert answer["status"] == "disabled"
    assert answer["executions"] == 4
    assert answer["carriers"] == 8, "four of rows, foreign, nameless, half, later"
    assert left(world, "a") == []
    assert raw(world, "ZCARD", world.keys.schedules_due) == 0
    for execution_id in ("pending-1", "a:b/索引", "index", "foreign", "half", "later"):
        stone = raw(world, "HGET", world.keys.tombstone(execution_id), "a")
        assert stone is not None, execution_id
        assert 0 < raw(world, "PTTL", world.keys.tombstone(execution_id)) <= TTL_MS
    assert {one: left(world, one) for one in before} == before
    for neighbour in NEIGHBOURS:
        assert world.of(neighbour).get("pending-1")["status"] == "pending"
        assert [one["flow_id"] for one in world.client.perform(operations.list_flows(world.keys_of(neighbour)))] == [
            "f"
        ]


def test_T4_a_tenant_made_again_under_that_name_runs_no_old_start(world: TenantsWorld) -> None:
    old = furnish(world, "a")
    disable(world, "a")
    purge_all(world, "a")
    world.client.perform(tenants.enable(world.keys, "a", None, TTL_MS))
    line(world, "f", "a")
    with pytest.raises(RefusedError) as caught:
        world.of("a").start("f", execution_id="pending-1")
    assert caught.value.reason == "tombstoned"
    world.serving(**PLAIN)
    ended = world.run_for("a", "f")
    assert ended["status"] == "completed"
    keyed = world.of("a").start("f", dedup_key="k")
    assert not keyed.deduplicated, "a start key of before is not known any more"
    assert keyed.execution_id != old["keyed"]
    assert world.of("a").wait(keyed.execution_id, timeout=60)["status"] == "completed"
    until(lambda: all((one.length, one.pending) == (0, 0) for one in world.stats().streams), "all carriers seen")
    assert {text[2] for text in ran(world)} == {ended["execution_id"], keyed.execution_id}
    shown = world.of("a").perform(operations.list_executions(world.keys_of("a"), None, None, 50))
    assert {one["execution_id"] for one in shown["executions"]} == {ended["execution_id"], keyed.execution_id}


def test_T4_a_start_that_is_being_handed_over_is_an_old_start_too(world: TenantsWorld) -> None:
    """Another producer's start, without an id, for a path that no host has yet: it stands in no stream but as a copy
    to come."""
    line(world, "f", "a")
    host = world.serving(**PLAIN, claim_min_idle_ms=600_000)
    gone = world.folder / "gone"
    send(world, "q", {"type": "start", "flow_id": "f", "tenant_id": "a", "params": {"repo": str(gone)}})
    host.wait_status(lambda s: s["counters"]["handed_over"] >= 2 and s["queue"]["delayed"] == 1, "a copy to come")
    host.ask("pause")
    assert purge_all(world, "a", force=True)["carriers"] == 1
    line(world, "f", "a")
    gone.mkdir()
    host.ask("resume")
    until(lambda: world.stats().delayed == 0, "the copy came")
    until(lambda: all((one.length, one.pending) == (0, 0) for one in world.stats().streams), "all carriers seen")
    assert ran(world) == []


def test_T4_what_runs_while_it_is_purged_writes_nothing_any_more(world: TenantsWorld) -> None:
    gate = world.folder / "gate"
    step = {"type": "t_counted", "id": "n", "file": str(world.folder / "ran"), "gate": str(gate)}
    world.put_for("a", "f", step)
    supervisor = world.serving(**PLAIN)
    execution_id = world.of("a").start("f").execution_id
    until(lambda: ran(world), "the step runs")
    disable(world, "a")
    purge_all(world, "a")
    gate.touch()
    supervisor.wait_status(lambda s: all(row["execution_id"] is None for row in s["executors"]), "it was let go")
    assert left(world, "a") == []
    with pytest.raises(RefusedError):
        world.of("a").get(execution_id)


def _calls(world: TenantsWorld, most: int) -> int:
    """Drive a purge for so many calls, then break it off; how many it took."""
    work = tenants.purge(world.keys, "a", TTL_MS)
    answer: Any = None
    for number in range(most):
        try:
            step = work.send(answer)
        except StopIteration:
            return number
        assert not isinstance(step, Pause)
        answer = world.runner.run(step)
    work.close()
    return most


def test_T4_broken_off_anywhere_it_goes_on_when_run_again(world: TenantsWorld) -> None:
    furnish(world, "a")
    disable(world, "a")
    total = _calls(world, 10_000)
    stones = [world.keys.tombstone(one) for one in ("pending-1", "a:b/索引", "index", "foreign", "half", "later")]
    for most in range(1, total):
        raw(world, "DEL", *stones)
        raw(world, "DEL", world.keys.queue)
        raw(world, "DEL", world.keys.delayed, world.keys.delayed_body)
        world.client.perform(tenants.enable(world.keys, "a", None, TTL_MS))
        furnish(world, "a")
        disable(world, "a")
        assert _calls(world, most) == most
        purge_all(world, "a")
        assert left(world, "a") == [], f"broken off after {most} of {total} calls"
        assert all(raw(world, "HEXISTS", stone, "a") for stone in stones), most


def test_T4_a_purge_of_a_purged_tenant_finds_nothing(world: TenantsWorld) -> None:
    furnish(world, "a")
    disable(world, "a")
    purge_all(world, "a")
    stone = raw(world, "HGET", world.keys.tombstone("pending-1"), "a")
    again = purge_all(world, "a")
    assert (again["executions"], again["carriers"], again["keys"], again["parked"]) == (0, 0, 0, 0)
    assert raw(world, "HGET", world.keys.tombstone("pending-1"), "a") == stone, "the first deleted_at stays"


def test_T4_parked_carriers_and_the_quota_go_with_it(world: TenantsWorld) -> None:
    line(world, "f", "a")
    world.client.perform(tenants.set_quota(world.keys, "a", 1))
    ids = [world.of("a").start("f").execution_id for _ in range(5)]
    facts = world.client.perform(tenants.tenant_status(world.keys, "a"))
    assert facts["parked"] == 4
    disable(world, "a")
    answer = purge_all(world, "a")
    assert answer["parked"] == 4
    facts = world.client.perform(tenants.tenant_status(world.keys, "a"))
    assert (facts["parked"], facts["quota"], facts["pending"]) == (0, None, 0)
    assert all(raw(world, "HEXISTS", world.keys.tombstone(one), "a") for one in ids)
    assert "a" not in {one["tenant_id"] for one in _list(world) if one["parked"]}
    for key in store.parked_keys(world.keys_of("a")):
        assert raw(world, "EXISTS", key) == 0
    assert raw(world, "SISMEMBER", world.keys.parked_tenants, "a") == 0


def _list(world: TenantsWorld) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = world.client.perform(tenants.list_tenants(world.keys))["tenants"]
    return found


def test_T4_a_queue_under_the_tenants_name_is_not_its_own(world: TenantsWorld) -> None:
    keys = Keys(prefix=world.keys.prefix, queue=f"{world.keys.prefix}:a:queue", group="g")
    raw(world, "XADD", keys.queue, "*", "payload", json.dumps({"type": "start", "flow_id": "f", "tenant_id": "b"}))
    raw(world, "XADD", keys.dead_letters, "*", "payload", "x")
    disable(world, "a")
    world.client.perform(tenants.purge(keys, "a", TTL_MS))
    assert (raw(world, "XLEN", keys.queue), raw(world, "XLEN", keys.dead_letters)) == (1, 1)


def test_T4_generations_of_fences_stay_until_their_time_is_over(world: TenantsWorld) -> None:
    world.put_for("a", "plain")
    world.serving(**PLAIN)
    ended = world.run_for("a", "plain")
    disable(world, "a")
    purge_all(world, "a")
    key = world.keys_of("a").fencegen(ended["execution_id"])
    assert names(world, world.keys_of("a")) == [key]
    assert 0 < raw(world, "PTTL", key) <= TTL_MS


@pytest.mark.parametrize(
    ("tenant", "reason"), [("default", "default_tenant"), ("a", "not_disabled"), ("nobody", "not_disabled")]
)
def test_T4_what_is_refused_takes_nothing(world: TenantsWorld, tenant: str, reason: str) -> None:
    furnish(world, "a")
    before = names(world, world.keys_of("a"))
    with pytest.raises(RefusedError) as caught:
        purge_all(world, tenant)
    assert caught.value.reason == reason
    assert names(world, world.keys_of("a")) == before


@pytest.mark.parametrize("tenant", ["", "a:b", "a/b", "execution", "a b"])
def test_T4_what_is_no_tenant_is_refused(world: TenantsWorld, tenant: str) -> None:
    with pytest.raises(InputError, match="tenant"):
        purge_all(world, tenant, force=True)


def test_T4_by_force_an_active_tenant_is_purged_too(world: TenantsWorld) -> None:
    furnish(world, "a")
    answer = purge_all(world, "a", force=True)
    assert (answer["status"], answer["executions"]) == ("active", 4)
    assert left(world, "a") == []


@pytest.mark.parametrize("tenant", ["a-b", "租户", "x" * 200, "a{b}c".replace("{", "-").replace("}", "-"), "a*", "a?"])
def test_T4_awkward_names_take_their_own_only(world: TenantsWorld, tenant: str) -> None:
    try:
        keys = world.keys_of(tenant)
        line(world, "f", tenant)
        disable(world, tenant)
    except InputError:
        return  # refused, like every name that could mean several
    line(world, "f", "a")
    before = names(world, world.keys_of("a"))
    purge_all(world, tenant)
    assert left(world, keys.tenant) == []
    assert names(world, world.keys_of("a")) == before


def test_unlink_takes_only_what_is_the_tenants() -> None:
    keys = Keys(prefix="p", tenant="a", queue="p:queue")
    purges.unlink(keys, ["p:a:execution:x", "p:queue:parked:q:a"])
    for stranger in ("p:b:execution:x", "p:a", "p:ab:x", "p:exec_tombstone:x", "other"):
        with pytest.raises(ValueError, match="not the tenant's"):
            purges.unlink(keys, ["p:a:execution:x", stranger])
    with pytest.raises(ValueError, match="default"):
        purges.page(Keys(prefix="p"))


def test_T4_many_executions_go_in_bounded_calls(world: TenantsWorld) -> None:
    keys = world.keys_of("a")
    for number in range(600):
        raw(world, "HSET", keys.row(f"e{number}"), "status", "completed", "flow_id", "f")
        raw(world, "ZADD", keys.index(), number, f"e{number}")
        raw(world, "ZADD", keys.index("completed"), number, f"e{number}")
    disable(world, "a")
    work, most, steps = tenants.purge(world.keys, "a", TTL_MS), 0, 0
    answer: Any = None
    began = time.monotonic()
    with contextlib.suppress(StopIteration):
        while True:
            step = work.send(answer)
            assert not isinstance(step, Pause)
            most, steps = max(most, len(step.keys)), steps + 1
            answer = world.runner.run(step)
    assert 0 < most <= 1100
    assert steps >= 600
    assert left(world, "a") == []
    print(f"600 executions purged in {time.monotonic() - began:.2f} s")
