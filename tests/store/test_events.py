"""Events: published once, kept for who is late, found by the index, woken in pages (DECISIONS 26-28; ledger E2)."""

from __future__ import annotations

import time
from typing import Any

import pytest
from event_world import found, index_keys, publish, suspend_again, wait_fields, waiting, wake_all

from plaita.policy.event_index import kept_digest
from plaita.store import delayed, events, executions, states
from plaita.store.call import Refused, Value
from plaita.store.events import KEPT_AT_MOST, SEEN_MS, Event, Published, Waiter
from plaita.store.keys import Keys
from plaita.store.states import Save
from plaita.store.suspends import EVENTS_KEPT_MS


def kept_key(world: Any, correlation: str = "e", event_type: str = "paid") -> str:
    return world.keys.events_kept(kept_digest(event_type, correlation))


def carriers_of(world: Any) -> list[dict[bytes, bytes]]:
    return [dict(zip(flat[::2], flat[1::2], strict=True)) for _, flat in world.raw("XRANGE", world.keys.wake, "-", "+")]


def ids_of(waiters: Any) -> list[str]:
    return sorted(one.execution_id for one in waiters)


# -- publish ----------------------------------------------------------------------------------------


def test_an_event_is_in_the_log_once_with_what_its_readers_need(world):
    published = publish(world, "paid", {"a": 1}, "e", event_id="x", source="shop", named=True)
    assert published.before is False
    [(log_id, flat)] = world.raw("XRANGE", world.keys.event_log, "-", "+")
    fields = dict(zip(flat[::2], flat[1::2], strict=True))
    now = fields.pop(b"timestamp")
    assert log_id.decode() == published.log_id == world.raw("GET", world.keys.event_last).decode()
    assert abs(int(now) - int(published.log_id.partition("-")[0])) < 1000
    assert fields == {
        b"event_id": b"x", b"event_type": b"paid", b"tenant_id": b"default", b"data": b'{"a":1}', b"source": b"shop",
        b"correlation_id": b"e",
    }  # fmt: skip
    before = world.everything()
    assert publish(world, "paid", {"a": 2}, "e", event_id="x", named=True) == Published(published.log_id, True)
    assert world.everything() == before
    assert SEEN_MS - 60_000 < world.raw("PTTL", world.keys.event_seen("x")) <= SEEN_MS


def test_the_same_id_of_another_tenant_is_another_event(world):
    other = Keys(tenant="t2")
    publish(world, event_id="x", named=True)
    assert world.do(events.publish(other, Event("x", "paid", b"1", "e", named=True))).before is False
    assert world.raw("XLEN", world.keys.event_log) == 2


def test_an_uncorrelated_event_is_kept_for_nobody(world):
    publish(world, correlation=None)
    assert [key for key in world.raw("KEYS", "*") if b"kept" in key] == []


def test_a_hundred_of_one_correlation_are_kept_the_newest_for_seven_days(world):
    for number in range(KEPT_AT_MOST + 7):
        publish(world, data=number, event_id=f"ev{number}")
    assert world.raw("LLEN", kept_key(world)) == KEPT_AT_MOST
    assert EVENTS_KEPT_MS - 60_000 < world.raw("PTTL", kept_key(world)) <= EVENTS_KEPT_MS
    entry, begun = world.running()
    world.raw("HSET", world.keys.row("e"), "created_at", "1")
    early = world.suspend(begun, entry, **wait_fields()).value.early
    assert [event.event_id for event in early] == [f"ev{number}" for number in range(7, KEPT_AT_MOST + 7)]


def test_ids_of_the_log_go_up_although_it_was_lost_and_the_clock_set_back(world):
    publish(world)
    future = f"{10**14}-7"
    world.raw("SET", world.keys.event_last, future)
    world.raw("DEL", world.keys.event_log)
    assert publish(world).log_id == f"{10**14}-8"
    assert publish(world).log_id == f"{10**14}-9"


# -- the log ----------------------------------------------------------------------------------------


