"""Bridges from queues to executions that wait (ledger E1, DECISIONS 41), against two real servers: each message ends
one wait once and none is lost, whichever step a host dies at."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from bridge_world import Queues, settled

from plaita import jsontext
from plaita.policy import bridges as policy
from plaita.store import bridges, queues
from plaita.store.call import Answer
from plaita.store.keys import Keys
from plaita.store.runner_async import AsyncRunner
from plaita.testing.server import Server


def test_E1_a_message_of_a_list_ends_one_wait_and_the_next_one_another(there: Queues) -> None:
    there.waits("e")
    there.waits("e2")
    there.push({"n": 1}, {"n": 2}, {"n": 3})
    there.serve(lambda: bool(there.message("e") and there.message("e2")) and settled(there))
    assert [there.message(each)["message"] for each in ("e", "e2")] == [{"n": 1}, {"n": 2}]
    said = there.message("e")
    assert (said["trigger_type"], said["success"], said["queue_name"], said["raw_message"]) == (
        "redis_message",
        True,
        "q",
        '{"n":1}',
    )
    assert (said["execution_id"], said["tenant_id"], said["node_id"]) == ("e", "default", "w")
    assert there.kept() == [{"n": 3}]
    assert there.left_behind() == []
    assert there.world.raw("EXISTS", there.keys.tasks_of_all("redis_queue"), there.keys.tasks("redis_queue")) == 0
    assert there.world.raw("KEYS", "*bridges*") == []


def test_E1_many_waits_two_hosts_each_message_once(there: Queues) -> None:
    names = [f"e{n}" for n in range(30)]
    for name in names:
        there.waits(name)
    there.push(*range(40))
    hosts = there.serve(lambda: all(there.message(name) for name in names) and settled(there), hosts=2)
    got = sorted(there.message(name)["message"] for name in names)
    assert got == list(range(30))
    assert there.kept() == list(range(30, 40))
    assert sum(host.counts.get("queue_messages", 0) for host in hosts) == 30
    assert len(there.world.raw("XRANGE", there.keys.wake, "-", "+")) == 30


def test_E1_killed_between_the_move_and_the_wake(there: Queues) -> None:
    there.waits()
    there.push(1, 2)
    there.taken_by_a_host_that_died()
    assert there.kept() == [2]
    there.serve(lambda: there.message() is not None and settled(there))
    assert (there.message()["message"], there.kept(), there.left_behind()) == (1, [2], [])


def test_E1_killed_between_the_wake_and_the_drop(there: Queues) -> None:
    there.waits()
    there.push(1, 2)
    there.taken_by_a_host_that_died(woken=True)
    there.waits("e2")
    there.serve(lambda: there.message("e2") is not None and settled(there))
    assert (there.message()["message"], there.message("e2")["message"]) == (1, 2)
    assert (there.kept(), there.left_behind()) == ([], [])


def test_E1_the_time_was_up_while_a_message_was_taken_it_goes_back_to_the_head(there: Queues) -> None:
    there.waits()
    there.push(1, 2)
    there.taken_by_a_host_that_died()
    assert there.world.wake(kind="timeout", event_id="").value.woken  # type: ignore[union-attr]
    there.serve(lambda: settled(there))
    assert there.kept() == [1, 2]
    there.waits("e2")
    there.serve(lambda: there.message("e2") is not None and settled(there))
    assert (there.message("e2")["message"], there.kept(), there.left_behind()) == (1, [2], [])


def test_E1_a_host_that_slept_takes_nothing_for_a_wait_that_is_over(there: Queues) -> None:
    there.waits()
    there.push(1, 2)
    wait = there.taken_by_a_host_that_died(woken=True)
    there.serve(lambda: settled(there))

    async def wakes_up() -> Answer[Any]:
        runner = AsyncRunner(policy.queue_of(jsontext.loads(wait.config)).target.url)
        answer = await runner.run(queues.take("q", wait.digest, 1, 1000))
        await runner.close()
        return answer

    assert asyncio.run(wakes_up()).reason == "closed"  # type: ignore[union-attr]
    assert there.kept() == [2]


def test_E1_an_execution_that_was_removed_gives_its_message_back(there: Queues) -> None:
    there.waits()
    there.push(1)
    there.taken_by_a_host_that_died()
    there.world.raw("DEL", there.keys.row("e"))
    there.serve(lambda: settled(there))
    assert (there.kept(), there.left_behind()) == ([1], [])


def test_E1_waits_of_other_tenants_are_found(there: Queues) -> None:
    there.keys = there.world.keys = Keys(tenant="a")
    there.world.put_flow()
    there.waits(timer_fields=[("payload", b"timer"), ("execution_id", "e"), ("tenant_id", "a")])
    there.keys = Keys()
    there.push("hello")
    there.serve(lambda: settled(there) and not there.target.do("EXISTS", "q"))
    assert there.message()["tenant_id"] == "a"


def test_E1_a_batch_is_what_is_there(there: Queues) -> None:
    there.waits(config=there.config(batch=3))
    there.push(1, 2, 3, 4)
    there.serve(lambda: there.message() is not None and settled(there))
    assert (there.message()["message"], there.kept()) == ([1, 2, 3], [4])


@pytest.mark.parametrize("bad", [b"{not json", b"\xff\xfe", b"[" * 250 + b"]" * 250])
def test_S7_a_message_that_cannot_be_read_is_told_and_put_aside(there: Queues, bad: bytes) -> None:
    there.waits()
    there.push(bad, 2)
    there.serve(lambda: there.message() is not None and settled(there))
    said = there.message()
    assert (said["trigger_type"], said["success"]) == ("redis_error", False)
    assert "message_format" in said["error_message"]
    assert there.target.do("LRANGE", "q:bad", 0, -1) == [bad]
    assert there.kept() == [2]


def test_E1_a_stream_is_read_from_the_wait_on_by_each_and_keeps_its_entries(there: Queues) -> None:
    there.target.do("XADD", "s", "1-1", "n", "0")
    there.waits("e", there.config("s", "stream"))
    there.waits("e2", there.config("s", "stream"))
    there.target.do("XADD", "s", "*", "n", "1", "who", "you")
    there.target.do("XADD", "s", "*", "n", "2")
    there.serve(lambda: bool(there.message("e") and there.message("e2")) and settled(there))
    assert [there.message(each)["message"] for each in ("e", "e2")] == [{"n": 1, "who": "you"}] * 2
    assert there.target.do("XLEN", "s") == 3


def test_E1_a_host_that_is_late_skips_no_entry_of_a_stream(there: Queues) -> None:
    there.waits("e", there.config("s", "stream"))
    there.target.do("XADD", "s", "*", "n", "1")
    there.serve(lambda: bool(there.message("e")) and settled(there), prepare=lambda host: setattr(host, "busy_s", 0.1))
    assert there.message("e")["message"] == {"n": 1}


def test_E1_a_channel_is_heard_by_all_that_wait(there: Queues) -> None:
    there.waits("e", there.config("c", "pubsub"))
    there.waits("e2", there.config("c", "pubsub", form="text"))

    def said() -> bool:
        if there.target.do("PUBSUB", "NUMSUB", "c")[1] and not there.message("e"):
            there.target.do("PUBLISH", "c", '"hi"')
        return bool(there.message("e") and there.message("e2")) and settled(there)

    there.serve(said)
    assert [there.message(each)["message"] for each in ("e", "e2")] == ["hi", '"hi"']


def test_decision_41_a_server_that_is_not_listed_is_never_connected_to(there: Queues) -> None:
    there.waits()
    there.push(1)
    before = there.target.do("INFO", "stats").split(b"total_connections_received:")[1].split()[0]
    [host] = there.serve(lambda: there.message() is not None, allowed=("elsewhere:6379",))
    said = there.message()
    assert said["trigger_type"] == "redis_error"
    assert f"{there.place} is not in PLAITA_REDIS_NODE_TARGETS; it lists elsewhere:6379" in said["error_message"]
    assert there.target.do("INFO", "stats").split(b"total_connections_received:")[1].split()[0] == before
    assert there.kept() == [1]
    assert there.target.password not in str(host.said) + str(said)


@pytest.mark.parametrize(("name", "served"), [("plaita:userqueue:q", True), ("plaita:wake", False), ("q", False)])
def test_decision_41_on_plaitas_own_server_only_user_queues_are_read(there: Queues, name: str, served: bool) -> None:
    own = {"host": there.world.server.socket_path, "password": there.world.server.password}
    there.waits(config=there.config(name, redis=own))
    there.world.raw("RPUSH", name, "1")
    there.serve(lambda: there.message() is not None and settled(there), allowed=(there.world.server.socket_path,))
    said = there.message()
    if served:
        assert said["message"] == 1
    else:
        assert "only names that begin with plaita:userqueue:" in said["error_message"]
    assert there.world.raw("LLEN", name) == (0 if served else 1)


def test_a_queue_of_another_kind_is_an_error(there: Queues) -> None:
    there.waits()
    there.target.do("SET", "q", "x")
    there.serve(lambda: there.message() is not None and settled(there))
    assert "no list" in there.message()["error_message"]


def test_a_server_that_is_away_harms_no_other_wait_and_is_told_of_without_its_password(there: Queues) -> None:
    secret = "S3cr3t-marker"
    there.waits("e", there.config(redis={"port": 1, "password": secret}))
    there.waits("e2", there.config(redis={"password": secret}))
    there.waits("e3")
    there.push(3)
    allowed = (there.place, "127.0.0.1:1")
    [host] = there.serve(lambda: there.message("e3") is not None and settled(there), allowed=allowed)
    assert there.message("e3")["message"] == 3
    told = [fields for event, fields in host.said if event == "queue.target_away"]
    assert {fields["target"] for fields in told} == {there.place, "127.0.0.1:1"}
    assert len(told) == 2
    assert secret not in str(host.said)
    assert (there.message("e"), there.message("e2")) == (None, None)


def test_a_server_that_comes_back_is_read_again(there: Queues, tmp_path: Any) -> None:
    other = Server(tmp_path / "other")
    try:
        other.write_through()
        path = other.socket_path
        there.waits(config=there.config(redis={"host": path, "password": other.password}))
        other.do("RPUSH", "q", "7")
        other.kill()
        state = {"started": False}

        def came_back() -> bool:
            if not state["started"] and there.world.raw("EXISTS", there.keys.tasks_of_all("redis_queue")):
                other.start()
                state["started"] = True
            return there.message() is not None and settled(there)

        there.serve(came_back, allowed=(path,))
        assert there.message()["message"] == 7
    finally:
        other.close()


def test_a_wait_that_ends_leaves_no_task_of_the_platform(there: Queues) -> None:
    there.waits()
    assert there.world.raw("ZCARD", there.keys.tasks_of_all("redis_queue")) == 1
    there.world.wake()
    assert there.world.raw("ZCARD", there.keys.tasks_of_all("redis_queue")) == 0


def test_a_task_of_a_row_that_was_taken_away_is_dropped(there: Queues) -> None:
    there.waits()
    there.world.raw("DEL", there.keys.row("e"))
    page = there.world.do(bridges.take(there.keys, "redis_queue", "me", 10))
    assert page.taken == []
    assert there.world.raw("ZCARD", there.keys.tasks_of_all("redis_queue")) == 0


def test_one_host_reads_for_a_wait_until_its_lock_is_over(there: Queues) -> None:
    there.waits()
    first = there.world.do(bridges.take(there.keys, "redis_queue", "a", 10))
    assert (len(first.taken), first.held) == (1, [])
    digest = first.taken[0][0].digest
    assert there.world.do(bridges.take(there.keys, "redis_queue", "b", 10)).taken == []
    assert there.world.do(bridges.take(there.keys, "redis_queue", "a", 0)).held == [digest]
    there.world.do(bridges.release(there.keys, [digest], "a"))
    assert [wait.digest for wait, _ in there.world.do(bridges.take(there.keys, "redis_queue", "b", 10)).taken] == [
        digest
    ]
    assert "password" not in repr(first)


def test_a_host_takes_no_more_than_it_has_room_for(there: Queues) -> None:
    for name in ("e", "e2", "e3"):
        there.waits(name)
    page = there.world.do(bridges.take(there.keys, "redis_queue", "a", 2))
    assert (page.count, len(page.taken)) == (3, 2)
