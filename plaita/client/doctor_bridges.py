"""``plaita doctor``: queues on other servers, as plaita's own Redis has them (DECISIONS 41)."""

from __future__ import annotations

from collections import Counter

from plaita import jsontext
from plaita.client.asking import Asking
from plaita.policy.bridges import queue_of
from plaita.policy.doctor import Finding, bridges
from plaita.store import looking
from plaita.store.bridges import Wait
from plaita.store.keys import Keys


def look(asking: Asking, keys: Keys) -> list[Finding]:
    """Of all tenants; no findings where nothing is to be seen."""
    found = asking.ask(looking.bridges(keys, bridges.GRACE_MS))
    if found is None:
        return []
    left = Counter(_place_of(wait, becomes) for wait, _, becomes in found.left)

    def age_s(since: int | None) -> float:
        return 0.0 if since is None else max(0, found.now_ms - since) / 1000

    oldest = min((since for _, since, _ in found.left), default=None)
    facts = bridges.BridgeFacts(found.waits, found.unread, age_s(found.unread_since), left, age_s(oldest), found.more)
    return bridges.judge(facts)


def _place_of(wait: Wait | None, becomes: str) -> str:
    try:
        queue = None if wait is None else queue_of(jsontext.loads(wait.config))
    except (ValueError, jsontext.JSONTextError):
        queue = None
    if queue is None:
        return "unknown server"
    return f"{queue.target.shown} {queue.name!r} ({'to be put back' if becomes == 'back' else becomes.split()[0]})"
