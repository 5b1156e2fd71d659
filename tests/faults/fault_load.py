"""Work through which a fault falls, and what must be true after it: the same as without.

Executions of a few steps that each append a line to a file. A line too many is a step that ran again, a line too few
one that never did.
"""

from __future__ import annotations

import collections
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hosts import SupervisorProcess, World, until

from plaita.store.call import Value
from plaita.testing.server import Server, raw

FOLDER = Path(__file__).parent
NODE_FOLDERS = f"{FOLDER / 'fault_nodes'}:{FOLDER.parent / 'supervisor' / 'nodes'}"
Serve = Callable[..., SupervisorProcess]
STEPS = ("a", "b", "c")
QUIET = ("dead_lettered", "poison_acked", "failed", "executor_deaths", "refused_writes", "leases_lost", "step_failures")


class Load:
    """Starts executions and judges their end. ``server`` is asked directly, not through what is broken."""

    def __init__(self, world: World, server: Server, *, seconds: float = 0.0, flow: str = "f") -> None:
        self.world = world
        self.server = server
        self.file = world.folder / "lines"
        self.file.touch()
        self.executions: list[str] = []
        step = {"type": "t_line", "file": str(self.file), "seconds": seconds}
        self.flow = world.chain(flow, *({**step, "id": name} for name in STEPS))

    def start(self, count: int) -> None:
        until(lambda: isinstance(self.world.client._runner.run(raw("PING")), Value), "a connection of the client's own")
        self.executions += [self.world.start(self.flow) for _ in range(count)]

    def lines(self) -> collections.Counter[tuple[str, str]]:
        """How often each (execution, node) ran."""
        words = (line.split() for line in Path(self.file).read_text().splitlines())
        return collections.Counter((execution, node) for execution, node, *_ in words)

    def wait_lines(self, count: int) -> None:
        until(lambda: sum(self.lines().values()) >= count, f"{count} steps that began")

    def wait(self, seconds: float = 60.0) -> None:
        """Every execution completed, every step once."""
        for execution in self.executions:
            row = self.world.wait(execution, seconds)
            assert row["status"] == "completed", row
        expected = {(execution, node): 1 for execution in self.executions for node in STEPS}
        assert self.lines() == expected

    def clean(self) -> None:
        """Nothing is left of the executions but their rows and what belongs to those."""
        world = self.world
        until(lambda: isinstance(world.runner.run(raw("PING")), Value), "a connection of the test's own")

        def settled() -> bool:
            stats = world.stats()
            return all(stream.length == 0 and stream.pending == 0 for stream in stats.streams) and stats.delayed == 0

        until(settled, f"an empty queue: {world.stats()}", 10)
        assert world.stats().dlq_length == 0
        assert residue(world) == []


def residue(world: World) -> list[str]:
    """Keys that must not be there once every execution is over: leases, flags, counters, delayed bodies."""
    keys = [key.decode() for key in world.do(raw("KEYS", f"{world.keys.prefix}*"))]
    words = ("lease", "cancel", "nofail", "noderetry", "noderefetch", "g1wakeups", "delayed")
    return sorted(key for key in keys if any(word in key.split(":") for word in words))


def judge(
    supervisor: SupervisorProcess, pid: int, *, lines: int = 60, quiet: tuple[str, ...] = QUIET
) -> dict[str, Any]:
    """After the fault: serving under the same pid, nothing counted that must not happen, no flood in the log."""
    status = supervisor.wait_status(lambda s: s["serving"], "serving again")
    assert status["pid"] == pid == supervisor.pid
    counters = status["counters"]
    assert {name: counters[name] for name in quiet} == dict.fromkeys(quiet, 0), supervisor.text()[-3000:]
    noise = [line for line in supervisor.text().splitlines() if "execution.finished" not in line]
    assert len(noise) < lines, "\n".join(noise[-40:])
    assert "Traceback" not in supervisor.text()
    return status


@contextmanager
def bounded(server: Server, per_second: int) -> Iterator[None]:
    """Not more commands a second than this while it lasts (those of the test's own eyes included)."""
    before, begun = commands(server), time.monotonic()
    yield
    seconds = max(1.0, time.monotonic() - begun)
    assert (commands(server) - before) / seconds < per_second, "a hot loop"


def commands(server: Server) -> int:
    info = server.do("INFO", "stats").decode()
    return int(next(line for line in info.splitlines() if line.startswith("total_commands_processed")).split(":")[1])
