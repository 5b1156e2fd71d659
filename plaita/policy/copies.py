"""What a copy of a carrier takes over from its source (ledger Q7, DECISIONS 20): one function for all that make copies.

Schema version and generations are the source's, never this build's current ones: a copy must be judged by every host as
its source was. Its age counts from the source's first time.
"""

from __future__ import annotations

from collections.abc import Mapping

from plaita.policy.age import first_enqueued_ms, timestamp_text
from plaita.policy.carrier import payload_fields, resume_payload, schema_version_of, stamp

INHERITED_STAMPS = ("config_family", "budget_generation")

Fields = list[tuple[str, bytes | str]]


def inherited(fields: Mapping[bytes, bytes], entry_id: str) -> dict[str, str]:
    """``schema_version``, the generations that are there, and ``first_enqueued_at`` in epoch ms (left out only where no
    time can be read). An entry field stands above the payload's field of the same name."""
    payload = payload_fields(fields)
    kept = {"schema_version": str(schema_version_of(fields))}
    for name in INHERITED_STAMPS:
        value = stamp(fields, payload, name)
        if isinstance(value, str) and value:
            kept[name] = value
    first = first_enqueued_ms(entry_id, fields.get(b"first_enqueued_at"), payload.get("timestamp"))
    if first is not None:
        kept["first_enqueued_at"] = str(first)
    return kept


def continue_copy(
    fields: Mapping[bytes, bytes], entry_id: str, *, execution_id: str, flow_id: str, tenant_id: str
) -> Fields:
    """The entry of a copy that goes on with the execution from its checkpoint (ledger S10, Q4)."""
    kept = inherited(fields, entry_id)
    first = kept.get("first_enqueued_at")
    payload = resume_payload(
        execution_id=execution_id,
        flow_id=flow_id,
        resume_type="continue",
        tenant_id=tenant_id,
        timestamp=timestamp_text(int(first)) if first else "",
    )
    return [
        ("payload", payload),
        ("execution_id", execution_id),
        ("tenant_id", tenant_id),
        ("flow_id", flow_id),
        *kept.items(),
    ]
