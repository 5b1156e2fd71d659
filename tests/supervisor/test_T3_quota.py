"""Quotas with real supervisors: they hold at every instant, and nobody waits behind a flood (ledger T3)."""

from __future__ import annotations

import threading
import time

import pytest
import redis
from hosts import World, until
from tenant_world import FLAGS, Tenant, counted, counter, most_at_once

from plaita import jsontext
from plaita.store import carriers, executions, tenants
from plaita.store.carriers import Take
from plaita.store.tenants import Park
from plaita.supervisor.crash_points import UNDER_QUOTA, VARIABLE, Point


class Sampler:
    """Looks at how many executions of a tenant run, as often as it can, until told to stop."""

    def __init__(self, tenant: Tenant) -> None:
        self.most, self.looks = 0, 0
        self._tenant, self._stop = tenant, threading.Event()
        self._thread = threading.Thread(target=self._look)

    def _look(self) -> None:
        with redis.Redis.from_url(self._tenant.world.url) as server:
            while not self._stop.is_set():
                self.most = max(self.most, server.zcard(self._tenant.keys.index("running")))
                self.looks += 1

    def __enter__(self) -> Sampler:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


def nothing_left(world: World) -> bool:
    stats = world.stats()
    return all(stream.length == stream.pending == 0 for stream in stats.streams) and stats.parked == stats.delayed == 0


def foreign_starts(tenant: Tenant, count: int) -> list[str]:
    """Starts as other producers send them: straight into the stream, without a row."""
    ids = [f"foreign{n}" for n in range(count)]
    for name in ids:
        payload = {"type": "start", "flow_id": "f", "execution_id": name, "tenant_id": tenant.name, "params": {}}
        tenant.world.do(carriers.enqueue(tenant.keys, "q", [("payload", jsontext.dumps(payload))]))
    return ids


def test_T3_the_quota_holds_while_a_flood_comes_by(world: World) -> None:
    acme = Tenant(world, "acme")
    acme.put("a", "b")
    acme.quota(2)
    with Sampler(acme) as sampler:
        ids = foreign_starts(acme, 20)
        one = world.serving(instance="one", executors=3, **FLAGS)
        two = world.serving(instance="two", executors=3, **FLAGS)
        ids += [acme.start() for _ in range(20)]
        until(lambda: acme.statuses(ids) == {"completed"}, "all of the flood")
    assert sampler.looks > 100
    assert 0 < sampler.most <= 2
    assert most_at_once(world, "acme") <= 2
    ran = [(line[2], line[3]) for line in counted(world) if line[0] == "+"]
    assert sorted(ran) == sorted((name, node) for name in ids for node in "ab")
    assert counter(one, "parked") + counter(two, "parked") > 0
    assert all(acme.row(name).control["attempts"] == "1" for name in ids)  # no delivery, no attempt was spent
    until(lambda: nothing_left(world), "an empty queue")


def flood(world: World, others: int, amount: int) -> None:
    """One tenant floods, the others each start one after it: theirs end while its flood is still parked."""
    acme = Tenant(world, "acme")
    opened = world.folder / "open"
    acme.put("a", gate=opened)
    acme.quota(2)
    rest = [Tenant(world, f"t{n}") for n in range(others)]
    for other in rest:
        other.put("a")
    supervisor = world.serving(executors=4, **FLAGS)
    with Sampler(acme) as sampler:
        ids = [acme.start() for _ in range(amount)]
        began = time.monotonic()
        theirs = [(other, other.start()) for other in rest]
        until(lambda: all(other.row(name).status == "completed" for other, name in theirs), "the others")
        print(f"{others} others ended {time.monotonic() - began:.1f} s after a flood of {amount} was sent")
        # By order, not by the clock: the flood's first two are in their step still, and the rest waits for them.
        assert [line[1] for line in counted(world) if line[0] == "-"].count("acme") == 0
        assert acme.facts().running == 2
        assert world.stats().parked == amount - 2
        status = supervisor.wait_status(lambda status: status["tenants"]["over_quota"], "seen by the beat")
        assert (status["queue"]["parked"], status["tenants"]["over_quota"]) == (amount - 2, ["acme"])
        [shut] = [row for row in supervisor.ask("explain")["gates"] if row["gate"] == "tenant quota"]
        assert (shut["open"], shut["waiting"]) == (False, amount - 2)
        opened.touch()
        until(lambda: acme.statuses(ids) == {"completed"}, "the flood", seconds=600)
    assert 0 < sampler.most <= 2
    assert most_at_once(world, "acme") == 2
    until(lambda: nothing_left(world), "an empty queue")


def test_T3_others_end_while_a_flood_is_still_parked(world: World) -> None:
    flood(world, others=11, amount=40)


@pytest.mark.long
def test_T3_with_500_tenants_others_end_while_a_flood_is_still_parked(world: World) -> None:
    flood(world, others=499, amount=10_000)


def test_T3_a_flood_straight_into_the_stream_holds_up_nobody(world: World) -> None:
    acme, other = Tenant(world, "acme"), Tenant(world, "other")
    opened = world.folder / "open"
    acme.put("a", gate=opened)
    acme.quota(1)
    other.put("a")
    ids = foreign_starts(acme, 30)
    theirs = other.start()
    supervisor = world.serving(executors=2, **FLAGS)
    until(lambda: other.row(theirs).status == "completed", "what stood behind the flood")
    assert [line[1] for line in counted(world) if line[0] == "-"] == ["other"]
    until(lambda: counter(supervisor, "parked") == 29, "the rest is parked")
    opened.touch()
    until(lambda: acme.statuses(ids) == {"completed"}, "the flood")


