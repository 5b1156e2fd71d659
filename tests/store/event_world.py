"""Executions that wait for events, and events for them, by the store's calls alone."""

from __future__ import annotations

from typing import Any

from plaita import jsontext
from plaita.policy import event_index
from plaita.store import events
from plaita.store.call import Value
from plaita.store.events import Event, Lookup, Waking
from plaita.store.executions import Suspended
from plaita.store.keys import Keys


def wait_fields(execution_id: str = "e", event_type: str = "paid", accepts: Any = None, correlation: str = "") -> Any:
    """What ``World.suspend`` is given for a wait in the index."""
    named = bool(correlation)
    return {
        "execution_id": execution_id,
        "event_type": event_type,
        "correlation": correlation,
        "event_filter": jsontext.dumps(accepts) if accepts else None,
        "places": event_index.places(event_type, correlation or execution_id, named=named, event_filter=accepts),
        "stamps": b'{"schema_version":"1","config_family":"blue"}',
    }


def waiting(world: Any, execution_id: str = "e", *, step: int = 1, **said: Any) -> Any:
    """A new execution that waits; (its last carrier, its last token)."""
    changes = {name: said.pop(name) for name in ("timeout_ms", "task_type", "task_id") if name in said}
    entry, begun = world.running(execution_id)
    answer = world.suspend(begun, entry, step, **wait_fields(execution_id, **said), **changes)
    assert isinstance(answer, Value), answer
    assert not answer.value.early
    return entry, begun


def publish(world: Any, event_type: str = "paid", data: Any = None, correlation: str | None = "e", **said: Any) -> Any:
    event_id = said.pop("event_id", None)
    number = world.raw("INCR", "test:events") if event_id is None else 0
    event = Event(event_id or f"ev{number}", event_type, jsontext.dumps(data), correlation, **said)
    return world.do(events.publish(said.get("keys", world.keys), event))


def suspend_again(world: Any, entry: Any, begun: Any, *, step: int = 1, **said: Any) -> Suspended:
    """As the supervisor does it: early events are judged and sent back with the wait until nothing is open."""
    accepts = said.get("accepts")
    fields = wait_fields(**said)
    ruled_out: list[str] = []
    chosen = ""
    while True:
        early = {"early": chosen, "early_fields": [("payload", b"early"), ("execution_id", "e")]} if chosen else {}
        answer: Suspended = world.suspend(begun, entry, step, **fields, **early, ruled_out=ruled_out).value
        if not answer.early:
            return answer
        fits = [one for one in answer.early if event_index.matches(accepts, jsontext.loads(one.data)["event_data"])]
        chosen = fits[0].event_id if fits else ""
        ruled_out += [one.event_id for one in answer.early if one not in fits]


def found(world: Any, event_type: str = "paid", data: Any = None, correlation: str | None = "e", **more: Any) -> Any:
    """Who gets an event that stands in the log now: (waiters, residual subscriptions taken out)."""
    keys: Keys = world.keys
    log_id = more.get("log_id", f"{10**15}-0")
    when = "" if correlation is None else str(more.get("when_ms", 10**15))
    waiters, residual = [], 0
    for key_set in world.do(events.key_sets(keys, event_type)):
        digest = event_index.event_digest(event_type, correlation, event_index.paths_of(key_set), data)
        if digest is None:
            continue
        cursor = "0"
        while True:
            lookup = Lookup(event_type, key_set, digest, log_id, when)
            page = world.do(events.waiters(keys, lookup, cursor, more.get("count", 100)))
            waiters += page.waiters
            residual += page.residual
            cursor = page.cursor
            if cursor == "0":
                break
    return waiters, residual


def wake_all(world: Any, waiters: Any, event_id: str = "ev1", data: Any = None, nonce: str | None = None) -> int:
    wakings = [Waking(one, [("payload", b"woken"), ("execution_id", one.execution_id)]) for one in waiters]
    told = events.told(event_id, "paid", jsontext.dumps(data))
    woken: int = world.do(events.wake_many(world.keys, event_id, told, wakings, nonce))
    return woken


def index_keys(world: Any) -> list[str]:
    """Keys of the index and of tasks: none when nobody waits."""
    words = (b":event:index:", b":event:keysets:", b":event:users:", b":service:")
    return sorted(key.decode() for key in world.raw("KEYS", "*") if any(word in key for word in words))
