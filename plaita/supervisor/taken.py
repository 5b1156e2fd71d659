"""What ``begin`` answered of an execution, as the ``Held`` that a carrier's way goes on with. Pure."""

from __future__ import annotations

from plaita import jsontext
from plaita.policy import lease
from plaita.store.carriers import Entry
from plaita.store.executions import Begun
from plaita.store.keys import Keys
from plaita.supervisor.flow_cache import StoredFlow
from plaita.supervisor.held import Held, NodeTiming


def held_of(
    keys: Keys, execution_id: str, entry: Entry, begun: Begun, times: lease.Times, flow: StoredFlow, holder: str
) -> Held:
    """``holder``: this host, as leases name it."""
    control = begun.control
    return Held(
        keys=keys,
        execution_id=execution_id,
        tenant_id=keys.tenant,
        flow_id=control.get("flow_id", ""),
        version=control.get("version", ""),
        flow_hash=flow.flow_hash,
        stream=entry.stream,
        entry_id=entry.entry_id,
        holder=holder,
        token=begun.token,
        lease=times,
        node_id=control.get("next_node") or flow.outline.start,
        outline=flow.outline,
        step=int(control.get("step", 0)),
        lost=int(control.get("lost", 1)),
        active_ms=_spent_ms(begun, flow.outline.timeout_includes_waits),
        last_node=control.get("last_node") or None,
        branch=control.get("branch") or None,
        timings={node: _timing(raw) for node, raw in begun.timings.items()},
        fields=entry.fields,
        input=begun.input,
        result_sizes=dict(begun.result_sizes),
        state_sizes=dict(begun.state_sizes),
        wait=begun.wait,
        woken=begun.woken,
        wake_data=begun.wake_data,
    )


def _spent_ms(begun: Begun, includes_waits: bool) -> int:
    """What counts for the flow's timeout: the time of its steps, or all since its beginning by Redis (DECISIONS 19)."""
    active = int(begun.control.get("active_ms", 0))
    created = int(begun.control.get("created_at") or begun.server_now_ms)
    return max(active, begun.server_now_ms - created) if includes_waits else active


def _timing(raw: bytes) -> NodeTiming:
    value = jsontext.loads(raw)
    status, attempts = value.get("status"), int(value.get("attempts", 0))
    if status == "running":
        failed = int(value.get("failures", 0))
    else:  # the attempt that began a wait has not failed
        failed = max(0, attempts - 1) if status == "waiting" else attempts
    return NodeTiming(
        order=int(value.get("order", 0)),
        attempts=failed,
        visit=int(value.get("visit", 1)),
        started_at=int(value.get("started_at") or 0),
        # A node that ended its execution in error is tried once more after a `retry`: the same visit, the same key.
        open=not value.get("ended_at") or status == "error",
        waiting=status == "waiting",
    )