def read(world: Any, consumer: str = "c1") -> list[str]:
    return [one.log_id for one in world.do(events.read_log(world.keys, consumer, 1))]


def test_the_group_reads_from_the_first_entry_on_and_is_made_once(world):
    log_id = publish(world).log_id
    assert world.run(events.read_log(world.keys, "c1", 1)).reason == "no_group"
    assert world.run(events.reclaim(world.keys, "c1", 0)).reason == "no_group"
    assert world.do(events.make_group(world.keys)) is True
    assert world.run(events.make_group(world.keys)).reason == "exists"
    assert read(world) == [log_id]
    assert read(world, "c2") == []


def test_what_a_reader_did_not_finish_goes_to_another_page_by_page(world):
    ids = [publish(world).log_id for _ in range(5)]
    world.do(events.make_group(world.keys))
    assert read(world) == ids
    world.do(events.done(world.keys, ids[0]))
    assert world.do(events.reclaim(world.keys, "c2", 60_000)).entries == []
    cursor, seen = "0-0", []
    while True:
        page = world.do(events.reclaim(world.keys, "c2", 0, cursor, 2))
        assert len(page.entries) <= 2
        seen += [one.log_id for one in page.entries]
        cursor = page.cursor
        if cursor == "0-0":
            break
    assert seen == ids[1:]


def test_trim_drops_what_all_groups_have_done_with_and_nothing_else(world):
    assert world.do(events.trim(world.keys, 0)) == (0, 0)
    ids = [publish(world).log_id for _ in range(6)]
    other = Keys(group="other")
    world.do(events.make_group(world.keys))
    world.do(events.make_group(other))
    time.sleep(0.002)  # the newest is older than now
    assert world.do(events.trim(world.keys, 0)) == (0, 6), "nobody has read them"
    read(world)
    world.do(events.read_log(other, "c1", 1, 4))
    for log_id in ids:
        world.do(events.done(world.keys, log_id))
        world.do(events.done(other, log_id))
    assert world.do(events.trim(world.keys, 3_600_000)) == (0, 6), "young"
    assert world.do(events.trim(world.keys, 0)) == (3, 3), "the other group has read no further than the fourth"
    world.do(events.read_log(other, "c1", 1))
    world.do(events.done(other, ids[5]))
    assert world.do(events.trim(world.keys, 0)) == (1, 2), "the fifth is pending for the other group"
    world.do(events.done(other, ids[4]))
    world.do(events.trim(world.keys, 0))
    assert [one.decode() for one, _ in world.raw("XRANGE", world.keys.event_log, "-", "+")] == ids[5:]


def test_a_log_that_nobody_reads_loses_what_is_older_than_what_is_kept(world):
    """By whole nodes of the stream, so not to the entry."""
    for number in range(300):
        world.raw("XADD", world.keys.event_log, f"{number + 1}-0", "event_id", "old")
    publish(world)
    assert world.raw("XLEN", world.keys.event_log) < 150


# -- who waits --------------------------------------------------------------------------------------


def test_an_event_finds_the_waits_of_its_type_correlation_and_data_only(world):
    waiting(world, "plain")
    waiting(world, "one", accepts={"a": 1})
    waiting(world, "deep", accepts={"b.c": "x", "a": 1})
    waiting(world, "named", correlation="order")
    waiting(world, "both", correlation="order", accepts={"a": 1})
    waiting(world, "other", event_type="shipped")
    assert ids_of(found(world, data={"a": 1.0, "b": {"c": "x"}}, correlation=None)[0]) == ["deep", "one", "plain"]
    assert ids_of(found(world, data={"a": 2}, correlation=None)[0]) == ["plain"]
    assert ids_of(found(world, data={"a": 1}, correlation="order")[0]) == ["both", "named"]
    assert ids_of(found(world, data={"a": 1}, correlation="one")[0]) == ["one"]
    assert ids_of(found(world, data={"a": 2}, correlation="one")[0]) == []
    assert ids_of(found(world, "shipped", None, None)[0]) == ["other"]
    assert ids_of(found(world, "nothing", None, None)[0]) == []


