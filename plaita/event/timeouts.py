"""Subscriptions whose time is over, and who wants to know of it (ledger E4). Timers of nodes are the hosts' own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from plaita.event.bus import EventBus
from plaita.event.model import EventSubscription, TimeoutCallbackError

BUDGET_S = 10.0

Callback = Callable[[EventSubscription], Any]


_Telling = tuple[str, float, int]
"""Which subscription, since when (another may be put in its place), which callback."""


class _Run:
    """One callback on its way; it cannot be ended by force, only no longer be waited for."""

    def __init__(self, callback: Callback, subscription: EventSubscription) -> None:
        self.error: BaseException | None = None
        self._callback = callback
        self._subscription = subscription
        self._thread = threading.Thread(target=self._call, name="timeout callback", daemon=True)
        self._thread.start()

    def _call(self) -> None:
        try:
            self._callback(self._subscription)
        except BaseException as error:  # noqa: BLE001 - it is the caller's, who gets it
            self.error = error

    def done_within(self, seconds: float) -> bool:
        self._thread.join(seconds)
        return not self._thread.is_alive()


class SubscriptionTimeouts:
    """Tells callbacks of each overdue subscription. Each has ``budget`` seconds of its own, so that one that hangs or
    fails takes nothing from the others. A subscription is removed when all have been told; those that failed are told
    again by the next ``check``, the others not."""

    def __init__(self, bus: EventBus, callbacks: Sequence[Callback] = (), *, budget: float = BUDGET_S) -> None:
        self._bus = bus
        self._callbacks = list(callbacks)
        self._budget = budget
        self._told: set[_Telling] = set()
        self._running: dict[_Telling, _Run] = {}

    def register_callback(self, callback: Callback) -> None:
        self._callbacks.append(callback)

    def check(self, now: float | None = None) -> int:
        """How many subscriptions are over and done with now. Raises TimeoutCallbackError with all that failed, after
        everybody was called; what is no Exception (KeyboardInterrupt, SystemExit) comes through at once (E4)."""
        moment = time.time() if now is None else now
        failures: list[tuple[str, Callback, Exception]] = []
        ended = 0
        for subscription in self._bus.subscriptions():
            if not subscription.is_overdue(moment):
                continue
            before = len(failures)
            for callback in self._callbacks:
                error = self._tell(callback, subscription)
                if error is not None:
                    failures.append((subscription.subscription_id, callback, error))
            if len(failures) == before:
                self._bus.unregister_subscription(subscription.subscription_id)
                self._told = {one for one in self._told if one[0] != subscription.subscription_id}
                ended += 1
        if failures:
            raise TimeoutCallbackError(failures)
        return ended

    def _tell(self, callback: Callback, subscription: EventSubscription) -> Exception | None:
        key = (subscription.subscription_id, subscription.created_at, id(callback))
        if key in self._told:
            return None
        run = self._running.pop(key, None) or _Run(callback, subscription)
        if not run.done_within(self._budget):
            self._running[key] = run  # waited for again by the next check, not begun a second time
            return TimeoutError(f"not done within {self._budget} s")
        if isinstance(run.error, Exception):
            return run.error
        if run.error is not None:
            raise run.error
        self._told.add(key)
        return None
