"""Sealed credentials: a hash a tenant, name -> bytes that nothing here can read (ledger T1)."""

from __future__ import annotations

from typing import Any

from plaita.store.call import Call, text
from plaita.store.keys import Keys

PAGE = 200


def put(keys: Keys, name: str, sealed: bytes) -> Call[bool]:
    """Store under the name; whether it is a new one."""
    key = keys.credentials
    return Call("credentials.put", None, (key,), ("HSET", key, name, sealed), "writer", True, lambda reply: reply == 1)


def get(keys: Keys, name: str) -> Call[bytes | None]:
    """What stands under the name, or None."""
    key = keys.credentials
    return Call("credentials.get", None, (key,), ("HGET", key, name), "writer", True, _bytes_or_none)


def _bytes_or_none(reply: Any) -> bytes | None:
    return None if reply is None else bytes(reply)


def remove(keys: Keys, name: str) -> Call[bool]:
    """Whether it was there. Sent again it may answer False for what it took away."""
    key = keys.credentials
    return Call("credentials.remove", None, (key,), ("HDEL", key, name), "writer", True, lambda reply: reply == 1)


def page(keys: Keys, cursor: str = "0") -> Call[tuple[str, list[str]]]:
    """Some of the names: (next cursor, "0" at the end; names, one may come twice)."""
    key = keys.credentials
    return Call(
        "credentials.page",
        None,
        (key,),
        ("HSCAN", key, cursor, "COUNT", PAGE),
        "writer",
        True,
        lambda reply: (text(reply[0]), [text(name) for name in reply[1][::2]]),
    )