def test_a_waiter_brings_along_what_its_carrier_is_made_of(world):
    waiting(world)
    [one], _ = found(world)
    assert (one.execution_id, one.wait, one.flow_id) == ("e", "1", "f")
    assert one.stamps == '{"schema_version":"1","config_family":"blue"}'


def test_a_wait_of_a_service_is_in_no_index(world):
    entry, begun = world.running()
    world.suspend(begun, entry, **{**wait_fields(), "places": None})
    assert index_keys(world) == []
    assert found(world)[0] == []


def test_pages_find_everybody_and_wake_each_once(world):
    names = [f"e{number}" for number in range(250)]
    for name in names:
        waiting(world, name)
    waiters, residual = found(world, correlation=None, count=10)
    assert (set(ids_of(waiters)), residual) == (set(names), 0)
    assert wake_all(world, waiters[:100]) == 100
    again, _ = found(world, correlation=None)
    assert wake_all(world, again) == 250 - 100 == len(again)
    assert sorted(fields[b"execution_id"].decode() for fields in carriers_of(world)) == sorted(names)
    assert index_keys(world) == []


def test_wake_many_leaves_what_waits_no_more_or_elsewhere_or_used_the_event(world):
    for name in ("woken", "stale", "ended", "gone", "deleted", "used", "odd", "right"):
        waiting(world, name)
    waiters, _ = found(world, correlation=None)
    row = world.keys.row
    world.raw("HSET", row("woken"), "woken", "timeout")
    world.raw("HSET", row("stale"), "wait", "7")
    world.raw("HSET", row("ended"), "status", "cancelled")
    world.raw("DEL", row("gone"))
    world.raw("HSET", world.keys.tombstone("deleted"), "default", "1 why")
    world.raw("HSET", row("used"), "used_events", "1:x 2:ev1 1:y")
    world.raw("SET", row("odd"), "a text")
    rows = {name: world.raw("DUMP", row(name)) for name in ("woken", "stale", "ended", "deleted", "used")}
    assert wake_all(world, waiters) == 1
    assert [fields[b"execution_id"] for fields in carriers_of(world)] == [b"right"]
    assert {name: world.raw("DUMP", row(name)) for name in rows} == rows


def test_wake_many_sent_again_wakes_nobody_again(world):
    waiting(world, "a", timeout_ms=60_000)
    waiting(world, "b")
    waiters, _ = found(world, correlation=None)
    assert wake_all(world, waiters, nonce="n") == 2
    before = world.everything()
    assert wake_all(world, waiters, nonce="n") == 0
    assert wake_all(world, waiters, "ev2", nonce="m") == 0
    assert world.everything() == before
    assert world.row("a")["used_events"][8:] == b":ev1"
    assert world.raw("ZCARD", world.keys.delayed) == 0


@pytest.mark.parametrize(
    "spoil",
    [
        lambda w: w.raw("HSET", w.keys.row("e"), "status", "completed"),
        lambda w: w.raw("HSET", w.keys.row("e"), "woken", "timeout"),
        lambda w: w.raw("DEL", w.keys.row("e")),
        lambda w: (w.raw("DEL", w.keys.row("e")), w.raw("SET", w.keys.row("e"), "odd")),
        lambda w: w.raw("HDEL", w.keys.row("e"), "wait_index"),
    ],
    ids=["terminal", "woken", "no row", "odd", "not of this wait"],
)
def test_E2_a_subscription_that_was_left_behind_goes_when_it_is_matched(world, spoil: Any):
    waiting(world, accepts={"a": 1})
    assert len(index_keys(world)) == 4  # key sets, users, two digests
    spoil(world)
    assert found(world, data={"a": 1}) == ([], 1)
    assert found(world, data={"a": 1}, correlation=None)[0] == []
    assert [key for key in index_keys(world) if ":keysets:" in key or ":users:" in key] == []
    assert carriers_of(world) == []


