"""Usual lengths and stuck steps as ``status`` shows them (DECISIONS 24), and the last deaths."""

from __future__ import annotations

import pytest
from hosts import World

from plaita.clock import boot_ms
from plaita.supervisor import deaths, usual
from plaita.supervisor.deaths import Death
from plaita.supervisor.executor import Executor
from plaita.supervisor.usual import UsualLengths, stuck_rows

KEY = ("f", "1", "a")


def _working(slot: int, for_ms: int, limit_ms: int | None = None) -> Executor:
    executor = Executor(slot=slot, seq=1, execution_id=f"e{slot}", flow_id="f", version="1", node_id="a")
    executor.step_started = boot_ms() - for_ms
    executor.limit_ms = limit_ms
    return executor


def test_24_a_step_without_limit_that_takes_ten_times_as_long_is_named() -> None:
    lengths = UsualLengths()
    for _ in range(10):
        lengths.add(KEY, 2_000)
    idle = Executor(slot=3, seq=1, flow_id="f", version="1", node_id="a")
    rows = stuck_rows([_working(0, 15_000), _working(1, 25_000), _working(2, 40_000), idle], lengths, 5_000)
    assert [(row["slot"], row["execution_id"], row["usual_s"], row["timeout_s"]) for row in rows] == [
        (2, "e2", 2.0, None),
        (1, "e1", 2.0, None),
    ]
    assert rows[0]["step_s"] >= 40


def test_24_versions_and_nodes_have_lengths_of_their_own() -> None:
    lengths = UsualLengths()
    for _ in range(10):
        lengths.add(KEY, 2_000)
        lengths.add(("f", "2", "a"), 9_000)
    assert lengths.usual_ms(KEY) == 2_000
    assert lengths.usual_ms(("f", "2", "a")) == 9_000
    assert lengths.usual_ms(("f", "1", "b")) is None


def test_what_is_known_of_nodes_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usual, "NODES_KNOWN", 3)
    lengths = UsualLengths()
    for name in "abcda":
        for _ in range(5):
            lengths.add(("f", "1", name), 1)
    assert [name for name in "abcd" if lengths.usual_ms(("f", "1", name)) is not None] == ["a", "c", "d"]


def test_a_death_is_told_in_the_words_of_status() -> None:
    death = Death(at=0, slot=1, pid=7, cause="SIGSEGV", execution_id="e", node_id="n", peak_rss_mib=12)
    assert death.row() == {
        "at": "1970-01-01T00:00:00.000Z",
        "slot": 1,
        "pid": 7,
        "cause": "SIGSEGV",
        "execution_id": "e",
        "node_id": "n",
        "peak_rss_mib": 12,
    }
    assert deaths.KEPT == 20


def test_24_a_hanging_step_is_named_by_status_and_explain(world: World) -> None:
    (world.folder / "sitecustomize.py").write_text("import plaita.policy.usual as u\nu.FLOOR_MS = 300\n")
    (world.folder / "hanger.py").write_text(
        "import pathlib, time\nfrom plaita import Node\n\n"
        "class Hang(Node):\n    node_type = 't_hang'\n\n"
        "    def execute(self, execution):\n"
        "        while (pathlib.Path(__file__).parent / 'hang').exists():\n            time.sleep(0.01)\n"
    )
    supervisor = world.serving(
        executors=1,
        preload="hanger",
        environment={"PYTHONPATH": str(world.folder)},
        through=("env",),  # an interpreter of its own, that reads sitecustomize
    )
    world.chain("f", {"type": "t_hang", "id": "a"})
    assert {world.run("f")["status"] for _ in range(6)} == {"completed"}
    assert supervisor.ask("status")["stuck"] == []
    (world.folder / "hang").touch()
    execution = world.start("f")
    status = supervisor.wait_status(lambda status: status["stuck"], "a stuck step")
    [row] = status["stuck"]
    assert (row["execution_id"], row["flow_id"], row["node_id"]) == (execution, "f", "a")
    assert row["step_s"] > 10 * row["usual_s"]
    assert row["timeout_s"] is None
    assert [row["execution_id"] for row in supervisor.ask("explain")["stuck"]] == [execution]
    (world.folder / "hang").unlink()
    assert world.wait(execution)["status"] == "completed", "it is named, not ended"
    assert supervisor.ask("status")["stuck"] == []
