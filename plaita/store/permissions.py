"""Every command that plaita gives the server, as one that could be given: for asking whether a user may.

A test compares the names with those in the scripts and calls.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from plaita.store.call import Argument, Call, script
from plaita.store.keys import Keys

_ON_A_ROW = (
    "DEL K", "EXISTS K", "EXPIRE K 1", "GET K", "HDEL K f", "HEXISTS K f", "HGET K f", "HGETALL K", "HKEYS K", "HLEN K",
    "HMGET K f", "HSCAN K 0", "HSET K f v", "HSETNX K f v", "HSTRLEN K f", "INCR K", "LLEN K", "LPOP K", "LPUSH K v",
    "LRANGE K 0 1", "LTRIM K 0 1", "MGET K", "PERSIST K", "PEXPIRE K 1", "PTTL K", "RPUSH K v", "SADD K m", "SET K v",
    "SMEMBERS K", "SRANDMEMBER K", "SREM K m", "SSCAN K 0", "TYPE K", "UNLINK K", "ZADD K 1 m", "ZCARD K",
    "ZCOUNT K 0 1", "ZRANGE K 0 0", "ZRANGEBYSCORE K 0 0", "ZREM K m", "ZREMRANGEBYSCORE K 0 0",
    "ZREVRANGE K 0 0", "ZSCAN K 0", "ZSCORE K m",
)  # fmt: skip
_ON_A_STREAM = (
    "XACK K g 0-1", "XADD K * f v", "XAUTOCLAIM K g c 1 0-0", "XCLAIM K g c 0 0-1", "XDEL K 0-1", "XGROUP CREATE K g 0",
    "XGROUP DELCONSUMER K g c", "XINFO GROUPS K", "XINFO CONSUMERS K g", "XLEN K", "XPENDING K g", "XRANGE K - +",
    "XREADGROUP GROUP g c STREAMS K >",
    "XREVRANGE K + -", "XTRIM K MAXLEN 0",
)  # fmt: skip
_WITHOUT_A_KEY = (
    "EVAL s 0", "EVALSHA s 0", "INFO", "PING", "SCAN 0", "TIME", "CLIENT UNBLOCK 1",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Denied:
    """``commands``: by name, ``client|unblock`` for a part of one. ``patterns``: of keys on which nothing at all is
    allowed; what is refused on these is not among the commands."""

    commands: list[str]
    patterns: list[str]


def commands(keys: Keys) -> list[tuple[str, list[str]]]:
    """(key or '', words that fit) of each, on the keys it is given to: of rows, streams, dead letters, registry."""
    found = [("", form.split(" ")) for form in _WITHOUT_A_KEY]
    for forms, names in (
        (_ON_A_ROW, (keys.row("doctor"),)),
        (_ON_A_STREAM, (keys.queue, keys.wake, keys.event_log)),
        (("XADD K * f v", "XRANGE K - +", "XTRIM K MAXLEN 0"), (keys.dead_letters,)),
        (("ZADD K 1 m", "ZREM K m", "ZRANGEBYSCORE K 0 0"), (keys.delayed,)),
        (("SET K v", "GET K"), (keys.instance("doctor"), keys.tombstone("doctor"))),
    ):
        for name in names:
            found += [(name, [name if word == "K" else word for word in form.split(" ")]) for form in forms]
    return found


def patterns(keys: Keys) -> list[str]:
    """The keys a user must be allowed, as ACL patterns."""
    found = [f"{keys.prefix}:*", f"{keys.queue}*", f"{keys.dead_letters}*"]
    kept: list[str] = []
    for pattern in found:
        if not any(pattern.startswith(other.removesuffix("*")) for other in kept):
            kept.append(pattern)
    return kept


def denied(keys: Keys) -> Call[Denied | None]:
    """What this user may not; None where the server cannot tell, before Redis 7."""
    asked = commands(keys)
    words: list[Argument] = []
    for _, one in asked:
        words += (len(one), *one)

    def parse(reply: Sequence[Any]) -> Denied | None:
        if reply[0] != 1:
            return None
        refused = [asked[int(place)] for place in reply[1]]
        before, after = Counter(key for key, _ in asked), Counter(key for key, _ in refused)
        shut = {key for key, count in after.items() if key and count == before[key]}
        names = dict.fromkeys(_name(one) for key, one in refused if key not in shut)
        wanted = [one for one in patterns(keys) if any(key.startswith(one.removesuffix("*")) for key in shut)]
        return Denied(list(names), wanted)

    return Call("permissions.denied", script("look_rights"), (), words, "writer", True, parse)


def _name(words: Sequence[str]) -> str:
    return "|".join(words[: 2 if words[0] in ("CLIENT", "XGROUP", "XINFO") else 1]).lower()
