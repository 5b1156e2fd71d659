"""Supervisors as real processes for tests, each with queue, keys, socket and id of its own. Waits on conditions."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import warm

from plaita import jsontext
from plaita.cli.control_client import ask
from plaita.client import Client
from plaita.errors import PlaitaError, UnreachableError
from plaita.flow.outline import flow_hash
from plaita.store import carriers, executions, flows
from plaita.store.call import Call
from plaita.store.keys import Keys
from plaita.store.runner_sync import SyncRunner, expect

T = TypeVar("T")
NODES = Path(__file__).parent / "nodes"
CEILING_S = 60.0


def until(condition: Callable[[], T], what: str, seconds: float = CEILING_S) -> T:
    """The first true answer of ``condition``. The ceiling is for what never comes; no test depends on it."""
    deadline = time.monotonic() + seconds
    while True:
        answer = condition()
        if answer:
            return answer
        if time.monotonic() > deadline:
            raise AssertionError(f"never came: {what}")
        time.sleep(0.01)


def alive(pid: int) -> bool:
    """Whether a process runs (a zombie does not)."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


class World:
    """One queue and one set of keys on a server, with as many supervisors as a test starts."""

    def __init__(self, url: str, folder: Path) -> None:
        name = f"t{uuid.uuid4().hex[:10]}"
        self.url = url
        self.folder = folder
        self.keys = Keys(prefix=name, queue=f"{name}:queue", group="g", dlq=f"{name}:queue:dlq")
        self.runner = SyncRunner(url, name="test")
        self.client = Client(url, queue_name=self.keys.queue, consumer_group="g", key_prefix=name)
        self.supervisors: list[SupervisorProcess] = []

    def supervisor(
        self,
        *flags: str,
        instance: str = "one",
        environment: dict[str, str] | None = None,
        through: Sequence[str] = (),
        **named: Any,
    ) -> SupervisorProcess:
        """Start a supervisor; ``named`` are flags with values (``executors=2``). ``through``: a command that executes
        the one after it. Does not wait."""
        process = SupervisorProcess(self, instance, [*flags, *_flags(named)], environment or {}, through)
        self.supervisors.append(process)
        return process

    def serving(self, *flags: str, **named: Any) -> SupervisorProcess:
        """Start a supervisor and wait until it serves."""
        return self.supervisor(*flags, **named).wait_serving()

    def close(self) -> None:
        for supervisor in self.supervisors:
            supervisor.end()
        self.client.close()
        self.runner.close()

    # -- flows and executions ---------------------------------------------------------------------

    def do(self, call: Call[T]) -> T:
        return expect(self.runner.run(call))

    def put(self, flow_id: str, nodes: list[dict[str, Any]], **fields: Any) -> str:
        """Store a flow without looking at it; ``flow put`` has tests of its own."""
        definition = {"flow_id": flow_id, "nodes": nodes, **fields}
        self.do(flows.put(self.keys, flow_id, None, flow_hash(definition), jsontext.dumps(definition)))
        return flow_id

    def chain(self, flow_id: str, *steps: dict[str, Any], **fields: Any) -> str:
        """start, the steps in order, end (whose output is all results)."""
        names = [step["id"] for step in steps] + ["end"]
        nodes = [{"type": "start", "id": "start", "next": names[0]}]
        nodes += [{**step, "next": following} for step, following in zip(steps, names[1:], strict=True)]
        nodes.append({"type": "end", "id": "end", "output": "$NODE"})
        return self.put(flow_id, nodes, **fields)

    def start(self, flow_id: str, given: Any = None, **named: Any) -> str:
        return self.client.start(flow_id, given, **named).execution_id

    def wait(self, execution_id: str, seconds: float = CEILING_S) -> dict[str, Any]:
        return self.client.wait(execution_id, timeout=seconds)

    def run(self, flow_id: str, given: Any = None) -> dict[str, Any]:
        return self.wait(self.start(flow_id, given))

    def get(self, execution_id: str) -> dict[str, Any]:
        return self.client.get(execution_id)

    def row(self, execution_id: str) -> executions.Row:
        row = self.do(executions.load(self.keys, execution_id, results=True))
        assert row is not None
        return row

    def stats(self) -> carriers.QueueStats:
        return self.do(carriers.stats(self.keys))

    def node(self, execution_id: str, node_id: str) -> dict[str, Any]:
        [found] = [node for node in self.get(execution_id)["nodes"] if node["id"] == node_id]
        return found


def _flags(named: dict[str, Any]) -> list[str]:
    flags: list[str] = []
    for name, value in named.items():
        flag = "--" + name.replace("_", "-")
        if value is True:
            flags.append(flag)
        elif isinstance(value, list | tuple):
            for one in value:
                flags += [flag, str(one)]
        elif value is not None and value is not False:
            flags += [flag, str(value)]
    return flags


