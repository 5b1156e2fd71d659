"""From a dead letter back to its carrier: what a replay brings back, or why it cannot (ledger D5). Pure.

``plan`` judges all that the letter itself says; what only the server knows (the mark, the row, the tombstone) is judged
by ``store.replays`` in the call that also enqueues. ``Outcome`` has the words of both.
"""

from __future__ import annotations

import base64
import binascii
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from plaita import jsontext
from plaita.policy import age
from plaita.policy.carrier import TASK_SCHEMA_VERSION, Carrier, read_carrier, resume_payload, schema_version_of
from plaita.policy.copies import INHERITED_STAMPS, Fields
from plaita.policy.dead_letter import read


class Outcome(str, Enum):
    """What became of one letter. Only REPLAYED puts anything into a stream; every letter stays where it is."""

    REPLAYED = "replayed"
    ALREADY_REPLAYED = "already_replayed"
    NO_LETTER = "no_letter"
    SCHEMA_TOO_NEW = "schema_too_new"
    TOO_OLD = "too_old"
    MALFORMED = "malformed"
    TENANT_REQUIRED = "tenant_required"
    TENANT_MISMATCH = "tenant_mismatch"
    EXECUTION_DELETED = "execution_deleted"
    NO_ROW = "no_row"
    WRONG_TYPE = "wrong_type"
    ID_TAKEN = "id_taken"
    NO_FLOW = "no_flow"
    NO_VERSION = "no_version"
    DEFINITION_GONE = "definition_gone"
    ALREADY_TERMINAL = "already_terminal"
    ALREADY_SUSPENDED = "already_suspended"
    HELD = "held"
    NOT_WAITING = "not_waiting"
    STALE_WAIT = "stale_wait"
    ALREADY_WOKEN = "already_woken"
    WAKEUPS_EXHAUSTED = "g1_wakeups_exhausted"
    FAILURES_EXHAUSTED = "deterministic_failure_exhausted"
    REFUSED = "refused"


EXPLANATIONS: Mapping[Outcome, str] = {
    Outcome.REPLAYED: "its carrier is in the queue again",
    Outcome.ALREADY_REPLAYED: "it was replayed within the last 7 days; --force does it once more",
    Outcome.NO_LETTER: "there is no such dead letter (any more)",
    Outcome.SCHEMA_TOO_NEW: "this build does not understand its schema; replay it with a newer one",
    Outcome.TOO_OLD: "supervisors drop what is older than PLAITA_TASK_MAX_AGE_SECONDS; raise it there, then --force",
    Outcome.MALFORMED: "no supervisor can read it, so it would only come back",
    Outcome.TENANT_REQUIRED: "it names no tenant; say whose it is with --tenant",
    Outcome.TENANT_MISMATCH: "it belongs to another tenant than the one given",
    Outcome.EXECUTION_DELETED: "its execution was deleted, which is for good",
    Outcome.NO_ROW: "its execution has no row and it carries no input: there is nothing to go on from",
    Outcome.WRONG_TYPE: "the key of its row holds another type of value; look at it first",
    Outcome.ID_TAKEN: "its execution id belongs to another flow",
    Outcome.NO_FLOW: "its flow is not stored; put it there first",
    Outcome.NO_VERSION: "its flow does not have that version; put it there first",
    Outcome.DEFINITION_GONE: "the definition that its execution began with is gone; put that content there again",
    Outcome.ALREADY_TERMINAL: "its execution has ended; nothing is left to do",
    Outcome.ALREADY_SUSPENDED: "its execution waits for an event, which this carrier is not",
    Outcome.HELD: "its execution is being run at this moment",
    Outcome.NOT_WAITING: "its execution has not begun, so it waits for nothing",
    Outcome.STALE_WAIT: "its execution waits for something else by now",
    Outcome.ALREADY_WOKEN: "its execution was woken by another event before",
    Outcome.WAKEUPS_EXHAUSTED: "its execution was woken from error as often as it may; the named key counts",
    Outcome.FAILURES_EXHAUSTED: "its execution failed in a row as often as it may; the named key counts",
    Outcome.REFUSED: "the server would not do it for this one",
}


