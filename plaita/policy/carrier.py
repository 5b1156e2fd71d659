"""Carriers: the queue messages that move executions, validated at the edge (ledger Q6, Q9, S3).

A stream entry has ``payload`` (JSON) and ``schema_version``; plaita's own producers add ``execution_id``,
``tenant_id``, ``flow_id`` and ``config_family`` as fields, so that scripts need not read JSON. What stands in the
payload is the producer's word; the fields are for routing only and must not contradict it.
"""

from __future__ import annotations

import unicodedata
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from plaita import jsontext
from plaita.errors import InputError
from plaita.ids import MAX_ID_LENGTH, check_id
from plaita.policy.age import first_enqueued_ms
from plaita.policy.event_index import DATA_STANDS_IN
from plaita.policy.generations import Stamps

TASK_SCHEMA_VERSION = 1
MAX_PAYLOAD_BYTES = 64 * 1024 * 1024
ResumeType = Literal["event", "timeout", "cancel", "continue", "retry"]


class StartPayload(BaseModel):
    """``type: start``. Our own starts say ``input_in_row``: without their row there is nothing to run."""

    model_config = ConfigDict(extra="allow", strict=True)

    type: Literal["start"]
    flow_id: str
    version: str | None = None
    params: Any = None
    execution_id: str | None = None
    dedup_key: str | None = None
    tenant_id: str | None = None
    timestamp: str | float | int | None = None
    target_instance_id: str | None = None
    config_family: Any = None
    budget_generation: Any = None
    input_in_row: bool = False


class ResumePayload(BaseModel):
    """``type: resume``: moves an execution that has a row."""

    model_config = ConfigDict(extra="allow", strict=True)

    type: Literal["resume"]
    flow_id: str | None = None
    execution_id: str
    resume_type: ResumeType
    data: Any = None
    wait: str | None = None
    tenant_id: str | None = None
    timestamp: str | float | int | None = None
    target_instance_id: str | None = None
    config_family: Any = None
    budget_generation: Any = None


_PAYLOAD: TypeAdapter[StartPayload | ResumePayload] = TypeAdapter(
    Annotated[StartPayload | ResumePayload, Field(discriminator="type")]
)


@dataclass(frozen=True, slots=True)
class Carrier:
    """A carrier that can be judged. ``resume_type`` is None for a start. ``first_enqueued_ms``: epoch ms, None where no
    time of it can be read. ``data``, ``event_id``: what an event brings (JSON text), or why a cancel was asked for;
    ``wait``: the wait it was made for, None where its producer does not say."""

    execution_id: str
    tenant_id: str
    flow_id: str | None
    version: str | None
    resume_type: ResumeType | None
    params: bytes | None  # JSON text of a foreign start's input; None when the row holds it
    schema_version: int
    dedup_key: str | None
    target_instance_id: str | None
    stamps: Stamps
    first_enqueued_ms: int | None
    data: bytes | None = None
    event_id: str = ""
    wait: str | None = None

    @property
    def kind(self) -> ResumeType | Literal["start"]:
        """``start`` or the resume type."""
        return self.resume_type or "start"


@dataclass(frozen=True, slots=True)
class Malformed:
    """A carrier nobody can run: ``reason`` names the field and what would be right."""

    reason: str


@dataclass(frozen=True, slots=True)
class TooNew:
    """A carrier of a schema this build does not understand (Q6)."""

    schema_version: int


def schema_version_of(fields: Mapping[bytes, bytes]) -> int:
    """The entry's schema version; missing or unreadable counts as 1, as producers before the field did."""
    try:
        return max(1, int(fields.get(b"schema_version", b"1")))
    except ValueError:
        return 1


def payload_fields(fields: Mapping[bytes, bytes]) -> Mapping[str, Any]:
    """The payload where it is a JSON object that can be read, else nothing."""
    raw = fields.get(b"payload", b"")
    if len(raw) > MAX_PAYLOAD_BYTES:
        return {}
    try:
        value = jsontext.loads(raw, within=0)
    except jsontext.JSONTextError:
        return {}
    return value if isinstance(value, dict) else {}


