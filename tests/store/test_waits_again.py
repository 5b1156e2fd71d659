"""What a loss took from waits is made anew from their rows by ``reindex`` (ledger D4, E2; DECISIONS 26)."""

from __future__ import annotations

from typing import Any

import pytest
from event_world import found, index_keys, waiting, wake_all

from plaita import Client
from plaita.client import upkeep
from plaita.policy.carrier import Carrier, read_carrier
from plaita.store import delayed

DAY_MS = 86_400_000


def reindex(world: Any, **named: Any) -> dict[str, Any]:
    with Client(world.server.url) as client:
        return client.perform(upkeep.reindex(world.keys, DAY_MS, **named))  # type: ignore[no-any-return]


def lose_all_but_rows(world: Any) -> None:
    for key in world.raw("KEYS", "*"):
        if b":event:" in key or b":service:" in key or b":delayed" in key:
            world.raw("DEL", key)


def test_D4_a_wait_has_its_places_its_task_and_its_timer_back_as_they_were(world):
    waiting(world, "plain")
    waiting(world, "filtered", accepts={"a.b": [1]}, correlation="order", timeout_ms=60_000)
    waiting(world, "odd:%{id}", accepts={"x": 1}, timeout_ms=90_000, task_type="approval", task_id="t1")
    before = world.everything()
    assert reindex(world)["waits"] == 0
    assert world.everything() == before
    lose_all_but_rows(world)
    assert index_keys(world) == []
    answer = reindex(world)
    assert (answer["waits"], answer["rows"]) == (3, 3)
    after = world.everything()
    assert after.keys() == before.keys()
    timers = (world.keys.delayed_body.encode(),)  # bodies are made anew: the same carrier with other words in it
    assert {key: value for key, value in after.items() if key not in timers and b":event:" not in key} == {
        key: value for key, value in before.items() if key not in timers and b":event:" not in key
    }
    assert [one.execution_id for one in found(world, data={"a": {"b": [1]}}, correlation="order")[0]] == ["filtered"]
    assert reindex(world)["waits"] == 0


def test_D4_a_timer_that_was_lost_wakes_at_its_deadline_as_it_would_have(world):
    waiting(world, timeout_ms=60_000)
    deadline = world.row()["wait_deadline"]
    world.raw("DEL", world.keys.delayed, world.keys.delayed_body)
    reindex(world)
    assert world.raw("ZRANGE", world.keys.delayed, 0, -1, "WITHSCORES") == [b"wait plaita e 1", deadline]
    world.timer_is_due()
    assert world.do(delayed.promote(world.keys)).moved == 1
    entry = world.take_one()
    carrier = read_carrier(entry.fields, queue=world.keys.queue, entry_id=entry.entry_id)
    assert isinstance(carrier, Carrier)
    assert (carrier.execution_id, carrier.resume_type, carrier.wait) == ("e", "timeout", "1")
    assert carrier.stamps.config_family == "blue"
    assert world.begin(entry, nonce="n2", kind="timeout", wait="1").value.woken == "timeout"


@pytest.mark.parametrize("lost", ["delayed", "delayed_body"])
def test_D4_half_a_timer_is_none(world, lost: str):
    waiting(world, timeout_ms=60_000)
    world.raw("DEL", getattr(world.keys, lost))
    assert reindex(world)["waits"] == 1
    assert world.raw("HLEN", world.keys.delayed_body) == world.raw("ZCARD", world.keys.delayed) == 1


def test_D4_what_does_not_wait_any_more_gets_nothing_back(world):
    for name in ("woken", "deleted", "e"):
        waiting(world, name, timeout_ms=60_000)
    wake_all(world, found(world, correlation="woken")[0])
    assert world.row("woken")["woken"] == b"event"
    world.raw("HSET", world.keys.tombstone("deleted"), "default", "1 why")
    world.raw("HSET", world.keys.row("e"), "status", "completed")
    lose_all_but_rows(world)
    assert reindex(world)["waits"] == 0
    assert index_keys(world) == []
    assert world.raw("EXISTS", world.keys.delayed) == 0


def test_E2_subscriptions_of_waits_that_are_over_are_taken_out(world):
    waiting(world, "stays", accepts={"a": 1})
    before = {key: world.raw("DUMP", key) for key in index_keys(world)}
    for number, name in enumerate(("gone", "over", "elsewhere")):
        waiting(world, name, accepts={"a": 1, f"b{number}": 2})
    world.raw("DEL", world.keys.row("gone"))
    world.raw("HSET", world.keys.row("over"), "status", "cancelled")
    world.raw("HDEL", world.keys.row("elsewhere"), "wait_index")
    assert reindex(world)["dropped"] >= 9
    assert {key: world.raw("DUMP", key) for key in index_keys(world)} == before
