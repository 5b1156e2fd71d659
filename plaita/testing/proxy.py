"""A TCP proxy in front of a server (of a unix socket or a port) that fails on cue, one way at a time.

forward       all bytes pass
freeze        nothing passes, either way, and nothing is closed: a half-open connection
drop_replies  requests pass, answers vanish
cut           every connection is reset now; new ones are made and reset too
"""

from __future__ import annotations

import socket
import struct
import threading
from typing import Literal

Mode = Literal["forward", "freeze", "drop_replies", "cut"]


class Proxy:
    """``port`` is where to connect. Its threads end with ``close``."""

    def __init__(self, target: str | tuple[str, int]) -> None:
        self._target = target
        self._lock = threading.Condition()
        self._mode: Mode = "forward"
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._closed = False
        self.connections = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, name="proxy", daemon=True).start()

    def url(self, password: str = "") -> str:
        return f"redis://:{password}@127.0.0.1:{self.port}" if password else f"redis://127.0.0.1:{self.port}"

    def set_mode(self, mode: Mode) -> None:
        with self._lock:
            self._mode = mode
            self._lock.notify_all()
            if mode == "cut":
                self._reset_all()

    def set_target(self, target: str | tuple[str, int]) -> None:
        """New connections go there; those that exist stay: a name that moved."""
        with self._lock:
            self._target = target

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._reset_all()
            self._lock.notify_all()
        self._listener.close()

    def _reset_all(self) -> None:
        for pair in self._pairs:
            for end in pair:
                _reset(end)
        self._pairs.clear()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            with self._lock:
                self.connections += 1
                if self._mode == "cut" or self._closed:
                    _reset(client)
                    continue
                target = self._target
            try:
                upstream = _connect(target)
            except OSError:
                _reset(client)
                continue
            with self._lock:
                self._pairs.append((client, upstream))
            for source, sink, replies in ((client, upstream, False), (upstream, client, True)):
                threading.Thread(target=self._pump, args=(source, sink, replies), name="proxy", daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, replies: bool) -> None:
        try:
            while True:
                data = source.recv(65536)
                with self._lock:
                    self._lock.wait_for(lambda: self._mode != "freeze" or self._closed)
                    dropped = self._closed or (replies and self._mode == "drop_replies")
                if not data:
                    break
                if not dropped:
                    sink.sendall(data)
        except OSError:
            pass  # the other pump or `cut` closed it: the end that this thread was waiting for
        for end in (source, sink):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


def _connect(target: str | tuple[str, int]) -> socket.socket:
    if isinstance(target, tuple):
        return socket.create_connection(target, timeout=5)
    upstream = socket.socket(socket.AF_UNIX)
    upstream.connect(target)
    return upstream


def _reset(end: socket.socket) -> None:
    """Close with a reset instead of an orderly end."""
    try:
        if end.family == socket.AF_INET:
            end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        end.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass
    end.close()
