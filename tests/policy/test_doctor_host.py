"""The doctor's checks of this host and its units, as tables; borders included."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from plaita.policy.doctor import Severity, host, units, worst
from plaita.policy.doctor.finding import note, ordered, span
from plaita.policy.doctor.finding import warning as a_warning
from plaita.policy.doctor.host import Disk, HostFacts
from plaita.policy.doctor.supervisors import Limits, Supervisor
from plaita.policy.doctor.units import UnitFacts
from plaita.unix import limits

GIB = 1024**3
STATUS: dict[str, Any] = {
    "instance_id": "h1",
    "status": "running",
    "serving": True,
    "paused": False,
    "shut": [],
    "registry_registered": True,
    "redis": {"connected": True, "since": None, "error": None},
    "template": {"ready": True},
    "breakers": [],
    "stuck": [],
}
ROOM = Disk("/data", "the disk", 50 * GIB, 100 * GIB, 900, 1000)
HEALTHY = HostFacts(
    disks=(ROOM,),
    supervisors=(Supervisor("/s", STATUS),),
    shell=Limits(8, 1024, None),
    memory_total=1000,
    memory_available=500,
    swapped_in=0.0,
    clock_synchronised=True,
    clock_error_s=0.01,
)


def severity(facts: HostFacts, check: str) -> str | None:
    found = [one for one in host.judge(facts) if one.check == check]
    assert len(found) <= 1, found
    assert all(
        one.why and (one.action or one.severity is Severity.NOTE) for one in found if one.severity is not Severity.OK
    )
    return found[0].severity.value if found else None


def test_a_healthy_host() -> None:
    assert worst(host.judge(HEALTHY)) is Severity.OK


LINE = replace(ROOM, min_free_gib=10)
TABLE = [
    ("host.disk", {"disks": (replace(ROOM, free=GIB),)}, "ok"),
    ("host.disk", {"disks": (replace(ROOM, free=GIB - 1),)}, "error"),
    ("host.disk", {"disks": (replace(ROOM, total=GIB, free=GIB // 20 + 1),)}, "ok"),  # a small disk has a small line
    ("host.disk", {"disks": (replace(ROOM, total=GIB, free=GIB // 20 - 1),)}, "error"),
    ("host.disk", {"disks": (replace(LINE, free=10 * GIB - 1),)}, "error"),
    ("host.disk", {"disks": (replace(LINE, free=10 * GIB),)}, "warning"),
    ("host.disk", {"disks": (replace(LINE, free=12 * GIB),)}, "ok"),
    ("host.disk", {"disks": (Disk("/gone", "the disk", error="No such file"),)}, "warning"),
    ("host.inodes", {"disks": (replace(ROOM, free_inodes=50),)}, None),
    ("host.inodes", {"disks": (replace(ROOM, free_inodes=49),)}, "warning"),
    ("host.inodes", {"disks": (replace(ROOM, free_inodes=9),)}, "error"),
    ("host.inodes", {"disks": (replace(ROOM, free_inodes=0, total_inodes=0),)}, None),
    ("host.open_files", {"shell": Limits(8, 112)}, "ok"),
    ("host.open_files", {"shell": Limits(8, 111)}, "warning"),
    ("host.open_files", {"shell": Limits(8, None)}, "ok"),
    ("host.processes", {"shell": Limits(8, None, 56)}, "ok"),
    ("host.processes", {"shell": Limits(8, None, 55)}, "warning"),
    # those of a supervisor that runs stand above this shell's
    ("host.open_files", {"shell": Limits(8, 1), "supervisors": (Supervisor("", STATUS, limits=Limits(8, 112)),)}, "ok"),
    ("host.descriptors", {"supervisors": (Supervisor("/s", STATUS, limits=Limits(1, 100, None, 90)),)}, None),
    ("host.descriptors", {"supervisors": (Supervisor("/s", STATUS, limits=Limits(1, 100, None, 91)),)}, "error"),
    ("host.memory", {"memory_available": 100}, "ok"),
    ("host.memory", {"memory_available": 99}, "warning"),
    ("host.memory", {"memory_available": 49}, "error"),
    ("host.memory", {"memory_total": None}, None),
    ("host.swap", {"swapped_in": 100.0}, None),
    ("host.swap", {"swapped_in": 101.0}, "warning"),
    ("host.clock", {"clock_synchronised": None}, "note"),
    ("host.clock", {"clock_synchronised": False}, "warning"),
    ("host.clock", {"clock_synchronised": False, "server_agrees": True}, "note"),
    ("host.settings", {"config_faults": ("x",)}, "warning"),
    ("host.settings", {}, None),
    ("host.supervisor", {"supervisors": ()}, "note"),
    ("host.supervisor", {"supervisors": (Supervisor("/s", error="no answer"),)}, "error"),
    ("host.supervisor", {"supervisors": (Supervisor("/s", error="may not connect", barred=True),)}, "note"),
    ("host.supervisor", {"supervisors": (Supervisor("/s", error="nobody listens", gone=True),)}, "warning"),
]  # fmt: skip


@pytest.mark.parametrize(("check", "changes", "wanted"), TABLE)
def test_the_host(check: str, changes: dict[str, Any], wanted: str | None) -> None:
    assert severity(replace(HEALTHY, **changes), check) == wanted


SUPERVISORS = [
    ("host.supervisor", {}, "ok"),
    ("host.supervisor", {"serving": False, "status": "draining"}, "warning"),
    ("host.supervisor", {"serving": False, "paused": True, "shut": ["pause"]}, "warning"),
    ("host.supervisor", {"serving": False, "shut": ["disk"]}, "error"),
    ("host.supervisor_redis", {"redis": {"connected": False, "since": "x", "error": "refused"}}, "error"),
    ("host.supervisor_redis", {"redis": None}, None),
    ("host.service", {"services": [{"service": "events", "state": "running", "failures": 3, "error": "x"}]}, None),
    ("host.service", {"services": [{"service": "events", "state": "failed", "failures": 3, "error": "x"}]}, "warning"),
    ("host.queue_server", {"services": [{"targets": [{"target": "q:1/0", "away_since": None}]}]}, None),
    ("host.queue_server", {"services": [{"targets": [{"target": "q:1/0", "away_since": "x"}]}]}, "warning"),
    ("host.supervisor_registry", {"registry_registered": False}, "warning"),
    ("host.template", {"template": {"ready": False}}, "warning"),
    (
        "host.breaker",
        {"breakers": [{"node_id": "n", "flow_id": "f", "version": "1", "deaths": 5, "cause": "SIGKILL"}]},
        "warning",
    ),
    ("host.stuck", {"stuck": [{"execution_id": "e", "node_id": "n", "step_s": 100, "usual_s": 2}]}, "warning"),
    ("host.stuck", {"stuck": [{"execution_id": "e", "node_id": "n", "step_s": 9, "timeout_s": 2}]}, "warning"),
    ("host.stuck", {"stuck": "nonsense"}, None),
]


@pytest.mark.parametrize(("check", "changes", "wanted"), SUPERVISORS)
def test_a_supervisor_here(check: str, changes: dict[str, Any], wanted: str | None) -> None:
    facts = replace(HEALTHY, supervisors=(Supervisor("/s", STATUS | changes),))
    assert severity(facts, check) == wanted


def died(*ages_s: float) -> dict[str, Any]:
    ats = [datetime.fromtimestamp(1_000_000 - age, UTC).isoformat() for age in ages_s]
    return {"deaths": [{"at": at, "cause": "SIGKILL", "node_id": "n", "execution_id": "e"} for at in ats]}


@pytest.mark.parametrize(
    ("deaths", "wanted"),
    [
        (died(3601), None),
        (died(3600), "note"),
        (died(9000, 4, 3, 2, 1), "note"),
        (died(5, 4, 3, 2, 1), "warning"),
        ({"deaths": [{"at": None}, {"at": "x"}, {"at": "2026-11-30T08:00:00"}, 5]}, None),
    ],
)
def test_executors_that_died_lately(deaths: dict[str, Any], wanted: str | None) -> None:
    facts = replace(HEALTHY, now_s=1_000_000.0, supervisors=(Supervisor("/s", STATUS | deaths),))
    assert severity(facts, "host.deaths") == wanted


def test_an_answer_of_another_version_is_no_crash() -> None:
    for status in ({}, {"status": None, "redis": [], "stuck": [1], "breakers": {}, "shut": None}):
        assert worst(host.judge(replace(HEALTHY, supervisors=(Supervisor("/s", status),)))) is Severity.ERROR


def test_limits_are_those_a_supervisor_warns_of() -> None:
    assert (host.DESCRIPTORS_PER_EXECUTOR, host.DESCRIPTORS_BESIDE) == (
        limits._DESCRIPTORS_PER_EXECUTOR,
        limits._DESCRIPTORS_BESIDE,
    )
    assert (host.PROCESSES_PER_EXECUTOR, host.PROCESSES_BESIDE) == (
        limits._PROCESSES_PER_EXECUTOR,
        limits._PROCESSES_BESIDE,
    )


# -- units ----------------------------------------------------------------------------------------

SHOWN = """\
Type=notify
Restart=on-failure
KillMode=mixed
OOMPolicy=continue
WatchdogUSec=30s
TimeoutStopUSec=1min
RestartPreventExitStatus=78
NRestarts=0
ExecMainStatus=0
Result=success
Id=plaita-supervisor.service
LoadState=loaded
ActiveState=active
SubState=running
UnitFileState=enabled

