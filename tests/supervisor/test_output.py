"""What node code prints, line by line: cut where long, bounded where it floods, whole where a step ends in mid-line."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hosts import World

from plaita.supervisor import output
from plaita.supervisor.output import LINE_MAX, LOGGED_PER_STEP, OutputReader
from plaita.supervisor.stats import Stats


class Pipe:
    """A reader, what it logged, and the end that a node writes to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        read_end, self.write_end = os.pipe()
        self.node = "a"
        self.logged: list[tuple[str, str]] = []
        self.cut: list[str] = []
        self.dropped: list[int] = []
        self.stats = Stats()
        monkeypatch.setattr(output.logs, "info", self._info)
        monkeypatch.setattr(output.logs, "warning", lambda event, **facts: self.dropped.append(facts["bytes"]))
        about: Callable[[], dict[str, object]] = lambda: {"node_id": self.node}  # noqa: E731
        self.reader = OutputReader(asyncio.get_running_loop(), read_end, "stdout", about, self.stats)

    def _info(self, event: str, **facts: Any) -> None:
        assert event == "executor.output"
        self.logged.append((facts["node_id"], facts["text"]))
        if facts.get("cut"):
            self.cut.append(facts["text"])

    def write(self, data: bytes) -> None:
        while data:
            data = data[os.write(self.write_end, data) :]

    @property
    def texts(self) -> list[str]:
        return [text for _, text in self.logged]


def _run(monkeypatch: pytest.MonkeyPatch, story: Callable[[Pipe], Awaitable[None]]) -> Pipe:
    async def main() -> Pipe:
        pipe = Pipe(monkeypatch)
        try:
            await story(pipe)
        finally:
            pipe.reader.close()
            os.close(pipe.write_end)
        return pipe

    return asyncio.run(main())


def test_a_step_that_ends_in_mid_line_has_that_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its answer may be read before its pipe: what is in there then is its own, not the next step's."""

    async def story(pipe: Pipe) -> None:
        pipe.write(b"one\ntwo, without an end")
        pipe.reader.step_ended()
        pipe.node = "b"
        pipe.write(b"three\n")
        pipe.reader.step_ended()

    assert _run(monkeypatch, story).logged == [("a", "one"), ("a", "two, without an end"), ("b", "three")]


def test_bytes_that_are_no_utf_8_and_odd_line_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(pipe: Pipe) -> None:
        pipe.write(b"caf\xe9\r\n\n\xff\xfe\n" + "naïve 🦉\n".encode() + "🦉".encode()[:2])

    assert _run(monkeypatch, story).texts == ["caf\\xe9", "\\xff\\xfe", "naïve 🦉", "\\xf0\\x9f"]


@pytest.mark.parametrize("pieces", [1, 7])
def test_of_a_long_line_the_beginning_is_logged_and_the_rest_counted(
    monkeypatch: pytest.MonkeyPatch, pieces: int
) -> None:
    line = b"x" * 30_000 + b"\n"

    async def story(pipe: Pipe) -> None:
        for at in range(0, len(line), len(line) // pieces):
            pipe.write(line[at : at + len(line) // pieces])
            await asyncio.sleep(0.01)  # so that it comes in as many pieces; the outcome is the same if it does not
        pipe.write(b"after\n")
        pipe.reader.step_ended()

    pipe = _run(monkeypatch, story)
    assert [len(text) for text in pipe.texts] == [LINE_MAX, len("after")]
    assert pipe.cut == ["x" * LINE_MAX]
    assert sum(pipe.dropped) == 30_000 - LINE_MAX
    assert pipe.stats.get("output_bytes_dropped") == 30_000 - LINE_MAX


def test_a_flood_is_bounded_a_step_and_the_next_step_has_its_own_share(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(pipe: Pipe) -> None:
        for _ in range(100):
            pipe.write(b"y" * 999 + b"\n")
            pipe.write(b"y" * 999 + b"\n")
            await asyncio.sleep(0)
        pipe.reader.step_ended()
        pipe.node = "b"
        pipe.write(b"quiet\n")
        pipe.reader.step_ended()

    pipe = _run(monkeypatch, story)
    assert sum(len(text) + 1 for node, text in pipe.logged if node == "a") <= LOGGED_PER_STEP + 1000
    assert pipe.logged[-1] == ("b", "quiet")
    assert sum(pipe.dropped) + sum(len(text) + 1 for node, text in pipe.logged if node == "a") >= 199_000


@pytest.mark.parametrize("read_before", [0, 1_000, LOGGED_PER_STEP - 1, LOGGED_PER_STEP + 5_000])
def test_what_was_asked_for_is_logged_behind_a_full_pipe(monkeypatch: pytest.MonkeyPatch, read_before: int) -> None:
    async def story(pipe: Pipe) -> None:
        for _ in range(read_before // 1000):
            pipe.write(b"y" * 999 + b"\n")
            await asyncio.sleep(0)
        pipe.reader.allow(1_000)
        os.set_blocking(pipe.write_end, False)
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(pipe.write_end, b"y" * 999 + b"\n")
        await asyncio.to_thread(_write_all, pipe.write_end, b"z" * 899 + b"\n")
        pipe.reader.step_ended()

    assert "z" * 899 in "".join(_run(monkeypatch, story).texts)


def _write_all(fd: int, data: bytes) -> None:
    os.set_blocking(fd, True)
    assert os.write(fd, data) == len(data)


def test_output_of_real_nodes_names_execution_and_node_also_where_no_line_ends(world: World) -> None:
    (world.folder / "talker.py").write_text(
        "import sys, os\nfrom plaita import Node\n\n"
        "class Talk(Node):\n    node_type = 't_talk'\n    text: str\n\n"
        "    def execute(self, execution):\n"
        "        print(self.text, end='')\n        os.write(2, b'\\xff' + self.text.encode())\n"
    )
    supervisor = world.serving(executors=1, preload="talker", environment={"PYTHONPATH": str(world.folder)})
    steps = [{"type": "t_talk", "id": name, "text": f"this is {name}"} for name in "abc"]
    world.chain("f", *steps)
    row = world.run("f")
    assert row["status"] == "completed"
    lines = [line for line in supervisor.text().splitlines() if "event=executor.output " in line]
    for name in "abc":
        for stream, text in (("stdout", f"this is {name}"), ("stderr", f"xffthis is {name}")):
            [line] = [line for line in lines if f"stream={stream}" in line and text in line]
            assert f"node_id={name}" in line, line
            assert f"execution_id={row['execution_id']}" in line
