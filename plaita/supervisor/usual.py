"""The usual lengths of steps, by node of a flow's version: what ``status`` judges a running step by (DECISIONS 24).

In memory, of this life of this supervisor. ``policy.usual`` has the median and the verdict.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable
from typing import Any

from plaita.clock import boot_ms
from plaita.policy import usual
from plaita.supervisor.executor import Executor

KEPT = 32  # lengths of a node
NODES_KNOWN = 4096  # those not run for the longest time are forgotten first

NodeKey = tuple[str, str, str]  # flow id, version, node id


class UsualLengths:
    """The last lengths of each node's steps."""

    def __init__(self) -> None:
        self._lengths: OrderedDict[NodeKey, deque[int]] = OrderedDict()

    def add(self, key: NodeKey, length_ms: int) -> None:
        """A step of this node has ended well after ``length_ms``."""
        lengths = self._lengths.get(key)
        if lengths is None:
            lengths = self._lengths[key] = deque(maxlen=KEPT)
            if len(self._lengths) > NODES_KNOWN:
                self._lengths.popitem(last=False)
        else:
            self._lengths.move_to_end(key)
        lengths.append(length_ms)

    def usual_ms(self, key: NodeKey) -> int | None:
        """None while too few are known."""
        return usual.usual_ms(self._lengths.get(key, ()))


def stuck_rows(executors: Iterable[Executor], lengths: UsualLengths, grace_ms: int) -> list[dict[str, Any]]:
    """The ``stuck`` list of ``status``: running steps that take far longer than they do; longest first."""
    now = boot_ms()
    rows = []
    for executor in executors:
        key = executor.node_key
        if executor.step_started is None or key is None:
            continue
        elapsed, known = now - executor.step_started, lengths.usual_ms(key)
        if usual.is_stuck(elapsed, usual=known, limit_ms=executor.limit_ms, grace_ms=grace_ms):
            rows.append(
                {
                    "slot": executor.slot,
                    "execution_id": executor.execution_id,
                    "flow_id": executor.flow_id,
                    "node_id": executor.node_id,
                    "step_s": round(elapsed / 1000, 3),
                    "usual_s": None if known is None else round(known / 1000, 3),
                    "timeout_s": None if executor.limit_ms is None else round(executor.limit_ms / 1000, 3),
                }
            )
    return sorted(rows, key=lambda row: -float(row["step_s"] or 0))
