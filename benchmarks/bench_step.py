"""Durable steps a second, executions a second and idle latency, each beside a bare client in the same run.

The bare client (redis.asyncio, its pool) sends the same commands, one a round trip, eight in flight: it is what plaita
would cost if supervisor, pipes and executors were free. Figures of one machine say little; the ratio says more.
Ends with where one step's time goes. Exit code 1 when an execution did not complete; never because of a figure.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import redis.asyncio
from rich.console import Console
from rich.table import Table

from plaita import jsontext
from plaita.client import Client
from plaita.policy.carrier import start_payload
from plaita.store import carriers, executions, flows
from plaita.store.call import Call
from plaita.store.carriers import Take
from plaita.store.executions import Begin, Commit, Finish, Start
from plaita.store.keys import Keys

HERE = Path(__file__).parent
CHAIN = 100
EXECUTORS = 8


def chain(length: int) -> dict[str, Any]:
    """start, ``length`` no-op steps, end."""
    nodes: list[dict[str, Any]] = [{"type": "start", "id": "start", "next": "n0"}]
    for n in range(length):
        following = f"n{n + 1}" if n + 1 < length else "end"
        nodes.append({"type": "mock", "id": f"n{n}", "value": n, "next": following})
    nodes.append({"type": "end", "id": "end", "output": "done"})
    return {"flow_id": f"chain-{length}", "nodes": nodes}


LATENCY_FLOW = {
    "flow_id": "latency",
    "nodes": [
        {"type": "bench_clock", "id": "clock", "next": "end"},
        {"type": "end", "id": "end", "output": "$NODE.clock"},
    ],
}
NOOP_FLOW = {"flow_id": "noop", "nodes": [{"type": "end", "id": "end", "output": 1}]}


def _ms(moment: str) -> float:
    return datetime.fromisoformat(moment).timestamp() * 1000


class Bench:
    """A supervisor on an embedded server, and a client beside it."""

    def __init__(self, folder: Path, executors: int) -> None:
        self.folder = folder
        environment = {**os.environ, "PYTHONPATH": str(HERE)}
        self.socket = str(folder / "supervisor.sock")
        command = [sys.executable, "-m", "plaita.cli.supervisor", "run", "--embedded", str(folder / "data")]
        command += ["--executors", str(executors), "--preload", "bench_nodes", "--socket", self.socket, "--quiet"]
        with open(folder / "supervisor.log", "ab") as log:
            self.process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        self.wait_until_serving()
        self.client = Client(embedded=str(folder / "data"))

    def status(self) -> dict[str, Any] | None:
        from plaita.cli.control_client import ask
        from plaita.errors import UnreachableError

        try:
            return ask(self.socket, "status")
        except UnreachableError:
            return None

    def wait_until_serving(self) -> None:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            status = self.status()
            if status and status["status"] == "running" and all(r["state"] == "idle" for r in status["executors"]):
                return
            time.sleep(0.05)
        raise SystemExit((self.folder / "supervisor.log").read_text())

    def url(self) -> str:
        from plaita.store.embedded import Embedded

        with Embedded.open(self.folder / "data") as embedded:
            return embedded.url

    def put(self, definition: dict[str, Any]) -> None:
        from plaita.flow.outline import flow_hash
        from plaita.store.runner_sync import SyncRunner, expect

        with SyncRunner(self.url()) as runner:
            body = jsontext.dumps(definition)
            expect(runner.run(flows.put(Keys(), definition["flow_id"], None, flow_hash(definition), body)))

    def run_all(self, flow_id: str, count: int) -> float:
        """Seconds from the first execution's begin to the last one's end, by the rows' own times."""
        self.pause(True)
        ids = [self.client.start(flow_id).execution_id for _ in range(count)]
        self.pause(False)
        rows = self.client.wait_all(ids, timeout=300)
        elapsed = (max(_ms(row["ended_at"]) for row in rows) - min(_ms(row["started_at"]) for row in rows)) / 1000
        bad = [row["execution_id"] for row in rows if row["status"] != "completed"]
        if bad:
            raise SystemExit(f"{len(bad)} of {count} executions of {flow_id} did not complete: {bad[:3]}")
        return elapsed

    def pause(self, on: bool) -> None:
        from plaita.cli.control_client import ask

        ask(self.socket, "pause" if on else "resume")

    def close(self) -> None:
        self.client.close()
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(timeout=30)


# -- the bare client ---------------------------------------------------------------------------------------


