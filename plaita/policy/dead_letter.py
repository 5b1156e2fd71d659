"""The envelope of a dead letter (ledger Q5): one JSON object in the entry's ``payload`` field, built and read here."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

from plaita import jsontext
from plaita.policy.copies import inherited

REASON_MAX = 500
READABLE_MAX = 1024 * 1024
STANDS_IN = 8  # levels around a payload, at most: of the envelope, of what is told of it


def _readable(data: bytes) -> Any:
    """JSON as it stands where it can be read, else the bytes as base64, so that nothing is lost."""
    try:
        return jsontext.loads(data, within=STANDS_IN)
    except jsontext.JSONTextError:
        return {"base64": base64.b64encode(data).decode("ascii")}


def _readable_text(data: bytes) -> Any:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return _readable(data)


def _inherited(fields: Mapping[bytes, bytes], source_id: str) -> dict[str, Any]:
    """What a replay must give the carrier back (ledger D5), where it had it."""
    kept = inherited(fields, source_id)
    kept.pop("schema_version")
    first = kept.pop("first_enqueued_at", None)
    return {**kept, **({} if first is None else {"first_enqueued_at": int(first)})}


def envelope(
    *,
    reason: str,
    cause: str,
    source_stream: str,
    source_id: str,
    fields: Mapping[bytes, bytes],
    schema_version: int,
    dead_lettered_at_ms: int,
    attempts: int,
    execution_id: str | None = None,
    flow_id: str | None = None,
    node_id: str | None = None,
    tenant_id: str | None = None,
    raw_fields: Sequence[tuple[bytes, bytes]] | None = None,
    death: Mapping[str, Any] | None = None,
) -> list[tuple[str, bytes]]:
    """The fields of the dead letter entry. ``raw_fields`` (of a malformed carrier) are kept byte for byte, in
    base64; a payload of more than READABLE_MAX bytes stands there only. ``death``: what the last attempt died of, whose
    ``signal`` (a number or None) is named beside the cause (ledger S14)."""
    letter: dict[str, Any] = {
        "reason": reason[:REASON_MAX],
        "cause": cause,
        "source_stream": source_stream,
        "source_id": source_id,
        "schema_version": schema_version,
        "dead_lettered_at": dead_lettered_at_ms / 1000,
        "delivery_count": attempts,
        "execution_id": execution_id,
        "flow_id": flow_id,
        "node_id": node_id,
        "tenant_id": tenant_id,
        **_inherited(fields, source_id),
    }
    if b"wait" in fields:  # of a wake: its replay must end no other wait (ledger S6)
        letter["wait"] = fields[b"wait"].decode("utf-8", "replace")
    if death is not None:
        letter["signal"] = death.get("signal")
    payload = fields.get(b"payload", b"null")
    # a large one stands there once: whoever writes this down has others waiting for its loop
    letter["payload"] = None if raw_fields is not None and len(payload) > READABLE_MAX else _readable(payload)
    if raw_fields is not None:
        letter["raw_fields"] = [
            [base64.b64encode(name).decode("ascii"), base64.b64encode(value).decode("ascii")]
            for name, value in raw_fields
        ]
    return [("payload", jsontext.dumps(letter)), ("schema_version", str(schema_version).encode())]


def read(fields: Mapping[bytes, bytes]) -> dict[str, Any]:
    """The envelope of an entry; one that cannot be read answers its reason and the raw payload, never an exception."""
    raw = fields.get(b"payload")
    if raw is None:  # written by a script, which knows no JSON: its fields are the envelope
        return {name.decode("utf-8", "replace"): _readable_text(value) for name, value in fields.items()}
    try:
        value = jsontext.loads(raw, within=0)
    except jsontext.JSONTextError as error:
        return {"reason": f"unreadable envelope: {error}", "payload": _readable(raw)}
    return value if isinstance(value, dict) else {"reason": "no envelope", "payload": value}
