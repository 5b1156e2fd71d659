"""How the hosts of a cluster stand to each other: who is alive, and where their configurations differ (ledger C2, G1).

Pure. Ages are by the server's clock; no host's own clock is compared with another's.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

HEARTBEAT_MS = 10_000
STALE_MS = 2 * HEARTBEAT_MS

GENERATIONS = ("config_family", "config_generation", "budget_generation")
ADVICE = {
    "config_family": "they do not run each other's carriers: compare queue, group, dead letters and key prefix",
    "config_generation": "they work by different settings: see the settings that differ; nothing is refused for it",
    "budget_generation": "what was taken under one is left to hosts with it: drain those before the last of them stops",
    "plaita_version": "in the middle of an upgrade this is as it should be; else bring them to one version",
}


class Standing(Enum):
    ALIVE = "alive"
    STALE = "stale"  # a record, and more than two heartbeats late: frozen, or cut off from Redis
    DEAD = "dead"  # no record any more, and it never left
    STOPPED = "stopped"  # it left a moment ago
    UNREADABLE = "unreadable"  # a record that is none of plaita's


def standing(record: Mapping[str, Any] | None, *, there: bool, age_ms: int) -> Standing:
    """``there``: a record stands in Redis; ``record``: what could be read of it; ``age_ms``: since its heartbeat."""
    if not there:
        return Standing.DEAD
    if record is None:
        return Standing.UNREADABLE
    if record.get("status") == "stopped":
        return Standing.STOPPED
    return Standing.STALE if age_ms > STALE_MS else Standing.ALIVE


@dataclass(frozen=True, slots=True)
class Difference:
    """One name, and who has which value of it; ``advice`` says what follows."""

    name: str
    values: list[tuple[Any, list[str]]]
    advice: str = ""


def mixes(hosts: Mapping[str, Mapping[str, Any]]) -> list[Difference]:
    """Generations and versions of which there is more than one among ``hosts`` (their records by id). A host that does
    not say is not counted."""
    found = []
    for name in (*GENERATIONS, "plaita_version"):
        values: dict[str, list[str]] = {}
        for host, record in hosts.items():
            source = record.get("generations") if name in GENERATIONS else record
            value = source.get(name) if isinstance(source, Mapping) else None
            if isinstance(value, str) and value:
                values.setdefault(value, []).append(host)
        if len(values) > 1:
            found.append(Difference(name, sorted(values.items()), ADVICE[name]))
    return found


def differing(configs: Mapping[str, Mapping[str, Any]], own: Collection[str]) -> list[Difference]:
    """Settings that are not the same everywhere; ``own`` are those that are each host's own affair. A host of another
    version, which may not know a setting, is not asked for it."""
    names = sorted({name for config in configs.values() for name in config} - set(own))
    found = []
    for name in names:
        values: dict[str, tuple[Any, list[str]]] = {}
        for host, config in configs.items():
            if name in config:
                text = json.dumps(config[name], sort_keys=True)
                values.setdefault(text, (config[name], []))[1].append(host)
        if len(values) > 1:
            found.append(Difference(name, [values[text] for text in sorted(values)]))
    return found
