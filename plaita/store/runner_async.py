"""Calls over asyncio: one connection a lane, everything that waits on a lane sent at once, answers in order.

A caller only awaits a future. ``_Lane`` queues and connects, ``_Wire`` is one connection: it writes, and takes replies
apart as they arrive. Nothing is retried behind a caller's back but a script whose text the server has forgotten
(NOSCRIPT: it did not run). Works on asyncio's loops and on uvloop.
"""

from __future__ import annotations

import asyncio
import random
import socket
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import hiredis

from plaita.clock import wall_ms
from plaita.store import dialling, wire
from plaita.store.call import LANES, Answer, Call, Lane, Refused, Unavailable, Unknown, Value
from plaita.store.connect_async import Session, ask_sentinels, connect
from plaita.store.endpoint import Endpoint, parse_endpoint
from plaita.store.sentinel import Sentinels

T = TypeVar("T")

BATCH_BYTES = 1024 * 1024
BATCH_CALLS = 128
RESPONSE_TIMEOUT_S = 5.0
CONNECT_TIMEOUT_S = 3.0


@dataclass(frozen=True, slots=True)
class RunnerState:
    """``connected``: the writer's lane is, or some lane while the writer was never used. ``since_ms``: wall clock of
    that change."""

    connected: bool
    since_ms: int
    server: str
    last_error: str
    auth: bool


class _Pending:
    """One caller's call on its way. ``with_text``: NOSCRIPT came, the text goes with it now."""

    __slots__ = ("call", "future", "with_text")

    def __init__(self, call: Call[Any], future: asyncio.Future[Answer[Any]]) -> None:
        self.call = call
        self.future = future
        self.with_text = False

    def settle(self, answer: Answer[Any]) -> None:
        if not self.future.done():  # a caller that was cancelled has gone; its reply was read all the same
            self.future.set_result(answer)


class _Wire(Session):
    """One connection. Replies come in the order of ``waiting``, whether or not their callers are still there."""

    def __init__(self, lane: _Lane, endpoint: Endpoint) -> None:
        self._lane = lane
        self.endpoint = endpoint
        self._reader = hiredis.Reader()
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._progress = 0.0
        self._unsent = 0
        self._retired = False
        self.paused = False
        self.lost: str | None = None
        self.waiting: deque[_Pending] = deque()

    # -- asyncio.Protocol --------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but its class
        _keep_alive(transport.get_extra_info("socket"))

    def data_received(self, data: bytes) -> None:
        self._progress = self._lane.loop.time()
        reader = self._reader
        try:
            reader.feed(data)
            reply = reader.gets()
            while reply is not False:
                self._answer(self.waiting.popleft(), reply)
                reply = reader.gets()
        except (hiredis.ProtocolError, IndexError) as error:
            self.abort(dialling.no_replies(data, type(error).__name__))
            return
        if self._retired and not self.waiting:
            self.abort("retired")

    def connection_lost(self, error: Exception | None) -> None:
        self._fall(f"connection lost{f' ({dialling.reason(self.endpoint, error)})' if error else ''}")

    def pause_writing(self) -> None:
        self.paused = True

    def resume_writing(self) -> None:
        self.paused = False
        self._lane.wake()

    # -- for the lane ------------------------------------------------------------------------------

    def send(self, pendings: list[_Pending], buffers: list[bytes]) -> None:
        """Write the calls in one go; from here on their outcome is unknown until a reply comes."""
        assert self._transport is not None
        self.waiting.extend(pendings)
        if self._timer is None:
            self._progress = self._lane.loop.time()
            self._watch()
        self._transport.write(buffers[0] if len(buffers) == 1 else b"".join(buffers))

    async def ask(self, calls: Sequence[Call[Any]]) -> list[Answer[Any]]:
        pendings = [_Pending(call, self._lane.loop.create_future()) for call in calls]
        if self.lost is None:
            self.send(pendings, [wire.pack(call) for call in calls])
            answers = await asyncio.gather(*(pending.future for pending in pendings))
            if not any(isinstance(answer, Unknown) for answer in answers):
                return answers
        raise dialling.ConnectionLost(self.lost or "not the answers to a greeting")

    def retire(self) -> None:
        """Take no more calls; close once the replies of those under way have come."""
        self._retired = True

    def abort(self, reason: str) -> None:
        self._fall(reason)
        if self._transport is not None:
            self._transport.abort()

    # -- inside ------------------------------------------------------------------------------------

    def _answer(self, pending: _Pending, reply: Any) -> None:
        if wire.is_unknown_script(reply) and not pending.with_text:
            pending.with_text = True
            self._lane.submit(pending)
            return
        answer, drop = wire.understand(pending.call, reply)
        if drop:
            self._lane.leave(self, answer)
        elif isinstance(answer, Unavailable) or (isinstance(answer, Unknown) and wire.is_denied(answer.error)):
            self._lane.refuses(answer.error)
        pending.settle(answer)

    def _watch(self) -> None:
        """A peer that has gone without a word (half-open TCP) shows only by its silence."""
        self._timer = None
        if not self.waiting or self._transport is None:
            return
        now = self._lane.loop.time()
        unsent = self._transport.get_write_buffer_size()
        if unsent < self._unsent:
            self._progress = now
        self._unsent = unsent
        allowed = self._lane.timeout_s + self.waiting[0].call.block_ms / 1000
        if now - self._progress >= allowed:
            self.abort(f"no answer within {allowed:g} s")
            return
        pause = min(1.0, max(0.01, min(self._lane.timeout_s / 4, self._progress + allowed - now)))
        self._timer = self._lane.loop.call_later(pause, self._watch)

    def _fall(self, reason: str) -> None:
        if self.lost is not None:
            return
        self.lost = reason
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        shown = self.endpoint.shown
        waiting, self.waiting = self.waiting, deque()
        self._lane.fell(self, f"{shown}: {reason}")
        for pending in waiting:
            pending.settle(Unknown(f"{shown}: {reason}"))


