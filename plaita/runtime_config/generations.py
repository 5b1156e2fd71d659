"""What hosts compare, and what people are shown: the three generations and the effective configuration (ledger C2)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from plaita.runtime_config.secrets import mask_url
from plaita.runtime_config.settings import ConnectionConfig, SupervisorConfig, settings_of

TASK_SCHEMA_VERSION = 1


MASKED = "***"


@dataclass(frozen=True, slots=True)
class Generations:
    """The three ids of C2: hosts of one family understand each other's carriers."""

    config_family: str
    config_generation: str
    budget_generation: str


def _digest(prefix: str, meaning: Mapping[str, Any]) -> str:
    text = json.dumps(meaning, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return prefix + hashlib.sha256(text.encode("utf-8")).hexdigest()[:16]


def config_family(config: ConnectionConfig) -> str:
    """The id of what makes carriers understood; producers know it too, so it needs a connection's settings only."""
    family: dict[str, Any] = {
        name: getattr(config, name)
        for name, setting in settings_of(ConnectionConfig).items()
        if setting.group == "family"
    }
    family["schema_version"] = TASK_SCHEMA_VERSION
    return _digest("cf1-", family)


def generations(config: SupervisorConfig) -> Generations:
    """The three ids of a configuration.

    ``cf1-``: what makes carriers understood (queue, group, dlq, schema, namespace). ``bg1-``: the budget a carrier is
    judged by. ``cfg1-``: all meaning; not what only tells one host from another or how it shows itself.
    """
    shown = _masked(config)
    groups = {name: setting.group for name, setting in settings_of(type(config)).items()}
    budget = {name: shown[name] for name, group in groups.items() if group == "budget"}
    meaning = {name: shown[name] for name, group in groups.items() if group != "appearance"}
    meaning["schema_version"] = TASK_SCHEMA_VERSION
    return Generations(config_family(config), _digest("cfg1-", meaning), _digest("bg1-", budget))


def effective(config: ConnectionConfig) -> dict[str, Any]:
    """Every setting with the value in force, passwords masked: for ``--check``, logs and the registry."""
    shown = _masked(config)
    if config.embedded is not None:
        shown["redis_url"] = None
    return shown


def _masked(config: ConnectionConfig) -> dict[str, Any]:
    """All values; of a secret only where it leads to, or that there is one."""
    values: dict[str, Any] = config.model_dump(mode="json")
    for name, setting in settings_of(type(config)).items():
        if setting.secret and values[name] is not None:
            values[name] = mask_url(config.redis_url) if name == "redis_url" else MASKED
    return values
