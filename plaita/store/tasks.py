"""What services have to do for executions that wait: approvals. A task lives and ends with its wait (DECISIONS 26)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from plaita.store.call import Argument, Call, lane_for, script, text
from plaita.store.keys import DEFAULT_TENANT, Keys

_FIELDS = 9


@dataclass(frozen=True, slots=True)
class Task:
    """``since`` and ``deadline``: epoch ms by Redis, ``deadline`` None without one. ``config`` and ``decisions`` are
    JSON texts, ``decisions`` empty for none."""

    task_id: str
    execution_id: str
    wait: str
    since: int
    deadline: int | None
    config: bytes
    decisions: bytes
    flow_id: str
    node_id: str


@dataclass(frozen=True, slots=True)
class TaskPage:
    """``now``: the server's time, epoch ms. ``total``: of all pages."""

    now: int
    total: int
    tasks: list[Task]


def page(keys: Keys, task_type: str, first: int = 0, count: int = 100) -> Call[TaskPage]:
    """Tasks of a type, the oldest first."""
    return _page("tasks.page", keys, task_type, "", first, count)


def get(keys: Keys, task_type: str, task_id: str) -> Call[TaskPage]:
    """One task by its id; no tasks where it is over or was never there."""
    return _page("tasks.get", keys, task_type, task_id, 0, 1)


def _page(name: str, keys: Keys, task_type: str, task_id: str, first: int, count: int) -> Call[TaskPage]:
    def parse(reply: Sequence[Any]) -> TaskPage:
        flat = reply[2]
        tasks = [_task(flat[i : i + _FIELDS]) for i in range(0, len(flat), _FIELDS)]
        return TaskPage(int(reply[0]), int(reply[1]), tasks)

    return Call(
        name,
        script("task_page"),
        (keys.tasks(task_type), keys.task_of(task_type)),
        (keys.ns, task_id, first, count),
        "writer",
        True,
        parse,
    )


def _task(flat: Sequence[bytes]) -> Task:
    deadline = text(flat[4])
    return Task(
        task_id=text(flat[0]),
        execution_id=text(flat[1]),
        wait=text(flat[2]),
        since=int(flat[3] or 0),
        deadline=int(deadline) if deadline else None,
        config=flat[5],
        decisions=flat[6],
        flow_id=text(flat[7]),
        node_id=text(flat[8]),
    )


@dataclass(frozen=True, slots=True)
class Decide:
    """``decisions``: those that were read and the new one, JSON text. ``data``: of the event where this settles it, as
    ``events.told`` makes it, else None. ``fields``: of the carrier. ``nonce`` makes a resend recognisable; the new
    decision must hold it."""

    task: Task
    decisions: bytes
    data: bytes | None
    event_id: str
    nonce: str
    fields: Sequence[tuple[str, bytes | str]]


def decide(keys: Keys, request: Decide) -> Call[bool]:
    """Add a decision; True when it settled the matter and the execution is woken.

    Refused: ``changed`` (others decided meanwhile: read and judge again), ``too_late`` (the deadline), ``cancelled``
    (its end is asked for), ``over``.
    """
    task = request.task
    carrier: list[Argument] = []
    for name, value in request.fields if request.data is not None else ():
        carrier += (name, value)
    return Call(
        "tasks.decide",
        script("decide"),
        (
            keys.row(task.execution_id),
            keys.tombstone(task.execution_id),
            keys.wake,
            keys.delayed,
            keys.delayed_body,
            keys.cancel(task.execution_id),
        ),
        (
            task.execution_id,
            keys.ns,
            task.wait,
            task.task_id,
            task.decisions,
            request.decisions,
            request.data or b"",
            request.event_id,
            request.nonce,
            keys.tenant or DEFAULT_TENANT,
            *carrier,
        ),
        lane_for(request.decisions, request.data),
        True,
        lambda reply: reply[0] == 1,
    )