def test_T3_a_quota_that_is_raised_and_removed_takes_effect_by_itself(world: World) -> None:
    acme = Tenant(world, "acme")
    opened = world.folder / "open"
    acme.put("a", gate=opened)
    acme.quota(1)
    world.serving(executors=6, **FLAGS)
    ids = [acme.start() for _ in range(5)]
    until(lambda: most_at_once(world, "acme") == 1, "one runs")
    acme.quota(3)
    until(lambda: most_at_once(world, "acme") == 3, "three run")
    assert acme.facts().parked == 2
    acme.quota(0)
    until(lambda: most_at_once(world, "acme") == 5, "all run")
    opened.touch()
    until(lambda: acme.statuses(ids) == {"completed"}, "all end")


def test_T3_a_supervisor_that_dies_frees_no_place_and_loses_nothing(world: World) -> None:
    """What ran counts until somebody goes on with it; what was brought back and read is delivered again."""
    acme = Tenant(world, "acme")
    acme.put("a", gate=(opened := world.folder / "open"))
    acme.quota(2)
    flags = {**FLAGS, "executors": 4}
    one = world.serving(**flags)
    with Sampler(acme) as sampler:
        ids = [acme.start() for _ in range(8)]
        until(lambda: most_at_once(world, "acme") == 2, "two run")
        one.kill()
        opened.touch()
        again = world.serving(**flags)
        until(lambda: acme.statuses(ids) == {"completed"}, "all end")
    assert sampler.most <= 2
    assert counter(again, "finished") == 8


@pytest.mark.parametrize("peer", ["one", pytest.param("two", marks=pytest.mark.long)])
@pytest.mark.parametrize("point", sorted(UNDER_QUOTA))
def test_T3_a_supervisor_killed_at_this_point_of_parking_loses_nothing(world: World, point: str, peer: str) -> None:
    acme = Tenant(world, "acme")
    acme.put("a", gate=(opened := world.folder / "open"))
    acme.quota(1)
    ids = foreign_starts(acme, 4)
    flags = {**FLAGS, "executors": 3, "claim_min_idle_ms": 1000, "lease_ttl_seconds": 5}
    first = world.supervisor(environment={VARIABLE: point}, **flags)
    if point == Point.UNPARKED:
        until(lambda: acme.facts().parked == 3, "three wait")
        opened.touch()
    first.wait_exit()
    opened.touch()
    with Sampler(acme) as sampler:
        second = world.serving(instance=peer, **flags)
        until(lambda: acme.statuses(ids) == {"completed"}, f"all end\n{second.text()[-3000:]}")
    assert sampler.most == 1
    until(lambda: nothing_left(world), "an empty queue")


def test_T3_a_parked_one_can_be_cancelled_and_deleted_at_once(world: World) -> None:
    acme = Tenant(world, "acme")
    acme.put("a", gate=(opened := world.folder / "open"))
    acme.quota(1)
    world.serving(executors=2, **FLAGS)
    ids = [acme.start() for _ in range(4)]
    until(lambda: most_at_once(world, "acme") == 1, "one runs")
    payload = {"type": "resume", "resume_type": "cancel", "execution_id": ids[1], "tenant_id": "acme"}
    world.do(executions.request_cancel(acme.keys, ids[1], "enough", jsontext.dumps(payload)))
    world.do(executions.delete(acme.keys, ids[2], "test", force=False, tombstone_ttl_ms=86_400_000))
    until(lambda: acme.row(ids[1]).status == "cancelled", "it is cancelled")
    assert acme.facts().parked == 3  # their carriers find out later
    opened.touch()
    until(lambda: acme.statuses([ids[0], ids[3]]) == {"completed"}, "the others end")
    until(lambda: nothing_left(world), "an empty queue")
    assert {line[2] for line in counted(world)} == {ids[0], ids[3]}


def test_T3_a_parked_one_that_is_too_old_begins_nothing(world: World) -> None:
    acme = Tenant(world, "acme")
    acme.put("a", gate=(opened := world.folder / "open"))
    acme.quota(1)
    supervisor = world.serving(executors=1, **FLAGS)
    first = acme.start()
    supervisor.busy("a")
    payload = {"type": "start", "flow_id": "f", "execution_id": "old", "tenant_id": "acme", "params": {}}
    fields = [("payload", jsontext.dumps(payload)), ("first_enqueued_at", "1000000000000")]  # in 2001
    world.do(carriers.enqueue(acme.keys, "q", fields))
    taken = world.do(carriers.take(acme.keys, Take("other", 1, 600_000, "other/1")))
    [entry] = taken.entries
    assert world.do(tenants.park(acme.keys, Park("old", "other", entry.stream, entry.entry_id)))
    opened.touch()
    until(lambda: counter(supervisor, "carriers_too_old") == 1, "it is dropped")
    assert acme.statuses([first, "old"]) == {"completed", None}
    until(lambda: nothing_left(world), "an empty queue")
