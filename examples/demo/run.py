"""plaita's main job in under a minute: thirty executions, an executor and then the whole supervisor killed half-way.

Uses what a user has: the two commands, and the blocking client. Ends with a table, and with exit code 1 when anything
was lost or ran more often than a kill explains.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

HERE = Path(__file__).parent
EXECUTIONS = 30
EXECUTORS = 3
DEADLINE_S = 55.0


class Host:
    """One supervisor of the demo, as a systemd unit would run it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {**os.environ, "PYTHONPATH": str(HERE), "PLAITA_EMBEDDED": str(folder / "data")}
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [sys.executable, "-m", "plaita.cli.supervisor", "run"]
        command += ["--executors", str(EXECUTORS), "--instance-id", "demo", "--preload", "demo_nodes"]
        command += ["--socket", str(self.folder / "supervisor.sock"), "--quiet"]
        command += ["--lease-ttl-seconds", "5", "--claim-min-idle-ms", "3000"]
        with open(self.folder / "supervisor.log", "ab") as log:
            self.process = subprocess.Popen(command, env=self.environment, stdout=log, stderr=log)

    def plaita(self, *words: str) -> dict:
        command = [sys.executable, "-m", "plaita.cli.main", *words, "--json"]
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise SystemExit(f"plaita {' '.join(words)}: exit {done.returncode}: {done.stderr.strip()}")
        return json.loads(done.stdout)

    def status(self) -> dict | None:
        """Asked by the socket: a command would take so long to start that its answer is of the past."""
        from plaita.cli.control_client import ask
        from plaita.errors import PlaitaError

        try:
            return ask(str(self.folder / "supervisor.sock"), "status", timeout=5.0)
        except PlaitaError:
            return None

    def wait_until_serving(self) -> dict:
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            status = self.status()
            if status is not None and status["status"] == "running":
                return status
            time.sleep(0.05)
        raise SystemExit(f"the supervisor does not serve:\n{(self.folder / 'supervisor.log').read_text()}")

    def stop(self) -> int:
        if self.process is None or self.process.poll() is not None:
            return -1
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=30)


def begun(file: Path) -> list[tuple[float, str, str]]:
    """(time, execution, node) of every line, in order."""
    if not file.exists():
        return []
    lines = (line.split() for line in file.read_text().splitlines())
    return [(float(line[0]), line[1], line[2]) for line in lines if len(line) == 5]


def went_on(lines: list[tuple[float, str, str]], execution: str, after: float) -> float | None:
    """Seconds from ``after`` to the next line of this execution: its killed step again, or the one after it."""
    times = [at for at, name, _ in lines if at > after and name == execution]
    return min(times) - after if times else None


def busy(status: dict) -> list[dict]:
    return [row for row in status["executors"] if row["state"] == "busy" and row["node_id"] is not None and row["pid"]]


def kill_an_executor(host: Host) -> tuple[float, str]:
    """SIGKILL an executor that is in one of the first steps: a later one may be over, and be the last, by the time the
    signal is there; when, and whose step."""
    while True:
        rows = busy(host.status() or {"executors": []})
        working = [row for row in rows if row["node_id"] in ("reserve", "charge")]
        if working:
            row = working[0]
            at = time.time()
            os.kill(row["pid"], signal.SIGKILL)
            return at, row["execution_id"]


def run(console: Console, folder: Path) -> int:
    host, file = Host(folder), folder / "work.log"
    console.print(f"[bold]plaita demo[/bold]: {EXECUTIONS} executions, {EXECUTORS} executors, two kills")
    host.start()
    host.wait_until_serving()
    host.plaita("flow", "put", str(HERE / "order.json"), "--preload", "demo_nodes")
    from plaita import Client

    client = Client(embedded=str(folder / "data"))
    orders = [{"order": f"order-{n}", "amount": n * 40, "file": str(file)} for n in range(EXECUTIONS)]
    ids = [client.start("demo-order", order).execution_id for order in orders]
    marks: dict[str, float] = {}
    victim = ""
    deadline = time.monotonic() + DEADLINE_S
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        bar = progress.add_task("executions completed", total=EXECUTIONS)
        while time.monotonic() < deadline:
            statuses = Counter(client.get(execution_id)["status"] for execution_id in ids)
            done = statuses["completed"]
            progress.update(bar, completed=done)
            if done >= EXECUTIONS // 3 and "executor" not in marks:
                marks["executor"], victim = kill_an_executor(host)
                progress.console.print("  SIGKILL to an executor in a step")
            elif done >= EXECUTIONS // 2 and "supervisor" not in marks:
                assert host.process is not None
                marks["supervisor"] = time.time()
                host.process.kill()
                host.process.wait()
                progress.console.print("  SIGKILL to the supervisor; a new one is started")
                host.start()
            if sum(statuses[word] for word in ("completed", "error", "cancelled")) == EXECUTIONS:
                break
            time.sleep(0.05)
    return report(console, host, client, ids, file, marks, victim)


def report(
    console: Console, host: Host, client, ids: list[str], file: Path, marks: dict[str, float], victim: str
) -> int:
    rows = [client.get(execution_id) for execution_id in ids]
    statuses = Counter(row["status"] for row in rows)
    lines = begun(file)
    times = Counter((execution, node) for _, execution, node in lines)
    again = {step: count for step, count in times.items() if count > 1}
    repeats = sum(count - 1 for count in again.values())
    expected = sum(4 + (n * 40 >= 500) for n in range(EXECUTIONS))
    client.close()  # before the supervisor: the last clean user stops the embedded server
    code = host.stop()
    table = Table("what", "seen", "right", title="what the kills did", title_justify="left")
    ok = True

    def row(what: str, seen: object, right: str, good: bool) -> None:
        nonlocal ok
        ok = ok and good
        table.add_row(what, str(seen) if good else f"[bold red]{seen}[/bold red]", right)

    row("executions completed", f"{statuses['completed']} of {EXECUTIONS}", "all", statuses["completed"] == EXECUTIONS)
    row("different work steps run", len(times), str(expected), len(times) == expected)
    row("work steps run again", repeats, f"at most {1 + EXECUTORS}: one a killed executor", repeats <= 1 + EXECUTORS)
    for name, limit in (("executor", 1.0), ("supervisor", 15.0)):
        if name not in marks:
            row(f"the {name} was killed", "no", "yes", False)
            continue
        first = went_on(lines, victim, marks[name]) if name == "executor" else first_after(lines, marks[name])
        shown = "not at all" if first is None else f"{first:.2f} s"
        what = "its execution went on after" if name == "executor" else "steps began again after"
        row(f"{name} killed: {what}", shown, f"within {limit:g} s", first is not None and first <= limit)
    row("exit code of the last supervisor", code, "0", code == 0)
    console.print(table)
    console.print("[bold green]nothing was lost[/bold green]" if ok else "[bold red]something is wrong[/bold red]")
    return 0 if ok else 1


def first_after(lines: list[tuple[float, str, str]], at: float) -> float | None:
    """Seconds from ``at`` to the first line of the new supervisor's executors: the old ones are dead by then."""
    later = [when - at for when, _, _ in lines if when - at > 0.05]
    return min(later) if later else None


def main() -> int:
    console = Console()
    with tempfile.TemporaryDirectory(prefix="plaita-demo-") as folder:
        return run(console, Path(folder))


if __name__ == "__main__":
    sys.exit(main())