class SupervisorProcess:
    """One life of ``plaita-supervisor run``."""

    def __init__(
        self,
        world: World,
        instance: str,
        flags: list[str],
        environment: dict[str, str],
        through: Sequence[str] = (),
    ) -> None:
        self.world = world
        self.instance = instance
        self.socket = str(world.folder / f"{instance}.sock")
        self.log = world.folder / f"{instance}.log"
        keys = world.keys
        defaults = {
            "--executors": "2",
            "--queue-name": keys.queue,
            "--consumer-group": keys.group,
            "--instance-id": instance,
            "--socket": self.socket,
            "--key-prefix": keys.prefix,
        }
        if "--embedded" not in flags:
            defaults["--redis-url"] = world.url
        command = [*through, sys.executable, "-m", "plaita.cli.supervisor", "run"]
        for flag, value in defaults.items():
            if flag not in flags:
                command += [flag, value]
        clean = {name: value for name, value in os.environ.items() if not name.startswith("PLAITA_")}
        clean["INVOCATION_ID"] = uuid.uuid4().hex  # as of a unit
        self.environment = {**clean, "PYTHONPATH": str(NODES), "PLAITA_CONFIG": os.devnull, **environment}
        self.command = [*command, *flags]
        cold = bool(through) or "PYTHONPATH" in environment  # other code is only loaded by a process of its own
        self.process = self._start(cold=cold or "PLAITA_TEST_COLD" in os.environ)

    def _start(self, *, cold: bool) -> subprocess.Popen[bytes] | warm.WarmProcess:
        with open(self.log, "ab") as log:
            if cold:
                return subprocess.Popen(self.command, env=self.environment, stdout=log, stderr=log)
            return warm.start(self.command[3:], self.environment, log.fileno())

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def code(self) -> int | None:
        return self.process.poll()

    def text(self) -> str:
        """What it logged, up to now: its lines are written by a thread, which may be behind what its answers tell."""
        deadline = time.monotonic() + 5  # a log that takes no lines is read as it is
        while self.code is None and time.monotonic() < deadline:
            try:
                if not ask(self.socket, "status", timeout=1.0)["log_lines_waiting"]:
                    break
            except PlaitaError:  # nobody answers: not yet, not any more, or frozen
                break
        return self.log.read_text("utf-8", "replace")

    def ask(self, command: str, **arguments: Any) -> dict[str, Any]:
        return ask(self.socket, command, timeout=5.0, **arguments)

    def status(self) -> dict[str, Any] | None:
        """None while nobody answers."""
        try:
            return self.ask("status")
        except (UnreachableError, PlaitaError):
            return None

    def wait_status(self, condition: Callable[[dict[str, Any]], Any], what: str) -> dict[str, Any]:
        def look() -> dict[str, Any] | None:
            if self.code is not None:
                raise AssertionError(f"the supervisor ended with {self.code} ({what}):\n{self.text()}")
            status = self.status()
            return status if status is not None and condition(status) else None

        try:
            return until(look, what)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{json.dumps(self.status())}\n{self.text()[-6000:]}") from None

    def wait_serving(self) -> SupervisorProcess:
        """Running, connected, all executors up."""
        self.wait_status(
            lambda s: s["serving"] and all(row["state"] in ("idle", "busy") for row in s["executors"]), "serving"
        )
        return self

    def executors(self) -> list[dict[str, Any]]:
        status = self.status()
        return status["executors"] if status is not None else []

    def busy(self, node_id: str) -> dict[str, Any]:
        """The executor that is in this node now; waits until one is."""

        def look() -> dict[str, Any] | None:
            rows = [row for row in self.executors() if row["node_id"] == node_id and row["step_s"] is not None]
            return rows[0] if rows else None

        return until(look, f"an executor in node {node_id}\n{self.text()[-3000:]}")

    def kill(self) -> None:
        """SIGKILL, and reaped."""
        self.process.kill()
        self.process.wait()

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def stop(self, seconds: float = CEILING_S) -> int:
        """SIGTERM; the exit code."""
        self.signal(signal.SIGTERM)
        return self.process.wait(timeout=seconds)

    def stop_within(self, step_ends: Path) -> int:
        """SIGTERM while a step waits for this file, which comes once it drains; the exit code."""
        self.signal(signal.SIGTERM)
        self.wait_status(lambda status: status["status"] in ("draining", "stopping"), "draining")
        step_ends.touch()
        return self.wait_exit()

    def wait_exit(self, seconds: float = CEILING_S) -> int:
        return self.process.wait(timeout=seconds)

    def record_exit(self) -> None:
        """What systemd does after the end: ExecStopPost=, with how it ended in its words."""
        code = self.process.wait(timeout=CEILING_S)
        words = ("killed", signal.Signals(-code).name.removeprefix("SIG")) if code < 0 else ("exited", str(code))
        command = ["record-exit" if word == "run" else word for word in self.command]
        environment = {**self.environment, "EXIT_CODE": words[0], "EXIT_STATUS": words[1], "SERVICE_RESULT": "signal"}
        with open(self.log, "ab") as log:
            subprocess.run(command, env=environment, stdout=log, stderr=log, timeout=CEILING_S, check=True)

    def end(self) -> None:
        """For the end of a test: gone whatever it did."""
        if self.process.poll() is None:
            self.signal(signal.SIGCONT)
            self.signal(signal.SIGTERM)
            for seconds in (1.0, 6.0):  # a step that goes on for long is not waited for: the second signal forces
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self.process.wait(timeout=seconds)
                    break
                self.signal(signal.SIGTERM)
        if self.process.poll() is None:
            self.kill()

    def tree(self) -> set[int]:
        """Every living process that carries a tree mark of this supervisor (its template and all below it)."""
        found = set()
        suffix = f".{self.pid}."
        for name in os.listdir("/proc"):
            if not name.isdigit():
                continue
            with contextlib.suppress(OSError):
                environ = Path(f"/proc/{name}/environ").read_bytes()
                for entry in environ.split(b"\0"):
                    if (
                        entry.startswith(b"PLAITA_TREE=")
                        and suffix in entry.decode("ascii", "replace")
                        and alive(int(name))
                    ):
                        found.add(int(name))
        return found