class Bare:
    """Sends plaita's own calls through redis.asyncio's pooled client: one call, one round trip."""

    def __init__(self, url: str) -> None:
        self.redis = redis.asyncio.Redis.from_url(url, protocol=2, max_connections=32)

    async def send(self, call: Call[Any]) -> Any:
        if call.script is not None:
            try:
                reply = await self.redis.evalsha(call.script.sha, len(call.keys), *call.keys, *call.args)
            except redis.exceptions.NoScriptError:
                reply = await self.redis.eval(call.script.text, len(call.keys), *call.keys, *call.args)
            assert reply[0] == b"ok", (call.name, reply)
            return call.parse(reply[1:])
        return call.parse(await self.redis.execute_command(*call.args))

    async def begin(self, keys: Keys, name: str, flow_id: str) -> Any:
        payload = start_payload(execution_id=name, flow_id=flow_id, version=None, tenant_id="default", timestamp="x")
        await self.send(executions.start(keys, Start(name, flow_id, b"{}", payload)))
        taken = await self.send(carriers.take(keys, Take("bare", 1, 60_000, "bare/0")))
        entry = taken.entries[0]
        begin = Begin(
            entry.fields[b"execution_id"].decode(), "bare/0", os.urandom(8).hex(), 120_000, "q", entry.entry_id, 5
        )
        return begin, entry, await self.send(executions.begin(keys, begin))

    async def chain(self, keys: Keys, name: str, steps: int) -> float:
        """Seconds for ``steps`` commits of one execution, one after the other."""
        begin, _, begun = await self.begin(keys, name, f"chain-{CHAIN}")
        timing = jsontext.dumps(
            {
                "order": 1,
                "type": "mock",
                "status": "completed",
                "started_at": 1,
                "ended_at": 2,
                "attempts": 1,
                "visit": 1,
            }
        )
        started = time.monotonic()
        for step in range(steps):
            await self.send(
                executions.commit(
                    keys,
                    Commit(
                        begin.execution_id,
                        begun.token,
                        step + 1,
                        120_000,
                        begun.lease_value,
                        f"n{step}",
                        b"1",
                        timing,
                        f"n{step + 1}",
                        nodes=step,
                    ),
                )
            )
        return time.monotonic() - started

    async def execution(self, keys: Keys, name: str) -> None:
        """What an execution of one step costs: start, take, begin, finish."""
        begin, entry, begun = await self.begin(keys, name, "noop")
        end = Finish(
            begin.execution_id, begun.token, 1, "completed", "q", entry.entry_id, 86_400_000, "end", b"1", b"{}", b"1"
        )
        await self.send(executions.finish(keys, end))


async def bare_steps(url: str, chains: int, steps: int) -> float:
    """Commits a second with eight in flight."""
    bare, keys = Bare(url), Keys(queue="bare:queue")
    await asyncio.gather(*(bare.chain(keys, f"warm-{n}", 5) for n in range(EXECUTORS)))
    waiting = iter(range(chains))

    async def worker() -> float:
        total = 0.0
        for n in waiting:
            total += await bare.chain(keys, f"bare-{n}", steps)
        return total

    busy = await asyncio.gather(*(worker() for _ in range(EXECUTORS)))
    await bare.redis.aclose()
    return chains * steps / (sum(busy) / EXECUTORS)


async def bare_executions(url: str, count: int) -> float:
    bare, keys = Bare(url), Keys(queue="bare:queue")
    waiting = iter(range(count))

    async def worker() -> None:
        for n in waiting:
            await bare.execution(keys, f"bare-noop-{n}")

    started = time.monotonic()
    await asyncio.gather(*(worker() for _ in range(EXECUTORS)))
    elapsed = time.monotonic() - started
    await bare.redis.aclose()
    return count / elapsed


async def bare_latency(url: str, count: int) -> list[float]:
    """Milliseconds from before an XADD to a reader in a blocking XREADGROUP having it."""
    writer = redis.asyncio.Redis.from_url(url, protocol=2)
    reader = redis.asyncio.Redis.from_url(url, protocol=2)
    await writer.xgroup_create("bare:latency", "g", id="0", mkstream=True)
    found = []
    for _ in range(count):
        waiting = asyncio.create_task(reader.xreadgroup("g", "c", {"bare:latency": ">"}, count=1, block=5000))
        await asyncio.sleep(0.01)
        sent = time.time_ns()
        await writer.xadd("bare:latency", {"payload": "x"})
        await waiting
        found.append((time.time_ns() - sent) / 1e6)
    await writer.aclose()
    await reader.aclose()
    return found


# -- the run ---------------------------------------------------------------------------------------------------