def test_E2_of_one_that_waits_elsewhere_only_the_wrong_place_goes(world):
    waiting(world, accepts={"a": 1})
    waiting(world, "e2", accepts={"a": 2})
    place = world.row("e")["wait_index"].decode().split("\n")[4]
    world.raw("SADD", place, "e2")
    assert ids_of(found(world, data={"a": 1})[0]) == ["e"]
    assert ids_of(found(world, data={"a": 2}, correlation=None)[0]) == ["e2"], "it is to be found still"


def test_a_key_set_goes_with_the_last_that_uses_it(world):
    waiting(world, "a", accepts={"x": 1})
    waiting(world, "b", accepts={"x": 2})
    waiting(world, "c", accepts={"y": 2})
    assert sorted(world.do(events.key_sets(world.keys, "paid"))) == ['["x"]', '["y"]']
    wake_all(world, found(world, data={"x": 1}, correlation=None)[0])
    assert sorted(world.do(events.key_sets(world.keys, "paid"))) == ['["x"]', '["y"]']
    wake_all(world, found(world, data={"x": 2}, correlation=None)[0])
    assert world.do(events.key_sets(world.keys, "paid")) == ['["y"]']
    wake_all(world, found(world, data={"y": 2}, correlation=None)[0])
    assert index_keys(world) == []


# -- older and newer than the wait --------------------------------------------------------------------


def test_an_event_that_is_read_late_does_not_end_a_wait_that_began_after_it(world):
    """What a wait gets must not hang on how fast the log is read. Uncorrelated events reach who waits then."""
    entry, begun = world.running()
    old = publish(world, correlation=None).log_id
    world.suspend(begun, entry, **wait_fields())
    new = publish(world, correlation=None).log_id
    assert found(world, correlation=None, log_id=old) == ([], 0)
    assert ids_of(found(world, correlation=None, log_id=new)[0]) == ["e"]


def test_a_correlated_event_that_is_read_late_goes_to_executions_that_were_there(world):
    entry, begun = world.running("later")
    old = publish(world, event_id="old", correlation="order")
    world.suspend(begun, entry, **wait_fields("later", correlation="order"), ruled_out=["old"])
    created = int(world.row("later")["created_at"])
    world.raw("HSET", world.keys.row("later"), "created_at", created + 5)
    assert found(world, correlation="order", log_id=old.log_id, when_ms=created) == ([], 0)
    world.raw("HSET", world.keys.row("later"), "created_at", created)
    assert ids_of(found(world, correlation="order", log_id=old.log_id, when_ms=created)[0]) == ["later"]


# -- early events (DECISIONS 27) ---------------------------------------------------------------------


def test_an_event_before_the_suspend_is_offered_and_nothing_is_written(world):
    entry, begun = world.running()
    published = publish(world, data={"a": 1}, event_id="x")
    before = world.everything()
    answer = world.suspend(begun, entry, **wait_fields()).value
    assert [(one.event_id, one.log_id, one.data) for one in answer.early] == [
        ("x", published.log_id, b'{"event_id":"x","event_type":"paid","event_data":{"a":1}}')
    ]
    assert world.everything() == before


def test_an_early_event_that_fits_ends_the_wait_in_the_same_call(world):
    entry, begun = world.running()
    publish(world, data={"a": 1}, event_id="x")
    before = set(world.raw("KEYS", "*"))
    assert suspend_again(world, entry, begun, accepts={"a": 1}).done_before is False
    row = world.row()
    assert (row["status"], row["woken"], row["wake_id"]) == (b"suspended", b"event", b"x")
    assert row["used_events"][8:] == b":x"
    assert row["wake_data"] == b'{"event_id":"x","event_type":"paid","event_data":{"a":1}}'
    assert carriers_of(world) == [{b"payload": b"early", b"execution_id": b"e", b"wait": b"1"}]
    assert index_keys(world) == []
    assert world.raw("ZCARD", world.keys.delayed) == 0
    assert world.pending() == []
    left = {key.decode() for key in set(world.raw("KEYS", "*")) - before}
    assert left == {world.keys.index("suspended")}
    again = world.begin(world.take_one(), nonce="n2", kind="event").value
    assert (again.woken, again.wait) == ("event", "1")