class _Lane:
    """The queue of one lane and the connection it has, is making, or will make."""

    def __init__(self, runner: AsyncRunner, name: str) -> None:
        self._runner = runner
        self._name = name
        self._queue: deque[_Pending] = deque()
        self._scheduled = False
        self._connecting: asyncio.Task[None] | None = None
        self._failures = 0
        self._not_before = 0.0
        self._closed = False
        self.loop = asyncio.get_running_loop()
        self.timeout_s = runner.timeout_s
        self.wire: _Wire | None = None

    def submit(self, pending: _Pending) -> None:
        if self._closed:
            pending.settle(Unavailable("the runner is closed"))
            return
        self._queue.append(pending)
        self.wake()

    def wake(self) -> None:
        """Send what is queued in this turn of the loop, together with what else is queued until then."""
        if self.wire is not None:
            if self._scheduled:
                return
            if not self.wire.waiting:
                self._flush()  # nothing is under way that this could travel together with
                return
            self._scheduled = True
            self.loop.call_soon(self._flush)
        elif self._queue and self._connecting is None and not self._closed:
            self._connecting = self.loop.create_task(self._connect())

    def leave(self, wire_: _Wire, answer: Answer[Any]) -> None:
        """The server said that this connection is of no use (READONLY, LOADING ...): the next call makes another."""
        wire_.retire()
        if self.wire is wire_:
            self.wire = None
            self._failed(answer if isinstance(answer, Unavailable) else Unavailable(str(answer)))
            self.wake()

    def fell(self, wire_: _Wire, reason: str) -> None:
        if self.wire is wire_:
            self.wire = None
            if not self._closed:
                self._failed(Unavailable(reason))
                self.wake()

    def refuses(self, error: str) -> None:
        self._runner.refuses(error)

    async def close(self) -> None:
        self._closed = True
        if self._connecting is not None:
            self._connecting.cancel()
            await asyncio.gather(self._connecting, return_exceptions=True)
        if self.wire is not None:
            self.wire.abort("the runner was closed")
        self._refuse_queue(Unavailable("the runner is closed"))

    # -- inside ------------------------------------------------------------------------------------

    def _flush(self) -> None:
        self._scheduled = False
        current = self.wire
        if current is None:
            self.wake()
            return
        if current.paused:
            return  # resume_writing wakes us
        pendings: list[_Pending] = []
        buffers: list[bytes] = []
        size = 0
        while self._queue and len(pendings) < BATCH_CALLS and size < BATCH_BYTES:
            pending = self._queue.popleft()
            if pending.future.done():
                continue  # cancelled before it was sent: it never happens
            try:
                packed = wire.pack(pending.call, with_text=pending.with_text)
            except (UnicodeEncodeError, TypeError) as error:
                pending.settle(Refused("bad_argument", f"{pending.call.name}: {error}"))
                continue
            pendings.append(pending)
            buffers.append(packed)
            size += len(packed)
        if pendings:
            current.send(pendings, buffers)
        if self._queue:
            self.wake()

    async def _connect(self) -> None:
        try:
            pause = self._not_before - self.loop.time()
            if pause > 0:
                await asyncio.sleep(pause)
            runner = self._runner
            opened = await connect(
                runner.endpoint,
                runner.sentinels,
                lambda endpoint: _Wire(self, endpoint),
                f"{runner.name}-{self._name}",
                runner.connect_timeout_s,
            )
        except wire.GreetingError as error:
            self._connect_failed(error.answer)
        else:
            self._connecting = None
            self._failures = 0
            self.wire = opened
            self._runner.lane_up(self._name, opened.server)
            self.wake()

    def _connect_failed(self, answer: Unavailable) -> None:
        self._connecting = None
        self._failed(answer)
        self._refuse_queue(answer)

    def _failed(self, answer: Unavailable) -> None:
        self._failures += 1
        self._not_before = self.loop.time() + wire.backoff_s(self._failures, random.random())
        self._runner.lane_down(self._name, answer)

    def _refuse_queue(self, answer: Unavailable) -> None:
        queue, self._queue = self._queue, deque()
        for pending in queue:
            pending.settle(answer)


