"""``status --watch`` on a real terminal and into a pipe: through a restart, a resize and Ctrl-C."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import re
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

CEILING_S = 60.0
SERVING: dict[str, Any] = {
    "ok": True, "instance_id": "host1", "incarnation": "a", "status": "running", "serving": True,
    "verdict": "serving", "answer": "serving; 0 of 1 executors at work", "counters": {"steps": 1, "finished": 0},
}  # fmt: skip
PAUSED = {**SERVING, "serving": False, "verdict": "not serving", "answer": "NOT taking work: it is paused"}


class Fake:
    """A control socket that answers every line with ``answer``."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.answer = SERVING
        self.asked = 0
        self._socket: socket.socket | None = None

    def start(self) -> None:
        self.path.unlink(missing_ok=True)
        self._socket = listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(self.path))
        listener.listen()

        def work() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection, contextlib.suppress(OSError):
                    if connection.recv(65536):
                        connection.sendall(json.dumps(self.answer).encode() + b"\n")
                        self.asked += 1

        threading.Thread(target=work, daemon=True).start()

    def stop(self) -> None:
        if self._socket is not None:
            self._socket.shutdown(socket.SHUT_RDWR)
            self._socket.close()
            self._socket = None


@pytest.fixture
def fake() -> Iterator[Fake]:
    with tempfile.TemporaryDirectory(prefix="pl-", dir="/tmp") as folder:
        made = Fake(Path(folder) / "s")
        yield made
        made.stop()


def command(fake: Fake, *more: str) -> list[str]:
    return [sys.executable, "-m", "plaita.cli.supervisor", "status", "--watch", "--socket", str(fake.path), *more]


class Terminal:
    """The command on a terminal of 80 x 24; ``text`` is everything it wrote."""

    def __init__(self, words: list[str], term: str = "xterm-256color") -> None:
        self.text = ""
        self._master, slave = pty.openpty()
        self.resize(80, 24)
        clean = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
        self.process = subprocess.Popen(
            words, stdin=slave, stdout=slave, stderr=slave, env={**clean, "TERM": term}, start_new_session=True
        )
        os.close(slave)

    def resize(self, width: int, height: int) -> None:
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))

    def until(self, pattern: str) -> str:
        """What was written up to the end of the pattern; it is taken away."""
        deadline = time.monotonic() + CEILING_S
        while True:
            found = re.search(pattern, self.text, re.DOTALL)
            if found is not None:
                seen, self.text = self.text[: found.end()], self.text[found.end() :]
                return seen
            if time.monotonic() > deadline:
                raise AssertionError(f"never came: {pattern!r}\n{self.text[-3000:]!r}")
            if select.select([self._master], [], [], 0.1)[0]:
                try:
                    self.text += os.read(self._master, 65536).decode("utf-8", "replace")
                except OSError:  # the other end is closed
                    raise AssertionError(f"it ended without {pattern!r}: {self.text[-3000:]!r}") from None

    def end(self, number: signal.Signals = signal.SIGINT) -> int:
        self.process.send_signal(number)
        deadline = time.monotonic() + CEILING_S
        while self.process.poll() is None and time.monotonic() < deadline:
            with contextlib.suppress(AssertionError, OSError):
                if select.select([self._master], [], [], 0.1)[0]:
                    self.text += os.read(self._master, 65536).decode("utf-8", "replace")
        with contextlib.suppress(OSError):
            while select.select([self._master], [], [], 0)[0]:
                data = os.read(self._master, 65536)
                if not data:
                    break
                self.text += data.decode("utf-8", "replace")
        os.close(self._master)
        return self.process.wait(timeout=1)


def test_watch_lives_through_a_restart_and_a_resize_and_leaves_the_terminal_as_it_was(fake: Fake) -> None:
    fake.start()
    terminal = Terminal(command(fake))
    first = terminal.until("serving; 0 of 1 executors at work")
    assert "\x1b[?1049h" in first, "on the alternate screen"
    fake.answer = {**PAUSED, "answer": "NOT taking work: it is paused\x1b[2J"}
    seen = terminal.until(r"it is paused\\x1b\[2J")
    assert "\x1b[2J" not in seen, "neither cleared, which flickers, nor by what was answered"
    fake.stop()
    terminal.until("not running.*nobody listens.*since.*last seen at.*host1")
    fake.answer = {**SERVING, "incarnation": "b"}
    fake.start()
    terminal.until("serving; 0 of 1 executors at work.*being counted")
    terminal.resize(50, 10)
    fake.answer = {**SERVING, "answer": "word " * 30}
    terminal.until(r"(word ){8}word *\s")
    fake.answer = SERVING
    terminal.until("serving; 0 of 1 executors at work")
    assert terminal.end() == 0
    assert "\x1b[?1049l" in terminal.text, "the alternate screen is left"
    after = terminal.text.rpartition("\x1b[?1049l")[2]
    assert "\x1b[?25h" in terminal.text, "the cursor is back"
    assert "serving; 0 of 1" in after, "what was seen last stays"


@pytest.mark.parametrize(("answer", "code"), [(PAUSED, 1), (None, 3)], ids=["degraded", "nobody"])
def test_watch_ends_with_the_code_of_status(fake: Fake, answer: dict[str, Any] | None, code: int) -> None:
    if answer is not None:
        fake.answer = answer
        fake.start()
    terminal = Terminal(command(fake))
    terminal.until("NOT taking work" if answer is not None else "not running.*there is none")
    assert terminal.end(signal.SIGTERM if code == 1 else signal.SIGINT) == code
    assert "\x1b[?25h" in terminal.text


def test_watch_tells_one_that_is_frozen_from_one_that_is_gone(fake: Fake) -> None:
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(fake.path))
        silent.listen(64)
        terminal = Terminal(command(fake, "--timeout", "0.1"))
        terminal.until(r"not answering.*within 0\.1 s")
        assert terminal.end() == 3


def test_watch_on_a_terminal_that_cannot_move_its_cursor_prints_pages(fake: Fake) -> None:
    fake.start()
    terminal = Terminal(command(fake), term="dumb")
    seen = terminal.until("(serving; 0 of 1 executors at work.*){2}")
    assert "\x1b" not in seen
    assert terminal.end() == 0


def test_watch_into_a_pipe_prints_page_after_page_without_colours(fake: Fake) -> None:
    fake.start()
    process = subprocess.Popen(command(fake), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    pages, lines = 0, []
    while pages < 3:
        line = process.stdout.readline()
        assert line, "it goes on until it is told to end"
        lines.append(line)
        pages += line.startswith("serving; 0 of 1")
    process.send_signal(signal.SIGINT)
    rest, errors = process.communicate(timeout=CEILING_S)
    assert (process.returncode, errors) == (0, "")
    assert "\x1b" not in "".join(lines) + rest
    assert "\n" in lines, "a blank line stands between them"


def test_watch_ends_when_nobody_reads_its_pages(fake: Fake) -> None:
    fake.start()
    process = subprocess.Popen(command(fake), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline()
    process.stdout.close()
    assert process.wait(timeout=CEILING_S) != 0
    assert process.stderr is not None
    assert "Traceback" not in process.stderr.read()
    process.stderr.close()
