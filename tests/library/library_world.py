"""Nodes and a world for library mode: storages on the test process's server, workers that are stopped at the end."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

from plaita import Client, EventNode, Node
from plaita.nodes.builtin import BUILT_IN
from plaita.nodes.registry import NodeRegistry
from plaita.server import FlowWorker
from plaita.storage import RedisExecutionStorage, RedisFlowStorage
from plaita.store import executions
from plaita.store.call import Call
from plaita.store.keys import Keys
from plaita.store.runner_sync import SyncRunner
from plaita.testing.server import raw

T = TypeVar("T")
CEILING_S = 60.0


class Gate(Node):
    """Says that it runs and waits until it may go on; looks at ``cancel_event`` if ``heeds``."""

    node_type = "t_gate"
    name_of: str
    heeds: bool = True

    running: ClassVar[dict[str, threading.Event]] = {}
    go_on: ClassVar[dict[str, threading.Event]] = {}
    left: ClassVar[dict[str, threading.Event]] = {}

    @classmethod
    def prepare_gate(cls, name: str) -> str:
        for table in (cls.running, cls.go_on, cls.left):
            table[name] = threading.Event()
        return name

    def execute(self, execution: Any) -> Any:
        self.running[self.name_of].set()
        try:
            while not self.go_on[self.name_of].wait(0.01):
                if self.heeds and execution.cancel_event.is_set():
                    raise RuntimeError("told to stop")
            return execution.attempt
        finally:
            self.left[self.name_of].set()


class Fails(Node):
    """Raises in its first ``times`` runs of the process, by ``name_of``."""

    node_type = "t_fails"
    name_of: str
    times: int = 1
    deterministic: bool = False

    runs: ClassVar[dict[str, int]] = {}

    def execute(self, execution: Any) -> Any:
        count = self.runs[self.name_of] = self.runs.get(self.name_of, 0) + 1
        if count <= self.times:
            raise ValueError("wrong") if self.deterministic else RuntimeError(f"run {count}")
        execution.set_state("runs", count)
        return count


class Waits(EventNode):
    """Waits for ``go``."""

    node_type = "t_waits"
    event_type: str | None = "go"


def types() -> NodeRegistry:
    return NodeRegistry([*BUILT_IN, Gate, Fails, Waits])


def until(condition: Callable[[], T], what: str, seconds: float = CEILING_S) -> T:
    deadline = time.monotonic() + seconds
    while not (answer := condition()):
        assert time.monotonic() < deadline, f"never came: {what}"
        time.sleep(0.01)
    return answer


def chain(*steps: dict[str, Any]) -> dict[str, Any]:
    """start, the steps in order, end with all results."""
    names = [step["id"] for step in steps] + ["end"]
    nodes = [{"type": "start", "id": "start", "next": names[0]}]
    nodes += [{**step, "next": following} for step, following in zip(steps, names[1:], strict=True)]
    nodes.append({"type": "end", "id": "end", "output": "$NODE"})
    return {"nodes": nodes}


class World:
    """One queue and one set of keys, with as many workers as a test makes."""

    def __init__(self, url: str) -> None:
        name = f"l{uuid.uuid4().hex[:10]}"
        self.url = url
        self.queue = {"queue_name": f"{name}:queue", "consumer_group": "g"}
        self.keys = Keys(prefix=name, queue=f"{name}:queue", group="g")
        self.executions = RedisExecutionStorage(url, key_prefix=name)
        self.flows = RedisFlowStorage(url, key_prefix=name)
        self.client = Client(url, key_prefix=name, **self.queue)
        self.runner = SyncRunner(url, name="test")
        self.workers: list[FlowWorker] = []
        self.threads: list[threading.Thread] = []

    def worker(self, **settings: Any) -> FlowWorker:
        given: dict[str, Any] = {"registry": types(), "kill_grace": 0.2, **self.queue} | settings
        made = FlowWorker(self.executions, self.flows, **given)
        self.workers.append(made)
        return made

    def running(self, **settings: Any) -> FlowWorker:
        """A worker whose ``run`` goes on in a thread."""
        worker = self.worker(**settings)
        self.background(worker.run)
        return worker

    def background(self, function: Callable[..., Any], *arguments: Any, **named: Any) -> dict[str, Any]:
        """Call it in a thread; ``answer`` or ``error`` are in the dict when it has returned."""
        came: dict[str, Any] = {}

        def work() -> None:
            try:
                came["answer"] = function(*arguments, **named)
            except BaseException as error:
                came["error"] = error

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        self.threads.append(thread)
        return came

    def put(self, flow_id: str, *steps: dict[str, Any]) -> str:
        self.flows.put_flow_definition(flow_id, {"flow_id": flow_id, **chain(*steps)})
        return flow_id

    def gate(self, flow_id: str, **fields: Any) -> str:
        """A flow with a gate; its name, which no other test has."""
        name = Gate.prepare_gate(uuid.uuid4().hex)
        self.put(flow_id, {"type": "t_gate", "id": "gate", "name_of": name, **fields}, {"type": "mock", "id": "m"})
        return name

    def do(self, call: Call[T]) -> T:
        return self.runner.do(call)

    def raw(self, *words: str | bytes | int) -> Any:
        return self.runner.do(raw(*words))

    def row(self, execution_id: str) -> executions.Row:
        found = self.do(executions.load(self.keys, execution_id, results=True))
        assert found is not None
        return found

    def lengths(self) -> tuple[int, int, int]:
        """Entries of the queue, of the wake stream, delayed ones."""
        found = [self.raw("XLEN", self.keys.queue), self.raw("XLEN", self.keys.wake)]
        return found[0], found[1], self.raw("ZCARD", self.keys.delayed)

    def close(self) -> None:
        for table in (Gate.go_on,):
            for event in table.values():
                event.set()
        for worker in self.workers:
            worker.stop()
        for thread in self.threads:
            thread.join(CEILING_S)
        self.executions.close()
        self.flows.close()
        self.client.close()
        self.runner.close()
