"""One cell of the crash matrix in one world: a supervisor dies at a point, another brings its execution to the end.

What is tried stands in ``Cell`` and ``Case`` (the table of them is ``crash_matrix``'s); what must be true after it is
judged here.
"""

from __future__ import annotations

import collections
import os
import signal
import tempfile
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hosts import SupervisorProcess, World, until

from plaita.clock import iso_utc, wall_ms
from plaita.policy.carrier import resume_payload, routing_fields
from plaita.policy.dead_letter import read
from plaita.store import carriers
from plaita.store.keys import STATUSES
from plaita.supervisor.crash_points import VARIABLE, Point
from plaita.testing.server import raw

IN_STEP = "in the step"  # killed from outside while node code runs
DYING = (Point.RETAKE_SENT, Point.RETAKEN)
LEAVING = (Point.HAND_ON_SENT, Point.HANDED_ON)
EVENT = {"n": 1}


@dataclass(frozen=True)
class Case:
    """A kind of carrier and what comes of it.

    ``way``: the entries of node code in order, each a step of its own (``w.on_event``), after the step of the start
    node. ``at``: the entry that is under way at the crash. ``steps``: how many are committed in the end. ``lost``:
    whose run a crash at a point loses, so that it runs again. ``before``: the status to which a supervisor that nothing
    happens to brings the execution first. ``fails``: how many runs of ``at`` raise. ``earlier``: how often a supervisor
    comes to a point before the carrier that is meant is on its way. ``dead_letters``: what the DLQ holds in the end,
    ``kept`` the counters that are left then.
    """

    name: str
    points: tuple[Point | str, ...]
    status: str
    steps: int | None
    way: tuple[str, ...] = ("a", "b")
    at: str = "b"
    lost: Mapping[Point | str, str] = field(default_factory=dict, hash=False)
    before: str = ""
    fails: int = 0
    earlier: Mapping[Point | str, int] = field(default_factory=dict, hash=False)
    dead_letters: int = 0
    kept: tuple[str, ...] = ()
    max_deliveries: int = 3


@dataclass(frozen=True)
class Cell:
    """``peer``: who comes after, the ``same`` instance in its next life or an ``other`` one."""

    case: Case
    point: Point | str
    peer: str

    @property
    def name(self) -> str:
        return f"{self.case.name}, {self.point}, {self.peer}"


