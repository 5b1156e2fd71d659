"""From an executor's ``suspended`` to what is written of the wait, and which event or HTTP call that came before it
ends it (DECISIONS 26, 27, 30). No I/O: ``settle`` sends it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from plaita import jsontext
from plaita.callback_url import Place
from plaita.ids import new_nonce
from plaita.ipc.messages import Answer
from plaita.policy import callbacks, event_index
from plaita.policy.callbacks import EarlyCall
from plaita.policy.copies import stamps_of_wait, wake_carrier
from plaita.store import events
from plaita.store.executions import EarlyEvent, Suspend, Suspended
from plaita.supervisor import logs, records
from plaita.supervisor.held import Held
from plaita.supervisor.stats import Stats


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
        call_name=_call_name(held, service) if service.get("type") == "http_callback" else "",
    )


def _call_name(held: Held, service: dict[str, Any]) -> str:
    visit = service["config"]["visit"]
    return callbacks.kept_name(Place("", held.tenant_id, held.execution_id, held.node_id, visit))


def judged(held: Held, wait: Suspend, open_: Suspended, stats: Stats) -> Suspend:
    """The same wait, once what came before it has been looked at."""
    if open_.call:
        try:
            call = EarlyCall.of_record(open_.call)
        except ValueError as error:
            logs.error("callback.unreadable", execution_id=held.execution_id, node=held.node_id, why=error)
            return replace(wait, call="refused")
        return _with_call(held, wait, call, stats)
    return _with_events(held, wait, open_.early)


def _with_call(held: Held, wait: Suspend, call: EarlyCall, stats: Stats) -> Suspend:
    """Ended by this call, if it is what the node wants; nobody is there any more to be told that it is not."""
    config = jsontext.loads(wait.config or b"null")
    refused = callbacks.refusal(config, call.request)
    if refused is not None:
        stats.add("callbacks_kept_refused")
        said = {"execution_id": held.execution_id, "node": held.node_id, "status": refused.status}
        logs.warning("callback.refused", **said)
        return replace(wait, call="refused")
    stats.add("callbacks_kept_used")
    event_id = f"{callbacks.event_prefix(call.place)}{new_nonce()}"
    data = callbacks.event_data(config, held.tenant_id, call.request, call.at_ms)
    told = events.told(event_id, wait.event_type, jsontext.dumps(data))
    return replace(wait, call="ends", call_data=told, early=event_id, early_fields=_carrier(held, wait))


def _with_events(held: Held, wait: Suspend, early: Sequence[EarlyEvent]) -> Suspend:
    """Ended by the first of these events that fits its filter; those that do not are ruled out."""
    accepts = jsontext.loads(wait.event_filter) if wait.event_filter else None
    unfit: list[str] = []
    for event in early:
        if not event_index.matches(accepts, jsontext.loads(event.data)["event_data"]):
            unfit.append(event.event_id)
            continue
        ruled_out = [*wait.ruled_out, *unfit]
        return replace(wait, early=event.event_id, early_fields=_carrier(held, wait), ruled_out=ruled_out)
    return replace(wait, early="", early_fields=(), ruled_out=[*wait.ruled_out, *unfit])


def _carrier(held: Held, wait: Suspend) -> Sequence[tuple[str, bytes | str]]:
    return wake_carrier(
        held.fields,
        held.entry_id,
        "event",
        execution_id=held.execution_id,
        flow_id=held.flow_id,
        tenant_id=held.tenant_id,
        wait=str(wait.step),
    )
