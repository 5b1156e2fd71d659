"""The address that a client of the package ``redis`` has, as a URL: for programs that have one already."""

from __future__ import annotations

import ssl
from typing import Any
from urllib.parse import quote, urlencode

from plaita.errors import InputError
from plaita.runtime_config.redis_url import TLS_OPTIONS


def url_of_client(client: Any) -> str:
    """Server, database, login, TLS files and sentinels; nothing else of the client is used. Raises InputError where the
    address cannot be told."""
    pool = getattr(client, "connection_pool", None)
    known = getattr(pool, "connection_kwargs", None)
    service = getattr(pool, "service_name", None)
    if not isinstance(known, dict) or not (service or "host" in known or "path" in known):
        raise InputError(f"client: a {type(client).__name__} has no address; give redis_url")
    credentials, database = _credentials(known), int(known.get("db") or 0)
    if known.get("path"):
        return f"unix://{credentials}{quote(str(known['path']))}?db={database}"
    secure = "ssl" in str(getattr(pool, "connection_class", "")).lower()
    options = _tls_options(known) if secure else []
    scheme = "rediss" if secure else "redis"
    if service:
        if not getattr(pool, "is_master", True):
            raise InputError("client: it reads from replicas; give that of the primary (master_for)")
        hosts, more = _sentinels(pool)
        where = f"{hosts}/{quote(str(service), safe='')}/{database}"
        return f"{scheme}+sentinel://{credentials}{where}{_query(options + more)}"
    return f"{scheme}://{credentials}{_place(known)}/{database}{_query(options)}"


def _credentials(known: dict[str, Any]) -> str:
    user, password = (quote(str(known.get(name) or ""), safe="") for name in ("username", "password"))
    return f"{user}:{password}@" if user or password else ""


def _place(known: dict[str, Any], default_port: int = 6379) -> str:
    host = str(known["host"])
    return f"{f'[{host}]' if ':' in host else quote(host)}:{int(known.get('port') or default_port)}"


def _sentinels(pool: Any) -> tuple[str, list[tuple[str, str]]]:
    """Their hosts, and how to log in to them."""
    kwargs = [one.connection_pool.connection_kwargs for one in pool.sentinel_manager.sentinels]
    login = [(f"sentinel_{name}", str(kwargs[0][name])) for name in ("username", "password") if kwargs[0].get(name)]
    return ",".join(_place(one, 26379) for one in kwargs), login


def _tls_options(known: dict[str, Any]) -> list[tuple[str, str]]:
    found = []
    for name in TLS_OPTIONS:
        value = known.get(name)
        if isinstance(value, ssl.VerifyMode):
            value = "none" if value is ssl.CERT_NONE else "required"
        if value not in (None, ""):
            found.append((name, str(value).lower() if isinstance(value, bool) else str(value)))
    return found


def _query(options: list[tuple[str, str]]) -> str:
    return f"?{urlencode(options)}" if options else ""
