"""A flow that waits for people, for a time and for an event, driven by the command line alone.

Two refunds are asked for. Of the one, ann approves, the supervisor is killed, bob approves while none is there, and the
bank's word comes before its time; of the other, ann wants none of it. Each command is printed with what it says. Exit
code 1 when anything is not as expected.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console

from plaita import Client

FLOW = Path(__file__).parents[1] / "waiting" / "refund.json"
CEILING_S = 60.0
THINK_AGAIN_S = 3


class Demo:
    """One supervisor on an embedded server, and the commands. What is done is done by commands; ``client`` looks on."""

    def __init__(self, console: Console, folder: Path) -> None:
        self.console = console
        self.folder = folder
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PLAITA_")}
        self.environment = {**kept, "PLAITA_EMBEDDED": str(folder / "data"), "PLAITA_CONFIG": os.devnull}
        self.process: subprocess.Popen[bytes] | None = None
        self.wrong: list[str] = []
        self.client = Client(embedded=str(folder / "data"))

    def serve(self) -> None:
        command = [sys.executable, "-m", "plaita.cli.supervisor", "run", "--executors", "1", "--instance-id", "demo"]
        command += ["--socket", str(self.folder / "supervisor.sock"), "--quiet"]
        with open(self.folder / "supervisor.log", "ab") as log:
            self.process = subprocess.Popen(command, env=self.environment, stdout=log, stderr=log)

    def stop(self, how: signal.Signals) -> int:
        assert self.process is not None
        self.process.send_signal(how)
        return self.process.wait(timeout=CEILING_S)

    def plaita(self, *words: str, code: int = 0) -> str:
        """Run a command for a person, print it and what it says; ``code`` is what it should exit with."""
        self.console.print(
            f"[bold]$ plaita {' '.join(_quoted(word) for word in words)}[/bold]", highlight=False, soft_wrap=True
        )
        done = self._run(words)
        said = (done.stdout + done.stderr).rstrip()
        for line in said.splitlines():
            self.console.print(f"  {line.rstrip()}", markup=False, highlight=False, soft_wrap=True)
        self.expect(f"exit code of `plaita {words[0]} {words[1]}`", done.returncode, code)
        return said

    def until(self, what: str, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + CEILING_S
        while not condition():
            if time.monotonic() > deadline:
                raise SystemExit(f"never came: {what}\n{self.log()}")
            time.sleep(0.05)

    def waits_at(self, execution: str, node: str) -> bool:
        return (self.client.get(execution)["waiting"] or {}).get("node_id") == node

    def expect(self, what: str, seen: Any, right: Any) -> None:
        if seen != right:
            self.wrong.append(what)
            self.console.print(f"[bold red]{what}: {seen!r}, not {right!r}[/bold red]")

    def say(self, text: str) -> None:
        self.console.print(f"\n[green]{text}[/green]")

    def log(self) -> str:
        return (self.folder / "supervisor.log").read_text("utf-8", "replace")[-4000:]

    def _run(self, words: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "plaita.cli.main", *words]
        return subprocess.run(command, env=self.environment, capture_output=True, text=True, check=False)


def _quoted(word: str) -> str:
    return f"'{word}'" if set(word) & set(' {}"') else word


def play(demo: Demo) -> None:
    demo.serve()
    demo.plaita("flow", "put", str(FLOW))
    asked = {"customer": "eve", "amount": 120, "think_again_s": THINK_AGAIN_S}
    demo.plaita("start", "refund", "--id", "refund-1", "--input", json.dumps(asked))
    demo.plaita("start", "refund", "--id", "refund-2", "--input", json.dumps({**asked, "customer": "sam"}))
    for execution in ("refund-1", "refund-2"):
        demo.until("both approvals", lambda one=execution: demo.waits_at(one, "review"))  # type: ignore[misc]
    demo.plaita("approval", "list")
    found = {one["execution_id"]: one["approval_id"] for one in demo.client.approvals()}
    first, second = found["refund-1"], found["refund-2"]

    demo.say("Only approvers decide, and each of them once.")
    demo.plaita("approval", "decide", first, "--approve", "--by", "mallory", code=1)
    demo.plaita("approval", "decide", first, "--approve", "--by", "ann", "--comment", "she is right")
    demo.plaita("approval", "decide", first, "--reject", "--by", "ann", code=1)

    demo.say("The supervisor is killed. Nothing waits in it: bob decides while none is there.")
    demo.stop(signal.SIGKILL)
    demo.plaita("approval", "decide", first, "--approve", "--by", "bob")
    demo.expect("status with no supervisor there", demo.client.get("refund-1")["status"], "suspended")

    demo.say("Another one goes on: first with the delay. The bank's word comes too early, and is kept.")
    demo.serve()
    demo.until("the delay", lambda: demo.waits_at("refund-1", "think-again"))
    receipt = json.dumps({"amount": 120, "receipt": "B-17"})
    word = [
        "event",
        "publish",
        "bank.paid",
        "--data",
        receipt,
        "--correlation-id",
        "refund-1",
        "--event-id",
        "payment-17",
    ]
    demo.plaita(*word)
    said = demo.plaita(*word)
    demo.expect("the same event again", "was published before" in said, True)
    demo.plaita("approval", "decide", second, "--reject", "--by", "ann", "--comment", "no")
    demo.plaita("wait", "refund-1", "refund-2", "--timeout", "60")
    report(demo)


def report(demo: Demo) -> None:
    rows = {name: demo.client.get(name) for name in ("refund-1", "refund-2")}
    for name, row in rows.items():
        demo.console.print(f"{name}: {row['status']}, {json.dumps(row['output'])}", markup=False, highlight=False)
    demo.expect("refund-1", rows["refund-1"]["output"], {"refunded": 120, "receipt": "B-17"})
    refused = rows["refund-2"]["output"] or {"by": []}
    by = [(one["approver_id"], one["decision"], one["comments"]) for one in refused["by"]]
    demo.expect("refund-2", (refused.get("refunded"), by), (0, [("ann", "reject", "no")]))
    demo.expect("open approvals", demo.client.approvals(), [])
    demo.client.close()  # before the supervisor: the last clean user stops the embedded server
    demo.expect("exit code of the supervisor", demo.stop(signal.SIGTERM), 0)


def main() -> int:
    console = Console()
    with tempfile.TemporaryDirectory(prefix="plaita-demo-") as folder:
        demo = Demo(console, Path(folder))
        try:
            play(demo)
        finally:
            if demo.process is not None and demo.process.poll() is None:
                demo.stop(signal.SIGTERM)
    if demo.wrong:
        console.print(f"\n[bold red]not as expected: {', '.join(demo.wrong)}[/bold red]")
        return 1
    console.print("\n[bold green]each wait ended once, by who could end it[/bold green]")
    return 0


if __name__ == "__main__":
    sys.exit(main())
