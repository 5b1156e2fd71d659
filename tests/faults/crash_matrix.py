"""The crash matrix: a supervisor is SIGKILLed at a named point of a task's way, another brings everything to its end.

One cell is a kind of carrier, a point, and who comes after: the same instance in its next life (lease and min-idle are
ten minutes then, so only the takeover of its own can help), or another instance, which has to wait for the lease. Run
as a program it tries all cells, four worlds at once, prints them as a table, and exits with 1 if one is not right.
``crash_trial`` tries one.
"""

from __future__ import annotations

import collections
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "supervisor"))

from crash_trial import DYING, IN_STEP, LEAVING, Case, Cell, try_cell

from plaita.supervisor.crash_points import Point
from plaita.testing.server import Server

AT_ONCE = 4
PEERS = ("same", "other")
TABLE_CASES = 6  # beside each other

BEGINNING = (Point.TAKEN, Point.BEGIN_SENT, Point.BEGUN)
RUNNING = (Point.STEP_SENT, IN_STEP, Point.STEP_ANSWERED)
STEPPING = (*RUNNING, Point.COMMIT_SENT, Point.COMMITTED)
POSTPONING = (Point.FAILURE_COUNTED, Point.POSTPONE_SENT, Point.POSTPONED, Point.PROMOTED)
ENDING = (Point.FINISH_READY, Point.FINISH_SENT, Point.FINISHED)
PUBLISHED = (
    Point.EVENTS_READ,
    Point.WAITERS_FOUND,
    Point.WAKE_MANY_SENT,
    Point.WOKEN,
    Point.EVENT_DONE_SENT,
)
WHOLE_WAY = (*BEGINNING, *STEPPING, *DYING, *LEAVING, *ENDING)

# start -> a -> b -> end; the crash is at b, or at w in its place, so that something was committed before.
_THIRD = dict.fromkeys(STEPPING, 2)
_THIRD_AGAIN = dict.fromkeys(BEGINNING, 1) | _THIRD | {Point.STEP_SENT: 3, Point.STEP_ANSWERED: 3}


def _in_flight(entry: str, *more: Point) -> dict[Point | str, str]:
    """Where a run of the entry is lost: nothing of it is in Redis."""
    return dict.fromkeys((*RUNNING, *DYING, *more), entry)


CASES = {
    case.name: case
    for case in (
        Case("start", WHOLE_WAY, "completed", 4, lost=_in_flight("b"), earlier=_THIRD),
        Case("continue", WHOLE_WAY, "completed", 4, lost=_in_flight("b"), earlier=_THIRD),
        Case(
            "retry",
            (*POSTPONING, *WHOLE_WAY),
            "completed",
            4,
            lost=_in_flight("b"),
            fails=1,
            earlier=_THIRD_AGAIN,
        ),
        Case("cancel", (*BEGINNING, *ENDING), "cancelled", None),
        # The flag is seen before a step is begun again.
        Case("cancel in step", (Point.STEP_ANSWERED, *ENDING), "cancelled", 2, earlier=_THIRD),
        Case(
            "always fails",
            (Point.FAILURE_COUNTED, *ENDING),
            "error",
            2,
            lost={Point.FAILURE_COUNTED: "b", Point.FINISH_READY: "b"},
            fails=99,
            earlier={Point.FAILURE_COUNTED: 1},
            dead_letters=1,
            kept=("noderefetch",),
            max_deliveries=2,
        ),
        Case("malformed", (Point.TAKEN, Point.DEAD_LETTER_SENT, Point.DEAD_LETTERED), "", None, dead_letters=1),
        # -- what waits: suspended, woken, out of time, cancelled; and what is woken from its end in error
        Case(
            "wait",
            (*BEGINNING, *RUNNING, *DYING, Point.SUSPEND_SENT, Point.SUSPENDED),
            "completed",
            5,
            way=("a", "w.execute", "w.on_event"),
            at="w.execute",
            lost=_in_flight("w.execute"),
            earlier=_THIRD,
        ),
        Case(
            "event",
            WHOLE_WAY,
            "completed",
            5,
            way=("a", "w.execute", "w.on_event"),
            at="w.on_event",
            lost=_in_flight("w.on_event"),
            before="suspended",
        ),
        Case(
            "published",
            PUBLISHED,
            "completed",
            5,
            way=("a", "w.execute", "w.on_event"),
            at="w.on_event",
            lost={Point.EVENT_DONE_SENT: "w.on_event"},
            before="suspended",
        ),
        Case(
            "event fails",
            (*POSTPONING, *BEGINNING, Point.STEP_ANSWERED, Point.COMMIT_SENT, Point.COMMITTED),
            "completed",
            5,
            way=("a", "w.execute", "w.on_event"),
            at="w.on_event",
            lost={Point.STEP_ANSWERED: "w.on_event"},
            before="suspended",
            fails=1,
            earlier=dict.fromkeys((*BEGINNING, Point.STEP_ANSWERED), 1),
        ),
        Case(
            "timeout",
            (Point.PROMOTED, *WHOLE_WAY),
            "completed",
            5,
            way=("a", "w.execute", "w.on_timeout"),
            at="w.on_timeout",
            lost=_in_flight("w.on_timeout"),
            before="suspended",
        ),
        Case(
            "cancel of a wait",
            (*BEGINNING, *RUNNING, *ENDING),
            "cancelled",
            3,
            way=("a", "w.execute", "w.on_cancel"),
            at="w.on_cancel",
            lost=_in_flight("w.on_cancel", Point.FINISH_READY),
            before="suspended",
        ),
        # b fails once for good, is retried and succeeds; then c fails for good, so that the counters stay to be seen.
        Case(
            "retry of error",
            WHOLE_WAY,
            "error",
            3,
            way=("a", "b", "c"),
            lost=_in_flight("b") | {Point.FINISH_READY: "c"},
            before="error",
            fails=1,
            kept=("g1wakeups", "nofail"),
        ),
        Case(
            "retry of event",
            (*BEGINNING, Point.STEP_ANSWERED, Point.COMMIT_SENT, Point.COMMITTED),
            "completed",
            5,
            way=("a", "w.execute", "w.on_event"),
            at="w.on_event",
            lost={Point.STEP_ANSWERED: "w.on_event"},
            before="error",
            fails=1,
        ),
    )
}


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
    words: dict[tuple[Any, str], list[str]] = collections.defaultdict(list)
    for cell, wrong in results.items():
        words[cell.point, cell.case.name].append("FAILED" if wrong else "ok")
    points: list[Point | str] = list(Point)
    points.insert(points.index(Point.STEP_ANSWERED), IN_STEP)
    names = [name for name in CASES if any(case == name for _, case in words)]
    parts = (names[at : at + TABLE_CASES] for at in range(0, len(names), TABLE_CASES))
    return "\n\n".join(_part_of_table(words, points, part) for part in parts)


def _part_of_table(words: dict[tuple[Any, str], list[str]], points: list[Point | str], names: tuple[str, ...]) -> str:
    widths = [max(len(name), 13) for name in names]
    lines = [" " * 24 + "  ".join(name.ljust(width) for name, width in zip(names, widths, strict=True))]
    for point in (point for point in points if any((point, name) in words for name in names)):
        row = [" / ".join(words.get((point, name), ())) or "-" for name in names]
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
