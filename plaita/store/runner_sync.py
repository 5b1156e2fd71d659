"""The same calls over one blocking connection: for the commands, the client library and tests.

``run`` returns Answers as the other runner does; ``do`` is for callers that want the value or an exception.
"""

from __future__ import annotations

import socket
import threading
import time
from types import TracebackType
from typing import Any, TypeVar

import hiredis

from plaita.store import wire
from plaita.store.call import Answer, Call, Refused, Unavailable, Unknown, expect

__all__ = ["SyncRunner", "expect"]

T = TypeVar("T")

RESPONSE_TIMEOUT_S = 5.0
CONNECT_TIMEOUT_S = 3.0
_CHUNK = 65536


class _ConnectionLost(Exception):
    """The connection ended or fell silent after something had been sent."""


class SyncRunner:
    """One connection, made at the first call and again after a loss. Calls of several threads take turns."""

    def __init__(
        self,
        url: str,
        *,
        name: str = "plaita",
        response_timeout_s: float = RESPONSE_TIMEOUT_S,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
    ) -> None:
        self._endpoint = wire.parse_endpoint(url)
        self._name = name
        self._response_timeout_s = response_timeout_s
        self._connect_timeout_s = connect_timeout_s
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._reader = hiredis.Reader()
        self.server = ""

    def __enter__(self) -> SyncRunner:
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
        except _ConnectionLost as error:
            self._drop()
            return Unknown(f"{self._endpoint.shown}: {error}")
        except BaseException:
            self._drop()  # interrupted in mid-answer: what is still to come belongs to nobody
            raise
        answer, drop = wire.understand(call, reply)
        if drop:
            self._drop()
        return answer

    def _exchange(self, packed: bytes, replies: int, block_ms: int = 0) -> list[Any]:
        """Send, and read so many replies. The time limit counts from the last byte that came."""
        assert self._socket is not None
        allowed = self._response_timeout_s + block_ms / 1000
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
                    raise _ConnectionLost("connection lost")
                self._reader.feed(data)
        except TimeoutError:
            raise _ConnectionLost(f"no answer within {allowed:g} s") from None
        except OSError as error:
            raise _ConnectionLost(f"connection lost ({error.strerror or error})") from None
        except hiredis.ProtocolError:
            raise _ConnectionLost("not the replies of a Redis server") from None
        return found

    def _connect(self) -> Unavailable | None:
        shown = self._endpoint.shown
        self._reader = hiredis.Reader()
        try:
            self._socket = self._open(time.monotonic() + self._connect_timeout_s)
            calls = wire.greeting(self._endpoint, self._name)
            replies = self._exchange(b"".join(wire.pack(call) for call in calls), len(calls))
            answers = [wire.understand(call, reply)[0] for call, reply in zip(calls, replies, strict=True)]
            self.server = wire.read_greeting(self._endpoint, answers).server
        except wire.GreetingError as error:
            self._drop()
            return error.answer
        except _ConnectionLost as error:
            self._drop()
            return Unavailable(f"{shown}: {error}")
        except TimeoutError:
            self._drop()
            return Unavailable(f"{shown}: no connection within {self._connect_timeout_s:g} s")
        except OSError as error:
            self._drop()
            return Unavailable(f"{shown}: {error.strerror or error}")
        except ValueError as error:  # a host name that no resolver takes
            self._drop()
            return Unavailable(f"{shown}: {error}")
        return None

    def _open(self, deadline: float) -> socket.socket:
        endpoint = self._endpoint
        seconds = max(0.01, deadline - time.monotonic())
        if endpoint.path:
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                sock.settimeout(seconds)
                sock.connect(endpoint.path)
            except BaseException:
                sock.close()
                raise
            return sock
        sock = socket.create_connection((endpoint.host, endpoint.port), timeout=seconds)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if endpoint.tls is None:
            return sock
        try:
            return endpoint.tls.wrap_socket(sock, server_hostname=endpoint.host)
        except BaseException:
            sock.close()
            raise

    def _drop(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None
