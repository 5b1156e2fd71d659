"""The doctor's checks of the server: a table of facts, and the finding each gives (or none), borders included."""

from __future__ import annotations

from typing import Any

import pytest

from plaita.policy.doctor import reachable, server
from plaita.policy.doctor.server_facts import Product, ServerFacts, product

GIB = 1024**3
HEALTHY = {
    "redis_version": "7.2.4",
    "server_name": "valkey",
    "valkey_version": "9.1.0",
    "role": "master",
    "connected_slaves": "0",
    "cluster_enabled": "0",
    "aof_enabled": "1",
    "aof_last_write_status": "ok",
    "aof_last_bgrewrite_status": "ok",
    "rdb_last_bgsave_status": "ok",
    "aof_rewrite_in_progress": "0",
    "rdb_bgsave_in_progress": "0",
    "maxmemory": "0",
    "maxmemory_policy": "noeviction",
    "used_memory": str(GIB),
    "used_memory_rss": str(GIB),
    "mem_fragmentation_ratio": "1.0",
    "total_system_memory": str(16 * GIB),
    "evicted_keys": "0",
    "connected_clients": "10",
    "maxclients": "1000",
    "rejected_connections": "0",
}
CONFIG = {"appendfsync": "always", "min-replicas-to-write": "0", "timeout": "0", "tcp-keepalive": "300"}


def facts(info: dict[str, str] | None = None, config: dict[str, str] | None = None, **changes: Any) -> ServerFacts:
    return ServerFacts(HEALTHY | (info or {}), CONFIG | (config or {}), **changes)


def severity(found: ServerFacts, check: str) -> str | None:
    """Of the one finding of this check; None without one."""
    of_check = [one for one in server.judge(found) if one.check == check]
    assert len(of_check) <= 1, of_check
    for one in of_check:
        if one.severity.value != "ok":
            assert one.why
            assert one.action or one.severity.value == "note", one
    return of_check[0].severity.value if of_check else None


def test_a_healthy_server_has_nothing_worse_than_a_note() -> None:
    worse = [one for one in server.judge(facts()) if one.severity.value not in ("ok", "note")]
    assert worse == []
    assert [one.check for one in server.judge(facts()) if one.severity.value == "note"] == ["redis.replicas"]


