"""The server under its load: memory, time, connections."""

from __future__ import annotations

from collections.abc import Iterable

from plaita.policy.doctor.finding import Finding, error, fine, note, size, span, warning
from plaita.policy.doctor.server_facts import ServerFacts, whole

MEMORY_WARNING = 0.80
MEMORY_ERROR = 0.95
FRAGMENTED = 1.5
FRAGMENTED_LEAST = 100 * 1024**2  # below it no ratio matters
CLOCK_WARNING_S = 1.0
CLOCK_ERROR_S = 30.0
LATENCY_WARNING_MS = 10.0
LATENCY_ERROR_MS = 250.0
CLIENTS_WARNING = 0.80
CLIENTS_ERROR = 0.95
MEBIBYTE = 1024**2


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
    idle = whole(facts.setting("timeout"))
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


CHECKS = (memory, fragmentation, kernel, clock, latency, clients, idle_connections)
