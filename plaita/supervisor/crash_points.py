"""For tests only: where a supervisor can be made to die by SIGKILL, so that every window of a task's way is tried.

Set at start, ``PLAITA_TEST_CRASH_AT=<point>[:n]`` kills this process the ``n``-th time (default: the first) that it
comes to the point. Without it nothing here runs but one look at a module attribute a step. What Redis is asked and
answers passes through one runner, so ``CrashingRunner`` finds nearly all points; the two that lie between supervisor
and executor are reached from ``stepping``. Decides nothing and undoes nothing: dying is all it does.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, TypeVar

from plaita.errors import ConfigError
from plaita.store.call import Answer, Call, Value
from plaita.store.carriers import Entry, Taken
from plaita.store.delayed import Promoted
from plaita.store.events import Logged
from plaita.store.runner_async import AsyncRunner
from plaita.store.tenants import Released
from plaita.supervisor import logs

T = TypeVar("T")

VARIABLE = "PLAITA_TEST_CRASH_AT"
WRITTEN_S = 2.0  # until what was submitted has surely been written to the socket: its answer is there, unlooked at


class Point(StrEnum):
    """In the order of a task's way. ``ready``: the call is about to be sent. ``sent``: it is on its way to Redis, and
    nobody has looked at an answer. ``answered``: the answer is read, and nothing has been done about it."""

    PROMOTED = "promoted"  # due delayed records were moved to their stream, waits whose time is over were woken
    TAKEN = "taken"  # carriers are delivered to us, no lease is taken
    BEGIN_SENT = "begin.sent"
    BEGUN = "begin.answered"
    STEP_SENT = "step.sent"  # the executor has the step, or will have
    STEP_ANSWERED = "step.answered"  # node code is done, nothing of it is in Redis
    COMMIT_SENT = "commit.sent"
    COMMITTED = "commit.answered"
    SUSPEND_SENT = "suspend.sent"  # the node waits
    SUSPENDED = "suspend.answered"
    RETAKE_SENT = "retake.sent"  # after an executor's death
    RETAKEN = "retake.answered"
    FAILURE_COUNTED = "count_failure.answered"  # the node raised; not yet postponed or ended
    POSTPONE_SENT = "postpone.sent"
    POSTPONED = "postpone.answered"
    HAND_ON_SENT = "hand_on.sent"  # a drain
    HANDED_ON = "hand_on.answered"
    FINISH_READY = "finish.ready"
    FINISH_SENT = "finish.sent"
    FINISHED = "finish.answered"
    DEAD_LETTER_SENT = "bury.sent"  # of a carrier that was never begun
    DEAD_LETTERED = "bury.answered"
    PARK_SENT = "park.sent"  # over its tenant's quota
    PARKED = "park.answered"
    EVENTS_READ = "events"  # of the event log, given to us
    WAITERS_FOUND = "waiters.answered"
    WAKE_MANY_SENT = "wake_many.sent"
    WOKEN = "wake_many.answered"
    EVENT_DONE_SENT = "event_done.sent"
    UNPARKED = "unparked"  # parked carriers were brought back into their streams


UNDER_QUOTA = frozenset({Point.PARK_SENT, Point.PARKED, Point.UNPARKED})  # on no way of a tenant without one
_BY_NAME = {point.value: point for point in Point}


class _Countdown:
    def __init__(self, point: Point, times: int) -> None:
        self._point = point
        self._left = times

    def reached(self, point: Point | None) -> None:
        if point is not self._point:
            return
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


_countdown: _Countdown | None = None


def arm(environ: Mapping[str, str]) -> None:
    """Read the variable, once at start. Raises ConfigError for what is no point."""
    global _countdown
    given = environ.get(VARIABLE)
    if not given:
        return
    name, _, times = given.partition(":")
    count = int(times) if times.isdecimal() else 0 if times else 1
    if name not in _BY_NAME or count < 1:
        right = f"right is POINT[:N], N from 1, POINT one of {', '.join(_BY_NAME)}"
        raise ConfigError([f"environment {VARIABLE}: {given!r}; {right}"])
    _countdown = _Countdown(_BY_NAME[name], count)
    logs.warning("crash_point.armed", point=name, times=count, advice=f"for tests only: unset {VARIABLE}")


def reach(point: Point) -> None:
    """Here is ``point``."""
    if _countdown is not None:
        _countdown.reached(point)


def runner_type() -> type[AsyncRunner]:
    """What the supervisor speaks to Redis with."""
    return AsyncRunner if _countdown is None else CrashingRunner


class CrashingRunner(AsyncRunner):
    """Comes to the points around each call."""

    async def run(self, call: Call[T]) -> Answer[T]:
        assert _countdown is not None
        word = call.name.rpartition(".")[2]
        _countdown.reached(_BY_NAME.get(f"{word}.ready"))
        answering = asyncio.ensure_future(super().run(call))
        try:
            # Not a number of turns: behind other calls of its lane it is written when their answers have come.
            await asyncio.wait({answering}, timeout=WRITTEN_S)
            _countdown.reached(_BY_NAME.get(f"{word}.sent"))
            answer = await answering
        except asyncio.CancelledError:
            answering.cancel()
            raise
        if isinstance(answer, Value):
            _countdown.reached(_BY_NAME.get(f"{word}.answered"))
            _countdown.reached(_brought(answer.value))
        return answer


def _brought(value: Any) -> Point | None:
    if isinstance(value, Taken) and value.entries:
        return Point.TAKEN
    if isinstance(value, list) and value and isinstance(value[0], Entry):
        return Point.TAKEN
    if isinstance(value, list) and value and isinstance(value[0], Logged):
        return Point.EVENTS_READ
    if isinstance(value, Promoted) and value.moved:
        return Point.PROMOTED
    if isinstance(value, Released) and value.moved:
        return Point.UNPARKED
    return None
