"""Redis URLs: one grammar for a server, a unix socket and Sentinel; what is not understood is refused, never ignored.

    redis[s]://[user[:password]@]host[:port][/db][?options]
    unix://[user:password@]/path[?db=N&options]
    redis[s]+sentinel://[user[:password]@]host[:port],host[:port],.../service[/db][?options]

User, password, path and service are percent-encoded. The options are those of redis-py's URLs as far as they mean
something here. A fault is a ValueError whose reason reads on after "the value: ", and shows nothing that may be part of
a password that was not encoded.
"""

from __future__ import annotations

import difflib
import ipaddress
import math
import re
import unicodedata
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, unquote, urlencode

SCHEMES = ("redis", "rediss", "unix", "redis+sentinel", "rediss+sentinel")
SERVER_PORT = 6379
SENTINEL_PORT = 26379
MAX_LENGTH = 4096
MAX_TIMEOUT_S = 60.0
MAX_DB = 2**31 - 1

_ANYWHERE = ("db", "username", "password", "socket_timeout", "socket_connect_timeout")
TLS_OPTIONS = (
    "ssl_ca_certs",
    "ssl_ca_path",
    "ssl_certfile",
    "ssl_keyfile",
    "ssl_password",
    "ssl_cert_reqs",
    "ssl_check_hostname",
)
_SENTINEL = ("service_name", "sentinel_username", "sentinel_password")
_SECRET = frozenset({"password", "sentinel_password", "ssl_password"})
_ENCODE = "in a user or password, write / ? # @ : % percent-encoded (%2F %3F %23 %40 %3A %25)"
_OTHER_SENTINEL_SCHEMES = ("sentinel", "redis-sentinel", "rediss-sentinel")