def stamp(fields: Mapping[bytes, bytes], payload: Mapping[str, Any], name: str) -> Any:
    """A field of the entry, else of the payload; None where neither has it."""
    raw = fields.get(name.encode())
    return payload.get(name) if raw is None else raw.decode("utf-8", "replace")


def stamps_of(fields: Mapping[bytes, bytes]) -> Stamps:
    """What the entry's own fields say: all there is of a carrier whose payload is not to be read (ledger C3)."""
    return Stamps(stamp(fields, {}, "config_family"), stamp(fields, {}, "budget_generation"))


def named_execution(fields: Mapping[bytes, bytes]) -> tuple[str, str] | None:
    """(execution id, tenant id) of a carrier that cannot be run, as far as it still says them: by its entry fields,
    else by its payload. None where it names no execution."""
    payload = payload_fields(fields)
    try:
        execution_id = check_id(stamp(fields, payload, "execution_id"), "execution_id")
        return execution_id, check_id(stamp(fields, payload, "tenant_id") or "default", "tenant_id")
    except InputError:
        return None


def read_carrier(
    fields: Mapping[bytes, bytes], *, queue: str, entry_id: str, max_schema_version: int = TASK_SCHEMA_VERSION
) -> Carrier | Malformed | TooNew:
    """Judge a stream entry. A start without an id has the one that the entry says, which keeps it where the carrier was
    moved; else it gets the deterministic uuid5 of queue and entry id (ledger S1)."""
    schema_version = schema_version_of(fields)
    if schema_version > max_schema_version:
        return TooNew(schema_version)
    raw = fields.get(b"payload")
    if raw is None:
        return Malformed("the entry has no field 'payload'")
    if len(raw) > MAX_PAYLOAD_BYTES:
        return Malformed(f"payload: {len(raw)} bytes; at most {MAX_PAYLOAD_BYTES}")
    try:
        payload = _PAYLOAD.validate_python(jsontext.loads(raw, within=0))
        return _carrier(payload, schema_version, queue, entry_id, fields)
    except jsontext.JSONTextError as error:
        return Malformed(f"payload: {error}")
    except ValidationError as error:
        return Malformed(f"payload: {_first(error)}")
    except (InputError, jsontext.JSONValueError) as error:
        return Malformed(f"payload: {error}")


def _first(error: ValidationError) -> str:
    fault = error.errors(include_url=False)[0]
    place = ".".join(str(part) for part in fault["loc"]) or "(whole)"
    return f"{place}: {fault['msg']} (got {str(fault.get('input'))[:80]!r})"


def _carrier(
    payload: StartPayload | ResumePayload,
    schema_version: int,
    queue: str,
    entry_id: str,
    fields: Mapping[bytes, bytes],
) -> Carrier:
    execution_id = payload.execution_id or fields.get(b"execution_id", b"").decode("utf-8", "replace")
    execution_id = execution_id or str(uuid.uuid5(uuid.NAMESPACE_OID, f"{queue}:{entry_id}"))
    start = payload if isinstance(payload, StartPayload) else None
    resume = payload if isinstance(payload, ResumePayload) else None
    flow_id = None if payload.flow_id is None else check_id(payload.flow_id, "flow_id")
    params: bytes | None = None
    if start is not None and not start.input_in_row:
        params = jsontext.dumps({} if start.params is None else start.params)
    if resume is not None and resume.data is not None:
        jsontext.check(resume.data, "data", within=DATA_STANDS_IN)
    return Carrier(
        execution_id=check_id(execution_id, "execution_id"),
        tenant_id=check_id(payload.tenant_id or "default", "tenant_id"),
        flow_id=flow_id,
        version=start.version if start is not None else None,
        resume_type=None if resume is None else resume.resume_type,
        params=params,
        schema_version=schema_version,
        dedup_key=None if start is None else _dedup_key(start.dedup_key),
        target_instance_id=unicodedata.normalize("NFC", payload.target_instance_id or "") or None,
        stamps=Stamps(
            stamp(fields, {"config_family": payload.config_family}, "config_family"),
            stamp(fields, {"budget_generation": payload.budget_generation}, "budget_generation"),
        ),
        first_enqueued_ms=first_enqueued_ms(entry_id, fields.get(b"first_enqueued_at"), payload.timestamp),
        data=None if resume is None or resume.data is None else jsontext.dumps(resume.data),
        event_id=_event_id(resume),
        wait=None if resume is None else _wait(resume, fields),
    )


