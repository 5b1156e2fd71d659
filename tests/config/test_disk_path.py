"""The path of the disk guard at the start: one that is not there is a fault, a disk that is ill is none (ledger G5)."""

from __future__ import annotations

import errno
import os
import threading

import pytest

from plaita.errors import ConfigError
from plaita.runtime_config import host, load_runtime_config


def load() -> None:
    load_runtime_config("worker", flags={"disk_guard_path": "/somewhere"}, environ={}, file=None)


@pytest.mark.parametrize("number", [errno.ENOENT, errno.ENOTDIR, errno.EACCES])
def test_G5_a_path_that_is_not_there_is_named(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(path: str) -> os.statvfs_result:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "statvfs", failing)
    with pytest.raises(ConfigError, match="/somewhere"):
        load()


@pytest.mark.parametrize("number", [errno.EIO, errno.ESTALE, errno.ETIMEDOUT])
def test_G5_an_ill_disk_keeps_nobody_from_starting(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(path: str) -> os.statvfs_result:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "statvfs", failing)
    load()


def test_G5_a_disk_that_hangs_keeps_nobody_from_starting(monkeypatch: pytest.MonkeyPatch) -> None:
    free = threading.Event()
    monkeypatch.setattr(host, "ANSWERS_WITHIN_S", 0.01)
    monkeypatch.setattr(os, "statvfs", lambda path: free.wait(60))
    load()
    free.set()
