"""What a client can ask, each as a generator that yields calls and pauses: written once, driven blocking or async.

An operation checks its arguments (InputError), words every refusal of the store (RefusedError) and sends again what may
be sent again. ``drive`` lives with the two clients; nothing here does I/O.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar

from plaita import ids, jsontext
from plaita.client import views
from plaita.clock import iso_utc, wall_ms
from plaita.errors import InputError, RefusedError, UnreachableError, WaitTimeoutError
from plaita.policy import repos
from plaita.policy.carrier import start_payload
from plaita.policy.event_index import DATA_STANDS_IN
from plaita.store import carriers, dead_letters, executions, flows, registry, replays, server
from plaita.store.call import Call, Refused, Unavailable, Unknown, Value
from plaita.store.keys import DEFAULT_TENANT, STATUSES, TERMINAL, Keys, check_tenant

T = TypeVar("T")

MAX_INPUT_BYTES = 64 * 1024 * 1024  # the whole context of an execution, FLOW-FORMAT 19
MAX_DATA_BYTES = 64 * 1024  # DECISIONS 16: what carriers and rows of waits take in themselves
MAX_REASON_CHARACTERS = 2000
DEFAULT_TOMBSTONE_MS = 30 * 86_400_000
_RESENDS = 3
_FIRST_POLL_SECONDS = 0.05
_LONGEST_POLL_SECONDS = 0.5
_OUTAGE_SECONDS = 60.0
_STATUS_BATCH = 500
_DLQ_PAGE = 500
_log = logging.getLogger("plaita.client")
_DLQ_ID = re.compile(r"[0-9]{1,20}-[0-9]{1,20}")


@dataclass(frozen=True, slots=True)
class Pause:
    """Asks the driver to wait so many seconds."""

    seconds: float


@dataclass(frozen=True, slots=True)
class StartedExecution:
    """``deduplicated``: the dedup key was used before, everything here is the earlier execution's."""

    execution_id: str
    flow_id: str
    tenant_id: str
    message_id: str
    version: str
    status: str
    deduplicated: bool = False


Step = Call[Any] | Pause
Operation = Generator[Step, Any, T]


def ask(call: Call[T]) -> Operation[T]:
    """Send a call until there is an answer that says something. Refusals keep the store's word and detail."""
    for attempt in range(_RESENDS + 1):
        answer = yield call
        if isinstance(answer, Value):
            value: T = answer.value
            return value
        if isinstance(answer, Refused):
            raise RefusedError(answer.reason, answer.detail)
        if isinstance(answer, Unavailable):
            raise UnreachableError(answer.error)
        if isinstance(answer, Unknown) and call.idempotent and attempt < _RESENDS:
            yield Pause(0.1 * 2**attempt)
            continue
        raise UnreachableError(f"{call.name} was sent and nothing came back, so it may have been done: {answer.error}")
    raise AssertionError("unreachable: the last attempt returns or raises")


def refused(error: RefusedError, messages: dict[str, str]) -> NoReturn:
    """The same refusal with a sentence for people, by its reason."""
    message = messages.get(error.reason, f"the store refused: {error.reason} {error}".rstrip())
    raise RefusedError(error.reason, message) from None


# -- checks -----------------------------------------------------------------------------------------


def check_flow_id(value: object) -> str:
    return ids.check_id(value, "flow id")


def check_execution_id(value: object) -> str:
    return ids.check_id(value, "execution id")


def check_version(value: object) -> str:
    return ids.check_id(value, "version")


def encode_input(value: Any) -> bytes:
    """An input as it is stored. InputError names the path of what JSON cannot carry, or the size."""
    try:
        encoded = jsontext.dumps(value)
    except jsontext.JSONValueError as error:
        raise InputError(f"input: {error}") from None
    if len(encoded) > MAX_INPUT_BYTES:
        raise InputError(f"input: {len(encoded)} bytes; an execution holds at most {MAX_INPUT_BYTES}")
    return encoded


def check_text(value: object, what: str, most: int) -> str:
    """A text that can be stored, of at most so many characters."""
    if not isinstance(value, str):
        raise InputError(f"{what}: a {type(value).__name__} is no text")
    carried(value, what)
    if len(value) > most:
        raise InputError(f"{what}: {len(value)} characters; at most {most}")
    return value


