"""A small file system of a test's own, in a mount namespace of its own: filled, freed, made read-only; gone at the end
whatever happens, since nothing else of the machine sees it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest


class SmallDisk:
    """``path``: where it stands for processes started ``through`` it; ``outside``: the same folder for the test."""

    def __init__(self, path: Path, options: str) -> None:
        self.path = path
        path.mkdir(exist_ok=True)
        if os.geteuid() != 0:
            pytest.skip("SKIPPED LOUDLY: only root can mount a small disk here (needs CAP_SYS_ADMIN)")
        script = f"mount -t tmpfs -o {options} none '{path}' && echo ready && exec cat"
        self._holder = subprocess.Popen(
            ["unshare", "--mount", "--propagation", "private", "sh", "-c", script],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert self._holder.stdout is not None
        if self._holder.stdout.readline() != b"ready\n":
            assert self._holder.stderr is not None
            why = self._holder.stderr.read().decode("utf-8", "replace").strip()
            self.close()
            pytest.skip(f"SKIPPED LOUDLY: no small disk can be mounted here: {why}")
        self.outside = Path(f"/proc/{self._holder.pid}/root{path}")
        self.through = ["nsenter", "--mount", f"--target={self._holder.pid}", f"--wdns={Path.cwd()}"]

    def fill(self, left: int = 0) -> None:
        """Until ``left`` bytes are free, in one step from whatever it was."""
        found = os.statvfs(self.outside)
        with open(self.outside / "ballast", "ab") as file:
            size = os.fstat(file.fileno()).st_size
            wanted = size + found.f_bavail * found.f_frsize - left
            if wanted > size:
                os.posix_fallocate(file.fileno(), 0, wanted)
            else:
                os.ftruncate(file.fileno(), wanted)

    def free(self) -> None:
        """What ``fill`` took is there again."""
        (self.outside / "ballast").unlink()

    def run(self, *command: str) -> None:
        """A command in there, such as a remount."""
        subprocess.run([*self.through, *command], check=True, timeout=60)

    def close(self) -> None:
        self._holder.kill()
        self._holder.communicate()