@dataclass(frozen=True, slots=True)
class Place:
    """A host name or address, and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class TlsOptions:
    """Files and rules of TLS; an empty path is one not given."""

    ca_certs: str = ""
    ca_path: str = ""
    certfile: str = ""
    keyfile: str = ""
    key_password: str = field(default="", repr=False)
    verify: bool = True
    check_hostname: bool = True


@dataclass(frozen=True, slots=True)
class RedisUrl:
    """A URL, read. ``places``: the server, or the sentinels, or nothing for a unix socket at ``path``."""

    scheme: str
    places: tuple[Place, ...]
    path: str
    service: str
    db: int
    username: str
    password: str = field(repr=False)
    sentinel_username: str
    sentinel_password: str = field(repr=False)
    tls: TlsOptions | None
    socket_timeout: float | None
    connect_timeout: float | None

    @property
    def shown(self) -> str:
        """For people: without user, password and options."""
        if self.path:
            return f"unix://{self.path}"
        service = f"/{self.service}" if self.service else ""
        db = f"/{self.db}" if self.db else ""
        return f"{self.scheme}://{','.join(map(str, self.places))}{service}{db}"


def check_redis_url(value: str) -> str:
    """The URL as it came, or ValueError."""
    read_redis_url(value)
    return value


def read_redis_url(url: str) -> RedisUrl:
    """Raises ValueError with the reason, without a secret in it."""
    scheme, credentials, hosts, path, query = _split(url)
    options = _options(scheme, query)
    username, password = _credentials(credentials, options)
    sentinel = scheme.endswith("+sentinel")
    places: tuple[Place, ...] = ()
    service = socket_path = ""
    if scheme == "unix":
        if hosts or not path:
            raise ValueError("it names no absolute path of a socket, as in unix:///run/valkey.sock")
        socket_path = unquote(f"/{path}")
        if "\0" in socket_path:
            raise ValueError("its path holds a NUL character")
        path = ""
    else:
        if "," in hosts and not sentinel:
            raise ValueError("it names several hosts, which only redis+sentinel:// and rediss+sentinel:// do")
        default = SENTINEL_PORT if sentinel else SERVER_PORT
        places = tuple(_place(one, default) for one in hosts.split(","))
    if sentinel:
        service, path = _service(path, options)
    return RedisUrl(
        scheme=scheme,
        places=places,
        path=socket_path,
        service=service,
        db=_db(path, options),
        username=username,
        password=password,
        sentinel_username=options.get("sentinel_username", ""),
        sentinel_password=options.get("sentinel_password", ""),
        tls=_tls(options) if scheme.startswith("rediss") else None,
        socket_timeout=_seconds("socket_timeout", options),
        connect_timeout=_seconds("socket_connect_timeout", options),
    )


def mask_url(url: str) -> str:
    """The URL with every password in it replaced by ``***``. Of one that cannot be read only what is certainly no part
    of a password: one that was not encoded may reach to the last ``@``, and without any ``@`` to the end."""
    scheme, colon, rest = url.partition("://")
    if not colon or scheme.lower() not in SCHEMES:
        return "(masked)"
    try:
        read_redis_url(url)
    except ValueError:
        authority = re.split("[/?#]", rest, maxsplit=1)[0]
        before, at, rest = rest.rpartition("@")
        if "@" in authority and len(before) > len(authority):
            return f"{scheme}://(masked)"  # one before the host and one behind it
        head, _, query = rest.partition("?")
        if not at and not _can_be_read(f"{scheme}://{head}"):
            return f"{scheme}://(masked)"
        return f"{scheme}://{_masked_user(before) if at else ''}{head}{_masked_query(query)}"
    rest, _, query = rest.partition("?")
    authority, slash, path = rest.partition("/")
    credentials, at, hosts = authority.rpartition("@")
    return f"{scheme}://{_masked_user(credentials) if at else ''}{hosts}{slash}{path}{_masked_query(query)}"


def _can_be_read(url: str) -> bool:
    try:
        read_redis_url(url)
    except ValueError:
        return False
    return True


def _masked_user(credentials: str) -> str:
    user, colon, _password = credentials.partition(":")
    return f"{user}:***@" if colon and re.fullmatch(r"[\w.+%-]*", user) else "***@"


def _masked_query(query: str) -> str:
    """Only values that are known to be no secrets are shown."""
    plain = {*_ANYWHERE, *TLS_OPTIONS, *_SENTINEL} - _SECRET
    tail = urlencode([(name, value if name in plain else "***") for name, value in _pairs(query)], safe="*/")
    return f"?{tail}" if tail else ""


# -- parts --------------------------------------------------------------------------------------------


def _split(url: str) -> tuple[str, str | None, str, str, str]:
    """Scheme, credentials (None when there are none), hosts, path without its first slash, query. By hand: the standard
    library takes no list of hosts with an IPv6 address in it."""
    if not url:
        raise ValueError("it is empty")
    if len(url) > MAX_LENGTH:
        raise ValueError(f"it has {len(url)} characters; at most {MAX_LENGTH}")
    for position, character in enumerate(url):
        if character.isspace() or unicodedata.category(character)[0] in "CZ":
            raise ValueError(f"it has the character U+{ord(character):04X} at position {position}")
    scheme, colon, rest = url.partition("://")
    scheme = scheme.lower()
    if not colon or scheme not in SCHEMES:
        hint = (
            "; for Sentinel write redis+sentinel://host:26379,.../service" if scheme in _OTHER_SENTINEL_SCHEMES else ""
        )
        raise ValueError("its scheme is none of " + ", ".join(f"{one}://" for one in SCHEMES) + hint)
    if "#" in rest:
        raise ValueError(f"it has a '#'; {_ENCODE}")
    rest, _, query = rest.partition("?")
    authority, _, path = rest.partition("/")
    credentials, at, hosts = authority.rpartition("@")
    unencoded = "@" in path if scheme != "unix" or authority else False
    if unencoded or any("@" in name for name, _ in _pairs(query)):
        raise ValueError(f"it has a '@' behind its host; {_ENCODE}")
    return scheme, credentials if at else None, hosts, path, query


def _pairs(query: str) -> list[tuple[str, str]]:
    return parse_qsl(query, keep_blank_values=True)


def _options(scheme: str, query: str) -> dict[str, str]:
    known = (
        *_ANYWHERE,
        *(TLS_OPTIONS if scheme.startswith("rediss") else ()),
        *(_SENTINEL if scheme.endswith("+sentinel") else ()),
    )
    options: dict[str, str] = {}
    for name, value in _pairs(query):
        if name in options:
            raise ValueError(f"its option {name} stands twice")
        if name in known:
            options[name] = value
        elif name in TLS_OPTIONS:
            raise ValueError(f"its option {name} is for TLS, which is rediss:// or rediss+sentinel://")
        elif name in _SENTINEL:
            raise ValueError(f"its option {name} is for redis+sentinel:// and rediss+sentinel://")
        elif "@" in query or not name.replace("_", "").isalnum():
            raise ValueError(f"it has an option that is not known, or a part of a password; {_ENCODE}")
        else:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(known)}"
            raise ValueError(f"its option {name[:40]} is not known; {hint}")
    return options


def _credentials(credentials: str | None, options: dict[str, str]) -> tuple[str, str]:
    user, _, password = (credentials or "").partition(":")
    found = []
    for name, here in (("username", unquote(user)), ("password", unquote(password))):
        there = options.get(name, "")
        if here and there and here != there:
            raise ValueError(f"its {name} stands before the host and, another one, in its options; give one")
        found.append(here or there)
    return found[0], found[1]


def _place(text: str, default_port: int) -> Place:
    if text.startswith("["):
        host, bracket, tail = text[1:].partition("]")
        host = unquote(host)
        try:
            ipaddress.IPv6Address(host)
        except ValueError:
            raise ValueError("its host in brackets is no IPv6 address") from None
        if not bracket or (tail and not tail.startswith(":")):
            raise ValueError("its host or port cannot be read")
        port = tail[1:]
    else:
        host, _, port = text.partition(":")
        host = unquote(host)
        if ":" in port:
            raise ValueError("its host or port cannot be read; an IPv6 address belongs in brackets, as in [::1]:6379")
        if not host:
            raise ValueError("it names no host")
    if not port:
        return Place(host, default_port)
    if not (port.isascii() and port.isdecimal() and 1 <= int(port[:6]) <= 65535):
        raise ValueError(f"its port is no number from 1 to 65535; {_ENCODE}")
    return Place(host, int(port))


def _service(path: str, options: dict[str, str]) -> tuple[str, str]:
    """The service, and what is left of the path. ``?service_name=`` may stand in the place of the path's first part."""
    named = options.get("service_name", "")
    first, _, rest = path.strip("/").partition("/")
    if named and (not first or (not rest and first.isdecimal())):
        return named, first
    service = unquote(first)
    if named and named != service:
        raise ValueError("its service stands in the path and, another one, in service_name; give one")
    if not service:
        raise ValueError("it names no service, as in redis+sentinel://host:26379/mymaster")
    return service, rest


