"""What the service manager is told: one line about what the supervisor does, and how much longer it may take.

Pure: the facts come in, texts and times go out. ``supervisor.service_manager`` sends them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from plaita.policy.lifecycle import State, Wish

# While nobody can know how long something takes (Redis away, a slow import), each turn of the loop asks for this much.
UNKNOWN_MS = 30_000
LEAVE_MS = 10_000  # more than the way out may take, from the last step to the end of the process


@dataclass(frozen=True, slots=True)
class Work:
    """The step that has run longest. ``seconds`` since it was handed out."""

    execution_id: str
    node_id: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Facts:
    """``missing``: what a start still waits for. ``answer``: of ``policy.explain``, for while it runs. ``left``:
    carriers in hand. ``spent_s``, ``timeout_s``: of a drain. ``drain_left_ms``: the most a drain may still take until
    its last step is over or killed. ``reload``: what a reload is at, '' when there is none."""

    state: State
    wish: Wish
    missing: Sequence[str] = ()
    answer: str = ""
    left: int = 0
    oldest: Work | None = None
    spent_s: float = 0.0
    timeout_s: float = 0.0
    killing: bool = False
    drain_left_ms: int = 0
    reload: str = ""


def status_line(facts: Facts) -> str:
    """One line for ``systemctl status``."""
    if facts.state is State.STARTING:
        return "starting: waits for " + " and ".join(facts.missing) if facts.missing else "starting"
    if facts.state is State.DRAINING:
        return _draining(facts)
    if facts.state is not State.RUNNING:
        return str(facts.state.value)
    if facts.reload:
        return f"reloading: {facts.reload}"
    return facts.answer


def _draining(facts: Facts) -> str:
    if facts.left == 0:
        return "drained; waits for undrain or a stop" if facts.wish is Wish.DRAIN else "drained"
    steps = f"{facts.left} step{'' if facts.left == 1 else 's'}"
    line = f"draining: kills {steps}" if facts.killing else f"draining: {steps} left"
    if facts.oldest is not None:
        line += f", oldest {facts.oldest.execution_id} at {facts.oldest.node_id} since {facts.oldest.seconds:.0f} s"
    return f"{line}, {facts.spent_s:.0f} s of {facts.timeout_s:.0f} s"


def extension_ms(facts: Facts) -> int | None:
    """How much longer, from now, the manager is to wait at least; None when there is nothing it waits for. Said again
    with every turn of the loop, so that a loop that hangs is found all the same."""
    if facts.state is State.STARTING:
        return UNKNOWN_MS
    if facts.state is State.DRAINING and facts.left:
        return facts.drain_left_ms + LEAVE_MS
    if facts.state in (State.DRAINING, State.STOPPING):
        return LEAVE_MS
    return UNKNOWN_MS if facts.reload else None
