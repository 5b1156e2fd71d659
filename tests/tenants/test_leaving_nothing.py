"""An executor of tenant A leaves nothing for tenant B to find (issue 5): real processes, each way tried."""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import sys
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hosts import NODES, SupervisorProcess, alive, until
from other_user import through
from tenants_world import TenantsWorld

from plaita.supervisor.temporary import PREFIX, TemporaryFolders, sweep_dead_folders

sys.path.insert(0, str(NODES))

from planting import ELSEWHERE, PLACES

COMMON: dict[str, Any] = {"preload": "planting", "executors": 1, "max_deliveries": 1, "kill_grace": 1}


@pytest.fixture
def name() -> Iterator[str]:
    made = f"planted{uuid.uuid4().hex[:12]}"
    yield made
    for entry in os.listdir("/dev/shm"):
        if entry.startswith(made):
            with contextlib.suppress(OSError):
                os.unlink(f"/dev/shm/{entry}")


def plant(world: TenantsWorld, name: str, places: list[str], end: str = "return") -> dict[str, Any]:
    """Tenant a's execution; what it told in its file: the plans, and what it saw itself."""
    file = world.folder / f"{name}.json"
    step = {"type": "t_plant", "id": "plant", "places": places, "name": name, "file": str(file), "end": end}
    world.put_for("a", f"plant-{end}", step)
    ended = world.run_for("a", f"plant-{end}")
    assert ended["status"] == ("completed" if end == "return" else "error"), (ended["error"] or {}).get("message")
    told: dict[str, Any] = json.loads(file.read_text())
    assert all(told["seen"].values()), f"a look that finds nothing proves nothing: {told['seen']}"
    return told


def search(world: TenantsWorld, tenant: str, plans: dict[str, Any]) -> dict[str, Any]:
    world.put_for(tenant, "search", {"type": "t_search", "id": "search"})
    ended = world.run_for(tenant, "search", {"plans": plans})
    assert ended["status"] == "completed", ended
    answer: dict[str, Any] = ended["output"]["search"]
    return answer


@pytest.mark.parametrize("end", ["return", "kill"])
def test_tenant_b_finds_nothing_of_what_tenant_a_left(world: TenantsWorld, name: str, end: str) -> None:
    supervisor = world.serving(**COMMON)
    # A process that is killed cleans nothing up itself; Python's shared memory is then a file elsewhere (docs).
    places = [place for place in PLACES if end == "return" or place != "shared_memory"]
    told = plant(world, name, places, end)
    answer = search(world, "b", told["plans"])
    assert answer["pid"] != told["pid"]
    assert not any(answer["found"].values()), answer["found"]
    assert supervisor.stop() == 0


def test_each_place_alone_is_left_clean_for_the_next_tenant(world: TenantsWorld, name: str) -> None:
    """Together they make the executor retire; alone, it may be one that is used again and put right."""
    world.serving(**COMMON)
    for place in PLACES:
        told = plant(world, f"{name}{place}", [place])
        answer = search(world, "b", told["plans"])
        assert not any(answer["found"].values()), (place, answer["found"])
        assert answer["pid"] != told["pid"]


def test_the_same_tenant_may_use_an_executor_again_and_another_never(world: TenantsWorld, name: str) -> None:
    world.serving(**COMMON)
    first = search(world, "a", {})
    assert search(world, "a", {})["pid"] == first["pid"]
    second = search(world, "b", {})
    assert second["pid"] != first["pid"]
    assert second["tmp"] != first["tmp"]
    assert search(world, "a", {})["pid"] not in (first["pid"], second["pid"])


def test_an_executor_has_a_temporary_folder_of_its_own_that_only_its_user_may_read(world: TenantsWorld) -> None:
    world.serving(**{**COMMON, "executors": 2})
    folder = Path(search(world, "a", {})["tmp"])
    assert folder.parent.name.startswith(PREFIX)
    status = folder.stat()
    assert (status.st_mode & 0o777, status.st_uid) == (0o700, os.getuid())
    assert folder.parent.stat().st_mode & 0o077 == 0
    assert len(list(folder.parent.iterdir())) == 2


