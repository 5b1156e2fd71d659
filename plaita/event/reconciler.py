"""Looking again through events that a handler may have missed (ledger E3)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

from plaita.clock import wall_ms
from plaita.errors import PlaitaError
from plaita.event.filter import EventFilter
from plaita.event.model import Event
from plaita.event.redis import RedisEventBus
from plaita.policy.event_turns import order_of

INTERVAL_S = 300.0
BACKFILL_S = 3600.0
BATCH = 200

_log = logging.getLogger("plaita.event")


class EventReconciler:
    """Replays the events since its last whole round. ``replay`` must bear an event it has seen before; without it, a
    new ``EventFilter``'s ``handle``."""

    def __init__(
        self,
        bus: RedisEventBus,
        replay: Callable[[Event], Any] | None = None,
        *,
        interval: float = INTERVAL_S,
        backfill: float = BACKFILL_S,
        batch: int = BATCH,
    ) -> None:
        self._bus = bus
        self._replay = replay if replay is not None else EventFilter(bus).handle
        self._interval, self._backfill, self._batch = interval, backfill, batch
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self.failed = 0
        """Replays of the last round that failed."""

    def scan_once(self) -> int:
        """One round: how many events were replayed. Where any replay fails the round is void: the rest is replayed all
        the same, but the cursor stays where it was, so that the next round has all of it again; what failed counts as
        not replayed (E3). At most ``backfill`` seconds back."""
        oldest = f"{max(0, wall_ms() - int(self._backfill * 1000))}-0"
        position = max(_cursor(self._bus.load_cursor()), oldest, key=order_of)
        replayed = self.failed = 0
        while True:
            after, events = self._bus.events_after(position, self._batch)
            for event in events:
                try:
                    self._replay(event)
                    replayed += 1
                except Exception:  # noqa: BLE001 - code of others; the round is void
                    self.failed += 1
                    _log.exception("replay of event %s failed", event.event_id)
            if not events:
                break
            position = after
        if not self.failed:
            self._bus.save_cursor(position)
        return replayed

    def start(self) -> None:
        """A round now and every ``interval`` seconds, in a thread, until ``stop``."""
        self._stopped.clear()
        self._thread = threading.Thread(target=self._run, name="event reconciler", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                self.scan_once()
            except PlaitaError as error:
                _log.warning("event reconciler: %s", error)
            self._stopped.wait(self._interval)


def _cursor(said: str | None) -> str:
    """What cannot be read is no cursor: the round goes back as far as any may."""
    try:
        order_of(said or "")
    except ValueError:
        return "0-0"
    return said or "0-0"
