"""One execution under a supervisor that is frozen past its lease, and another that takes it over meanwhile."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hosts import SupervisorProcess, World, until

from plaita.store.call import script
from plaita.testing.proxy import Proxy, Rule
from plaita.testing.server import raw

TTL_S = 5
FLAGS = {"lease_ttl_seconds": TTL_S, "claim_min_idle_ms": 300, "preload": "crashing", "executors": 1}
COUNTERS = ("noderetry", "noderefetch", "g1wakeups", "nofail", "cancel")


class Freeze:
    """An execution of a flow with one node under supervisor ``one``, which is in ``entry`` (``node`` or
    ``node.method``) of it for the first time, attempt 1. ``brought``: what to do until it comes there."""

    def __init__(
        self,
        world: World,
        node: dict[str, Any],
        *,
        entry: str = "",
        brought: Callable[[Freeze], None] = lambda freeze: None,
        **flags: Any,
    ) -> None:
        self.world = world
        self.file = world.folder / "lines"
        self.gate = world.folder / "gate"
        self.node_id: str = node["id"]
        self.entry = entry or self.node_id
        world.chain("f", {**node, "file": str(self.file), "gate": str(self.gate)})
        self.one = world.serving(**FLAGS, **flags)
        self.execution = world.start("f")
        brought(self)
        self.executor: int = self.one.busy(self.node_id)["pid"]
        until(lambda: len(self.attempts()) == 1, "attempt 1")

    def attempts(self, entry: str = "") -> list[str]:
        """The attempt of each run of ``entry``, of the one that is meant without it."""
        lines = self.file.read_text().splitlines() if self.file.exists() else []
        return [line.split()[2] for line in lines if line.split()[1] == (entry or self.entry)]

    def open(self, attempt: int) -> None:
        Path(f"{self.gate}.{attempt}").touch()

    def passed(self, attempt: int) -> None:
        until(Path(f"{self.gate}.{attempt}.passed").exists, f"the end of attempt {attempt}")

    def status(self, status: str) -> None:
        until(lambda: self.world.get(self.execution)["status"] == status, f"status {status}")

    def late_write(self, proxy: Proxy, call: str) -> Rule:
        """``one`` writes its ``call`` once, and stands still as that is on its way. Then lead the other one, and
        ``arrives``."""
        self.world.do(raw("SCRIPT", "LOAD", script(call).text))  # else the first try tells that it is not known
        late = proxy.add(Rule(call, "freeze"))
        self.open(1)
        until(lambda: late.done, "its write is on the way")
        self.one.signal(signal.SIGSTOP)
        return late

    def arrives(self, proxy: Proxy, late: Rule) -> None:
        """The write comes, far too late, and is refused; then ``one`` goes on."""
        proxy.set_mode("forward")
        until(lambda: late.answered, "its write has come")
        assert b"refused" in late.reply, late.reply
        self.thaw()

    def lease(self) -> bytes | None:
        return self.world.do(raw("GET", self.world.keys.lease(self.execution)))  # type: ignore[no-any-return]

    def ttl(self) -> int:
        return self.world.do(raw("PTTL", self.world.keys.lease(self.execution)))  # type: ignore[no-any-return]

    def lease_over(self) -> None:
        until(lambda: self.lease() is None, "the end of the lease")

    def second(self) -> SupervisorProcess:
        """Another instance, which takes the execution up in attempt 2."""
        two = self.world.serving(instance="two", **FLAGS)
        until(lambda: self.attempts() == ["1", "2"], "attempt 2")
        return two

    def thaw(self) -> dict[str, Any]:
        """SIGCONT; the counters of ``one`` once it has let go."""
        self.one.signal(signal.SIGCONT)
        return dict(self.one.wait_status(lambda s: states(s) == ["idle"], "one lets go")["counters"])

    def state(self) -> dict[str, Any]:
        """All that Redis holds of the execution, times to live aside."""
        return state(self.world, self.execution)

    def judge_end(self) -> None:
        row = self.world.wait(self.execution)
        assert row["status"] == "completed"
        assert row["output"]["a"] == 2
        assert self.world.node(self.execution, "a")["attempts"] == 2
        assert self.attempts() == ["1", "2"]
        assert self.world.stats().dlq_length == 0


def state(world: World, execution: str) -> dict[str, Any]:
    """All that Redis holds of an execution and in the streams, times to live aside."""
    keys = world.keys
    counters = [keys.of_execution(word, execution) for word in COUNTERS]
    retried = [key.decode() for key in world.do(raw("KEYS", f"{keys.noderetry(execution, None)}*"))]
    return {
        "row": world.do(raw("HGETALL", keys.row(execution))),
        "marks": [world.do(raw("GET", keys.of_execution(word, execution))) for word in ("lease", "fence", "fencegen")],
        "counters": [world.do(raw("GET", key)) for key in sorted({*counters, *retried})],
        "delayed": [
            world.do(raw("ZRANGE", keys.delayed, 0, -1, "WITHSCORES")),
            world.do(raw("HGETALL", keys.delayed_body)),
        ],
        "streams": [world.do(raw("XRANGE", stream, "-", "+")) for stream in (keys.queue, keys.wake, keys.dead_letters)],
    }


def states(status: dict[str, Any]) -> list[str]:
    """What its executors do."""
    return [row["state"] for row in status["executors"]]
