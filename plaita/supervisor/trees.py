"""The tree mark of this supervisor, and the trees that dead supervisors of this host left behind (DECISIONS 10)."""

from __future__ import annotations

import os

from plaita.unix.processes import find_marked, start_ticks, sweep


def new_mark() -> str:
    """A mark nobody else has, which names its supervisor: ``<random>.<pid>.<start>``."""
    return f"{os.urandom(8).hex()}.{os.getpid()}.{start_ticks(os.getpid()) or 0}"


def owner_is_dead(mark: str) -> bool:
    """Whether the supervisor a mark names is provably gone. A mark of another form proves nothing."""
    parts = mark.split(".")
    if len(parts) != 3 or not parts[1].isdigit() or not parts[2].isdigit():
        return False
    return start_ticks(int(parts[1])) != int(parts[2])


def sweep_dead_trees() -> int:
    """SIGKILL what supervisors that are gone have left on this host, before anything is taken over from them."""
    killed = 0
    for mark in set(find_marked(None).values()):
        if owner_is_dead(mark):
            killed += sweep(mark)[0]
    return killed
