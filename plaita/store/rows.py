"""Reading, listing, cancelling and deleting rows. Taking part in an execution's life is in ``executions``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from plaita.store.call import Argument, Call, lane_for, pairs, script, text
from plaita.store.keys import DEFAULT_TENANT, STATUSES, Keys

CANCEL_TTL_MS = 7 * 86_400_000
MAX_SCAN = 20_000  # ids looked at in one filtered listing: bounds what one call may cost the server

_BLOBS = {"input", "output", "error", "death", "last_error", "wake_data", "wait_filter"}


@dataclass(frozen=True, slots=True)
class Row:
    """One execution as stored. ``control``: the text fields; JSON texts stay bytes. ``lease``: the value or None.

    ``results`` and ``state`` are empty unless asked for. ``cancel_reason`` is None when no cancel is asked.
    Of a wait, ``control`` has ``wait`` (its id, '' for none), ``wait_type``, ``wait_correlation``, ``wait_since`` and
    ``wait_deadline`` (ms), ``woken`` and ``wake_id``; ``wait_filter`` and ``wake_data`` are JSON texts or None.
    ``indexed_again``: an index had lost it, and has it again (ledger D4): worth a WARNING.
    """

    execution_id: str
    control: dict[str, str]
    input: bytes | None
    output: bytes | None
    error: bytes | None
    last_error: bytes | None
    death: bytes | None
    timings: dict[str, bytes]
    results: dict[str, bytes]
    state: dict[str, bytes]
    lease: str | None
    cancel_reason: str | None
    wake_data: bytes | None = None
    wait_filter: bytes | None = None
    indexed_again: bool = False

    @property
    def status(self) -> str:
        return self.control.get("status", "")

    @property
    def holder(self) -> str | None:
        """``<instance>/<incarnation>`` of a readable live lease (``leases.parse_lease`` gives all of it)."""
        words = (self.lease or "").split(" ")
        return words[1] if len(words) == 5 else None


@dataclass(frozen=True, slots=True)
class Page:
    """``rows``: control fields, newest first, each with ``execution_id``. ``complete`` False: the filter stopped
    after MAX_SCAN ids, so ``total`` counts only those."""

    rows: list[dict[str, str]]
    total: int
    complete: bool = True


@dataclass(frozen=True, slots=True)
class Deleted:
    """``deleted_at_ms`` is the first delete's. ``existed`` False: only the tombstone was there."""

    existed: bool
    deleted_at_ms: int


def load(keys: Keys, execution_id: str, *, results: bool = False) -> Call[Row | None]:
    """The row, its lease and its cancel flag as of one moment; None without a row. With ``results`` everything.

    A row whose index member is missing is indexed again and says so (ledger D4). Refused: ``wrong_type`` (the type),
    ``tombstoned`` (when, why): a row that a backup brought back stays deleted (D2).
    """

    def parse(reply: Sequence[Any]) -> Row | None:
        return _parse_row(execution_id, *reply) if reply else None

    return Call(
        "executions.load",
        script("load"),
        (
            keys.row(execution_id),
            keys.lease(execution_id),
            keys.cancel(execution_id),
            keys.index(),
            keys.tombstone(execution_id),
        ),
        (int(results), execution_id, keys.ns, keys.tenant or DEFAULT_TENANT),
        "bulk" if results else "writer",
        True,
        parse,
    )


def _parse_row(
    execution_id: str, flat: Sequence[bytes], lease: bytes | None, cancel: bytes | None, indexed_again: int = 0
) -> Row:
    control: dict[str, str] = {}
    blobs: dict[str, bytes] = {}
    groups: dict[bytes, dict[str, bytes]] = {b"t:": {}, b"r:": {}, b"s:": {}}
    for name, value in pairs(flat):
        group = groups.get(name[:2])
        if group is not None:
            group[text(name[2:])] = value
        elif text(name) in _BLOBS:
            blobs[text(name)] = value
        else:
            control[text(name)] = text(value)
    return Row(
        execution_id=execution_id,
        control=control,
        input=blobs.get("input"),
        output=blobs.get("output"),
        error=blobs.get("error"),
        last_error=blobs.get("last_error"),
        death=blobs.get("death"),
        timings=groups[b"t:"],
        results=groups[b"r:"],
        state=groups[b"s:"],
        lease=None if lease is None else text(lease),
        cancel_reason=None if cancel is None else text(cancel),
        wake_data=blobs.get("wake_data") or None,
        wait_filter=blobs.get("wait_filter") or None,
        indexed_again=indexed_again == 1,
    )