def latency(bench: Bench, count: int) -> list[float]:
    """Milliseconds from before the client's start to the first node's own clock, one at a time."""
    found = []
    for _ in range(count):
        time.sleep(0.01)
        sent = time.time_ns()
        started = bench.client.start("latency")
        row = bench.client.wait(started.execution_id, timeout=30)
        found.append((int(row["output"]) - sent) / 1e6)
    return found


def percentile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def cpu_seconds(pids: list[int]) -> float:
    """User and system time of these processes so far."""
    total = 0.0
    for pid in pids:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
        total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return total


def server_pid(folder: Path) -> int:
    return int((folder / "data" / "server.pid").read_text())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--chains", type=int, default=80, help=f"executions of {CHAIN} steps (default 80)")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    options = parser.parse_args()
    console = Console(stderr=options.json)
    with tempfile.TemporaryDirectory(prefix="plaita-bench-") as name:
        folder = Path(name)
        bench = Bench(folder, EXECUTORS)
        try:
            figures = measure(bench, folder, options.chains)
        finally:
            bench.close()
    if options.json:
        print(json.dumps(figures))
    else:
        show(console, figures)
    return 0


def measure(bench: Bench, folder: Path, chains: int) -> dict[str, Any]:
    for definition in (chain(CHAIN), NOOP_FLOW, LATENCY_FLOW):
        bench.put(definition)
    url = bench.url()
    bench.run_all(f"chain-{CHAIN}", EXECUTORS)  # warm: every executor has the flow
    status = bench.status()
    assert status is not None
    workers = [row["pid"] for row in status["executors"]]
    groups = {"supervisor": [status["pid"]], "executors": workers, "redis": [server_pid(folder)]}
    before = {what: cpu_seconds(pids) for what, pids in groups.items()}
    elapsed = bench.run_all(f"chain-{CHAIN}", chains)
    steps = chains * (CHAIN + 2)
    spent = {what: (cpu_seconds(pids) - before[what]) / steps * 1e6 for what, pids in groups.items()}
    after = bench.status()
    assert after is not None
    waits = {
        what: (after["timings"][what] - status["timings"][what])
        / max(1, after["counters"]["steps"] - status["counters"]["steps"])
        for what in ("pipe_us", "commit_us")
    }
    plain = asyncio.run(bare_steps(url, chains, CHAIN))
    noop_count = 1000
    noop = noop_count / bench.run_all("noop", noop_count)
    noop_plain = asyncio.run(bare_executions(url, noop_count))
    idle = latency(bench, 200)
    idle_plain = asyncio.run(bare_latency(url, 200))
    return {
        "steps_per_s": steps / elapsed,
        "bare_steps_per_s": plain,
        "steps_ratio": steps / elapsed / plain,
        "executions_per_s": noop,
        "bare_executions_per_s": noop_plain,
        "executions_ratio": noop / noop_plain,
        "latency_ms": {"p50": statistics.median(idle), "p99": percentile(idle, 0.99)},
        "bare_latency_ms": {"p50": statistics.median(idle_plain), "p99": percentile(idle_plain, 0.99)},
        "cpu_us_per_step": spent,
        "wait_us_per_step": waits,
    }


def show(console: Console, figures: dict[str, Any]) -> None:
    table = Table(
        "figure", "plaita", "bare client", "ratio", title=f"{EXECUTORS} executors, chains of {CHAIN} no-op steps"
    )
    table.add_row(
        "durable steps/s",
        f"{figures['steps_per_s']:,.0f}",
        f"{figures['bare_steps_per_s']:,.0f}",
        f"{figures['steps_ratio']:.2f} (aim 0.35)",
    )
    table.add_row(
        "no-op executions/s",
        f"{figures['executions_per_s']:,.0f}",
        f"{figures['bare_executions_per_s']:,.0f}",
        f"{figures['executions_ratio']:.2f}",
    )
    for share in ("p50", "p99"):
        ours, plain = figures["latency_ms"][share], figures["bare_latency_ms"][share]
        aim = " (aim: under 2 ms)" if share == "p50" else ""
        table.add_row(f"idle latency {share}, ms", f"{ours:.2f}{aim}", f"{plain:.2f}", f"{ours / plain:.1f}")
    console.print(table)
    where = Table("where one step's time goes", "microseconds", title_justify="left")
    for what, value in figures["cpu_us_per_step"].items():
        where.add_row(f"CPU of {what}", f"{value:.0f}")
    where.add_row("from sending a step to its answer (pipe, executor)", f"{figures['wait_us_per_step']['pipe_us']:.0f}")
    where.add_row("from sending a commit to its answer (Redis)", f"{figures['wait_us_per_step']['commit_us']:.0f}")
    console.print(where)


if __name__ == "__main__":
    sys.exit(main())
