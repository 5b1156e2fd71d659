"""The crash matrix: a supervisor is SIGKILLed at a named point of a task's way, another brings everything to its end.

One cell is a kind of carrier, a point, and who comes after: the same instance in its next life (lease and min-idle are
ten minutes then, so only the takeover of its own can help), or another instance, which has to wait for the lease. Run
as a program it tries all cells, four worlds at once, prints them as a table, and exits with 1 if one is not right.
"""

from __future__ import annotations

import collections
import os
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "supervisor"))

from hosts import SupervisorProcess, World, until

from plaita.clock import iso_utc, wall_ms
from plaita.policy.carrier import resume_payload, routing_fields
from plaita.policy.dead_letter import read
from plaita.store import carriers
from plaita.store.keys import STATUSES
from plaita.supervisor.crash_points import VARIABLE, Point
from plaita.testing.server import Server, raw

AT_ONCE = 4
IN_STEP = "in the step"  # killed from outside while node code runs
PEERS = ("same", "other")

BEGINNING = (Point.TAKEN, Point.BEGIN_SENT, Point.BEGUN)
STEPPING = (Point.STEP_SENT, IN_STEP, Point.STEP_ANSWERED, Point.COMMIT_SENT, Point.COMMITTED)
DYING = (Point.RETAKE_SENT, Point.RETAKEN)
LEAVING = (Point.HAND_ON_SENT, Point.HANDED_ON)
ENDING = (Point.FINISH_READY, Point.FINISH_SENT, Point.FINISHED)
WHOLE_WAY = (*BEGINNING, *STEPPING, *DYING, *LEAVING, *ENDING)

# What is in flight at these points runs again: nothing of it is in Redis.
IN_FLIGHT = {Point.STEP_SENT, IN_STEP, Point.STEP_ANSWERED, *DYING}


@dataclass(frozen=True)
class Case:
    """A kind of carrier. ``fails``: how many runs of node b raise. ``earlier``: how often a supervisor comes to a point
    before the carrier that is meant is on its way. ``dead_letters``: what the DLQ holds in the end."""

    name: str
    points: tuple[Point | str, ...]
    status: str
    fails: int = 0
    earlier: dict[Point | str, int] = field(default_factory=dict, hash=False)
    dead_letters: int = 0
    max_deliveries: int = 3


# start -> a -> b -> end; the crash is at b, so that something was committed before.
_AT_B = dict.fromkeys(STEPPING, 2)
_AT_B_AGAIN = dict.fromkeys(BEGINNING, 1) | _AT_B | {Point.STEP_SENT: 3, Point.STEP_ANSWERED: 3}

CASES = {
    case.name: case
    for case in (
        Case("start", WHOLE_WAY, "completed", earlier=_AT_B),
        Case("continue", WHOLE_WAY, "completed", earlier=_AT_B),
        Case(
            "retry",
            (Point.FAILURE_COUNTED, Point.POSTPONE_SENT, Point.POSTPONED, Point.PROMOTED, *WHOLE_WAY),
            "completed",
            fails=1,
            earlier=_AT_B_AGAIN,
        ),
        Case("cancel", (*BEGINNING, *ENDING), "cancelled"),
        Case("cancel in step", (Point.STEP_ANSWERED, *ENDING), "cancelled", earlier=_AT_B),
        Case(
            "always fails",
            (Point.FAILURE_COUNTED, *ENDING),
            "error",
            fails=99,
            earlier={Point.FAILURE_COUNTED: 1},
            dead_letters=1,
            max_deliveries=2,
        ),
        Case(
            "malformed",
            (Point.TAKEN, Point.DEAD_LETTER_SENT, Point.DEAD_LETTERED),
            "",
            dead_letters=1,
        ),
    )
}


@dataclass(frozen=True)
class Cell:
    case: Case
    point: Point | str
    peer: str

    @property
    def name(self) -> str:
        return f"{self.case.name}, {self.point}, {self.peer}"


def all_cells() -> list[Cell]:
    return [Cell(case, point, peer) for peer in PEERS for case in CASES.values() for point in case.points]


def one_cell_a_point() -> list[Cell]:
    """Each point once, the kinds of carriers in turn: the small matrix of every test run."""
    chosen: dict[Point | str, Cell] = {}
    used: collections.Counter[str] = collections.Counter()
    for point in dict.fromkeys(point for case in CASES.values() for point in case.points):
        case = min((case for case in CASES.values() if point in case.points), key=lambda case: used[case.name])
        used[case.name] += 1
        chosen[point] = Cell(case, point, PEERS[0] if len(chosen) % 4 else PEERS[1])
    return list(chosen.values())


# -- one cell ---------------------------------------------------------------------------------------------


