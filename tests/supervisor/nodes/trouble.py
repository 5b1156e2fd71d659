"""Nodes that do what nodes of real people do when they go wrong. Each is a node type ``t_<name>``."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import subprocess
import sys
import time
from typing import Any

from plaita import Node


class Line(Node):
    """Appends a line to ``file``, then sleeps ``seconds`` in small pieces or burns them, then waits for the file
    ``until`` where one is named."""

    node_type = "t_line"
    file: str
    seconds: float = 0.0
    burn: bool = False
    until: str = ""

    def execute(self, execution: Any) -> Any:
        with open(execution.evaluate(self.file), "a") as file:
            file.write(f"{execution.execution_id} {execution.node_id} {execution.attempt} {os.getpid()}\n")
        end = time.monotonic() + self.seconds
        while time.monotonic() < end:
            if not self.burn:
                time.sleep(0.01)
        while self.until and not os.path.exists(self.until):
            time.sleep(0.01)
        return execution.attempt


class Stubborn(Node):
    """Never returns and ignores every signal it can."""

    node_type = "t_stubborn"

    def execute(self, execution: Any) -> Any:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGALRM):
            signal.signal(number, signal.SIG_IGN)
        while True:
            try:
                while True:
                    time.sleep(1)
            except BaseException:
                continue


class StubbornFamily(Stubborn):
    """The same, with children of its own: one in its session, one in a session of its own, one that is nobody's child.
    Their pids are appended to ``file``."""

    node_type = "t_stubborn_family"
    file: str

    def execute(self, execution: Any) -> Any:
        family = Do(type="t_do", id=self.id, what="daemon", file=self.file)
        family.do_daemon(execution)
        family.do_setsid_child(execution)
        family.do_child(execution)
        return super().execute(execution)


class Do(Node):
    """``what`` names the misdeed."""

    node_type = "t_do"
    what: str
    size: int = 0
    file: str = ""

    def execute(self, execution: Any) -> Any:
        return getattr(self, "do_" + self.what)(execution)

    def do_os_exit(self, execution: Any) -> None:
        os._exit(self.size)

    def do_sys_exit(self, execution: Any) -> None:
        sys.exit(self.size)

    def do_sys_exit_text(self, execution: Any) -> None:
        sys.exit("goodbye")

    def do_keyboard(self, execution: Any) -> None:
        raise KeyboardInterrupt

    def do_generator_exit(self, execution: Any) -> None:
        raise GeneratorExit

    def do_base(self, execution: Any) -> None:
        raise BaseException("at the root")

    def do_error(self, execution: Any) -> None:
        raise RuntimeError("out of paper")

    def do_value_error(self, execution: Any) -> None:
        raise ValueError("no such colour")

    def do_abort(self, execution: Any) -> None:
        os.abort()

    def do_segfault(self, execution: Any) -> None:
        ctypes.string_at(0)

    def do_kill_self(self, execution: Any) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def do_memory(self, execution: Any) -> None:
        held = []
        while True:
            held.append(bytearray(8 * 1024 * 1024))
            time.sleep(0.005)

    def do_flood(self, execution: Any) -> int:
        line = b"x" * 1023 + b"\n"
        for _ in range(self.size):
            os.write(1, line)
        return self.size

    def do_junk(self, execution: Any) -> str:
        for name in os.listdir("/proc/self/fd"):
            try:
                os.write(int(name), b"\x00junk junk junk" * 64)
            except OSError:
                continue
        time.sleep(0.2)
        return "wrote"

    def do_close_all(self, execution: Any) -> str:
        os.closerange(0, 4096)
        return "closed"

    def do_child(self, execution: Any) -> int:
        return self._child(execution, "sleep 1000 & echo $! ", session=False)

    def do_setsid_child(self, execution: Any) -> int:
        return self._child(execution, "setsid sleep 1000 & echo $! ", session=False)

    def do_daemon(self, execution: Any) -> int:
        """A double fork with a session of its own: nobody's child any more."""
        reader, writer = os.pipe()
        middle = os.fork()
        if middle == 0:
            os.setsid()
            if os.fork() == 0:
                os.write(writer, str(os.getpid()).encode())
                os.close(writer)
                time.sleep(1000)
            os._exit(0)
        os.close(writer)
        pid = int(os.read(reader, 32))
        os.close(reader)
        os.waitpid(middle, 0)
        self._note(execution, pid)
        return pid

    def do_daemon_and_hang(self, execution: Any) -> None:
        self.do_daemon(execution)
        self.do_setsid_child(execution)
        self.do_child(execution)
        time.sleep(1000)

    def _child(self, execution: Any, script: str, *, session: bool) -> int:
        process = subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE, start_new_session=session)
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        process.wait()
        self._note(execution, pid)
        return pid

    def _note(self, execution: Any, pid: int) -> None:
        if self.file:
            with open(execution.evaluate(self.file), "a") as file:
                file.write(f"{pid}\n")

    def do_fork_both_return(self, execution: Any) -> int:
        return os.fork()

    def do_late(self, execution: Any) -> Any:
        """What ``<file>.what`` says, as soon as it is there."""
        name = execution.evaluate(self.file) + ".what"
        while not os.path.exists(name):
            time.sleep(0.01)
        return getattr(self, "do_" + open(name).read())(execution)

    def do_text(self, execution: Any) -> str:
        return "x" * self.size

    def do_nan(self, execution: Any) -> float:
        return float("nan")

    def do_big_integer(self, execution: Any) -> int:
        return 2**80

    def do_set(self, execution: Any) -> set[int]:
        return {1, 2}

    def do_bad_repr(self, execution: Any) -> Any:
        class Rude:
            def __repr__(self) -> str:
                raise RuntimeError("no repr for you")

        return Rude()

    def do_bad_str_error(self, execution: Any) -> None:
        class RudeError(Exception):
            def __str__(self) -> str:
                raise RuntimeError("no str for you")

        raise RudeError

    def do_surrogate(self, execution: Any) -> str:
        return "\ud800"

    def do_surrogate_error(self, execution: Any) -> None:
        raise RuntimeError("broken \ud800 text")

    def do_chdir(self, execution: Any) -> str:
        os.chdir("/")
        os.umask(0)
        os.environ["LEFT_BEHIND"] = "1"
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        return "changed"

    def do_rlimit(self, execution: Any) -> str:
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
        return "lowered"

    def do_look(self, execution: Any) -> dict[str, Any]:
        return {
            "pid": os.getpid(),
            "cwd": os.getcwd(),
            "left": os.environ.get("LEFT_BEHIND"),
            "fds": sorted(int(n) for n in os.listdir("/proc/self/fd")),
            "nofile": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
            "environment": sorted(os.environ),
        }

    def do_deep(self, execution: Any) -> Any:
        value: Any = 1
        for _ in range(100_000):
            value = [value]
        return value

    def do_recursion(self, execution: Any) -> Any:
        return self.do_recursion(execution)
