"""A unit file as its lines say it, with the specifiers that plaita's units use. Reads only."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "systemd"
PLAIN = FOLDER / "plaita-supervisor.service"
INSTANCED = FOLDER / "plaita-supervisor@.service"
DROP_INS = sorted((FOLDER / "drop-ins").glob("*.conf"))


class Unit:
    """``[section]`` and ``Name=value`` lines in order; a name may stand several times. ``drop_ins`` come after it."""

    def __init__(self, path: Path, *drop_ins: Path, instance: str = "") -> None:
        self.instance = instance
        self.lines: list[tuple[str, str, str]] = []  # section, name, value
        for source in (path, *drop_ins):
            section = ""
            for line in source.read_text("utf-8").splitlines():
                if line.startswith("["):
                    section = line.strip("[]")
                elif line and not line.startswith("#"):
                    name, equals, value = line.partition("=")
                    assert equals, f"{source.name}: {line!r} is no line of a unit"
                    self.lines.append((section, name, value))

    def all(self, name: str) -> list[str]:
        """Every value of ``name``, specifiers as they stand."""
        return [value for _, found, value in self.lines if found == name]

    def one(self, name: str) -> str:
        """The last value of ``name``, which is the one that counts where systemd takes one."""
        return self.all(name)[-1]

    def seconds(self, name: str) -> int:
        return int(self.one(name))

    def expand(self, text: str, host: str, credentials: str) -> str:
        """What systemd makes of %-specifiers."""
        known = {"%i": self.instance, "%H": host, "%d": credentials, "%%": "%"}
        return re.sub("%.", lambda found: known[found[0]], text)


def read_environment_file(path: Path) -> dict[str, str]:
    """The ``NAME=value`` lines of an EnvironmentFile; none where it is missing."""
    if not path.exists():
        return {}
    lines = [line for line in path.read_text("utf-8").splitlines() if line and not line.startswith("#")]
    return dict(line.split("=", 1) for line in lines)
