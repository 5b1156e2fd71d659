"""``Client`` and ``AsyncClient``: the same answers, blocking and async, and what happens when answers are lost."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from plaita import AsyncClient, Client
from plaita.client import operations
from plaita.errors import ConfigError, InputError, RefusedError, UnreachableError, WaitTimeoutError
from plaita.flow.outline import flow_hash
from plaita.jsontext import dumps
from plaita.runtime_config import config_family
from plaita.store.call import Call, Refused, Unavailable, Unknown, Value
from plaita.store.keys import Keys


def put(client: Client, definition: dict[str, Any]) -> None:
    client.perform(
        operations.put_flow(client.keys, "hello", None, flow_hash(definition), dumps(definition), force=False)
    )


def test_blocking_client(connected: str, hello: dict[str, Any]) -> None:
    with Client() as client:
        put(client, hello)
        started = client.start("hello", {"name": "x"}, execution_id="e1")
        assert (started.execution_id, started.version, started.status) == ("e1", "1", "pending")
        assert client.get("e1")["input"] == {"name": "x"}
        assert client.cancel("e1", "enough")["cancel_requested"] is True
        with pytest.raises(WaitTimeoutError, match="e1 is pending"):
            client.wait("e1", timeout=0.1)
        with pytest.raises(RefusedError) as caught:
            client.get("nope")
        assert caught.value.reason == "no_row"
        for bad in ({1, 2}, float("nan"), {"a": {5: 6}}, object()):
            with pytest.raises(InputError, match="input"):
                client.start("hello", bad)
        assert client.start("hello").status == "pending"
        assert client.get("e1")["execution_id"] == "e1"


def test_async_client_runs_calls_at_the_same_time(connected: str, hello: dict[str, Any]) -> None:
    with Client() as client:
        put(client, hello)

    async def work() -> None:
        async with AsyncClient() as client:
            started = await asyncio.gather(*(client.start("hello", {"n": n}) for n in range(20)))
            assert len({one.execution_id for one in started}) == 20
            shown = await asyncio.gather(*(client.get(one.execution_id) for one in started))
            assert [one["input"]["n"] for one in shown] == list(range(20))
            assert (await client.cancel(started[0].execution_id))["cancel_requested"] is True
            with pytest.raises(WaitTimeoutError):
                await client.wait_all([one.execution_id for one in started], timeout=0.1)
            with pytest.raises(RefusedError):
                await client.resume("e", "event")
            assert (await client.publish("paid", {"n": 1}, event_id="e1")).duplicate is False
            assert (await client.publish("paid", {"n": 1}, event_id="e1")).duplicate is True

    asyncio.run(work())


@pytest.mark.parametrize(
    ("arguments", "named", "told"),
    [
        (("",), {}, "event type"),
        (("x" * 1025,), {}, "event type"),
        (("paid", float("nan")), {}, "data"),
        (("paid", "x" * 70_000), {}, "65536"),
        (("paid",), {"correlation_id": ""}, "correlation id"),
        (("paid",), {"correlation_id": "\ud800"}, "correlation id"),
        (("paid",), {"event_id": "a b"}, "event id"),
    ],
)
def test_an_event_that_cannot_be_published_says_why(
    connected: str, arguments: tuple[Any, ...], named: dict[str, Any], told: str
) -> None:
    with Client() as client:
        with pytest.raises(InputError, match=told):
            client.publish(*arguments, **named)


def test_wrong_settings_and_nobody_there(connected: str) -> None:
    with pytest.raises(ConfigError):
        Client("ftp://x")
    with pytest.raises(InputError):
        Client(tenant="a:b")
    with Client("redis://127.0.0.1:1/0") as client, pytest.raises(UnreachableError):
        client.get("e1")


def test_C3_only_a_producer_that_knows_the_group_names_a_family(connected: str) -> None:
    with Client() as client:
        assert client.family is None
    with Client(consumer_group="workers-2") as client:
        assert client.family == config_family(client.config)


# -- operations, answer by answer ---------------------------------------------------------------


def drive(operation: Any, *answers: Any) -> tuple[Any, list[str]]:
    """Feed an operation its answers in turn; its value and the names of the calls it made."""
    left, names, answer = list(answers), [], None
    try:
        while True:
            step = operation.send(answer)
            if isinstance(step, Call):
                names.append(step.name)
                answer = left.pop(0)
            else:
                answer = None
    except StopIteration as done:
        assert not left
        return done.value, names


def a_call(*, idempotent: bool) -> Call[Any]:
    return Call("test.call", None, (), ("PING",), "writer", idempotent, lambda reply: reply)


def test_an_idempotent_call_is_sent_again_after_a_lost_answer() -> None:
    value, names = drive(operations.ask(a_call(idempotent=True)), Unknown("lost"), Unknown("lost"), Value(7))
    assert value == 7
    assert len(names) == 3


def test_another_call_is_never_sent_twice() -> None:
    with pytest.raises(UnreachableError, match="may have been done"):
        drive(operations.ask(a_call(idempotent=False)), Unknown("lost"), Value(7))


def test_it_gives_up_after_some_lost_answers() -> None:
    with pytest.raises(UnreachableError, match="may have been done"):
        drive(operations.ask(a_call(idempotent=True)), *[Unknown("lost")] * 4)


def test_unavailable_and_refused_are_told_apart() -> None:
    with pytest.raises(UnreachableError, match="no route"):
        drive(operations.ask(a_call(idempotent=True)), Unavailable("no route"))
    with pytest.raises(RefusedError) as caught:
        drive(operations.ask(a_call(idempotent=True)), Refused("word", "detail"))
    assert (caught.value.reason, str(caught.value)) == ("word", "detail")


def test_wait_sits_out_an_outage_but_not_at_its_beginning() -> None:
    with pytest.raises(UnreachableError):
        drive(operations.wait(Keys(), ["e"], None), Unavailable("down"))
    with pytest.raises(RefusedError):
        drive(operations.wait(Keys(), ["e"], None), Value(["running"]), Unavailable("down"), Value([None]))


@pytest.mark.parametrize("timeout", ["5", -1, float("inf"), float("nan")])
def test_a_time_to_wait_is_a_finite_number(connected: str, timeout: Any) -> None:
    with Client() as client, pytest.raises(InputError, match="a number of seconds"):
        client.wait("e1", timeout)
