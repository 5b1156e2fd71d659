"""A reload: a new template with the code that is on disk now, then new executors one by one, each after its step.

Until the new template stands, and when it never does, everything goes on with the old one. Owns which reload is under
way and how the last one ended, for the log, ``status`` and whoever waits.
"""

from __future__ import annotations

import asyncio
from enum import Enum
from typing import Any

from plaita.clock import iso_utc, wall_ms
from plaita.policy.lifecycle import State
from plaita.supervisor import logs
from plaita.supervisor.life import Life
from plaita.supervisor.pool import Pool
from plaita.supervisor.service_manager import ServiceManager
from plaita.supervisor.templates import Templates

LOOK_S = 0.05


class Phase(Enum):
    NONE = "none"
    IMPORTING = "importing"
    REPLACING = "replacing"
    DONE = "done"
    FAILED = "failed"


class Reload:
    """``manager`` is told of each."""

    def __init__(self, life: Life, templates: Templates, pool: Pool, manager: ServiceManager) -> None:
        self._life = life
        self._templates = templates
        self._pool = pool
        self._manager = manager
        self._phase = Phase.NONE
        self._since: int | None = None
        self._reason = ""
        self._wanted = False

    def ask(self) -> str:
        """Begin one; an earlier one that has not come to stand is dropped, since it may have imported what has changed
        since. Returns why it is refused, or ''. During the start it is put off until that is over."""
        if self._life.state is State.STARTING:
            self._wanted = True
            logs.info("reload.put_off", state=self._life.state.value)
            return ""
        if not self._life.undoable:
            reason = f"the supervisor is {self._life.state.value}"
            logs.warning("reload.refused", reason=reason)
            return reason
        self._wanted = False
        coming = self._templates.reload()
        self._enter(Phase.IMPORTING)
        logs.info("reload.begun", generation=coming.generation)
        self._manager.reloading()
        return ""

    def started(self) -> None:
        """The start is over: what was asked meanwhile is done now. Its template may have imported before the change."""
        if self._wanted:
            self.ask()

    def stands(self) -> None:
        """The new template does; from now on executors are replaced."""
        self._enter(Phase.REPLACING)
        self._manager.ready()
        self.look()

    def failed(self, reason: str) -> None:
        """It never will: all goes on as before."""
        self._enter(Phase.FAILED, reason)
        logs.error("reload.failed", reason=reason, advice="all goes on as before; repair it and reload again")
        self._manager.ready()

    def stop(self) -> None:
        """The supervisor leaves: a template that has not come to stand by now is of no use."""
        if self._phase is Phase.IMPORTING:
            self._templates.drop_coming()
            self._enter(Phase.FAILED, "the supervisor was told to stop")
            logs.warning("reload.dropped", reason=self._reason)

    def look(self) -> None:
        """An executor has come to stand: perhaps it was the last."""
        if self._phase is Phase.REPLACING and self._pool.all_new:
            self._enter(Phase.DONE)
            logs.info("reload.done", generation=self._templates.current.generation)

    def _enter(self, phase: Phase, reason: str = "") -> None:
        self._phase, self._reason, self._since = phase, reason, wall_ms()

    @property
    def words(self) -> str:
        """What the one that is under way is at; '' once the new template stands or never will."""
        if self._phase is not Phase.IMPORTING:
            return ""
        coming = self._templates.coming
        module = coming.importing if coming is not None else ""
        return f"the new template imports {module}" if module else "the new template starts"

    @property
    def _put_off(self) -> bool:
        return self._wanted and self._life.state is State.STARTING

    @property
    def unfinished(self) -> str:
        """What somebody who does not wait any longer is told."""
        if self._put_off:
            return "it is put off until the start is over"
        if self._phase is Phase.IMPORTING:
            return self.words
        slots = ", ".join(str(executor.slot) for executor in self._pool.old_ones)
        return f"executors not replaced yet, by slot: {slots or 'none'}"

    def block(self) -> dict[str, Any]:
        """For ``status``: the last reload."""
        return {
            "phase": self._phase.value,
            "since": iso_utc(self._since) if self._since is not None else None,
            "generation": self._templates.current.generation,
            "left": self._pool.old if self._phase is Phase.REPLACING else 0,
            "reason": self._reason or None,
        }

    def answer(self) -> dict[str, Any]:
        """For who asked for one: the generation that comes, or has come."""
        return {"generation": (self._templates.coming or self._templates.current).generation}

    async def wait(self) -> str:
        """Until the last one asked for is over, told to a person. Returns why it failed, or ''."""
        while self._put_off or (self._phase in (Phase.IMPORTING, Phase.REPLACING) and self._life.undoable):
            self.look()
            await asyncio.sleep(LOOK_S)
        if self._phase is Phase.FAILED:
            return f"reload.failed: {self._reason}"
        return "" if self._phase is Phase.DONE else f"the supervisor is {self._life.state.value}"