def carried(value: str, what: str) -> str:
    """A text as UTF-8 carries it."""
    try:
        jsontext.check(value, what)
    except jsontext.JSONValueError as error:
        raise InputError(str(error)) from None
    return value


def encode_event_data(data: Any) -> bytes:
    """What an event brings, as JSON text: no deeper than what will stand around it leaves room for."""
    try:
        jsontext.check(data, within=DATA_STANDS_IN)
        encoded = jsontext.dumps(data)
    except jsontext.JSONValueError as error:
        raise InputError(f"data: {error}") from None
    if len(encoded) > MAX_DATA_BYTES:
        raise InputError(
            f"data: {len(encoded)} bytes; an event brings at most {MAX_DATA_BYTES}: put it elsewhere, send where it is"
        )
    return encoded


def check_reason(value: object) -> str:
    """A reason given by a person: one line of text, not too long."""
    if not isinstance(value, str):
        raise InputError(f"reason: a {type(value).__name__} is no text")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise InputError("reason: it holds a lone surrogate, which no UTF-8 text can carry") from None
    if len(value) > MAX_REASON_CHARACTERS:
        raise InputError(f"reason: {len(value)} characters; at most {MAX_REASON_CHARACTERS}")
    return value


def check_dlq_id(value: object) -> str:
    """The id of a dead letter, as ``dlq list`` shows it."""
    if not isinstance(value, str) or not _DLQ_ID.fullmatch(value):
        raise InputError(f"dead letter {value!r}: an id is two numbers, as in 1764490800000-0; see `plaita dlq list`")
    return value


def check_timeout(value: float | None) -> None:
    """A time to wait: finite seconds, or None for no limit."""
    if value is not None and not (isinstance(value, (int, float)) and 0 <= value < float("inf")):
        raise InputError(f"timeout: {value!r}; a number of seconds, 0 or more")


# -- executions -------------------------------------------------------------------------------------


def start(
    keys: Keys,
    flow_id: str,
    given: Any,
    *,
    version: str | None = None,
    execution_id: str | None = None,
    dedup_key: str | None = None,
    target: str | None = None,
    family: str | None = None,
) -> Operation[StartedExecution]:
    """Put an execution in the queue. ``target``: the instance that is to run it (ledger G4).

    Refused: no such flow or version, an id that is taken or deleted.
    """
    check_tenant(keys.tenant)
    flow = check_flow_id(flow_id)
    wanted = "latest" if version is None else check_version(version)
    execution = ids.new_execution_id() if execution_id is None else check_execution_id(execution_id)
    key = None if dedup_key is None else ids.check_id(dedup_key, "dedup key")
    tenant = keys.tenant or DEFAULT_TENANT
    payload = start_payload(
        execution_id=execution,
        flow_id=flow,
        version=wanted,
        tenant_id=tenant,
        timestamp=iso_utc(wall_ms()) or "",
        target_instance_id=None if target is None else ids.check_id(target, "target"),
    )
    fields = {} if family is None else {"config_family": family}
    repo = repos.repo_of_input(given)
    if repo is not None:
        fields[repos.FIELD] = repo
    request = executions.Start(
        execution_id=execution,
        flow_id=flow,
        input=encode_input(given),
        payload=payload,
        version=wanted,
        fields=fields,
        dedup_key=key,
    )
    try:
        started = yield from ask(executions.start(keys, request))
    except RefusedError as error:
        refused(
            error,
            {
                "no_flow": f"there is no flow {flow!r} for tenant {tenant!r}; put it there with `plaita flow put`",
                "no_version": f"flow {flow!r} has no version {wanted!r}",
                "tombstoned": f"execution {execution!r} was deleted; an id is not used again",
                "tenant_disabled": f"tenant {tenant!r} is disabled; see `plaita tenant enable`",
                "id_taken": f"execution {execution!r} exists already (flow {str(error)!r})",
            },
        )
    return StartedExecution(
        started.execution_id, flow, tenant, started.message_id, started.version, started.status, started.deduplicated
    )


