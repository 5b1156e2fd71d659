"""The Redis or Valkey server: does it keep what it answered, for whom, how well (DECISIONS 11, 40)?

Read from INFO and CONFIG as they come, so that a field an older or newer server lacks says nothing rather than a fault.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from plaita.policy.doctor.finding import Finding, error, fine, not_allowed, note, plural, size, span, warning

OLDEST = (6, 2)  # XPENDING ... IDLE, by which carriers are reclaimed
WITH_LAG = (7, 0)  # XINFO GROUPS says how much has not been read
MEMORY_WARNING = 0.80
MEMORY_ERROR = 0.95
FRAGMENTED = 1.5
FRAGMENTED_LEAST = 100 * 1024**2  # below it no ratio matters
LAG_WARNING_S = 10
CLOCK_WARNING_S = 1.0
CLOCK_ERROR_S = 30.0
LATENCY_WARNING_MS = 10.0
LATENCY_ERROR_MS = 250.0
CLIENTS_WARNING = 0.80
CLIENTS_ERROR = 0.95
MEBIBYTE = 1024**2


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
    if facts.text("loading") == "1":
        left = facts.text("loading_eta_seconds", "?")
        yield error(
            "redis.loading",
            f"it reads its files, {left} s left",
            "loaded",
            "it serves nobody until it has read what it kept",
            "wait; supervisors go on by themselves. If it takes far longer: redis-cli INFO persistence",
        )
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
            "everysec or always",
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


# -- memory ---------------------------------------------------------------------------------------


def memory(facts: ServerFacts) -> Iterable[Finding]:
    used, most = facts.number("used_memory"), facts.number("maxmemory")
    if used is None:
        return
    what, bound = "maxmemory", most
    if not most:
        what, bound = "of the machine's memory", facts.number("total_system_memory")
    if not bound:
        yield fine("redis.memory", size(used))
        return
    share = used / bound
    value, wanted = f"{size(used)} of {size(bound)} {what} ({share:.0%})", f"below {MEMORY_WARNING:.0%}"
    then = (
        "at the limit every write is refused (OOM): nothing begins and no step is committed"
        if most
        else "no maxmemory is set: when the machine has no memory left, the kernel kills the server"
    )
    act = "redis-cli --bigkeys shows what is large; shorten PLAITA_EXECUTION_STATE_TTL_DAYS, or raise maxmemory"
    if share > MEMORY_ERROR:
        yield error("redis.memory", value, wanted, then, act)
    elif share > MEMORY_WARNING:
        yield warning("redis.memory", value, wanted, then, act)
    else:
        yield fine("redis.memory", value, wanted)
    evicted = facts.number("evicted_keys")
    if evicted:
        still = facts.text("maxmemory_policy", "noeviction") != "noeviction"
        yield (error if still else warning)(
            "redis.evicted",
            f"{evicted:.0f} keys since its start",
            "0",
            "the server threw data away to make room: rows, leases or streams of plaita may be among them",
            "redis-cli CONFIG SET maxmemory-policy noeviction; then plaita reindex --requeue for each tenant",
        )


def fragmentation(facts: ServerFacts) -> Iterable[Finding]:
    ratio, used, held = (facts.number(name) for name in ("mem_fragmentation_ratio", "used_memory", "used_memory_rss"))
    if ratio is None or used is None or held is None or max(used, held) < FRAGMENTED_LEAST:
        return
    value = f"{size(held)} held for {size(used)} in use (ratio {ratio:g})"
    if held < used * 0.9:
        yield warning(
            "redis.swapped",
            value,
            "held at least as much as in use",
            "a part of the server's memory is swapped out: calls take the time of a disk, leases may be lost",
            "free memory on its machine, or give it more; swapoff -a once there is room",
        )
    elif ratio > FRAGMENTED:
        yield warning(
            "redis.fragmentation",
            value,
            f"a ratio below {FRAGMENTED}",
            "memory is lost between what is stored",
            "redis-cli CONFIG SET activedefrag yes, or restart the server when it suits",
        )


def kernel(facts: ServerFacts) -> Iterable[Finding]:
    """Of the server's own machine; looked at where that is this one."""
    if not facts.local or facts.info is None:
        return
    if facts.overcommit == "2" or (facts.overcommit == "0" and (facts.number("used_memory") or 0) > 256 * MEBIBYTE):
        yield warning(
            "redis.overcommit",
            f"vm.overcommit_memory {facts.overcommit}",
            "1",
            "a snapshot or AOF rewrite forks, and the kernel may refuse it although there is memory enough",
            "sysctl -w vm.overcommit_memory=1, and the same in /etc/sysctl.d",
        )
    elif facts.overcommit == "0":
        yield note(
            "redis.overcommit",
            "vm.overcommit_memory 0",
            "1",
            "once the server is large, the kernel may refuse the fork of a snapshot or AOF rewrite",
            "sysctl -w vm.overcommit_memory=1, and the same in /etc/sysctl.d",
        )
    if facts.huge_pages == "always" and facts.setting("disable-thp") == "no":
        yield warning(
            "redis.huge_pages",
            "transparent huge pages always, disable-thp no",
            "madvise, or disable-thp yes",
            "each write after a fork copies 2 MiB instead of 4 KiB: memory doubles and calls stall during a rewrite",
            "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled, and restart the server with disable-thp yes",
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
    behind = [one for one in replicas if one.get("state") != "online" or _whole(one.get("lag")) > LAG_WARNING_S]
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


def _whole(text: str | None) -> int:
    return int(text) if text is not None and text.isascii() and text.isdigit() else 0


# -- clocks and time ------------------------------------------------------------------------------


def clock(facts: ServerFacts) -> Iterable[Finding]:
    if facts.ahead_ms is None:
        return
    seconds = facts.ahead_ms / 1000
    apart = max(0.0, abs(facts.ahead_ms) - facts.uncertain_ms) / 1000  # what no round trip can explain
    value = f"{'ahead of' if seconds >= 0 else 'behind'} this host by {span(abs(seconds))}"
    wanted = f"within {CLOCK_WARNING_S:g} s"
    why = "leases and due times go by Redis alone, but times in logs, rows and carriers of different hosts do not fit"
    act = "timedatectl on both; set the clock that is wrong by NTP (systemctl restart chronyd or systemd-timesyncd)"
    if apart > CLOCK_ERROR_S:
        yield error("redis.clock", value, wanted, f"{why}; ages of carriers are judged wrongly", act)
    elif apart > CLOCK_WARNING_S:
        yield warning("redis.clock", value, wanted, why, act)
    else:
        yield fine("redis.clock", f"within {span(max(abs(seconds), facts.uncertain_ms / 1000, 0.001))}", wanted)


def latency(facts: ServerFacts) -> Iterable[Finding]:
    if facts.ping_ms is None:
        return
    value, wanted = f"{facts.ping_ms:.2f} ms, median of PING", f"below {LATENCY_WARNING_MS:g} ms"
    why = "a step costs at least one round trip"
    act = "redis-cli --latency from this host; redis-cli SLOWLOG GET; look at the network and at the server's CPU"
    if facts.ping_ms > LATENCY_ERROR_MS:
        yield error("redis.latency", value, wanted, why + "; so slow, leases may run out under running steps", act)
    elif facts.ping_ms > LATENCY_WARNING_MS:
        yield warning("redis.latency", value, wanted, why, act)
    else:
        yield fine("redis.latency", value, wanted)


# -- connections ----------------------------------------------------------------------------------


def clients(facts: ServerFacts) -> Iterable[Finding]:
    used, most = facts.number("connected_clients"), facts.number("maxclients")
    if most is None:
        said = facts.setting("maxclients") or ""
        most = float(said) if said.isdigit() else None
    if used is not None and most:
        share = used / most
        value, wanted = f"{used:.0f} of {most:.0f} connections", f"below {CLIENTS_WARNING:.0%}"
        act = "redis-cli CLIENT LIST shows whose they are; redis-cli CONFIG SET maxclients N"
        why = "a supervisor holds five; beyond the limit nobody new is let in"
        if share > CLIENTS_ERROR:
            yield error("redis.clients", value, wanted, why, act)
        elif share > CLIENTS_WARNING:
            yield warning("redis.clients", value, wanted, why, act)
        else:
            yield fine("redis.clients", value, wanted)
    rejected = facts.number("rejected_connections")
    if rejected:
        yield warning(
            "redis.rejected",
            f"{rejected:.0f} connections refused since its start",
            "0",
            "somebody was not let in because maxclients was reached",
            "redis-cli CONFIG SET maxclients N; redis-cli CLIENT LIST shows whose they are",
        )


def idle_connections(facts: ServerFacts) -> Iterable[Finding]:
    idle = _whole(facts.setting("timeout"))
    if idle and idle < 30:
        yield warning(
            "redis.timeout",
            f"timeout {idle} s",
            "0, or 30 and more",
            "the server closes connections that are quiet for so short a time: supervisors connect anew all the time",
            "redis-cli CONFIG SET timeout 0",
        )
    keepalive = facts.setting("tcp-keepalive")
    if keepalive == "0" and not facts.shown.startswith("unix:"):
        yield warning(
            "redis.keepalive",
            "tcp-keepalive 0",
            "300",
            "connections of hosts that vanished are kept for ever and count against maxclients",
            "redis-cli CONFIG SET tcp-keepalive 300",
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


def _allow(facts: ServerFacts, *rules: str) -> str:
    return f"as an administrator: redis-cli ACL SETUSER {facts.user or 'USER'} {' '.join(rules)} && redis-cli ACL SAVE"


Check = Callable[[ServerFacts], Iterable[Finding]]

CHECKS: tuple[Check, ...] = (
    version, cluster, replication, persistence, last_writes, eviction, memory, fragmentation, kernel, clock, latency,
    clients, idle_connections, rights,
)  # fmt: skip


def judge(facts: ServerFacts) -> list[Finding]:
    """All of the table, in its order."""
    return [finding for check in CHECKS for finding in check(facts)]


# -- there, or not --------------------------------------------------------------------------------


def reached(shown: str) -> Finding:
    return fine("redis.reachable", shown, "an answer")


def unreachable(reason: str, shown: str, *, auth: bool = False) -> Finding:
    """Nobody serves us: by what the connection or the server itself said."""
    word = next((code for code in _SAID if code in reason), "WRONGPASS" if auth else "")
    why, action = _SAID.get(word, _SILENT)
    return error("redis.reachable", reason, f"an answer of {shown}", why, action.replace("{shown}", shown))


def not_started(shown: str, folder: str) -> Finding:
    """The embedded server's folder is there, or not, and no server runs in it."""
    return error(
        "redis.reachable",
        f"no server runs in {folder}",
        f"an answer of the {shown}",
        "its last user stopped it, or it was killed; nothing runs without it",
        f"plaita-supervisor run --embedded {folder}; the end of {folder}/server.log says how it ended",
    )


_SILENT = (
    "without it nothing is taken, and what runs is killed when its lease runs out; all goes on when it is back",
    "systemctl status redis-server valkey on its machine, then redis-cli -u {shown} PING from this one",
)
_SAID = {
    "WRONGPASS": (
        "the server refuses the user or the password; supervisors with the same URL do nothing",
        "compare PLAITA_REDIS_URL (or its _FILE) with the server's requirepass or ACL: redis-cli ACL LIST",
    ),
    "NOAUTH": (
        "the server wants a password and the URL has none",
        "put it into PLAITA_REDIS_URL (redis://:PASSWORD@host) or into the file that PLAITA_REDIS_URL_FILE names",
    ),
    "BUSY": (
        "a script holds the server; nothing else is served until it ends",
        "redis-cli SCRIPT KILL; it is refused once the script has written: then wait",
    ),
    "LOADING": (
        "it reads its files after a start and serves nobody until it is through",
        "wait: redis-cli INFO persistence tells how far it is; supervisors go on by themselves",
    ),
    "MASTERDOWN": (
        "a replica that has lost its primary and may not serve old data",
        "give supervisors the primary, or make this one the primary: redis-cli REPLICAOF NO ONE",
    ),
    "has no database": (
        "the server has fewer databases than the number at the end of the URL",
        "redis-cli CONFIG GET databases; correct PLAITA_REDIS_URL",
    ),
    "max number of clients": (
        "all connections of the server are taken",
        "redis-cli CLIENT LIST shows whose they are (if it lets you in); raise maxclients",
    ),
}