def _wait(resume: ResumePayload, fields: Mapping[bytes, bytes]) -> str | None:
    """The one wait that it is for; a wake (DECISIONS 26) says it in the entry, since scripts write no payload."""
    said = fields.get(b"wait")
    return resume.wait if said is None else said.decode("utf-8", "replace")


def _dedup_key(said: str | None) -> str | None:
    """A producer's own key, in NFC like all that stands in keys; '' is none. It may have characters that ids have not,
    but none that would break a line of a log. Raises InputError."""
    key = unicodedata.normalize("NFC", said or "")
    if len(key) > MAX_ID_LENGTH:
        raise InputError(f"dedup_key: {len(key)} characters; at most {MAX_ID_LENGTH}")
    for position, character in enumerate(key):
        if unicodedata.category(character) in ("Cc", "Cf", "Zl", "Zp"):
            raise InputError(f"dedup_key: a control character (U+{ord(character):04X}) at position {position}")
    return key or None


def _event_id(resume: ResumePayload | None) -> str:
    """The id of the event in the form that event filters build; empty where there is none."""
    found = resume.data.get("event_id") if resume is not None and isinstance(resume.data, dict) else None
    return found if isinstance(found, str) and len(found) <= 200 else ""


def start_payload(
    *,
    execution_id: str,
    flow_id: str,
    version: str | None,
    tenant_id: str,
    timestamp: str,
    target_instance_id: str | None = None,
    trigger: Mapping[str, str] | None = None,
) -> bytes:
    """The payload of a start whose row already holds the input (DECISIONS 15, 16). ``trigger``: of a schedule, its
    ``kind`` (cron, manual), ``schedule_id`` and ``schedule_name``."""
    said: dict[str, Any] = {} if target_instance_id is None else {"target_instance_id": target_instance_id}
    if trigger is not None:
        said["trigger"] = dict(trigger)
    return jsontext.dumps(
        said
        | {
            "type": "start",
            "flow_id": flow_id,
            "version": version,
            "execution_id": execution_id,
            "tenant_id": tenant_id,
            "timestamp": timestamp,
            "input_in_row": True,
        }
    )


def resume_payload(
    *,
    execution_id: str,
    flow_id: str | None,
    resume_type: str,
    tenant_id: str,
    timestamp: str,
    data: Any = None,
    wait: str | None = None,
) -> bytes:
    """The payload of a resume; ``wait`` names the one wait it is meant for."""
    said = {} if wait is None else {"wait": wait}
    return jsontext.dumps(
        said
        | {
            "type": "resume",
            "flow_id": flow_id,
            "execution_id": execution_id,
            "resume_type": resume_type,
            "data": data,
            "tenant_id": tenant_id,
            "timestamp": timestamp,
        }
    )


def routing_fields(*, execution_id: str, tenant_id: str, flow_id: str, config_family: str = "") -> dict[str, str]:
    """The entry fields beside ``payload`` (DECISIONS 4), so that scripts can find lease and row without reading
    JSON."""
    fields = {
        "schema_version": str(TASK_SCHEMA_VERSION),
        "execution_id": execution_id,
        "tenant_id": tenant_id,
        "flow_id": flow_id,
    }
    if config_family:
        fields["config_family"] = config_family
    return fields
