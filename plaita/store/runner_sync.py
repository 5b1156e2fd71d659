"""The same calls over one blocking connection: for the commands, the client library and tests.

``run`` returns Answers as the other runner does; ``do`` is for callers that want the value or an exception.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

import hiredis

from plaita.store import dialling, sentinel, wire
from plaita.store.call import Answer, Call, Refused, Unavailable, Unknown, expect
from plaita.store.dialling import ConnectionLost, NotReached, Phase
from plaita.store.endpoint import Endpoint, parse_endpoint
from plaita.store.sentinel import Search, Sentinels

__all__ = ["SyncRunner", "expect"]

T = TypeVar("T")
_Read = Callable[[Sequence[Answer[Any]]], None]

RESPONSE_TIMEOUT_S = 5.0
CONNECT_TIMEOUT_S = 3.0
_CHUNK = 65536


class SyncRunner:
    """One connection, made at the first call and again after a loss. Calls of several threads take turns."""

    def __init__(
        self,
        url: str,
        *,
        name: str = "plaita",
        response_timeout_s: float | None = None,
        connect_timeout_s: float | None = None,
    ) -> None:
        """Timeouts in seconds: those given here, else the URL's, else 5 and 3. Raises InputError."""
        endpoint = self._endpoint = parse_endpoint(url)
        self._sentinels = Sentinels(endpoint) if endpoint.service else None
        self._name = name
        self._response_timeout_s = response_timeout_s or endpoint.response_timeout_s or RESPONSE_TIMEOUT_S
        self._connect_timeout_s = connect_timeout_s or endpoint.connect_timeout_s or CONNECT_TIMEOUT_S
        self._shown = endpoint.shown
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._reader = hiredis.Reader()
        self.server = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def run(self, call: Call[T]) -> Answer[T]:
        """Send it and wait for its answer. Raises nothing; tries once, without pausing."""
        with self._lock:
            if self._socket is None:
                failure = self._connect()
                if failure is not None:
                    return failure
            return self._ask(call)

    def do(self, call: Call[T]) -> T:
        """The value of a call; an idempotent one is sent a second time when its answer was lost.

        Raises RefusedError or UnreachableError.
        """
        answer = self.run(call)
        if isinstance(answer, Unknown) and call.idempotent:
            answer = self.run(call)
        return expect(answer)

    def close(self) -> None:
        with self._lock:
            self._drop()

    # -- inside ------------------------------------------------------------------------------------

    def _ask(self, call: Call[T]) -> Answer[T]:
        try:
            packed = wire.pack(call)
        except (UnicodeEncodeError, TypeError) as error:
            return Refused("bad_argument", f"{call.name}: {error}")
        try:
            reply = self._exchange(packed, 1, call.block_ms)[0]
            if wire.is_unknown_script(reply):
                reply = self._exchange(wire.pack(call, with_text=True), 1, call.block_ms)[0]
        except ConnectionLost as error:
            self._drop()
            return Unknown(f"{self._shown}: {error}")
        except BaseException:
            self._drop()  # interrupted in mid-answer: what is still to come belongs to nobody
            raise
        answer, drop = wire.understand(call, reply)
        if drop:
            self._drop()
        return answer

    def _exchange(self, packed: bytes, replies: int, block_ms: int = 0) -> list[Any]:
        """Send, and read so many replies. The time limit counts from the last byte that came."""
        return self._converse(packed, replies, self._response_timeout_s + block_ms / 1000)

    def _converse(self, packed: bytes, replies: int, allowed: float) -> list[Any]:
        assert self._socket is not None
        data = b""
        try:
            self._socket.settimeout(allowed)
            self._socket.sendall(packed)
            found: list[Any] = []
            while len(found) < replies:
                reply = self._reader.gets()
                if reply is not False:
                    found.append(reply)
                    continue
                data = self._socket.recv(_CHUNK)
                if not data:
                    raise ConnectionLost("connection lost")
                self._reader.feed(data)
        except TimeoutError:
            raise ConnectionLost(f"no answer within {round(allowed, 2):g} s") from None
        except OSError as error:
            raise ConnectionLost(f"connection lost ({dialling.reason(self._endpoint, error)})") from None
        except hiredis.ProtocolError:
            raise ConnectionLost(dialling.no_replies(data, "ProtocolError")) from None
        return found

    def _connect(self) -> Unavailable | None:
        try:
            if self._sentinels is None:
                self._greet(self._endpoint)
            else:
                self._greet_primary(self._sentinels.search())
        except wire.GreetingError as error:
            return error.answer
        return None

    def _greet_primary(self, search: Search) -> None:
        for place in search:
            there = self._endpoint.sentinel(place)
            calls = sentinel.questions(self._endpoint)
            try:
                self._open(
                    there,
                    calls,
                    lambda answers, place=place: search.heard(place, answers),  # type: ignore[misc]
                    sentinel.share_s(self._connect_timeout_s),
                )
            except NotReached as error:
                search.silent(place, error.reason)
            self._drop()
        primary = search.primary()
        try:
            self._greet(primary)
        except wire.GreetingError:
            search.misled()
            raise

    def _greet(self, endpoint: Endpoint) -> None:
        def read(answers: Sequence[Answer[Any]]) -> None:
            self.server = self._greeted(endpoint, answers)

        self._open(endpoint, wire.greeting(endpoint, self._name), read, self._connect_timeout_s)
        self._shown = endpoint.shown

    def _greeted(self, endpoint: Endpoint, answers: Sequence[Answer[Any]]) -> str:
        """What the server calls itself. Raises GreetingError where it does not serve us."""
        return wire.read_greeting(endpoint, answers).server

    def _open(self, endpoint: Endpoint, calls: list[Call[Any]], read: _Read, timeout_s: float) -> None:
        """Connect at the first address of the host where ``read`` takes the answers to the calls."""
        deadline = time.monotonic() + timeout_s
        failure: wire.GreetingError | None = None
        try:
            targets = _targets(endpoint)
        except (OSError, ValueError) as error:
            raise NotReached(endpoint, dialling.reason(endpoint, error)) from None
        for number, target in enumerate(targets):
            share = dialling.share_s(deadline - time.monotonic(), len(targets) - number)
            try:
                self._open_at(target, endpoint, calls, read, share)
                return
            except wire.GreetingError as error:
                failure = dialling.telling(failure, error)
        assert failure is not None
        raise failure

    def _open_at(
        self, target: tuple[int, Any], endpoint: Endpoint, calls: list[Call[Any]], read: _Read, timeout_s: float
    ) -> None:
        phase: Phase = "connect"
        deadline = time.monotonic() + timeout_s
        self._reader = hiredis.Reader()
        try:
            self._socket = _dial(target, timeout_s)
            if endpoint.tls is not None:
                phase = "tls"
                self._socket.settimeout(max(0.01, deadline - time.monotonic()))
                self._socket = endpoint.tls.context().wrap_socket(self._socket, server_hostname=endpoint.host)
            phase = "greeting"
            packed = b"".join(wire.pack(call) for call in calls)
            replies = self._converse(packed, len(calls), max(0.01, deadline - time.monotonic()))
            read([wire.understand(call, reply)[0] for call, reply in zip(calls, replies, strict=True)])
        except BaseException as error:
            self._drop()
            if isinstance(error, TimeoutError):
                raise NotReached(endpoint, dialling.too_slow(phase, timeout_s)) from None
            if isinstance(error, ConnectionLost):
                raise NotReached(endpoint, dialling.lost_in_greeting(endpoint, str(error))) from None
            if isinstance(error, OSError | ValueError):
                raise NotReached(endpoint, dialling.reason(endpoint, error)) from None
            raise

    def _drop(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def _targets(endpoint: Endpoint) -> list[tuple[int, Any]]:
    if endpoint.path:
        return [(socket.AF_UNIX, endpoint.path)]
    return dialling.targets(socket.getaddrinfo(endpoint.host, endpoint.port, type=socket.SOCK_STREAM))


def _dial(target: tuple[int, Any], timeout_s: float) -> socket.socket:
    family, address = target
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.settimeout(timeout_s)
        sock.connect(address)
        if family != socket.AF_UNIX:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except BaseException:
        sock.close()
        raise
    return sock
