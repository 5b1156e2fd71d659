"""A small supervisor for tests: starts a real template, asks it for executors, talks to them, watches them die.

Blocking, each wait bounded by DEADLINE_S. The process that uses it becomes a child subreaper, as a supervisor is.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from plaita import clock
from plaita.flow.outline import flow_hash
from plaita.ipc.frames import FrameReader, encode
from plaita.ipc.messages import Answer, FromExecutor, Hello, Leave, Need, Progress, Run, decode_from_executor
from plaita.ipc.template_socket import (
    Fatal,
    Importing,
    Ready,
    Spawn,
    Spawned,
    SpawnFailed,
    TemplateMessage,
    Tick,
    close_all,
    receive,
    send,
    socket_pair,
    template_argv,
    template_environment,
)
from plaita.unix.prctl import set_child_subreaper
from plaita.unix.processes import children_of, find_marked, pidfd_ended, process_stat, send_signal
from plaita.unix.reaper import Exit, reap
from plaita.unix.spawn import spawn_with_channel

DEADLINE_S = 30.0
FOLDER = Path(__file__).parent
T = TypeVar("T")
KNOWN: set[int] = set()  # executors that somebody here waits for


def until(condition: Callable[[], T], what: str, seconds: float = DEADLINE_S) -> T:
    """The first true value of ``condition``; AssertionError naming ``what`` after ``seconds``."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds} s: {what}")
        time.sleep(0.002)
    return value


def alive(pid: int) -> bool:
    """Whether a process runs (a zombie does not)."""
    stat = process_stat(pid)
    return stat is not None and not stat.zombie


def chain(*nodes: dict[str, Any], flow_id: str = "flow") -> dict[str, Any]:
    """A flow: start, the given nodes one after the other, end."""
    named = [{"id": f"n{index}", **node} for index, node in enumerate(nodes)]
    names = [node["id"] for node in named] + ["end"]
    linked = [{**node, "next": following} for node, following in zip(named, names[1:], strict=True)]
    return {
        "flow_id": flow_id,
        "version": "1",
        "nodes": [
            {"id": "start", "type": "start", "next": names[0]},
            *linked,
            {"id": "end", "type": "end", "output": "done"},
        ],
    }


def doing(name: str, **fields: Any) -> dict[str, Any]:
    """A flow whose node ``n0`` does ``name`` of nodes_for_tests."""
    return chain({"type": "try", "do": name, **fields})


class Pipe:
    """Reads one output stream of an executor to its end, so that nobody blocks on it; keeps the first MiB."""

    def __init__(self) -> None:
        self.reading, self.writing = os.pipe()
        self.data = bytearray()
        self.total = 0
        self._abandoned = False
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def abandon(self) -> None:
        """Stop reading: a writer gets a broken pipe."""
        self._abandoned = True
        assert self.ended()

    def _read(self) -> None:
        while not self._abandoned:
            if not select.select([self.reading], [], [], 0.02)[0]:
                continue
            data = os.read(self.reading, 65536)
            if not data:
                break
            self.total += len(data)
            if len(self.data) < 1 << 20:
                self.data += data
        os.close(self.reading)

    def ended(self) -> bool:
        """Whether every writer has closed it; waits a little."""
        self._thread.join(5)
        return not self._thread.is_alive()

    def text(self) -> str:
        return self.data.decode("utf-8", "replace")