def test_a_temporary_folder_that_a_node_removes_retires_its_executor(world: TenantsWorld, name: str) -> None:
    world.serving(**COMMON)
    first = search(world, "a", {})
    step = {"type": "t_rmtmp", "id": "remove"}
    world.put_for("a", "remove", step)
    assert world.run_for("a", "remove")["status"] == "completed"
    again = search(world, "a", {})
    assert again["pid"] != first["pid"]
    assert os.path.isdir(again["tmp"])


# -- when the supervisor ends ------------------------------------------------------------------------------


def _apart(world: TenantsWorld) -> dict[str, str]:
    """Where no supervisor of another test sweeps."""
    (world.folder / "tmp").mkdir(exist_ok=True)
    return {"TMPDIR": str(world.folder / "tmp")}


def _root_of(supervisor: SupervisorProcess) -> Path:
    """The folder of this supervisor: the one that it holds open, since the lock is on it."""

    def look() -> Path | None:
        for number in os.listdir(f"/proc/{supervisor.pid}/fd"):
            with contextlib.suppress(OSError):
                path = Path(os.readlink(f"/proc/{supervisor.pid}/fd/{number}"))
                if path.name.startswith(PREFIX):
                    return path
        return None

    return until(look, "the supervisor's folder")


def test_a_supervisor_that_stops_leaves_no_folder(world: TenantsWorld, name: str) -> None:
    supervisor = world.serving(**COMMON)
    plant(world, name, ["temp_file"])
    root = _root_of(supervisor)
    assert root.is_dir()
    assert supervisor.stop() == 0
    assert not root.exists()


def test_a_killed_supervisor_leaves_no_folder(world: TenantsWorld, name: str) -> None:
    """The template outlives it for a moment, and removes what it has."""
    supervisor = world.serving(**COMMON, environment=_apart(world))
    plant(world, name, ["temp_file"])
    root = _root_of(supervisor)
    supervisor.kill()
    until(lambda: not root.exists(), "the template has removed it")


def test_what_a_whole_dead_tree_left_is_swept_at_the_next_start(world: TenantsWorld, name: str) -> None:
    supervisor = world.serving(**COMMON, environment=_apart(world))
    told = plant(world, name, ["temp_file"])
    planted = Path(told["plans"]["temp_file"][1])
    root = _root_of(supervisor)
    (root / "left").mkdir()
    (root / "left" / planted.name).write_text("left")
    tree = supervisor.tree()
    for pid in tree:  # first the template, which would clean up
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, 19)
    supervisor.kill()
    for pid in tree:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, 9)
    until(lambda: not any(alive(pid) for pid in tree), "the tree is dead")
    assert (root / "left" / planted.name).exists(), "nobody was there to clean up"
    world.serving(**COMMON, instance="two", environment=_apart(world))
    assert not root.exists()
    assert "temporary.swept" in world.supervisors[-1].text()


def test_a_living_supervisors_folder_is_not_swept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    living, dead = TemporaryFolders(), TemporaryFolders()
    mine, other = Path(living.make(1)), Path(dead.make(1))
    (mine / "x").write_text("x")
    (other / "x").write_text("x")
    (tmp_path / f"{PREFIX}link").symlink_to(mine)
    (tmp_path / f"{PREFIX}file").write_text("no folder")
    os.close(dead._lock)
    assert sweep_dead_folders() == 1
    assert (mine / "x").exists()
    assert not other.parent.exists()
    living.close()
    assert not mine.parent.exists()


