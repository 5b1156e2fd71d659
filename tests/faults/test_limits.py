"""Trouble 56: no descriptor, no process to be had. The host backs off, leaks nothing, says so, goes on by itself."""

from __future__ import annotations

import os
import re
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest
from hosts import SupervisorProcess, World, until

from plaita.unix import limits

POOL = 16


def _open(pid: int) -> set[int]:
    return {int(name) for name in os.listdir(f"/proc/{pid}/fd")}


def _gate(supervisor: SupervisorProcess) -> dict[str, Any]:
    [row] = [row for row in supervisor.ask("explain")["gates"] if row["gate"] == "executors"]
    return row


def _failures(supervisor: SupervisorProcess) -> int:
    return supervisor.text().count("event=executor.spawn_failed")


def _starve(
    world: World, supervisor: SupervisorProcess, starving: AbstractContextManager[Callable[[], None]], words: str
) -> None:
    """A pool loses 14 of its 16 executors inside ``starving``, which gives what eases it as far as a question needs."""
    template = supervisor.ask("status")["template"]["pid"]
    world.chain("f", {"type": "mock", "id": "a", "value": 1})
    assert world.run("f")["status"] == "completed"
    before = {pid: len(_open(pid)) for pid in (supervisor.pid, template)}
    lost = [row["pid"] for row in supervisor.executors()[2:]]
    with starving as ease:
        for pid in lost:
            os.kill(pid, signal.SIGKILL)
        until(lambda: _failures(supervisor) >= POOL - 2, "each slot has tried")
        ease()
        told = until(
            lambda: next((row for row in [_gate(supervisor)] if re.search(words, row["value"])), None), "it is told"
        )
        assert "of 16 slots wait" in told["value"]
        assert told["open"], "the two that are left are free"
        assert world.run("f")["status"] == "completed"
        until(lambda: _failures(supervisor) >= 4 * (POOL - 2), "several tries")
        for slot in range(2, POOL):
            waits = re.findall(rf"event=executor.respawn_delayed slot={slot} wait_ms=(\d+)", supervisor.text())
            assert [int(wait) for wait in waits[:3]] == [100, 200, 400]
    supervisor.wait_status(
        lambda status: all(row["state"] == "idle" for row in status["executors"]), "all sixteen are there again"
    )
    assert world.run("f")["status"] == "completed"
    for pid, count in before.items():
        until(lambda pid=pid, count=count: len(_open(pid)) <= count, f"{pid} has no descriptor more than before")
    assert supervisor.stop() == 0


@contextmanager
def _few_descriptors(pid: int) -> Iterator[Callable[[], None]]:
    was = resource.prlimit(pid, resource.RLIMIT_NOFILE)

    def ease() -> None:
        """Three may be opened: more than a question takes, and less than a birth does."""
        used = _open(pid)
        free = [number for number in range(max(used) + 10) if number not in used]
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (free[3], was[1]))

    resource.prlimit(pid, resource.RLIMIT_NOFILE, (1, was[1]))
    try:
        yield ease
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, was)


def test_no_descriptor_left_in_the_supervisor(world: World) -> None:
    supervisor = world.serving(executors=POOL)
    _starve(world, supervisor, _few_descriptors(supervisor.pid), "Too many open files")


USER = 54_321  # whose processes are counted, as root's are not; who may read what this Python needs
OTHER_USER = (
    "setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups",
    "--inh-caps=+dac_override", "--ambient-caps=+dac_override",
)  # fmt: skip
MANY = """
import threading, time
for _ in range(300):
    threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
print("many", flush=True)
time.sleep(1000)
"""


@contextmanager
def _few_processes() -> Iterator[Callable[[], None]]:
    """The user has more than the supervisor's limit allows."""
    command = [*OTHER_USER, sys.executable, "-c", MANY]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd="/") as filler:
        assert filler.stdout is not None
        assert filler.stdout.readline() == b"many\n"
        try:
            yield lambda: None
        finally:
            filler.kill()


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
def test_no_process_left_for_the_template(world: World) -> None:
    os.chmod(world.folder, 0o777)
    supervisor = world.serving(executors=POOL, through=("prlimit", "--nproc=200:200", *OTHER_USER))
    _starve(world, supervisor, _few_processes(), "Resource temporarily unavailable")


def test_limits_too_low_for_the_pool_are_told_at_the_start(world: World) -> None:
    supervisor = world.supervisor(executors=POOL, through=("prlimit", "--nofile=100:4096"))
    supervisor.wait_serving()
    [line] = [line for line in supervisor.text().splitlines() if "event=limits.low" in line]
    assert "open files" in line
    assert "100" in line
    assert "160" in line


@pytest.mark.parametrize(
    ("files", "processes", "found"),
    [
        (1024, resource.RLIM_INFINITY, []),
        (159, resource.RLIM_INFINITY, ["open files (ulimit -n): 159 is too low for 16 executors; 160 would do"]),
        (resource.RLIM_INFINITY, 79, ["processes (ulimit -u): 79 is too low for 16 executors; 80 would do"]),
        (160, 80, []),
    ],
)
def test_what_a_pool_needs(files: int, processes: int, found: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    given = {resource.RLIMIT_NOFILE: (files, files), resource.RLIMIT_NPROC: (processes, processes)}
    monkeypatch.setattr(limits.resource, "getrlimit", given.__getitem__)
    assert limits.problems(POOL) == found
