"""The real thing for the model of one execution's life: a server, a client, and the dispatch of library mode, which
takes one carrier at a time and only when it is told to. Nothing happens here by itself: no loop promotes, renews or
reads; what time would do is a deed like any other.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import Counter
from dataclasses import dataclass
from typing import Any, ClassVar, cast

from one_life_table import Deed, event_data

from plaita import Client, EventNode, Node, jsontext
from plaita.client import operations
from plaita.client.replaying import Manner, Wanted
from plaita.errors import RefusedError, ResumeError
from plaita.flow.outline import flow_hash
from plaita.ids import new_incarnation
from plaita.nodes.builtin import BUILT_IN
from plaita.nodes.registry import NodeRegistry
from plaita.runtime_config import generations, load_runtime_config
from plaita.server.in_process import ThreadPool
from plaita.store import carriers, delayed, executions
from plaita.store.carriers import Entry, Take
from plaita.store.keys import STATUSES
from plaita.store.runner_async import AsyncRunner
from plaita.supervisor.lease_keeper import LeaseKeeper
from plaita.supervisor.pool import Pool
from plaita.supervisor.sender import Sender
from plaita.supervisor.stats import Stats
from plaita.supervisor.wiring import build_way
from plaita.testing.server import Server

CEILING_S = 60.0
FLOW, OTHER_FLOW = "f", "g"
CONSUMER = "consumer"
IDLE_NEVER_MS = 10**10
COUNTERS = ("noderefetch", "nofail", "g1wakeups")


class Scripted(Node):
    """Does what the stage says."""

    node_type = "t_scripted"
    tag: str

    def execute(self, execution: Any) -> Any:
        return Stage.on.called(execution, self.id, self.tag, "execute")


class Waiting(EventNode):
    """Waits for ``go``, and does what the stage says before and after."""

    node_type = "t_waiting"
    event_type: str | None = "go"
    tag: str

    def execute(self, execution: Any) -> Any:
        return Stage.on.called(execution, self.id, self.tag, "execute")

    def on_event(self, execution: Any, event_data: Any) -> Any:
        return Stage.on.called(execution, self.id, self.tag, "on_event", event_data) | {"data": event_data}

    def on_timeout(self, execution: Any) -> Any:
        return Stage.on.called(execution, self.id, self.tag, "on_timeout")

    def on_cancel(self, execution: Any) -> None:
        Stage.on.calls.append((execution.execution_id, self.id, "on_cancel", None))


def definition(tag: str) -> dict[str, Any]:
    steps = [
        {"type": "start", "id": "start", "next": "a"},
        {"type": "t_scripted", "id": "a", "tag": tag, "next": "w"},
        {"type": "t_waiting", "id": "w", "tag": tag, "subscription_timeout": 3600, "next": "b"},
        {"type": "t_scripted", "id": "b", "tag": tag, "next": "v"},
        {"type": "t_waiting", "id": "v", "tag": tag, "subscription_timeout": 3600, "next": "end"},
        {"type": "end", "id": "end", "output": {node: f"$NODE.{node}" for node in ("a", "w", "b", "v")}},
    ]
    return {"flow_id": FLOW, "nodes": steps}


BODIES: dict[str, tuple[str, bytes]] = {}


def body(tag: str) -> tuple[str, bytes]:
    """Hash and text of a definition."""
    if tag not in BODIES:
        made = definition(tag)
        BODIES[tag] = flow_hash(made), jsontext.dumps(made)
    return BODIES[tag]


@dataclass
class Photo:
    """What the server holds of one execution. ``indexes``: where it stands."""

    row: executions.Row | None
    indexes: tuple[str, ...]
    counters: dict[str, int]
    held: bool
    cancel: bool


class Stage:
    """One for a whole run; ``reset`` before each example."""

    on: ClassVar[Stage]

    def __init__(self, server: Server) -> None:
        self.server = server
        config = load_runtime_config(
            "worker",
            flags={
                "redis_url": server.url,
                "instance_id": "host",
                "consumer_name": CONSUMER,
                "queue_name": "life:queue",
                "consumer_group": "g",
                "key_prefix": "life",
                "executors": 2,
                "kill_grace": 1.0,
                "max_deliveries": 2,
                "lease_ttl_seconds": 600,
            },
            file=os.devnull,
        )
        self.config = config
        self.client = Client(server.url, key_prefix="life", queue_name="life:queue", consumer_group="g")
        self.keys = self.client.keys
        self.loop = asyncio.new_event_loop()
        self.runner = self.loop.run_until_complete(self._connect())
        Stage.on = self

    async def _connect(self) -> AsyncRunner:
        return AsyncRunner(self.server.url)

    def close(self) -> None:
        self.pool.close()
        self.loop.run_until_complete(self.runner.close())
        self.loop.close()
        self.client.close()

    def reset(self) -> None:
        self.server.flush()
        self.stats = Stats()
        self.serial = self.hosts = 0
        self.leaves = False
        self.dies = ""
        self.calls: list[tuple[str, str, str, Any]] = []
        self.plans: list[list[tuple[str, Deed | None]]] = []
        self.in_hand: list[Entry] = []
        self.by_hand: set[str] = set()
        self.restart()

    def restart(self, same: bool = False) -> None:
        """Another host in its place, or the ``same`` once more: it remembers nothing."""
        if hasattr(self, "pool"):
            self.pool.close()
        self.hosts += not same
        host, incarnation = f"host{self.hosts}", new_incarnation()
        self.holder = f"{host}/{incarnation}"
        self.pool = ThreadPool(
            self.loop,
            NodeRegistry([*BUILT_IN, Scripted, Waiting]),
            self.stats,
            callbacks=None,
            keep=2,
            grace_s=1.0,
            on_capacity=lambda: None,
        )
        keeper = LeaseKeeper(
            self.runner,
            self.keys,
            CONSUMER,
            self.config.lease_ttl_seconds * 1000,
            self.stats,
            ask=lambda held, reason, grace_s: None,
            kill=lambda held, detail: None,
            tick=lambda kill_at: None,
        )

        async def holder_record(instance: str) -> tuple[str, str] | None:
            return (incarnation, "running") if instance == host else None

        self.dispatch = build_way(
            self.config,
            generations(self.config),
            self.holder,
            self.keys,
            Sender(self.runner, self.stats),
            cast(Pool, self.pool),
            keeper,
            self.stats,
            leaving=lambda: self.leaves,
            holder_record=holder_record,
        ).dispatch

    def raw(self, *command: str | bytes | int) -> Any:
        return self.server.do(*command)

    # -- node code -----------------------------------------------------------------------------------------

    def called(self, execution: Any, node: str, tag: str, method: str, data: Any = None) -> dict[str, Any]:
        """In the executor's thread, while the loop runs in the test's."""
        self.serial += 1
        result = {"n": self.serial, "tag": tag}
        self.calls.append((execution.execution_id, node, method, data))
        plan = self.plans[-1]
        outcome, meanwhile = plan.pop(0) if plan else ("ok", None)
        if meanwhile is not None:
            meanwhile.answers.append(self.do(meanwhile))
        self.leaves = outcome == "drains"
        self.dies = outcome if outcome in ("dies", "restarts") else ""
        if self.dies:
            self.loop.call_soon_threadsafe(self.task.cancel)
            assert self.dead.wait(CEILING_S)
        elif outcome == "wrong":
            raise TimeoutError("too late") if method == "on_timeout" else ValueError("wrong")
        elif outcome == "fails":
            raise ResumeError("bad data") if method == "on_event" else RuntimeError("fails")
        return result

    # -- deeds ---------------------------------------------------------------------------------------------

    def do(self, deed: Deed) -> str:
        try:
            found: str = getattr(self, f"do_{deed.what}")(deed)
        except RefusedError as error:
            return error.reason
        return found

    def do_start(self, deed: Deed) -> str:
        started = self.client.start(FLOW, {"of": deed.name}, execution_id=deed.name, dedup_key=deed.dedup or None)
        if started.deduplicated:
            return f"dedup {started.execution_id} {started.status}"
        assert started.status == "pending"
        return "done"

    def do_resume(self, deed: Deed) -> str:
        answer = self.client.resume(deed.name, deed.kind, event_data(deed.event) if deed.kind == "event" else None)
        assert answer["resumed"] == (answer["reason"] is None)
        limits = ("g1_wakeups_exhausted", "deterministic_failure_exhausted")
        assert answer.get("already_terminal", False) == (answer["reason"] in ("already_terminal", *limits))
        assert answer.get("already_suspended", False) == (answer["reason"] == "already_suspended")
        if answer["reason"] in limits:
            word = {"g1_wakeups_exhausted": "g1wakeups", "deterministic_failure_exhausted": "nofail"}[answer["reason"]]
            assert answer["counter_key"] == self.keys.of_execution(word, deed.name)
        return answer["reason"] or "done"

    def do_cancel(self, deed: Deed) -> str:
        answer = self.client.cancel(deed.name, "enough")
        assert (answer["cancel"] == "requested") == answer["cancel_requested"]
        return "done" if answer["cancel_requested"] else "already_terminal"

    def do_rm(self, deed: Deed) -> str:
        self.client.perform(operations.remove_execution(self.keys, deed.name, "because", deed.force))
        return "done"

    def do_replay(self, deed: Deed) -> str:
        dlq_id = self.letters()[deed.letter][0]
        answer = self.client.replay_dead_letters(Wanted(dlq_ids=[dlq_id]), Manner(force=deed.force, rate=0))
        (entry,) = answer["entries"]
        if entry["outcome"] == "replayed" and (entry["enqueued_as"], entry["status"]) == ("retry", "error"):
            return "retry"
        return str(entry["outcome"])

    def do_put(self, deed: Deed) -> str:
        version = None
        if deed.force and (known := self.client.perform(operations.list_flows(self.keys))):
            version = known[0]["latest"]
        hashed, text = body(deed.tag)
        return self.client.perform(
            operations.put_flow(self.keys, FLOW, version, hashed, text, force=deed.force)
        ).version

    def do_put_over(self, deed: Deed) -> str:
        known = self.client.perform(operations.list_flows(self.keys))
        hashed, text = body(deed.tag)
        version = known[0]["latest"] if known else None
        return self.client.perform(operations.put_flow(self.keys, FLOW, version, hashed, text, force=False)).version

    def do_flow_rm(self, deed: Deed) -> str:
        answer = self.client.perform(operations.remove_flow(self.keys, FLOW))
        return f"{answer['versions_removed']} removed, {answer['executions_going_on']} going on"

    def do_lose_body(self, deed: Deed) -> str:
        """What was forgotten on the server, the host must not remember for it."""
        if deed.tag:
            self.raw("DEL", self.keys.flow_body(body(deed.tag)[0]))
        self.restart()
        return "done"

    def do_give_body(self, deed: Deed) -> str:
        if deed.tag:
            hashed, text = body(deed.tag)
            self.raw("SET", self.keys.flow_body(hashed), text)
        return "done"

    def do_foreign(self, deed: Deed) -> str:
        payload: dict[str, Any] = {"execution_id": deed.name, "tenant_id": "default"}
        fields: dict[str, str] = {}
        if deed.kind in ("foreign", "other_flow"):
            payload |= {"type": "start", "params": {"of": deed.name}}
            payload["flow_id"] = FLOW if deed.kind == "foreign" else OTHER_FLOW
            if deed.dedup:
                payload["dedup_key"] = deed.dedup
        else:
            known = deed.kind in ("event", "timeout", "continue", "retry", "cancel")
            payload |= {"type": "resume", "resume_type": deed.kind if known else "continue", "flow_id": FLOW}
            if deed.kind == "event":
                payload["data"] = event_data(deed.event)
            if deed.wait:
                payload["wait"] = deed.wait
        text = jsontext.dumps(payload)
        if deed.kind == "too_new":
            fields["schema_version"] = "99"
        if deed.kind == "malformed":
            text = b"{" if deed.unread else text.replace(b'"continue"', b'"go on"')
        if deed.routed:
            fields |= {"execution_id": deed.name, "tenant_id": "default"}
        stream = "q" if payload["type"] == "start" else "w"
        entry_id = self.client._runner.do(carriers.enqueue(self.keys, stream, [("payload", text), *fields.items()]))
        deed.taken = f"{stream} {entry_id}", ("", None, "")
        return "done"

    def do_timer(self, deed: Deed) -> str:
        for member in self.delayed():
            if member.startswith("wait ") and member.split()[2] == deed.name:
                self.raw("ZADD", self.keys.delayed, "XX", 0, member)
        self.client._runner.do(delayed.promote(self.keys))
        return "done"

    def do_delays(self, deed: Deed) -> str:
        for member in self.delayed():
            if not member.startswith("wait "):
                self.raw("ZADD", self.keys.delayed, "XX", 0, member)
        self.client._runner.do(delayed.promote(self.keys))
        return "done"

    def do_lease_ends(self, deed: Deed) -> str:
        self.raw("DEL", self.keys.lease(deed.name))
        return "done"

    def do_near_limit(self, deed: Deed) -> str:
        status = self.photo(deed.name).row
        found = "none" if status is None else status.status
        if found == "error":
            self.raw("SET", self.keys.of_execution("nofail", deed.name), 12)
        elif found in ("running", "suspended"):
            self.raw("SET", self.keys.of_execution("noderefetch", deed.name), 100)
        return found

    def do_unblock(self, deed: Deed) -> str:
        self.raw("DEL", *(self.keys.of_execution(word, deed.name) for word in ("nofail", "g1wakeups")))
        return "done"

    # -- the queue -------------------------------------------------------------------------------------------

    def do_work(self, deed: Deed) -> str:
        """One carrier is taken and seen to its end."""
        entry = self.take(deed)
        if entry is None:
            return "nothing"
        self.plans.append(list(deed.plan))
        self.in_hand.append(entry)
        try:
            if len(self.in_hand) == 1:
                self.carry(entry)
            else:  # while another is in hand, whose node does this
                asyncio.run_coroutine_threadsafe(self.dispatch.carry(entry), self.loop).result(CEILING_S)
        finally:
            self.in_hand.pop()
            self.plans.pop()
        return f"{entry.stream} {entry.entry_id}"

    def do_reader_dies(self, deed: Deed) -> str:
        self.take(deed)
        return "done"

    def take(self, deed: Deed) -> Entry | None:
        request = Take(
            consumer=CONSUMER,
            count=1,
            min_idle_ms=IDLE_NEVER_MS if deed.fresh else 0,
            holder=self.holder,
            family=generations(self.config).config_family,
            budget=generations(self.config).budget_generation,
            in_hand=[f"{entry.stream} {entry.entry_id}" for entry in self.in_hand],
        )
        taken = self.client._runner.do(carriers.take(self.keys, request)).entries
        for entry in taken:
            deed.taken = f"{entry.stream} {entry.entry_id}", looks(entry.fields)
            return entry
        return None

    def carry(self, entry: Entry) -> None:
        self.dead = threading.Event()
        self.leaves = False
        self.task = self.loop.create_task(self.dispatch.carry(entry))
        try:
            self.loop.run_until_complete(self.task)
        except asyncio.CancelledError:  # its process was killed in the middle of a step
            self.dead.set()
            self.restart(self.dies == "restarts")
        self.leaves = False

    # -- what is there -----------------------------------------------------------------------------------------

    def photo(self, name: str) -> Photo:
        indexes = tuple(
            word or "all" for word in (*STATUSES, None) if self.raw("ZSCORE", self.keys.index(word), name) is not None
        )
        if self.raw("ZSCORE", self.keys.expiry, name) is not None:
            indexes += ("expiry",)
        names = {word: self.keys.of_execution(word, name) for word in COUNTERS}
        names |= {node: self.keys.noderetry(name, node) for node in ("a", "w", "b", "v")}
        found = self.raw("MGET", *names.values(), self.keys.lease(name), self.keys.cancel(name))
        row = self.client._runner.do(executions.load(self.keys, name, results=True))
        return Photo(
            row,
            indexes,
            {word: int(count or 0) for word, count in zip(names, found, strict=False)},
            found[-2] is not None,
            found[-1] is not None,
        )

    def entries(self) -> dict[str, tuple[tuple[str, str | None, str], bool]]:
        """Looks of each carrier, and whether it is pending, in the order of their ids; the group's last id included."""
        there = {}
        for letter in ("q", "w"):
            key = self.keys.stream(letter)
            found = self.raw("XRANGE", key, "-", "+")
            pending = set()
            if self.raw("EXISTS", key) and self.raw("XINFO", "GROUPS", key):
                pending = {entry[0] for entry in self.raw("XPENDING", key, self.keys.group, "-", "+", 1000)}
            for entry_id, flat in found:
                fields = dict(zip(flat[::2], flat[1::2], strict=True))
                there[f"{letter} {entry_id.decode()}"] = looks(fields), entry_id in pending
        return there

    def delayed(self) -> list[str]:
        return [member.decode() for member in self.raw("ZRANGE", self.keys.delayed, 0, -1)]

    def delayed_names(self) -> Counter[tuple[str, str, str]]:
        """Timers by execution and wait, copies by execution."""
        words = [member.split() for member in self.delayed()]
        return Counter(("timer", word[2], word[3]) if word[0] == "wait" else ("copy", word[1], "") for word in words)

    def letters(self) -> list[tuple[str, str | None, bool]]:
        """Ids and executions of the dead letters, and whether their fields are kept byte for byte."""
        found = []
        for dlq_id, flat in self.raw("XRANGE", self.keys.dead_letters, "-", "+"):
            fields = dict(zip(flat[::2], flat[1::2], strict=True))
            letter = jsontext.loads(fields[b"payload"])
            found.append((dlq_id.decode(), letter["execution_id"], "raw_fields" in letter))
        return found


def looks(fields: dict[bytes, bytes]) -> tuple[str, str | None, str]:
    """Kind, execution and wait of a carrier."""
    if fields.get(b"schema_version", b"1") == b"99":
        return "too_new", jsontext.loads(fields[b"payload"])["execution_id"], ""
    try:
        payload = jsontext.loads(fields[b"payload"])
    except jsontext.JSONTextError:
        return "malformed", fields[b"execution_id"].decode() if b"execution_id" in fields else None, ""
    name = payload["execution_id"]
    if payload["type"] == "start":
        kind = "start" if payload.get("input_in_row") else "foreign"
        return kind if payload["flow_id"] == FLOW else "other_flow", name, ""
    kind = payload["resume_type"]
    wait = payload.get("wait") or fields.get(b"wait", b"").decode()
    return "malformed" if kind == "go on" else kind, name, wait
