"""``make rolling-restart``, small: hosts restarted in turn under load; and its judgement, which can fail."""

from __future__ import annotations

import argparse
import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "rolling_restart.py"


@pytest.fixture
def rolling() -> ModuleType:
    spec = importlib.util.spec_from_file_location("rolling_restart", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its dataclasses look for it
    spec.loader.exec_module(module)
    return module


def test_R6_hosts_restarted_in_turn_under_load_lose_nothing_and_run_nothing_twice() -> None:
    """The time to the exit is judged by the make target, on a quiet machine."""
    words = [
        "--hosts",
        "2",
        "--executors",
        "1",
        "--executions",
        "12",
        "--steps",
        "6",
        "--rounds",
        "1",
        "--exit-limit",
        "60",
    ]
    done = subprocess.run([sys.executable, str(SCRIPT), *words], capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.long
@pytest.mark.parametrize("script", ["rolling_restart.py", "hard_ends.py"])
def test_R2_R6_the_figures_as_the_make_targets_print_them(script: str) -> None:
    done = subprocess.run([sys.executable, str(SCRIPT.parent / script)], capture_output=True, text=True, timeout=400)
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("lines", "status", "exit_", "dead", "ok"),
    [
        (["e n0 1", "e n1 1"], "completed", (0, 0.4, 1), 0, True),
        (["e n0 1", "e n1 1", "e n0 1"], "completed", (0, 0.4, 1), 0, False),  # after its commit
        (["e n0 1", "e n0 2", "e n1 1"], "completed", (0, 0.4, 1), 0, False),
        (["e n0 1"], "completed", (0, 0.4, 1), 0, False),
        (["e n0 1", "e n1 1"], "running", (0, 0.4, 1), 0, False),
        (["e n0 1", "e n1 1"], "completed", (75, 0.4, 1), 0, False),
        (["e n0 1", "e n1 1"], "completed", (0, 1.4, 1), 0, False),
        (["e n0 1", "e n1 1"], "completed", (0, 0.4, 0), 0, False),  # nothing ran there: nothing was shown
        (["e n0 1", "e n1 1"], "completed", (0, 0.4, 1), 1, False),
    ],
)
def test_what_a_rolling_restart_must_show(
    rolling: ModuleType,
    tmp_path: Path,
    lines: list[str],
    status: str,
    exit_: tuple[int, float, int],
    dead: int,
    ok: bool,
) -> None:
    file = tmp_path / "lines"
    file.write_text("\n".join(lines) + "\n")
    options = argparse.Namespace(executions=1, steps=2, step_ms=50, rounds=1, hosts=1, exit_limit=None)
    report = rolling.judge(options, [{"status": status}], file, [rolling.Exit("host1", *exit_)], dead)
    assert report.ok is ok


def test_each_restart_meets_executions_of_its_own(rolling: ModuleType) -> None:
    assert rolling.portions(300, 6) == [150, 25, 25, 25, 25, 25, 25]
    assert sum(rolling.portions(7, 3)) == 7