@dataclass
class ExecutorHandle:
    """One executor. ``hello`` is None until it came."""

    slot: int
    seq: int
    sock: socket.socket
    stdout: Pipe
    stderr: Pipe
    pid: int = 0
    pidfd: int = -1
    hello: Hello | None = None
    spawn_failed: str | None = None
    run_seq: int = 0
    exit: Exit | None = None
    progress: list[str] = field(default_factory=list)
    _reader: FrameReader = field(default_factory=FrameReader)
    _arrived: list[FromExecutor] = field(default_factory=list)

    def receive(self, seconds: float = DEADLINE_S) -> FromExecutor | None:
        """The next message but Progress; None at end-of-file."""
        deadline = time.monotonic() + seconds
        while not self._arrived:
            if not select.select([self.sock], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise AssertionError(f"executor {self.pid}: no message in {seconds} s; stderr: {self.stderr.text()}")
            try:
                data = self.sock.recv(1 << 18)
            except ConnectionResetError:
                return None
            if not data:
                return None
            for frame in self._reader.feed(data):
                message = decode_from_executor(frame)
                if isinstance(message, Progress):
                    self.progress.append(message.note)
                else:
                    self._arrived.append(message)
        return self._arrived.pop(0)

    def message(self, flow: dict[str, Any], node_id: str = "n0", **fields: Any) -> Run:
        """A Run with everything in it."""
        self.run_seq += 1
        defaults: dict[str, Any] = {
            "execution_id": "e1",
            "tenant_id": "default",
            "flow_id": flow.get("flow_id", "flow"),
            "version": 1,
            "flow_hash": flow_hash(flow),
            "visit": 1,
            "attempt": 1,
            "step": 1,
            "namespace": "test",
            "definition": json.dumps(flow).encode(),
            "input": b"{}",
        }
        return Run(seq=self.run_seq, node_id=node_id, **{**defaults, **fields})

    def send(self, message: Run | Leave) -> None:
        for buffer in encode(message.to_frame()):
            self.sock.sendall(buffer)

    def run(self, flow: dict[str, Any], node_id: str = "n0", **fields: Any) -> Answer:
        """Run one step and take its answer."""
        message = self.message(flow, node_id, **fields)
        self.send(message)
        answer = self.receive()
        assert isinstance(answer, Answer), answer
        assert answer.seq == message.seq
        return answer

    def do(self, name: str, **fields: Any) -> Answer:
        """Run the node that does ``name``."""
        return self.run(doing(name, **fields))

    def value(self, name: str, **fields: Any) -> Any:
        """What the node that does ``name`` returns."""
        answer = self.do(name, **fields)
        assert answer.kind == "advanced", answer
        assert answer.result is not None
        return json.loads(answer.result)

    def need(self, message: Run) -> list[str]:
        self.send(message)
        need = self.receive()
        assert isinstance(need, Need), need
        return list(need.what)

    def signal(self, number: int) -> None:
        signal.pidfd_send_signal(self.pidfd, number)

    def wait_exit(self, seconds: float = DEADLINE_S) -> Exit:
        """How it ended, reaped."""
        if self.exit is None:
            until(lambda: pidfd_ended(self.pidfd), f"executor {self.pid} ends", seconds)
            # one that ends at birth may have the middle process as its parent for a moment longer
            self.exit = until(self._reaped, f"executor {self.pid} is this process's to reap", seconds)
            KNOWN.discard(self.pid)
        return self.exit

    def _reaped(self) -> Exit | None:
        ended = reap(self.pid)
        return None if ended is None or ended.signal is ended.code is None else ended

    def close(self) -> None:
        self.sock.close()
        if self.pid and self.exit is None:
            if not pidfd_ended(self.pidfd):
                self.signal(signal.SIGKILL)
            self.wait_exit()
        if self.pidfd >= 0:
            os.close(self.pidfd)
            self.pidfd = -1


class TemplateHandle:
    """One template process and its socket."""

    def __init__(
        self,
        *,
        preload: tuple[str, ...] = ("nodes_for_tests",),
        user: str | None = None,
        generation: int = 1,
        mark: str | None = None,
        extra: dict[str, str] | None = None,
    ) -> None:
        set_child_subreaper()
        self.mark = mark or f"test-{os.urandom(8).hex()}"
        self.sock, theirs = socket_pair()
        self.errors = Pipe()
        environment = template_environment(self.mark, extra={"PYTHONPATH": str(FOLDER), **(extra or {})})
        self.pid = spawn_with_channel(
            template_argv(generation, preload, user), environment, theirs.fileno(), stderr_fd=self.errors.writing
        )
        theirs.close()
        os.close(self.errors.writing)
        self.ready: Ready | None = None
        self.imported: list[str] = []
        self.executors: list[ExecutorHandle] = []
        self.exit: Exit | None = None
        self._seq = 0

    def next_message(self, seconds: float = DEADLINE_S) -> tuple[TemplateMessage, list[int]] | None:
        """The next message and its descriptors; None when the template has closed."""
        if not select.select([self.sock], [], [], seconds)[0]:
            raise AssertionError(f"the template says nothing in {seconds} s; stderr: {self.errors.text()}")
        try:
            return receive(self.sock)
        except ConnectionResetError:
            return None

    def wait_ready(self) -> Ready:
        while self.ready is None:
            received = self.next_message()
            assert received is not None, f"the template ended: {self.errors.text()}"
            message = received[0]
            if isinstance(message, Importing):
                self.imported.append(message.module)
                continue
            assert isinstance(message, Ready), message
            self.ready = message
        return self.ready

    def wait_fatal(self) -> str:
        while True:
            received = self.next_message()
            assert received is not None, f"the template ended: {self.errors.text()}"
            if isinstance(received[0], Fatal):
                return received[0].reason

    def tell(self, message: TemplateMessage, descriptors: tuple[int, ...] = ()) -> None:
        send(self.sock, message, descriptors)

    def tick(self, kill_in_ms: int | None) -> None:
        self.tell(Tick(None if kill_in_ms is None else clock.boot_ms() + kill_in_ms))

    def ask(self, slot: int = 0, *, unread_output: bool = False, **fields: Any) -> ExecutorHandle:
        """Ask for an executor, without waiting for it. ``unread_output``: the reading ends of its pipes are closed."""
        self._seq += 1
        ours, theirs = socket.socketpair()
        executor = ExecutorHandle(slot, self._seq, ours, Pipe(), Pipe())
        writing = (executor.stdout.writing, executor.stderr.writing)
        self.tell(Spawn(slot, self._seq, **fields), (theirs.fileno(), *writing))
        theirs.close()
        close_all(writing)
        if unread_output:
            executor.stdout.abandon()
            executor.stderr.abandon()
        self.executors.append(executor)
        return executor

    def told(self, executor: ExecutorHandle) -> ExecutorHandle:
        """Wait for the template's word on it (and on others meanwhile)."""
        while not executor.pid and executor.spawn_failed is None:
            received = self.next_message()
            assert received is not None, f"the template ended: {self.errors.text()}"
            message, descriptors = received
            assert isinstance(message, (Spawned, SpawnFailed)), message
            which = next(one for one in self.executors if one.seq == message.seq)
            if isinstance(message, Spawned):
                which.pid, which.pidfd = message.pid, descriptors[0]
                KNOWN.add(message.pid)
            else:
                which.spawn_failed = message.reason
        return executor

    def spawn(self, slot: int = 0, **fields: Any) -> ExecutorHandle:
        """A new executor that has said hello."""
        self.wait_ready()
        executor = self.told(self.ask(slot, **fields))
        assert executor.spawn_failed is None, executor.spawn_failed
        hello = executor.receive()
        assert isinstance(hello, Hello), (hello, executor.stderr.text())
        executor.hello = hello
        return executor

    def wait_exit(self, seconds: float = DEADLINE_S) -> Exit:
        if self.exit is None:
            self.exit = until(lambda: reap(self.pid), f"template {self.pid} ends", seconds)
        return self.exit

    def kill(self) -> None:
        send_signal(self.pid, signal.SIGKILL)
        self.wait_exit()

    def close(self) -> None:
        """End everything and insist that nothing of the tree is left."""
        for executor in self.executors:
            executor.close()
        self.sock.close()
        try:
            self.wait_exit()
        except AssertionError:
            self.kill()
            raise
        for pid in find_marked(self.mark):
            send_signal(pid, signal.SIGKILL)
        for pid in children_of(os.getpid()):
            if pid not in KNOWN and not alive(pid):
                reap(pid)


def with_fields(message: Run, **fields: Any) -> Run:
    """A copy of a message with other fields."""
    return replace(message, **fields)


if __name__ == "__main__":
    sys.exit("a library for tests")