def test_where_the_stream_takes_nothing_an_early_event_ends_no_wait(world):
    entry, begun = world.running()
    publish(world, event_id="x")
    world.raw("DEL", world.keys.wake)
    world.raw("SET", world.keys.wake, "no stream")
    before = world.everything()
    fields = wait_fields() | {"early": "x", "early_fields": [("payload", b"early")], "timeout_ms": 60_000}
    assert not isinstance(world.suspend(begun, entry, **fields), Value)
    assert world.everything() == before


def test_an_early_event_and_the_same_call_again(world):
    entry, begun = world.running()
    publish(world, event_id="x")
    fields = wait_fields() | {"early": "x", "early_fields": [("payload", b"early")], "timeout_ms": 60_000}
    assert isinstance(world.suspend(begun, entry, **fields), Value)
    before = world.everything()
    assert world.suspend(begun, entry, **fields).value.done_before is True
    assert world.everything() == before
    assert len(carriers_of(world)) == 1


def test_early_events_that_do_not_fit_leave_a_whole_wait(world):
    entry, begun = world.running()
    for number in range(3):
        publish(world, data={"a": number})
    suspend_again(world, entry, begun, accepts={"a": 9})
    assert (world.row()["woken"], carriers_of(world)) == (b"", [])
    assert ids_of(found(world, data={"a": 9})[0]) == ["e"]


def test_of_several_the_first_that_fits_and_the_others_stay_for_later_waits(world):
    entry, begun = world.running()
    for number, value in enumerate((1, 2, 2, 1)):
        publish(world, data={"a": value, "n": number}, event_id=f"ev{number}")
    used = []
    for step in (1, 3, 5):
        suspend_again(world, entry, begun, step=step, accepts={"a": 2} if step < 5 else None)
        used.append(world.row()["wake_id"])
        entry = world.take_one()
        begun = world.begin(entry, nonce=f"n{step}", kind="event").value
        world.commit(begun, step + 1)
    assert used == [b"ev1", b"ev2", b"ev0"]


def test_an_event_between_the_answer_and_the_resend_is_offered_too(world):
    entry, begun = world.running()
    publish(world, data={"a": 1}, event_id="x")
    fields = wait_fields(accepts={"a": 2})
    [first] = world.suspend(begun, entry, **fields).value.early
    publish(world, data={"a": 2}, event_id="y")
    [second] = world.suspend(begun, entry, **fields, ruled_out=[first.event_id]).value.early
    assert (second.event_id, world.row()["status"]) == ("y", b"running")
    early = {"early": "y", "early_fields": [("payload", b"early")]}
    assert world.suspend(begun, entry, **fields, ruled_out=["x"], **early).value.early == []
    assert world.row()["wake_id"] == b"y"


def test_a_chosen_event_that_is_gone_is_not_invented(world):
    entry, begun = world.running()
    publish(world, event_id="x")
    world.raw("DEL", kept_key(world))
    early = {"early": "x", "early_fields": [("payload", b"early")]}
    assert world.suspend(begun, entry, **wait_fields(), **early).value.early == []
    assert (world.row()["woken"], carriers_of(world)) == (b"", [])
    assert ids_of(found(world)[0]) == ["e"]


def test_an_event_older_than_the_execution_is_no_early_event_of_it(world):
    publish(world, correlation="order")
    entry, begun = world.running()
    world.raw("HINCRBY", world.keys.row("e"), "created_at", 1000)
    assert world.suspend(begun, entry, **wait_fields(correlation="order")).value.early == []
    assert world.row()["woken"] == b""


