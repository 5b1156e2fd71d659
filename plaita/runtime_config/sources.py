"""Where values come from: flags, environment, credentials, TOML file. Collects what was given by whom; judges no value.

Precedence is a rank; every fault is noted and the reading goes on, so that all are told together (ledger C1).
"""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plaita.runtime_config.settings import Setting

MAX_SECRET_BYTES = 64 * 1024
# By precedence; an alias is a variable of an old or a general name.
FILE, ALIAS, CREDENTIAL, ENVIRONMENT, FLAG = range(5)
CREDENTIAL_PREFIX = "plaita."


@dataclass(frozen=True, slots=True)
class Given:
    """A value as somebody wrote it, its ``source`` in words, its ``rank``."""

    value: Any
    source: str
    rank: int


class Collector:
    """Gathers what was given, by precedence, and every fault on the way."""

    def __init__(self) -> None:
        self.given: dict[str, Given] = {}
        self.faults: list[str] = []
        self.warnings: list[str] = []

    def offer(self, name: str, value: Any, source: str, rank: int) -> None:
        present = self.given.get(name)
        if present is None or rank > present.rank:
            self.given[name] = Given(value, source, rank)


def read_file(path: Path, known: Mapping[str, Setting], collect: Collector, wanted: frozenset[str]) -> None:
    try:
        text = path.read_bytes().decode("utf-8")
        table = tomllib.loads(text)
    except OSError as error:
        collect.faults.append(f"file {path}: it cannot be read ({error.strerror}); give a TOML file that can")
        return
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        collect.faults.append(f"file {path}: it is no TOML: {error}")
        return
    spellings = [*known, *(f"{name}_file" for name, setting in known.items() if setting.secret)]
    for key, value in table.items():
        base = key.removesuffix("_file") if key not in known and key.endswith("_file") else key
        setting = known.get(base)
        if setting is None or (base != key and not setting.secret):
            near = difflib.get_close_matches(key.replace("-", "_"), spellings, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else f"; known keys: {', '.join(spellings)}"
            collect.faults.append(f"file {path}, key {key!r}: there is no such setting{hint}")
        elif base in wanted:
            source = f"file {path}, key {key!r}"
            if base != key:
                if base in table:
                    collect.faults.append(f"{source}: {base!r} stands in the file too; give one of them")
                    continue
                value = _secret_from(value, source, collect)
                if value is None:
                    continue
            collect.offer(base, value, source, FILE)


def _secret_from(path: Any, source: str, collect: Collector) -> str | None:
    if not isinstance(path, str) or not path:
        collect.faults.append(f"{source}: {path!r} names no file; name a readable file")
        return None
    try:
        with open(path, "rb") as file:
            found = file.read(MAX_SECRET_BYTES + 1)
        if len(found) > MAX_SECRET_BYTES:
            raise ValueError(f"more than {MAX_SECRET_BYTES} bytes")
        return found.decode("utf-8").strip("\r\n")
    except UnicodeDecodeError:
        reason = "not UTF-8 text"  # its own words would show what is in there
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
    collect.faults.append(f"{source}: the file {path!r} cannot be read ({reason}); name a readable file")
    return None


def read_environment(settings: Mapping[str, Setting], environ: Mapping[str, str], collect: Collector) -> None:
    for name, setting in settings.items():
        for position, variable in enumerate(setting.environment):
            rank = ENVIRONMENT if variable.startswith("PLAITA_") and position == 0 else ALIAS
            source = f"environment {variable}"
            value: str | None = environ.get(variable)
            from_file = environ.get(f"{variable}_FILE") if setting.secret else None
            if value is not None and from_file is not None:
                collect.faults.append(f"{source}: {variable}_FILE is set too; give one of them")
            elif from_file is not None:
                source += "_FILE"
                value = _secret_from(from_file, source, collect)
            if value is None or (value == "" and setting.empty_is_unset):
                continue
            collect.offer(name, value, source, rank)


def read_credentials(settings: Mapping[str, Setting], environ: Mapping[str, str], collect: Collector) -> None:
    """Secrets that systemd handed over: ``plaita.<setting>`` in ``$CREDENTIALS_DIRECTORY``. One that is not there was
    not given: the units name all of them, and systemd leaves out what nobody has put down."""
    folder = environ.get("CREDENTIALS_DIRECTORY", "")
    if not folder:
        return
    for name, setting in settings.items():
        path = f"{folder}/{CREDENTIAL_PREFIX}{name}"
        if not setting.secret or not os.path.lexists(path):
            continue
        source = f"credential {CREDENTIAL_PREFIX}{name}"
        value = _secret_from(path, source, collect)
        if value == "":
            collect.faults.append(f"{source}: it is empty; right is {setting.right}")
        elif value is not None:
            collect.offer(name, value, source, CREDENTIAL)


def read_flags(settings: Mapping[str, Setting], flags: Mapping[str, Any], collect: Collector) -> None:
    unknown = sorted(set(flags) - set(settings))
    if unknown:
        raise TypeError(f"flags {unknown} are no settings: a mistake of the caller")
    for name, value in flags.items():
        if value is not None and not (name == "preload" and not value):
            collect.offer(name, value, f"flag {settings[name].flag or '--' + name.replace('_', '-')}", FLAG)


def settle_redis_or_embedded(collect: Collector) -> None:
    """Both say where the data is: the one of higher precedence wins, two of one precedence are a fault."""
    url, folder = collect.given.get("redis_url"), collect.given.get("embedded")
    if url is None or folder is None:
        return
    if url.rank == folder.rank:
        collect.faults.append(f"{folder.source} and {url.source} are both set; they exclude each other, give one")
    del collect.given["redis_url" if folder.rank >= url.rank else "embedded"]


def warn_of_misspelt_variables(environ: Mapping[str, str], known: set[str], collect: Collector) -> None:
    for variable in sorted(environ):
        if variable.startswith("PLAITA_") and variable not in known:
            near = difflib.get_close_matches(variable, known, n=1, cutoff=0.92)
            if near:
                collect.warnings.append(f"environment {variable}: not known and not read; did you mean {near[0]}?")
