"""What an executor's node code prints: read from a pipe of its own and logged by line, with execution and node.

A node that floods its output must not flood the supervisor: so many bytes a step are logged, and of a long line its
beginning; the rest is read and dropped (the node never blocks on a full pipe for long), and reading pauses for a moment
after each large chunk, which slows only the one that floods. What stands in the pipe when a step is answered is that
step's, with its last line, ended or not.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
from collections.abc import Callable

from plaita.supervisor import logs
from plaita.supervisor.stats import Stats

CHUNK = 64 * 1024
LINE_MAX = 8 * 1024
LOGGED_PER_STEP = 64 * 1024
PAUSE_S = 0.002
DRAIN_CHUNKS = 16


class OutputReader:
    """One stream of one executor. ``about`` gives the facts of the moment: slot, pid, execution_id, node_id."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        fd: int,
        stream: str,
        about: Callable[[], dict[str, object]],
        stats: Stats,
    ) -> None:
        os.set_blocking(fd, False)
        self._loop = loop
        self._fd: int | None = fd
        self._stream = stream
        self._about = about
        self._stats = stats
        self._partial = b""
        self._skipping = False  # the rest of a line whose beginning has been logged
        self._logged = 0
        self._dropped = 0
        self._resume: asyncio.TimerHandle | None = None
        loop.add_reader(fd, self._readable)

    def step_ended(self) -> None:
        """Log what the step wrote before it answered, while ``about`` still names it; the next one gets a share of the
        log of its own."""
        self._drain()
        self._logged = 0

    def allow(self, size: int) -> None:
        """Log so many more bytes of this step at least, beyond what a full pipe may hold before them: something was
        asked for that it writes from now on, and it may be one that floods."""
        ahead = fcntl.fcntl(self._fd, fcntl.F_GETPIPE_SZ) if self._fd is not None else 0
        self._logged = min(self._logged, LOGGED_PER_STEP - size - ahead)

    def close(self) -> None:
        """Log what is left in the pipe, without waiting for others that still hold its write end; then close it."""
        if self._fd is not None:
            self._drain()
            self._stop()

    def _drain(self) -> None:
        """A pipe holds 64 KiB as a rule; what is written meanwhile is not waited for."""
        for _ in range(DRAIN_CHUNKS):
            if not self._read_chunk():
                break
        if self._partial:
            self._log_line(self._partial)
        self._partial, self._skipping = b"", False
        self._report_dropped()

    def _stop(self) -> None:
        if self._fd is None:
            return
        if self._resume is not None:
            self._resume.cancel()
        self._loop.remove_reader(self._fd)
        with contextlib.suppress(OSError):
            os.close(self._fd)
        self._fd = None

    def _readable(self) -> None:
        size = self._read_chunk()
        if size == CHUNK and self._fd is not None:
            self._loop.remove_reader(self._fd)
            self._resume = self._loop.call_later(PAUSE_S, self._go_on)

    def _go_on(self) -> None:
        if self._fd is not None:
            self._loop.add_reader(self._fd, self._readable)

    def _read_chunk(self) -> int:
        if self._fd is None:
            return 0
        try:
            data = os.read(self._fd, CHUNK)
        except BlockingIOError:
            return 0
        except OSError:
            data = b""
        if not data:
            self._loop.remove_reader(self._fd)
            return 0
        self._take(data)
        return len(data)

    def _take(self, data: bytes) -> None:
        if self._logged >= LOGGED_PER_STEP:
            self._dropped += len(data)
            self._partial, self._skipping = b"", not data.endswith(b"\n")
            return
        *lines, rest = data.split(b"\n")
        for line in lines:
            if self._skipping:
                self._dropped += len(line)
                self._skipping = False
            else:
                self._log_line(self._partial + line)
            self._partial = b""
        if self._skipping:
            self._dropped += len(rest)
            return
        self._partial += rest
        if len(self._partial) > LINE_MAX:
            self._log_line(self._partial)
            self._partial, self._skipping = b"", True

    def _log_line(self, line: bytes) -> None:
        if self._logged >= LOGGED_PER_STEP:
            self._dropped += len(line)
            return
        shown = line[:LINE_MAX]
        self._logged += len(shown) + 1
        self._dropped += len(line) - len(shown)
        text = shown.decode("utf-8", "backslashreplace").rstrip("\r")
        if text:
            facts = {**self._about(), "text": text}
            if len(line) > LINE_MAX:
                facts["cut"] = True
            logs.info("executor.output", stream=self._stream, **facts)

    def _report_dropped(self) -> None:
        if self._dropped:
            self._stats.add("output_bytes_dropped", self._dropped)
            logs.warning("executor.output_dropped", stream=self._stream, **self._about(), bytes=self._dropped)
            self._dropped = 0