def load(keys: Keys, execution: str) -> Operation[executions.Row | None]:
    """The row as stored. One that its index had lost is indexed again, with a WARNING (ledger D4)."""
    try:
        row = yield from ask(executions.load(keys, execution))
    except RefusedError as error:
        refused(
            error,
            {
                "wrong_type": f"the key of execution {execution!r} holds a {error}, which no plaita wrote there",
                "tombstoned": f"execution {execution!r} was deleted; its row came back with a backup and counts for "
                "nothing: delete it again",
            },
        )
    if row is not None and row.indexed_again:
        _log.warning("execution %s stood in no index; it is indexed again", execution)
    return row


def get(keys: Keys, execution_id: str) -> Operation[dict[str, Any]]:
    """The execution in the form of ``show --json``. Refused: ``no_row``."""
    execution = check_execution_id(execution_id)
    row = yield from load(keys, execution)
    if row is None:
        raise RefusedError("no_row", f"there is no execution {execution!r} for tenant {keys.tenant!r}")
    return views.execution(row, keys.tenant or DEFAULT_TENANT)


def now_ms(keys: Keys) -> Operation[int]:
    """The server's clock, epoch ms: what the times in rows and entries are judged by."""
    return (yield from ask(server.now_ms(keys)))


def result_of(keys: Keys, execution_id: str, node_id: str) -> Operation[Any]:
    """The stored result of one node, None when it has none."""
    found, _ = yield from ask(executions.results(keys, check_execution_id(execution_id), [node_id]))
    return jsontext.loads(found[node_id]) if node_id in found else None


def statuses(keys: Keys, execution_ids: Sequence[str]) -> Operation[dict[str, str | None]]:
    """The status of each, None where there is no row."""
    wanted = [check_execution_id(execution_id) for execution_id in execution_ids]
    found: dict[str, str | None] = {}
    for first in range(0, len(wanted), _STATUS_BATCH):
        batch = wanted[first : first + _STATUS_BATCH]
        answers = yield from ask(executions.status_of(keys, batch))
        found.update(zip(batch, answers, strict=True))
    return found


def wait(
    keys: Keys, execution_ids: Sequence[str], timeout: float | None, *, until_waiting: bool = False
) -> Operation[list[dict[str, Any]]]:
    """Until every one is terminal; their ``get`` in the given order. A suspended one is waited for (DECISIONS 43),
    unless ``until_waiting``.

    Raises WaitTimeoutError after ``timeout`` seconds, RefusedError for an id that has no row. An outage in between is
    sat out for a minute, since the executions go on after it.
    """
    check_timeout(timeout)
    done = TERMINAL | {"suspended"} if until_waiting else TERMINAL
    began = time.monotonic()
    wanted = [check_execution_id(execution_id) for execution_id in execution_ids]
    open_ids, pause, last_answer = list(dict.fromkeys(wanted)), _FIRST_POLL_SECONDS, None
    while open_ids:
        try:
            found = yield from statuses(keys, open_ids)
            last_answer = time.monotonic()
        except UnreachableError:
            if last_answer is None or time.monotonic() - last_answer > _OUTAGE_SECONDS:
                raise
            found = {}
        missing = [execution for execution, status in found.items() if status is None]
        if missing:
            raise RefusedError("no_row", f"there is no execution {missing[0]!r} for tenant {keys.tenant!r}")
        open_ids = [execution for execution in open_ids if found.get(execution) not in done]
        if not open_ids:
            break
        left = None if timeout is None else timeout - (time.monotonic() - began)
        if left is not None and left <= 0:
            states = ", ".join(f"{execution} is {found.get(execution, 'unknown')}" for execution in open_ids[:5])
            more = f" and {len(open_ids) - 5} more" if len(open_ids) > 5 else ""
            raise WaitTimeoutError(f"after {timeout:g} s: {states}{more}")
        yield Pause(pause if left is None else min(pause, left))
        pause = min(pause * 1.5, _LONGEST_POLL_SECONDS)
    documents = []
    for execution in wanted:
        documents.append((yield from get(keys, execution)))
    return documents


