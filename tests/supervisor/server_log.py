"""What the server says it was asked: its own command log (MONITOR), for tests that something is *not* sent."""

from __future__ import annotations

import contextlib
import socket
import threading

from plaita.testing.server import Server


class ServerLog:
    """Every command from now on, one line each, in the server's order; those of scripts too."""

    def __init__(self, server: Server) -> None:
        self.lines: list[str] = []
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(server.socket_path)
        self._socket.sendall(f"AUTH {server.password}\r\nMONITOR\r\n".encode())
        self._stream = self._socket.makefile("rb")
        assert [self._stream.readline(), self._stream.readline()] == [b"+OK\r\n", b"+OK\r\n"]
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            for line in self._stream:
                self.lines.append(line.decode("utf-8", "replace"))

    def of(self, command: str, *words: str) -> list[str]:
        """The lines with this command and all these words, each as it was sent."""
        wanted = [f'"{word}"' for word in words]
        return [
            line
            for line in list(self.lines)
            if f'] "{command}"' in line.replace(f'] "{command.lower()}"', f'] "{command}"')
            and all(word in line for word in wanted)
        ]

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join(timeout=10)
        self._stream.close()
        self._socket.close()
