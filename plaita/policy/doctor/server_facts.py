"""What is known of the server: its own words (INFO, CONFIG), and what was measured."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """``info``: the fields of INFO, ``config``: of CONFIG GET, each None where the user may not ask. ``ahead_ms``: the
    server's clock less ours, ``uncertain_ms``: half the round trip it was asked in. ``ping_ms``: median. ``user``: who
    we are there; ``denied``: commands plaita needs and this user may not use, None where that cannot be told;
    ``denied_keys``: patterns of keys on which it may do nothing. ``local``: it runs on this host; ``overcommit``
    (vm.overcommit_memory) and ``huge_pages`` (THP) only then."""

    info: Mapping[str, str] | None
    config: Mapping[str, str] | None = None
    ahead_ms: float | None = None
    uncertain_ms: float = 0.0
    ping_ms: float | None = None
    user: str = ""
    denied: Sequence[str] | None = ()
    denied_keys: Sequence[str] = ()
    local: bool = False
    overcommit: str | None = None
    huge_pages: str | None = None
    lease_ttl_s: float = 120.0
    shown: str = ""

    def text(self, name: str, default: str = "") -> str:
        return (self.info or {}).get(name, default)

    def number(self, name: str) -> float | None:
        """A number of INFO, None where there is none."""
        try:
            return float(self.text(name))
        except ValueError:
            return None

    def setting(self, name: str) -> str | None:
        return None if self.config is None else self.config.get(name)


@dataclass(frozen=True, slots=True)
class Product:
    """``version`` of the product; ``speaks``: the version of Redis that it is like, which commands go by."""

    name: str
    version: str
    speaks: tuple[int, ...] = field(default=())


def product(info: Mapping[str, str]) -> Product:
    """Who answers. Valkey calls itself 7.2.4 in ``redis_version``, for programs that know no other name."""
    valkey = "valkey_version" in info or info.get("server_name") == "valkey"
    version = info.get("valkey_version") or info.get("redis_version", "")
    speaks = tuple(int(part) for part in re.findall(r"\d+", info.get("redis_version", ""))[:2])
    return Product("valkey" if valkey else "redis", version, speaks)


def whole(text: str | None) -> int:
    """A whole number as a server writes it, 0 for what is none."""
    return int(text) if text is not None and text.isascii() and text.isdigit() else 0
