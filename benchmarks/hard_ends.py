"""How long hard ends take: steps that hear nothing, a second signal, idle hosts, a start, a reload, a silent Redis.

Each row is one supervisor that gets SIGTERM: the seconds until its end, the limit, its exit code. Lease and min-idle
are ten minutes, so a step that begins again elsewhere was handed on. Exit code 1 when a row is not as it must be: on a
machine that has better things to do, the times say little.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rolling_restart import Host, put

from plaita.cli.control_client import ask
from plaita.client import Client
from plaita.testing.server import Server

TIMEOUT_S, GRACE_S = 2.0, 1.0
ABOUT_A_SECOND = 1.25
FLOW = "rolling"  # the id that ``put`` stores under


def until(condition: Callable[[], Any], what: str) -> Any:
    deadline = time.monotonic() + 60
    while not (found := condition()):
        if time.monotonic() > deadline:
            raise SystemExit(f"never came: {what}")
        time.sleep(0.005)
    return found


def alive(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


class Ends:
    """One row an end."""

    def __init__(self, folder: Path, server: Server) -> None:
        self._folder = folder
        self._server = server
        self._names = 0
        self.ok = True
        self.table = Table(
            "end", "code", "right", "seconds", "limit", "besides", title="hard ends", title_justify="left"
        )

    @contextmanager
    def host(self, *, serving: bool = True, timeout_s: float = TIMEOUT_S, executors: int = 2) -> Iterator[Host]:
        self._names += 1
        flags = ["--drain-timeout", str(timeout_s), "--kill-grace", str(GRACE_S), "--preload", "ends_plug_in"]
        host = Host(f"end{self._names}", self._folder, self._server.url, executors, *flags)
        host.start()
        try:
            if serving:
                host.wait_until_serving()
            yield host
        finally:
            host.kill()

    def row(
        self, what: str, got: tuple[int, float], code: int, limit: float, besides: str = "", good: bool = True
    ) -> None:
        good = good and got == (code, min(got[1], limit))
        self.ok = self.ok and good
        seconds = f"{got[1]:.2f}" if good else f"[bold red]{got[1]:.2f}[/bold red]"
        self.table.add_row(what, str(got[0]), str(code), seconds, f"{limit:g}", besides)

    # -- the ends ---------------------------------------------------------------------------------------

    def idle(self) -> None:
        with self.host() as host:
            self.row("idle", host.stop(), 0, ABOUT_A_SECOND)

    def start(self) -> None:
        with self.host(serving=False) as host:
            until(lambda: "template.started" in host.log.read_text(), "the template")
            self.row("during the start", host.stop(), 0, ABOUT_A_SECOND)

    def reload(self) -> None:
        with self.host() as host:
            (self._folder / "ends_plug_in.py").write_text("import time\ntime.sleep(1000)\n")
            ask(host.socket, "reload")
            until(lambda: ask(host.socket, "status")["reload"]["phase"] == "importing", "the reload")
            self.row("while a reload imports for ever", host.stop(), 0, ABOUT_A_SECOND)
            (self._folder / "ends_plug_in.py").write_text("")

    def silent_redis(self) -> None:
        with self.host() as host:
            os.kill(self._server.pid, signal.SIGSTOP)
            try:
                self.row("idle, Redis is silent", host.stop(), 0, 1.0 + ABOUT_A_SECOND)
            finally:
                os.kill(self._server.pid, signal.SIGCONT)

    def _stubborn_flow(self) -> Callable[[], list[str]]:
        """Stored; what its steps have written so far."""
        file = self._folder / "stubborn"
        file.unlink(missing_ok=True)
        node = {"type": "bench_stubborn", "id": "a", "file": str(file), "next": "end"}
        nodes = [{"type": "start", "id": "start", "next": "a"}, node, {"type": "end", "id": "end"}]
        put(self._server.url, {"flow_id": FLOW, "nodes": nodes})
        return lambda: file.read_text().splitlines() if file.exists() else []

    def many(self, client: Client, count: int) -> None:
        lines = self._stubborn_flow()
        with self.host(executors=count) as host:
            executions = [client.start(FLOW).execution_id for _ in range(count)]
            until(lambda: len(lines()) == count, "the steps")
            got = host.stop()
            left = [pid for line in lines() for pid in line.split() if alive(pid)]
            free = all(client.get(execution)["holder"] is None for execution in executions)
            besides = f"{len(left)} of their processes left; {'all' if free else 'NOT all'} handed on"
            limit = TIMEOUT_S + GRACE_S + 1
            self.row(f"{count} steps that hear nothing", got, 75, limit, besides, good=free and not left)
            for execution in executions:
                client.cancel(execution)
        with self.host():
            client.wait_all(executions, timeout=60)

    def stubborn(self, client: Client, *, twice: bool) -> None:
        lines = self._stubborn_flow()
        with self.host(timeout_s=600 if twice else TIMEOUT_S) as first:
            execution = client.start(FLOW).execution_id
            pids = until(lines, "the step")[0].split()
            with self.host() as second:
                if twice:
                    assert first.process is not None
                    first.process.send_signal(signal.SIGTERM)
                    until(lambda: ask(first.socket, "status")["status"] == "draining", "the drain")
                got = first.stop()
                ended = time.monotonic()
                left = [pid for pid in pids if alive(pid)]
                until(lambda: len(lines()) == 2, "the step elsewhere")
                elsewhere = time.monotonic() - ended
                limit = GRACE_S + 1 if twice else TIMEOUT_S + GRACE_S + 1
                besides = f"began elsewhere {elsewhere:.2f} s later (at most 1 s); {len(left)} of its processes left"
                what = "a step that hears nothing, a second SIGTERM" if twice else "a step that hears nothing"
                self.row(what, got, 75, limit, besides, good=elsewhere <= 1 and not left)
                client.cancel(execution)
                client.wait(execution, timeout=60)
                second.stop()


def main() -> int:
    console = Console(width=140)
    with tempfile.TemporaryDirectory(prefix="plaita-") as name:
        folder = Path(name)
        (folder / "ends_plug_in.py").write_text("")
        server = Server(folder / "data")
        client = Client(server.url)
        try:
            ends = Ends(folder, server)
            ends.idle()
            ends.start()
            ends.reload()
            ends.silent_redis()
            ends.stubborn(client, twice=False)
            ends.stubborn(client, twice=True)
            ends.many(client, 16)
        finally:
            client.close()
            server.close()
    console.print(ends.table)
    console.print("[bold green]all in time[/bold green]" if ends.ok else "[bold red]something is wrong[/bold red]")
    return 0 if ends.ok else 1


if __name__ == "__main__":
    sys.exit(main())
