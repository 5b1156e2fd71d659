"""Whether a path is missing on this host, asked so that a file system that hangs holds up nobody (ledger G4).

Each look is a thread of its own: one that never comes back, as below a server that is gone, must take no other's place
and must not be waited for at the end. What cannot be told in time counts as there.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Callable

LOOK_S = 1.0
HANGING_AT_MOST = 8


def is_missing(path: str) -> bool:
    """True only where the file system says that there is no such path; no right to look, or an error, says nothing."""
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except (OSError, ValueError):
        return False
    return False


class Paths:
    """One for a supervisor. ``look`` may block."""

    def __init__(self, look: Callable[[str], bool] = is_missing, look_s: float = LOOK_S) -> None:
        self._look = look
        self._look_s = look_s
        self._looks: dict[str, asyncio.Future[bool]] = {}  # under way
        self._hanging: set[str] = set()  # of them, those that somebody waited for in vain

    async def missing(self, path: str) -> bool | None:
        """None where it cannot be told: the look does not end, or too many others have not."""
        if path in self._hanging or len(self._hanging) >= HANGING_AT_MOST:
            return None
        look = self._looks.get(path) or self._begin(path)
        try:
            return await asyncio.wait_for(asyncio.shield(look), self._look_s)
        except TimeoutError:
            if path in self._looks:
                self._hanging.add(path)
            return None

    def _begin(self, path: str) -> asyncio.Future[bool]:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[bool] = loop.create_future()
        self._looks[path] = answer

        def tell(found: bool) -> None:
            del self._looks[path]
            self._hanging.discard(path)
            answer.set_result(found)

        def work() -> None:
            found = self._look(path)
            with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
                loop.call_soon_threadsafe(tell, found)

        threading.Thread(target=work, name="look at a path", daemon=True).start()
        return answer
