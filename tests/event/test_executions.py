"""Events and executions: filter, reconciler, timeout callbacks, and the bus beside a FlowWorker (ledger E1-E4)."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from plaita.errors import UnreachableError
from plaita.event import (
    Event,
    EventFilter,
    EventReconciler,
    EventSubscription,
    RedisEventBus,
    SubscriptionTimeouts,
    TimeoutCallbackError,
)
from plaita.server import FlowWorker
from plaita.storage import RedisExecutionStorage, RedisFlowStorage
from plaita.testing.server import Server

_numbers = itertools.count(1)


class World:
    """A worker, a bus, and flows that wait: ``paid`` for events of the bus, ``bare`` for what only a program sends."""

    def __init__(self, url: str) -> None:
        prefix = f"w{next(_numbers)}"
        self.executions = RedisExecutionStorage(url, key_prefix=prefix)
        self.flows = RedisFlowStorage(url, key_prefix=prefix)
        self.queue = f"{prefix}:queue"
        self.bus = RedisEventBus(url, key_prefix=prefix, queue_name=self.queue)
        nodes = [
            {"type": "start", "id": "s", "next": "w"},
            {"type": "event", "id": "w", "eventType": "paid", "next": "e"},
            {"type": "end", "id": "e", "output": "$NODE.w.event_data"},
        ]
        self.flows.put_flow_definition("paid", {"flow_id": "paid", "nodes": nodes})
        nodes = [nodes[0], {**nodes[1], "eventType": "internal"}, nodes[2]]
        self.flows.put_flow_definition("bare", {"flow_id": "bare", "nodes": nodes})
        self.worker = FlowWorker(self.executions, self.flows, self.bus, queue_name=self.queue, lease_ttl_seconds=600)
        self._thread = threading.Thread(target=self.worker.run)
        self._thread.start()

    def waiting(self, flow: str) -> str:
        answer = self.worker.start_flow(flow, {})
        assert answer["status"] == "suspended", answer
        return str(answer["execution_id"])

    def output(self, execution: str) -> Any:
        row = self.bus.client.wait(execution, timeout=60)
        assert row["status"] == "completed"
        return row["output"]

    def close(self) -> None:
        self.worker.stop(wait=True)
        self._thread.join(30)
        self.bus.close()


@pytest.fixture
def world(plaita_server_process: Server) -> Iterator[World]:
    made = World(plaita_server_process.url)
    yield made
    made.close()


def test_E1_a_worker_with_an_event_bus_reads_events_itself(world: World) -> None:
    execution = world.waiting("paid")
    assert world.worker.event_bus is world.bus
    world.worker.event_bus.publish(Event("paid", {"n": 1}, correlation_id=execution))
    assert world.output(execution) == {"n": 1}


def test_E1_a_matching_event_resumes_what_a_program_subscribed(world: World) -> None:
    execution, other = world.waiting("bare"), world.waiting("bare")
    for subscription in (
        EventSubscription("shipped", {"n": 1}, execution),
        EventSubscription("shipped", {"n": 2}, other),
    ):
        world.bus.register_subscription(subscription)
    handle = EventFilter(world.bus).handle
    assert handle(Event("shipped", {"n": 1})) == 0, "without a correlation it is nobody's"
    assert handle(Event("shipped", {"n": 1}, correlation_id=other)) == 0
    event = Event("shipped", {"n": 1}, correlation_id=execution)
    assert handle(event) == 1
    assert world.output(execution) == {"n": 1}
    assert handle(event) == 0
    assert world.bus.client.get(other)["status"] == "suspended"


def test_E1_a_subscription_of_a_flow_or_node_is_for_executions_that_are_there(world: World) -> None:
    execution = world.waiting("bare")
    node = world.bus.client.get(execution)["waiting"]["node_id"]
    handle = EventFilter(world.bus).handle
    for elsewhere in ({"node_id": "another"}, {"flow_id": "another"}):
        subscription = EventSubscription("shipped", None, execution, **elsewhere)
        world.bus.register_subscription(subscription)
        assert handle(Event("shipped", correlation_id=execution)) == 0
        assert world.bus.client.get(execution)["status"] == "suspended"
        assert world.bus.unregister_subscription(subscription.subscription_id), "it may come there yet"
    world.bus.register_subscription(EventSubscription("shipped", None, execution, "bare", node))
    assert handle(Event("shipped", {"n": 1}, correlation_id=execution)) == 1
    assert world.output(execution) == {"n": 1}
    assert handle(Event("shipped", correlation_id=execution)) == 0
    assert world.bus.subscriptions() == [], "it is over, wherever it ended (E2)"


def test_E2_a_subscription_of_what_is_over_or_gone_is_removed_not_enqueued(
    world: World, plaita_server_process: Server
) -> None:
    over = world.waiting("paid")
    world.bus.publish(Event("paid", 1, correlation_id=over))
    world.output(over)
    kept, back = world.waiting("bare"), world.waiting("bare")
    keys = world.bus.client.keys
    row = plaita_server_process.do("DUMP", keys.row(back))
    world.executions.delete_execution_state(back)
    plaita_server_process.do("RESTORE", keys.row(back), 0, row)  # as a backup would
    for execution in (over, "never-was", kept):
        world.bus.register_subscription(EventSubscription("shipped", None, execution))
    for node in (None, "w"):
        world.bus.register_subscription(EventSubscription("shipped", None, back, None, node))
        assert EventFilter(world.bus).handle(Event("shipped", correlation_id=back)) == 0
        assert back not in [one.execution_id for one in world.bus.subscriptions()]
    handle = EventFilter(world.bus).handle
    assert [handle(Event("other", correlation_id=execution)) for execution in (over, "never-was")] == [0, 0]
    assert len(world.bus.subscriptions()) == 3, "only what is matched is looked at"
    assert [handle(Event("shipped", correlation_id=execution)) for execution in (over, "never-was")] == [0, 0]
    assert [one.execution_id for one in world.bus.subscriptions()] == [kept]
    assert world.bus.client.get(over)["output"] == 1


def test_E1_the_same_event_resumes_an_execution_once(world: World) -> None:
    """Though its subscription forgot it: the execution remembers (DECISIONS 27)."""
    execution = world.waiting("bare")
    subscription = EventSubscription("shipped", None, execution)
    event = Event("shipped", correlation_id=execution)
    handle = EventFilter(world.bus).handle
    world.bus.register_subscription(subscription)
    assert handle(event) == 1
    [kept] = world.bus.subscriptions()
    assert kept.processed_events == [event.event_id]
    world.output(execution)
    world.bus.register_subscription(subscription)
    assert handle(event) == 0
    assert world.bus.subscriptions() == []


# -- E3 -------------------------------------------------------------------------------------------------


def test_E3_a_round_replays_what_is_new_and_moves_the_cursor(bus: RedisEventBus) -> None:
    seen: list[Any] = []
    reconciler = EventReconciler(bus, lambda event: seen.append(event.data), batch=2)
    assert reconciler.scan_once() == 0
    bus.batch_publish([Event("t", number) for number in range(5)])
    assert (reconciler.scan_once(), seen) == (5, [0, 1, 2, 3, 4])
    assert bus.load_cursor() == bus.position()
    assert reconciler.scan_once() == 0
    bus.publish(Event("t", 5))
    assert EventReconciler(bus, lambda event: seen.append(event.data)).scan_once() == 1
    assert seen == [0, 1, 2, 3, 4, 5]


def test_E3_a_round_with_a_failed_replay_is_void(bus: RedisEventBus) -> None:
    fails, seen = [2], []

    def replay(event: Event) -> None:
        if event.data in fails:
            raise RuntimeError("not now")
        seen.append(event.data)

    reconciler = EventReconciler(bus, replay, batch=2)
    reconciler.scan_once()
    before = bus.load_cursor()
    bus.batch_publish([Event("t", number) for number in range(5)])
    assert (reconciler.scan_once(), reconciler.failed) == (4, 1), "what failed is not counted as replayed"
    assert bus.load_cursor() == before, "nor left behind by the cursor"
    assert seen == [0, 1, 3, 4], "the others are replayed all the same"
    fails.clear()
    assert (reconciler.scan_once(), reconciler.failed) == (5, 0)
    assert bus.load_cursor() == bus.position()
    assert seen[4:] == [0, 1, 2, 3, 4]


def test_E3_no_further_back_than_the_backfill(bus: RedisEventBus) -> None:
    bus.publish(Event("t", 1))
    time.sleep(0.3)
    seen: list[Any] = []
    assert EventReconciler(bus, seen.append, backfill=0.1).scan_once() == 0
    bus.save_cursor("1-0")
    assert EventReconciler(bus, seen.append, backfill=3600).scan_once() == 1


@pytest.mark.parametrize("cursor", ["", "soon", "5-", "-", "5-x"])
def test_E3_a_cursor_that_cannot_be_read_is_none(bus: RedisEventBus, cursor: str) -> None:
    bus.publish("paid")
    bus.save_cursor(cursor)
    replayed: list[Event] = []
    reconciler = EventReconciler(bus, replayed.append)
    assert (reconciler.scan_once(), len(replayed)) == (1, 1)
    assert (reconciler.scan_once(), len(replayed)) == (0, 1)


def test_E3_an_outage_or_an_interrupt_in_a_round_leaves_the_cursor(bus: RedisEventBus) -> None:
    bus.save_cursor("1-0")
    bus.publish("t")

    def interrupts(event: Event) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        EventReconciler(bus, interrupts).scan_once()
    assert bus.load_cursor() == "1-0"
    gone = RedisEventBus("redis://127.0.0.1:1/0?socket_connect_timeout=0.2")
    with pytest.raises(UnreachableError):
        EventReconciler(gone).scan_once()


def test_E3_rounds_of_its_own_until_it_is_stopped(bus: RedisEventBus) -> None:
    heard = threading.Event()
    reconciler = EventReconciler(bus, lambda event: heard.set(), interval=0.01)
    reconciler.start()
    bus.publish("t")
    assert heard.wait(20)
    reconciler.stop()
    assert not any(thread.name == "event reconciler" for thread in threading.enumerate())


# -- E4 -------------------------------------------------------------------------------------------------


def overdue(bus: RedisEventBus, name: str = "e") -> EventSubscription:
    made = EventSubscription("t", None, name, timeout=5, created_at=time.time() - 10)
    bus.register_subscription(made)
    return made


def test_E4_callbacks_hear_of_what_is_overdue_and_of_nothing_else(bus: RedisEventBus) -> None:
    late = overdue(bus)
    bus.register_subscription(EventSubscription("t", timeout=5))
    bus.register_subscription(EventSubscription("t", created_at=time.time() - 1000))
    heard: list[str] = []
    timeouts = SubscriptionTimeouts(bus, [lambda one: heard.append(one.subscription_id)])
    assert timeouts.check() == 1
    assert heard == [late.subscription_id]
    assert timeouts.check() == 0
    assert len(bus.subscriptions()) == 2


def test_E4_failures_are_collected_and_starve_nobody(bus: RedisEventBus) -> None:
    first, second = overdue(bus, "a"), overdue(bus, "b")
    heard: list[str] = []
    broken = [True]

    def fails(one: EventSubscription) -> None:
        if broken:
            raise ValueError(f"no {one.correlation_id}")

    timeouts = SubscriptionTimeouts(bus, [fails])
    timeouts.register_callback(lambda one: heard.append(str(one.correlation_id)))
    with pytest.raises(TimeoutCallbackError, match="2 timeout callbacks failed") as caught:
        timeouts.check()
    assert sorted(heard) == ["a", "b"]
    failed = {(one, callback is fails, str(error)) for one, callback, error in caught.value.failures}
    assert failed == {(first.subscription_id, True, "no a"), (second.subscription_id, True, "no b")}
    assert len(bus.subscriptions()) == 2, "who failed is to be told again"
    broken.clear()
    assert timeouts.check() == 2
    assert sorted(heard) == ["a", "b"], "the others not"
    assert bus.subscriptions() == []


def test_E4_a_subscription_put_in_place_of_one_that_was_told_of_is_told_of_too(bus: RedisEventBus) -> None:
    first = overdue(bus, "a")
    heard: list[float] = []

    def fails(one: EventSubscription) -> None:
        raise ValueError("always")

    timeouts = SubscriptionTimeouts(bus, [lambda one: heard.append(one.created_at), fails])
    for _ in range(2):
        with pytest.raises(TimeoutCallbackError):
            timeouts.check()
    first.created_at += 1
    bus.register_subscription(first)
    with pytest.raises(TimeoutCallbackError):
        timeouts.check()
    assert heard == [first.created_at - 1, first.created_at]


def test_E4_each_callback_has_a_time_of_its_own(bus: RedisEventBus) -> None:
    """One that hangs is given up, told of, and not begun a second time while it hangs."""
    overdue(bus)
    gate, begun, heard = threading.Event(), [], []

    def hangs(one: EventSubscription) -> None:
        begun.append(one)
        gate.wait(60)

    timeouts = SubscriptionTimeouts(bus, [hangs, lambda one: heard.append(one)], budget=0.05)
    for _ in range(2):
        with pytest.raises(TimeoutCallbackError) as caught:
            timeouts.check()
        [(_, callback, error)] = caught.value.failures
        assert callback is hangs
        assert isinstance(error, TimeoutError)
    assert (len(begun), len(heard)) == (1, 1)
    gate.set()
    timeouts._budget = 20
    assert timeouts.check() == 1
    assert (len(begun), len(heard)) == (1, 1)


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_E4_what_is_no_exception_comes_through(bus: RedisEventBus, kind: type[BaseException]) -> None:
    overdue(bus)

    def interrupts(one: EventSubscription) -> None:
        raise kind

    with pytest.raises(kind):
        SubscriptionTimeouts(bus, [interrupts]).check()
    assert len(bus.subscriptions()) == 1
