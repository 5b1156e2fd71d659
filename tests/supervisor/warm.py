"""Supervisors for tests without their imports: forked from a process that has done nothing but import.

Half of the processor time of a test was a fresh interpreter reading modules. What is forked here runs the same ``main``
with its own arguments, environment, output and signals; it is a process like any other, and template and executors are
executed and forked by it as always. ``PLAITA_TEST_COLD=1`` (``make test-long``) starts all supervisors by exec instead.

This file is both sides: imported, the client; executed, the process that forks. It has one thread, no loop, no sockets
of plaita's; it ends, and ends what it forked, when the test process goes away.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence

LARGEST = 1 << 17
LOOK_S = 0.05


class WarmProcess:
    """What ``subprocess.Popen`` offers of a process that is somebody else's child."""

    def __init__(self, stable: Stable, pid: int, args: list[str]) -> None:
        self._stable = stable
        self.pid = pid
        self.args = args
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """The exit code; minus the signal's number where one ended it; None while it lives."""
        if self.returncode is None:
            self.returncode = self._stable.ended(self.pid)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Raises subprocess.TimeoutExpired."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if deadline is not None and time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
            self._stable.look(LOOK_S)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)  # reaped or not, the number is not used again so soon

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class Stable:
    """The client's end: asks for processes, hears of their ends."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ended: dict[int, int] = {}
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._keeper = subprocess.Popen(
                [sys.executable, __file__, str(theirs.fileno())], pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL
            )
        self._sock = ours

    def start(self, arguments: Sequence[str], environment: dict[str, str], output: int) -> WarmProcess:
        """``plaita-supervisor`` with these arguments; ``output`` becomes its stdout and stderr."""
        request = json.dumps({"arguments": list(arguments), "environment": environment, "folder": os.getcwd()})
        with self._lock:
            socket.send_fds(self._sock, [request.encode()], [output])
            while (pid := self._read()) is None:
                pass
        return WarmProcess(self, pid, [sys.executable, "-m", "plaita.cli.supervisor", *arguments])

    def ended(self, pid: int) -> int | None:
        self.look(0.0)
        with self._lock:
            return self._ended.get(pid)

    def look(self, seconds: float) -> None:
        """Hear what there is to hear, waiting so long for the first of it."""
        with self._lock:
            while select.select([self._sock], [], [], seconds)[0]:
                self._read()
                seconds = 0.0

    def _read(self) -> int | None:
        """One message: an end is noted, the pid of a process that was asked for is answered."""
        said = self._sock.recv(LARGEST)
        if not said:
            raise AssertionError("the process that forks supervisors is gone")
        message = json.loads(said)
        if "started" in message:
            self._ended.pop(message["started"], None)
            return int(message["started"])
        self._ended[message["pid"]] = message["code"]
        return None


_stable: list[Stable] = []


def start(arguments: Sequence[str], environment: dict[str, str], output: int) -> WarmProcess:
    """From the one that this test process has; made at the first use."""
    if not _stable:
        _stable.append(Stable())
    return _stable[0].start(arguments, environment, output)


# -- the other side --------------------------------------------------------------------------------------


def serve(sock: socket.socket) -> list[str]:
    """Fork for each request. Returns in the forked process only, with its arguments."""
    children: set[int] = set()
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_read, False)
    os.set_blocking(wake_write, False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.set_wakeup_fd(wake_write)
    while True:
        ready = select.select([sock, wake_read], [], [])[0]
        if wake_read in ready:
            os.read(wake_read, 4096)
            for pid in list(children):
                gone, status = os.waitpid(pid, os.WNOHANG)
                if gone:
                    children.discard(pid)
                    _say(sock, {"pid": pid, "code": os.waitstatus_to_exitcode(status)})
        if sock in ready:
            said, files, _, _ = socket.recv_fds(sock, LARGEST, 1)
            if not said:
                for pid in children:
                    os.kill(pid, signal.SIGKILL)
                os._exit(0)
            request = json.loads(said)
            pid = os.fork()
            if pid == 0:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                for descriptor in (1, 2):
                    os.dup2(files[0], descriptor)
                for descriptor in (files[0], wake_read, wake_write):
                    os.close(descriptor)
                sock.close()
                os.chdir(request["folder"])
                os.environ.clear()
                os.environ.update(request["environment"])
                arguments: list[str] = request["arguments"]
                return arguments
            children.add(pid)
            os.close(files[0])
            _say(sock, {"started": pid})


def _say(sock: socket.socket, message: dict[str, int]) -> None:
    try:
        sock.send(json.dumps(message).encode())
    except BrokenPipeError:
        pass  # the next read sees its end


if __name__ == "__main__":
    import setproctitle
    import uvloop  # noqa: F401

    import plaita.supervisor.main  # noqa: F401
    from plaita.cli.supervisor import main

    setproctitle.getproctitle()  # it finds the place of the title by the environment that this process began with
    main(serve(socket.socket(fileno=int(sys.argv[1]))))
