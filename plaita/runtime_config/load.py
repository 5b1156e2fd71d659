"""The door: reads every source once and answers with a whole configuration, or with every fault at once (ledger C1)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from plaita.errors import ConfigError, InputError
from plaita.runtime_config.host import default_socket, host_faults
from plaita.runtime_config.judging import Config, build, prepare
from plaita.runtime_config.settings import (
    ClientConfig,
    CredentialConfig,
    RetentionConfig,
    SupervisorConfig,
    TenantConfig,
    every_setting,
    settings_of,
)
from plaita.runtime_config.sources import (
    Collector,
    read_credentials,
    read_environment,
    read_file,
    read_flags,
    settle_redis_or_embedded,
    warn_of_misspelt_variables,
)

DEFAULT_CONFIG_FILE = Path("/etc/plaita/plaita.toml")
_ROLES: dict[str, type[SupervisorConfig]] = {"worker": SupervisorConfig, "supervisor": SupervisorConfig}


def load_runtime_config(
    role: str,
    *,
    flags: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] | None = None,
    file: str | os.PathLike[str] | None = None,
) -> SupervisorConfig:
    """The configuration of a ``"worker"`` (also called ``"supervisor"``), judged whole (C1).

    ``flags``: field name -> value, None = not given. ``file``: the TOML file of ``--config``; else ``PLAITA_CONFIG``,
    else ``/etc/plaita/plaita.toml`` where present. Raises ConfigError with every fault found, each naming source, value
    and what would be right.
    """
    model = _ROLES.get(role)
    if model is None or not issubclass(model, SupervisorConfig):
        raise InputError(f"role: {role!r} has no such configuration; known are worker and supervisor")
    return _load(model, flags or {}, os.environ if environ is None else environ, file)


def load_client_config(
    *,
    flags: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] | None = None,
    file: str | os.PathLike[str] | None = None,
) -> ClientConfig:
    """What a command or a library client needs to find plaita's data. Same sources and same errors."""
    return _load(ClientConfig, flags or {}, os.environ if environ is None else environ, file)


def load_retention_config(
    *,
    flags: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] | None = None,
    file: str | os.PathLike[str] | None = None,
) -> RetentionConfig:
    """What a command needs besides that deletes, ends or replays executions (ledger D2, D3, D7)."""
    return _load(RetentionConfig, flags or {}, os.environ if environ is None else environ, file)


def load_tenant_config(
    *,
    flags: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] | None = None,
    file: str | os.PathLike[str] | None = None,
) -> TenantConfig:
    """What a command needs besides that says something of tenants, or deletes one (ledger T2, T4)."""
    return _load(TenantConfig, flags or {}, os.environ if environ is None else environ, file)


def load_credential_config(
    *,
    flags: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] | None = None,
    file: str | os.PathLike[str] | None = None,
) -> CredentialConfig:
    """What a program needs that keeps credentials (ledger T1)."""
    return _load(CredentialConfig, flags or {}, os.environ if environ is None else environ, file)


def _load(
    model: type[Config],
    flags: Mapping[str, Any],
    environ: Mapping[str, str],
    file: str | os.PathLike[str] | None,
) -> Config:
    settings, every = settings_of(model), every_setting()
    collect = Collector()
    named = file if file is not None else environ.get("PLAITA_CONFIG") or None
    path = Path(named) if named is not None else DEFAULT_CONFIG_FILE
    if named is not None or path.exists():
        read_file(path, every, collect, frozenset(settings))
    read_credentials(settings, environ, collect)
    read_environment(settings, environ, collect)
    read_flags(settings, flags, collect)
    settle_redis_or_embedded(collect)
    known = {"PLAITA_CONFIG"}
    for setting in every.values():
        known.update(setting.environment)
        known.update(f"{variable}_FILE" for variable in setting.environment if setting.secret)
    warn_of_misspelt_variables(environ, known, collect)
    values = prepare(settings, collect)
    if issubclass(model, SupervisorConfig):
        values.setdefault("socket", default_socket(environ))
        _warn_of_weakened_promises(values, environ, collect)
    config = build(model, values, settings, collect)
    sources = {name: given.source for name, given in collect.given.items() if name in values}
    if config is not None:
        collect.faults.extend(host_faults(config, sources))
    if collect.faults or config is None:
        raise ConfigError(collect.faults)
    return config.model_copy(update={"warnings": tuple(collect.warnings), "sources": sources})


def _warn_of_weakened_promises(values: Mapping[str, Any], environ: Mapping[str, str], collect: Collector) -> None:
    for name in ("disable_lease_watchdog", "disable_holder_liveness"):
        if values.get(name):
            collect.warnings.append(f"environment PLAITA_{name.upper()}: on; this weakens what plaita promises")
    if values.get("tenant_status_epoch_strict") is False:
        collect.warnings.append(
            "tenant_status_epoch_strict: off; statuses of tenants are taken whichever deployment wrote them (ledger T2)"
        )
    for variable in ("PLAITA_PERSIST_EVERY_N_STEPS", "PERSIST_EVERY_N_STEPS"):
        if environ.get(variable, "1").strip() != "1":
            collect.warnings.append(
                f"environment {variable}: {environ[variable]!r} means 1 here; every step is saved (DECISIONS 21)"
            )
    if str(values.get("task_max_age_seconds", "")) == "0":
        collect.warnings.append("task_max_age_seconds: 0 switches the age limit of carriers off (ledger D3)")
