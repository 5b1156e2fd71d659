"""Frames on an event loop: the supervisor's end of an executor's socket. Never blocks, reads while it writes.

Owns one socket and nothing else. What a frame means, and what to do with a peer that writes junk, is the caller's.
Works on asyncio's own loop and on uvloop alike.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from typing import cast

from plaita.errors import FrameError
from plaita.ipc.frames import Frame, FrameReader, encode

READ_BYTES = 256 * 1024


class FrameChannel(asyncio.Protocol):
    """``on_frame(frame)`` is called for each frame as it arrives; ``on_closed(reason)`` exactly once, with

    * ``"eof"``: the peer closed (a hint, never a proof of its death), ``"eof in a frame"`` when one was cut off;
    * ``"protocol: ..."``: bytes that are no frame, or ``on_frame`` raised FrameError; the socket is closed;
    * ``"error: ..."``: the operating system said so;
    * ``"closed"``: by ``close``.
    Frames sent before ``open`` has returned wait for it. Frames after the end are dropped: the step is lost anyway.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sock: socket.socket,
        on_frame: Callable[[Frame], object],
        on_closed: Callable[[str], object],
    ) -> None:
        self._loop = loop
        self._sock: socket.socket | None = sock
        self._on_frame = on_frame
        self._on_closed = on_closed
        self._reader = FrameReader()
        self._transport: asyncio.Transport | None = None
        self._waiting: list[bytes] = []
        self._closed = False

    async def open(self) -> FrameChannel:
        """Begin to read and write, unless it was closed meanwhile. The socket belongs to the channel from here on."""
        sock, self._sock = self._sock, None
        if sock is None:
            if self._closed:
                return self
            raise RuntimeError("a channel is opened once")
        sock.setblocking(False)
        # As one accepted, which the loop owns at once. One that ``create_unix_connection`` is given uvloop owns an
        # iteration later: ended before, by its peer or by us, its descriptor is closed twice, and by then another's.
        await self._loop.connect_accepted_socket(lambda: self, sock)
        return self

    @property
    def closed(self) -> bool:
        """Whether nothing can be sent any more."""
        return self._closed

    def send(self, frame: Frame) -> bool:
        """Write a frame; False when the channel has ended. Raises FrameError for one over the limits."""
        if self._closed:
            return False
        buffers = encode(frame)
        transport = self._transport
        if transport is None:
            self._waiting.extend(buffers)
            return True
        for buffer in buffers:
            transport.write(buffer)
        return True

    def unsent(self) -> int:
        """Bytes written here that the kernel has not taken yet."""
        if self._transport is None:
            return sum(map(len, self._waiting))
        return self._transport.get_write_buffer_size()

    def read_rest(self) -> None:
        """Take in now what the peer wrote before it ended: its death may be known before its last words were read."""
        while self._transport is not None and not self._closed:
            try:
                data = os.read(self._transport.get_extra_info("socket").fileno(), READ_BYTES)
            except OSError:  # nothing there (yet), or a broken socket: the transport says which
                return
            if not data:
                return
            self.data_received(data)

    def close(self) -> None:
        """End now; what the kernel has not taken is dropped. ``on_closed("closed")`` unless it has ended before."""
        self._end("closed")

    def _end(self, reason: str) -> None:
        if self._closed:
            return
        self._closed = True
        self._waiting.clear()
        if self._transport is not None:
            self._transport.abort()
        elif self._sock is not None:
            self._sock.close()
            self._sock = None
        self._on_closed(reason)

    # -- asyncio.Protocol -----------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        writer = cast(asyncio.Transport, transport)  # uvloop's are none by class
        if self._closed:
            writer.abort()
            return
        self._transport = writer
        writer.set_write_buffer_limits(high=1 << 30)  # one peer, one step at a time: pausing would help nobody
        waiting, self._waiting = self._waiting, []
        for buffer in waiting:
            writer.write(buffer)

    def data_received(self, data: bytes) -> None:
        closed = self._closed
        if closed:
            return
        try:
            for frame in self._reader.feed(data):
                self._on_frame(frame)
                if self._closed:  # by the callback
                    return
        except FrameError as error:
            self._end(f"protocol: {error}")

    def eof_received(self) -> bool:
        self._end("eof in a frame" if self._reader.pending else "eof")
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._end("eof" if exc is None else f"error: {exc}")