class Trial:
    """One cell in one world. ``run`` raises AssertionError with what is not right."""

    def __init__(self, world: World, cell: Cell) -> None:
        self.world = world
        self.cell = cell
        self.case = cell.case
        self.file = world.folder / "lines"
        self.file.touch()

    def run(self) -> None:
        execution = self._prepare()
        times = {"lease_ttl_seconds": 5, "claim_min_idle_ms": 300}
        if self.cell.peer == "same":
            times = {"lease_ttl_seconds": 600, "claim_min_idle_ms": 600_000}
        if self.case.name == "cancel":  # two carriers: the start, met while the cancel has the lease, has its min-idle
            times["claim_min_idle_ms"] = 300
        flags = {
            **times,
            "preload": "crashing",
            "executors": 2 if self.case.name == "cancel" else 1,
            "max_deliveries": self.case.max_deliveries,
            "kill_grace": 0.5,
        }
        crash = {}
        if isinstance(self.cell.point, Point):
            crash[VARIABLE] = f"{self.cell.point}:{self.case.earlier.get(self.cell.point, 0) + 1}"
        first = self.world.supervisor(environment=crash, **flags)
        self._deed(first, execution)
        self._await_death(first)
        runs, committed = self.runs(), self._committed(execution)
        second = self.world.supervisor(instance="one" if self.cell.peer == "same" else "two", **flags)
        second.wait_serving()
        self._await_end(execution, second)
        self._judge_runs(execution, runs, committed)
        self._judge_redis(execution)
        assert second.stop() == 0, "the second supervisor did not stop clean"
        for word in ("dispatch.bug", "Traceback"):
            assert word not in second.text(), f"{word} in the log of the second supervisor"

    def runs(self) -> list[tuple[str, str, int]]:
        """(node, attempt, pid) of each run of node code."""
        words = (line.split() for line in self.file.read_text().splitlines())
        return [(node, attempt, int(pid)) for _, node, attempt, pid in words]

    # -- what is there before ---------------------------------------------------------------------

    def _prepare(self) -> str:
        world, keys = self.world, self.world.keys
        if self.case.name == "malformed":
            world.do(carriers.enqueue(keys, "q", [("payload", b'{"type": "start"')]))
            return ""
        slow = 0.6 if self.cell.point in (IN_STEP, *DYING, *LEAVING) else 0.0
        if self.case.name == "cancel in step":
            slow = 30.0
        step = {"type": "t_noted", "file": str(self.file)}
        world.chain("f", {**step, "id": "a"}, {**step, "id": "b", "seconds": slow, "fails": self.case.fails})
        started = world.client.start("f", None)
        execution = started.execution_id
        if self.case.name == "continue":
            world.do(raw("XDEL", keys.queue, started.message_id))
            world.do(carriers.enqueue(keys, "w", continue_carrier(execution)))
        if self.case.name == "cancel":
            world.client.cancel(execution)
        return execution

    # -- what happens meanwhile -----------------------------------------------------------------------

    def _deed(self, first: SupervisorProcess, execution: str) -> None:
        """What is done to the first supervisor while node b runs, so that it comes to the point at all."""
        point = self.cell.point
        if self.case.name == "cancel in step":
            self._await_run_of_b(first)
            self.world.client.cancel(execution)
        elif point == IN_STEP:
            self._await_run_of_b(first)
            first.process.kill()
        elif point in DYING:
            os.kill(self._await_run_of_b(first), signal.SIGKILL)
        elif point in LEAVING:
            self._await_run_of_b(first)
            first.signal(signal.SIGTERM)

    def _await_run_of_b(self, first: SupervisorProcess) -> int:
        """The pid of the executor in the run of b that is meant."""

        def look() -> int:
            assert first.code is None, f"the first supervisor ended early, with {first.code}"
            pids = [pid for node, _, pid in self.runs() if node == "b"]
            return pids[self.case.fails] if len(pids) > self.case.fails else 0

        return until(look, "the run of node b")

    def _await_death(self, first: SupervisorProcess) -> None:
        until(lambda: first.code is not None, f"the crash at {self.cell.point}", 30)
        assert first.code == -signal.SIGKILL, f"the first supervisor ended with {first.code}"
        until(lambda: not first.tree(), "the end of all executors of the first supervisor", 10)

    def _committed(self, execution: str) -> set[str]:
        return {node for node in ("a", "b") if execution and node in self.world.row(execution).results}

    # -- what must be true after ------------------------------------------------------------------------

    def _await_end(self, execution: str, second: SupervisorProcess) -> None:
        if execution:
            status = self.world.wait(execution, 40)["status"]
            assert status == self.case.status, f"{status} instead of {self.case.status}"

        def settled() -> bool:
            stats = self.world.stats()
            return all(s.length == s.pending == 0 for s in stats.streams) and stats.delayed == 0

        until(settled, "an empty queue", 15)

    def _judge_runs(self, execution: str, before: list[tuple[str, str, int]], committed: set[str]) -> None:
        after = self.runs()
        for node in committed:
            count = [sum(run[0] == node for run in runs) for runs in (before, after)]
            assert count[0] == count[1], f"node {node} ran {count[1] - count[0]} times after its commit"
        attempts = collections.Counter((node, attempt) for node, attempt, _ in after)
        assert not attempts or max(attempts.values()) == 1, f"two runs with one attempt number: {attempts}"
        counts = collections.Counter(node for node, _, _ in after)
        a, b = self._expected_runs()
        assert counts["a"] == a, f"node a ran {counts['a']} times instead of {a}"
        assert counts["b"] in b, f"node b ran {counts['b']} times instead of {b}"

    def _expected_runs(self) -> tuple[int, tuple[int, ...]]:
        again = 1 if self.cell.point in IN_FLIGHT else 0
        match self.case.name:
            case "malformed" | "cancel":
                return 0, (0,)
            case "cancel in step":
                return 1, (1,)  # the flag is seen before a step is begun again
            case "always fails":  # the run whose failure was not written down is lost, and begun again
                again = 1 if self.cell.point in (Point.FAILURE_COUNTED, Point.FINISH_READY) else 0
                return 1, (self.case.max_deliveries + again,)
        once = self.case.fails + 1
        if self.cell.point == Point.STEP_SENT:  # the process may have died before its node wrote its line
            return 1, (once, once + 1)
        return 1, (once + again,)

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
        assert not left, f"left behind: {left}"
        if execution:
            row = world.row(execution)
            assert row.lease is None, f"a lease is left: {row.lease}"
            steps = {"completed": "4", "error": "2", "cancelled": "2" if self.case.name != "cancel" else None}
            assert row.control.get("step") == steps[self.case.status], f"step {row.control.get('step')} in the row"


