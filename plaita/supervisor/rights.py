"""Whether the user of the Redis URL may do what plaita does: asked at the start, where a missing right is fatal (like a
wrong password, and told whole instead of one command after the other), and while one is missing later on.
"""

from __future__ import annotations

from plaita.store import permissions
from plaita.store.call import Unavailable, Value
from plaita.store.keys import Keys
from plaita.store.permissions import Denied
from plaita.store.runner_async import AsyncRunner

PAGE = "docs/redis.md#a-user-for-plaita has the whole rule"


def said(denied: Denied) -> str:
    """What is missing, in words; '' when nothing is."""
    parts = []
    if denied.commands:
        parts.append(f"run {', '.join(denied.commands)}")
    if denied.patterns:
        parts.append(f"use keys {' '.join(f'~{pattern}' for pattern in denied.patterns)}")
    return f"the user may not {' nor '.join(parts)}; {PAGE}" if parts else ""


async def missing(runner: AsyncRunner, keys: Keys) -> str | None:
    """What the user may not do, in words; '' when it may do all, or the server cannot tell (before Redis 7); None when
    there was no answer."""
    answer = await runner.run(permissions.denied(keys))
    if isinstance(answer, Value):
        return "" if answer.value is None else said(answer.value)
    if isinstance(answer, Unavailable) and answer.auth:
        return f"the user may not run scripts ({answer.error}); {PAGE}"
    return None
