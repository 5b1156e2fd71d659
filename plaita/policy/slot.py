"""The state machine of one executor slot, as one total table.

A slot holds one executor process at a time. ``pool`` performs the actions. EOF on the pipe is no event here: only
a reaped process is EXITED, and only an EXITED one is replaced.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum


class Slot(Enum):
    SPAWNING = "spawning"  # asked for; the deadline was set before the request was sent
    IDLE = "idle"
    BUSY = "busy"
    ASKED = "asked"  # SIGTERM sent, or told to leave: it may still answer
    KILLED = "killed"  # SIGKILL sent: nothing it says counts any more
    GONE = "gone"  # reaped


class SlotEvent(Enum):
    HELLO = "hello"
    ASSIGN = "assign"
    ANSWER = "answer"
    STOP = "stop"  # deadline, lease lost, cancel, memory, drain, retirement
    KILL = "kill"  # over a limit, a broken protocol, a lease that ran out: there is no time or use to ask
    GRACE_OVER = "grace over"
    SPAWN_DEADLINE = "spawn deadline"
    EXITED = "exited"


class SlotAction(Enum):
    OFFER = "offer it to the dispatcher"
    SEND = "send the step"
    DELIVER = "deliver the answer"
    ASK = "send SIGTERM and start the grace"
    KILL = "send SIGKILL to its session"
    REPORT_EXIT = "report the exit to whoever waits for an answer"
    COUNT_SPAWN_FAILURE = "count a failed spawn"
    REPLACE = "spawn a new one"
    FAULT = "raise: the supervisor itself is wrong"


_A = SlotAction
Cell = tuple[Slot, tuple[SlotAction, ...]]

TABLE: Mapping[tuple[Slot, SlotEvent], Cell] = {
    (Slot.SPAWNING, SlotEvent.HELLO): (Slot.IDLE, (_A.OFFER,)),
    (Slot.SPAWNING, SlotEvent.ASSIGN): (Slot.SPAWNING, (_A.FAULT,)),
    (Slot.SPAWNING, SlotEvent.ANSWER): (Slot.KILLED, (_A.KILL,)),
    (Slot.SPAWNING, SlotEvent.STOP): (Slot.KILLED, (_A.KILL,)),
    (Slot.SPAWNING, SlotEvent.KILL): (Slot.KILLED, (_A.KILL,)),
    (Slot.SPAWNING, SlotEvent.GRACE_OVER): (Slot.SPAWNING, ()),
    (Slot.SPAWNING, SlotEvent.SPAWN_DEADLINE): (Slot.KILLED, (_A.COUNT_SPAWN_FAILURE, _A.KILL)),
    (Slot.SPAWNING, SlotEvent.EXITED): (Slot.GONE, (_A.COUNT_SPAWN_FAILURE, _A.REPLACE)),
    (Slot.IDLE, SlotEvent.HELLO): (Slot.KILLED, (_A.KILL,)),
    (Slot.IDLE, SlotEvent.ASSIGN): (Slot.BUSY, (_A.SEND,)),
    (Slot.IDLE, SlotEvent.ANSWER): (Slot.KILLED, (_A.KILL,)),
    (Slot.IDLE, SlotEvent.STOP): (Slot.ASKED, (_A.ASK,)),
    (Slot.IDLE, SlotEvent.KILL): (Slot.KILLED, (_A.KILL,)),
    (Slot.IDLE, SlotEvent.GRACE_OVER): (Slot.IDLE, ()),
    (Slot.IDLE, SlotEvent.SPAWN_DEADLINE): (Slot.IDLE, ()),
    (Slot.IDLE, SlotEvent.EXITED): (Slot.GONE, (_A.REPLACE,)),
    (Slot.BUSY, SlotEvent.HELLO): (Slot.KILLED, (_A.KILL,)),
    (Slot.BUSY, SlotEvent.ASSIGN): (Slot.BUSY, (_A.FAULT,)),
    (Slot.BUSY, SlotEvent.ANSWER): (Slot.IDLE, (_A.DELIVER,)),
    (Slot.BUSY, SlotEvent.STOP): (Slot.ASKED, (_A.ASK,)),
    (Slot.BUSY, SlotEvent.KILL): (Slot.KILLED, (_A.KILL,)),
    (Slot.BUSY, SlotEvent.GRACE_OVER): (Slot.BUSY, ()),
    (Slot.BUSY, SlotEvent.SPAWN_DEADLINE): (Slot.BUSY, ()),
    (Slot.BUSY, SlotEvent.EXITED): (Slot.GONE, (_A.REPORT_EXIT, _A.REPLACE)),
    (Slot.ASKED, SlotEvent.HELLO): (Slot.KILLED, (_A.KILL,)),
    (Slot.ASKED, SlotEvent.ASSIGN): (Slot.ASKED, (_A.FAULT,)),
    (Slot.ASKED, SlotEvent.ANSWER): (Slot.ASKED, (_A.DELIVER,)),
    (Slot.ASKED, SlotEvent.STOP): (Slot.ASKED, ()),
    (Slot.ASKED, SlotEvent.KILL): (Slot.KILLED, (_A.KILL,)),
    (Slot.ASKED, SlotEvent.GRACE_OVER): (Slot.KILLED, (_A.KILL,)),
    (Slot.ASKED, SlotEvent.SPAWN_DEADLINE): (Slot.ASKED, ()),
    (Slot.ASKED, SlotEvent.EXITED): (Slot.GONE, (_A.REPORT_EXIT, _A.REPLACE)),
    (Slot.KILLED, SlotEvent.HELLO): (Slot.KILLED, ()),
    (Slot.KILLED, SlotEvent.ASSIGN): (Slot.KILLED, (_A.FAULT,)),
    (Slot.KILLED, SlotEvent.ANSWER): (Slot.KILLED, ()),
    (Slot.KILLED, SlotEvent.STOP): (Slot.KILLED, ()),
    (Slot.KILLED, SlotEvent.KILL): (Slot.KILLED, ()),
    (Slot.KILLED, SlotEvent.GRACE_OVER): (Slot.KILLED, ()),
    (Slot.KILLED, SlotEvent.SPAWN_DEADLINE): (Slot.KILLED, ()),
    (Slot.KILLED, SlotEvent.EXITED): (Slot.GONE, (_A.REPORT_EXIT, _A.REPLACE)),
    (Slot.GONE, SlotEvent.HELLO): (Slot.GONE, ()),
    (Slot.GONE, SlotEvent.ASSIGN): (Slot.GONE, (_A.FAULT,)),
    (Slot.GONE, SlotEvent.ANSWER): (Slot.GONE, ()),
    (Slot.GONE, SlotEvent.STOP): (Slot.GONE, ()),
    (Slot.GONE, SlotEvent.KILL): (Slot.GONE, ()),
    (Slot.GONE, SlotEvent.GRACE_OVER): (Slot.GONE, ()),
    (Slot.GONE, SlotEvent.SPAWN_DEADLINE): (Slot.GONE, ()),
    (Slot.GONE, SlotEvent.EXITED): (Slot.GONE, ()),
}


def transition(state: Slot, event: SlotEvent) -> Cell:
    """The next state and the actions to perform in order. Never raises: the table is total."""
    return TABLE[(state, event)]