class Trial:
    """``run`` raises AssertionError with what is not right."""

    def __init__(self, world: World, cell: Cell) -> None:
        self.world = world
        self.cell = cell
        self.case = cell.case
        self.file = world.folder / "lines"
        self.file.touch()
        times = {"lease_ttl_seconds": 5, "claim_min_idle_ms": 300}
        if cell.peer == "same":
            times = {"lease_ttl_seconds": 600, "claim_min_idle_ms": 600_000}
        if self.case.name == "cancel":  # two carriers: the start, met while the cancel has the lease, has its min-idle
            times["claim_min_idle_ms"] = 300
        self.flags: dict[str, Any] = {
            **times,
            "preload": "crashing",
            "executors": 2 if self.case.name == "cancel" else 1,
            "max_deliveries": self.case.max_deliveries,
            "kill_grace": 0.5,
        }

    def run(self) -> None:
        execution = self._prepare()
        before = self.runs()
        crash = {}
        if isinstance(self.cell.point, Point):
            crash[VARIABLE] = f"{self.cell.point}:{self.case.earlier.get(self.cell.point, 0) + 1}"
        first = self.world.supervisor(environment=crash, **self.flags)
        self._deed(first, execution)
        self._await_death(first)
        at_crash, committed = self.runs(), self._committed(execution)
        second = self.world.supervisor(instance="one" if self.cell.peer == "same" else "two", **self.flags)
        second.wait_serving()
        if self.case.name == "published":
            self._await_status(execution, self.case.status)
        if self.case.name == "wait":
            self._await_status(execution, "suspended")
            self._wake(execution)
        self._await_end(execution)
        self._judge_runs(before, at_crash, committed)
        self._judge_redis(execution)
        assert second.stop() == 0, "the second supervisor did not stop clean"
        for word in ("dispatch.bug", "Traceback"):
            assert word not in second.text(), f"{word} in the log of the second supervisor"

    def runs(self) -> list[tuple[str, str, int]]:
        """(entry, attempt, pid) of each run of node code."""
        words = (line.split() for line in self.file.read_text().splitlines())
        return [(entry, attempt, int(pid)) for _, entry, attempt, pid in words]

    # -- what is there before ---------------------------------------------------------------------

    def _prepare(self) -> str:
        world, keys = self.world, self.world.keys
        if self.case.name == "malformed":
            world.do(carriers.enqueue(keys, "q", [("payload", b'{"type": "start"')]))
            return ""
        nodes = dict.fromkeys(entry.partition(".")[0] for entry in self.case.way)
        world.chain("f", *(self._node(node) for node in nodes))
        started = world.client.start("f", None)
        execution = started.execution_id
        if self.case.before:
            earlier = world.serving(instance="zero", **self.flags)
            if self.case.name == "retry of event":
                self._await_status(execution, "suspended")
                self._wake(execution)
            self._await_status(execution, self.case.before)
            assert earlier.stop() == 0
        match self.case.name:
            case "continue":
                world.do(raw("XDEL", keys.queue, started.message_id))
                world.do(carriers.enqueue(keys, "w", continue_carrier(execution)))
            case "cancel" | "cancel of a wait":
                world.client.cancel(execution)
            case "event" | "event fails":
                self._wake(execution)
            case "published":
                world.client.publish("go", EVENT, correlation_id=execution)
            case "timeout":
                [timer] = world.do(raw("ZRANGE", keys.delayed, 0, -1))
                world.do(raw("ZADD", keys.delayed, "XX", 0, timer))
            case "retry of error" | "retry of event":
                assert world.client.resume(execution, "retry")["resumed"]
        return execution

    def _node(self, node: str) -> dict[str, Any]:
        slow = 0.6 if self.cell.point in (IN_STEP, *DYING, *LEAVING) else 0.0
        if self.case.name == "cancel in step":
            slow = 30.0
        at, _, entry = self.case.at.partition(".")
        step = {"id": node, "file": str(self.file), "final": self.case.name.startswith("retry of")}
        step |= {"seconds": slow, "fails": self.case.fails} if node == at else {"fails": 99 if node == "c" else 0}
        if node != "w":
            return {**step, "type": "t_noted"}
        late = {"strategy": "continue-with", "defaultValue": "late"}
        return {**step, "type": "t_noted_wait", "slow": entry, "subscriptionTimeout": 3600, "timeoutHandler": late}

    def _wake(self, execution: str) -> None:
        assert self.world.client.resume(execution, "event", EVENT)["resumed"]

    # -- what happens meanwhile -----------------------------------------------------------------------

    def _deed(self, first: SupervisorProcess, execution: str) -> None:
        """What is done to the first supervisor while the entry runs, so that it comes to the point at all."""
        point = self.cell.point
        if self.case.name == "cancel in step":
            self._await_run(first)
            self.world.client.cancel(execution)
        elif point == IN_STEP:
            self._await_run(first)
            first.process.kill()
        elif point in DYING:
            os.kill(self._await_run(first), signal.SIGKILL)
        elif point in LEAVING:
            self._await_run(first)
            first.signal(signal.SIGTERM)

    def _await_run(self, first: SupervisorProcess) -> int:
        """The pid of the executor in the run that is meant."""

        def look() -> int:
            assert first.code is None, f"the first supervisor ended early, with {first.code}"
            pids = [pid for entry, _, pid in self.runs() if entry == self.case.at]
            return pids[self.case.fails] if len(pids) > self.case.fails else 0

        return until(look, f"the run of {self.case.at}")

    def _await_death(self, first: SupervisorProcess) -> None:
        until(lambda: first.code is not None, f"the crash at {self.cell.point}", 30)
        assert first.code == -signal.SIGKILL, f"the first supervisor ended with {first.code}"
        until(lambda: not first.tree(), "the end of all executors of the first supervisor", 10)

    def _committed(self, execution: str) -> tuple[str, ...]:
        steps = int(self.world.row(execution).control.get("step", 0)) if execution else 0
        return self.case.way[: max(0, steps - 1)]

    def _await_status(self, execution: str, status: str) -> None:
        until(lambda: self.world.get(execution)["status"] == status, f"status {status}")

    # -- what must be true after ------------------------------------------------------------------------

    def _await_end(self, execution: str) -> None:
        """Of an execution that nothing moves any more; one that is retried was in its end before."""

        def settled() -> bool:
            stats = self.world.stats()
            return all(s.length == s.pending == 0 for s in stats.streams) and stats.delayed == 0

        until(settled, "an empty queue", 40)
        if execution:
            row = self.world.get(execution)
            assert row["status"] == self.case.status, f"{row['status']} instead of {self.case.status}: {row['error']}"
            if row["status"] == "completed" and "w.execute" in self.case.way:
                result = row["output"]["w"]
                assert result == "late" if self.case.name == "timeout" else result["event_data"] == EVENT, result

    def _judge_runs(
        self, before: list[tuple[str, str, int]], at_crash: list[tuple[str, str, int]], committed: tuple[str, ...]
    ) -> None:
        after = self.runs()
        for entry in committed:
            count = [sum(run[0] == entry for run in runs) for runs in (at_crash, after)]
            assert count[0] == count[1], f"{entry} ran {count[1] - count[0]} times after its commit"
        attempts = collections.Counter((entry, attempt) for entry, attempt, _ in after[len(before) :])
        assert not attempts or max(attempts.values()) == 1, f"two runs with one attempt number: {attempts}"
        counts = collections.Counter(entry for entry, _, _ in after)
        right = {entry: self._right_counts(entry) for entry in self.case.way if self.case.steps is not None}
        assert counts.keys() == right.keys(), f"ran: {counts}"
        for entry, allowed in right.items():
            assert counts[entry] in allowed, f"{entry} ran {counts[entry]} times instead of {allowed}"

    def _right_counts(self, entry: str) -> tuple[int, ...]:
        once = min(self.case.fails + 1, self.case.max_deliveries) if entry == self.case.at else 1
        if self.case.lost.get(self.cell.point) != entry:
            return (once,)
        # The process may have died before its node wrote its line; the carrier may have come to run by then.
        if self.cell.point in (Point.STEP_SENT, Point.EVENT_DONE_SENT):
            return (once, once + 1)
        return (once + 1,)

    def _judge_redis(self, execution: str) -> None:
        world, keys = self.world, self.world.keys
        letters = world.do(raw("XRANGE", keys.dead_letters, "-", "+"))
        assert len(letters) == self.case.dead_letters, (
            f"{len(letters)} dead letters instead of {self.case.dead_letters}"
        )
        for _, flat in letters:
            letter = read(dict(zip(flat[::2], flat[1::2], strict=True)))
            assert (letter["execution_id"] or "") == execution, f"a dead letter of something else: {letter}"
        for status in (None, *STATUSES):
            members = [member.decode() for member in world.do(raw("ZRANGE", keys.index(status), 0, -1))]
            right = [execution] if execution and status in (None, self.case.status) else []
            assert members == right, f"index {status or 'of all'}: {members}"
        left = leftovers(world)
        assert left == [keys.of_execution(word, execution) for word in self.case.kept], f"left behind: {left}"
        for key in left:  # a wake-up, or a failure, is counted once however often it was tried
            value = world.do(raw("GET", key))
            assert value == b"1" or "noderefetch" in key, f"{key} is {value}"
        if execution:
            row = world.row(execution)
            assert row.lease is None, f"a lease is left: {row.lease}"
            steps = row.control.get("step")
            assert steps == (None if self.case.steps is None else str(self.case.steps)), f"step {steps} in the row"
            waits = {
                name: value
                for name, value in row.control.items()
                if name.startswith(("wait", "wake", "woken")) and name != "woken_by" and value
            }
            assert not waits, f"a wait is left in the row: {waits}"