def leftovers(world: World) -> list[str]:
    """Keys that nothing needs once every execution is over."""
    words = {"lease", "cancel", "noderetry", "noderefetch", "delayed"}
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


# -- many cells ---------------------------------------------------------------------------------------------


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


def try_cells(url: str, cells: Iterable[Cell], tell: Callable[[Cell, str], None] = lambda *_: None) -> dict[Cell, str]:
    """What is not right with each, ``AT_ONCE`` worlds at once."""
    results: dict[Cell, str] = {}

    def one(cell: Cell) -> None:
        results[cell] = try_cell(url, cell)
        tell(cell, results[cell])

    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(one, cells))
    return results


def table(results: dict[Cell, str]) -> str:
    """Points down, carriers across; a cell says how it went for each who came after: same instance / other."""
    points = list(dict.fromkeys(point for case in CASES.values() for point in case.points))
    order = ["promoted", *(p for p in Point if p in points)]
    points = [Point(p) if p != IN_STEP else p for p in dict.fromkeys(order)]
    points.insert(points.index(Point.STEP_ANSWERED), IN_STEP)
    words: dict[tuple[Any, str], list[str]] = collections.defaultdict(list)
    for cell, wrong in results.items():
        words[cell.point, cell.case.name].append(f"{'FAILED' if wrong else 'ok'}")
    widths = [max(len(name), 13) for name in CASES]
    lines = [" " * 24 + "  ".join(name.ljust(width) for name, width in zip(CASES, widths, strict=True))]
    for point in (point for point in points if any((point, name) in words for name in CASES)):
        row = [" / ".join(words[point, name]) or "-" for name in CASES]
        lines.append(f"{point:<24}" + "  ".join(word.ljust(width) for word, width in zip(row, widths, strict=True)))
    return "\n".join(line.rstrip() for line in lines)


def main(arguments: list[str]) -> int:
    """``[carrier [point [peer]]]`` narrows the matrix to the cells whose names begin so."""
    wanted = ", ".join(arguments)
    cells = [cell for cell in all_cells() if cell.name.startswith(wanted)]
    begun = time.monotonic()
    done: collections.Counter[bool] = collections.Counter()

    def tell(cell: Cell, wrong: str) -> None:
        done[bool(wrong)] += 1
        if wrong:
            print(f"FAILED {cell.name}: {wrong.splitlines()[0]}", flush=True)
        elif sys.stderr.isatty():
            print(f"\r{done.total()}/{len(cells)} ", end="", file=sys.stderr, flush=True)

    with tempfile.TemporaryDirectory(prefix="plaita-") as folder:
        server = Server(Path(folder) / "data")
        try:
            results = try_cells(server.url, cells, tell)
        finally:
            server.close()
    results = {cell: results[cell] for cell in cells}
    for cell, wrong in results.items():
        if wrong:
            print(f"\n=== {cell.name}\n{wrong}")
    print("\nSIGKILL at (down) x carrier (across); then: same instance / another instance")
    print(table(results))
    print(f"{done[False]} of {len(cells)} cells right, {time.monotonic() - begun:.0f} s")
    return 1 if done[True] or not cells else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
