"""A node that waits: row, subscription, timer, service's task, release and ack in one call (F3, DECISIONS 26, 27).

Exported by ``executions``. What ends a wait is in ``waits`` and ``events``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from plaita import ids
from plaita.policy.event_index import Places, kept_digest
from plaita.store.call import Argument, Call, lane_for, script, text
from plaita.store.keys import Keys
from plaita.store.steps import commit_keys, step_fields

EVENTS_KEPT_MS = 7 * 86_400_000
GROUP_CHARACTERS = 8  # of the digest of type and correlation: which events an execution has used is kept by it


@dataclass(frozen=True, slots=True)
class EarlyEvent:
    """An event that came before the wait: ``log_id`` is its place in the log, ``data`` is ``events.told``."""

    event_id: str
    log_id: str
    data: bytes


@dataclass(slots=True)
class Suspend:
    """A node that waits. ``result`` is its pending result, ``timing`` its ``t:`` record, both JSON texts.

    ``correlation`` '' means the execution id. ``event_filter`` is a JSON text; ``places``: where events find the wait,
    None for one that no event is to find. ``timeout_ms``: after it the timer's carrier ``timer_fields`` goes to the
    wake stream. ``task_type``, ``task_id`` and ``config`` (a JSON text): what a service is to do, '' and None for
    nothing. ``stamps``: JSON text of the schema version and generations that its wake-ups carry on. The wait's id is
    ``str(step)``.

    ``early``: the event that came first and ends the wait in this very call, with its carrier ``early_fields``;
    ``ruled_out``: ids of those that do not fit its filter. ``call_name``: under what name an HTTP call that came first
    is kept, '' for a wait that no call ends; ``call``: what became of it, ``ends`` as the event ``early``, of which the
    node is told ``call_data``.
    """

    execution_id: str
    token: str
    step: int
    node_id: str
    result: bytes
    timing: bytes
    event_type: str
    correlation: str
    event_filter: bytes | None
    timeout_ms: int | None
    timer_fields: Sequence[tuple[str, bytes | str]]
    stream: str
    entry_id: str
    active_ms_delta: int = 0
    state: Mapping[str, bytes] = field(default_factory=dict)
    nodes: int | None = None
    places: Places | None = None
    task_type: str = ""
    task_id: str = ""
    config: bytes | None = None
    stamps: bytes = b""
    early: str = ""
    early_fields: Sequence[tuple[str, bytes | str]] = ()
    ruled_out: Sequence[str] = ()
    call_name: str = ""
    call: Literal["", "ends", "refused"] = ""
    call_data: bytes = b""


@dataclass(frozen=True, slots=True)
class Suspended:
    """``deadline_ms``: when the wait times out, by Redis time; None without a timeout, or when sent again and the wait
    is over. ``early``, the oldest first: events that may end the wait already, not always all at once; ``call``: the
    record of such an HTTP call. Where there are any, nothing was written (``open``): judge them and send again
    (DECISIONS 27, 30)."""

    done_before: bool
    deadline_ms: int | None
    early: list[EarlyEvent] = field(default_factory=list)
    call: bytes = b""

    @property
    def open(self) -> bool:
        return bool(self.early or self.call)


def suspend(keys: Keys, wait: Suspend) -> Call[Suspended]:
    """Pending result, wait, subscription, timer, task, release and ack in one call; the row is ``suspended``.

    Refused: as ``commit``; ``cancel`` (its reason): a cancel is asked for, nothing is written, the holder ends it.
    """
    execution_id, node_id = wait.execution_id, wait.node_id
    correlation = wait.correlation or execution_id
    kept = kept_digest(wait.event_type, correlation)
    timer = _flat(wait.timer_fields) if wait.timeout_ms is not None else []
    places: Sequence[Argument] = () if wait.places is None else keys.index_places(wait.event_type, wait.places)
    task: Sequence[Argument] = keys.task_places(wait.task_type, wait.task_id) if wait.task_type else ()
    carrier = _flat(wait.early_fields) if wait.early else []
    fields = step_fields(node_id, wait.result, wait.timing, wait.state)
    if wait.nodes is not None:
        fields += ("nodes", wait.nodes)
    fields += ("status", "suspended", "last_node", node_id, "next_node", node_id, "branch", "", "lost", 0)
    fields += ("lost_node", node_id, "step", wait.step, "commit", f"{wait.token}|{wait.step}|suspend")
    fields += ("wait", wait.step, "wait_type", wait.event_type, "wait_correlation", correlation)
    fields += ("wait_filter", wait.event_filter or b"", "wait_config", wait.config or b"", "wait_decisions", "")
    fields += ("wait_stamps", wait.stamps)
    fields += ("woken", "", "wake_data", "", "wake_id", "")
    groups: tuple[Sequence[Argument], ...] = (timer, places, task, carrier, wait.ruled_out)
    return Call(
        "executions.suspend",
        script("suspend"),
        (
            *commit_keys(keys, execution_id),
            keys.noderetry(execution_id, node_id),
            keys.index("running"),
            keys.index("suspended"),
            keys.stream(wait.stream),
            keys.delayed,
            keys.delayed_body,
            keys.events_kept(kept),
            keys.wake,
            keys.event_last,
            keys.early_callbacks,
        ),
        (
            wait.token,
            wait.step,
            wait.active_ms_delta,
            wait.entry_id,
            keys.group,
            execution_id,
            ids.key_part(node_id),
            "" if wait.timeout_ms is None else wait.timeout_ms,
            keys.ns,
            wait.early,
            EVENTS_KEPT_MS,
            wait.call_name,
            wait.call,
            wait.call_data,
            kept[:GROUP_CHARACTERS],
            *(len(group) for group in groups),
            *(word for group in groups for word in group),
            *fields,
        ),
        lane_for(wait.result, wait.config, *wait.state.values()),
        True,
        _parse_suspended,
    )


def _parse_suspended(reply: Sequence[Any]) -> Suspended:
    flat = reply[2]
    early = [EarlyEvent(text(flat[i]), text(flat[i + 1]), flat[i + 2]) for i in range(0, len(flat), 3)]
    return Suspended(reply[0] == 1, int(reply[1]) if reply[1] else None, early, reply[3])


def _flat(fields: Sequence[tuple[str, bytes | str]]) -> list[Argument]:
    return [word for pair in fields for word in pair]