def results(
    keys: Keys, execution_id: str, nodes: Sequence[str], state: Sequence[str] = ()
) -> Call[tuple[dict[str, bytes], dict[str, bytes]]]:
    """Node results and state values by name; a name without a value is left out. The caller keeps a call under
    4 MiB by the sizes that ``begin`` gave (DECISIONS 16)."""
    if not nodes and not state:
        raise ValueError("results of no nodes and no state")
    key = keys.row(execution_id)
    names = [*("r:" + node for node in nodes), *("s:" + name for name in state)]

    def parse(reply: Sequence[bytes | None]) -> tuple[dict[str, bytes], dict[str, bytes]]:
        found = zip(nodes, reply, strict=False)
        kept = zip(state, reply[len(nodes) :], strict=True)
        return (
            {node: value for node, value in found if value is not None},
            {name: value for name, value in kept if value is not None},
        )

    return Call("executions.results", None, (key,), ("HMGET", key, *names), "bulk", True, parse)


def status_of(keys: Keys, execution_ids: Sequence[str]) -> Call[list[str | None]]:
    """The status of each, None where there is no row."""
    return Call(
        "executions.status_of",
        script("status_of"),
        [keys.row(execution_id) for execution_id in execution_ids],
        (),
        "writer",
        True,
        lambda reply: [text(status) or None for status in reply],
    )


def list_executions(
    keys: Keys, status: str | None = None, flow: str | None = None, limit: int = 50, offset: int = 0
) -> Call[Page]:
    """Newest first. ``status`` uses its own index; ``flow`` looks through at most MAX_SCAN ids of it."""
    if status is not None and status not in STATUSES:
        raise ValueError(f"{status!r} is no status; {', '.join(STATUSES)} are")

    def parse(reply: Sequence[Any]) -> Page:
        rows = []
        for execution_id, flat in reply[2]:
            row = {text(name): text(value) for name, value in pairs(flat) if value is not None}
            rows.append({"execution_id": text(execution_id), **row})
        return Page(rows, int(reply[0]), reply[1] == 1)

    return Call(
        "executions.list_executions",
        script("list"),
        (keys.index(status),),
        (keys.ns, flow or "", limit, offset, MAX_SCAN),
        "bulk",
        True,
        parse,
    )


def request_cancel(
    keys: Keys, execution_id: str, reason: str, payload: bytes, fields: Mapping[str, str] | None = None
) -> Call[str]:
    """Ask for the end of an execution; answers the status it has now (ledger S8).

    Terminal: nothing changes. Else the flag is set (7 days) and, unless a lease is live (its holder reads the flag), a
    carrier with ``payload`` goes to the wake stream. Sent again, it may add a second carrier, which finds a terminal
    row. Refused: ``no_row``, ``tombstoned``.
    """
    carrier: list[Argument] = ["payload", payload, "schema_version", "1", "execution_id", execution_id]
    carrier += ["tenant_id", keys.tenant or DEFAULT_TENANT]
    for name, value in (fields or {}).items():
        carrier += (name, value)
    return Call(
        "executions.request_cancel",
        script("request_cancel"),
        (
            keys.row(execution_id),
            keys.lease(execution_id),
            keys.cancel(execution_id),
            keys.wake,
            keys.tombstone(execution_id),
        ),
        (reason, CANCEL_TTL_MS, keys.tenant or DEFAULT_TENANT, *carrier),
        lane_for(payload),
        True,
        lambda reply: text(reply[0]),
    )


def delete(
    keys: Keys, execution_id: str, reason: str, *, force: bool, tombstone_ttl_ms: int, token: str | None = None
) -> Call[Deleted]:
    """Revoke: the row, its index members, lease, fence, counters and the timer of its wait go, a tombstone stays
    (ledger D1, D2).

    With ``token`` only while that is the fence. Refused: ``no_row`` (and no tombstone either), ``running`` (or leased)
    without ``force``, ``fence`` (the one there).
    """
    return Call(
        "executions.delete",
        script("delete"),
        (
            keys.row(execution_id),
            keys.lease(execution_id),
            keys.fence(execution_id),
            keys.fencegen(execution_id),
            keys.cancel(execution_id),
            keys.noderetry(execution_id, None),
            keys.of_execution("noderefetch", execution_id),
            keys.of_execution("nofail", execution_id),
            keys.of_execution("g1wakeups", execution_id),
            keys.tombstone(execution_id),
            keys.index(),
            keys.expiry,
            keys.delayed,
            keys.delayed_body,
        ),
        (execution_id, keys.tenant or DEFAULT_TENANT, reason, int(force), tombstone_ttl_ms, keys.ns, token or ""),
        "writer",
        True,
        lambda reply: Deleted(reply[0] == 1, int(reply[1])),
    )


def expire_terminal(keys: Keys, limit: int = 256) -> Call[int]:
    """Remove terminal rows whose retention is over, with index members and counters; how many (DECISIONS 17)."""
    return Call(
        "executions.expire_terminal",
        script("expire_terminal"),
        (keys.expiry, keys.index(), keys.delayed, keys.delayed_body),
        (keys.ns, limit),
        "writer",
        True,
        lambda reply: int(reply[0]),
    )
