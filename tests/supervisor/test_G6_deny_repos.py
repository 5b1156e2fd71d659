"""G6: tasks for a repository that a host denies are left to other hosts, with real supervisors.

Lease and min-idle are ten minutes, so what goes on was not waited for (DECISIONS 44).
"""

from __future__ import annotations

from typing import Any

import pytest
from carriers_by_hand import raw, send_start
from hosts import SupervisorProcess, World, until

from plaita.errors import RefusedError
from plaita.server import FlowWorker
from plaita.storage import RedisExecutionStorage, RedisFlowStorage

FLAGS: dict[str, Any] = {"claim_min_idle_ms": 600_000, "lease_ttl_seconds": 600, "executors": 1}
NO_PATHS = {"PLAITA_DISABLE_AFFINITY": "1"}  # none of the paths here is on this host
DENY = {"PLAITA_WORKER_DENY_REPOS": "other, /somewhere/secret/", **NO_PATHS}
DENIED = [{"repo": "/srv/secret"}, {"repo": "secret"}, {"run_dir": "/srv/secret/.flowcast/runs/1"}]
ALLOWED = [{"repo": "/srv/open"}, {"run_dir": "/srv/secret-2/.flowcast/1"}, {"x": 1}]


def put(world: World) -> None:
    world.put("f", [{"type": "start", "id": "s", "next": "e"}, {"type": "end", "id": "e", "output": 1}])


def ran_on(world: World, execution: str) -> str:
    assert world.wait(execution)["status"] == "completed"
    return world.row(execution).control["last_holder"].rpartition("/")[0]


def denied(supervisor: SupervisorProcess) -> int:
    status = supervisor.status()
    return 0 if status is None else int(status["counters"]["repo_denied"])


def foreign(world: World, given: dict[str, Any], name: str) -> str:
    send_start(world, "f", params=given, execution_id=name, tenant_id="default")
    until(lambda: raw(world, "EXISTS", world.keys.row(name)), f"a row of {name}")
    return name


def test_G6_a_denied_repository_is_left_to_the_other_host(world: World) -> None:
    put(world)
    one = world.serving(**FLAGS, instance="one", environment=DENY)
    waiting = [world.start("f", given) for given in DENIED]
    until(lambda: denied(one) >= len(DENIED), "all met by the host that denies them")
    assert {world.get(one_id)["status"] for one_id in waiting} == {"pending"}
    allowed = [world.start("f", given) for given in ALLOWED]
    assert {ran_on(world, execution) for execution in allowed} == {"one"}, "it goes on with the rest"
    world.serving(**FLAGS, instance="two", environment=NO_PATHS)
    assert {ran_on(world, execution) for execution in waiting} == {"two"}
    for execution in waiting:
        assert world.row(execution).control["attempts"] == "1", "being left counts as nothing"
    until(lambda: all((s.length, s.pending) == (0, 0) for s in world.stats().streams), "nothing is left")
    assert "dispatch-repo-denied" in one.text()
    assert "repo=/srv/secret" in one.text()


def test_G6_starts_of_other_producers_are_judged_by_their_body(world: World) -> None:
    put(world)
    one = world.serving(**FLAGS, instance="one", environment=DENY)
    for number, given in enumerate(DENIED):
        send_start(world, "f", params=given, execution_id=f"d{number}", tenant_id="default")
    until(lambda: denied(one) >= len(DENIED), "all met")
    assert all(raw(world, "EXISTS", world.keys.row(f"d{number}")) == 0 for number in range(len(DENIED)))
    assert ran_on(world, foreign(world, ALLOWED[0], "a")) == "one"
    world.serving(**FLAGS, instance="two", environment=NO_PATHS)
    assert {ran_on(world, foreign(world, given, f"e{number}")) for number, given in enumerate(DENIED)} == {"two"}
    for number in range(len(DENIED)):
        until(lambda name=f"d{number}": raw(world, "EXISTS", world.keys.row(name)), "its row")  # type: ignore[misc]
        assert ran_on(world, f"d{number}") == "two"


def test_G6_a_flood_of_denied_ones_does_not_hold_up_the_rest(world: World) -> None:
    put(world)
    one = world.serving(**FLAGS, instance="one", environment=DENY)
    flood = [world.start("f", DENIED[0]) for _ in range(300)]  # more than are remembered
    last = world.start("f", ALLOWED[0])
    assert ran_on(world, last) == "one"
    until(lambda: denied(one) >= len(flood), "each was met")
    world.serving(**FLAGS, instance="two", environment=NO_PATHS)
    assert {ran_on(world, execution) for execution in flood} == {"two"}


def test_G6_what_every_host_denies_waits_and_is_told(world: World) -> None:
    put(world)
    one = world.serving(**FLAGS, instance="one", environment=DENY)
    two = world.serving(**FLAGS, instance="two", environment=DENY)
    send_start(world, "f", params=DENIED[2], execution_id="body", tenant_id="default")
    until(lambda: denied(one) >= 1 and denied(two) >= 1, "both met the one that says it in its body only")
    execution = world.start("f", DENIED[0])
    until(lambda: denied(one) + denied(two) >= 3, "one of them met the one that says it beside its body")
    assert world.get(execution)["status"] == "pending"
    for supervisor in (one, two):
        supervisor.wait_status(lambda s: s["queue"]["denied_repo"] == 2, "status says how many wait")
    assert all("dispatch-repo-denied" in supervisor.text() for supervisor in (one, two))
    assert (one.stop(), two.stop()) == (0, 0)
    world.serving(**FLAGS, instance="three", environment=NO_PATHS)
    assert ran_on(world, execution) == "three"
    until(lambda: raw(world, "EXISTS", world.keys.row("body")), "its row")
    assert ran_on(world, "body") == "three"


def test_G6_a_direct_call_is_refused_before_anything_is_started(world: World) -> None:
    put(world)
    said: dict[str, Any] = {"key_prefix": world.keys.prefix}
    with FlowWorker(
        RedisExecutionStorage(world.url, **said),
        RedisFlowStorage(world.url, **said),
        queue_name=world.keys.queue,
        deny_repos=["secret"],
    ) as worker:
        with pytest.raises(RefusedError) as caught:
            worker.start_flow("f", DENIED[0])
        assert caught.value.reason == "repo_denied"
        assert worker.start_flow("f", ALLOWED[0])["status"] == "completed"
    assert world.stats().streams[0].length == 0