def test_a_removal_follows_no_link_and_passes_locked_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("kept")
    folders = TemporaryFolders()
    folder = Path(folders.make(7))
    (folder / "link").symlink_to(outside)
    (folder / "locked" / "inner").mkdir(parents=True)
    (folder / "locked" / "inner" / "file").write_text("x")
    os.chmod(folder / "locked", 0o500)
    done: list[bool] = []
    assert folders.remove(str(folder), lambda: done.append(True)) is False
    until(lambda: done, "removed")
    assert not folder.exists()
    assert (outside / "kept").exists()
    assert folders.remove(folders.make(8), lambda: done.append(True)) is True
    assert folders.remove(str(folder), lambda: done.append(True)) is True, "one that is gone is gone"
    folders.close()


def test_a_folder_that_was_taken_away_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    folders = TemporaryFolders()
    first = Path(folders.make(1))
    first.rmdir()
    first.parent.rmdir()
    second = Path(folders.make(2))
    assert second.is_dir()
    assert second.parent != first.parent
    folders.close()


# -- what one user cannot hide from itself -----------------------------------------------------------------


def test_known_limit_a_file_elsewhere_is_seen_under_the_same_user(world: TenantsWorld, name: str) -> None:
    """As docs/tenants.md says: what A writes outside its temporary folder, B's node of the same user can read."""
    world.serving(**COMMON)
    told = plant(world, name, [ELSEWHERE])
    assert search(world, "b", told["plans"])["found"] == {ELSEWHERE: True}


def test_other_users_see_nothing_of_it(world: TenantsWorld, name: str, tmp_path: Path) -> None:
    """A supervisor a tenant, each with --executor-user of its own: the wall that holds (DECISIONS 34, 46)."""
    as_others = through(tmp_path, "nobody", "daemon")
    os.chmod(world.folder, 0o777)
    first = world.serving(**COMMON, executor_user="nobody", through=as_others)
    told = plant(world, name, [*PLACES, ELSEWHERE])
    root = _root_of(first)
    assert root.stat().st_mode & 0o777 == 0o711
    assert first.stop() == 0
    assert not root.exists()
    world.serving(**COMMON, executor_user="daemon", instance="two", through=as_others)
    assert not any(search(world, "b", told["plans"])["found"].values())


def test_DECISIONS_34_node_code_of_another_user_cannot_reach_its_supervisor(
    world: TenantsWorld, tmp_path: Path
) -> None:
    as_others = through(tmp_path, "nobody")
    secret = tmp_path / "settings.toml"
    secret.write_text(f"redis_url_file = '{tmp_path}/url'\n")
    (tmp_path / "url").write_text(world.url)
    for file in (secret, tmp_path / "url"):
        file.chmod(0o600)
    supervisor = world.serving(
        *("--redis-url", world.url),
        **{**COMMON, "preload": "spying"},
        executor_user="nobody",
        through=as_others,
        environment={"PLAITA_CONFIG": str(secret), "PLAITA_CREDENTIAL_KEY": "hidden-key"},
    )
    files, sockets = [str(secret), str(tmp_path / "url")], [supervisor.socket]
    world.put_for("a", "spy", {"type": "t_spy", "id": "spy", "files": files, "sockets": sockets})
    found = world.run_for("a", "spy")["output"]["spy"]
    nobody = pwd.getpwnam("nobody")
    assert (found["uid"], found["gid"], found["groups"]) == (nobody.pw_uid, nobody.pw_gid, [nobody.pw_gid])
    assert found["got"] == []
    assert "hidden-key" not in found["environment"]
    assert str(secret) not in found["environment"]
    assert world.url not in found["environment"]


def test_L7_executors_of_another_user_die_with_their_supervisor(world: TenantsWorld, tmp_path: Path) -> None:
    """A change of user takes the parent-death signal back: it has to be set again."""
    supervisor = world.serving(
        **{**COMMON, "preload": "spying"}, executor_user="nobody", through=through(tmp_path, "nobody")
    )
    world.put_for("a", "stay", {"type": "t_stay", "id": "stay"})
    world.of("a").start("stay")
    executor = supervisor.busy("stay")["pid"]
    [sleeper] = until(lambda: _children(executor), "what the node started")
    supervisor.kill()
    until(lambda: not alive(executor) and not alive(sleeper), "both are gone")


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
