"""Tells systemd what the supervisor does, while the loop turns: one task on the loop says all of it.

The watchdog's ping is sent by nobody else, so it is proof that the loop has turned since the last one: one that hangs
is silent. What is known to take no work (Redis away, disk, a pause, a drain) keeps the ping (DECISIONS 36).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from plaita.policy.service_manager import Facts, extension_ms, status_line
from plaita.supervisor.drain import Draining
from plaita.supervisor.gate import Gate
from plaita.supervisor.life import Life
from plaita.supervisor.templates import Templates
from plaita.unix.notify import Notifier

TURN_S = 1.0


class ServiceManager:
    """``facts()`` is asked once a turn."""

    def __init__(self, notifier: Notifier, facts: Callable[[], Facts]) -> None:
        self._notifier = notifier
        self._facts = facts
        self._told = ""
        watchdog_ms = notifier.watchdog_ms
        self._every_s = TURN_S if watchdog_ms is None else min(TURN_S, watchdog_ms / 3000)

    async def run(self) -> None:
        """Until cancelled."""
        while self._notifier.active:
            self.turn()
            await asyncio.sleep(self._every_s)

    def turn(self) -> None:
        """Say what is true now, in one datagram; also between turns, when it has just changed."""
        facts = self._facts()
        words = [] if self._notifier.watchdog_ms is None else ["WATCHDOG=1"]
        extension = extension_ms(facts)
        if extension is not None:
            words.append(f"EXTEND_TIMEOUT_USEC={extension * 1000}")
        line = status_line(facts)
        if line != self._told:
            words.append(f"STATUS={' '.join(line.split())}")
        if words and self._notifier.send(*words):
            self._told = line

    def ready(self) -> None:
        """The start, or a reload, is over."""
        self._notifier.ready()
        self.turn()

    def reloading(self) -> None:
        """A reload has begun; ``ready`` ends it."""
        self._notifier.reloading()
        self.turn()

    def stopping(self) -> None:
        """The way out has begun and cannot be undone."""
        self._notifier.stopping()
        self.turn()

    def close(self) -> None:
        """Nothing is said any more."""
        self._notifier.close()


def facts_of(
    life: Life, gate: Gate, templates: Templates, draining: Draining, missing: Iterable[str], reload: str, answer: str
) -> Facts:
    """The moment, as far as systemd is told of it. ``answer``: of ``policy.explain``."""
    return Facts(
        state=life.state,
        wish=life.wish,
        missing=[_waits_for(name, gate, templates) for name in sorted(missing)],
        answer=answer,
        left=life.carriers,
        oldest=draining.oldest(),
        spent_s=draining.spent_s,
        timeout_s=life.drain.timeout_s,
        killing=life.drain.killing,
        drain_left_ms=draining.left_ms,
        reload=reload,
    )


def _waits_for(name: str, gate: Gate, templates: Templates) -> str:
    if name == "redis":
        return f"Redis ({gate.conditions['redis'].value})"
    if name == "registry":
        return "its entry in the registry"
    module = templates.current.importing
    return f"the template, which imports {module}" if module else "the template"
