"""The service manager's end of the notification socket, for tests: keeps each datagram with the moment it came."""

from __future__ import annotations

import os
import socket
import threading
import time
from dataclasses import dataclass, field

from hosts import until


@dataclass(frozen=True, slots=True)
class Word:
    """One assignment of a datagram. ``at`` is on the monotonic clock, in seconds."""

    at: float
    name: str
    value: str


@dataclass(slots=True)
class FakeSystemd:
    """``environment`` is for the process that is to talk; ``close`` ends it."""

    watchdog_s: float | None = None
    words: list[Word] = field(default_factory=list)
    _socket: socket.socket = field(init=False)
    address: str = field(init=False)

    def __post_init__(self) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.address = f"@plaita-test-{os.urandom(8).hex()}"
        self._socket.bind("\0" + self.address[1:])
        threading.Thread(target=self._listen, daemon=True).start()

    @property
    def environment(self) -> dict[str, str]:
        watch = {} if self.watchdog_s is None else {"WATCHDOG_USEC": str(int(self.watchdog_s * 1_000_000))}
        return {"NOTIFY_SOCKET": self.address, **watch}

    def _listen(self) -> None:
        while True:
            try:
                data = self._socket.recv(65536)
            except OSError:
                return
            now = time.monotonic()
            if data == b"end":
                return
            for line in data.decode().splitlines():
                name, _, value = line.partition("=")
                self.words.append(Word(now, name, value))

    def values(self, name: str, *, since: float = 0.0) -> list[str]:
        return [word.value for word in self.words if word.name == name and word.at >= since]

    def wait(self, name: str, part: str = "", *, since: float = 0.0, times: int = 1) -> None:
        """Until it was said so often since then."""
        said = f"{name}=...{part}"
        until(lambda: sum(part in value for value in self.values(name, since=since)) >= times, f"{said}: {self.words}")

    def close(self) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as end:
            end.sendto(b"end", "\0" + self.address[1:])
        self._socket.close()
