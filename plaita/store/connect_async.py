"""Making a connection over asyncio: the sentinels where there are any, each address of a name, TLS, the greeting.

``connect`` raises GreetingError for everything that keeps it from a server that serves, and nothing else.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from plaita.store import dialling, sentinel, wire
from plaita.store.call import Answer, Call
from plaita.store.dialling import Phase
from plaita.store.endpoint import Endpoint

_Target = tuple[int, Any]  # family, address


class Session(asyncio.Protocol):
    """One connection, as far as its making needs to know."""

    client_id = 0
    server = ""

    async def ask(self, calls: Sequence[Call[Any]]) -> list[Answer[Any]]:
        """Their answers. Raises ConnectionLost."""
        raise NotImplementedError

    def abort(self, reason: str) -> None:
        raise NotImplementedError


S = TypeVar("S", bound=Session)
Make = Callable[[Endpoint], S]
_Read = Callable[[Sequence[Answer[Any]]], None]


async def connect(
    endpoint: Endpoint, sentinels: sentinel.Sentinels | None, make: Make[S], client_name: str, timeout_s: float
) -> S:
    """A session with a server that serves. ``timeout_s`` is for the server; a sentinel gets a part of it besides."""
    if sentinels is None:
        return await _serving(endpoint, make, client_name, timeout_s)
    search = await ask_sentinels(endpoint, sentinels, make, timeout_s)
    primary = search.primary()
    try:
        return await _serving(primary, make, client_name, timeout_s)
    except wire.GreetingError:
        search.misled()
        raise


async def ask_sentinels(
    endpoint: Endpoint, sentinels: sentinel.Sentinels, make: Make[Any], timeout_s: float
) -> sentinel.Search:
    """A search that is over."""
    search = sentinels.search()
    for place in search:
        there = endpoint.sentinel(place)
        try:
            session = await _open(
                there,
                make,
                sentinel.questions(endpoint),
                lambda answers, place=place: search.heard(place, answers),  # type: ignore[misc]
                sentinel.share_s(timeout_s),
            )
            session.abort("answered")
        except dialling.NotReached as error:
            search.silent(place, error.reason)
    return search


async def _serving(endpoint: Endpoint, make: Make[S], client_name: str, timeout_s: float) -> S:
    greeted: list[wire.Greeting] = []
    session = await _open(
        endpoint,
        make,
        wire.greeting(endpoint, client_name),
        lambda answers: greeted.append(wire.read_greeting(endpoint, answers)),
        timeout_s,
    )
    session.client_id, session.server = greeted[0].client_id, greeted[0].server
    return session


async def _open(endpoint: Endpoint, make: Make[S], calls: list[Call[Any]], read: _Read, timeout_s: float) -> S:
    """At the first address of the host where ``read`` takes the answers to the calls."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_s
    failure: wire.GreetingError | None = None
    targets = await _targets(endpoint, timeout_s)
    for number, target in enumerate(targets):
        share = dialling.share_s(deadline - loop.time(), len(targets) - number)
        try:
            return await _open_at(target, endpoint, make, calls, read, share)
        except wire.GreetingError as error:
            failure = dialling.telling(failure, error)
    assert failure is not None
    raise failure


async def _targets(endpoint: Endpoint, timeout_s: float) -> list[_Target]:
    if endpoint.path:
        return [(socket.AF_UNIX, endpoint.path)]
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(timeout_s):
            found = await loop.getaddrinfo(endpoint.host, endpoint.port, type=socket.SOCK_STREAM)
    except TimeoutError:
        raise dialling.NotReached(endpoint, f"the name {endpoint.host!r} is not resolved in {timeout_s:g} s") from None
    except (OSError, ValueError) as error:
        raise dialling.NotReached(endpoint, dialling.reason(endpoint, error)) from None
    return dialling.targets(found)


async def _open_at(
    target: _Target, endpoint: Endpoint, make: Make[S], calls: list[Call[Any]], read: _Read, timeout_s: float
) -> S:
    phase: Phase = "connect"
    session = make(endpoint)
    try:
        async with asyncio.timeout(timeout_s):
            sock = await _dial(target)
            phase = "tls" if endpoint.tls is not None else "greeting"
            await _take_over(sock, endpoint, session, timeout_s)
            phase = "greeting"
            answers = await session.ask(calls)
        read(answers)
    except BaseException as error:
        session.abort("the greeting failed")
        if isinstance(error, TimeoutError):  # ours; the kernel's own is one too
            raise dialling.NotReached(endpoint, dialling.too_slow(phase, timeout_s)) from None
        if isinstance(error, dialling.ConnectionLost):
            raise dialling.NotReached(endpoint, dialling.lost_in_greeting(endpoint, str(error))) from None
        if isinstance(error, OSError | ValueError):
            raise dialling.NotReached(endpoint, dialling.reason(endpoint, error)) from None
        raise
    return session


async def _dial(target: _Target) -> socket.socket:
    family, address = target
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, address)
    except BaseException:
        sock.close()
        raise
    return sock


async def _take_over(sock: socket.socket, endpoint: Endpoint, session: Session, timeout_s: float) -> None:
    loop = asyncio.get_running_loop()
    try:
        if endpoint.tls is None:
            await loop.create_connection(lambda: session, sock=sock)
        else:
            await loop.create_connection(
                lambda: session,
                sock=sock,
                ssl=endpoint.tls.context(),
                server_hostname=endpoint.host,
                ssl_handshake_timeout=timeout_s + 1,  # the phase's own limit comes first, and says more
            )
    except BaseException:
        with contextlib.suppress(OSError):
            sock.close()
        raise
