"""Who this process is among the living, and whether a registered namesake still lives (DECISIONS 1).

Facts about processes are read here; the verdict is ``judge_namesake``, a pure function.
"""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from enum import Enum
from typing import Any

from plaita import jsontext
from plaita.unix.processes import start_ticks


@dataclass(frozen=True, slots=True)
class Identity:
    """``machine`` and ``boot`` name this boot of this machine; ``started`` with ``pid`` names this process for good."""

    host: str
    machine: str
    boot: str
    pid: int
    started: int


def _read(path: str) -> str:
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""


def own_identity() -> Identity:
    """This process."""
    return Identity(
        host=socket.gethostname(),
        machine=_read("/etc/machine-id"),
        boot=_read("/proc/sys/kernel/random/boot_id"),
        pid=os.getpid(),
        started=start_ticks(os.getpid()) or 0,
    )


class Namesake(Enum):
    DEAD = "dead"  # provably: its process is gone from this machine, or the machine was booted since
    ALIVE = "alive"  # provably: the process it names runs on this machine
    UNKNOWN = "unknown"  # on another machine: only the end of its registry entry can tell


def judge_namesake(record: bytes, own: Identity, started_of_pid: int | None) -> Namesake:
    """What a registry record with our instance id means. ``started_of_pid`` is the start of the process that has the
    record's pid on this machine now, None when there is none."""
    try:
        there: Any = jsontext.loads(record)
        machine, boot = str(there["machine"]), str(there["boot"])
        pid, started = int(there["pid"]), int(there["started"])
    except (jsontext.JSONTextError, KeyError, TypeError, ValueError):
        return Namesake.UNKNOWN
    if not own.boot or not boot:
        return Namesake.UNKNOWN
    if boot == own.boot:
        # The boot id is the kernel's, so containers on one kernel share it: pids are only comparable in one of them.
        if str(there.get("host")) != own.host:
            return Namesake.UNKNOWN
        return Namesake.ALIVE if started_of_pid == started and pid != own.pid else Namesake.DEAD
    return Namesake.DEAD if machine and machine == own.machine else Namesake.UNKNOWN


def pid_of(record: bytes) -> int | None:
    """The pid a record names, None when it names none."""
    try:
        return int(jsontext.loads(record)["pid"])
    except (jsontext.JSONTextError, KeyError, TypeError, ValueError):
        return None


def registry_status(record: bytes) -> str:
    """The status a registry record names; an unreadable one names none."""
    try:
        value = jsontext.loads(record)
    except jsontext.JSONTextError:
        return ""
    return str(value.get("status", "")) if isinstance(value, dict) else ""
