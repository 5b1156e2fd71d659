"""How often the kernel's OOM killer has struck here: it tells a step that was killed for memory from one that a person
killed (trouble 55). Reads only; a kernel that does not count says never.
"""

from __future__ import annotations

from collections.abc import Iterable

CGROUPS = "/sys/fs/cgroup"


class OomKills:
    """The count of this process's own control group where there is one, else that of the machine. The first of
    ``places`` that counts is used."""

    def __init__(self, places: Iterable[str] | None = None) -> None:
        self._path = ""
        self._seen = 0
        for path in counters() if places is None else places:
            count = _count(path)
            if count is not None:
                self._path, self._seen = path, count
                break

    def grew(self) -> bool:
        """Whether it has struck since this was last asked, or since the beginning."""
        count = _count(self._path)
        if count is None:
            return False
        grown, self._seen = count > self._seen, count
        return grown


def counters(groups: str = "/proc/self/cgroup", root: str = CGROUPS) -> list[str]:
    """Files with a line ``oom_kill N`` for this process, the closest first; not all of them need be there."""
    found = []
    try:
        with open(groups, encoding="utf-8", errors="replace") as file:
            lines = file.read().splitlines()
    except OSError:
        lines = []
    for line in lines:
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if not controllers:  # version 2: killed in this group, by whatever limit, the machine's own too
            found.append(f"{root}{path.rstrip('/')}/memory.events")
        elif "memory" in controllers.split(","):
            found.append(f"{root}/memory{path.rstrip('/')}/memory.oom_control")
    return [*found, "/proc/vmstat"]


def _count(path: str) -> int | None:
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            for line in file:
                name, _, value = line.partition(" ")
                if name == "oom_kill":
                    return int(value)
    except (OSError, ValueError):
        return None
    return None
