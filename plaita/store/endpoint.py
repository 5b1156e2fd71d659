"""Where the data is and how to log in, as the runners use it: made of a URL once, without I/O but for TLS files.

A password leaves an endpoint in ``wire.greeting`` and ``sentinel.questions`` only, and never stands in a message:
errors name ``Endpoint.shown``.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from plaita.errors import InputError
from plaita.runtime_config.redis_tls import Tls
from plaita.runtime_config.redis_url import Place, read_redis_url


@dataclass(frozen=True, slots=True)
class Endpoint:
    """``path`` for a unix socket, ``sentinels`` and ``service`` where Sentinel knows the server, else ``host`` and
    ``port``. The timeouts are seconds, None where the URL says nothing."""

    host: str
    port: int
    path: str
    db: int
    username: str
    password: str = field(repr=False)
    tls: Tls | None = field(repr=False)
    shown: str  # for people: never with user or password
    service: str = ""
    sentinels: tuple[Place, ...] = ()
    sentinel_username: str = ""
    sentinel_password: str = field(default="", repr=False)
    response_timeout_s: float | None = None
    connect_timeout_s: float | None = None

    @property
    def logs_in(self) -> bool:
        return bool(self.username or self.password)

    @property
    def server(self) -> tuple[object, ...]:
        """Equal for two endpoints that lead to one set of data."""
        return (self.host, self.port, self.path, self.db, self.service, frozenset(self.sentinels))

    def at(self, place: Place) -> Endpoint:
        """The primary of the service, which is at this place now."""
        return replace(self, host=place.host, port=place.port, shown=f"{self.shown} (now {place})")

    def sentinel(self, place: Place) -> Endpoint:
        """One of its sentinels."""
        return replace(self, host=place.host, port=place.port, shown=f"sentinel {place}")


def parse_endpoint(url: str) -> Endpoint:
    """Of any URL that ``runtime_config.redis_url`` reads. Raises InputError, without the url in it: it may hold a
    password."""
    try:
        read = read_redis_url(url)
        tls = Tls(read.tls) if read.tls is not None else None
    except ValueError as error:
        raise InputError(f"redis url: {error}") from None
    server = read.places[0] if read.places and not read.service else Place("", 0)
    return Endpoint(
        host=server.host,
        port=server.port,
        path=read.path,
        db=read.db,
        username=read.username,
        password=read.password,
        tls=tls,
        shown=read.shown,
        service=read.service,
        sentinels=read.places if read.service else (),
        sentinel_username=read.sentinel_username,
        sentinel_password=read.sentinel_password,
        response_timeout_s=read.socket_timeout,
        connect_timeout_s=read.connect_timeout,
    )
