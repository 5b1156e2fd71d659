"""Listening to Redis channels: one connection for any number of them. What is published while it is away is lost, as
publish and subscribe are."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

import hiredis

from plaita.store import dialling, wire
from plaita.store.call import Answer, Call
from plaita.store.connect_async import Session, connect
from plaita.store.endpoint import Endpoint

CONNECT_TIMEOUT_S = 3.0
PING_EVERY_S = 10.0

OnMessage = Callable[[str, bytes], None]


class Listener(Session):
    """``on_message`` gets channel and message. ``lost`` is done when the connection is."""

    def __init__(self, on_message: OnMessage) -> None:
        self._on_message = on_message
        self._reader = hiredis.Reader()
        self._transport: asyncio.Transport | None = None
        self._asked: deque[tuple[Call[Any], asyncio.Future[Answer[Any]]]] = deque()
        self._heard = True
        self._timer: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self.channels: set[str] = set()
        self.lost: asyncio.Future[str] = self._loop.create_future()

    @classmethod
    async def open(cls, endpoint: Endpoint, name: str, on_message: OnMessage) -> Listener:
        """Raises GreetingError."""
        session = await connect(endpoint, None, lambda _: cls(on_message), name, CONNECT_TIMEOUT_S)
        session._watch()
        return session

    def want(self, channels: Iterable[str]) -> None:
        """Listen to these and no others."""
        wanted = set(channels)
        for word, names in (("SUBSCRIBE", wanted - self.channels), ("UNSUBSCRIBE", self.channels - wanted)):
            if names and self._transport is not None:
                self._transport.write(hiredis.pack_command((word, *sorted(names))))  # type: ignore[arg-type]
        self.channels = wanted

    # -- Session -----------------------------------------------------------------------------------

    async def ask(self, calls: Sequence[Call[Any]]) -> list[Answer[Any]]:
        if self._transport is None or self.lost.done():
            raise dialling.ConnectionLost("not connected")
        futures = [self._loop.create_future() for _ in calls]
        self._asked.extend(zip(calls, futures, strict=True))
        self._transport.write(b"".join(wire.pack(call) for call in calls))
        return list(await asyncio.gather(*futures))

    def abort(self, reason: str) -> None:
        self._fall(reason)
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, error: Exception | None) -> None:
        self._fall("connection lost")

    def data_received(self, data: bytes) -> None:
        self._heard = True
        try:
            self._reader.feed(data)
            reply = self._reader.gets()
            while reply is not False:
                self._take(reply)
                reply = self._reader.gets()
        except hiredis.ProtocolError as error:
            self.abort(dialling.no_replies(data, type(error).__name__))

    # -- inside ------------------------------------------------------------------------------------

    def _take(self, reply: Any) -> None:
        if self._asked:
            call, future = self._asked.popleft()
            if not future.done():
                future.set_result(wire.understand(call, reply)[0])
        elif isinstance(reply, hiredis.ReplyError):
            self.abort(str(reply))
        elif isinstance(reply, list) and len(reply) == 3 and reply[0] == b"message":
            self._on_message(reply[1].decode("utf-8", "surrogateescape"), reply[2])

    def _watch(self) -> None:
        """A peer that has gone without a word shows by its silence."""
        if self.lost.done() or self._transport is None:
            return
        if not self._heard:
            self.abort(f"no answer within {PING_EVERY_S:g} s")
            return
        self._heard = False
        self._transport.write(hiredis.pack_command(("PING",)))
        self._timer = self._loop.call_later(PING_EVERY_S, self._watch)

    def _fall(self, reason: str) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if not self.lost.done():
            self.lost.set_result(reason)
        asked, self._asked = self._asked, deque()
        for _, future in asked:
            if not future.done():
                future.set_exception(dialling.ConnectionLost(reason))