@dataclass(frozen=True, slots=True)
class Plan:
    """A carrier fit to be enqueued. ``kind`` is ``start`` or its resume type. ``fields``: the entry as it was;
    ``retry_fields``: the entry instead of it when the execution has ended in error, since as it was it would be acked
    unseen. ``foreign``: a start that carries its own input and needs no row. ``wait``: the wait it was made for."""

    execution_id: str
    tenant_id: str
    flow_id: str
    version: str
    kind: str
    foreign: bool
    wait: str
    fields: Fields
    retry_fields: Fields

    @property
    def stream(self) -> str:
        """``q`` for a start, ``w`` for what moves an execution that is there (DECISIONS 6)."""
        return "q" if self.kind == "start" else "w"


@dataclass(frozen=True, slots=True)
class Unfit:
    """A letter that is not replayed, whatever the server holds. ``why`` adds to the outcome's explanation."""

    outcome: Outcome
    why: str = ""


def plan(
    letter: Mapping[bytes, bytes],
    *,
    dlq_key: str,
    dlq_id: str,
    tenant: str | None,
    now_ms: int,
    max_age_ms: int,
    max_schema_version: int = TASK_SCHEMA_VERSION,
) -> Plan | Unfit:
    """What a replay of this letter enqueues. ``tenant``: the one the caller named, None where it named none.
    ``max_age_ms`` 0 is no limit.

    Schema version and generations are the letter's (none stays none), its age counts from its first time (ledger Q7).
    A start without an id gets uuid5(dlq_key, dlq_id) and a dedup key: each replay of it meets the same execution.
    """
    envelope = read(letter)
    version = _schema_version(letter, envelope)
    if version > max_schema_version:
        return Unfit(Outcome.SCHEMA_TOO_NEW, f"schema_version {version}, understood up to {max_schema_version}")
    raw = _payload(envelope)
    if raw is None:
        return Unfit(Outcome.MALFORMED, "the letter holds no carrier")
    payload = _object(raw)
    if payload is None:
        return Unfit(Outcome.MALFORMED, "its payload is no JSON object")
    owner = payload.get("tenant_id") or envelope.get("tenant_id") or None
    if owner is None and tenant is None:
        return Unfit(Outcome.TENANT_REQUIRED)
    if owner is not None and tenant is not None and owner != tenant:
        return Unfit(Outcome.TENANT_MISMATCH, f"its tenant is {owner!r}")
    changed = payload | _completed(payload, envelope, owner or tenant, dlq_key, dlq_id)
    body = raw if changed == payload else jsontext.dumps(changed)
    first = first_ms(envelope, payload, dlq_id)
    kept = _inherited(envelope, payload, version, first, dlq_id)
    carrier = read_carrier(
        {b"payload": body, **{name.encode(): value.encode() for name, value in kept.items()}},
        queue=dlq_key,
        entry_id=dlq_id,
        max_schema_version=max_schema_version,
    )
    if not isinstance(carrier, Carrier):
        return Unfit(Outcome.MALFORMED, getattr(carrier, "reason", ""))
    ruling = age.judge(first, now_ms, max_age_ms)
    if ruling.verdict is not age.Verdict.RUNS:
        return Unfit(Outcome.TOO_OLD, "" if first is None else f"it is from {age.timestamp_text(first)}")
    return _plan(carrier, envelope, body, kept, first)