def leftovers(world: World) -> list[str]:
    """Keys that nothing needs once every execution is over, timers among them; but for counters that an ``error``
    keeps for a later retry."""
    words = {"lease", "cancel", "noderetry", "noderefetch", "nofail", "g1wakeups", "affinityhandover", "delayed"}
    keys = (key.decode() for key in world.do(raw("KEYS", f"{world.keys.prefix}*")))
    return sorted(key for key in keys if words & set(key.split(":")))


def continue_carrier(execution: str) -> list[tuple[str, bytes | str]]:
    """The fields of an entry that moves ``execution`` on."""
    payload = resume_payload(
        execution_id=execution,
        flow_id="f",
        resume_type="continue",
        tenant_id="default",
        timestamp=iso_utc(wall_ms()) or "",
    )
    fields = routing_fields(execution_id=execution, tenant_id="default", flow_id="f")
    return [("payload", payload), *fields.items()]


def try_cell(url: str, cell: Cell) -> str:
    """Empty when all is right, else what is not, and the logs."""
    # Not a long folder name: a socket path has 107 bytes at most.
    with tempfile.TemporaryDirectory(prefix="plaita-") as folder:
        world = World(url, Path(folder))
        try:
            Trial(world, cell).run()
            return ""
        except Exception as error:
            logs = "".join(
                f"--- {path.name}\n{path.read_text()[-4000:]}" for path in sorted(world.folder.glob("*.log"))
            )
            place = traceback.extract_tb(error.__traceback__)[-1]
            return f"{error or type(error).__name__} ({place.name}:{place.lineno})\n{logs}"
        finally:
            world.close()