def test_an_event_kept_for_longer_than_seven_days_is_no_early_event(world):
    entry, begun = world.running()
    publish(world)
    packed = world.raw("LINDEX", kept_key(world), 0)
    now = world.row()["created_at"]
    start = packed.index(b"\xad", 1)  # the time: 13 digits
    old = packed[: start + 1] + str(int(now) - EVENTS_KEPT_MS - 1000).encode() + packed[start + 14 :]
    world.raw("LSET", kept_key(world), 0, old)
    world.raw("HSET", world.keys.row("e"), "created_at", "1")
    assert world.suspend(begun, entry, **wait_fields()).value.early == []
    world.raw("LSET", kept_key(world), 0, packed)


def test_an_event_is_early_for_its_type_and_correlation_only(world):
    entry, begun = world.running()
    publish(world, "shipped")
    publish(world, correlation="x")
    publish(world, correlation=None)
    world.do(events.publish(Keys(tenant="t2"), Event("z", "paid", b"1", "e")))
    assert world.suspend(begun, entry, **wait_fields()).value.early == []


def test_a_wait_that_events_do_not_end_is_offered_none(world):
    entry, begun = world.running()
    publish(world)
    assert world.suspend(begun, entry, **{**wait_fields(), "places": None}).value.early == []
    assert world.row()["status"] == b"suspended"


def test_many_large_early_events_come_in_answers_of_a_bounded_size(world):
    entry, begun = world.running()
    for number in range(30):
        publish(world, data={"a": number, "fill": "x" * 60_000})
    sizes = []
    ruled_out: list[str] = []
    while early := world.suspend(begun, entry, **wait_fields(), ruled_out=ruled_out).value.early:
        sizes.append(sum(len(one.data) for one in early))
        ruled_out += [one.event_id for one in early]
    assert len(ruled_out) == 30
    assert max(sizes) < 900_000
    assert len(sizes) > 1


def test_a_cancel_goes_before_an_early_event(world):
    entry, begun = world.running()
    publish(world)
    world.do(executions.request_cancel(world.keys, "e", "enough", b"{}"))
    assert world.suspend(begun, entry, **wait_fields()) == Refused("cancel", "enough")


def test_an_event_that_ended_a_wait_ends_no_other_of_the_execution(world):
    """Neither as an early one, nor read from the log again, nor by hand."""
    entry, begun = waiting(world)
    publish(world, event_id="x")
    assert wake_all(world, found(world)[0], "x") == 1
    entry = world.take_one()
    begun = world.begin(entry, nonce="n2", kind="event").value
    world.commit(begun, 2)
    assert world.suspend(begun, entry, 3, **wait_fields()).value.early == []
    waiters, _ = found(world)
    assert ids_of(waiters) == ["e"]
    assert wake_all(world, waiters, "x") == 0
    assert world.wake("x", named=True).value.reason == "used_event"
    assert world.row()["woken"] == b""
    assert wake_all(world, waiters, "y") == 1


def test_used_events_are_bounded_and_any_id_may_be_one(world):
    waiting(world)
    odd = ["a b", "%20", "ä:{x}", "x" * 200]
    for event_id in odd:
        world.raw("HSET", world.keys.row("e"), "woken", "")
        assert wake_all(world, [found_one(world)], event_id) == 1, event_id
    for event_id in odd:
        world.raw("HSET", world.keys.row("e"), "woken", "")
        assert wake_all(world, [found_one(world)], event_id) == 0, event_id
    for number in range(120):
        world.raw("HSET", world.keys.row("e"), "woken", "")
        assert wake_all(world, [found_one(world)], f"n{number}") == 1
    assert len(world.row()["used_events"].split()) == 100


def test_what_came_in_between_does_not_make_an_execution_forget_an_event_that_is_kept(world):
    """An approval that was used must not be one for the second wait for it, a hundred other waits later."""
    entry, begun = world.running()
    publish(world, "approved", event_id="x")
    suspend_again(world, entry, begun, event_type="approved")
    assert world.row()["wake_id"] == b"x"
    step = 1
    for number in range(103):
        entry = world.take_one()
        begun = world.begin(entry, nonce=f"n{number}", kind="event").value
        step += 2
        world.commit(begun, step - 1)
        kind = "approved" if number == 102 else "scanned"
        assert not suspend_again(world, entry, begun, step=step, event_type=kind).early
        if number < 102:
            assert world.wake(f"s{number}", named=True).value.woken
    row = world.row()
    assert (row["woken"], row["wait_type"]) == (b"", b"approved")
    used = row["used_events"].split()
    assert len(used) == 101, "of one type and correlation as many as are kept of it"
    assert [part.partition(b":")[2] for part in (used[0], used[-1])] == [b"x", b"s101"]
    publish(world, "approved", event_id="y")
    assert ids_of(found(world, "approved")[0]) == ["e"]