def _plan(carrier: Carrier, envelope: Mapping[str, Any], body: bytes, kept: dict[str, str], first: int | None) -> Plan:
    named = envelope.get("flow_id")
    flow_id = carrier.flow_id or (named if isinstance(named, str) else "")
    routing: Fields = [("execution_id", carrier.execution_id), ("tenant_id", carrier.tenant_id)]
    if flow_id:
        routing.append(("flow_id", flow_id))
    retry = resume_payload(
        execution_id=carrier.execution_id,
        flow_id=flow_id or None,
        resume_type="retry",
        tenant_id=carrier.tenant_id,
        timestamp="" if first is None else age.timestamp_text(first),
    )
    return Plan(
        execution_id=carrier.execution_id,
        tenant_id=carrier.tenant_id,
        flow_id=flow_id,
        version=carrier.version or "latest",
        kind=carrier.resume_type or "start",
        foreign=carrier.params is not None,
        wait=carrier.wait or "",
        fields=[("payload", body), *routing, *kept.items()],
        retry_fields=[("payload", retry), *routing, *kept.items()],
    )


def first_ms(envelope: Mapping[str, Any], payload: Mapping[str, Any], dlq_id: str) -> int | None:
    """When the carrier was first enqueued, epoch ms: the earliest time that is told, and never later than when it was
    dead-lettered (ledger D3)."""
    return age.first_enqueued_ms(
        dlq_id, envelope.get("first_enqueued_at"), payload.get("timestamp"), envelope.get("dead_lettered_at")
    )


def _schema_version(letter: Mapping[bytes, bytes], envelope: Mapping[str, Any]) -> int:
    """The envelope's own word, else its entry's; a missing or unreadable one counts as 1."""
    said = envelope.get("schema_version")
    if said is None:
        return schema_version_of(letter)
    return schema_version_of({b"schema_version": str(said).encode()})


def _payload(envelope: Mapping[str, Any]) -> bytes | None:
    """The carrier's payload, byte for byte where the letter has kept it so."""
    raw_fields = envelope.get("raw_fields")
    try:
        if isinstance(raw_fields, list):
            named = {_bytes(name): _bytes(value) for name, value in raw_fields}
            return named.get(b"payload")
        payload = envelope.get("payload")
        if isinstance(payload, dict) and set(payload) == {"base64"}:
            return _bytes(payload["base64"])
    except (binascii.Error, TypeError, ValueError):
        return None
    return None if payload is None else jsontext.dumps(payload)


def _bytes(text: Any) -> bytes:
    return base64.b64decode(text, validate=True)


def _object(raw: bytes) -> dict[str, Any] | None:
    try:
        value = jsontext.loads(raw, within=0)
    except jsontext.JSONTextError:
        return None
    return value if isinstance(value, dict) else None


def _completed(
    payload: Mapping[str, Any], envelope: Mapping[str, Any], tenant: Any, dlq_key: str, dlq_id: str
) -> dict[str, Any]:
    """What the carrier must be given to mean the same execution, and the same wait, at each replay."""
    given: dict[str, Any] = {}
    if payload.get("type") == "resume" and isinstance(envelope.get("wait"), str):
        given["wait"] = envelope["wait"]
    if not payload.get("tenant_id"):
        given["tenant_id"] = tenant
    if payload.get("type") == "start" and not payload.get("execution_id"):
        made = str(uuid.uuid5(uuid.NAMESPACE_OID, f"{dlq_key}:{dlq_id}"))
        given["execution_id"] = envelope.get("execution_id") or made  # the id that it ran under, where it did
        if not payload.get("dedup_key"):
            given["dedup_key"] = f"dlq:{made}"
    return given


def _inherited(
    envelope: Mapping[str, Any], payload: Mapping[str, Any], version: int, first: int | None, dlq_id: str
) -> dict[str, str]:
    kept = {"schema_version": str(version)}
    for name in INHERITED_STAMPS:
        value = envelope.get(name) if envelope.get(name) is not None else payload.get(name)
        if isinstance(value, str) and value:
            kept[name] = value
    if first is not None:
        kept["first_enqueued_at"] = str(first)
    return kept | {"replay_of": dlq_id, "replay_count": str(replay_count(envelope) + 1)}


def replay_count(envelope: Mapping[str, Any]) -> int:
    """How many replays the carrier of a letter had behind it when it was dead-lettered."""
    try:
        return max(0, int(envelope.get("replay_count") or 0))
    except (TypeError, ValueError, OverflowError):
        return 0