Id=plaita-supervisor@2.service
LoadState=loaded
ActiveState=failed
Result=exit-code
ExecMainStatus=78
"""


def test_units_are_read_as_systemctl_shows_them() -> None:
    first, second = units.read_show(SHOWN)
    assert (first["Id"], first["TimeoutStopUSec"]) == ("plaita-supervisor.service", "1min")
    found = {
        one.check: one for one in units.judge(UnitFacts([first, second], 30.0, 5.0)) if one.severity is not Severity.OK
    }
    assert set(found) == {"host.unit"}
    assert "plaita-supervisor check" in found["host.unit"].action
    assert units.read_show("") == []


def of_unit(changes: dict[str, str], check: str, drain_s: float = 30.0) -> str | None:
    unit = units.read_show(SHOWN)[0] | changes
    found = [one.severity.value for one in units.judge(UnitFacts([unit], drain_s, 5.0)) if one.check == check]
    assert len(found) <= 1
    return found[0] if found else None


@pytest.mark.parametrize(
    ("check", "changes", "wanted"),
    [
        ("host.unit", {}, "ok"),
        ("host.unit", {"ActiveState": "inactive"}, "warning"),
        ("host.unit", {"ActiveState": "failed", "ExecMainStatus": "70"}, "error"),
        ("host.unit_restarts", {"NRestarts": "1"}, "warning"),
        ("host.unit_killmode", {"KillMode": "control-group"}, "warning"),
        ("host.unit_oompolicy", {"OOMPolicy": "stop"}, "warning"),
        ("host.unit_type", {"Type": "simple"}, "warning"),
        ("host.unit_type", {"Type": "notify-reload"}, None),
        ("host.unit_watchdog", {"WatchdogUSec": "0"}, "warning"),
        ("host.unit_watchdog", {"WatchdogUSec": "infinity"}, "warning"),
        ("host.unit_stop_timeout", {"TimeoutStopUSec": "40s"}, None),
        ("host.unit_stop_timeout", {"TimeoutStopUSec": "39s"}, "warning"),
        ("host.unit_stop_timeout", {"TimeoutStopUSec": "infinity"}, None),
        ("host.unit_memory", {"MemoryCurrent": "90", "MemoryMax": "100"}, None),
        ("host.unit_memory", {"MemoryCurrent": "91", "MemoryMax": "100"}, "warning"),
        ("host.unit_memory", {"MemoryCurrent": "91", "MemoryMax": "infinity"}, None),
        ("host.unit_memory", {"MemoryCurrent": "[not set]", "MemoryMax": "100"}, None),
        ("host.unit_tasks", {"TasksCurrent": "91", "TasksMax": "100"}, "warning"),
        ("host.unit_restart_prevent", {"RestartPreventExitStatus": ""}, "warning"),
        ("host.unit_restart_prevent", {"RestartPreventExitStatus": "2 78"}, None),
    ],
)
def test_a_unit(check: str, changes: dict[str, str], wanted: str | None) -> None:
    assert of_unit(changes, check) == wanted


@pytest.mark.parametrize("name", ["plaita-supervisor.service", "plaita-supervisor@.service"])
def test_the_units_we_ship_are_right(name: str) -> None:
    text = (Path(__file__).parents[2] / "systemd" / name).read_text()
    said = dict(line.partition("=")[::2] for line in text.splitlines() if "=" in line and not line.startswith("#"))
    unit = {key: said[key] for key in ("Type", "KillMode", "OOMPolicy", "RestartPreventExitStatus")}
    unit |= {
        "ActiveState": "active",
        "WatchdogUSec": f"{said['WatchdogSec']}s",
        "TimeoutStopUSec": f"{said['TimeoutStopSec']}s",
    }
    assert [one for one in units.judge(UnitFacts([unit], 30.0, 5.0)) if one.severity is not Severity.OK] == []


def test_a_longer_drain_wants_a_longer_stop() -> None:
    assert of_unit({}, "host.unit_stop_timeout", drain_s=50.0) is None
    assert of_unit({}, "host.unit_stop_timeout", drain_s=51.0) == "warning"


@pytest.mark.parametrize("facts", [UnitFacts(None, 30, 5, "no systemd runs here"), UnitFacts([], 30, 5)])
def test_no_unit_is_a_note(facts: UnitFacts) -> None:
    assert [one.severity for one in units.judge(facts)] == [Severity.NOTE]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [("1min 30s", 90), ("500ms", 0.5), ("infinity", float("inf")), ("0", 0), ("90000000", 90), ("2h 5min", 7500),
     ("1 month", 2_629_800), ("x", None), ("", None), ("3 parsec", None)],
)  # fmt: skip
def test_timespans(text: str, wanted: float | None) -> None:
    assert units.seconds(text) == wanted


def test_the_worst_comes_first() -> None:
    first, second = note("a", "", "", ""), a_warning("b", "", "", "", "")
    assert ordered([first, second]) == [second, first]
    assert (worst([]), worst([first, second])) == (Severity.OK, Severity.WARNING)
    assert [span(one) for one in (0.5, 59.4, 119, 120, 7200, 172_800)] == [
        "0.5 s",
        "59 s",
        "119 s",
        "2 min",
        "2 h",
        "2 d",
    ]