def found_one(world: Any) -> Any:
    return Waiter("e", "1", "f")


# -- event against timeout ----------------------------------------------------------------------------


def test_an_event_after_the_timer_finds_nobody_and_the_other_way_round(world):
    waiting(world, timeout_ms=60_000)
    waiting(world, "e2", timeout_ms=60_000)
    waiters, _ = found(world)
    world.timer_is_due()
    assert world.do(delayed.promote(world.keys)).moved == 1
    assert found(world) == ([], 0)
    assert wake_all(world, waiters) == 0
    assert world.row()["woken"] == b"timeout"
    assert wake_all(world, found(world, correlation="e2")[0]) == 1
    assert world.raw("ZCARD", world.keys.delayed) == 0
    assert index_keys(world) == []
    assert len(carriers_of(world)) == 2


# -- nothing is left behind ---------------------------------------------------------------------------


def delete(world: Any) -> None:
    world.do(executions.delete(world.keys, "e", "gone", force=True, tombstone_ttl_ms=600_000))


def save_ended(world: Any) -> None:
    world.do(states.save(world.keys, Save("e", "completed", {"output": b"1"})))
    world.timer_is_due()
    world.do(delayed.promote(world.keys))  # its timer finds nobody


def wake_by_event(world: Any) -> None:
    wake_all(world, found(world, data={"a": 1})[0])


def begin_a_cancel(world: Any) -> None:
    world.do(executions.request_cancel(world.keys, "e", "enough", b"cancel"))
    world.begin(world.take_one(), nonce="n2", kind="cancel")


def begin_an_event_of_another_producer(world: Any) -> None:
    world.raw("XADD", world.keys.wake, "*", "execution_id", "e")
    world.begin(world.take_one(), nonce="n2", kind="event", data=b"1", event_id="y")


def expire(world: Any) -> None:
    world.raw("HSET", world.keys.row("e"), "status", "completed")
    world.raw("ZADD", world.keys.expiry, 1, "e")
    assert world.do(executions.expire_terminal(world.keys)) == 1


ENDS = {
    "event": wake_by_event,
    "wake": lambda w: w.wake(),
    "timer": lambda w: (w.timer_is_due(), w.do(delayed.promote(w.keys))),
    "cancel": begin_a_cancel,
    "carrier": begin_an_event_of_another_producer,
    "delete": delete,
    "expiry": expire,
    "save": save_ended,
}


@pytest.mark.parametrize("how", ENDS)
def test_whatever_ends_a_wait_takes_it_out_of_all_places(world, how: str):
    waiting(world, accepts={"a": 1}, timeout_ms=60_000, task_type="approval", task_id="t1")
    assert len(index_keys(world)) >= 6
    ENDS[how](world)
    assert index_keys(world) == []
    assert world.raw("EXISTS", world.keys.delayed, world.keys.delayed_body) == 0
    row = world.row()
    assert not row.get("wait_index")
    assert not row.get("wait_task")


def test_of_two_that_wait_the_other_stays_where_it_is(world):
    waiting(world, "e2", accepts={"a": 1}, task_type="approval", task_id="t2")
    before = {key: world.raw("DUMP", key) for key in index_keys(world)}
    waiting(world, "e", accepts={"a": 1}, task_type="approval", task_id="t1")
    assert {key: world.raw("DUMP", key) for key in index_keys(world)} != before
    delete(world)
    assert sorted(before) == index_keys(world)
    assert ids_of(found(world, data={"a": 1}, correlation=None)[0]) == ["e2"]
