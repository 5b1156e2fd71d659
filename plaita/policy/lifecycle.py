"""The supervisor's state machine: what it is, and what is wanted of it, as one total table (DECISIONS 32).

``State`` is what the supervisor is; ``Wish`` is what somebody asked for. ``transition`` is pure: it returns the
next state, the next wish and the actions that ``supervisor.supervisor`` performs. Every cell is written, a
test walks all of them, and ``docs/state-machines.md`` is printed from here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum


class State(Enum):
    STARTING = "starting"
    RUNNING = "running"
    DRAINING = "draining"
    STOPPING = "stopping"
    STOPPED = "stopped"


class Wish(Enum):
    NONE = "none"
    DRAIN = "drain"
    STOP = "stop"
    FORCE = "force"


class Event(Enum):
    READY = "ready"  # Redis answers, the registry took us, the template stands
    DRAIN_ASKED = "drain asked"
    DRAIN_UNDONE = "drain undone"
    STOP_ASKED = "stop asked"  # first SIGTERM or SIGINT
    IDLE = "idle"  # no carrier is held any more
    DEADLINE = "deadline"  # the drain timeout has passed
    FORCED = "forced"  # a second SIGTERM or SIGINT
    FATAL = "fatal"  # the supervisor cannot go on: its identity is taken, or it has a bug


class Action(Enum):
    OPEN_GATE = "open the gate"
    CLOSE_GATE = "close the gate"
    ANNOUNCE = "write the status to the registry"
    SAY_READY = "tell systemd READY"
    SAY_STOPPING = "tell systemd STOPPING"
    START_DEADLINE = "start the drain timeout"
    CANCEL_DEADLINE = "cancel the drain timeout"
    KILL_ALL = "stop every executor that has work"
    SHUT_DOWN = "shut the parts down"
    REFUSE = "refuse the request"


@dataclass(frozen=True, slots=True)
class Step:
    """What one event does: the next state, the next wish (None: as it is) and the actions, in order."""

    state: State
    wish: Wish | None = None
    actions: tuple[Action, ...] = ()


Cell = Step | Mapping[Wish, Step]

_STARTING = Step(State.STARTING)
_RUNNING = Step(State.RUNNING)
_DRAINING = Step(State.DRAINING)
_STOPPING = Step(State.STOPPING)
_STOPPED = Step(State.STOPPED)

_ENTER_RUNNING = Step(State.RUNNING, None, (Action.ANNOUNCE, Action.SAY_READY, Action.OPEN_GATE))
_ENTER_DRAINING = Step(State.DRAINING, None, (Action.CLOSE_GATE, Action.ANNOUNCE, Action.START_DEADLINE))
_ENTER_STOPPING = Step(
    State.STOPPING, None, (Action.CLOSE_GATE, Action.SAY_STOPPING, Action.ANNOUNCE, Action.SHUT_DOWN)
)


def _with(step: Step, wish: Wish, *more: Action) -> Step:
    return Step(step.state, wish, step.actions + more)


TABLE: Mapping[tuple[State, Event], Cell] = {
    (State.STARTING, Event.READY): {
        Wish.NONE: _ENTER_RUNNING,
        Wish.DRAIN: Step(State.DRAINING, None, (Action.CLOSE_GATE, Action.ANNOUNCE, Action.SAY_READY)),
        Wish.STOP: _ENTER_STOPPING,
        Wish.FORCE: _ENTER_STOPPING,
    },
    # Without an entry in the registry it starts, and works all the same (G3): then there is something to hand on.
    (State.STARTING, Event.DRAIN_ASKED): Step(State.STARTING, Wish.DRAIN, (Action.CLOSE_GATE, Action.START_DEADLINE)),
    (State.STARTING, Event.DRAIN_UNDONE): Step(State.STARTING, Wish.NONE, (Action.CANCEL_DEADLINE,)),
    (State.STARTING, Event.STOP_ASKED): _with(_ENTER_DRAINING, Wish.STOP, Action.SAY_STOPPING),
    (State.STARTING, Event.IDLE): _STARTING,
    (State.STARTING, Event.DEADLINE): {
        Wish.NONE: _STARTING,
        Wish.DRAIN: Step(State.STARTING, None, (Action.KILL_ALL,)),
        Wish.STOP: _STARTING,
        Wish.FORCE: _STARTING,
    },
    (State.STARTING, Event.FORCED): _with(_ENTER_DRAINING, Wish.FORCE, Action.SAY_STOPPING, Action.KILL_ALL),
    (State.STARTING, Event.FATAL): _with(_ENTER_DRAINING, Wish.FORCE, Action.SAY_STOPPING, Action.KILL_ALL),
    (State.RUNNING, Event.READY): _RUNNING,
    (State.RUNNING, Event.DRAIN_ASKED): _with(_ENTER_DRAINING, Wish.DRAIN),
    (State.RUNNING, Event.DRAIN_UNDONE): _RUNNING,
    (State.RUNNING, Event.STOP_ASKED): _with(_ENTER_DRAINING, Wish.STOP, Action.SAY_STOPPING),
    (State.RUNNING, Event.IDLE): _RUNNING,
    (State.RUNNING, Event.DEADLINE): _RUNNING,
    (State.RUNNING, Event.FORCED): _with(_ENTER_DRAINING, Wish.FORCE, Action.SAY_STOPPING, Action.KILL_ALL),
    (State.RUNNING, Event.FATAL): _with(_ENTER_DRAINING, Wish.FORCE, Action.SAY_STOPPING, Action.KILL_ALL),
    (State.DRAINING, Event.READY): _DRAINING,
    (State.DRAINING, Event.DRAIN_ASKED): _DRAINING,
    (State.DRAINING, Event.DRAIN_UNDONE): {
        Wish.NONE: _DRAINING,
        Wish.DRAIN: Step(State.RUNNING, Wish.NONE, (Action.CANCEL_DEADLINE, Action.ANNOUNCE, Action.OPEN_GATE)),
        Wish.STOP: Step(State.DRAINING, None, (Action.REFUSE,)),
        Wish.FORCE: Step(State.DRAINING, None, (Action.REFUSE,)),
    },
    (State.DRAINING, Event.STOP_ASKED): Step(State.DRAINING, Wish.STOP, (Action.SAY_STOPPING, Action.START_DEADLINE)),
    (State.DRAINING, Event.IDLE): {
        Wish.NONE: _DRAINING,
        Wish.DRAIN: _DRAINING,
        Wish.STOP: _ENTER_STOPPING,
        Wish.FORCE: _ENTER_STOPPING,
    },
    (State.DRAINING, Event.DEADLINE): Step(State.DRAINING, None, (Action.KILL_ALL,)),
    (State.DRAINING, Event.FORCED): Step(State.DRAINING, Wish.FORCE, (Action.KILL_ALL,)),
    (State.DRAINING, Event.FATAL): Step(State.DRAINING, Wish.FORCE, (Action.KILL_ALL,)),
    (State.STOPPING, Event.READY): _STOPPING,
    (State.STOPPING, Event.DRAIN_ASKED): Step(State.STOPPING, None, (Action.REFUSE,)),
    (State.STOPPING, Event.DRAIN_UNDONE): Step(State.STOPPING, None, (Action.REFUSE,)),
    (State.STOPPING, Event.STOP_ASKED): _STOPPING,
    (State.STOPPING, Event.IDLE): _STOPPED,
    (State.STOPPING, Event.DEADLINE): _STOPPING,
    (State.STOPPING, Event.FORCED): Step(State.STOPPING, Wish.FORCE),
    (State.STOPPING, Event.FATAL): Step(State.STOPPING, Wish.FORCE),
    (State.STOPPED, Event.READY): _STOPPED,
    (State.STOPPED, Event.DRAIN_ASKED): Step(State.STOPPED, None, (Action.REFUSE,)),
    (State.STOPPED, Event.DRAIN_UNDONE): Step(State.STOPPED, None, (Action.REFUSE,)),
    (State.STOPPED, Event.STOP_ASKED): _STOPPED,
    (State.STOPPED, Event.IDLE): _STOPPED,
    (State.STOPPED, Event.DEADLINE): _STOPPED,
    (State.STOPPED, Event.FORCED): _STOPPED,
    (State.STOPPED, Event.FATAL): _STOPPED,
}


def transition(state: State, wish: Wish, event: Event) -> tuple[State, Wish, tuple[Action, ...]]:
    """The next state, the next wish and the actions to perform in order. Never raises: the table is total."""
    cell = TABLE[(state, event)]
    step = cell if isinstance(cell, Step) else cell[wish]
    return step.state, step.wish or wish, step.actions
