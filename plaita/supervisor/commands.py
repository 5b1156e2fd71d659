"""The commands of the control socket: each a request object in, an answer object out (CONTRACT "Socket protocol")."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from plaita.policy.lifecycle import Event
from plaita.supervisor.control import Handler
from plaita.supervisor.drain import Draining
from plaita.supervisor.gate import Gate
from plaita.supervisor.life import Life
from plaita.supervisor.reload import Reload
from plaita.supervisor.view import View

DEADLINE_MAX_S = 86_400


class Commands:
    """``event`` feeds the supervisor's machine, ``announce`` writes the registry."""

    def __init__(
        self,
        view: View,
        life: Life,
        gate: Gate,
        drain: Draining,
        reload: Reload,
        *,
        event: Callable[[Event], bool],
        announce: Callable[[], None],
    ) -> None:
        self._view = view
        self._life = life
        self._gate = gate
        self._draining = drain
        self._reload = reload
        self._event = event
        self._announce = announce

    def handlers(self) -> dict[str, Handler]:
        """By the command's name."""
        return {
            "status": self._status,
            "executors": self._executors,
            "explain": self._explain,
            "drain": self._drain,
            "undrain": self._undrain,
            "pause": self._pause,
            "resume": self._resume,
            "reload": self._on_reload,
        }

    async def _status(self, request: dict[str, Any]) -> dict[str, Any]:
        return {"ok": True, **await self._view.status()}

    async def _executors(self, request: dict[str, Any]) -> dict[str, Any]:
        return {"ok": True, "executors": self._view.executors()}

    async def _explain(self, request: dict[str, Any]) -> dict[str, Any]:
        return {"ok": True, **await self._view.explain()}

    async def _drain(self, request: dict[str, Any]) -> dict[str, Any]:
        deadline = request.get("deadline")
        if deadline is not None and not _is_seconds(deadline):
            return _refused(f"deadline: {deadline!r} is not a number of seconds from 0 to {DEADLINE_MAX_S}")
        if deadline is not None:
            self._draining.ask_for(float(deadline))
        if not self._event(Event.DRAIN_ASKED):
            return _refused(f"the supervisor is {self._life.state.value}")
        return {"ok": True, "status": self._life.state.value, "drain": self._view.drain()}

    async def _undrain(self, request: dict[str, Any]) -> dict[str, Any]:
        if not self._event(Event.DRAIN_UNDONE):
            return _refused(f"the supervisor is {self._life.state.value} and was told to stop")
        return {"ok": True, "status": self._life.state.value, **self._view.verdict()}

    async def _pause(self, request: dict[str, Any]) -> dict[str, Any]:
        self._gate.set("pause", False, value="paused", hint="`plaita-supervisor resume` ends it")
        self._announce()
        return {"ok": True, "status": self._life.state.value, "paused": True}

    async def _resume(self, request: dict[str, Any]) -> dict[str, Any]:
        self._gate.set("pause", True, value="not paused")
        self._announce()
        return {"ok": True, "status": self._life.state.value, "paused": False, **self._view.verdict()}

    async def _on_reload(self, request: dict[str, Any]) -> dict[str, Any]:
        within = request.get("within", DEADLINE_MAX_S)
        if not _is_seconds(within):
            return _refused(f"within: {within!r} is not a number of seconds from 0 to {DEADLINE_MAX_S}")
        reason, unfinished = self._reload.ask(), ""
        if not reason and request.get("wait"):
            try:
                reason = await asyncio.wait_for(self._reload.wait(), within)
            except TimeoutError:
                unfinished = self._reload.unfinished
        if reason:
            return _refused(reason)
        answer = {"ok": True, "status": self._life.state.value, **self._reload.answer()}
        return {**answer, "unfinished": unfinished} if unfinished else answer


def _is_seconds(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= DEADLINE_MAX_S


def _refused(why: str) -> dict[str, Any]:
    return {"ok": False, "error": why}
