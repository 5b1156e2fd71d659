"""A disk that is full, or read-only, under the logs and the temporary folders (KNOWN-TROUBLE 58). No guard is set here:
this is what happens when it comes to the last byte."""

from __future__ import annotations

import errno
import io
import logging
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hosts import World, until
from small_disk import SmallDisk

from plaita.supervisor import logs

PATIENT = {"lease_ttl_seconds": 600, "claim_min_idle_ms": 600_000, "preload": "trouble"}


@pytest.fixture
def disk(world: World) -> Iterator[SmallDisk]:
    made = SmallDisk(world.folder / "disk", "size=4m,nr_inodes=200")
    yield made
    made.close()


def flows(world: World, disk: SmallDisk) -> None:
    world.chain("needs-no-disk", {"type": "mock", "id": "a", "value": 1})
    world.chain("writes", {"type": "t_line", "id": "a", "file": "$INPUT"})


def test_58_logs_and_temporary_files_on_a_disk_filled_to_the_last_byte_and_freed(world: World, disk: SmallDisk) -> None:
    flows(world, disk)
    log = disk.outside / "log"
    through = [*disk.through, "sh", "-c", f'exec "$@" >>{disk.path}/log 2>&1', "sh"]
    one = world.supervisor(through=through, environment={"TMPDIR": str(disk.path)}, **PATIENT).wait_serving()
    assert world.run("writes", str(disk.path / "target1"))["status"] == "completed"
    disk.fill()
    taken = [name for name in range(200) if _touched(disk.outside / str(name))]  # and no inode is left
    assert world.run("needs-no-disk")["status"] == "completed"
    failed = world.run("writes", str(disk.path / "target2"))
    assert failed["status"] == "error"
    assert "No space left on device" in failed["error"]["message"]
    # An executor is killed: a new one is born, in the folder that the dead one has left.
    before = one.status()["executors"]
    os.kill(before[0]["pid"], signal.SIGKILL)
    one.wait_status(
        lambda s: (
            all(row["state"] == "idle" for row in s["executors"])
            and before[0]["pid"] not in {row["pid"] for row in s["executors"]}
        ),
        "a new executor on a full disk",
    )

    def lost() -> int:
        one.signal(signal.SIGUSR1)  # much to log
        return int(one.status()["counters"]["log_lines_dropped"])

    until(lost, "lines that the disk does not take")
    assert world.run("needs-no-disk")["status"] == "completed"
    for name in taken:
        (disk.outside / str(name)).unlink()
    disk.free()
    assert world.run("writes", str(disk.path / "later"))["status"] == "completed"

    def told() -> bool:
        one.signal(signal.SIGUSR1)
        return "event=log.lines_lost" in log.read_text("utf-8", "replace")

    until(told, "logging goes on")
    assert one.stop() == 0
    assert "event=supervisor.exit code=0" in log.read_text("utf-8", "replace")


def _touched(path: Path) -> bool:
    try:
        path.touch()
    except OSError:
        return False
    return True


@pytest.mark.long
def test_58_a_read_only_disk_under_the_temporary_files(world: World, disk: SmallDisk) -> None:
    flows(world, disk)
    one = world.supervisor(through=disk.through, environment={"TMPDIR": str(disk.path)}, **PATIENT).wait_serving()
    disk.run("mount", "-o", "remount,ro", str(disk.path))
    assert world.run("needs-no-disk")["status"] == "completed"
    failed = world.run("writes", str(disk.path / "target4"))
    assert "Read-only file system" in failed["error"]["message"]
    dead = one.status()["executors"][0]["pid"]
    os.kill(dead, signal.SIGKILL)
    one.wait_status(lambda s: dead not in {row["pid"] for row in s["executors"]}, "its end")
    assert world.run("needs-no-disk")["status"] == "completed"  # by the other; none is born without a folder of its own
    assert one.status()["executors"][0]["state"] == "starting"
    disk.run("mount", "-o", "remount,rw", str(disk.path))
    assert world.run("writes", str(disk.path / "target5"))["status"] == "completed"
    one.wait_status(lambda s: all(row["state"] == "idle" for row in s["executors"]), "both executors again")
    assert one.stop() == 0


class _Ill(io.StringIO):
    """A stream whose disk takes nothing while ``ill`` is an errno."""

    ill = 0

    def write(self, text: str) -> int:
        if self.ill:
            raise OSError(self.ill, os.strerror(self.ill))
        return super().write(text)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EPIPE])
def test_58_lines_that_no_disk_takes_are_counted_and_told_of_afterwards(
    number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream, dropped = _Ill(), []
    monkeypatch.setattr("sys.stderr", stream)
    logger = logging.getLogger("plaita")
    before = list(logger.handlers), logger.level, logger.propagate
    stop = logs.set_up("INFO", lambda: dropped.append(1))
    try:
        logs.info("before")
        until(lambda: "event=before" in stream.getvalue(), "the first line")
        stream.ill = number
        for _ in range(3):
            logs.info("lost")
        until(lambda: len(dropped) == 3, "three that are lost")
        stream.ill = 0
        logs.info("after")
        until(lambda: "event=after" in stream.getvalue(), "the line after")
    finally:
        stop()
        logger.handlers[:], logger.propagate = before[0], before[2]
        logger.setLevel(before[1])
    assert logs.waiting() == 0
    found = [line.split("event=")[1] for line in stream.getvalue().splitlines()]
    assert found == ["before", f'log.lines_lost lines=3 error="{os.strerror(number)}"', "after"]
