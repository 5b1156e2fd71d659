"""A real Valkey for tests, in a folder of its own, that can be emptied, killed and started again."""

from __future__ import annotations

import os
import signal
import socket
import time
from pathlib import Path
from typing import Any
from urllib.parse import unquote

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
        return unquote(self.url.removeprefix("unix://").partition("?")[0])

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
        self.write_through()

    def write_through(self) -> None:
        """From now on an answered write survives ``kill``. With ``everysec`` it may still be in the server's memory
        while the disk is busy, and be lost."""
        self.do("CONFIG", "SET", "appendfsync", "always")

    def listen(self) -> int:
        """Take connections on a port of this host too, until it ends; the port."""
        port = int(self.do("CONFIG", "GET", "port")[1])
        if not port:
            with socket.create_server(("127.0.0.1", 0)) as free:
                port = free.getsockname()[1]
            self.do("CONFIG", "SET", "port", port)
        return port

    def follow(self, primary: Server, *, seconds: float = 30.0) -> None:
        """Become a replica of another server, and be in step with it. Both need the same password: see ``twin``."""
        self.do("CONFIG", "SET", "masterauth", primary.password)
        self.do("REPLICAOF", "127.0.0.1", primary.listen())
        deadline = time.monotonic() + seconds
        while "master_link_status:up" not in self.do("INFO", "replication").decode():
            if time.monotonic() > deadline:
                raise TimeoutError(f"no replication: {self.do('INFO', 'replication').decode()}")
            time.sleep(0.01)

    def promote(self) -> None:
        """A primary of its own from here on, with what has come so far: what the old one does now is lost."""
        self.do("REPLICAOF", "NO", "ONE")

    @classmethod
    def twin(cls, other: Server, folder: str | os.PathLike[str]) -> Server:
        """Another server with the same password, so that one URL leads to either."""
        Path(folder).mkdir(mode=0o700, parents=True, exist_ok=True)
        (Path(folder) / "password").write_text(other.password, "ascii")
        (Path(folder) / "password").chmod(0o600)
        return cls(folder)

    def close(self) -> None:
        self._runner.close()
        for hold in (*self._earlier, self._hold):
            hold.close()


def raw(*command: Argument) -> Call[Any]:
    """A bare command as a call."""
    return Call(str(command[0]), None, (), command, "writer", False, lambda reply: reply)
