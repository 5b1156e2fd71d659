"""Which repository a task works on, and whether this host takes it (ledger G4, G6). Pure.

A start names it in its input: ``repo``, or ``run_dir``, which lies below the repository. Our own starts say it beside
the body too, since their input stands in the row; so do all copies. Hosts deny repositories by their last name; one
that is named by an absolute path belongs to the hosts that have this path.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

FIELD = "repo"  # of the carrier's entry
MAX_LENGTH = 4096  # no path is longer
RUN_FOLDER = ".flowcast"


def repo_of_input(given: Any) -> str | None:
    """The repository that an input names; None where it names none."""
    if not isinstance(given, Mapping):
        return None
    for name, root in (("repo", str), ("run_dir", root_of_run)):
        value = given.get(name)
        if isinstance(value, str) and value.strip() and len(value) <= MAX_LENGTH:
            return root(value.strip())
    return None


def root_of_run(run_dir: str) -> str:
    """The folder above ``.flowcast``; a path without one is taken as it is."""
    parts = run_dir.split("/")
    return "/".join(parts[: parts.index(RUN_FOLDER)]) if RUN_FOLDER in parts else run_dir


def repo_of(fields: Mapping[bytes, bytes], payload: Mapping[str, Any]) -> str | None:
    """The repository of a carrier, by its entry field, else by the input of a start."""
    said = fields.get(FIELD.encode())
    if said is not None:
        return said.decode("utf-8", "replace") or None
    return repo_of_input(payload.get("params")) if payload.get("type") == "start" else None


def path_of(repo: str | None) -> str | None:
    """The path that a host must have, None where the repository is named in another way."""
    return repo if repo is not None and repo.startswith("/") and "\0" not in repo else None


def last_name(repo: str) -> str:
    """``/srv/work/app/`` and ``app`` are ``app``."""
    return repo.rstrip("/").rpartition("/")[2]


def is_denied(repo: str | None, denied: Collection[str]) -> bool:
    """``denied``: last names."""
    return repo is not None and last_name(repo) in denied
