"""The Redis or Valkey server: who is it, does it keep what it answered, may we use it (DECISIONS 11, 40)?

Read from INFO and CONFIG as they come, so that a field an older or newer server lacks says nothing rather than a fault.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from plaita.policy.doctor import server_load
from plaita.policy.doctor.finding import Finding, error, fine, not_allowed, note, plural, warning
from plaita.policy.doctor.server_facts import ServerFacts, product, whole

RULES = "+@read +@write +@connection +eval +evalsha +info +time"  # all that plaita needs, beside its keys
OLDEST = (6, 2)  # XPENDING ... IDLE, by which carriers are reclaimed
WITH_LAG = (7, 0)  # XINFO GROUPS says how much has not been read
LAG_WARNING_S = 10


# -- who it is ------------------------------------------------------------------------------------


def version(facts: ServerFacts) -> Iterable[Finding]:
    if facts.info is None:
        yield not_allowed("redis.info", "INFO", _allow(facts, "+info"))
        return
    found = product(facts.info)
    shown = f"{found.name} {found.version}".strip()
    if not found.speaks:
        yield note("redis.version", shown or "none said", "6.2 or newer", "the server does not say its version")
    elif found.speaks < OLDEST:
        yield error(
            "redis.version",
            shown,
            "redis 6.2 or newer, or valkey",
            "carriers of dead hosts are found by XPENDING with IDLE, which came with 6.2: nothing would be reclaimed",
            "upgrade the server; what it holds is read by the newer one",
        )
    elif found.speaks < WITH_LAG:
        yield note(
            "redis.version",
            shown,
            "redis 7.0 or newer, or valkey",
            "it is supported, but cannot say how much of a stream is not yet read (lag), nor what a user may do",
        )
    else:
        yield fine("redis.version", shown, "6.2 or newer")


def cluster(facts: ServerFacts) -> Iterable[Finding]:
    if facts.text("cluster_enabled") == "1":
        yield error(
            "redis.cluster",
            "cluster_enabled 1",
            "0",
            "plaita's scripts use keys of several slots; a supervisor refuses to start on a cluster",
            "use a server that is no cluster; to split the load, give each of several servers its own --key-prefix",
        )


# -- what it keeps --------------------------------------------------------------------------------


def persistence(facts: ServerFacts) -> Iterable[Finding]:
    if "aof_enabled" not in (facts.info or {}):
        return
    if facts.text("aof_enabled") != "1":
        yield error(
            "redis.persistence",
            "appendonly no",
            "appendonly yes",
            "work that was answered as done is lost when the server restarts, since its last snapshot",
            "redis-cli CONFIG SET appendonly yes && redis-cli CONFIG REWRITE",
        )
        return
    yield fine("redis.persistence", "appendonly yes", "appendonly yes")
    fsync = facts.setting("appendfsync")
    if fsync == "everysec":
        yield note(
            "redis.fsync",
            "appendfsync everysec",
            "",
            "when the machine (not only the server) dies, the last second of commits may be lost; steps run again",
            "to rule it out: redis-cli CONFIG SET appendfsync always (each commit then waits for the disk)",
        )
    elif fsync == "no":
        yield warning(
            "redis.fsync",
            "appendfsync no",
            "everysec or always",
            "when the machine dies, half a minute of commits may be lost",
            "redis-cli CONFIG SET appendfsync everysec && redis-cli CONFIG REWRITE",
        )
    elif fsync is not None:
        yield fine("redis.fsync", f"appendfsync {fsync}", "everysec or always")


def last_writes(facts: ServerFacts) -> Iterable[Finding]:
    for field_, check, what in (
        ("aof_last_write_status", "redis.aof_write", "the append-only file"),
        ("aof_last_bgrewrite_status", "redis.aof_rewrite", "the rewritten append-only file"),
        ("rdb_last_bgsave_status", "redis.bgsave", "the snapshot"),
    ):
        said = facts.text(field_)
        if not said or said == "ok":
            continue
        refuses = field_ == "aof_last_write_status" or (
            field_ == "rdb_last_bgsave_status" and facts.setting("stop-writes-on-bgsave-error") in ("yes", None)
        )
        then = "; the server refuses writes meanwhile (MISCONF), so nothing moves" if refuses else ""
        yield error(
            check,
            f"{field_} {said}",
            "ok",
            f"{what} could not be written: mostly a full disk, a missing right or no memory to fork{then}",
            "look at its log, and at df -h of its folder (redis-cli CONFIG GET dir); then redis-cli BGREWRITEAOF",
        )
    if facts.text("aof_rewrite_in_progress") == "1" or facts.text("rdb_bgsave_in_progress") == "1":
        busy = "an AOF rewrite" if facts.text("aof_rewrite_in_progress") == "1" else "a snapshot"
        yield note(
            "redis.saving", busy, "", "it needs memory and disk beside the work; latencies may rise until it ends"
        )


def eviction(facts: ServerFacts) -> Iterable[Finding]:
    policy = facts.text("maxmemory_policy") or facts.setting("maxmemory-policy")
    if not policy:
        return
    if policy == "noeviction":
        yield fine("redis.eviction", policy, "noeviction")
        return
    limited = bool(facts.number("maxmemory"))
    yield (error if limited else warning)(
        "redis.eviction",
        policy,
        "noeviction",
        "the server may throw away streams, rows, leases and counters when it is full: executions vanish or run twice"
        + ("" if limited else "; no maxmemory is set now, so it has no effect until one is"),
        "redis-cli CONFIG SET maxmemory-policy noeviction && redis-cli CONFIG REWRITE",
    )


# -- replication ----------------------------------------------------------------------------------


def replicas_of(info: Mapping[str, str]) -> list[dict[str, str]]:
    """The ``slaveN`` lines of INFO: ip, port, state, offset, lag."""
    found = []
    for name, value in sorted(info.items()):
        if re.fullmatch(r"slave\d+", name):
            found.append(dict(part.partition("=")[::2] for part in value.split(",")))
    return found


def replication(facts: ServerFacts) -> Iterable[Finding]:
    role = facts.text("role")
    if not role:
        return
    if role != "master":
        primary = f"{facts.text('master_host', '?')}:{facts.text('master_port', '?')}"
        yield error(
            "redis.role",
            f"a replica of {primary}, link {facts.text('master_link_status', '?')}",
            "the primary",
            "a replica takes no writes: supervisors that were given this address do nothing",
            f"give supervisors the primary (--redis-url), a sentinel URL, or make this one the primary: redis-cli "
            f"-h {facts.text('master_host', 'PRIMARY')} INFO replication, then here redis-cli REPLICAOF NO ONE",
        )
        return
    yield fine("redis.role", "primary", "the primary")
    replicas = replicas_of(facts.info or {})
    if not replicas:
        yield note(
            "redis.replicas",
            "none",
            "",
            "when this server's disk is gone, so is all that plaita holds",
            "keep a replica, or back up its folder (redis-cli CONFIG GET dir); see docs/reliability.md",
        )
        return
    behind = [one for one in replicas if one.get("state") != "online" or whole(one.get("lag")) > LAG_WARNING_S]
    if behind:
        shown = "; ".join(
            f"{one.get('ip')}:{one.get('port')} {one.get('state')}, lag {one.get('lag', '?')} s" for one in behind
        )
        yield warning(
            "redis.replicas",
            f"{len(behind)} of {len(replicas)} behind: {shown}",
            f"online, lag at most {LAG_WARNING_S} s",
            "a failover to one of these loses what it has not got; steps committed meanwhile run again",
            "look at its log and the network; redis-cli INFO replication",
        )
    else:
        yield fine("redis.replicas", plural(len(replicas), "replica") + " online", "online")
    least = facts.setting("min-replicas-to-write")
    if least == "0":
        yield warning(
            "redis.min_replicas",
            "min-replicas-to-write 0",
            "1 or more",
            "a primary that is cut off goes on taking writes that are lost when it comes back as a replica",
            "redis-cli CONFIG SET min-replicas-to-write 1 && redis-cli CONFIG SET min-replicas-max-lag 10",
        )


# -- rights ---------------------------------------------------------------------------------------


def rights(facts: ServerFacts) -> Iterable[Finding]:
    user = facts.user or "(unknown)"
    if facts.denied is None:
        yield note("redis.acl", f"user {user}", "", "what it may do can only be told by Redis 7 and Valkey")
    elif facts.denied or facts.denied_keys:
        names = sorted({word.lower() for word in facts.denied})
        lacks = [f"may not: {' '.join(names)}"] if names else []
        rules = [f"+{name}" for name in names]
        if facts.denied_keys:
            lacks.append(f"may do nothing on the keys {' '.join(facts.denied_keys)}")
            rules += ["+@read", "+@write", *(f"'~{pattern}'" for pattern in facts.denied_keys)]
        yield error(
            "redis.acl",
            f"user {user} {', and '.join(lacks)}",
            "all commands that plaita uses, on its own keys",
            "calls and scripts that need them fail (NOPERM)",
            _allow(facts, *rules),
        )
    else:
        yield fine("redis.acl", f"user {user} may do all that plaita needs")
    if facts.config is None and facts.info is not None:
        yield not_allowed("redis.config", "CONFIG GET", _allow(facts, "+config|get"))


def refused(user: str, errors: Sequence[str]) -> list[Finding]:
    """What lacks, by what the server said, where it could not be asked beforehand (Redis 6.2). What only the doctor
    asks is left out."""
    lacks = [one for one in errors if not any(word in one.lower() for word in ("'config", "'acl", "config|", "acl|"))]
    if not lacks:
        return []
    return [
        error(
            "redis.acl",
            f"user {user or '(unknown)'} was refused: {'; '.join(dict.fromkeys(lacks[:3]))}",
            "all commands that plaita uses, on its own keys",
            "calls and scripts that need them fail (NOPERM)",
            f"as an administrator: redis-cli ACL SETUSER {user or 'USER'} {RULES}, and the patterns of plaita's keys",
        )
    ]


def _allow(facts: ServerFacts, *rules: str) -> str:
    return f"as an administrator: redis-cli ACL SETUSER {facts.user or 'USER'} {' '.join(rules)} && redis-cli ACL SAVE"


Check = Callable[[ServerFacts], Iterable[Finding]]

CHECKS: tuple[Check, ...] = (
    version, cluster, replication, persistence, last_writes, eviction, *server_load.CHECKS, rights,
)  # fmt: skip


def judge(facts: ServerFacts) -> list[Finding]:
    """All of the table, in its order."""
    return [finding for check in CHECKS for finding in check(facts)]
