"""What the registry says of all hosts: who is there, and by which settings each works (ledger C2, G1).

Read only. What a record says is shown as it is written there, whatever wrote it; secrets are masked here too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from plaita import jsontext
from plaita.client.operations import Operation, ask
from plaita.clock import iso_utc
from plaita.errors import RefusedError
from plaita.policy import cluster
from plaita.policy.cluster import Difference, Standing
from plaita.runtime_config import SupervisorConfig, every_setting, mask_url, settings_of
from plaita.store import registry
from plaita.store.keys import Keys
from plaita.store.registry import Member

_MASKED = "(masked)"
_LIVING = (Standing.ALIVE, Standing.STALE)


@dataclass(frozen=True, slots=True)
class _Host:
    member: Member
    record: Mapping[str, Any]  # empty where there is none that can be read
    standing: Standing
    age_ms: int


def instances(keys: Keys) -> Operation[dict[str, Any]]:
    """``{"instances": [...], "total", "alive", "mixed": [...], "at"}``: every supervisor and library worker that is
    registered or died within a day. Of each: ``instance_id``, ``state`` (``alive``, ``stale``: more than two heartbeats
    late, ``dead``, ``stopped``, ``unreadable``), ``status``, ``paused``, ``shut`` (its gates), ``host``, ``pid``,
    ``version``, ``uptime_s``, ``executors``, ``free``, ``busy``, ``queue``, ``disk``, ``generations``,
    ``heartbeat_age_s`` (by the server's clock), ``incarnation``, ``library``."""
    hosts, now_ms = yield from _hosts(keys)
    return {
        "instances": [_row(host) for host in hosts],
        "total": len(hosts),
        "alive": sum(host.standing is Standing.ALIVE for host in hosts),
        "mixed": [_shown(one) for one in cluster.mixes(_living(hosts))],
        "at": iso_utc(now_ms),
    }


def config(keys: Keys, instance_id: str | None = None) -> Operation[dict[str, Any]]:
    """``{"instances": [{"instance_id", "state", "version", "generations", "config"}], "differences": [...], "mixed":
    [...], "at"}``: the settings in force on each living host, and those that differ between them; settings that are a
    host's own affair (names, ports, how it logs) are not compared. ``instance_id``: of that one alone.

    Refused: ``no_instance``.
    """
    hosts, now_ms = yield from _hosts(keys)
    living = _living(hosts)
    shown = [host for host in hosts if host.member.instance_id in living]
    if instance_id is not None:
        shown = [host for host in shown if host.member.instance_id == instance_id]
        if not shown:
            known = ", ".join(living) or "none"
            raise RefusedError("no_instance", f"no living instance {instance_id!r}; there are: {known}")
    own = {name for name, setting in settings_of(SupervisorConfig).items() if setting.group == "appearance"}
    configs = {name: _config(record) for name, record in living.items() if _config(record)}
    return {
        "instances": [
            {
                "instance_id": host.member.instance_id,
                "state": host.standing.value,
                "version": _text(host.record.get("plaita_version")),
                "generations": _generations(host.record),
                "config": _config(host.record) or None,
            }
            for host in shown
        ],
        "differences": [_shown(one) for one in cluster.differing(configs, own)],
        "mixed": [_shown(one) for one in cluster.mixes(living)],
        "at": iso_utc(now_ms),
    }


def _hosts(keys: Keys) -> Operation[tuple[list[_Host], int]]:
    found = yield from ask(registry.list_members(keys))
    hosts = []
    for member in found.members:
        record = _read(member.record)
        age_ms = max(0, found.now_ms - member.beat_ms)
        where = cluster.standing(record, there=bool(member.record), age_ms=age_ms)
        hosts.append(_Host(member, record or {}, where, age_ms))
    return hosts, found.now_ms


def _read(raw: bytes) -> dict[str, Any] | None:
    if not raw:
        return None
    try:
        value = jsontext.loads(raw)
    except jsontext.JSONTextError:
        return None
    return value if isinstance(value, dict) else None


def _living(hosts: list[_Host]) -> dict[str, Mapping[str, Any]]:
    return {host.member.instance_id: host.record for host in hosts if host.standing in _LIVING}


def _row(host: _Host) -> dict[str, Any]:
    record = host.record
    capacity = record.get("capacity")
    capacity = capacity if isinstance(capacity, dict) else {}
    uptime = _number(record.get("uptime_s"))
    shut = record.get("shut")
    return {
        "instance_id": host.member.instance_id,
        "state": host.standing.value,
        "status": _text(record.get("status")),
        "paused": record.get("paused") is True,
        "shut": [str(name) for name in shut] if isinstance(shut, list) else [],
        "host": _text(record.get("host")),
        "pid": _number(record.get("pid")),
        "version": _text(record.get("plaita_version")),
        "uptime_s": None if uptime is None else round(uptime + host.age_ms / 1000, 1),
        "executors": _number(capacity.get("executors")),
        "free": _number(capacity.get("free")),
        "busy": _number(capacity.get("busy")),
        "queue": capacity.get("queue"),
        "disk": capacity.get("disk"),
        "generations": _generations(record),
        "heartbeat_age_s": round(host.age_ms / 1000, 1),
        "incarnation": host.member.incarnation or None,
        "library": record.get("library") is True,
    }


def _generations(record: Mapping[str, Any]) -> dict[str, str | None]:
    found = record.get("generations")
    said = found if isinstance(found, dict) else {}
    return {name: _text(said.get(name)) for name in cluster.GENERATIONS}


def _config(record: Mapping[str, Any]) -> dict[str, Any]:
    """The settings, without a secret whoever wrote them."""
    found = record.get("config")
    if not isinstance(found, dict):
        return {}
    settings = every_setting()
    return {
        name: _masked(value) if name in settings and settings[name].secret and value is not None else value
        for name, value in found.items()
    }


def _masked(value: Any) -> str:
    return mask_url(value) if isinstance(value, str) and "://" in value else _MASKED


def _shown(difference: Difference) -> dict[str, Any]:
    said = {
        "name": difference.name,
        "values": [{"value": value, "instances": hosts} for value, hosts in difference.values],
    }
    return said | ({"advice": difference.advice} if difference.advice else {})


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _number(value: Any) -> int | float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None
