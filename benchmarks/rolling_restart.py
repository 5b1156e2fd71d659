"""Hosts are restarted one after the other under load: what ``make rolling-restart`` shows.

Some supervisors share one queue on a private server. While executions run on all of them, each in turn gets SIGTERM, is
waited for, and is started again, so many rounds long. Then everything must be as if nobody had been restarted: each
execution completed, each step begun once (a drain lets a step finish, and a finished step is committed, so with exit
code 0 there is no excuse for a second begin), no dead letter, each exit with code 0 within one step and a second.

Lease and min-idle are ten minutes: an execution goes on elsewhere because it was handed on, or not in time at all.
Exit code 1 with the reasons when any of that is not so.
"""

from __future__ import annotations

import argparse
import itertools
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from plaita import jsontext
from plaita.cli.control_client import ask
from plaita.client import Client
from plaita.errors import PlaitaError
from plaita.flow.outline import flow_hash
from plaita.store import carriers, flows
from plaita.store.keys import Keys
from plaita.store.runner_sync import SyncRunner, expect
from plaita.testing.server import Server

HERE = Path(__file__).parent
FLOW = "rolling"
SERVING_S = 60.0


class Host:
    """One supervisor, as its unit would start it again and again."""

    def __init__(self, name: str, folder: Path, url: str, executors: int, *flags: str) -> None:
        self.name = name
        self.socket = str(folder / f"{name}.sock")
        self.log = folder / f"{name}.log"
        clean = {key: value for key, value in os.environ.items() if not key.startswith("PLAITA_")}
        self._environment = {**clean, "PYTHONPATH": f"{HERE}:{folder}", "PLAITA_CONFIG": os.devnull}
        self._command = [sys.executable, "-m", "plaita.cli.supervisor", "run", "--redis-url", url]
        self._command += ["--instance-id", name, "--socket", self.socket, "--executors", str(executors)]
        self._command += ["--preload", "bench_nodes", "--lease-ttl-seconds", "600", "--claim-min-idle-ms", "600000"]
        self._command += flags
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(self._command, env=self._environment, stdout=log, stderr=log)

    def wait_until_serving(self) -> None:
        deadline = time.monotonic() + SERVING_S
        while time.monotonic() < deadline:
            try:
                if ask(self.socket, "status")["serving"]:
                    return
            except PlaitaError:
                pass
            time.sleep(0.02)
        raise SystemExit(f"{self.name} does not serve:\n{self.log.read_text()[-4000:]}")

    def busy(self) -> int:
        """How many of its executors are at a step."""
        return sum(row["step_s"] is not None for row in ask(self.socket, "status")["executors"])

    def wait_until_busy(self) -> int:
        deadline = time.monotonic() + SERVING_S
        busy = self.busy()
        while not busy and time.monotonic() < deadline:
            time.sleep(0.005)
            busy = self.busy()
        return busy

    def stop(self) -> tuple[int, float]:
        """SIGTERM; the exit code, and the seconds until it was there."""
        assert self.process is not None
        began = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        code = self.wait()
        return code, time.monotonic() - began

    def wait(self) -> int:
        assert self.process is not None
        return self.process.wait(timeout=120)

    def kill(self) -> None:
        """For a run that failed: nobody stays behind."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()


@dataclass(frozen=True)
class Exit:
    """``busy``: executors that were at a step a moment before."""

    host: str
    code: int
    seconds: float
    busy: int


def chain(steps: int, step_ms: int, file: Path) -> dict[str, Any]:
    """start, the steps, end."""
    names = [f"n{number}" for number in range(steps)] + ["end"]
    nodes: list[dict[str, Any]] = [{"type": "start", "id": "start", "next": names[0]}]
    for name, following in itertools.pairwise(names):
        nodes.append({"type": "bench_line", "id": name, "file": str(file), "ms": step_ms, "next": following})
    nodes.append({"type": "end", "id": "end", "output": "done"})
    return {"flow_id": FLOW, "nodes": nodes}


def put(url: str, definition: dict[str, Any]) -> None:
    with SyncRunner(url) as runner:
        expect(runner.run(flows.put(Keys(), FLOW, None, flow_hash(definition), jsontext.dumps(definition))))


def portions(executions: int, restarts: int) -> list[int]:
    """How many are started at the beginning, and before each restart, so that each meets a host at work."""
    each = executions // (2 * restarts)
    return [executions - each * restarts] + [each] * restarts


def restart_in_turn(hosts: list[Host], start: Callable[[int], None], counts: list[int]) -> list[Exit]:
    exits = []
    for host, count in zip(itertools.cycle(hosts), counts):
        start(count)
        busy = host.wait_until_busy()
        exits.append(Exit(host.name, *host.stop(), busy))
        host.start()
        host.wait_until_serving()
    return exits


def wrong_begins(file: Path) -> tuple[Counter[tuple[str, str]], list[str]]:
    """How often each (execution, node) was begun, and each begin that came after one of a later node: the earlier one
    was committed by then."""
    begun: Counter[tuple[str, str]] = Counter()
    furthest: dict[str, int] = {}
    after_commit = []
    for line in file.read_text().splitlines():
        execution, node, attempt = line.split()
        begun[execution, node] += 1
        number = int(node.removeprefix("n"))
        if number < furthest.get(execution, -1):
            after_commit.append(f"{execution} {node} (attempt {attempt})")
        furthest[execution] = max(number, furthest.get(execution, -1))
    return begun, after_commit


class Report:
    """A row a demand; ``ok`` once all are met."""

    def __init__(self) -> None:
        self.ok = True
        self.table = Table("what", "seen", "right", title="rolling restart", title_justify="left")

    def row(self, what: str, seen: object, right: str, good: bool) -> None:
        self.ok = self.ok and good
        self.table.add_row(what, str(seen) if good else f"[bold red]{seen}[/bold red]", right)


def judge(options: argparse.Namespace, rows: list[dict[str, Any]], file: Path, exits: list[Exit], dead: int) -> Report:
    report = Report()
    completed = sum(row["status"] == "completed" for row in rows)
    report.row("executions completed", f"{completed} of {len(rows)}", "all", completed == len(rows))
    begun, after_commit = wrong_begins(file)
    expected = options.executions * options.steps
    report.row("different steps begun", len(begun), str(expected), len(begun) == expected)
    twice = [f"{execution} {node}: {count} times" for (execution, node), count in begun.items() if count > 1]
    report.row("steps begun more than once", "; ".join(twice[:5]) or 0, "0", not twice)
    report.row("steps begun again after their commit", "; ".join(after_commit[:5]) or 0, "0", not after_commit)
    report.row("dead letters", dead, "0", dead == 0)
    limit = options.step_ms / 1000 + 1.0 if options.exit_limit is None else options.exit_limit
    for number, end in enumerate(exits):
        seen = f"code {end.code} after {end.seconds:.2f} s ({end.busy} steps were running)"
        last = number >= options.rounds * options.hosts
        good = end.code == 0 and end.seconds <= limit and (last or end.busy > 0)
        right = f"0 within {limit:g} s" + ("" if last else ", under load")
        seen = f"code {end.code} after {end.seconds:.2f} s" if last else seen
        report.row(f"{'end' if last else f'restart {number + 1}'} of {end.host}", seen, right, good)
    return report


def run(options: argparse.Namespace, console: Console, folder: Path) -> int:
    server, file = Server(folder / "data"), folder / "lines"
    hosts = [Host(f"host{n + 1}", folder, server.url, options.executors) for n in range(options.hosts)]
    client = Client(server.url)
    console.print(
        f"{options.hosts} supervisors of {options.executors} executors, {options.executions} executions of "
        f"{options.steps} steps of {options.step_ms} ms, {options.rounds} rounds of restarts"
    )
    try:
        put(server.url, chain(options.steps, options.step_ms, file))
        for host in hosts:
            host.start()
        for host in hosts:
            host.wait_until_serving()
        began = time.monotonic()
        ids: list[str] = []

        def start(count: int) -> None:
            ids.extend(client.start(FLOW).execution_id for _ in range(count))

        first, *later = portions(options.executions, options.rounds * options.hosts)
        start(first)
        exits = restart_in_turn(hosts, start, later)
        try:
            client.wait_all(ids, timeout=options.timeout)
        except PlaitaError as error:
            console.print(f"[bold red]not all ended within {options.timeout:g} s: {error}[/bold red]")
        elapsed = time.monotonic() - began
        rows = [client.get(one) for one in ids]
        exits += [Exit(host.name, *host.stop(), busy=0) for host in hosts]
        with SyncRunner(server.url) as runner:
            dead = expect(runner.run(carriers.stats(Keys()))).dlq_length
        report = judge(options, rows, file, exits, dead)
        console.print(report.table)
        verdict = "[bold green]nothing was lost or done twice[/bold green]"
        console.print(f"{verdict if report.ok else '[bold red]something is wrong[/bold red]'}, {elapsed:.1f} s in all")
        if not report.ok:
            keep = Path(tempfile.mkdtemp(prefix="plaita-rolling-"))
            for log in [file, *(host.log for host in hosts)]:
                (keep / log.name).write_bytes(log.read_bytes())
            console.print(f"logs and lines: {keep}")
        return 0 if report.ok else 1
    finally:
        for host in hosts:
            host.kill()
        client.close()
        server.close()


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--hosts", type=int, default=3)
    parser.add_argument("--executors", type=int, default=4, help="of each host")
    parser.add_argument("--executions", type=int, default=300)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--step-ms", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=2, help="how often each host is restarted")
    parser.add_argument("--timeout", type=float, default=180.0, help="seconds for all executions to end")
    parser.add_argument("--exit-limit", type=float, help="seconds from SIGTERM to the end (default: a step and 1 s)")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="plaita-") as folder:
        return run(options, Console(), Path(folder))


if __name__ == "__main__":
    sys.exit(main())
