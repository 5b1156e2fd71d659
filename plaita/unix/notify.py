"""The service manager's notification socket (sd_notify protocol), without libsystemd.

Owns the datagrams; when to send which is the supervisor's matter. A manager that is gone never stops the daemon: a
datagram that cannot be sent is reported by False.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping


class Notifier:
    """Speaks to $NOTIFY_SOCKET (a path, or ``@name`` for an abstract address); without one every call answers False."""

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        environ = os.environ if environment is None else environment
        address = environ.get("NOTIFY_SOCKET", "")
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._watchdog_ms = _watchdog_ms(environ)
        self._socket: socket.socket | None = None
        if address[:1] in ("/", "@"):
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
            self._socket.setblocking(False)

    @property
    def active(self) -> bool:
        """Whether a service manager listens."""
        return self._socket is not None

    @property
    def watchdog_ms(self) -> int | None:
        """The longest silence the manager bears, in milliseconds; None when it watches nothing or another process."""
        return self._watchdog_ms

    def send(self, *assignments: str) -> bool:
        """One datagram of ``NAME=value`` lines. False when nobody listens or it could not be sent."""
        if self._socket is None:
            return False
        try:
            self._socket.sendto("\n".join(assignments).encode("utf-8", "replace"), self._address)
        except OSError:
            return False
        return True

    def ready(self, status: str = "") -> bool:
        """Start-up is finished."""
        return self.send("READY=1", *_status(status), f"MAINPID={os.getpid()}")

    def status(self, text: str) -> bool:
        """One line for ``systemctl status``."""
        return self.send(*_status(text or " "))

    def reloading(self) -> bool:
        """A reload has begun; ``ready`` ends it. Carries the monotonic time that Type=notify-reload asks for."""
        return self.send("RELOADING=1", f"MONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}")

    def stopping(self, status: str = "") -> bool:
        """The way out has begun."""
        return self.send("STOPPING=1", *_status(status))

    def watchdog(self) -> bool:
        """The loop has turned."""
        return self.send("WATCHDOG=1")

    def extend_timeout(self, milliseconds: int) -> bool:
        """Start, reload or stop takes up to ``milliseconds`` more from now."""
        return self.send(f"EXTEND_TIMEOUT_USEC={max(1, milliseconds) * 1000}")

    def close(self) -> None:
        """Give the socket back."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def _status(text: str) -> tuple[str, ...]:
    return (f"STATUS={' '.join(text.splitlines())}",) if text else ()


def _watchdog_ms(environ: Mapping[str, str]) -> int | None:
    text, process = environ.get("WATCHDOG_USEC", ""), environ.get("WATCHDOG_PID", "")
    if not text.isdigit() or int(text) == 0 or (process and process != str(os.getpid())):
        return None
    return max(1, int(text) // 1000)
