"""For the tests of section S: carriers as other producers send them, retries held back, and what is left afterwards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hosts import World, until

from plaita import jsontext
from plaita.store import carriers, executions
from plaita.store.call import Call

# Lease and min-idle are so long that what goes on was not waited for (DECISIONS 44).
PATIENT: dict[str, Any] = {
    "lease_ttl_seconds": 600,
    "claim_min_idle_ms": 600_000,
    "preload": ["crashing", "outcomes", "trouble", "waiting"],
}
FAR = 10_000_000_000_000  # epoch ms in the year 2286
COUNTERS = ("g1wakeups", "nofail", "noderefetch", "noderetry", "lease", "cancel")


def raw(world: World, *words: str | int | bytes) -> Any:
    """One Redis command; the second word is its key."""
    return world.do(Call("test.raw", None, (str(words[1]),), words, "writer", True, lambda reply: reply))


def send(world: World, letter: str, payload: dict[str, Any]) -> str:
    """A carrier that says nothing but its payload, as other producers write them; its entry id."""
    return world.do(carriers.enqueue(world.keys, letter, [("payload", jsontext.dumps(payload))]))


def send_start(world: World, flow_id: str = "f", **said: Any) -> str:
    return send(world, "q", {"type": "start", "flow_id": flow_id, **said})


def send_resume(world: World, execution_id: str, kind: str, **said: Any) -> str:
    return send(world, "w", {"type": "resume", "execution_id": execution_id, "resume_type": kind, **said})


def ended(world: World, execution_id: str) -> dict[str, Any]:
    """The end of an execution whose row may not be there yet."""
    until(lambda: raw(world, "EXISTS", world.keys.row(execution_id)), f"a row of {execution_id}")
    return world.wait(execution_id)


def settled(world: World) -> None:
    """Every carrier was acked and nothing stands in the streams."""
    until(lambda: all((one.length, one.pending) == (0, 0) for one in world.stats().streams), "empty streams")


def nothing_left(world: World) -> None:
    """Nothing is in the streams, pending or to come."""
    settled(world)
    assert world.stats().delayed == 0


def counters(world: World, execution_id: str) -> dict[str, int | str]:
    """What stands beside the row, by its name in the ledger; ``noderetry:<node>`` for each node."""
    base = f"{world.keys.ns}:execution:"
    found: dict[str, int | str] = {}
    for word in COUNTERS:
        for key in raw(world, "KEYS", f"{base}{word}:{execution_id}*"):
            stored = raw(world, "GET", key.decode())
            if stored is None:  # it went between the two calls
                continue
            value = stored.decode()
            name = key.decode().removeprefix(base).replace(f":{execution_id}", "", 1)
            found[name] = int(value) if value.isdigit() else value
    return found


def facts(world: World, execution_id: str) -> tuple[Any, ...]:
    """All of a row and what stands beside it, to be compared."""
    row = world.row(execution_id)
    indexed = [
        status
        for status in ("pending", "running", "suspended", "completed", "error", "cancelled")
        if raw(world, "ZSCORE", world.keys.index(status), execution_id) is not None
    ]
    return (row, counters(world, execution_id), indexed)


def delayed_of(world: World) -> dict[str, int]:
    """When the copies of executions are due (epoch ms), by execution."""
    flat = raw(world, "ZRANGE", world.keys.delayed, 0, -1, "WITHSCORES")
    return {name.decode().split(" ")[1]: int(score) for name, score in zip(flat[::2], flat[1::2], strict=True)}


def hold_back(world: World, *execution_ids: str) -> dict[str, executions.Row]:
    """Wait until each of them is in retry backoff, and put all that is delayed off for centuries; their rows."""

    def look() -> bool:
        for name in raw(world, "ZRANGE", world.keys.delayed, 0, -1):
            raw(world, "ZADD", world.keys.delayed, "XX", FAR, name)
        due = delayed_of(world)
        return all(due.get(execution) == FAR for execution in execution_ids)

    until(look, "the wait for the next try")
    return {execution: world.row(execution) for execution in execution_ids}


def bring_back(world: World) -> None:
    """All that is delayed is due now."""
    for name in raw(world, "ZRANGE", world.keys.delayed, 0, -1):
        raw(world, "ZADD", world.keys.delayed, "XX", 0, name)


def stays(world: World, execution_id: str, carriers_sent: Callable[[], Any]) -> None:
    """What is sent is acked, and changes nothing of the execution."""
    before = facts(world, execution_id)
    carriers_sent()
    settled(world)
    assert facts(world, execution_id) == before