class AsyncRunner:
    """``await run(call)`` -> Answer. Make it inside the loop that uses it; ``await close()`` at the end.

    A call made while the server is away waits for the next try to connect (at most the backoff cap of 1 s and the
    connect timeout), so that a caller that repeats it at once does not spin; other refusals to serve (BUSY, OOM) come
    at once, and repeating those needs a pause of the caller's.
    """

    def __init__(
        self,
        url: str,
        *,
        name: str = "plaita",
        response_timeout_s: float | None = None,
        connect_timeout_s: float | None = None,
        on_state: Callable[[RunnerState], None] | None = None,
        on_refusal: Callable[[str], None] | None = None,
    ) -> None:
        """Timeouts in seconds: those given here, else the URL's, else 5 and 3. Raises InputError."""
        endpoint = self.endpoint = parse_endpoint(url)
        self.sentinels = Sentinels(endpoint) if endpoint.service else None
        self.name = name
        self.timeout_s = response_timeout_s or endpoint.response_timeout_s or RESPONSE_TIMEOUT_S
        self.connect_timeout_s = connect_timeout_s or endpoint.connect_timeout_s or CONNECT_TIMEOUT_S
        self._on_state = on_state
        self._on_refusal = on_refusal
        self._up: set[str] = set()
        self._writer_used = False
        self._loop = asyncio.get_running_loop()
        self._lanes = {lane: _Lane(self, lane) for lane in LANES}
        self.state = RunnerState(False, wall_ms(), "", "", False)

    async def run(self, call: Call[T]) -> Answer[T]:
        """Send it on its lane and wait for its answer. Raises nothing but the caller's own cancellation."""
        future: asyncio.Future[Answer[T]] = self._loop.create_future()
        self._lanes[call.lane].submit(_Pending(call, future))
        return await future

    async def unblock(self) -> bool:
        """End the reader's blocking read now, as if its time were over; False when it was not in one."""
        reader = self._lanes["reader"].wire
        if reader is None:
            return False
        command = ("CLIENT", "UNBLOCK", reader.client_id, "TIMEOUT")
        answer = await self.run(Call("unblock", None, (), command, "writer", True, lambda reply: reply == 1))
        return isinstance(answer, Value) and answer.value

    def drop(self, lane: Lane) -> None:
        """Close a lane's connection; calls under way become Unknown, the next call connects anew."""
        current = self._lanes[lane].wire
        if current is not None:
            current.abort("dropped on request")

    async def follow_sentinels(self) -> None:
        """Leave a server that the sentinels do not name any more, though it answers as a primary: cut off from them, it
        is one until it hears of the other, and what is written there meanwhile is lost. Without sentinels: nothing."""
        if self.sentinels is None:
            return
        keeper = self._lanes["keeper"]
        search = await ask_sentinels(
            self.endpoint, self.sentinels, lambda endpoint: _Wire(keeper, endpoint), self.connect_timeout_s
        )
        try:
            primary = search.primary()
        except wire.GreetingError:
            return  # nobody can tell: what works goes on
        for lane in self._lanes.values():
            if lane.wire is not None and lane.wire.endpoint.server != primary.server:
                lane.wire.abort(f"the sentinels name another primary: {primary.shown}")

    async def close(self) -> None:
        """Close all lanes; calls under way answer Unknown, later ones Unavailable."""
        for lane in self._lanes.values():
            await lane.close()

    # -- told by the lanes -------------------------------------------------------------------------

    def refuses(self, error: str) -> None:
        """The server is there and does not serve this call now (OOM, BUSY, MISCONF, NOREPLICAS, NOPERM)."""
        if self._on_refusal is not None:
            self._on_refusal(error)

    def lane_up(self, lane: str, server: str) -> None:
        self._up.add(lane)
        self._writer_used = self._writer_used or lane == "writer"
        self._tell(server, self.state.last_error, False)

    def lane_down(self, lane: str, answer: Unavailable) -> None:
        self._up.discard(lane)
        self._tell(self.state.server, answer.error, answer.auth)

    def _tell(self, server: str, error: str, auth: bool) -> None:
        # Lanes that are not in use stay down after an outage, so only those that are used can tell. The writer decides
        # where it was used at all: no other lane is used as often.
        connected = "writer" in self._up if self._writer_used else bool(self._up)
        changed = connected != self.state.connected
        since = wall_ms() if changed else self.state.since_ms
        other_reason = not connected and error != self.state.last_error  # first the connection breaks, then LOADING
        self.state = RunnerState(connected, since, server, error, auth)
        if (changed or other_reason) and self._on_state is not None:
            self._on_state(self.state)


def _keep_alive(sock: socket.socket | None) -> None:
    """The kernel looks after an idle connection too: gone within about 30 s. Not for unix sockets."""
    if sock is None or sock.family not in (socket.AF_INET, socket.AF_INET6):
        return
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for option, value in (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, option):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
