"""The event bus, on Redis and in memory alike (CONTRACT "plaita.event", REFERENCE 5.8)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from plaita.client.operations import ask
from plaita.errors import InputError
from plaita.event import (
    Event,
    EventBus,
    EventSubscription,
    EventTimeoutError,
    RedisEventBus,
    RetryPolicy,
    SubscriptionTimeouts,
)
from plaita.store import bus as log
from plaita.store.events import Event as StoreEvent
from plaita.store.events import publish

AT_ONCE = RetryPolicy(max_retries=3, initial_delay=0.001)


def until(condition: Callable[[], Any], what: str) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.005)


def test_what_is_published_is_found_by_its_id(bus: EventBus) -> None:
    event = Event("paid", {"a": 1}, source="shop", correlation_id="order")
    assert bus.publish(event) == event.event_id
    found = bus.get_event(event.event_id)
    assert found is not None
    assert (found.event_type, found.data, found.source, found.correlation_id, found.event_id) == (
        "paid", {"a": 1}, "shop", "order", event.event_id,
    )  # fmt: skip
    assert abs(found.timestamp - event.timestamp) < 60
    assert bus.get_event("another") is None


@pytest.mark.parametrize(
    ("said", "data"),
    [("paid", {}), ({"event_type": "paid", "a": 1, "b": [2]}, {"a": 1, "b": [2]}), (Event("paid", None), None)],
)
def test_an_event_may_be_a_type_or_a_dict(bus: EventBus, said: Any, data: Any) -> None:
    found = bus.get_event(bus.publish_sync(said, correlation_id="c"))
    assert found is not None
    assert (found.event_type, found.data, found.correlation_id) == ("paid", data, "c")


@pytest.mark.parametrize(
    ("said", "names"),
    [
        ({"a": 1}, "event_type"),
        (7, "int"),
        ("", "event type"),
        (Event("t", {"a": float("nan")}), "$.a"),
        (Event("t", "x" * 70_000), "65536"),
        (Event("t", event_id="a b"), "event id"),
        ({"event_type": None}, "event type"),
    ],
)
def test_what_is_no_event_is_refused_by_name(bus: EventBus, said: Any, names: str) -> None:
    before = bus.position()
    with pytest.raises(InputError, match=names.replace("$", r"\$")):
        bus.publish(said)
    assert bus.position() == before


def test_the_same_id_is_the_same_event_unless_that_is_not_wanted(bus: EventBus) -> None:
    event = Event("paid", 1)
    start = bus.position()
    ids = [bus.publish(event), bus.publish(event), bus.publish(event, prevent_duplicate_consumption=False)]
    assert ids[0] == ids[1] == event.event_id != ids[2]
    assert [one.event_id for one in bus.events_after(start)[1]] == [ids[0], ids[2]]


def test_a_batch_goes_out_in_its_order_or_not_at_all(bus: EventBus) -> None:
    start = bus.position()
    ids = bus.batch_publish(["a", {"event_type": "b"}, Event("c")])
    position, found = bus.events_after(start)
    assert ([one.event_type for one in found], [one.event_id for one in found]) == (["a", "b", "c"], ids)
    with pytest.raises(InputError):
        bus.batch_publish(["d", {"no": "type"}])
    assert bus.events_after(position) == (position, [])


def test_events_are_read_in_pages(bus: EventBus) -> None:
    position = bus.position()
    bus.batch_publish([Event("t", number) for number in range(7)])
    sizes, data = [], []
    while True:
        position, page = bus.events_after(position, 3)
        if not page:
            break
        sizes.append(len(page))
        data += [one.data for one in page]
    assert (sizes, data) == ([3, 3, 1], list(range(7)))


def test_events_of_another_tenant_and_what_is_none_are_not_seen(bus: RedisEventBus) -> None:
    start = bus.position()
    keys = bus.client.keys
    bus._ask(publish(keys.for_tenant("t2"), StoreEvent("x", "paid", b"1")))
    bus.client._runner.do(log.Call("t", None, (), ("XADD", keys.event_log, "*", "a", "b"), "writer", True, str))
    bad = ("XADD", keys.event_log, "*", "event_type", "t", "data", "{")
    bus.client._runner.do(log.Call("t", None, (), bad, "writer", True, str))
    bus.publish("mine")
    assert [one.event_type for one in bus.events_after(start, 1)[1]] == ["mine"]
    assert bus.get_event("x") is None


# -- waiting ------------------------------------------------------------------------------------------


def test_wait_for_event_gives_the_first_that_the_condition_takes(bus: EventBus) -> None:
    start = bus.position()
    bus.batch_publish([Event("a", 1), Event("b", 1), Event("a", 2), Event("a", 3)])
    assert bus.wait_for_event("a", 5, lambda event: event.data > 1, since=start).data == 2


def test_wait_for_event_hears_what_comes_while_it_waits(bus: EventBus) -> None:
    got: list[Event] = []
    start = bus.position()
    thread = threading.Thread(target=lambda: got.append(bus.wait_for_event("a", 20, since=start)))
    thread.start()
    bus.publish(Event("b"))
    bus.publish(Event("a", 7))
    thread.join(20)
    assert [one.data for one in got] == [7]


def test_wait_for_event_gives_up_in_time_and_does_not_see_the_past(bus: EventBus) -> None:
    bus.publish("a")
    with pytest.raises(EventTimeoutError, match=r"'a' within 0\.05 s"):
        bus.wait_for_event("a", 0.05)
    with pytest.raises(TimeoutError):
        bus.wait_for_event("b", 0)


# -- subscriptions --------------------------------------------------------------------------------------


def test_subscriptions_are_kept_replaced_and_removed(bus: EventBus) -> None:
    first = EventSubscription("paid", {"a.b": [1]}, "e1", "f", "n", timeout=5, tenant_id="t2", processed_events=["x"])
    second = EventSubscription("paid", created_at=first.created_at + 1)
    assert bus.register_subscription(second) == second.subscription_id
    bus.register_subscription(first)
    assert bus.subscriptions() == [first, second]
    first.filter_condition = None
    bus.register_subscription(first)
    assert bus.subscriptions() == [first, second]
    assert (bus.unregister_subscription(first.subscription_id), bus.unregister_subscription("none")) == (True, False)
    assert bus.subscriptions() == [second]


@pytest.mark.parametrize(
    "record",
    [b"{", b"[1]", b'{"what":1}', b'{"event_type":"paid","created_at":"now"}', b'{"event_type":"paid","timeout":[]}'],
)
def test_a_subscription_that_cannot_be_read_hides_no_other(bus: RedisEventBus, record: bytes) -> None:
    good = EventSubscription("paid")
    bus.register_subscription(good)
    bus.perform(ask(log.save_subscription(bus.client.keys, "a-bad-one", record)))
    assert bus.subscriptions() == [good]
    assert SubscriptionTimeouts(bus).check() == 0


def test_a_subscription_lives_seven_days(bus: EventBus) -> None:
    bus.register_subscription(EventSubscription("paid", created_at=time.time() - 7 * 86_400 - 5))
    young = EventSubscription("paid", created_at=time.time() - 7 * 86_400 + 600)
    bus.register_subscription(young)
    assert bus.subscriptions() == [young]


@pytest.mark.parametrize("bad", [EventSubscription(""), EventSubscription("t", {"a": object()})])
def test_what_is_no_subscription_is_refused(bus: EventBus, bad: EventSubscription) -> None:
    with pytest.raises(InputError):
        bus.register_subscription(bad)
    assert bus.subscriptions() == []


MATCHES = [
    ({}, Event("paid"), None, True),
    ({}, Event("Paid"), None, False),
    ({"event_type": "pa*"}, Event("paid"), None, False),  # wildcards are for handlers
    ({"correlation_id": "c"}, Event("paid", correlation_id="c"), None, True),
    ({"correlation_id": "c"}, Event("paid"), None, False),
    ({}, Event("paid", correlation_id="c"), None, True),
    ({"filter_condition": {"a": 1}}, Event("paid", {"a": 1.0, "b": 2}), None, True),
    ({"filter_condition": {"a": 1}}, Event("paid", {"b": 2}), None, False),
    ({"filter_condition": {"a": 1}}, Event("paid", None), None, False),
    ({"filter_condition": {"a.b": 1}}, Event("paid", {"a": {"b": 1}}), None, True),
    ({"flow_id": "f"}, Event("paid"), {"$FLOW_ID": "f"}, True),
    ({"flow_id": "f"}, Event("paid"), {"$FLOW_ID": "g"}, False),
    ({"flow_id": "f"}, Event("paid"), {}, False),
    ({"flow_id": "f", "node_id": "n"}, Event("paid"), {"$FLOW_ID": "f", "$LAST_NODE": "m"}, False),
    ({"flow_id": "f"}, Event("paid"), None, True),
]


@pytest.mark.parametrize(("fields", "event", "context", "fits"), MATCHES)
def test_matches_event(fields: Any, event: Event, context: Any, fits: bool) -> None:
    assert EventSubscription(**{"event_type": "paid", **fields}).matches_event(event, context) is fits


# -- handlers -------------------------------------------------------------------------------------------


def test_a_handler_hears_types_like_its_pattern_from_then_on(bus: EventBus) -> None:
    heard: dict[str, list[Any]] = {"order.*": [], "order.?": [], "all": [], "big": [], "[x]": []}
    bus.publish(Event("order.before", 0))
    for pattern in ("order.*", "order.?", "[x]"):
        bus.register_handler(pattern, lambda event, pattern=pattern: heard[pattern].append(event.data))
    bus.register_handler(None, lambda event: heard["all"].append(event.data))
    bus.register_handler("*", lambda event: heard["big"].append(event.data), lambda event: event.data > 2)
    bus.batch_publish([Event("order.paid", 1), Event("order.x", 2), Event("Order.x", 3), Event("other", 4)])
    until(lambda: len(heard["all"]) == 4 and len(heard["big"]) == 2 and len(heard["order.*"]) == 2, str(heard))
    until(lambda: heard["order.?"] == [2], str(heard))
    assert heard == {"order.*": [1, 2], "order.?": [2], "all": [1, 2, 3, 4], "big": [3, 4], "[x]": []}


def test_a_handler_that_raises_is_called_again_and_gives_up_in_the_end(bus: EventBus) -> None:
    calls: list[int] = []

    def handler(event: Event) -> None:
        calls.append(event.data)
        if event.data == 1 or (event.data == 2 and calls.count(2) < 3):
            raise RuntimeError("no")

    bus.register_handler("t", handler, retry_policy=AT_ONCE)
    bus.batch_publish([Event("t", 1), Event("t", 2), Event("t", 3)])
    until(lambda: 3 in calls, str(calls))
    assert calls == [1] * 4 + [2] * 3 + [3]


def test_a_slow_or_failing_handler_holds_up_no_other_and_misses_nothing(bus: EventBus) -> None:
    gate, slow, quick = threading.Event(), [], []
    bus.register_handler("t", lambda event: (gate.wait(20), slow.append(event.data)))
    bus.register_handler("t", lambda event: quick.append(event.data))
    bus.batch_publish([Event("t", number) for number in range(250)])
    until(lambda: len(quick) == 250, "the quick one")
    assert slow == []
    gate.set()
    until(lambda: slow == quick, "the slow one")


def test_a_handler_is_called_no_more_once_it_is_unregistered(bus: EventBus) -> None:
    heard: list[int] = []
    handler_id = bus.register_handler("t", lambda event: heard.append(event.data))
    bus.publish(Event("t", 1))
    until(lambda: heard == [1], "the first")
    assert bus.unregister_handler(handler_id) is True
    assert bus.unregister_handler(handler_id) is False
    bus.publish(Event("t", 2))
    others: list[int] = []
    bus.register_handler("t", lambda event: others.append(event.data))
    bus.publish(Event("t", 3))
    until(lambda: others == [3], "another")
    assert heard == [1]


def test_a_handler_may_unregister_itself_and_publish(bus: EventBus) -> None:
    heard: list[str] = []
    ids: list[str] = []

    def handler(event: Event) -> None:
        until(lambda: ids, "the id")
        heard.append(event.event_type)
        bus.publish("answer")
        bus.unregister_handler(ids[0])

    start = bus.position()
    ids.append(bus.register_handler("question", handler))
    bus.publish("question")
    assert bus.wait_for_event("answer", 20, since=start).data == {}
    until(lambda: not bus._handlers, "the end of it")
    assert heard == ["question"]


@pytest.mark.parametrize(("failures", "seconds"), [(1, 1.0), (2, 2.0), (3, 4.0), (7, 60.0), (10_000, 60.0)])
def test_the_usual_retry_policy(failures: int, seconds: float) -> None:
    assert (RetryPolicy().max_retries, RetryPolicy().delay(failures)) == (3, seconds)
