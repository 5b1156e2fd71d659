"""What is written of a step: node timings, errors and death records, as they stand in the row. Pure builders, no I/O.

The shapes are those that ``plaita show`` prints; times are epoch milliseconds.
"""

from __future__ import annotations

from typing import Any

from plaita import jsontext
from plaita.clock import iso_utc, wall_ms
from plaita.errors import CODE_GENERIC, FlowErrorType
from plaita.ipc.messages import Answer
from plaita.supervisor.executor import Died
from plaita.supervisor.held import Held


def error(held: Held, message: str, *, cause: str, exception: str, code: int | str = CODE_GENERIC) -> dict[str, Any]:
    """The error of an execution that ends at the node in hand, for another reason than what its code raised."""
    return {
        "code": code,
        "message": f"{exception}: {message}",
        "error_type": FlowErrorType.NODE_ERROR.value,
        "exception": exception,
        "cause": cause,
        "node": held.node_id,
        "failed_node": held.node_id,
        "node_retries": 0,
    }


def definition_gone(stored_hash: str | None, found_hash: str | None, reason: str) -> dict[str, Any]:
    """The error of an execution whose flow's body is gone or is another one (ledger F6)."""
    return {
        "code": CODE_GENERIC,
        "message": f"the flow's definition changed or is gone: {reason}",
        "error_type": FlowErrorType.FLOW_ERROR.value,
        "exception": "FlowHashMismatchError",
        "cause": "FlowHashMismatchError",
        "node": None,
        "failed_node": None,
        "node_retries": 0,
        "stored_flow_hash": stored_hash,
        "found_flow_hash": found_hash,
    }


def death(held: Held, died: Died) -> dict[str, Any]:
    """How an executor ended under the node in hand (ledger S14)."""
    return {
        "cause": died.cause,
        "signal": died.exit.signal,
        "exit_code": died.exit.code,
        "peak_rss_mib": died.exit.max_rss_kib // 1024,
        "pid": died.exit.pid,
        "node": held.node_id,
        "attempt": held.attempt,
        "holder": held.holder,
        "at": iso_utc(wall_ms()),
    }


def timing(held: Held, answer: Answer, status: str) -> bytes:
    """The node in hand after an answer; ``retrying`` and ``waiting`` leave its visit open."""
    before = held.timings.get(held.node_id)
    started = before.started_at if before is not None and before.open else answer.started_ms
    ended = None if status in ("retrying", "waiting") else answer.ended_ms
    return _text(held, status, started, ended)


def unanswered_timing(held: Held, status: str = "error") -> bytes:
    """The node in hand when its execution ends without an answer: its executor died, or it was cancelled."""
    before = held.timings.get(held.node_id)
    now = wall_ms()
    started = before.started_at if before is not None and before.open else held.step_began_at or now
    return _text(held, status, started, now)


def open_timing(held: Held, answer: Answer) -> bytes:
    """The next node as it is handed out: shown as running, and closed by whatever becomes of it."""
    assert answer.next_node is not None
    node = held.outline.nodes.get(answer.next_node)
    before = held.timings.get(answer.next_node)
    started = len(held.timings) + (held.node_id not in held.timings)
    return jsontext.dumps(
        {
            "order": started if before is None else before.order,
            "type": node.type if node is not None else "",
            "status": "running",
            "started_at": answer.ended_ms,
            "ended_at": None,
            "attempts": 1,
            "visit": 1 if before is None else before.visit + 1,
        }
    )


def _text(held: Held, status: str, started_at: int, ended_at: int | None) -> bytes:
    node = held.outline.nodes.get(held.node_id)
    return jsontext.dumps(
        {
            "order": held.order,
            "type": node.type if node is not None else "",
            "status": status,
            "started_at": started_at,
            "ended_at": ended_at,
            "attempts": held.attempt,
            "visit": held.visit,
        }
    )