def _db(path: str, options: dict[str, str]) -> int:
    found = [text for text in (path.strip("/"), options.get("db", "")) if text]
    for text in found:
        if not (text.isascii() and text.isdecimal() and len(text) <= 10 and int(text) <= MAX_DB):
            raise ValueError(f"its database is no number from 0 to {MAX_DB}")
    if len({int(text) for text in found}) > 1:
        raise ValueError("its database stands in the path and, another one, in its options; give one")
    return int(found[0]) if found else 0


def _seconds(name: str, options: dict[str, str]) -> float | None:
    if name not in options:
        return None
    try:
        seconds = float(options[name])
    except ValueError:
        seconds = math.nan
    if not 0.05 <= seconds <= MAX_TIMEOUT_S:
        raise ValueError(f"its option {name} is no number of seconds from 0.05 to {MAX_TIMEOUT_S:g}")
    return seconds


def _tls(options: dict[str, str]) -> TlsOptions:
    verify = options.get("ssl_cert_reqs", "required").lower().removeprefix("cert_")
    if verify not in ("required", "optional", "none"):
        raise ValueError("its option ssl_cert_reqs is none of required, none")
    check = options.get("ssl_check_hostname", "true").lower()
    if check not in ("true", "yes", "1", "false", "no", "0"):
        raise ValueError("its option ssl_check_hostname is neither true nor false")
    if options.get("ssl_keyfile") and not options.get("ssl_certfile"):
        raise ValueError("its option ssl_keyfile needs ssl_certfile too")
    return TlsOptions(
        ca_certs=options.get("ssl_ca_certs", ""),
        ca_path=options.get("ssl_ca_path", ""),
        certfile=options.get("ssl_certfile", ""),
        keyfile=options.get("ssl_keyfile", ""),
        key_password=options.get("ssl_password", ""),
        verify=verify != "none",
        check_hostname=verify != "none" and check in ("true", "yes", "1"),
    )
