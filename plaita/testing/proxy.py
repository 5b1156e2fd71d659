"""A TCP proxy in front of a server (of a unix socket or a port) that fails on cue.

Modes hold for all that passes, from now on:

forward       all bytes pass
freeze        nothing passes, either way, and nothing is closed: a half-open connection
drop_replies  requests pass, answers vanish
cut           every connection is reset now; new ones are made and reset too

A ``Rule`` hits single calls: the third ``commit`` loses its answer, say. It knows a call by the name of the script, or
by the command. As in a network, nothing of a connection passes once something of it was lost: it is reset or silent.
"""

from __future__ import annotations

import contextlib
import hashlib
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Literal

from plaita.store.call import script
from plaita.testing.resp import end_of, words_of

Mode = Literal["forward", "freeze", "drop_replies", "cut"]
Deed = Literal["lose_request", "lose_reply", "cut_reply", "delay_reply", "freeze"]
Then = Literal["reset", "silence"]


class Rule:
    """The ``nth`` and each following call of ``call`` (a script's name, or a command in capitals), ``times`` of them,
    or ``every`` so manieth without end. ``done``: how often it struck; ``answered``: how many of those were answered
    all the same, whether or not that was passed on; ``reply``: the last such answer. The deed ``freeze`` sets that
    mode: the call is under way, and is carried out when the mode is another again."""

    def __init__(
        self,
        call: str,
        deed: Deed,
        *,
        nth: int = 1,
        times: int = 1,
        every: int = 0,
        then: Then = "reset",
        seconds: float = 0.0,
    ) -> None:
        self.call = call
        self.deed = deed
        self.then = then
        self.seconds = seconds
        self.seen = 0
        self.done = 0
        self.answered = 0
        self.reply = b""
        self._nth, self._times, self._every = nth, times, every
        self._sha = b"" if call.isupper() else script(call).sha.encode()

    def strikes(self, words: list[bytes]) -> bool:
        """Whether this request is one; counts it. Called under the proxy's lock."""
        command = words[0].upper()
        if not self._sha:
            found = command == self.call.encode()
        elif command == b"EVAL":
            found = hashlib.sha1(words[1], usedforsecurity=False).hexdigest().encode() == self._sha
        else:
            found = command == b"EVALSHA" and words[1] == self._sha
        if not found:
            return False
        self.seen += 1
        struck = self.seen % self._every == 0 if self._every else self._nth <= self.seen < self._nth + self._times
        self.done += struck
        return struck


class _Pair:
    """One connection through the proxy. ``rules``: for each request that awaits its answer, the rule it meets."""

    def __init__(self, client: socket.socket, upstream: socket.socket) -> None:
        self.client = client
        self.upstream = upstream
        self.rules: deque[Rule | None] = deque()
        self.silent = False

    def reset(self) -> None:
        _reset(self.client)
        _reset(self.upstream)


_Passes = Callable[[_Pair, bytes], None]


class Proxy:
    """``port`` is where to connect. Its threads end with ``close``. ``delay_s`` is added to each way."""

    def __init__(self, target: str | tuple[str, int]) -> None:
        self._target = target
        self._lock = threading.Condition()
        self._mode: Mode = "forward"
        self._rules: list[Rule] = []
        self._pairs: list[_Pair] = []
        self._closed = False
        self.delay_s = 0.0
        self.connections = 0
        self.requests = 0
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

    def add(self, rule: Rule) -> Rule:
        """From now on; the rule itself, to look at."""
        with self._lock:
            self._rules.append(rule)
        return rule

    def clear(self) -> None:
        """No rule any more."""
        with self._lock:
            self._rules.clear()

    def reset(self, *, client_only: bool = False) -> None:
        """Every connection is reset now; new ones pass. ``client_only``: the server does not learn of it."""
        with self._lock:
            if not client_only:
                self._reset_all()
                return
            for pair in self._pairs:
                pair.silent = True
                _reset(pair.client)

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
            pair.reset()
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
            pair = _Pair(client, upstream)
            with self._lock:
                self._pairs.append(pair)
            for pump in (self._requests, self._replies):
                threading.Thread(target=pump, args=(pair,), name="proxy", daemon=True).start()

    # -- one direction each ------------------------------------------------------------------------

    def _requests(self, pair: _Pair) -> None:
        self._pump(pair.client, pair, self._request)

    def _replies(self, pair: _Pair) -> None:
        self._pump(pair.upstream, pair, self._reply)

    def _pump(self, source: socket.socket, pair: _Pair, passes: _Passes) -> None:
        held = bytearray()
        try:
            while data := source.recv(262_144):
                held += data
                at = 0
                while at < len(held) and (end := end_of(held, at)) > 0:
                    passes(pair, bytes(held[at:end]))
                    at = end
                del held[:at]
        except (OSError, ValueError):
            pass  # the other pump or a cut closed it: the end that this thread was waiting for
        with self._lock:
            silent = pair.silent
        if silent:
            return  # neither end may learn of it
        for end_ in (pair.client, pair.upstream):
            with contextlib.suppress(OSError):
                end_.shutdown(socket.SHUT_RDWR)

    def _delay(self) -> None:
        if self.delay_s:
            time.sleep(self.delay_s)

    def _wait_until_open(self) -> bool:
        """False when what is in hand must vanish."""
        self._lock.wait_for(lambda: self._mode != "freeze" or self._closed)
        return not self._closed

    def _request(self, pair: _Pair, message: bytes) -> None:
        words = words_of(message)
        self._delay()
        with self._lock:
            if not self._wait_until_open() or pair.silent:
                return
            self.requests += 1
            struck = [rule for rule in self._rules if rule.strikes(words)]
            rule = struck[0] if struck else None
            if rule is not None and rule.deed == "lose_request":
                self._lose(pair, rule)
                return
            if rule is not None and rule.deed == "freeze":
                self._mode = "freeze"
                if not self._wait_until_open() or pair.silent:
                    return
            pair.rules.append(rule)
        pair.upstream.sendall(message)

    def _reply(self, pair: _Pair, message: bytes) -> None:
        self._delay()
        with self._lock:
            if not self._wait_until_open() or pair.silent or self._mode == "drop_replies":
                return
            rule = pair.rules.popleft() if pair.rules else None
            if rule is not None:
                rule.answered += 1
                rule.reply = message
            if rule is not None and rule.deed == "lose_reply":
                self._lose(pair, rule)
                return
        if rule is not None and rule.deed == "delay_reply":
            time.sleep(rule.seconds)
        if rule is not None and rule.deed == "cut_reply":
            pair.client.sendall(message[: max(1, len(message) // 2)])
            with self._lock:
                self._lose(pair, rule)
            return
        pair.client.sendall(message)

    @staticmethod
    def _lose(pair: _Pair, rule: Rule) -> None:
        if rule.then == "reset":
            pair.client.shutdown(socket.SHUT_RDWR)
            pair.upstream.shutdown(socket.SHUT_RDWR)
        else:
            pair.silent = True


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
