"""Frames on a blocking socket: the executor's end. One reader; writers from several threads take turns."""

from __future__ import annotations

import socket
import threading
from collections import deque

from plaita.errors import FrameError
from plaita.ipc.frames import Frame, FrameReader, encode

_RECEIVE_SIZE = 64 * 1024  # malloc takes larger buffers from the kernel each time, and gives them back
_SENDMSG_BUFFERS = 512  # below IOV_MAX (1024)


class FrameConnection:
    """Owns ``sock``. ``receive`` and ``send`` block; FrameError when the peer sends no frames, OSError as it comes."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(True)
        self._sock = sock
        self._reader = FrameReader()
        self._arrived: deque[Frame] = deque()
        self._sending = threading.Lock()

    def fileno(self) -> int:
        """The socket's descriptor."""
        return self._sock.fileno()

    def receive(self) -> Frame | None:
        """The next frame; None when the peer has closed between frames. Raises FrameError when it closed within one."""
        while not self._arrived:
            data = self._sock.recv(_RECEIVE_SIZE)
            if not data:
                if self._reader.pending:
                    raise FrameError("the stream ends within a frame")
                return None
            self._arrived.extend(self._reader.feed(data))
        return self._arrived.popleft()

    def send(self, frame: Frame) -> None:
        """Write a whole frame. Raises FrameError for one over the limits (nothing was written), OSError."""
        buffers = encode(frame)
        with self._sending:
            if len(buffers) == 1:
                self._sock.sendall(buffers[0])
            else:
                self._send_many(buffers)

    def _send_many(self, buffers: list[bytes]) -> None:
        views = deque(memoryview(buffer) for buffer in buffers)
        while views:
            sent = self._sock.sendmsg([views[index] for index in range(min(len(views), _SENDMSG_BUFFERS))])
            while views and sent >= len(views[0]):
                sent -= len(views.popleft())
            if sent:
                views[0] = views[0][sent:]

    def close(self) -> None:
        """Close the socket."""
        self._sock.close()
