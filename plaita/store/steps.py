"""What happens to a step that was handed out: commit, finish, postpone, hand_on; exported by ``executions``.

What may be written is decided by the fence token (ledger L2, DECISIONS 2). Each but hand_on is keyed by
(token, step) and answers "done" when it is sent again; ``step`` is the row's ``step`` + 1, also for a finish or a
postpone that commits no node.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from plaita import ids
from plaita.store.call import Argument, Call, lane_for, script, text
from plaita.store.carriers import HANDED_ON_IDLE_MS
from plaita.store.failures import COUNTER_TTL_MS
from plaita.store.keys import Keys

RETENTION_NET_MS = 86_400_000


# -- commit ---------------------------------------------------------------------------------------


@dataclass(slots=True)
class Commit:
    """One finished step. ``result`` and ``state`` are JSON texts, ``timing`` the whole ``t:`` record of the node.

    ``next_node`` is handed out with this commit: its ``lost`` starts at 1. ``nodes``: how many nodes have started.
    """

    execution_id: str
    token: str
    step: int
    lease_ttl_ms: int
    lease_value: str
    node_id: str
    result: bytes | None
    timing: bytes
    next_node: str
    next_timing: bytes | None = None
    branch: str | None = None
    active_ms_delta: int = 0
    state: Mapping[str, bytes] = field(default_factory=dict)
    nodes: int | None = None


@dataclass(slots=True)
class Committed:
    """``done_before``: this very (token, step) was committed already. ``cancel``: a cancel is asked for, and why.
    ``lease_taken``: the lease had run out and was taken back, with its full time."""

    done_before: bool
    cancel: bool
    cancel_reason: str = ""
    dlq_id: str = ""
    dlq_trimmed: int = 0
    lease_taken: bool = False


def commit(keys: Keys, step: Commit) -> Call[Committed]:
    """Save one step and go on. Writes this step's fields only (ledger F9); takes an expired lease back while the
    token is still its own (DECISIONS 9).

    Refused: ``no_row``, ``terminal`` (status), ``not_running`` (status: the row came back from a backup), ``fence``,
    ``stale_step`` (the row's step), ``lease_lost`` (the lease there).
    """
    execution_id = step.execution_id
    args: list[Argument] = [
        step.token,
        step.step,
        step.lease_ttl_ms,
        step.lease_value,
        step.active_ms_delta,
        ids.key_part(step.node_id),
    ]
    args += step_fields(step.node_id, step.result, step.timing, step.state)
    if step.next_timing is not None:
        args += ("t:" + step.next_node, step.next_timing)
    if step.nodes is not None:
        args += ("nodes", step.nodes)
    args += ("last_node", step.node_id, "next_node", step.next_node, "branch", step.branch or "", "lost", 1)
    args += ("lost_node", step.next_node, "step", step.step, "commit", f"{step.token}|{step.step}|commit")
    return Call(
        "executions.commit",
        script("commit"),
        (*commit_keys(keys, execution_id), keys.noderetry(execution_id, step.node_id)),
        args,
        lane_for(step.result, *step.state.values()),
        True,
        _parse_committed,
    )


@lru_cache(maxsize=4096)
def commit_keys(keys: Keys, execution_id: str) -> tuple[str, ...]:
    """The same at each step of an execution. In the order of lib/settle.lua."""
    return (
        keys.row(execution_id),
        keys.fence(execution_id),
        keys.fencegen(execution_id),
        keys.lease(execution_id),
        keys.cancel(execution_id),
        keys.of_execution("nofail", execution_id),
    )


def step_fields(
    node_id: str | None, result: bytes | None, timing: bytes | None, state: Mapping[str, bytes]
) -> list[Argument]:
    args: list[Argument] = []
    if node_id is not None:
        if result is not None:
            args += ("r:" + node_id, result)
        if timing is not None:
            args += ("t:" + node_id, timing)
    for name, value in state.items():
        args += ("s:" + name, value)
    return args


def _parse_committed(reply: Sequence[Any]) -> Committed:
    asked = (reply[1] is not None, text(reply[1]))
    if len(reply) == 2:
        return Committed(reply[0] == 1, *asked, lease_taken=reply[0] == 2)
    return Committed(reply[0] == 1, *asked, text(reply[2]), int(reply[3]))


# -- finish ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """An entry for the dead letter stream; ``maxlen`` is exact and loses the oldest (ledger Q5)."""

    fields: Sequence[tuple[str, bytes | str]]
    maxlen: int


@dataclass(frozen=True, slots=True)
class Finish:
    """The end of an execution. ``retention_ms`` 0 keeps the row for ever. ``deterministic``: an ``error`` that no retry
    would change, a timeout included; those in a row are counted for 7 days (ledger S13)."""

    execution_id: str
    token: str
    step: int
    status: str
    stream: str
    entry_id: str
    retention_ms: int
    node_id: str | None = None
    result: bytes | None = None
    timing: bytes | None = None
    output: bytes | None = None
    error: bytes | None = None
    active_ms_delta: int = 0
    branch: str | None = None
    state: Mapping[str, bytes] = field(default_factory=dict)
    cancel_reason: str | None = None
    dead_letter: DeadLetter | None = None
    nodes: int | None = None
    deterministic: bool = False


def finish(keys: Keys, end: Finish) -> Call[Committed]:
    """Terminal row, indexes, expiry, lease, counters, ack and dead letter in one call (ledger F3, DECISIONS 17).

    What woke a node that ended in ``error`` stays in the row, so that a retry resumes it with the same; every other
    trace of a wait goes.

    Refused: as ``commit``.
    """
    if end.status not in ("completed", "error", "cancelled"):
        raise ValueError(f"an execution does not end as {end.status!r}")
    execution_id = end.execution_id
    done = end.node_id is not None and end.result is not None
    fields = step_fields(end.node_id, end.result, end.timing, end.state)
    if done and end.node_id is not None:
        fields += ("last_node", end.node_id, "step", end.step, "branch", end.branch or "")
    for name, value in (("output", end.output), ("error", end.error), ("cancel_reason", end.cancel_reason)):
        if value is not None:
            fields += (name, value)
    if end.nodes is not None:
        fields += ("nodes", end.nodes)
    fields += ("status", end.status, "commit", f"{end.token}|{end.step}|finish")
    letter: list[Argument] = []
    for letter_name, letter_value in end.dead_letter.fields if end.dead_letter else ():
        letter += (letter_name, letter_value)
    return Call(
        "executions.finish",
        script("finish"),
        (*_settle_keys(keys, execution_id, end.stream), keys.index(end.status), keys.expiry, keys.dead_letters),
        (
            end.token,
            end.step,
            end.active_ms_delta,
            end.entry_id,
            keys.group,
            execution_id,
            end.retention_ms,
            end.retention_ms + RETENTION_NET_MS if end.retention_ms else 0,
            end.dead_letter.maxlen if end.dead_letter else 0,
            int(end.deterministic),
            COUNTER_TTL_MS,
            len(letter),
            *letter,
            *fields,
        ),
        lane_for(end.result, end.output, *end.state.values()),
        True,
        _parse_committed,
    )


def _settle_keys(keys: Keys, execution_id: str, stream: str) -> tuple[str, ...]:
    """What finish and postpone share, in the order of lib/settle.lua."""
    return (
        *commit_keys(keys, execution_id),
        keys.noderetry(execution_id, None),
        keys.of_execution("noderefetch", execution_id),
        keys.of_execution("g1wakeups", execution_id),
        keys.index("running"),
        keys.stream(stream),
    )


# -- postpone and hand on ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Postpone:
    """Give the execution up for now; a copy of its carrier comes back after ``delay_ms`` (ledger S10).

    ``node_id``/``timing``: what to record of the failed attempt. ``error`` goes to the row's ``last_error``.
    ``lower_lost``: the step was not lost (it failed by an exception).
    """

    execution_id: str
    token: str
    step: int
    delay_ms: int
    copy_id: str
    copy_fields: Sequence[tuple[str, bytes | str]]
    stream: str
    entry_id: str
    lower_lost: bool
    node_id: str | None = None
    timing: bytes | None = None
    active_ms_delta: int = 0
    error: bytes | None = None
    death: bytes | None = None


@dataclass(frozen=True, slots=True)
class Postponed:
    """``done_before``: this very (token, step) was postponed already."""

    done_before: bool


def postpone(keys: Keys, request: Postpone) -> Call[Postponed]:
    """Release, ack and delayed copy in one call; the row stays at its checkpoint. Refused: as ``commit``."""
    fields: list[Argument] = []
    if request.node_id is not None and request.timing is not None:
        fields += ("t:" + request.node_id, request.timing)
    for name, value in (("last_error", request.error), ("death", request.death)):
        if value is not None:
            fields += (name, value)
    fields += ("commit", f"{request.token}|{request.step}|postpone")
    copy: list[Argument] = []
    for copy_name, copy_value in request.copy_fields:
        copy += (copy_name, copy_value)
    return Call(
        "executions.postpone",
        script("postpone"),
        (
            *_settle_keys(keys, request.execution_id, request.stream),
            keys.delayed,
            keys.delayed_body,
        ),
        (
            request.token,
            request.step,
            request.active_ms_delta,
            request.entry_id,
            keys.group,
            request.delay_ms,
            request.copy_id,
            int(request.lower_lost),
            len(copy),
            *copy,
            *fields,
        ),
        lane_for(*(value for _, value in request.copy_fields if isinstance(value, bytes))),
        True,
        lambda reply: Postponed(reply[0] == 1),
    )


@dataclass(frozen=True, slots=True)
class HandOn:
    """Give lease and carrier to whoever reads next (a drain). ``consumer`` is the one the entry is pending for."""

    execution_id: str
    token: str
    stream: str
    entry_id: str
    consumer: str
    active_ms_delta: int = 0
    lower_lost: bool = True


def hand_on(keys: Keys, request: HandOn) -> Call[bool]:
    """Release the lease and make the entry claimable at once; costs no delivery (DECISIONS 5).

    True, or False when the entry was not pending for ``consumer`` any more. Refused: ``lease_lost`` (the lease there).
    """
    return Call(
        "executions.hand_on",
        script("hand_on"),
        (
            keys.row(request.execution_id),
            keys.lease(request.execution_id),
            keys.stream(request.stream),
            keys.fence(request.execution_id),
            keys.fencegen(request.execution_id),
        ),
        (
            request.token,
            request.entry_id,
            keys.group,
            request.consumer,
            request.active_ms_delta,
            int(request.lower_lost),
            HANDED_ON_IDLE_MS,
        ),
        "writer",
        True,
        lambda reply: reply[0] == 1,
    )
