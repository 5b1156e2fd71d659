"""Reloads that meet trouble: a template that dies meanwhile, code that does not import, another reload, the end."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from hosts import SupervisorProcess, World, alive, until

from plaita.errors import RefusedError

NODES = Path(__file__).parent.parent / "supervisor" / "nodes"
WAITS = "import os, time\nwhile not os.path.exists({go!r}):\n    time.sleep(0.01)\n"
NODE = """
from plaita import Node

class Says(Node):
    node_type = "t_says"

    def execute(self, execution):
        return {word!r}
"""


def _plug_in(world: World, word: str, *, go: str = "") -> None:
    text = WAITS.format(go=str(world.folder / go)) if go else ""
    (world.folder / "says.py").write_text(text + NODE.format(word=word))


def _serving(world: World, **named: Any) -> SupervisorProcess:
    _plug_in(world, "old")
    world.chain("f", {"type": "t_says", "id": "a"})
    return world.serving(preload="says", environment={"PYTHONPATH": f"{world.folder}:{NODES}"}, **named)


def _templates(supervisor: SupervisorProcess) -> list[int]:
    found = []
    for pid in supervisor.tree():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it may end while we look
            if b"template" in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(pid)
    return found


def test_a_template_that_dies_while_its_successor_imports_is_succeeded_once(world: World) -> None:
    supervisor = _serving(world)
    _plug_in(world, "new", go="go")
    status = supervisor.status()
    assert status is not None
    supervisor.ask("reload")
    until(lambda: len(_templates(supervisor)) == 2, "the template that imports")
    os.kill(status["template"]["pid"], signal.SIGKILL)
    (world.folder / "go").touch()
    supervisor.wait_status(lambda s: s["template"]["ready"] and s["template"]["generation"] > 1, "a new template")
    until(lambda: len(_templates(supervisor)) == 1, "one template only")
    supervisor.wait_serving()
    assert world.run("f")["output"]["a"] == "new"
    assert "stray.killed" not in supervisor.text()


def test_executors_serve_while_a_new_template_imports(world: World) -> None:
    supervisor = _serving(world)
    _plug_in(world, "new", go="go")
    supervisor.ask("reload")
    until(lambda: len(_templates(supervisor)) == 2, "the template that imports")
    assert world.run("f")["output"]["a"] == "old"
    (world.folder / "go").touch()
    until(lambda: world.run("f")["output"]["a"] == "new", "executors with the new code")


def test_code_that_does_not_import_leaves_everything_as_it_was(world: World) -> None:
    supervisor = _serving(world)
    before = {row["pid"] for row in supervisor.executors()}
    (world.folder / "says.py").write_text("import no_such_module_anywhere\n")
    with pytest.raises(RefusedError, match=r"reload\.failed"):
        supervisor.ask("reload", wait=True)
    assert world.run("f")["output"]["a"] == "old"
    assert {row["pid"] for row in supervisor.executors()} == before
    _plug_in(world, "repaired")
    supervisor.ask("reload", wait=True)
    assert world.run("f")["output"]["a"] == "repaired"


def test_the_last_of_two_reloads_in_a_row_counts(world: World) -> None:
    supervisor = _serving(world)
    _plug_in(world, "first", go="never")
    supervisor.ask("reload")
    until(lambda: len(_templates(supervisor)) == 2, "the template that imports")
    _plug_in(world, "second")
    supervisor.ask("reload", wait=True)
    assert [world.run("f")["output"]["a"] for _ in range(4)] == ["second"] * 4
    until(lambda: len(_templates(supervisor)) == 1, "one template only")


def test_sigterm_while_a_template_imports_for_ever_leaves_nobody_behind(world: World) -> None:
    supervisor = _serving(world)
    _plug_in(world, "new", go="never")
    supervisor.ask("reload")
    until(lambda: len(_templates(supervisor)) == 2, "the template that imports")
    tree = supervisor.tree()
    assert supervisor.stop() == 0
    assert not [pid for pid in tree if alive(pid)]
