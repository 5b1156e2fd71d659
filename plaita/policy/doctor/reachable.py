"""Whether the server answers us at all; where not, why, by what it or the connection said."""

from __future__ import annotations

from plaita.policy.doctor.finding import Finding, error, fine


def reached(shown: str) -> Finding:
    return fine("redis.reachable", shown, "an answer")


def unreachable(reason: str, shown: str, *, auth: bool = False) -> Finding:
    """Nobody serves us: by what the connection or the server itself said."""
    word = next((code for code in _SAID if code in reason), "WRONGPASS" if auth else "")
    why, action = _SAID.get(word, _NO_PRIMARY if "sentinel" in shown.partition("://")[0] else _SILENT)
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
_NO_PRIMARY = (
    _SILENT[0],
    "redis-cli -h HOST -p PORT SENTINEL MASTERS on each sentinel, then redis-cli PING on the primary they name",
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
    "CLUSTERDOWN": (
        "it is a node of a Redis Cluster, where plaita does not run",
        "use a server that is no cluster; to split the load, give each of several servers its own --key-prefix",
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