def list_executions(
    keys: Keys, status: str | None, flow_id: str | None, limit: int, offset: int = 0
) -> Operation[dict[str, Any]]:
    """The answer of ``list --json``: newest first."""
    if status is not None and status not in STATUSES:
        raise InputError(f"status: {status!r} is none; there are {', '.join(STATUSES)}")
    if not 0 <= limit <= 10_000:
        raise InputError(f"limit: {limit}; from 0 to 10000 are listed at once")
    flow = None if flow_id is None else check_flow_id(flow_id)
    page = yield from ask(executions.list_executions(keys, status, flow, limit, offset))
    rows = [views.listed(row, keys.tenant or DEFAULT_TENANT) for row in page.rows]
    answer: dict[str, Any] = {"executions": rows, "total": page.total}
    if not page.complete:
        answer["complete"] = False
    return answer


def remove_execution(
    keys: Keys, execution_id: str, reason: str, force: bool, tombstone_ttl_ms: int = DEFAULT_TOMBSTONE_MS
) -> Operation[dict[str, Any]]:
    """Delete for good, with a tombstone that keeps it deleted (ledger D1, D2)."""
    execution, said = check_execution_id(execution_id), check_reason(reason)
    try:
        deleted = yield from ask(
            executions.delete(keys, execution, said, force=force, tombstone_ttl_ms=tombstone_ttl_ms)
        )
    except RefusedError as error:
        refused(
            error,
            {
                "no_row": f"there is no execution {execution!r} for tenant {keys.tenant!r}",
                "running": f"execution {execution!r} is running; cancel it first, or use --force",
            },
        )
    return {"execution_id": execution, "existed": deleted.existed, "deleted_at": iso_utc(deleted.deleted_at_ms)}


# -- flows ------------------------------------------------------------------------------------------


def put_flow(
    keys: Keys, flow_id: str, version: str | None, flow_hash: str, body: bytes, *, force: bool
) -> Operation[flows.PutResult]:
    """Store a definition that has been checked. Refused: the version holds other content and not ``force``."""
    check_tenant(keys.tenant)
    flow = check_flow_id(flow_id)
    wanted = None if version is None else check_version(version)
    try:
        return (yield from ask(flows.put(keys, flow, wanted, flow_hash, body, force=force)))
    except RefusedError as error:
        refused(
            error,
            {
                "version_exists": f"flow {flow!r} has other content under version {wanted!r}; put it under another "
                "version, or replace it with --force (running executions keep what they began with)"
            },
        )


def list_flows(keys: Keys) -> Operation[list[dict[str, Any]]]:
    found = yield from ask(flows.list_flows(keys))
    return [{"flow_id": flow.flow_id, "latest": flow.latest, "versions": flow.versions} for flow in found]


def show_flow(keys: Keys, flow_id: str, version: str | None) -> Operation[dict[str, Any]]:
    """One version (default: the latest) with its definition, and the list of all versions."""
    flow = check_flow_id(flow_id)
    wanted = "latest" if version is None else check_version(version)
    messages = {
        "no_flow": f"there is no flow {flow!r} for tenant {keys.tenant!r}",
        "no_version": f"flow {flow!r} has no version {wanted!r}",
    }
    try:
        resolved = yield from ask(flows.resolve(keys, flow, wanted))
        versions = yield from ask(flows.versions(keys, flow))
        body = yield from ask(flows.body(keys, resolved.flow_hash))
    except RefusedError as error:
        refused(error, messages)
    if body is None:
        raise RefusedError("no_body", f"the definition of flow {flow!r}, version {resolved.version!r}, is gone")
    return {
        "flow_id": flow,
        "version": resolved.version,
        "flow_hash": resolved.flow_hash,
        "definition": jsontext.loads(body),
        "versions": [
            {"version": one.version, "flow_hash": one.flow_hash, "put_at": iso_utc(one.put_at_ms)} for one in versions
        ],
    }


def remove_flow(keys: Keys, flow_id: str) -> Operation[dict[str, Any]]:
    """Remove a flow and its versions. Executions under way keep the definition they began with (DECISIONS 14);
    ``executions_going_on`` counts them."""
    flow = check_flow_id(flow_id)
    going_on = 0
    for status in ("pending", "running", "suspended"):
        going_on += (yield from ask(executions.list_executions(keys, status, flow, 0))).total
    try:
        removed = yield from ask(flows.remove(keys, flow))
    except RefusedError as error:
        refused(error, {"no_flow": f"there is no flow {flow!r} for tenant {keys.tenant!r}"})
    return {"flow_id": flow, "versions_removed": removed, "executions_going_on": going_on}


