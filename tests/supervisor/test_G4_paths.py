"""Tasks for a path that a host does not have, with real supervisors (ledger G4, REFERENCE 5.9).

All hosts of a test see the same files, so the one that "has" a path is one that does not look, or the path comes to be.
Lease and min-idle are ten minutes unless a test is about the bound (DECISIONS 44).
"""

from __future__ import annotations

import asyncio
import threading
import uuid
from pathlib import Path
from typing import Any

import pytest
from carriers_by_hand import ended, send_start
from hosts import SupervisorProcess, World, until

from plaita.supervisor import paths
from plaita.supervisor.paths import Paths, is_missing

FLAGS: dict[str, Any] = {"claim_min_idle_ms": 600_000, "lease_ttl_seconds": 600, "executors": 1}
LOOKS_AT_NONE = {"PLAITA_DISABLE_AFFINITY": "1"}


def put(world: World) -> None:
    world.put("f", [{"type": "start", "id": "s", "next": "e"}, {"type": "end", "id": "e", "output": 1}])


def counter(supervisor: SupervisorProcess, name: str) -> int:
    status = supervisor.status()
    return 0 if status is None else int(status["counters"][name])


def ran_on(world: World, execution: str) -> str:
    assert ended(world, execution)["status"] == "completed"
    return world.row(execution).control["last_holder"].rpartition("/")[0]


def test_G4_a_missing_path_is_left_to_a_host_that_has_it(world: World, tmp_path: Path) -> None:
    put(world)
    one = world.serving(instance="one", **FLAGS)
    gone = tmp_path / "gone"
    ours = [world.start("f", {"repo": f"{gone}"}), world.start("f", {"run_dir": f"{gone}/.flowcast/runs/1"})]
    send_start(world, params={"repo": str(gone)}, execution_id="theirs", tenant_id="default")
    until(lambda: counter(one, "handed_over") >= 5, "all were handed over, and again")
    assert {world.get(execution)["status"] for execution in ours} == {"pending"}
    there = world.start("f", {"run_dir": f"{tmp_path}/.flowcast/runs/1"})
    assert ran_on(world, there) == "one", "the folder above .flowcast is what counts, and the rest goes on"
    world.serving(instance="two", environment=LOOKS_AT_NONE, **FLAGS)
    assert {ran_on(world, execution) for execution in (*ours, "theirs")} == {"two"}
    assert {world.get(execution)["attempts"] for execution in ours} == {1}
    until(lambda: all((s.length, s.pending) == (0, 0) for s in world.stats().streams), "an empty queue")
    assert "event=TaskNotForThisWorker" in one.text()
    assert f"missing={gone}" in one.text()


def test_G4_a_path_that_comes_to_be_is_found_without_a_restart(world: World, tmp_path: Path) -> None:
    put(world)
    one = world.serving(instance="one", **FLAGS)
    entry_id = send_start(world, params={"repo": f"{tmp_path}/later"}, tenant_id="default")
    until(lambda: counter(one, "handed_over") >= 2, "two handovers")
    (tmp_path / "later").mkdir()
    execution = str(uuid.uuid5(uuid.NAMESPACE_OID, f"{world.keys.queue}:{entry_id}"))
    assert ran_on(world, execution) == "one"


def test_DECISIONS_12_what_no_host_has_is_run_after_the_bound(world: World, tmp_path: Path) -> None:
    put(world)
    one = world.serving(instance="one", **{**FLAGS, "claim_min_idle_ms": 1000})
    execution = world.start("f", {"repo": f"{tmp_path}/gone"})
    assert ran_on(world, execution) == "one"
    assert "event=AffinityHandoverExhausted" in one.text()
    assert counter(one, "handed_over") >= 2
    assert counter(one, "handover_exhausted") == 1


def test_G4_a_target_stands_above_the_path(world: World, tmp_path: Path) -> None:
    put(world)
    one = world.serving(instance="one", **FLAGS)
    assert ran_on(world, world.start("f", {"repo": f"{tmp_path}/gone"}, target="one")) == "one"
    assert counter(one, "handed_over") == 0


@pytest.mark.parametrize(
    ("name", "missing"),
    [("", False), ("gone", True), ("file/below", True), ("x" * 300, False), ("loop/x", False), ("a\0b", False)],
)
def test_G4_only_what_is_not_there_is_missing(tmp_path: Path, name: str, missing: bool) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    assert is_missing(f"{tmp_path}/{name}") is missing


def test_G4_a_file_system_that_hangs_holds_nobody_up() -> None:
    let_go, looked = threading.Event(), []

    def look(path: str) -> bool:
        looked.append(path)
        if path.startswith("/hangs"):
            let_go.wait()
        return True

    async def ask() -> None:
        found = Paths(look, look_s=0.05)
        assert await asyncio.gather(*(found.missing("/hangs/1") for _ in range(5))) == [None] * 5
        assert looked == ["/hangs/1"], "one look for all that ask"
        assert await found.missing("/gone") is True
        for number in range(paths.HANGING_AT_MOST + 3):
            assert await found.missing(f"/hangs/{number}") is None
        assert len(looked) == 1 + paths.HANGING_AT_MOST
        assert await found.missing("/gone") is None, "too many hang"
        let_go.set()
        while await found.missing("/hangs/1") is None:  # noqa: ASYNC110 - there is nothing else to wait for
            await asyncio.sleep(0.01)
        assert await found.missing("/gone") is True

    asyncio.run(ask())


def test_G4_two_that_ask_at_once_hear_the_same(tmp_path: Path) -> None:
    async def ask() -> list[bool | None]:
        found = Paths()
        return list(await asyncio.gather(*(found.missing(f"{tmp_path}/gone") for _ in range(20))))

    assert asyncio.run(ask()) == [True] * 20
