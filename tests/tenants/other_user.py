"""Supervisors whose executors run as another user, also where that user may not read the interpreter (DECISIONS 46)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

# Mounts of its own: a closed folder above the interpreter is covered by an open one that holds the interpreter only.
_OPENED = """
set -e
kept=$1 tree=$2 closed=$3
shift 3
mount --bind "$tree" "$kept"
mount -t tmpfs -o mode=755 none "$closed"
mkdir -p "$tree"
mount --bind "$kept" "$tree"
exec "$@"
"""


def through(folder: Path, *users: str) -> list[str]:
    """The command that a supervisor is to be started by, so that its executors can be these users; none where they can
    anyway. Skips where there is no way. ``folder`` is the test's own."""
    if os.getuid() != 0:
        pytest.skip("CANNOT BE TRIED HERE: only root can become another user")
    found = [None, _in_a_namespace(folder)]
    for prefix in found:
        if all(_can_be(prefix or [], user) for user in users):
            return prefix or []
    pytest.skip(f"CANNOT BE TRIED HERE: {users} cannot read {sys.base_prefix}, and no mounts can be made")


def _in_a_namespace(folder: Path) -> list[str]:
    tree = Path(sys.base_prefix).resolve()
    above = [path for path in reversed(tree.parents) if path.stat().st_mode & 0o005 != 0o005]
    closed = above[0] if above else tree
    kept = folder / "interpreter"
    kept.mkdir()
    command = ["unshare", "--mount", "--propagation", "private", "sh", "-c", _OPENED, "sh"]
    return [*command, str(kept), str(tree), str(closed)]


def _can_be(prefix: list[str], user: str) -> bool:
    script = f"import sys; sys.path[:0] = {sys.path!r}\n"
    script += f"from plaita.executor.identity import drop_to_user; drop_to_user({user!r})"
    tried = subprocess.run([*prefix, sys.executable, "-c", script], capture_output=True, text=True, check=False)
    return tried.returncode == 0
