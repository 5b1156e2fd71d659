"""From an executor's ``suspended`` to what is written of the wait, and which event that came before it ends it
(DECISIONS 26, 27). No I/O: ``settle`` sends it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from plaita import jsontext
from plaita.ipc.messages import Answer
from plaita.policy import event_index
from plaita.policy.copies import stamps_of_wait, wake_carrier
from plaita.store.executions import EarlyEvent, Suspend
from plaita.supervisor import records
from plaita.supervisor.held import Held


def suspend_of(held: Held, answer: Answer, elapsed_ms: int) -> Suspend:
    """The wait of the step that has just run."""
    subscription = answer.subscription or {}
    accepts = subscription.get("event_filter")
    named = subscription.get("correlation_id")
    event_type = str(subscription.get("event_type") or "")
    correlation = str(named or held.execution_id)
    service: dict[str, Any] = subscription.get("service") or {}
    return Suspend(
        execution_id=held.execution_id,
        token=held.token,
        step=held.step + 1,
        node_id=held.node_id,
        result=answer.result or b"null",
        timing=records.timing(held, answer, "waiting"),
        event_type=event_type,
        correlation=correlation,
        event_filter=jsontext.dumps(accepts) if accepts else None,
        timeout_ms=subscription.get("timeout_ms"),
        timer_fields=wake_carrier(
            held.fields,
            held.entry_id,
            "timeout",
            execution_id=held.execution_id,
            flow_id=held.flow_id,
            tenant_id=held.tenant_id,
            wait=str(held.step + 1),
        ),
        stream=held.stream,
        entry_id=held.entry_id,
        active_ms_delta=elapsed_ms + held.unsaved_ms,
        state=answer.state,
        nodes=held.order + 1 if held.node_id not in held.timings else None,
        # What a service ends, an approval above all, is not for any publisher to end.
        places=None
        if service
        else event_index.places(event_type, correlation, named=bool(named), event_filter=accepts),
        task_type=str(service.get("type") or ""),
        task_id=str(service.get("task_id") or ""),
        stamps=jsontext.dumps(stamps_of_wait(held.fields, held.entry_id)),
        config=jsontext.dumps(service["config"]) if service.get("config") is not None else None,
    )


def judged(held: Held, wait: Suspend, early: Sequence[EarlyEvent]) -> Suspend:
    """The same wait, ended by the first of these events that fits its filter; those that do not are ruled out."""
    accepts = jsontext.loads(wait.event_filter) if wait.event_filter else None
    unfit: list[str] = []
    for event in early:
        if not event_index.matches(accepts, jsontext.loads(event.data)["event_data"]):
            unfit.append(event.event_id)
            continue
        carrier = wake_carrier(
            held.fields,
            held.entry_id,
            "event",
            execution_id=held.execution_id,
            flow_id=held.flow_id,
            tenant_id=held.tenant_id,
            wait=str(wait.step),
        )
        return replace(wait, early=event.event_id, early_fields=carrier, ruled_out=[*wait.ruled_out, *unfit])
    return replace(wait, early="", early_fields=(), ruled_out=[*wait.ruled_out, *unfit])
