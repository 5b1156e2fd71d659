"""The systemd units of plaita on this host, read from ``systemctl show`` as it prints."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from plaita.policy.doctor.finding import Finding, error, fine, note, span, warning

PROPERTIES = (
    "Id", "LoadState", "ActiveState", "SubState", "Result", "Type", "KillMode", "OOMPolicy", "WatchdogUSec",
    "TimeoutStopUSec", "RestartPreventExitStatus", "NRestarts", "ExecMainStatus", "UnitFileState",
    "MemoryCurrent", "MemoryMax", "TasksCurrent", "TasksMax",
)  # fmt: skip
FULL = 0.9  # of a limit of the unit
STOP_RESERVE_S = 5.0  # between the last kill and systemd's own
_CONFIGURATION = "78"
_UNITS = {
    "usec": 1e-6, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "msec": 1e-3, "s": 1.0, "sec": 1.0, "m": 60.0, "min": 60.0,
    "h": 3600.0, "hr": 3600.0, "d": 86_400.0, "day": 86_400.0, "w": 604_800.0, "month": 2_629_800.0, "y": 31_557_600.0,
}  # fmt: skip
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*([a-zµ]*)")


@dataclass(frozen=True, slots=True)
class UnitFacts:
    """``units`` None: no systemd runs here, or it did not answer: then ``error`` says why. Seconds of the supervisor's
    own settings."""

    units: Sequence[Mapping[str, str]] | None
    drain_timeout_s: float
    kill_grace_s: float
    error: str = ""


def read_show(text: str) -> list[dict[str, str]]:
    """The answer of ``systemctl show``: a paragraph a unit, ``Name=value`` a line."""
    units = []
    for paragraph in re.split(r"\n\s*\n", text.strip()):
        unit = dict(line.partition("=")[::2] for line in paragraph.splitlines() if "=" in line)
        if unit:
            units.append(unit)
    return units


def seconds(timespan: str) -> float | None:
    """``1min 30s``, ``500ms``, ``infinity``, ``0`` as seconds; None for what is none."""
    if timespan.strip() == "infinity":
        return float("inf")
    parts = _PART.findall(timespan)
    if not parts or _PART.sub("", timespan).strip():
        return None
    if len(parts) == 1 and not parts[0][1]:
        return float(parts[0][0]) / 1e6  # a bare number of microseconds
    total = 0.0
    for number, unit in parts:
        scale = _UNITS.get(unit, _UNITS.get(unit.rstrip("s")))
        if scale is None:
            return None
        total += float(number) * scale
    return total


def judge(facts: UnitFacts) -> list[Finding]:
    """Every unit that is loaded."""
    if facts.units is None:
        return [note("host.units", facts.error or "no systemd here", "", "units were not looked at")]
    loaded = [unit for unit in facts.units if unit.get("LoadState", "loaded") == "loaded"]
    if not loaded:
        return [
            note(
                "host.units",
                "no unit of plaita is loaded",
                "plaita-supervisor.service",
                "nothing starts a supervisor when this host boots, unless something else does",
                "cp systemd/plaita-supervisor.service /etc/systemd/system/ && systemctl enable --now plaita-supervisor",
            )
        ]
    return [finding for unit in loaded for finding in _judge(unit, facts)]


def _judge(unit: Mapping[str, str], facts: UnitFacts) -> Iterable[Finding]:
    name = unit.get("Id", "plaita-supervisor.service")
    before = f"{name}: "
    edit = f"systemctl edit {name}, then systemctl daemon-reload"
    state = unit.get("ActiveState", "")
    if state == "failed":
        code = unit.get("ExecMainStatus", "?")
        right = "plaita-supervisor check; then systemctl restart " + name
        act = right if code == _CONFIGURATION else f"journalctl -u {name} -n 100; then systemctl restart {name}"
        why = (
            "its settings are wrong, or another supervisor is there" if code == _CONFIGURATION else "nothing runs here"
        )
        yield error("host.unit", f"{before}failed ({unit.get('Result', '?')}, exit {code})", "active", why, act)
    elif state != "active":
        yield warning(
            "host.unit", f"{before}{state or 'unknown'}", "active", "nothing runs here", f"systemctl start {name}"
        )
    else:
        yield fine("host.unit", f"{before}active", "active")
    restarts = unit.get("NRestarts", "")
    if restarts.isdigit() and int(restarts) > 0:
        yield warning(
            "host.unit_restarts",
            f"{before}{restarts} restarts",
            "0",
            "it ended by itself and was started again",
            f"journalctl -u {name} -n 200 | grep -i -e exit -e kill",
        )
    yield from _settings(unit, facts, before, edit)
    for check, used, limit, what, why in (
        (
            "host.unit_memory",
            "MemoryCurrent",
            "MemoryMax",
            "bytes",
            "beyond it the kernel kills an executor in mid-step",
        ),
        (
            "host.unit_tasks",
            "TasksCurrent",
            "TasksMax",
            "tasks",
            "beyond it no executor can be started, nor what it starts",
        ),
    ):
        now, most = unit.get(used, ""), unit.get(limit, "")
        if now.isdigit() and most.isdigit() and int(now) > FULL * int(most):
            yield warning(
                check, f"{before}{now} of {most} {what}", f"below {FULL:.0%} of {limit}", why, f"raise {limit}: {edit}"
            )


def _settings(unit: Mapping[str, str], facts: UnitFacts, before: str, edit: str) -> Iterable[Finding]:
    for key, right, why in (
        ("KillMode", ("mixed",), "a stop kills running steps at once instead of letting them end"),
        ("OOMPolicy", ("continue",), "one executor that is killed for memory takes the whole supervisor with it"),
        ("Type", ("notify", "notify-reload"), "systemd cannot know when it is ready, and its watchdog is deaf"),
    ):
        if key in unit and unit[key] not in right:
            yield warning(f"host.unit_{key.lower()}", f"{before}{key}={unit[key]}", f"{key}={right[0]}", why, edit)
    watchdog = seconds(unit.get("WatchdogUSec", ""))
    if watchdog is not None and (watchdog == 0 or watchdog == float("inf")):
        yield warning(
            "host.unit_watchdog",
            f"{before}no WatchdogSec",
            "WatchdogSec=30",
            "a supervisor that hangs is never ended",
            edit,
        )
    least = facts.drain_timeout_s + facts.kill_grace_s
    stop = seconds(unit.get("TimeoutStopUSec", ""))
    if stop is not None and stop < least + STOP_RESERVE_S:
        yield warning(
            "host.unit_stop_timeout",
            f"{before}TimeoutStopSec={span(stop)}",
            f"{least + STOP_RESERVE_S:g} s or more",
            f"systemd kills before the drain ({facts.drain_timeout_s:g} s) and its kills ({facts.kill_grace_s:g} s) "
            "are over: steps are lost that could have ended",
            edit,
        )
    prevented = unit.get("RestartPreventExitStatus")
    if prevented is not None and _CONFIGURATION not in prevented.split():
        yield warning(
            "host.unit_restart_prevent",
            f"{before}RestartPreventExitStatus={prevented or '(none)'}",
            "78",
            "a supervisor with wrong settings is started again and again",
            edit,
        )
