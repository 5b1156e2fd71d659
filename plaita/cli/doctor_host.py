"""The part of ``plaita doctor`` that looks at this host: gathers, judges nothing."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plaita.cli import control_client
from plaita.errors import ConfigError, PlaitaError
from plaita.policy.doctor import host, units
from plaita.policy.doctor.supervisors import Limits, Supervisor
from plaita.runtime_config import SupervisorConfig, load_runtime_config
from plaita.unix import looking

_ASK_SECONDS = 3.0
_UNITS = "plaita-supervisor*.service"
_LOCAL_HOSTS = ("localhost", "127.", "::1", "[::1]")


@dataclass(frozen=True, slots=True)
class Wanted:
    """Settings of a supervisor as this environment has them: ``config`` None where they are faulty."""

    config: SupervisorConfig | None
    faults: Sequence[str]


def supervisor_settings(redis_url: str | None, embedded: str | None) -> Wanted:
    """What a supervisor started from here would be told."""
    try:
        return Wanted(load_runtime_config("worker", flags={"redis_url": redis_url, "embedded": embedded}), ())
    except ConfigError as error:
        return Wanted(None, error.faults)


def supervisors(given: str | None, environ: Mapping[str, str]) -> list[Supervisor]:
    """Everyone who listens on this host, asked for its status, and whoever left a socket behind."""
    paths = control_client.candidates(environ)
    for named in (environ.get("PLAITA_SOCKET"), given):
        if named:
            paths.insert(0, os.path.abspath(os.path.expanduser(named)))
    found = []
    for path in dict.fromkeys(paths):
        if not control_client.listening(path):
            if os.path.exists(path):
                found.append(Supervisor(path, error="a socket is there and nobody listens", gone=True))
            continue
        try:
            status = control_client.ask(path, "status", timeout=_ASK_SECONDS)
        except PlaitaError as error:
            told = str(error).removeprefix(f"socket {path}: ")
            found.append(Supervisor(path, error=told, barred=not os.access(path, os.R_OK | os.W_OK)))
        else:
            found.append(Supervisor(path, status, limits=_limits_of(status)))
    return found


def look(
    wanted: Wanted,
    socket: str | None,
    environ: Mapping[str, str],
    began_swapped: int | None,
    began: float,
    server_folder: str = "",
) -> host.HostFacts:
    """The host as it is. ``began_swapped``: pages swapped in at ``began`` (time.monotonic), for the rate since.
    ``server_folder``: of a Redis server on this host."""
    there = supervisors(socket, environ)
    memory = looking.memory()
    clock = looking.clock()
    swapped = looking.swapped_in()
    passed = time.monotonic() - began
    rate = None
    if swapped is not None and began_swapped is not None and passed > 0:
        rate = (swapped - began_swapped) / max(passed, 1.0)
    return host.HostFacts(
        disks=disks(wanted.config, there, server_folder),
        supervisors=there,
        shell=Limits(_executors(wanted.config), looking.open_files(), looking.processes()),
        now_s=time.time(),
        memory_total=None if memory is None else memory[0],
        memory_available=None if memory is None else memory[1],
        swapped_in=rate,
        clock_synchronised=None if clock is None else clock[0],
        clock_error_s=None if clock is None else clock[1],
        config_faults=wanted.faults,
    )


def _executors(config: SupervisorConfig | None) -> int:
    return len(os.sched_getaffinity(0)) if config is None else config.executors


def _limits_of(status: Mapping[str, Any]) -> Limits | None:
    pid, rows = status.get("pid"), status.get("executors")
    found = looking.limits_of(pid) if isinstance(pid, int) else None
    if found is None or not isinstance(pid, int):
        return None
    executors = len(rows) if isinstance(rows, list) else 1
    return Limits(executors, found[0], found[1], looking.descriptors_of(pid))


def disks(config: SupervisorConfig | None, there: Sequence[Supervisor], server_folder: str = "") -> list[host.Disk]:
    """Where data and state lie, each file system once: what running supervisors watch, what this environment says,
    the embedded server's folder, and the folder for temporary files."""
    asked: list[tuple[str, str, float]] = []
    for one in there:
        told = (one.status or {}).get("disk")
        if isinstance(told, Mapping) and told.get("path"):
            asked.append(
                (str(told["path"]), "the disk that the supervisor watches", float(told.get("min_free_gib") or 0))
            )
    if config is not None:
        if not asked:
            asked.append((config.disk_guard_path, "the disk that a supervisor watches", config.min_free_disk_gib))
        if config.embedded is not None:
            asked.append((config.embedded, "the disk of the embedded server", 0.0))
    if server_folder and os.path.isdir(server_folder):
        asked.append((server_folder, "the disk of the Redis server", 0.0))
    asked.append((os.environ.get("TMPDIR") or "/tmp", "the disk of temporary files", 0.0))
    found, seen = [], set[tuple[int, float]]()
    for path, what, line in asked:
        try:
            nearest = _nearest(path)
            device = os.stat(nearest).st_dev
            space = looking.space(nearest)
        except OSError as error:
            found.append(host.Disk(path, what, min_free_gib=line, error=error.strerror or str(error)))
            continue
        if any(known == device and (not line or line == other) for known, other in seen):
            continue
        seen.add((device, line))
        found.append(host.Disk(path, what, space.free, space.total, space.free_inodes, space.total_inodes, line))
    return found


def _nearest(path: str) -> str:
    """The folder that is there, of one that a supervisor would make."""
    here = Path(path)
    while not here.exists() and here != here.parent:
        here = here.parent
    return str(here)


def unit_facts(config: SupervisorConfig | None, there: Sequence[Supervisor]) -> units.UnitFacts:
    """The units of plaita, and the time its supervisors want for a stop."""
    drain, grace = (30.0, 5.0) if config is None else (config.drain_timeout, config.kill_grace)
    for one in there:
        told = (one.status or {}).get("drain")
        if isinstance(told, Mapping) and isinstance(told.get("timeout_s"), (int, float)):
            drain = max(drain, float(told["timeout_s"]))
    if not looking.systemd_runs():
        return units.UnitFacts(None, drain, grace, "no systemd runs here")
    try:
        shown = looking.show_units(_UNITS, units.PROPERTIES)
    except OSError as error:
        return units.UnitFacts(None, drain, grace, str(error))
    return units.UnitFacts(units.read_show(shown), drain, grace)


def is_local(shown: str) -> bool:
    """Whether the server of this (shown) address is on this host."""
    scheme, _, rest = shown.partition("://")
    return scheme == "unix" or ("sentinel" not in scheme and rest.startswith(_LOCAL_HOSTS))
