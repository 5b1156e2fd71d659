"""The supervisor's hold on the embedded server: opened before there is a loop, opened again when the server is gone.

Opening blocks (it waits until the server has loaded its data), so on the loop it is done in a thread.
"""

from __future__ import annotations

import asyncio
import random

from plaita.errors import PlaitaError
from plaita.policy.backoff import backoff_s
from plaita.store.embedded import Embedded
from plaita.supervisor import logs


class EmbeddedHold:
    """``pid`` is the server's, whoever started it. ``opening`` is True while a thread may be starting one."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._server = Embedded.open(folder)
        self._task: asyncio.Task[None] | None = None
        self.opening = False

    @property
    def url(self) -> str:
        return self._server.url

    @property
    def pid(self) -> int:
        return self._server.pid

    def reopen(self) -> None:
        """Start the server again, or join whoever has; tried until it works. Once at a time."""
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._reopen(), name="embedded server")

    async def _reopen(self) -> None:
        attempt = 0
        while True:
            self.opening = True
            try:
                fresh = await asyncio.to_thread(Embedded.open, self._folder)
            except PlaitaError as error:
                logs.error("embedded.not_opened", folder=self._folder, error=error)
            else:
                old, self._server = self._server, fresh
                await asyncio.to_thread(old.close)  # we still use it: only the old hold goes
                logs.info("embedded.opened", folder=self._folder, pid=fresh.pid)
                return
            finally:
                self.opening = False
            await asyncio.sleep(backoff_s(attempt, base=0.2, cap=5.0, jitter=random.random()))
            attempt += 1

    def close(self) -> None:
        """Let go; the last user stops the server."""
        self._server.close()
