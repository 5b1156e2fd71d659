"""What the server says of itself."""

from __future__ import annotations

from dataclasses import dataclass

from plaita.store.call import Call, Lane, text
from plaita.store.keys import Keys


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """``replication_id`` changes on a failover (DECISIONS 11), ``run_id`` on each restart."""

    product: str
    version: str
    run_id: str
    replication_id: str
    role: str
    cluster_enabled: bool
    aof: bool
    used_memory: int


def server_info(keys: Keys) -> Call[ServerInfo]:
    """From INFO. ``keys`` only for the likeness of all verbs."""
    return Call("server.server_info", None, (), ("INFO",), "keeper", True, _parse_info)


def _parse_info(reply: bytes) -> ServerInfo:
    facts: dict[str, str] = {}
    for line in text(reply).splitlines():
        name, colon, value = line.partition(":")
        if colon:
            facts[name] = value
    valkey = facts.get("server_name") == "valkey" or "valkey_version" in facts
    return ServerInfo(
        product="valkey" if valkey else "redis",
        version=facts.get("valkey_version") or facts.get("redis_version", ""),
        run_id=facts.get("run_id", ""),
        replication_id=facts.get("master_replid", ""),
        role=facts.get("role", ""),
        cluster_enabled=facts.get("cluster_enabled") == "1",
        aof=facts.get("aof_enabled") == "1",
        used_memory=int(facts.get("used_memory", 0)),
    )


def now_ms(keys: Keys) -> Call[int]:
    """The server's clock, epoch ms: the only one that times of its entries may be compared with."""
    return Call(
        "server.now_ms", None, (), ("TIME",), "writer", True, lambda reply: int(reply[0]) * 1000 + int(reply[1]) // 1000
    )


@dataclass(frozen=True, slots=True)
class Replication:
    """Whose history the server has: ``replication_id`` changes on a failover, and on a restart (DECISIONS 11);
    ``run_id`` on a restart only. ``up_s``: seconds since then. ``before``: the id that it had as the replica of
    another, until it was promoted."""

    replication_id: str
    role: str
    run_id: str
    up_s: int
    before: str


def replication(keys: Keys, lane: Lane) -> Call[Replication]:
    """From INFO, asked on a lane: the lanes of a name that moved may lead to different servers."""

    def parse(reply: bytes) -> Replication:
        facts = dict(line.partition(":")[::2] for line in text(reply).splitlines())
        return Replication(
            facts.get("master_replid", ""),
            facts.get("role", ""),
            facts.get("run_id", ""),
            int(facts.get("uptime_in_seconds", 0)),
            facts.get("master_replid2", ""),
        )

    return Call("server.replication", None, (), ("INFO",), lane, True, parse)


def ping(keys: Keys, lane: Lane = "writer") -> Call[bool]:
    """True when the server answers and serves."""
    return Call("server.ping", None, (), ("PING",), lane, True, lambda reply: reply == b"PONG")


def write_probe(keys: Keys) -> Call[bool]:
    """True when the server takes a write: a small key that is gone after a second."""
    words = ("SET", keys.write_probe, "1", "PX", 1000)
    return Call("server.write_probe", None, (keys.write_probe,), words, "writer", True, lambda reply: reply == b"OK")
