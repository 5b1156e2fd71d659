"""What a copy of a carrier takes over from its source (ledger Q7, DECISIONS 20): one function for all that make copies.

Schema version and generations are the source's, never this build's current ones: a copy must be judged by every host as
its source was. Its age counts from the source's first time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from plaita import jsontext
from plaita.policy import affinity, repos
from plaita.policy.age import first_enqueued_ms, timestamp_text
from plaita.policy.carrier import Carrier, ResumeType, payload_fields, resume_payload, schema_version_of, stamp

INHERITED_STAMPS = ("config_family", "budget_generation")
REPLAY_HISTORY = ("replay_of", "replay_count")  # of what a dead letter's replay brought back (ledger D5)

Fields = list[tuple[str, bytes | str]]


def inherited(fields: Mapping[bytes, bytes], entry_id: str) -> dict[str, str]:
    """``schema_version``, the generations, the repository and the history of replays that are there, and
    ``first_enqueued_at`` in epoch ms (left out only where no time can be read). An entry field stands above the
    payload's field of the same name."""
    payload = payload_fields(fields)
    kept = {"schema_version": str(schema_version_of(fields))}
    for name in (*INHERITED_STAMPS, *REPLAY_HISTORY):
        value = stamp(fields, payload, name)
        if isinstance(value, str) and value:
            kept[name] = value
    repo = repos.repo_of(fields, payload)
    if repo is not None:
        kept[repos.FIELD] = repo
    first = first_enqueued_ms(entry_id, fields.get(b"first_enqueued_at"), payload.get("timestamp"))
    if first is not None:
        kept["first_enqueued_at"] = str(first)
    return kept


def continue_copy(
    fields: Mapping[bytes, bytes], entry_id: str, *, execution_id: str, flow_id: str, tenant_id: str
) -> Fields:
    """The entry of a copy that goes on with the execution from its checkpoint (ledger S10, Q4)."""
    kept = inherited(fields, entry_id)
    return _resume(kept, "continue", execution_id=execution_id, flow_id=flow_id, tenant_id=tenant_id)


def stamps_of_wait(fields: Mapping[bytes, bytes], entry_id: str) -> dict[str, str]:
    """What all that ends the wait of a carrier's execution takes over from that carrier: schema version and
    generations. Its age starts when it is enqueued (DECISIONS 20), so no time; like all wake-ups it goes to any host,
    whatever repository the start named (ledger G6)."""
    kept = inherited(fields, entry_id)
    return {name: kept[name] for name in ("schema_version", *INHERITED_STAMPS) if name in kept}


def wake_carrier_of(stamps: Mapping[str, str], resume_type: ResumeType, **named: str) -> Fields:
    """The entry that ends one wait, whose stamps (``stamps_of_wait``) are known. ``named``: ``execution_id``,
    ``flow_id``, ``tenant_id``, ``wait``."""
    return _resume(dict(stamps), resume_type, **named)


def wake_carrier(
    fields: Mapping[bytes, bytes],
    entry_id: str,
    resume_type: Literal["event", "timeout"],
    *,
    execution_id: str,
    flow_id: str,
    tenant_id: str,
    wait: str,
) -> Fields:
    """The entry that ends the wait ``wait`` and no other: nothing came in time, or an event had come before it. All but
    its stamps is its own; a history of replays (ledger D5) goes along."""
    kept = inherited(fields, entry_id)
    kept.pop("first_enqueued_at", None)
    kept.pop(repos.FIELD, None)
    return _resume(kept, resume_type, execution_id=execution_id, flow_id=flow_id, tenant_id=tenant_id, wait=wait)


def _resume(
    kept: dict[str, str],
    resume_type: ResumeType,
    *,
    execution_id: str,
    flow_id: str,
    tenant_id: str,
    wait: str | None = None,
) -> Fields:
    first = kept.get("first_enqueued_at")
    payload = resume_payload(
        execution_id=execution_id,
        flow_id=flow_id,
        resume_type=resume_type,
        tenant_id=tenant_id,
        timestamp=timestamp_text(int(first)) if first else "",
        wait=wait,
    )
    return [
        ("payload", payload),
        ("execution_id", execution_id),
        ("tenant_id", tenant_id),
        ("flow_id", flow_id),
        *kept.items(),
    ]


def same_body(fields: Mapping[bytes, bytes], entry_id: str, changes: Mapping[str, str]) -> Fields:
    """The entry of a copy with the very payload of its source (ledger G4): everything it had, with ``changes``."""
    kept: dict[str, bytes | str] = {name.decode("ascii"): value for name, value in fields.items() if name.isascii()}
    return list({**kept, **inherited(fields, entry_id), **changes}.items())


def named(carrier: Carrier) -> dict[str, str]:
    """What a copy says beside its body, so that a start without an id keeps the one it got from its first entry
    (ledger S1)."""
    return {"execution_id": carrier.execution_id, "tenant_id": carrier.tenant_id}


def broadcast(fields: Mapping[bytes, bytes], entry_id: str, changes: Mapping[str, str]) -> Fields:
    """The entry of a copy that anybody may run: the same but for its target and how often it was handed over
    (ledger G4). For a payload that is a JSON object."""
    payload = {name: value for name, value in payload_fields(fields).items() if name != "target_instance_id"}
    copy = same_body({**fields, b"payload": jsontext.dumps(payload)}, entry_id, changes)
    return [(name, value) for name, value in copy if name not in affinity.FIELDS]
