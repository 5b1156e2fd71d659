"""A real Valkey for tests, in a folder of its own, that can be emptied, killed and started again."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

from plaita.store.call import Argument, Call
from plaita.store.embedded import Embedded
from plaita.store.runner_sync import SyncRunner


class Server:
    """``url`` for any runner; ``do`` for a bare command. Raises RefusedError or UnreachableError for what fails."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        self._hold = Embedded.open(self.folder)
        self._earlier: list[Embedded] = []
        self.url = self._hold.url
        self._runner = SyncRunner(self.url, name="plaita-testing")

    @property
    def pid(self) -> int:
        return self._hold.pid

    @property
    def socket_path(self) -> str:
        return self.url.removeprefix("unix://").partition("?")[0]

    @property
    def password(self) -> str:
        return (self.folder / "password").read_text("ascii").strip()

    def do(self, *command: Argument) -> Any:
        """One command, its reply as it came."""
        return self._runner.do(raw(*command))

    def flush(self) -> None:
        """As empty as new, scripts kept (loading them again is tested on its own)."""
        self.do("FLUSHALL", "SYNC")

    def kill(self) -> None:
        """SIGKILL: what was not yet written is lost, as in a power cut of the process."""
        os.kill(self.pid, signal.SIGKILL)
        deadline = time.monotonic() + 10
        while Path(f"/proc/{self.pid}/cwd").exists():
            try:
                os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:
                pass
            if time.monotonic() > deadline:
                raise TimeoutError(f"server {self.pid} does not end")
            time.sleep(0.005)

    def start(self) -> None:
        """After ``kill``: up again, with what its append-only file holds."""
        self._earlier.append(self._hold)
        self._hold = Embedded.open(self.folder)
        self._runner.close()
        self._runner = SyncRunner(self.url, name="plaita-testing")

    def close(self) -> None:
        self._runner.close()
        for hold in (*self._earlier, self._hold):
            hold.close()


def raw(*command: Argument) -> Call[Any]:
    """A bare command as a call."""
    return Call(str(command[0]), None, (), command, "writer", False, lambda reply: reply)