INFO_TABLE = [
    ("redis.version", {"redis_version": "6.0.16", "server_name": "", "valkey_version": ""}, "error"),
    ("redis.version", {"redis_version": "5.0.7"}, "error"),
    ("redis.version", {"redis_version": "6.2.0"}, "note"),
    ("redis.version", {"redis_version": "7.0.0"}, "ok"),
    ("redis.version", {"redis_version": "10.0"}, "ok"),
    ("redis.version", {"redis_version": ""}, "note"),
    ("redis.cluster", {"cluster_enabled": "1"}, "error"),
    ("redis.cluster", {}, None),
    ("redis.persistence", {"aof_enabled": "0"}, "error"),
    ("redis.persistence", {}, "ok"),
    ("redis.aof_write", {"aof_last_write_status": "err"}, "error"),
    ("redis.aof_rewrite", {"aof_last_bgrewrite_status": "err"}, "error"),
    ("redis.bgsave", {"rdb_last_bgsave_status": "err"}, "error"),
    ("redis.saving", {"aof_rewrite_in_progress": "1"}, "note"),
    ("redis.saving", {"rdb_bgsave_in_progress": "1"}, "note"),
    ("redis.saving", {}, None),
    ("redis.eviction", {"maxmemory": "1000", "maxmemory_policy": "allkeys-lru"}, "error"),
    ("redis.eviction", {"maxmemory_policy": "volatile-ttl"}, "warning"),
    ("redis.eviction", {"maxmemory": "1000"}, "ok"),
    ("redis.evicted", {"evicted_keys": "1"}, "warning"),
    ("redis.evicted", {"evicted_keys": "1", "maxmemory_policy": "allkeys-lru"}, "error"),
    ("redis.memory", {"used_memory": "800", "maxmemory": "1000"}, "ok"),
    ("redis.memory", {"used_memory": "801", "maxmemory": "1000"}, "warning"),
    ("redis.memory", {"used_memory": "950", "maxmemory": "1000"}, "warning"),
    ("redis.memory", {"used_memory": "951", "maxmemory": "1000"}, "error"),
    ("redis.memory", {"used_memory": "900", "total_system_memory": "1000"}, "warning"),
    ("redis.memory", {"used_memory": "x"}, None),
    ("redis.fragmentation", {"mem_fragmentation_ratio": "1.5"}, None),
    ("redis.fragmentation", {"mem_fragmentation_ratio": "1.51"}, "warning"),
    ("redis.fragmentation", {"mem_fragmentation_ratio": "9", "used_memory": "9", "used_memory_rss": "81"}, None),
    ("redis.swapped", {"used_memory_rss": str(GIB // 2), "mem_fragmentation_ratio": "0.5"}, "warning"),
    ("redis.role", {"role": "slave", "master_host": "h", "master_port": "1"}, "error"),
    ("redis.role", {}, "ok"),
    ("redis.replicas", {}, "note"),
    ("redis.replicas", {"slave0": "ip=h,port=1,state=online,offset=1,lag=10"}, "ok"),
    ("redis.replicas", {"slave0": "ip=h,port=1,state=online,offset=1,lag=11"}, "warning"),
    ("redis.replicas", {"slave0": "ip=h,port=1,state=wait_bgsave,offset=1,lag=0"}, "warning"),
    ("redis.min_replicas", {"slave0": "ip=h,port=1,state=online,offset=1,lag=0"}, "warning"),
    ("redis.min_replicas", {}, None),
    ("redis.clients", {"connected_clients": "800"}, "ok"),
    ("redis.clients", {"connected_clients": "801"}, "warning"),
    ("redis.clients", {"connected_clients": "951"}, "error"),
    ("redis.rejected", {"rejected_connections": "1"}, "warning"),
]  # fmt: skip


@pytest.mark.parametrize(("check", "info", "wanted"), INFO_TABLE)
def test_what_info_says(check: str, info: dict[str, str], wanted: str | None) -> None:
    assert severity(facts(info), check) == wanted


CONFIG_TABLE = [
    ("redis.fsync", {"appendfsync": "everysec"}, "note"),
    ("redis.fsync", {"appendfsync": "no"}, "warning"),
    ("redis.fsync", {"appendfsync": "always"}, "ok"),
    ("redis.timeout", {"timeout": "0"}, None),
    ("redis.timeout", {"timeout": "29"}, "warning"),
    ("redis.timeout", {"timeout": "30"}, None),
    ("redis.keepalive", {"tcp-keepalive": "0"}, "warning"),
    ("redis.keepalive", {"tcp-keepalive": "300"}, None),
]


@pytest.mark.parametrize(("check", "config", "wanted"), CONFIG_TABLE)
def test_what_config_says(check: str, config: dict[str, str], wanted: str | None) -> None:
    assert severity(facts(config=config), check) == wanted


FACT_TABLE = [
    ("redis.clock", {"ahead_ms": 1000.0}, "ok"),
    ("redis.clock", {"ahead_ms": 1001.0}, "warning"),
    ("redis.clock", {"ahead_ms": -1001.0}, "warning"),
    ("redis.clock", {"ahead_ms": 30_000.0}, "warning"),
    ("redis.clock", {"ahead_ms": -30_001.0}, "error"),
    ("redis.clock", {"ahead_ms": 1400.0, "uncertain_ms": 400.0}, "ok"),  # the round trip may be all of it
    ("redis.clock", {"ahead_ms": 1401.0, "uncertain_ms": 400.0}, "warning"),
    ("redis.clock", {}, None),
    ("redis.latency", {"ping_ms": 10.0}, "ok"),
    ("redis.latency", {"ping_ms": 10.1}, "warning"),
    ("redis.latency", {"ping_ms": 250.1}, "error"),
    ("redis.acl", {"denied": ()}, "ok"),
    ("redis.acl", {"denied": None}, "note"),
    ("redis.acl", {"denied": ("xadd",)}, "error"),
    ("redis.acl", {"denied_keys": ("plaita:*",)}, "error"),
    ("redis.overcommit", {"local": False, "overcommit": "0"}, None),
    ("redis.overcommit", {"local": True, "overcommit": "0"}, "warning"),  # of a GiB in use
    ("redis.overcommit", {"local": True, "overcommit": "1"}, None),
    ("redis.huge_pages", {"local": True, "huge_pages": "always"}, None),  # the server switches them off for itself
    ("redis.keepalive", {"shown": "unix:///s"}, None),
]


@pytest.mark.parametrize(("check", "changes", "wanted"), FACT_TABLE)
def test_what_was_measured(check: str, changes: dict[str, Any], wanted: str | None) -> None:
    assert severity(facts(**changes), check) == wanted


def test_more_of_the_kernel() -> None:
    small = facts({"used_memory": "1000"}, local=True, overcommit="0")
    assert severity(small, "redis.overcommit") == "note"
    assert severity(facts({"used_memory": "1000"}, local=True, overcommit="2"), "redis.overcommit") == "warning"
    huge = facts(config={"disable-thp": "no"}, local=True, huge_pages="always")
    assert severity(huge, "redis.huge_pages") == "warning"
    assert severity(facts(config={"disable-thp": "no"}, local=True, huge_pages="madvise"), "redis.huge_pages") is None
    assert severity(facts(config={"tcp-keepalive": "0"}, shown="unix:///s"), "redis.keepalive") is None


def test_replicas_are_wanted_for_writes() -> None:
    online = {"slave0": "ip=h,port=1,state=online,offset=1,lag=0"}
    assert severity(facts(online, {"min-replicas-to-write": "1"}), "redis.min_replicas") is None


def test_who_may_not_look_gets_notes() -> None:
    blind = ServerFacts(None, None, denied=("info",), user="weak")
    found = {one.check: one.severity.value for one in server.judge(blind)}
    assert found == {"redis.info": "note", "redis.acl": "error"}
    without_config = ServerFacts(HEALTHY, None)
    assert severity(without_config, "redis.config") == "note"
    [told] = [one for one in server.judge(without_config) if one.check == "redis.config"]
    assert "+config|get" in told.action


def test_rights_that_only_a_refusal_tells() -> None:
    told = ["looking.stream: NOPERM ... the 'xlen' command", "looking.setting: NOPERM ... the 'config|get' command"]
    [found] = server.refused("weak", told)
    assert (found.check, found.severity.value) == ("redis.acl", "error")
    assert "xlen" in found.value
    assert "config" not in found.value
    assert server.refused("weak", told[1:]) == []


def test_a_failed_write_says_whether_the_server_refuses_work() -> None:
    def why(check: str, info: dict[str, str], config: dict[str, str]) -> str:
        return next(one.why for one in server.judge(facts(info, config)) if one.check == check)

    failed = {"rdb_last_bgsave_status": "err"}
    assert "MISCONF" in why("redis.bgsave", failed, {"stop-writes-on-bgsave-error": "yes"})
    assert "MISCONF" not in why("redis.bgsave", failed, {"stop-writes-on-bgsave-error": "no"})
    assert "MISCONF" in why("redis.aof_write", {"aof_last_write_status": "err"}, {})


@pytest.mark.parametrize(
    ("reason", "in_the_action"),
    [
        ("redis://h:1: WRONGPASS invalid username-password pair", "requirepass"),
        ("redis://h:1: NOAUTH HELLO must be called", "PASSWORD"),
        ("BUSY Redis is busy running a script", "SCRIPT KILL"),
        ("redis://h:1: LOADING Redis is loading the dataset in memory", "wait"),
        ("redis://h:1: ERR max number of clients reached", "CLIENT LIST"),
        ("redis://h:1: the server has no database 99", "databases"),
        ("redis://h:1: Connection refused", "redis-cli -u redis://h:1 PING"),
    ],
)
def test_why_nobody_answers(reason: str, in_the_action: str) -> None:
    found = reachable.unreachable(reason, "redis://h:1")
    assert (found.check, found.severity.value, found.value) == ("redis.reachable", "error", reason)
    assert in_the_action in found.action


def test_sentinels_are_asked_for_the_primary() -> None:
    found = reachable.unreachable("no sentinel names a primary", "redis+sentinel://h:1/m")
    assert "SENTINEL MASTERS" in found.action


def test_products() -> None:
    assert product(HEALTHY) == Product("valkey", "9.1.0", (7, 2))
    assert product({"redis_version": "6.2.14"}) == Product("redis", "6.2.14", (6, 2))