# -- the platform -----------------------------------------------------------------------------------


def announced_node_types(keys: Keys) -> Operation[list[str]]:
    """Node types that live supervisors say they have (DECISIONS 23). A record that cannot be read announces none."""
    found: set[str] = set()
    for instance in (yield from ask(registry.list_instances(keys))):
        try:
            record = jsontext.loads(instance.record)
        except jsontext.JSONTextError:
            continue
        named = record.get("node_types") if isinstance(record, dict) else None
        if isinstance(named, list):
            found.update(name for name in named if isinstance(name, str))
    return sorted(found)


def queue_stats(keys: Keys) -> Operation[dict[str, Any]]:
    """The answer of ``queue stats --json``."""
    found = yield from ask(carriers.stats(keys))
    oldest = found.oldest_pending_ms
    return {
        "streams": [
            {"name": one.name, "length": one.length, "pending": one.pending, "lag": one.lag} for one in found.streams
        ],
        "delayed": found.delayed,
        "parked": found.parked,
        "dlq_length": found.dlq_length,
        "oldest_pending_s": None if oldest is None else oldest / 1000,
    }


def list_dead_letters(keys: Keys, limit: int, tenant: str | None = None) -> Operation[dict[str, Any]]:
    """The answer of ``dlq list --json``: newest first, asked for in calls of bounded size. Of all tenants, or of
    ``tenant`` alone; ``total`` counts the same."""
    if not 0 <= limit <= 10_000:
        raise InputError(f"limit: {limit}; from 0 to 10000 are listed at once")
    if tenant is not None:
        return (yield from _list_dead_letters_of(keys, limit, check_tenant(tenant)))
    entries: list[dict[str, Any]] = []
    older_than = None
    while True:
        page = yield from ask(dead_letters.page(keys, limit - len(entries), older_than))
        entries += [views.dead_letter(letter.dlq_id, letter.fields) for letter in page.letters]
        if not page.letters or not page.more or len(entries) >= limit:
            return {"entries": entries, "total": page.total}
        older_than = page.letters[-1].dlq_id


def _list_dead_letters_of(keys: Keys, limit: int, tenant: str) -> Operation[dict[str, Any]]:
    entries: list[dict[str, Any]] = []
    total, older_than = 0, None
    while True:
        page = yield from ask(dead_letters.page(keys, _DLQ_PAGE, older_than))
        shown = [views.dead_letter(letter.dlq_id, letter.fields) for letter in page.letters]
        own = [one for one in shown if _is_letter_of(one, tenant)]
        total += len(own)
        entries += own[: limit - len(entries)]
        if not page.letters or not page.more:
            return {"entries": entries, "total": total}
        older_than = page.letters[-1].dlq_id


def _is_letter_of(shown: dict[str, Any], tenant: str) -> bool:
    """One that names no tenant is the default tenant's."""
    return (shown["tenant_id"] or DEFAULT_TENANT) == tenant


def get_dead_letter(keys: Keys, dlq_id: str, tenant: str | None = None) -> Operation[dict[str, Any]]:
    """The answer of ``dlq show --json``; ``replayed_at``: within the last seven days. With ``tenant``, another tenant's
    letter is none. Refused: ``no_letter``."""
    letter = yield from ask(dead_letters.get(keys, check_dlq_id(dlq_id)))
    if letter is not None and tenant is not None:
        own = _is_letter_of(views.dead_letter(letter.dlq_id, letter.fields), check_tenant(tenant))
        letter = letter if own else None
    if letter is None:
        raise RefusedError("no_letter", f"there is no dead letter {dlq_id!r}; see `plaita dlq list`")
    replayed = yield from ask(replays.replayed_at(keys, dlq_id))
    shown = views.dead_letter(letter.dlq_id, letter.fields, whole=True)
    return {**shown, "replayed_at": None if replayed is None else iso_utc(replayed[0])}


def purge_dead_letters(keys: Keys) -> Operation[dict[str, Any]]:
    """Take all dead letters away: ``{"purged": how many}``."""
    return {"purged": (yield from ask(dead_letters.purge(keys)))}
