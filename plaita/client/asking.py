"""Asking the server for a diagnosis, call by call, and which executions have a carrier; all of it bounded."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from plaita.policy.carrier import Carrier, named_execution, read_carrier
from plaita.store import tenants, upkeep
from plaita.store.call import Call, Refused, Unavailable, Unknown, Value
from plaita.store.keys import DEFAULT_TENANT, Keys
from plaita.store.looking import LookingRunner

T = TypeVar("T")

CARRIERS_LOOKED_AT = 10_000  # of each place
CARRIER_PAGES = 40


class LostError(Exception):
    """The server does not answer us (any more)."""

    def __init__(self, reason: str, auth: bool) -> None:
        super().__init__(reason)
        self.auth = auth


class Asking:
    """One runner; a call that this user may not make, or this server does not know, answers None."""

    def __init__(self, runner: LookingRunner) -> None:
        self._runner = runner
        self.calls = 0
        self.refused: list[str] = []  # what the server said of each right that lacks

    def ask(self, call: Call[T]) -> T | None:
        answer = self._runner.run(call)
        self.calls += 1
        if isinstance(answer, Unknown) and call.idempotent:
            answer = self._runner.run(call)
        if isinstance(answer, Value):
            value: T = answer.value
            return value
        if isinstance(answer, Unavailable) and _no_right(answer):
            self.refused.append(answer.error)
            return None
        if isinstance(answer, Refused):
            return None
        raise LostError(answer.error, isinstance(answer, Unavailable) and answer.auth)


def _no_right(answer: Unavailable) -> bool:
    return answer.auth and "NOPERM" in answer.error


# -- carriers -------------------------------------------------------------------------------------


def carried(asking: Asking, keys: Keys, wanted: dict[str, str]) -> set[str] | None:
    """Those of ``wanted`` (id -> status) that a carrier of this queue is for; None where there are too many carriers to
    look at. Carriers go from the delayed and the parked to the streams, and then back: those are looked at twice."""
    tenant = keys.tenant or DEFAULT_TENANT
    found: set[str] = set()
    for place in ("delayed", "parked", "q", "w", "delayed", "parked"):
        pages = {"delayed": _delayed, "parked": _parked}.get(place)
        named = pages(asking, keys) if pages is not None else _in_stream(asking, keys, place)
        if named is None:
            return None
        for execution_id, owner in named:
            parked_for_itself = place == "parked" and wanted.get(execution_id) == "running"
            if owner == tenant and execution_id in wanted and not parked_for_itself:
                found.add(execution_id)
    return found


Named = Iterable[tuple[str, str]]


def _delayed(asking: Asking, keys: Keys) -> Named | None:
    found: set[tuple[str, str]] = set()
    cursor = "0"
    for _ in range(CARRIER_PAGES):
        page = asking.ask(upkeep.delayed_named(keys, cursor, CARRIERS_LOOKED_AT // CARRIER_PAGES))
        if page is None:
            return None
        cursor = page[0]
        found.update(page[1])
        if cursor == "0":
            return found
    return None


def _parked(asking: Asking, keys: Keys) -> Named | None:
    found: set[tuple[str, str]] = set()
    for letter in ("w", "q"):
        first = 0
        for _ in range(CARRIER_PAGES):
            page = asking.ask(tenants.parked_named(keys, letter, first, CARRIERS_LOOKED_AT // CARRIER_PAGES))
            if page is None:
                return None
            first = page[0]
            found.update((execution_id, keys.tenant or DEFAULT_TENANT) for execution_id in page[1])
            if first < 0:
                break
        else:
            return None
    return found


def _in_stream(asking: Asking, keys: Keys, letter: str) -> Named | None:
    found: set[tuple[str, str]] = set()
    newer_than: str | None = None
    for _ in range(CARRIER_PAGES):
        page = asking.ask(upkeep.stream_named(keys, letter, newer_than, CARRIERS_LOOKED_AT // CARRIER_PAGES))
        if page is None:
            return None
        newer_than, entries = page
        for entry in entries:
            named = named_execution(entry.fields)
            if named is None:
                carrier = read_carrier(entry.fields, queue=keys.queue, entry_id=entry.entry_id)
                named = (carrier.execution_id, carrier.tenant_id) if isinstance(carrier, Carrier) else None
            if named is not None:
                found.add(named)
        if not newer_than:
            return found
    return None
