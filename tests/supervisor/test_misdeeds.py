"""What a node can do to its executor: each misdeed has its own clear outcome, and hurts no other execution."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hosts import World, alive, until

COMMON = {"preload": "trouble", "max_deliveries": 2, "kill_grace": 1, "executors": 2}


def _do(world: World, what: str, **fields: Any) -> str:
    name = f"f-{what.replace('_', '-')}"
    return world.chain(name, {"type": "t_do", "id": "deed", "what": what, **fields})


def _neighbour(world: World) -> str:
    """An execution beside the misdeed that must end well."""
    world.chain("neighbour", {"type": "t_line", "id": "n", "file": str(world.folder / "lines"), "seconds": 0.5})
    return world.start("neighbour")


@pytest.mark.parametrize(
    ("what", "size", "word"),
    [
        ("os_exit", 0, "exit 0"),
        ("os_exit", 3, "exit 3"),
        ("segfault", 0, "SIGSEGV"),
        ("abort", 0, "SIGABRT"),
        ("kill_self", 0, "SIGKILL"),
        ("junk", 0, "protocol"),
        ("close_all", 0, "exit 70"),
    ],
)
def test_S14_a_node_that_takes_its_executor_down(world: World, what: str, size: int, word: str) -> None:
    supervisor = world.serving(**COMMON)
    neighbour = _neighbour(world)
    row = world.run(_do(world, what, size=size))
    assert row["status"] == "error"
    assert row["error"]["failed_node"] == "deed"
    assert "ExecutorDiedError" in row["error"]["message"]
    assert word in row["error"]["message"], row["error"]
    assert world.wait(neighbour)["status"] == "completed"
    assert world.stats().dlq_length == 1
    supervisor.wait_serving()
    assert supervisor.stop() == 0


FAULTS = [
    ("sys_exit", 0, ["SystemExit"]),
    ("sys_exit_text", 0, ["SystemExit", "goodbye"]),
    ("keyboard", 0, ["KeyboardInterrupt"]),
    ("generator_exit", 0, ["GeneratorExit"]),
    ("base", 0, ["BaseException", "at the root"]),
    ("error", 0, ["RuntimeError", "out of paper"]),
    ("value_error", 0, ["ValueError", "no such colour"]),
    ("bad_str_error", 0, ["RudeError"]),
    ("surrogate_error", 0, ["RuntimeError", "broken"]),
    ("recursion", 0, ["RecursionError"]),
    ("nan", 0, ["NodeOutputError", "nan"]),
    ("set", 0, ["NodeOutputError", "set"]),
    ("bad_repr", 0, ["NodeOutputError", "Rude"]),
    ("surrogate", 0, ["NodeOutputError", "surrogate"]),
    ("deep", 0, ["NodeOutputError", "deep"]),
    ("text", 20_000_000, ["NodeOutputError", "8388608"]),
]


def test_S9_a_node_that_fails_is_named_with_its_cause(world: World) -> None:
    """One after the other on one supervisor, whose executors live through them all."""
    supervisor = world.serving(**COMMON)
    for what, size, words in FAULTS:
        neighbour = _neighbour(world)
        row = world.run(_do(world, what, size=size))
        assert (row["status"], row["error"]["failed_node"]) == ("error", "deed"), what
        text = json.dumps(row["error"], ensure_ascii=False)
        for word in words:
            assert word in text, (what, row["error"])
        assert world.wait(neighbour)["status"] == "completed", what
    assert supervisor.ask("status")["counters"]["executor_deaths"] == 0
    assert supervisor.stop() == 0


@pytest.mark.parametrize(("what", "size", "result"), [("text", 1 << 20, "x" * (1 << 20)), ("big_integer", 0, 2**80)])
def test_results_arrive_exactly(world: World, what: str, size: int, result: Any) -> None:
    world.serving(**COMMON)
    row = world.run(_do(world, what, size=size))
    assert row["status"] == "completed"
    assert row["output"]["deed"] == result


def test_a_flood_of_output_is_read_and_bounded(world: World) -> None:
    supervisor = world.serving(**COMMON)
    neighbour = _neighbour(world)
    row = world.run(_do(world, "flood", size=100_000))
    assert row["status"] == "completed"
    assert world.wait(neighbour)["status"] == "completed"
    assert len(supervisor.text()) < 4_000_000
    assert "executor.output_dropped" in supervisor.text()
    assert "executor.output" in supervisor.text()


def test_memory_over_the_limit_ends_the_step_only(world: World) -> None:
    supervisor = world.serving(max_executor_rss_mib=200, **COMMON)
    neighbour = _neighbour(world)
    row = world.run(_do(world, "memory"))
    assert row["status"] == "error"
    assert "--max-executor-rss-mib 200" in row["error"]["message"]
    assert world.wait(neighbour)["status"] == "completed"
    assert supervisor.stop() == 0


def test_a_node_that_never_returns_and_ignores_sigterm_is_killed_at_its_timeout(world: World) -> None:
    world.chain("f", {"type": "t_stubborn", "id": "deed", "timeout": 300})
    supervisor = world.serving(executors=1, preload="trouble", kill_grace=0.5)
    row = world.run("f")
    assert row["status"] == "error"
    assert row["error"]["code"] == -1
    assert "NodeTimeoutError" in row["error"]["message"]
    world.chain("after", {"type": "mock", "id": "a", "value": 1})
    assert world.run("after")["status"] == "completed"
    status = supervisor.status()
    assert status is not None
    assert status["counters"]["step_timeouts"] == 1


def test_24_a_node_that_names_no_timeout_has_the_hosts(world: World) -> None:
    world.chain(
        "f",
        {"type": "t_line", "id": "long", "file": str(world.folder / "lines"), "seconds": 0.8, "timeout": 60_000},
        {"type": "t_line", "id": "deed", "file": str(world.folder / "lines"), "seconds": 100},
    )
    world.serving(executors=1, preload="trouble", kill_grace=0.5, environment={"PLAITA_DEFAULT_NODE_TIMEOUT": "PT0.4S"})
    row = world.run("f")
    assert row["status"] == "error"
    assert (row["error"]["code"], row["error"]["failed_node"]) == (-1, "deed")
    assert "NodeTimeoutError" in row["error"]["message"]


def test_a_timeout_handler_goes_on_with_its_default(world: World) -> None:
    handler = {"strategy": "continue-with", "defaultValue": {"late": True}}
    world.chain(
        "f",
        {"type": "t_line", "id": "slow", "file": str(world.folder / "lines"), "seconds": 100, "timeout": 200,
         "timeoutHandler": handler},
        {"type": "mock", "id": "after", "value": 2},
    )  # fmt: skip
    world.serving(preload="trouble", kill_grace=1)
    row = world.run("f")
    assert row["status"] == "completed", row["error"]
    assert row["output"]["slow"] == {"late": True}
    assert row["output"]["after"] == 2


@pytest.mark.parametrize("what", ["child", "setsid_child", "daemon"])
def test_a_child_that_outlives_its_step_does_not_outlive_it_for_long(world: World, what: str) -> None:
    pids = world.folder / "pids"
    world.serving(**COMMON)
    row = world.run(_do(world, what, file=str(pids)))
    assert row["status"] == "completed"
    pid = int(Path(pids).read_text())
    until(lambda: not alive(pid), "the end of what the node left behind", seconds=10)


def test_a_node_that_forks_and_returns_in_both_answers_once(world: World) -> None:
    supervisor = world.serving(**COMMON)
    row = world.run(_do(world, "fork_both_return"))
    assert row["status"] == "completed"
    assert row["output"]["deed"] > 0
    world.chain("after", {"type": "mock", "id": "a", "value": 1})
    for _ in range(4):
        assert world.run("after")["status"] == "completed"
    assert supervisor.stop() == 0


@pytest.mark.parametrize("what", ["chdir", "rlimit"])
def test_what_a_step_changes_in_its_process_the_next_does_not_see(world: World, what: str) -> None:
    world.serving(**{**COMMON, "executors": 1})
    before = world.run(_do(world, "look"))["output"]["deed"]
    assert world.run(_do(world, what))["status"] == "completed"
    after = world.run("f-look")["output"]["deed"]
    for fact in ("cwd", "left", "nofile", "environment"):
        assert after[fact] == before[fact]


def test_an_executor_has_no_descriptor_and_no_variable_of_the_supervisors(world: World) -> None:
    world.serving(preload="trouble", environment={"PLAITA_SECRET_TOKEN": "x", "AWS_SECRET_ACCESS_KEY": "y"})
    seen = world.run(_do(world, "look"))["output"]["deed"]
    assert len(seen["fds"]) <= 5  # 0-2, its socket, and the listing itself
    assert not [name for name in seen["environment"] if "SECRET" in name or "REDIS" in name]
